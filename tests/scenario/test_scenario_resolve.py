"""What a scenario means: ranges, defaults, instances, brokers, events."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario_helpers import NETWORK, flow, scenario

from timebound.scenario import ScenarioError, load
from timebound.scenario.model import MqttStack, Queue, Scenario, Service


def test_ranges_of_links_pair_up() -> None:
    network = NETWORK.replace("[h[1-3], s1], [h5, s4]", "[h[1-2], s[1,4]], [h3, s1], [s4, h5]")
    assert [(link.a, link.b) for link in scenario(network=network).links[:4]] == [
        ("h1", "s1"),
        ("h2", "s4"),
        ("h3", "s1"),
        ("s4", "h5"),
    ]


def test_conditions_come_from_direction_link_defaults_and_the_built_in_ones_in_this_order() -> None:
    text = "{between: [s1, s4], rate: 10 Mbit/s, loss: 1 %, forward: {rate: 2 Mbit/s, jitter: 1 ms}, duplex: half}"
    loaded = scenario(network=NETWORK.replace("{between: [s1, s4], rate: 10 Mbit/s}", text))
    link = loaded.links[-1]
    assert (link.forward.rate_bps, link.backward.rate_bps, loaded.links[0].forward.rate_bps) == (
        2_000_000,
        10_000_000,
        100_000_000,
    )
    assert link.forward.delay_ns == 5_000
    assert link.forward.impairments.jitter is not None and link.backward.impairments.jitter is None
    assert link.backward.impairments.loss is not None and link.backward.impairments.loss.probability == 0.01
    assert link.half_duplex
    assert link.forward.buffer_bytes == 262_144


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("queue: fifo", ("queue",), {"kind": "fifo"}),
        (
            "queue: {drr: {default: 100 B, classes: {7: 900 B}}}",
            ("queue",),
            {"kind": "drr", "quanta_bytes": [100] * 7 + [900]},
        ),
        (
            "jitter: 1 ms",
            ("impairments", "jitter"),
            {"distribution": {"kind": "uniform", "max_ns": 1_000_000}, "reorder": False},
        ),
        (
            "jitter: {normal: {mean: 5 ms, deviation: 1 ms}, reorder: true}",
            ("impairments", "jitter"),
            {
                "distribution": {
                    "kind": "normal",
                    "mean_ns": 5_000_000,
                    "deviation_ns": 1_000_000,
                    "max_ns": 9_000_000,
                },
                "reorder": True,
            },
        ),
        (
            "jitter: {pareto: {scale: 1 us, max: 9 us}}",
            ("impairments", "jitter", "distribution"),
            {"kind": "pareto", "scale_ns": 1000, "alpha": 3.0, "max_ns": 9000},
        ),
        (
            "jitter: {exponential: {mean: 1 us}}",
            ("impairments", "jitter", "distribution"),
            {"kind": "exponential", "mean_ns": 1000, "max_ns": 10_000},
        ),
        ("loss: 0.1 %", ("impairments", "loss"), {"kind": "bernoulli", "probability": 0.001}),
        (
            "loss: {gilbert-elliott: {good-to-bad: 1 %, bad-to-good: 50 %}}",
            ("impairments", "loss"),
            {
                "kind": "gilbert-elliott",
                "good_to_bad": 0.01,
                "bad_to_good": 0.5,
                "loss_in_good": 0.0,
                "loss_in_bad": 1.0,
            },
        ),
        ("outages: [3..4 s, 1..2 s]", ("impairments", "outages"), [[10**9, 2 * 10**9], [3 * 10**9, 4 * 10**9]]),
        ("length: 120 km", ("delay_ns",), 600_000),
        ("length: 120 km, delay: 7 us", ("delay_ns",), 7_000),
        ("corruption: 1 ppm, corruption-drops: true", ("impairments", "corruption"), 1e-6),
    ],
)
def test_conditions_become_the_declaration_of_the_model(text: str, path: tuple[str, ...], value: object) -> None:
    loaded = scenario(network=NETWORK.replace("rate: 10 Mbit/s", text))
    declared = loaded.declaration()["links"][-1]
    for direction in ("forward", "backward"):
        found = declared[direction]
        for key in path:
            found = found[key]
        assert found == value
    assert load(loaded.to_yaml()) == loaded


def test_nodes_become_the_declaration_of_the_model() -> None:
    declared = scenario().declaration()
    assert [node["name"] for node in declared["nodes"]] == ["h1", "h2", "h3", "h5", "s1", "s4"]
    assert declared["nodes"][4] == {
        "name": "s1",
        "kind": "switch",
        "switching_min_ns": 10_000,
        "switching_max_ns": 20_000,
    }
    assert set(declared) == {"nodes", "links", "streams", "best_effort_frame_bytes"}


def test_a_switch_that_copies_says_so_in_every_form() -> None:
    loaded = scenario(network=NETWORK.replace("{delay: 10..20 us}", "{delay: 10..20 us, replication: 5..8 us}"))
    switch = loaded.declaration()["nodes"][4]
    assert (switch["replication_min_ns"], switch["replication_max_ns"]) == (5_000, 8_000)
    assert load(loaded.to_yaml()) == loaded


def test_programs_in_all_forms() -> None:
    run = '{kind: host, run: [[iperf3, -s, -p, 5201], {command: [sleep, "5"], name: nap, env: {A: b}, essential: true, ready-port: 80, start: 1 s}]}'
    one = "{kind: host, run: [iperf3, -s], mtu: 1000, cpu: 20 %, memory: 64 MiB}"
    loaded = scenario(network=NETWORK.replace("h5: host", f"h5: {run}, h6: {one}").replace("[h5, s4]", "[h[5-6], s4]"))
    server, nap = loaded.node("h5").programs
    assert (server.name, server.command) == ("iperf3", ("iperf3", "-s", "-p", "5201"))
    assert (nap.name, nap.environment, nap.essential, nap.ready_port, nap.start_ns) == (
        "nap",
        {"A": "b"},
        True,
        80,
        10**9,
    )
    limited = loaded.node("h6")
    assert (limited.mtu, limited.cpu_share, limited.memory_bytes) == (1000, 0.2, 64 * 2**20)
    assert load(loaded.to_yaml()) == loaded


def test_one_flow_per_host_and_count() -> None:
    loaded = scenario(flow("period: 10..20 ms, count: 2").replace("from: h1", "from: [h[1-2], h3]"))
    assert [(f.name, f.group, f.source) for f in loaded.flows] == [
        (f"alpha[{i}]", "alpha", host) for i, host in enumerate(["h1", "h1", "h2", "h2", "h3", "h3"], 1)
    ]
    assert {f.topic for f in loaded.flows} == {"alpha"}
    assert all(10_000_000 <= f.period_ns <= 20_000_000 and f.period_ns % 1000 == 0 for f in loaded.flows)


def test_periods_are_drawn_from_seed_and_name_alone() -> None:
    text = flow("period: 15..20 ms, count: 200")
    first, again = scenario(text), scenario(text)
    assert first.flows == again.flows
    other = scenario(text + "run: {seed: 2}\n")
    assert [f.period_ns for f in other.flows] != [f.period_ns for f in first.flows]
    more = scenario(text.replace("count: 200", "count: 201"))
    assert [f.period_ns for f in more.flows[:200]] == [f.period_ns for f in first.flows]
    mean = sum(f.period_ns for f in first.flows) / 200
    assert abs(mean - 17_500_000) < 400_000  # five standard errors of the mean


def test_flows_may_be_written_by_name() -> None:
    loaded = scenario("flows: {alpha: {from: h1, to: h5, size: 30 B, period: 1 s}}")
    assert loaded.flows[0].name == "alpha"
    place = loaded.locate("flows[0].period_ns")
    assert place is not None and place.column == 55


def test_patterns() -> None:
    loaded = scenario(
        "flows:\n"
        "  - {name: a, from: h1, to: h5, size: 30 B, pattern: sporadic, period: 10 ms}\n"
        "  - {name: b, from: h1, to: h5, size: 30 B, pattern: trace, trace: [1 ms, 4 ms, 6 ms]}\n"
        "  - {name: c, from: h1, to: h5, size: 30 B, pattern: poisson, period: 10 ms}\n"
        "  - {name: d, from: h1, to: h5, size: 30 B, period: 10 ms, offset: 2 ms, deadline: 11 ms}\n"
    )
    a, b, c, d = loaded.flows
    assert a.mean_extra_ns == 5_000_000
    assert (b.trace_ns, b.period_ns) == ((1_000_000, 4_000_000, 6_000_000), 2_000_000)
    assert (c.pattern, d.offset_ns) == ("poisson", 2_000_000)
    assert [w.message for w in loaded.warnings] == ["the deadline (11 ms) is longer than the period"]
    assert load(loaded.to_yaml()) == loaded


def test_each_receiver_is_served_by_its_nearest_broker() -> None:
    loaded = scenario(
        flow("period: 1 s, qos: 1").replace("to: h5", "to: [h5, h2, h3]"),
        stack="{mqtt: {broker: [h5, {node: h3, program: mosquitto, port: 1884}], version: 3.1.1}}",
    )
    assert isinstance(loaded.stack, MqttStack)
    assert [(b.node, b.program, b.port) for b in loaded.stack.brokers] == [
        ("h5", "embedded", 1883),
        ("h3", "mosquitto", 1884),
    ]
    assert loaded.flows[0].services == (
        Service(broker="h5", receivers=("h5",)),
        Service(broker="h3", receivers=("h2", "h3")),
    )
    assert load(loaded.to_yaml()) == loaded


def test_a_flow_may_name_its_broker() -> None:
    text = flow("period: 1 s, broker: h5").replace("to: h5", "to: [h2, h3]")
    loaded = scenario(text, stack="{mqtt: {broker: [h3, h5], version: 5}}")
    assert loaded.flows[0].services == (Service(broker="h5", receivers=("h2", "h3")),)
    assert load(loaded.to_yaml()) == loaded


def test_unreachable_receivers_are_found() -> None:
    network = NETWORK.replace(", {between: [s1, s4], rate: 10 Mbit/s}", "")
    with pytest.raises(ScenarioError) as error:
        scenario(flow("period: 1 s"), network=network)
    assert [(p.path, p.message) for p in error.value.problems] == [("flows[0].to", "'h5' cannot be reached from 'h1'")]


def test_hosts_do_not_forward() -> None:
    network = "network: {nodes: {h[1-3]: host}, links: [[h1, h2], [h2, h3]]}"
    with pytest.raises(ScenarioError, match="'h3' cannot be reached from 'h1'"):
        scenario("flows: [{name: a, from: h1, to: h3, size: 30 B, period: 1 s}]", network=network)
    assert scenario("flows: [{name: a, from: h1, to: h2, size: 30 B, period: 1 s}]", network=network).flows


def test_events_carry_the_conditions_from_then_on() -> None:
    loaded = scenario(
        "at: {2 s: {link s1->s4: {loss: 30 %}}, 1 s: {link s4-s1: {rate: 1 Mbit/s}}, 3 s: {link s1-s4: {up: false, loss: 0 %}}}"
    )
    first, second, third = loaded.events
    assert [e.at_ns for e in loaded.events] == [10**9, 2 * 10**9, 3 * 10**9]
    assert first.forward.rate_bps == second.forward.rate_bps == third.backward.rate_bps == 1_000_000
    assert second.forward.impairments.loss is not None and second.backward.impairments.loss is None
    assert third.forward.impairments.loss is None
    assert (first.up, third.up, third.changed) == (True, False, ("loss", "up"))
    assert first.link == len(loaded.links) - 1
    assert load(loaded.to_yaml()) == loaded


def test_topics_that_brokers_keep_for_themselves_are_warned_of() -> None:
    text = "flows: [{name: a, from: h1, to: h5, size: 30 B, period: 1 s, topic: $SYS/x}]"
    assert [w.path for w in scenario(text, stack="{mqtt: {broker: h2}}").warnings] == ["flows[0].topic"]
    assert scenario(text).warnings == ()


def test_a_link_goes_down_and_up_in_a_word() -> None:
    words = scenario("at: {1 s: {link s1-s4: down}, 2 s: {link s1-s4: up}}")
    assert words.events == scenario("at: {1 s: {link s1-s4: {up: false}}, 2 s: {link s1-s4: {up: true}}}").events
    assert [event.up for event in words.events] == [False, True]


def test_names_with_hyphens_in_events() -> None:
    network = "network: {nodes: {a-b: host, c-d: host}, links: [[a-b, c-d]]}"
    assert scenario("at: {1 s: {link a-b-c-d: {up: false}}}", network=network).events[0].link == 0


def test_background_and_run() -> None:
    loaded = scenario(
        "background:\n"
        "  - {kind: tcp, from: h[1-2], to: h5, rate: 10 Mbit/s, stop: 5 s}\n"
        "  - {kind: burst, name: b, from: h3, to: h5, period: 100 ms, frames: 20, priority: 2, size: 500 B}\n"
        "  - {kind: request-response, from: h3, to: h5, period: 1 s, response: 20 kB}\n"
        "  - {kind: video, from: h3, to: h5, rate: 4 Mbit/s}\n"
        "run: {duration: 30 s, captures: [h1->s1], simulate: {search: 7}, precision: {lateness-p99: 300 us}}\n"
    )
    assert [b.name for b in loaded.background] == ["tcp-1[1]", "tcp-1[2]", "b", "request-response-3", "video-4"]
    burst = loaded.background[2]
    assert (burst.frames, burst.gap_ns, burst.size_bytes, burst.priority) == (20, 100_000_000, 500, 2)
    assert loaded.background[0].stop_ns == 5 * 10**9
    assert (loaded.background[3].size_bytes, loaded.background[3].response_bytes) == (200, 20_000)
    run = loaded.run
    assert (run.captures, run.simulate.evaluations, run.simulate.duration_ns) == (("h1->s1",), 7, 30 * 10**9)
    assert (run.precision.lateness_p99_ns, run.warm_up_ns, run.seed) == (300_000, 10**9, 1)
    assert load(loaded.to_yaml()) == loaded


def test_segments_and_weights_survive_the_resolved_file() -> None:
    network = "network: {nodes: {h[1-3]: host, bus: segment}, links: [[h[1-3], bus]]}"
    loaded = scenario("description: 'a: \"b\" # \\U0001F600 é'".replace("'", '"', 0), network=network)
    assert load(loaded.to_yaml()) == loaded


def locate(loaded: Scenario, path: str) -> int | None:
    place = loaded.locate(path)
    return place.line if place else None


def test_declaration_paths_lead_back_to_the_file() -> None:
    text = "name: t\nnetwork:\n  nodes:\n    h[1-2]: host\n    s1: {kind: switch,\n         delay: 5 us}\n"
    text += "  links:\n    - between: [h[1-2], s1]\n      rate: 1 Mbit/s\nstack: {udp: {}}\n"
    loaded = load(text + "flows:\n  - name: a\n    from: h1\n    to: h2\n    size: 50 B\n    period: 1 s\n")
    assert locate(loaded, "nodes[1].name") == 4
    assert locate(loaded, "nodes[2].switching_min_ns") == 6
    assert locate(loaded, "links[1].forward.rate_bps") == 9
    assert locate(loaded, "links[1].backward.impairments.loss") == 8
    assert locate(loaded, "flows[0].size_bytes") == 15
    assert locate(loaded, "streams[0].source") is None


def test_queue_declaration() -> None:
    assert Queue(kind="fifo").declaration() == {"kind": "fifo"}


def test_a_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(f"name: own\n{NETWORK}\nstack: {{udp: {{}}}}\n", encoding="utf-8")
    assert load(file).file == str(file)
    file.write_text("name: own\nnetwrk: {}\n", encoding="utf-8")
    with pytest.raises(ScenarioError) as error:
        load(str(file))
    assert str(file) in error.value.render()


def test_orders_for_nodes_come_by_time_with_ranges_expanded() -> None:
    loaded = scenario("at: {3 s: {'node h[1,5]': start}, 1 s: {node h1: stop, 'node h5 ': {state: stop}}}")
    assert [(event.at_ns, event.node, event.order) for event in loaded.node_events] == [
        (1_000_000_000, "h1", "stop"),
        (1_000_000_000, "h5", "stop"),
        (3_000_000_000, "h1", "start"),
        (3_000_000_000, "h5", "start"),
    ]
    place = loaded.locate("node_events[2]")
    assert place is not None and load(loaded.to_yaml()) == loaded
