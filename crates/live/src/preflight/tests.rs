//! The check in virtual time: probes through a fabric without sockets, every condition at its ends and with every other one, and
//! planted differences that must be found.

use super::judge::Seen;
use super::paths::{Cover, Route};
use super::probe::{Arrival, Single};
use super::{Blame, Line, SMALL, judge, replay, sizes, verdict};
use crate::conditions::{for_preflight, unprobed};
use crate::records::{DAMAGED, DROPPED, DeliveryRecord, FrameRecord, IngressRecord, reason_code};
use crate::writer::ProbeLog;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use timebound_fabric::{DropReason, Fabric, Frame, NO_STREAM, Route as Way, Sink};
use timebound_model::{Class, Network, NodeId, NodeKind, PortId, Time, WireBytes, compile};

const SEED: u64 = 7;
const ORIGIN: u64 = 5_000_000_000;
const OFFSET: i64 = 1_700_000_000_000_000_000;
/// What the receiving kernel is later than the model.
const LATE: u64 = 40_000;

/// A condition of all four ways of h1 - s1 - h2, by its name: keys of the direction, of its impairments, and of the link.
struct Condition {
    name: &'static str,
    direction: Value,
    impairments: Value,
    link: Value,
    /// Do probes meet it, so that a network without it is told from one with it?
    probed: bool,
}

fn of(name: &'static str, direction: Value, impairments: Value, link: Value, probed: bool) -> Condition {
    Condition {
        name,
        direction,
        impairments,
        link,
        probed,
    }
}

fn impaired(name: &'static str, impairments: Value) -> Condition {
    of(name, json!({}), impairments, json!({}), true)
}

fn way(name: &'static str, direction: Value) -> Condition {
    of(name, direction, json!({}), json!({}), true)
}

fn bernoulli(probability: f64) -> Value {
    json!({"loss": {"kind": "bernoulli", "probability": probability}})
}

fn elliott(good_to_bad: f64, bad_to_good: f64, loss_in_bad: f64) -> Value {
    json!({"loss": {"kind": "gilbert-elliott", "good_to_bad": good_to_bad, "bad_to_good": bad_to_good,
                    "loss_in_good": 0.0, "loss_in_bad": loss_in_bad}})
}

fn jitter(max_ns: u64, reorder: bool) -> Value {
    json!({"jitter": {"distribution": {"kind": "uniform", "max_ns": max_ns}, "reorder": reorder}})
}

/// Every condition that a way can have, at its ends.
fn conditions() -> Vec<Condition> {
    let unseen = |name, direction, impairments| of(name, direction, impairments, json!({}), false);
    let disconnections = json!({"disconnections": {"mean_up_ns": 1_000_000, "mean_down_ns": 500_000_000, "distribution": "fixed"}});
    vec![
        unseen("loss 0.0001 %", json!({}), bernoulli(0.000_001)),
        impaired("loss 1 %", bernoulli(0.01)),
        impaired("loss 99 %", bernoulli(0.99)),
        impaired("loss 100 %", bernoulli(1.0)),
        impaired("bursts of loss", elliott(0.05, 0.3, 0.9)),
        impaired("always bad", elliott(1.0, 0.0, 1.0)),
        impaired("corruption 10 %", json!({"corruption": 0.1})),
        impaired("corruption 100 %", json!({"corruption": 1.0})),
        impaired(
            "corruption drops 100 %",
            json!({"corruption": 1.0, "corruption_drops": true}),
        ),
        impaired("duplication 30 %", json!({"duplication": 0.3})),
        impaired("duplication 100 %", json!({"duplication": 1.0})),
        impaired("jitter 40 ms", jitter(40_000_000, false)),
        // Each probe would keep the next one waiting for too long.
        unseen("jitter 2 s", json!({}), jitter(2_000_000_000, false)),
        impaired("reordering", jitter(40_000_000, true)),
        way("delay 270 ms", json!({"delay_ns": 270_000_000})),
        way("delay 3 s", json!({"delay_ns": 3_000_000_000u64})),
        unseen("delay 20 s", json!({"delay_ns": 20_000_000_000u64}), json!({})),
        way("30 kbit/s", json!({"rate_bps": 30_000})),
        way("1 kbit/s", json!({"rate_bps": 1_000})),
        unseen("10 bit/s", json!({"rate_bps": 10}), json!({})),
        way("100 Gbit/s", json!({"rate_bps": 100_000_000_000u64})),
        way("trace", json!({"trace": "cell"})),
        unseen("fifo", json!({"queue": {"kind": "fifo"}}), json!({})),
        unseen("buffer for one", json!({"buffer_bytes": 1_600}), json!({})),
        unseen("outage", json!({}), json!({"outages": [[0, 9_000_000_000u64]]})),
        unseen("disconnections", json!({}), disconnections),
        of(
            "half duplex",
            json!({}),
            json!({}),
            json!({"half_duplex": true}),
            false,
        ),
    ]
}

fn lay(base: &mut Value, over: &Value) {
    for (key, value) in over.as_object().unwrap() {
        base[key] = value.clone();
    }
}

/// h1 - s1 - h2 at 10 Mbit/s with these conditions; `None` where they exclude each other.
fn network(conditions: &[&Condition]) -> Option<Arc<Network>> {
    let mut direction = json!({"rate_bps": 10_000_000, "delay_ns": 5_000, "queue": {"kind": "strict-priority"},
                               "buffer_bytes": 262_144, "impairments": {}});
    let mut links = [json!({"a": "h1", "b": "s1"}), json!({"a": "s1", "b": "h2"})];
    for condition in conditions {
        lay(&mut direction, &condition.direction);
        lay(&mut direction["impairments"], &condition.impairments);
        links.iter_mut().for_each(|link| lay(link, &condition.link));
    }
    for link in &mut links {
        lay(link, &json!({"forward": direction, "backward": direction}));
    }
    let declaration = json!({
        "nodes": [{"name": "h1", "kind": "host"}, {"name": "h2", "kind": "host"},
                  {"name": "s1", "kind": "switch", "switching_min_ns": 1_000, "switching_max_ns": 3_000}],
        "links": links, "streams": [], "traces": {"cell": [1, 5, 5, 20, 60]}});
    compile(&serde_json::from_value(declaration).unwrap())
        .ok()
        .map(Arc::new)
}

#[derive(Default)]
struct Records {
    log: ProbeLog,
    /// Flow, sequence, wire and ingress by tag.
    sent: Vec<(u32, u32, u32, u64)>,
}

impl Records {
    fn record(&mut self, frame: &Frame, flags: u16, delivered_ns: i64, reason: u32, port: u32) {
        let (flow, sequence, wire, ingress) = self.sent[frame.tag as usize];
        self.log.frames.push(FrameRecord {
            flow,
            sequence,
            wire,
            flags,
            delivered_ns,
            ingress_ns: ingress as i64,
            lateness_or_reason: reason,
            messages_or_port: port,
            ..FrameRecord::default()
        });
    }

    fn delivery(&mut self, tag: u64, time: Time, host: u32, leaf: u32, outcome: u32, port: u32) {
        let time = time.0;
        self.log.deliveries.push(DeliveryRecord {
            tag,
            time,
            host,
            leaf,
            outcome,
            port,
        });
    }
}

impl Sink for Records {
    fn delivered(&mut self, at: Time, host: NodeId, leaf: u32, frame: &Frame, damaged: bool) {
        let flags = if damaged { DAMAGED } else { 0 };
        self.record(frame, flags, at.0 as i64, 0, 0);
        self.delivery(frame.tag, at, host.0, leaf, u32::from(damaged), u32::MAX);
    }
    fn dropped(&mut self, at: Time, port: Option<PortId>, frame: &Frame, reason: DropReason) {
        let (reason, port) = (reason_code(reason), port.map_or(u32::MAX, |port| port.0));
        self.record(frame, DROPPED, -1, reason, port);
        self.delivery(
            frame.tag,
            at,
            u32::MAX,
            timebound_fabric::NO_LEAF,
            16 + reason,
            port,
        );
    }
    fn copied(&mut self, _: u32, _: u32) {}
}

/// What the check of `declared` sees where `real` is emulated, and how it judges.
struct Attempt {
    declared: Arc<Network>,
    routes: Vec<Route>,
    coverable: BTreeSet<PortId>,
    single: Vec<Single>,
    arrivals: Vec<Arrival>,
    log: ProbeLog,
    counted: BTreeSet<PortId>,
}

impl Attempt {
    fn new(declared: &Network, real: &Network) -> Self {
        let (declared, real) = (for_preflight(declared), for_preflight(real));
        let hosts = (0..declared.nodes.len()).filter(|index| declared.nodes[*index].kind == NodeKind::Host);
        let hosts = hosts.map(|index| (index, NodeId::new(index))).collect();
        let (routes, coverable) = Cover::new(&declared, &BTreeSet::new(), &[], hosts).pairs();
        let mut attempt = Self {
            declared,
            routes,
            coverable,
            single: Vec::new(),
            arrivals: Vec::new(),
            log: ProbeLog::default(),
            counted: BTreeSet::new(),
        };
        attempt.carry(&real);
        attempt
    }

    /// As the prober does it, through a fabric.
    fn carry(&mut self, real: &Arc<Network>) {
        let network = Arc::clone(&self.declared);
        let mut records = Records::default();
        let mut now = 1_000_000;
        let mut ingress = Vec::new();
        let mut send = |route: &Route, payload: usize, at: u64| {
            let sequence = records.sent.len() as u32;
            records.sent.push((route.flow, sequence, route.wire(payload), at));
            ingress.push(IngressRecord {
                time: at,
                host: route.from.0,
                wire: route.wire(payload),
                kind: 1,
                argument: route.to.0,
                stream: NO_STREAM,
                tag: u64::from(sequence),
                ..IngressRecord::default()
            });
            Single {
                flow: route.flow,
                sequence,
            }
        };
        for route in &self.routes {
            for payload in sizes(route, &network, 1_500) {
                self.single.push(send(route, payload, now));
                now += if route.is_slow(&network, route.wire(payload)) {
                    route.occupancy(&network, route.wire(payload))
                } else {
                    route.greatest_with_copies(&network, route.wire(payload))
                };
                now += 5_000_000;
            }
        }
        for route in &self.routes {
            let by_chance = |port: &&PortId| {
                let impairments = &network.ports[port.index()].impairments;
                impairments.loss.is_some() || impairments.corruption > 0.0 || impairments.duplication > 0.0
            };
            let gap = route.slowest_transmission(&network, SMALL) * route.most_copies(&network);
            if gap > 100_000_000 {
                continue;
            }
            for port in route.ports.iter().filter(by_chance) {
                if network.ports[port.index()].impairments.loss.is_some() {
                    self.counted.insert(*port);
                }
                for _ in 0..400 {
                    send(route, SMALL, now);
                    now += gap + gap / 8;
                }
            }
        }
        let mut fabric = Fabric::new(Arc::clone(real), SEED);
        for record in &ingress {
            let frame = Frame {
                handle: 0,
                wire: WireBytes(record.wire),
                class: Class(0),
                route: Way::Unicast(NodeId(record.argument)),
                stream: NO_STREAM,
                tag: record.tag,
            };
            fabric.ingress(Time(record.time), NodeId(record.host), frame);
        }
        fabric.advance(Time::MAX, &mut records);
        let intact = |record: &&FrameRecord| record.flags & (DROPPED | DAMAGED) == 0;
        self.arrivals = (records.log.frames.iter().filter(intact))
            .map(|record| Arrival {
                flow: record.flow,
                sequence: record.sequence,
                stamp: (ORIGIN + record.delivered_ns as u64 + LATE).saturating_add_signed(OFFSET),
            })
            .collect();
        self.log = records.log;
        self.log.ingress = ingress;
    }

    fn lines(&self) -> Vec<Line> {
        let seen = Seen {
            network: &self.declared,
            routes: &self.routes,
            single: &self.single,
            arrivals: &self.arrivals,
            log: &self.log,
            origin: ORIGIN,
            offset: OFFSET,
            tolerance: 1_000_000,
        };
        let replayed = replay::run(SEED, &self.declared, &[], &self.log);
        let mut lines = vec![seen.latency(), seen.handover()];
        lines.extend(seen.timeliness());
        if !self.log.ingress.is_empty() {
            lines.push(replayed.line(&self.log).or_blame(Blame::Either));
        }
        lines.extend(self.counted.iter().map(|port| seen.losses(*port, &replayed)));
        lines.push(seen.coverage(&self.coverable));
        lines.extend(judge::unprobed(&unprobed(&self.declared, &[])));
        lines
    }

    /// Why it is refused, if it is.
    fn refused(&self) -> Option<(Blame, String)> {
        if self.single.is_empty() {
            return None;
        }
        let lines = self.lines();
        verdict(&lines).map(|(blame, check)| {
            let text = format!(
                "{}: expected {}, measured {}",
                check.check, check.expected, check.measured
            );
            (blame, text)
        })
    }

    fn line(&self, name: &str) -> crate::report::Check {
        let lines = self.lines();
        let found = lines.into_iter().find(|line| line.check.check == name);
        found.unwrap_or_else(|| panic!("no line {name}")).check
    }
}

fn named(name: &str) -> Condition {
    let found = conditions().into_iter().find(|condition| condition.name == name);
    found.unwrap_or_else(|| panic!("no condition {name}"))
}

fn attempt(names: &[&str]) -> Attempt {
    let conditions: Vec<Condition> = names.iter().map(|name| named(name)).collect();
    let network = network(&conditions.iter().collect::<Vec<_>>()).expect("a valid network");
    Attempt::new(&network, &network)
}

#[test]
fn every_condition_at_its_ends_and_with_every_other_one_passes() {
    let all = conditions();
    let (mut refused, mut tried) = (Vec::new(), 0);
    for (index, first) in all.iter().enumerate() {
        for second in &all[index..] {
            let Some(network) = network(&[first, second]) else {
                continue;
            };
            tried += 1;
            if let Some(why) = Attempt::new(&network, &network).refused() {
                refused.push(format!("{} with {}: {why:?}", first.name, second.name));
            }
        }
    }
    assert!(refused.is_empty(), "{} of {tried}: {refused:#?}", refused.len());
    assert!(tried > 300, "{tried}");
}

/// An emulation that does not do what the scenario says, or does what it does not say, is refused for it.
#[test]
fn a_condition_that_does_not_take_effect_or_was_not_asked_for_is_refused() {
    let plain = network(&[]).unwrap();
    let mut missed = Vec::new();
    for condition in conditions().iter().filter(|condition| condition.probed) {
        let impaired = network(&[condition]).unwrap();
        // A few probes of a way that should lose nothing cannot meet what happens to one frame in a hundred.
        let rare = ["loss 1 %", "bursts of loss", "corruption 10 %"].contains(&condition.name);
        for (what, declared, real) in [
            ("is missing", &impaired, &plain),
            ("is too much", &plain, &impaired),
        ] {
            match Attempt::new(declared, real).refused() {
                _ if rare && what == "is too much" => {}
                Some((Blame::Condition, _)) => {}
                other => missed.push(format!("{} {what}: {other:?}", condition.name)),
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn a_second_copy_is_compared_with_its_own_record_not_with_the_first_ones() {
    // Was refused as "earliest -65.8 us": the first copy against the record of the second.
    let good = attempt(&["duplication 30 %", "loss 1 %"]);
    assert_eq!(good.refused(), None);
    assert_eq!(good.line("never early").measured, "earliest 40.0 us");
    let mut copies: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for arrival in &good.arrivals {
        *copies.entry((arrival.flow, arrival.sequence)).or_default() += 1;
    }
    let doubled = *copies.iter().find(|(_, count)| **count > 1).unwrap().0;
    let of_it = |arrival: &Arrival| (arrival.flow, arrival.sequence) == doubled;
    // One copy that comes before its time, and one that does not come, are found.
    let mut early = attempt(&["duplication 30 %", "loss 1 %"]);
    let position = early.arrivals.iter().rposition(of_it).unwrap();
    early.arrivals[position].stamp -= 100_000;
    assert_eq!(early.line("never early").ok, Some(false));
    let mut missing = attempt(&["duplication 30 %", "loss 1 %"]);
    let position = missing.arrivals.iter().rposition(of_it).unwrap();
    missing.arrivals.remove(position);
    assert_eq!(missing.line("handover").ok, Some(false));
    assert_eq!(missing.line("never early").ok, Some(true));
}

#[test]
fn what_loses_everything_is_not_checked_instead_of_early_by_three_hundred_years() {
    for name in ["loss 100 %", "always bad", "corruption drops 100 %"] {
        let attempt = attempt(&[name]);
        assert_eq!(attempt.refused(), None, "{name}");
        for line in ["latency", "handover", "never early", "real latency"] {
            let line = attempt.line(line);
            assert!(
                line.ok.is_none() && line.measured.starts_with("not checked: "),
                "{line:?}"
            );
        }
        // The second link of each way was never reached.
        let coverage = attempt.line("coverage");
        assert_eq!(
            (coverage.ok, coverage.measured.as_str()),
            (None, "2 of 4; not s1->h1, s1->h2")
        );
    }
    let damaged = attempt(&["corruption 100 %"]);
    assert_eq!(
        damaged.line("latency").ok,
        Some(true),
        "damaged frames have their times too"
    );
    assert_eq!(damaged.line("handover").ok, None);
}

#[test]
fn a_lost_probe_where_nothing_loses_is_no_gap_in_the_check_but_its_failure() {
    let mut attempt = attempt(&["delay 270 ms"]);
    let record = &mut attempt.log.frames[0];
    (record.flags, record.lateness_or_reason) = (DROPPED, reason_code(DropReason::Loss));
    let line = attempt.line("latency");
    assert_eq!(line.ok, Some(false));
    assert!(
        line.measured.ends_with("lost a probe, though nothing there does"),
        "{line:?}"
    );
}

#[test]
fn a_probe_that_had_to_follow_another_one_is_not_judged_as_if_it_was_alone() {
    let mut attempt = attempt(&["30 kbit/s"]);
    let second = attempt.single[1];
    for record in attempt
        .log
        .frames
        .iter_mut()
        .filter(|r| r.sequence == second.sequence)
    {
        // As one that came right behind the first and waited for it.
        record.ingress_ns = 1_000_001;
    }
    assert_eq!(attempt.line("latency").measured, "5 of 5");
}

fn declared(nodes: &[Value], links: &[(String, String)]) -> Network {
    let direction = json!({"rate_bps": 1_000_000_000, "queue": {"kind": "fifo"}, "buffer_bytes": 100_000});
    let links: Vec<Value> = (links.iter())
        .map(|(a, b)| json!({"a": a, "b": b, "forward": direction, "backward": direction}))
        .collect();
    let declaration = json!({"nodes": nodes, "links": links, "streams": []});
    compile(&serde_json::from_value(declaration).unwrap()).unwrap()
}

fn hosts(network: &Network) -> Vec<(usize, NodeId)> {
    let found = network.nodes.iter().enumerate();
    found
        .filter(|(_, node)| node.kind == NodeKind::Host)
        .map(|(index, _)| (index, NodeId::new(index)))
        .collect()
}

#[test]
fn hosts_on_one_switch_need_one_pair_each_not_every_pair() {
    let mut nodes = vec![json!({"name": "s", "kind": "switch"})];
    let names: Vec<String> = (1..=200).map(|index| format!("h{index}")).collect();
    nodes.extend(names.iter().map(|name| json!({"name": name, "kind": "host"})));
    let links: Vec<(String, String)> = names.iter().map(|name| (name.clone(), "s".to_owned())).collect();
    let network = declared(&nodes, &links);
    let (routes, covered) = Cover::new(&network, &BTreeSet::new(), &[], hosts(&network)).pairs();
    assert_eq!((routes.len(), covered.len()), (200, 400));
}

#[test]
fn pairs_cross_every_port_that_any_pair_crosses() {
    // Rings with chords, two hosts at every second switch: ports without a route between hosts among them.
    for size in [3usize, 4, 5, 7, 8, 12] {
        let mut nodes = Vec::new();
        let mut links = Vec::new();
        for index in 0..size {
            nodes.push(json!({"name": format!("s{index}"), "kind": "switch"}));
            links.push((format!("s{index}"), format!("s{}", (index + 1) % size)));
            if index % 2 == 0 {
                for side in ["a", "b"] {
                    nodes.push(json!({"name": format!("{side}{index}"), "kind": "host"}));
                    links.push((format!("{side}{index}"), format!("s{index}")));
                }
            }
        }
        if size > 4 {
            links.push(("s0".to_owned(), format!("s{}", size / 2)));
        }
        let network = declared(&nodes, &links);
        let hosts = hosts(&network);
        let mut every = BTreeSet::new();
        for (_, from) in &hosts {
            for (_, to) in hosts.iter().filter(|(_, to)| to != from) {
                every.extend(network.routes.path(&network.ports, *from, *to).unwrap());
            }
        }
        let (routes, covered) = Cover::new(&network, &BTreeSet::new(), &[], hosts).pairs();
        assert_eq!(covered, every, "{size}");
        let crossed: BTreeSet<PortId> = routes.iter().flat_map(|route| route.ports.clone()).collect();
        assert_eq!(crossed, every, "{size}");
    }
}
