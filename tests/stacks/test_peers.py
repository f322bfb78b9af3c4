"""Flows between edge networks: multicast from one broker to others, what answers them, and whom they keep waiting."""

from __future__ import annotations

import pytest

from timebound.engine.runs import figures_only, plan_of
from timebound.scenario import ScenarioError, load
from timebound.stacks.peers import RECORD_BYTES, SEALED_BYTES, datagrams
from timebound.stacks.wire import ETHERNET

TEXT = """
name: networks
network:
  defaults: {{link: {{rate: 10 Mbit/s, delay: 5 us}}, switch: {{delay: 10 us}}}}
  nodes: {{h1: host, h3: host, a: host, b: host, c: host, s1: switch, s2: switch, s3: switch}}
  links: [[h1, s1], [a, s1], [b, s2], [c, s3], [h3, s3], [s1, s2], [s2, s3], [s1, s3]]
flows:
  - {{name: p, from: {source}, to: a, broker: a, size: 100 B, period: 100 ms, deadline: 90 ms, priority: 4, qos: {qos}}}
  - {{name: g, from: {source}, to: {to}, broker: {at}, topic: p, size: 100 B, period: 100 ms, deadline: 90 ms, priority: 4, qos: {qos}, after: p,
     multicast: true, route: [[a, s1, s2, b], [a, s1, s2, s3, c]]}}
  - {{name: d, from: {source}, to: h3, broker: {behind}, topic: p, size: 100 B, period: 100 ms, deadline: 90 ms, priority: 3, qos: {qos}, after: {after}}}
stack: {{mqtt: {{broker: [{{node: a, service: {service}}}, {{node: b, service: {service}}}, {{node: c, service: {service}}}]}}}}
run: {{duration: 1 s}}
"""
SERVICE = "{latency: 1 ms, per-message: 60 us, per-copy: 30 us}"


def text(**changed: object) -> str:
    default = {"source": "h1", "qos": 1, "to": "[b, c]", "at": "a", "behind": "c", "after": "g"}
    return TEXT.format(**{**default, "service": SERVICE, **changed})


def bounds(**changed: object) -> dict[tuple[str, str], dict[str, float]]:
    """(flow, receiver) -> part -> bound, us."""
    flows = figures_only(load(text(**changed)), {"predict"})["flows"]
    return {
        (flow["flow"], flow["receiver"]): {part["name"]: part["bound"] for part in flow["end_to_end_us"]["parts"]}
        for flow in flows
    }


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_is_sent_once_over_a_tree_and_counts_from_its_release_to_the_last_subscriber(qos: int) -> None:
    scenario = load(text(qos=qos))
    assert load(scenario.to_yaml()) == scenario
    plan = plan_of(scenario)
    (stream,) = [stream for stream in plan.streams if stream.name == "g/multicast"]
    assert stream.destinations == ("b", "c") and stream.route == (("a", "s1", "s2", "b"), ("a", "s1", "s2", "s3", "c"))
    found = bounds(qos=qos)
    assert list(found["d", "h3"]) == ["publish", "a", "multicast", "c", "deliver"]
    assert found["d", "h3"]["multicast"] == found["g", "c"]["multicast"] > found["g", "b"]["multicast"]


def test_messages_with_a_guarantee_are_answered_by_every_member_and_others_by_none() -> None:
    answers = {
        qos: {stream.name for stream in plan_of(load(text(qos=qos))).streams if stream.name.startswith("g/")}
        for qos in (0, 1, 2)
    }
    assert answers[0] == {"g/multicast"}
    reports = {f"g/multicast/{word}<{member}" for word in ("arrived", "taken") for member in ("b", "c")}
    assert answers[1] == {"g/multicast", *reports, *(f"{name}/ack" for name in reports)}
    releases = {f"g/multicast/release>{member}" for member in ("b", "c")}
    assert answers[2] == answers[1] | releases | {f"{name}/ack" for name in releases}


def test_the_publishers_acknowledgement_waits_for_the_slowest_member() -> None:
    plan = plan_of(load(text()))
    (answer,) = [stream for stream in plan.streams if stream.name == "p/publish/puback"]
    assert answer.follows is not None
    assert [cause.stream for cause in answer.follows.also] == ["g/multicast/taken<b", "g/multicast/taken<c"]
    # Of QoS 2 the publisher's own network gets the message when it is released, which is after all that.
    alone = {flow["flow"]: flow for flow in figures_only(load(without_group(2)), {"predict"})["flows"]}
    together = {flow["flow"]: flow for flow in figures_only(load(text(qos=2)), {"predict"})["flows"]}
    assert (
        together["p"]["end_to_end_us"]["bound"]
        > alone["p"]["end_to_end_us"]["bound"] + bounds(qos=2)["g", "c"]["multicast"]
    )


def without_group(qos: int) -> str:
    lines = text(qos=qos).splitlines()
    return "\n".join(line for line in lines if "after:" not in line and "multicast:" not in line)


def test_a_long_message_takes_several_datagrams_that_each_fit_a_frame() -> None:
    assert datagrams(100, ETHERNET) == (ETHERNET.datagram(132),)
    assert datagrams(1360, ETHERNET) == (ETHERNET.datagram(1392),)
    assert datagrams(3000, ETHERNET) == (ETHERNET.datagram(1392), ETHERNET.datagram(1392), ETHERNET.datagram(312))


@pytest.mark.parametrize(
    ("changed", "said", "column"),
    [
        ({"to": "[b, h3]"}, "'h3' is no broker of the stack", "receivers"),
        ({"at": "b", "to": "[a, c]"}, "it begins at 'b', and the messages of 'p' are at 'a'", "after"),
        ({"behind": "a"}, "it begins at 'a', and the messages of 'g' are at 'b', 'c'", "after"),
        ({"to": "[a, b, c]"}, "multicast by one broker to others", "services"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(changed: dict[str, object], said: str, column: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        load(text(**changed))
    problem = next(problem for problem in raised.value.problems if said in problem.message)
    assert problem.line > 1 and problem.path.endswith(column) and problem.hint


def test_a_publisher_of_qos_2_on_the_origins_host_is_refused() -> None:
    with pytest.raises(ScenarioError, match="publishes with QoS 2 on the host of the broker"):
        plan_of(load(text(qos=2, source="a")))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_simulated_message_is_later_than_its_bound(qos: int) -> None:
    for flow in figures_only(load(text(qos=qos)), {"predict", "simulate"})["flows"]:
        counted = flow["end_to_end_us"]["from_actual"]
        assert 0 < counted["simulated"] <= counted["bound"], flow["flow"]


def test_what_is_sealed_is_longer_and_so_are_its_bounds() -> None:
    plain, sealed = (
        plan_of(load(text(qos=2).replace("multicast: true", more)))
        for more in ("multicast: true", "multicast: true, sealed: true")
    )
    before = {stream.name: stream.frames_bytes for stream in plain.streams}
    after = {stream.name: stream.frames_bytes for stream in sealed.streams}
    assert before.keys() == after.keys()
    longer = {name: sum(after[name]) - sum(before[name]) for name in after if after[name] != before[name]}
    assert longer.pop("g/multicast") == SEALED_BYTES
    assert len(longer) == 6 and all(more == RECORD_BYTES * len(after[name]) for name, more in longer.items()), longer
    written = load(text(qos=2).replace("multicast: true", "multicast: true, sealed: true"))
    assert load(written.to_yaml()) == written and [flow.sealed for flow in written.flows] == [False, True, False]


def test_a_full_part_fits_a_frame_sealed_as_well() -> None:
    assert (
        datagrams(1_360, ETHERNET, sealed=True) == (ETHERNET.datagram(32 + 28 + 1_360),)
        and ETHERNET.datagram(32 + 28 + 1_360) <= 1_538
    )


def test_sealed_without_multicast_is_told() -> None:
    with pytest.raises(ScenarioError) as error:
        load(text().replace("qos: 1}\n", "qos: 1, sealed: true}\n", 1))
    assert [(each.path, each.message) for each in error.value.problems] == [
        ("flows[0].sealed", "sealed without multicast")
    ]
