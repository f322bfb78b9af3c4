//! The check of the emulated conditions before anything is measured.
//!
//! Probe frames go from node to node through kernel sockets and a fabric of their own (the random streams of the measured run
//! are not touched). Four things must hold, or the run is refused: the virtual latency of every probe is what rates, delays and
//! switching say, worked out here without the fabric; the fabric replayed with the recorded stamps gives the same verdicts at
//! the same times; real receivers got what the verdicts say, never early and about in time; and TCP passes data.

mod blame;
mod paths;
mod probe;
mod replay;

use crate::failure::Failure;
use crate::kernel::clock;
use crate::nodes::Nodes;
use crate::plan::Plan;
use crate::plane::{Command, Kind, Lane};
use crate::records::{DAMAGED, DROPPED, DeliveryRecord, FrameRecord, reason_code};
use crate::report::Check;
use crate::stage::Stage;
use crate::writer::ProbeLog;
pub(crate) use blame::{Blame, Line, verdict};
use paths::Route;
use probe::{Arrival, Prober};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use timebound_fabric::{DropReason, Fabric};
use timebound_model::declaration::LossDecl;
use timebound_model::{Network, NodeId, PortId};

/// Bytes of a small probe's payload: the measurement header alone.
const SMALL: usize = 16;
/// Paths slower than this are not probed.
const SLOWEST: u64 = 300_000_000;
/// Error of converting a kernel stamp between clocks.
const CLOCK_ERROR: u64 = 20_000;
/// Half-width of the interval of a share in standard deviations: 99.99 % of a normal distribution lie within.
const DEVIATIONS: f64 = 3.891;

/// Checks the conditions.
///
/// # Errors
/// When the host refuses sockets. A condition that does not hold is a line that is not `ok`.
pub(crate) fn check(
    plan: &Plan,
    network: &Arc<Network>,
    switches: &[NodeId],
    unprobed: &[String],
    nodes: &Nodes,
    stage: &Stage,
) -> Result<Vec<Line>, Failure> {
    let received = stage.received();
    let origin = clock::monotonic();
    let deadline = origin + plan.preflight.limit_ns;
    let mut fabric = Box::new(Fabric::new(Arc::clone(network), plan.seed));
    fabric.hand_over(switches);
    stage.send(Command::Open(Lane {
        kind: Kind::Preflight,
        fabric,
        origin,
    }));
    let (routes, coverable) = paths::cover(network, nodes, switches);
    if routes.is_empty() && nodes.list.iter().any(|node| node.external) {
        return Ok(vec![
            line(
                "coverage",
                "ports on routes between hosts".to_owned(),
                "none: no two hosts that are neither devices nor virtual machines, so nothing was proved"
                    .to_owned(),
                true,
            )
            .or_blame(Blame::Machine),
        ]);
    }
    let mut prober =
        Prober::open(nodes, &routes).map_err(|error| Failure::host("cannot open probe sockets", error))?;
    let half = origin + plan.preflight.limit_ns / 2;
    let mut covered = BTreeSet::new();
    let mut probed = 0;
    for route in &routes {
        if clock::monotonic() > half {
            break;
        }
        if route.greatest_latency(network, plan_mtu(nodes)) < SLOWEST {
            prober.visit(route, network);
            covered.extend(route.ports.iter().copied());
        }
        probed += 1;
    }
    let counted = count_losses(plan, network, &mut prober, &routes[..probed], deadline);
    let mut lines = Vec::new();
    lines.extend(tcp_line(network, nodes, &routes[..probed], deadline));
    let arrivals = settle(&mut prober, stage, deadline);
    let log = stage.probes();
    // A data plane that is alive but saw none of the probes has no working ring: that is no question of load.
    let blind = prober.has_sent() && stage.received() == received;
    let by_probe: BTreeMap<(u32, u32), &FrameRecord> = log
        .frames
        .iter()
        .map(|record| ((record.flow, record.sequence), record))
        .collect();
    let mut latency = latency_line(network, &routes, &by_probe, &prober);
    if blind {
        latency.blame = Blame::Condition;
    }
    lines.insert(0, latency);
    lines.push(handover_line(&arrivals, &log));
    lines.extend(lateness_lines(
        &arrivals,
        &by_probe,
        origin,
        plan.preflight.tolerance_ns,
    ));
    let replayed = replay::run(plan.seed, network, switches, &log);
    let nothing = log.ingress.is_empty();
    lines.push(
        replayed
            .line(&log)
            .or_blame(if nothing { Blame::Machine } else { Blame::Either }),
    );
    lines.extend(
        counted
            .iter()
            .map(|port| loss_line(network, *port, replayed.sent_by(*port), &log).or_blame(Blame::Either)),
    );
    lines.push(coverage_line(network, &coverable, &covered).or_blame(Blame::Machine));
    lines.extend(unprobed_line(unprobed).map(|line| line.or_blame(Blame::Either)));
    lines.extend(settings_lines(nodes));
    Ok(lines)
}

fn plan_mtu(nodes: &Nodes) -> u32 {
    nodes.list.iter().map(|node| node.mtu).max().unwrap_or(1500)
}

/// Sends probes in numbers over each port with losses; the ports for which that was done.
fn count_losses(
    plan: &Plan,
    network: &Network,
    prober: &mut Prober<'_>,
    routes: &[Route],
    deadline: u64,
) -> Vec<PortId> {
    let lossy = |port: &PortId| network.ports[port.index()].impairments.loss.is_some();
    let ports: BTreeSet<PortId> = routes
        .iter()
        .flat_map(|route| route.ports.iter().copied().filter(lossy))
        .collect();
    let mut done = Vec::new();
    let begun = clock::monotonic();
    let share = deadline.saturating_sub(begun) / 2 / (ports.len() as u64).max(1);
    for port in ports {
        let Some(route) = routes.iter().find(|route| route.ports.contains(&port)) else {
            continue;
        };
        let gap = route.slowest_transmission(network, SMALL);
        let count = u64::from(plan.preflight.loss_probes).min(share / gap.max(2_000));
        // With fewer than this many an interval says nothing.
        if count >= 20 {
            prober.burst(route, count as u32, gap);
            done.push(port);
        }
    }
    done
}

/// Waits until the model is empty and its records are written, collecting what arrives.
fn settle(prober: &mut Prober<'_>, stage: &Stage, deadline: u64) -> Vec<Arrival> {
    let mut quiet_since = None;
    loop {
        prober.collect();
        let now = clock::monotonic();
        if stage.inside() > 0 {
            quiet_since = None;
        } else if now - *quiet_since.get_or_insert(now) > 30_000_000 {
            break;
        }
        if now > deadline + SLOWEST {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    prober.collect();
    prober.arrivals.clone()
}

fn line(check: &str, expected: String, measured: String, ok: bool) -> Check {
    Check {
        check: check.to_owned(),
        expected,
        measured,
        ok,
    }
}

/// Probes that had the network to themselves took exactly the time that their path's figures say.
fn latency_line(
    network: &Network,
    routes: &[Route],
    by_probe: &BTreeMap<(u32, u32), &FrameRecord>,
    prober: &Prober<'_>,
) -> Line {
    let (mut right, mut wrong) = (0u32, Vec::new());
    // What a real switch takes too long for is no condition of ours: the machine kept it waiting.
    let mut excused = true;
    for probe in &prober.single {
        let Some(record) = by_probe.get(&(probe.flow, probe.sequence)) else {
            continue;
        };
        if record.flags & DROPPED != 0 {
            continue;
        }
        let route = &routes[probe.flow as usize];
        let (least, greatest) = route.latency(network, record.wire);
        let latency = (record.delivered_ns - record.ingress_ns) as u64;
        if (least..=greatest).contains(&latency) {
            right += 1;
        } else {
            excused &= !route.switches.is_empty() && latency > greatest;
            wrong.push(format!(
                "{} took {latency} ns, not {least}..{greatest}",
                route.name(network)
            ));
        }
    }
    let measured = match wrong.first() {
        None => format!("{right} of {right}"),
        Some(first) => format!("{} of {}, {first}", right, right as usize + wrong.len()),
    };
    let expected = "virtual latency of every probe as rates, delays and switching say".to_owned();
    let unseen = wrong.is_empty() && by_probe.is_empty();
    let kept = excused && !wrong.is_empty();
    let blame = if unseen || kept {
        Blame::Machine
    } else {
        Blame::Condition
    };
    line("latency", expected, measured, wrong.is_empty() && right > 0).or_blame(blame)
}

/// What the model delivered has arrived at the sockets, large frames included, and nothing else has.
fn handover_line(arrivals: &[Arrival], log: &ProbeLog) -> Line {
    let delivered: BTreeMap<(u32, u32), usize> = {
        let mut counts = BTreeMap::new();
        for record in &log.frames {
            let intact = record.flags & (DROPPED | DAMAGED) == 0;
            if intact {
                *counts.entry((record.flow, record.sequence)).or_insert(0) += 1;
            }
        }
        counts
    };
    let mut got: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for arrival in arrivals {
        *got.entry((arrival.flow, arrival.sequence)).or_insert(0) += 1;
    }
    let sum = |counts: &BTreeMap<_, usize>| counts.values().sum::<usize>();
    line(
        "handover",
        format!("{} probes arrive at their sockets", sum(&delivered)),
        format!("{}", sum(&got)),
        delivered == got && !got.is_empty(),
    )
    .or_blame(if log.frames.is_empty() {
        Blame::Machine
    } else {
        Blame::Either
    })
}

fn lateness_lines(
    arrivals: &[Arrival],
    by_probe: &BTreeMap<(u32, u32), &FrameRecord>,
    origin: u64,
    tolerance: u64,
) -> Vec<Line> {
    let offset = clock::realtime_offset();
    let mut lateness = Vec::new();
    for arrival in arrivals {
        if let Some(record) = by_probe
            .get(&(arrival.flow, arrival.sequence))
            .filter(|r| r.delivered_ns >= 0)
        {
            let due = origin as i64 + record.delivered_ns;
            lateness.push(arrival.stamp as i64 - offset - due);
        }
    }
    lateness.sort_unstable();
    let median = lateness.get(lateness.len() / 2).copied().unwrap_or(i64::MAX);
    let earliest = lateness.first().copied().unwrap_or(i64::MIN);
    let us = |nanos: i64| format!("{:.1} us", nanos as f64 / 1_000.0);
    vec![
        line(
            "never early",
            format!(
                "no probe more than {} before its virtual arrival",
                us(CLOCK_ERROR as i64)
            ),
            format!("earliest {}", us(earliest)),
            earliest >= -(CLOCK_ERROR as i64),
        )
        .or_blame(if by_probe.is_empty() {
            Blame::Machine
        } else {
            Blame::Condition
        }),
        line(
            "real latency",
            format!("median at most {} above the model", us(tolerance as i64)),
            format!(
                "{} (worst {})",
                us(median),
                us(lateness.last().copied().unwrap_or(i64::MAX))
            ),
            median <= tolerance as i64,
        )
        .or_blame(if lateness.is_empty() && !by_probe.is_empty() {
            Blame::Either
        } else {
            Blame::Machine
        }),
    ]
}

/// Share of probes lost on one link against the declared probability. Losses of the Gilbert-Elliott kind come in bursts, to
/// which the interval of independent losses does not apply; for these the replay alone decides.
fn loss_line(network: &Network, port: PortId, sent: usize, log: &ProbeLog) -> Check {
    let is_lost = |delivery: &&DeliveryRecord| {
        delivery.outcome == 16 + reason_code(DropReason::Loss) && delivery.port == port.0
    };
    let lost = log.deliveries.iter().filter(is_lost).count();
    let name = format!("loss {}", network.port_name(port));
    let measured = format!("{lost} of {sent} probes");
    let Some(LossDecl::Bernoulli { probability }) = network.ports[port.index()].impairments.loss else {
        return line(&name, "verdicts as replayed".to_owned(), measured, true);
    };
    let n = sent as f64;
    let half = DEVIATIONS * (n * probability * (1.0 - probability)).sqrt() + 1.0;
    let (least, most) = (
        (n * probability - half).max(0.0).floor(),
        (n * probability + half).min(n).ceil(),
    );
    let ok = sent > 0 && (least..=most).contains(&(lost as f64));
    line(
        &name,
        format!("{least} to {most} of {sent} probes ({} %)", probability * 100.0),
        measured,
        ok,
    )
}

fn coverage_line(network: &Network, coverable: &BTreeSet<PortId>, covered: &BTreeSet<PortId>) -> Check {
    let missing: Vec<String> = coverable
        .difference(covered)
        .map(|port| network.port_name(*port))
        .collect();
    let measured = match missing.len() {
        0 => format!("{} of {}", covered.len(), coverable.len()),
        _ => format!(
            "{} of {}; not {}",
            covered.len(),
            coverable.len(),
            missing[..missing.len().min(5)].join(", ")
        ),
    };
    // A large or slow network is not fully covered in the time there is; that is said, not refused.
    line(
        "coverage",
        "ports on routes between hosts".to_owned(),
        measured,
        true,
    )
}

/// Conditions of the run that the probes did not meet: said, not refused.
fn unprobed_line(unprobed: &[String]) -> Option<Check> {
    let first = unprobed[..unprobed.len().min(5)].join(", ");
    let measured = match unprobed.len() {
        0 => return None,
        1..=5 => format!("not probed: {first}"),
        all => format!("not probed: {first} and {} more", all - 5),
    };
    let expected = "conditions that only time brings (the replay of the run shows them)".to_owned();
    Some(line("not probed", expected, measured, true))
}

/// Linux keeps room for 48 bytes of options and data in a segment, whatever the MTU (net.ipv4.tcp_min_snd_mss): with smaller ones there
/// is no TCP.
const LEAST_TCP_MTU: u32 = 88;

/// A TCP connection over one path without losses carries data intact.
/// What the kernel says of TCP in the nodes: no load makes it another.
fn settings_lines(nodes: &Nodes) -> impl Iterator<Item = Line> + '_ {
    nodes.tcp.iter().map(|check| {
        let Check {
            check,
            expected,
            measured,
            ok,
        } = check.clone();
        line(&check, expected, measured, ok).or_blame(Blame::Condition)
    })
}

fn tcp_line(network: &Network, nodes: &Nodes, routes: &[Route], deadline: u64) -> Option<Line> {
    let lossless = |port: &PortId| !network.ports[port.index()].impairments.is_lossy();
    let usable = |route: &&Route| {
        let back = network.routes.path(&network.ports, route.to, route.from);
        route.ports.iter().all(lossless)
            && back.is_some_and(|back| back.iter().all(lossless))
            && nodes
                .list
                .iter()
                .filter(|node| node.id == route.from || node.id == route.to)
                .all(|node| node.mtu >= LEAST_TCP_MTU)
            && route.greatest_latency(network, 1500) < 20_000_000
    };
    let route = routes.iter().find(usable)?;
    let bytes = route
        .bytes_within(network, Duration::from_millis(100))
        .clamp(2_000, 65_536);
    let result = probe::tcp(nodes, route, bytes, deadline);
    let expected = format!("{bytes} bytes over one connection, {}", route.name(network));
    let line = match result {
        Ok(()) => line("tcp", expected, "all, intact".to_owned(), true),
        Err(error) => line("tcp", expected, error.to_string(), false),
    };
    Some(line.or_blame(Blame::Either))
}
