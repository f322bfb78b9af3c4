//! Every condition changed by schedule during real runs: it takes effect, and the simulator says the same of every frame.

mod common;
#[path = "common/replay.rs"]
mod replay;

use common::{Folder, RECEIVER, direction, plan, python, records, run, sender};
use replay::{network, replayed};
use serde_json::{Value, json};
use timebound_live::records::{DAMAGED, DROPPED, DUPLICATE, DeliveryRecord, FRAME_RECORD, FrameRecord};

fn frames(folder: &Folder) -> Vec<FrameRecord> {
    let mut frames: Vec<FrameRecord> = records::<FRAME_RECORD>(&folder.0.join("frames.bin"))
        .iter()
        .map(FrameRecord::decode)
        .collect();
    frames.sort_by_key(|frame| frame.ingress_ns);
    frames
}

fn recorded(folder: &Folder, forward: Value, seconds: f64) -> Value {
    let mut plan = plan(folder, forward, seconds);
    plan["record_ingress"] = json!(true);
    plan
}

fn share(frames: &[&FrameRecord], flag: u16) -> f64 {
    frames.iter().filter(|frame| frame.flags & flag != 0).count() as f64 / frames.len() as f64
}

/// Frames of a part of a second; the borders are left out, where a frame may be under way.
fn within(frames: &[FrameRecord], from_ms: i64, to_ms: i64) -> Vec<&FrameRecord> {
    let inside = (from_ms + 20) * 1_000_000..(to_ms - 20) * 1_000_000;
    let found: Vec<&FrameRecord> = frames
        .iter()
        .filter(|frame| inside.contains(&frame.ingress_ns))
        .collect();
    assert!(
        found.len() > 30,
        "only {} frames from {from_ms} to {to_ms} ms",
        found.len()
    );
    found
}

fn latencies(frames: &[&FrameRecord]) -> Vec<i64> {
    frames
        .iter()
        .filter(|frame| frame.flags & DROPPED == 0)
        .map(|frame| frame.delivered_ns - frame.ingress_ns)
        .collect()
}

#[test]
fn every_condition_of_the_list_takes_effect_at_its_time() {
    let folder = Folder::new("schedule");
    let mut plan = recorded(&folder, direction(100_000_000, 0, json!({})), 5.5);
    let port = json!({"from": "s1", "to": "h2"});
    let at = |milli: u64, change: Value| {
        let mut event = json!({"at_ns": milli * 1_000_000, "port": port});
        event
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        event
    };
    plan["events"] = json!([
        at(1_500, json!({"delay_ns": 5_000_000})),
        at(2_000, json!({"delay_ns": 0, "rate_bps": 1_000_000})),
        at(
            2_500,
            json!({"rate_bps": 100_000_000,
            "impairments": {"jitter": {"distribution": {"kind": "uniform", "max_ns": 4_000_000}}}})
        ),
        at(
            3_000,
            json!({"impairments": {"loss": {"kind": "bernoulli", "probability": 0.4}}})
        ),
        at(3_500, json!({"impairments": {"corruption": 0.5}})),
        at(4_000, json!({"impairments": {"duplication": 0.5}})),
        at(4_500, json!({"impairments": {}, "up": false})),
        at(5_000, json!({"up": true})),
    ]);
    // From before the first event, also where Python takes a second to start, to the end of the run, also where it starts at once.
    plan["programs"] = json!([python("send", "h1", &sender(10_000, 100, 0.002), None)]);
    let Some(said) = run(&folder, &plan) else { return };
    assert!(said.code == 0 || said.code == 4, "{}", said.failure());
    replayed(&folder, &plan, "schedule");
    let all = frames(&folder);
    let plain = |found: &[&FrameRecord]| {
        found
            .iter()
            .all(|f| f.flags & (DROPPED | DAMAGED | DUPLICATE) == 0)
    };
    // 166 bytes on the wire: 13.28 us at 100 Mbit/s, 1.328 ms at 1 Mbit/s; the first link and the switch add less than 5 us.
    let (first, delayed, slow) = (
        within(&all, 0, 1_500),
        within(&all, 1_500, 2_000),
        within(&all, 2_000, 2_500),
    );
    assert!(plain(&first) && plain(&delayed) && plain(&slow));
    assert!(latencies(&delayed).iter().all(|l| *l >= 5_013_280));
    assert!(latencies(&slow).iter().all(|l| *l >= 1_328_000));
    // Bursts of a busy host queue up, so the least shows the condition.
    assert!(latencies(&first).iter().min().is_some_and(|l| *l < 20_000));
    assert!(latencies(&delayed).iter().min().is_some_and(|l| *l < 5_020_000));
    assert!(latencies(&slow).iter().min().is_some_and(|l| *l < 1_340_000));
    let jittered = latencies(&within(&all, 2_500, 3_000));
    assert!(jittered.iter().filter(|l| **l > 1_000_000).count() > jittered.len() / 4);
    // The seeded verdicts themselves are the replay's; here only that each rule was at work in its own time.
    assert!((0.2..0.6).contains(&share(&within(&all, 3_000, 3_500), DROPPED)));
    assert!((0.25..0.75).contains(&share(&within(&all, 3_500, 4_000), DAMAGED)));
    assert!(share(&within(&all, 4_000, 4_500), DUPLICATE) > 0.15);
    let down = within(&all, 4_500, 5_000);
    assert!(
        down.iter()
            .all(|f| f.flags & DROPPED != 0 && f.lateness_or_reason == 3)
    );
    let sent_again = all.iter().filter(|f| f.ingress_ns > 5_020_000_000);
    assert!(sent_again.clone().count() > 5 && sent_again.clone().all(|f| f.flags & DROPPED == 0));
}

#[test]
fn a_half_duplex_link_carries_both_ways_together_what_it_carries_one_way() {
    let folder = Folder::new("half-duplex");
    let mut plan = recorded(&folder, direction(10_000_000, 0, json!({})), 1.6);
    plan["network"]["links"][1]["half_duplex"] = json!(true);
    let back = sender(2_000, 1_472, 0.000_7).replace("10.1.0.2", "10.1.0.1");
    plan["programs"] = json!([
        python("there", "h1", &sender(2_000, 1_472, 0.000_7), None),
        python("back", "h2", &back, None)
    ]);
    let Some(said) = run(&folder, &plan) else { return };
    assert!(said.code == 0 || said.code == 4, "{}", said.failure());
    let found = replayed(&folder, &plan, "half-duplex");
    let hosts = network(&plan);
    let arrived = |name: &str| -> Vec<&DeliveryRecord> {
        let host = hosts.node(name).unwrap().0;
        found
            .iter()
            .filter(|d| d.outcome == 0 && d.host == host)
            .collect()
    };
    let (there, back) = (arrived("h2"), arrived("h1"));
    // Both ask all the time from some moment on: look at the second half, in virtual time.
    let end = there.iter().chain(&back).map(|d| d.time).max().unwrap();
    let middle = |d: &&&DeliveryRecord| (end / 2..end / 2 + 500_000_000).contains(&d.time);
    let (one, other) = (
        there.iter().filter(middle).count(),
        back.iter().filter(middle).count(),
    );
    // 10 Mbit/s are 406.4 frames of 1538 bytes in half a second; full duplex would carry 812.
    assert!((400..=409).contains(&(one + other)), "{one} + {other}");
    assert!(
        one > 100 && other > 100,
        "{one} + {other}: first come, first served"
    );
}

#[test]
fn losses_in_bursts_are_exactly_the_seeded_ones() {
    let folder = Folder::new("gilbert");
    let loss = json!({"loss": {"kind": "gilbert-elliott", "good_to_bad": 0.05, "bad_to_good": 0.25,
        "loss_in_good": 0.0, "loss_in_bad": 1.0}});
    let mut plan = recorded(&folder, direction(100_000_000, 0, loss), 3.0);
    plan["programs"] = json!([
        python("receive", "h2", RECEIVER, None),
        // When the receiver is there for certain: its socket is counted below.
        python("send", "h1", &sender(1_500, 100, 0.001), Some(700_000_000))
    ]);
    plan["drain_ns"] = json!(2_500_000_000u64);
    let Some(said) = run(&folder, &plan) else { return };
    assert!(said.code == 0 || said.code == 4, "{}", said.failure());
    replayed(&folder, &plan, "gilbert");
    let lost: Vec<bool> = frames(&folder)
        .iter()
        .map(|frame| frame.flags & DROPPED != 0)
        .collect();
    let model = network(&plan);
    let port = model
        .port_between(model.node("s1").unwrap(), model.node("h2").unwrap())
        .unwrap();
    // Set-up chatter of the kernel (address resolution) may take draws before the first datagram.
    let verdicts = timebound_fabric::loss_verdicts(&model, 7, port, lost.len() + 40);
    let shift = (0..40).find(|shift| verdicts[*shift..*shift + lost.len()] == lost[..]);
    assert!(shift.is_some(), "other verdicts than seeded");
    let count = lost.iter().filter(|lost| **lost).count();
    // A sixth in the long run; bursts of 4 make the spread wide.
    assert!((150..360).contains(&count), "{count} of {}", lost.len());
    let got = folder.read("logs/receive.log").lines().count();
    assert_eq!(got, lost.len() - count, "what the receiver's socket got");
}

#[test]
fn a_link_with_a_trace_carries_its_capacity() {
    let folder = Folder::new("trace");
    let mut forward = direction(1_000_000, 3_000_000, json!({}));
    forward["trace"] = json!("t");
    forward["buffer_bytes"] = json!(60_000);
    let mut plan = recorded(&folder, forward, 4.0);
    // Five packets in 10 ms, unevenly: 6.016 Mbit/s of 1504 bytes.
    plan["network"]["traces"] = json!({"t": [1, 1, 4, 9, 10]});
    plan["network"]["links"][1]["backward"]["trace"] = Value::Null;
    plan["programs"] = json!([
        python("receive", "h2", RECEIVER, None),
        python("send", "h1", &sender(2_500, 1_472, 0.001), Some(700_000_000))
    ]);
    plan["drain_ns"] = json!(2_500_000_000u64);
    let Some(said) = run(&folder, &plan) else { return };
    assert!(said.code == 0 || said.code == 4, "{}", said.failure());
    replayed(&folder, &plan, "trace");
    let delivered: Vec<i64> = frames(&folder)
        .iter()
        .filter(|frame| frame.flags & DROPPED == 0)
        .map(|frame| frame.delivered_ns)
        .collect();
    assert!(
        delivered
            .iter()
            .all(|at| matches!((at - 3_000_000) / 1_000_000 % 10, 0 | 1 | 4 | 9))
    );
    assert!(
        delivered.iter().all(|at| at % 1_000_000 == 0),
        "at an opportunity, 3 ms of delay later"
    );
    let start = delivered[0] + 500_000_000;
    let second = delivered
        .iter()
        .filter(|at| (start..start + 1_000_000_000).contains(*at))
        .count();
    assert!(
        (498..=502).contains(&second),
        "{second} packets in a second, not 500"
    );
    let got = folder.read("logs/receive.log").lines().count();
    assert_eq!(got, delivered.len(), "what the receiver's socket got");
}
