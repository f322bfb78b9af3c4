//! Conditions at their ends, emulated: the check before the run proves them or says what it could not try, and the run goes on.
//! (All pairs of conditions, in virtual time: `src/preflight/tests.rs`.)

mod common;

use common::{Folder, direction, plan, run};
use serde_json::{Value, json};

/// A plan of 0.1 s whose second link has this condition both ways.
fn emulated(folder: &Folder, rate: u64, delay: u64, impairments: &Value) -> Value {
    let way = direction(rate, delay, impairments.clone());
    let mut plan = plan(folder, way.clone(), 0.1);
    plan["network"]["links"][1]["backward"] = way;
    plan["drain_ns"] = json!(0);
    plan
}

fn jitter(max_ns: u64) -> Value {
    json!({"jitter": {"distribution": {"kind": "uniform", "max_ns": max_ns}}})
}

fn loss(probability: f64) -> Value {
    json!({"loss": {"kind": "bernoulli", "probability": probability}})
}

#[test]
fn conditions_at_their_ends_are_emulated_and_what_cannot_be_probed_is_said() {
    let bad = json!({"loss": {"kind": "gilbert-elliott", "good_to_bad": 1.0, "bad_to_good": 0.0,
                              "loss_in_good": 0.0, "loss_in_bad": 1.0}});
    let copies = json!({"duplication": 0.1, "loss": {"kind": "bernoulli", "probability": 0.01}});
    const MEGA: u64 = 1_000_000;
    // Rate, delay, impairments; is a line not checked?
    let table: [(&str, u64, u64, Value, bool); 12] = [
        ("copies", 10 * MEGA, 0, copies, false),
        ("doubled", 10 * MEGA, 0, json!({"duplication": 1.0}), false),
        ("far", 10 * MEGA, 300 * MEGA, json!({}), false),
        ("farther", 10 * MEGA, 2_000 * MEGA, json!({}), false),
        ("out-of-reach", 10 * MEGA, 15_000 * MEGA, json!({}), true),
        ("slow", 30_000, 0, json!({}), false),
        ("slower", 1_000, 0, json!({}), true),
        ("jitter", 10 * MEGA, 270 * MEGA, jitter(40 * MEGA), false),
        ("lost", 10 * MEGA, 0, loss(1.0), true),
        ("bad", 10 * MEGA, 0, bad, true),
        ("damaged", 10 * MEGA, 0, json!({"corruption": 1.0}), true),
        ("fast", 10_000 * MEGA, 0, json!({}), false),
    ];
    for (name, rate, delay, impairments, open) in table {
        let folder = Folder::new(&format!("ends-{name}"));
        let Some(said) = run(&folder, &emulated(&folder, rate, delay, &impairments)) else {
            return;
        };
        // 4: a busy machine. It must not be the check that says so of a condition.
        assert!(
            [0, 4].contains(&said.code),
            "{name}: {} {}",
            said.code,
            said.failure()
        );
        if said.failure().starts_with("the machine was too busy") {
            println!("{name}: {}", said.failure());
            continue;
        }
        let live = folder.live();
        let lines = live["precision"]["preflight"].as_array().unwrap();
        assert!(lines.iter().all(|line| line["ok"] != false), "{name}: {lines:?}");
        let unchecked = lines.iter().any(|line| line["ok"].is_null());
        assert!(unchecked || !open, "{name}: {lines:?}");
        let told = live["warnings"].as_array().unwrap().iter();
        let told = told
            .filter_map(Value::as_str)
            .any(|text| text.starts_with("not checked before the run: "));
        assert_eq!(told, unchecked, "{name}");
        let certain = ["loss", "duplication", "corruption"]
            .iter()
            .all(|key| impairments[key].is_null());
        if certain && !open {
            // What needs no chance is checked in full, however slow.
            assert!(lines[0]["ok"] == true && !unchecked, "{name}: {lines:?}");
        }
    }
}
