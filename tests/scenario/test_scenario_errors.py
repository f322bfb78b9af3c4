"""Bad input: every problem at once, each with its place and a hint, quickly, and never another exception."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenario_helpers import NETWORK, flow, problems, scenario

from timebound.scenario import ScenarioError, load

DESIGN = """\
name: edge-networks
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us, queue: strict-priority, buffer: 256 KiB}, switch: {delay: 10..20 us}}
  nodes:    {h1: host, h5: host, s1: switch, s4: {kind: switch, engine: ovs}}
  links:    [[h1, s1], {between: [s1, s4], rate: 10 Mbit/s, loss: 0.1 %, jitter: 1 ms}]
flows:
  - {name: alpha, from: h1, to: [h5, h10], topic: plant/alpha, size: 1446 B, period: 15..20 ms, jitter: 0.4 ms, deadline: 15 ms, priority: 5, qos: 1}
stack: {mqtt: {broker: h5}}
background: [{kind: tcp, from: h3, to: h5, rate: 10 Mbit/s}]
run: {duration: 30 s, warm-up: 2 s, seed: 1}
"""


def test_the_example_of_the_design_parses_and_only_its_elisions_are_missing() -> None:
    found = {(p.line, p.column, p.message) for p in problems(DESIGN)}
    assert found == {
        (7, 25, "'h5' cannot be reached from 'h1'"),
        (7, 38, "unknown node 'h10'"),
        (9, 32, "unknown node 'h3'"),
    }


def test_the_example_of_the_design_loads_once_they_are_there() -> None:
    text = DESIGN.replace("s1: switch,", "s1: switch, h3: host, h10: host,")
    loaded = load(text.replace("[[h1, s1],", "[[h1, s1], [h3, s1], [h5, s4], [h10, s4],"))
    (alpha,) = loaded.flows
    assert (alpha.size_bytes, alpha.jitter_ns, alpha.priority, alpha.qos) == (1446, 400_000, 5, 1)
    assert 15_000_000 <= alpha.period_ns <= 20_000_000
    assert alpha.period_ns % 1000 == 0
    assert loaded.links[4].forward.impairments.loss is not None
    assert loaded.run.warm_up_ns == 2_000_000_000
    assert [node.name for node in loaded.real_switches] == ["s4"]


def test_all_problems_come_at_once_with_their_places() -> None:
    text = f"name: x\n{NETWORK}\nstack: {{udp: {{}}}}\nflows:\n  - {{name: a, form: h1, to: h5, size: 100, period: 10 ms}}\nrun: {{sed: 3}}\n"
    found = {(p.path, p.message, p.hint.split(" (")[0]) for p in problems(text)}
    assert ("flows[0].form", "unknown key 'form'", "did you mean 'from'?") in found
    assert ("flows[0]", "flows[0] has no 'from'", "add from: ...") in found
    assert ("flows[0].size", "'100' has no unit", "write a size, for example 100 B") in found
    assert ("run.sed", "unknown key 'sed'", "did you mean 'seed'?") in found
    assert len(found) == 4


def test_a_problem_is_printed_with_line_caret_and_hint() -> None:
    (problem,) = problems("name: x\nnetwork: {nodes: {h1: hots}}\nstack: {udp: {}}\n")
    assert problem.render() == (
        "error: 'hots' is not possible here\n"
        " --> <text>:2:23 (network.nodes.h1.kind)\n"
        "  |\n"
        "2 | network: {nodes: {h1: hots}}\n"
        "  |                       ^^^^\n"
        "  = hint: did you mean 'host'?"
    )


def test_the_caret_stays_under_its_text_in_a_long_line() -> None:
    text = (
        "name: x\nnetwork: {nodes: {"
        + ", ".join(f"host{i}: host" for i in range(40))
        + ", last: hots}}\nstack: {udp: {}}\n"
    )
    lines = problems(text)[0].render().splitlines()
    start = lines[4].index("^")
    assert lines[3][start : start + 4] == "hots"
    assert len(lines[3]) < 160


@pytest.mark.parametrize(
    ("more", "message", "path"),
    [
        (flow("period: 10 ms, priority: 8"), "8 is out of range", "flows[0].priority"),
        (flow("period: 0 s"), "a period of zero", "flows[0].period"),
        (flow("jitter: 1 ms"), "flow 'alpha' has no period", "flows[0]"),
        (flow("period: 10 ms").replace("100 B", "65508 B"), "a datagram of 65508 B does not exist", "flows[0].size"),
        (flow("period: 10 ms").replace("to: h5", "to: h1"), "sends to itself", "flows[0].to"),
        (flow("period: 10 ms").replace("to: h5", "to: s1"), "'s1' is a switch", "flows[0].to[0]"),
        (flow("period: 10 ms").replace("to: h5", "to: [h5, h5]"), "named twice", "flows[0].to"),
        (flow("period: 10 ms, broker: h5"), "a broker without MQTT", "flows[0].broker"),
        (flow("pattern: trace"), "a trace without times", "flows[0].pattern"),
        (flow("pattern: trace, trace: [1 ms, 3 ms, 2 ms]"), "do not rise", "flows[0].trace[2]"),
        (flow("period: 10 ms, topic: 'a/#'"), "no topic to publish on", "flows[0].topic"),
        (flow("period: 10 ms, topic: ''"), "the topic is empty", "flows[0].topic"),
        (flow(f"period: 10 ms, topic: {'a' * 1001}"), "a topic of 1001 characters", "flows[0].topic"),
        (
            flow("period: 10 ms") + "  - {name: alpha, from: h2, to: h5, size: 99 B, period: 1 s}\n",
            "duplicate flow 'alpha'",
            "flows[1].name",
        ),
        ("background: [{kind: udp, from: h1, to: h5}]", "needs rate", "background[0]"),
        ("background: [{kind: tcp, from: h1, to: h5, frames: 3}]", "no meaning for tcp", "background[0].frames"),
        ("at: {30: {link s1-s4: {up: false}}}", "no unit", "at.30"),
        ("at: {1 s: {link s1-s9: {up: false}}}", "unknown node 's9'", "at.1 s.link s1-s9"),
        ("at: {1 s: {link h1-s4: {up: false}}}", "no link between", "at.1 s.link h1-s4"),
        ("at: {20 s: {link s1-s4: {up: false}}}", "behind the end of the run", "at.20 s"),
        ("at: {1 s: {link s1-s4: {up: false}}, 1000 ms: {link s1-s4: {up: true}}}", "same time", "at.1000 ms"),
        ("at: {1 s: {node h9: stop}}", "unknown node 'h9'", "at.1 s.node h9"),
        ("at: {1 s: {node s1: stop}}", "'s1' is a switch", "at.1 s.node s1"),
        ("at: {1 s: {node: stop}}", "names no node", "at.1 s.node"),
        ("at: {1 s: {node h1: resume}}", "resume of 'h1', which is running then", "at.1 s.node h1"),
        ("at: {2 s: {node h1: stop}, 1 s: {node h1: stop}}", "stop of 'h1', which is stopped then", "at.2 s.node h1"),
        ("at: {1 s: {node h1: stop, 'node h1,h5': pause}}", "two orders for 'h1'", "at.1 s.node h1,h5"),
        ("at: {1 s: {node h1: {up: false}}}", "up has no meaning for a node", "at.1 s.node h1.up"),
        ("at: {1 s: {node h1: down}}", "up has no meaning for a node", "at.1 s.node h1.up"),
        ("at: {1 s: {node h1: {}}}", "no order", "at.1 s.node h1"),
        ("at: {1 s: {node h1: halt}}", "", "at.1 s.node h1.state"),
        ("at: {1 s: {link s1-s4: stop}}", "stop is an order for a node", "at.1 s.link s1-s4"),
        ("at: {1 s: {'node h[1-': stop}}", "", "at.1 s.node h[1-"),
        ("at: {1 s: {link s1-s4: {conditions: edge}}}", "unknown conditions 'edge'", "at.1 s.link s1-s4.conditions"),
        ("conditions: {original: {loss: 1 %}}", "original means", "conditions.original"),
        ("conditions: {e: {jitter: {pareto: {scale: 277 h}}}}", "277 h", "conditions.e.jitter"),
        ("conditions: {e: {trace: x}}", "unknown key", "conditions.e.trace"),
        ("at: {1 s: {link s1-s4: {loss: 1 %, every: 0 s}}}", "every 0 s", "at.1 s.link s1-s4.every"),
        ("at: {1 s: {link s1-s4: {loss: 1 %, until: 2 s}}}", "until belongs to every", "at.1 s.link s1-s4.until"),
        (
            "at: {1 s: {link s1-s4: {loss: 1 %, every: 1 s, until: 30 s}}}",
            "behind the end of the run",
            "at.1 s.link s1-s4.until",
        ),
        (
            "at: {2 s: {link s1-s4: {loss: 1 %, every: 1 s, until: 1 s}}}",
            "before the first time",
            "at.2 s.link s1-s4.until",
        ),
        ("at: {1 s: {link s1-s4: {loss: 1 %, every: 1 us}}}", "more than 100000 changes", "at.1 s.link s1-s4"),
        ("at: {1 s: {link s1-s4: {loss: 1 %, steps: 5}}}", "steps belong to over", "at.1 s.link s1-s4.steps"),
        ("at: {1 s: {link s1-s4: {over: 5 s}}}", "a ramp of nothing", "at.1 s.link s1-s4.over"),
        ("at: {1 s: {link s1-s4: {up: false, over: 5 s}}}", "up cannot change over time", "at.1 s.link s1-s4.up"),
        ("at: {9 s: {link s1-s4: {loss: 1 %, over: 5 s}}}", "the ramp ends behind", "at.9 s.link s1-s4.over"),
        ("at: {1 s: {link s1-s4: {rate: 0 bit/s}}}", "out of range", "at.1 s.link s1-s4.rate"),
        (
            "at: {1 s: {link s1-s4: {loss: 1 %, over: 5 s}}, 3 s: {link s1->s4: {loss: 2 %}}}",
            "loss of s1-s4 changes at 3 s within its ramp from 1 s to 6 s",
            "at.3 s.link s1->s4",
        ),
        (
            "at: {1 s: {link s1-s4: {loss: 1 %, over: 3 s, every: 2 s}}}",
            "would overlap itself",
            "at.1 s.link s1-s4.over",
        ),
        ("at: {1 s: {segment s1: {loss: 1 %}}}", "'s1' is a switch", "at.1 s.segment s1"),
        ("at: {1 s: {segment n9: {loss: 1 %}}}", "unknown segment 'n9'", "at.1 s.segment n9"),
        ("at: {1 s: {'links s[1-': {loss: 1 %}}}", "unknown node", "at.1 s.links s[1-"),
        ("at: {1 s: {link s1-s4#7: {loss: 1 %}}}", "no link between", "at.1 s.link s1-s4#7"),
        ("at: {1 s: {'links s[1,4]-h[1,5,3]': {loss: 1 %}}}", "do not pair", "at.1 s.links s[1,4]-h[1,5,3]"),
        ("at: {1 s: {node h1: {state: stop, every: 3 s}}}", "every has no meaning for a node", "at.1 s.node h1.every"),
        (
            "at: {1 s: {link s1-s4: {disconnections: {mean-up: 1 us, mean-down: 1 s}}}}",
            "shorter than 100 us",
            "at.1 s.link s1-s4.disconnections.mean-up",
        ),
        ("run: {captures: [h1->h5]}", "no link between", "run.captures[0]"),
        ("run: {duration: 0 s}", "'0 s' is too little", "run.duration"),
        ("run: {simulate: {duration: 1 us}}", "'1 us' is too little", "run.simulate.duration"),
        ("run: {captures: [h1]}", "is no port", "run.captures[0]"),
    ],
)
def test_meaning_is_checked(more: str, message: str, path: str) -> None:
    with pytest.raises(ScenarioError) as error:
        scenario(more)
    assert [p.path for p in error.value.problems if message in p.message] == [path], error.value.render()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[h5, s4]", "[h5, s9]", "unknown node 's9'"),
        ("[h5, s4]", "[h5, h5]", "to itself"),
        ("[h[1-3], s1]", "[h[1-3], s[1-2]]", "do not pair"),
        ("h5: host", "h2: host", "duplicate node 'h2'"),
        ("h5: host", "h5: {kind: host, delay: 1 us}", "delay belongs to switches"),
        ("h5: host", "h5: {kind: host, replication: 1 us}", "replication belongs to switches"),
        ("h5: host", "h5: {kind: host, address: 10.0.0}", "no IPv4 address"),
        ("h5: host", "h5: {kind: host, run: mosquitto}", "list of words"),
        ("s4: switch", "s4: {kind: switch, run: [ls]}", "programs run on hosts"),
        ("rate: 10 Mbit/s", "loss: {gilbert-elliott: {good-to-bad: 1 %}}", "has no 'bad-to-good'"),
        ("rate: 10 Mbit/s", "loss: 130 %", "out of range"),
        ("rate: 10 Mbit/s", "queue: {drr: {classes: {9: 100 B}}}", "class 9 does not exist"),
        ("rate: 10 Mbit/s", "outages: [3 s..2 s]", "backwards"),
        ("switch: {delay: 10..20 us}", "switch: {delay: 20..10 us}", "backwards"),
    ],
)
def test_the_network_is_checked(old: str, new: str, message: str) -> None:
    assert old in NETWORK
    with pytest.raises(ScenarioError) as error:
        scenario(network=NETWORK.replace(old, new))
    assert any(message in p.message for p in error.value.problems), error.value.render()


@pytest.mark.parametrize(
    ("stack", "message"),
    [
        ("{}", "exactly one stack"),
        ("{mqtt: {broker: h5}, udp: {}}", "exactly one stack"),
        ("{mqtt: {}}", "has no 'broker'"),
        ("{mqtt: {broker: s1}}", "'s1' is a switch"),
        ("{mqtt: {broker: h7}}", "unknown node 'h7'"),
        ("{mqtt: {broker: [h5, h5]}}", "two brokers"),
        ("{mqtt: {broker: h5, version: 4}}", "not possible here"),
        ("{dds: {}}", "unknown key 'dds'"),
    ],
)
def test_the_stack_is_checked(stack: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        scenario(stack=stack)
    assert any(message in p.message for p in error.value.problems), error.value.render()


@pytest.mark.parametrize(
    ("text", "place", "above"),
    [
        ("rt-mqtt: {broker: h1}", "rt-mqtt", "stack"),
        ("duration: 3 s", "duration", "run"),
        ("stack: {broker: h1}", "stack.broker", None),  # of several stacks
        ("links: []", "links", "network"),
    ],
)
def test_a_key_that_belongs_elsewhere_is_told_where(text: str, place: str, above: str | None) -> None:
    told = {p.path: p.hint for p in problems(f"name: x\n{NETWORK}\n{text}\n")}
    assert (told[place] == f"it belongs under {above!r}") is (above is not None), told


STACKS = "mqtt, mqtt-bridged, rt-mqtt, dm-mqtt, mrt-mqtt, udp"


@pytest.mark.parametrize(
    ("stack", "message", "hint"),
    [
        ("{mqtt-bridgd: {broker: h5}}", "unknown key 'mqtt-bridgd'", "did you mean 'mqtt-bridged'?"),
        ("mqtt-bridgd", "unknown key 'mqtt-bridgd'", "did you mean 'mqtt-bridged'?"),
        ("{dds: {}}", "unknown key 'dds'", f"known keys: {STACKS}"),
        ("{rt-mqtt: {prio: 1}}", "unknown key 'prio'", "did you mean 'priorities'?"),
        ("{mqtt: {broker: {node: h5, hots: h1}}}", "unknown key 'hots'", "did you mean 'hosts'?"),
        (
            "{mqtt: {broker: [{node: h5, xyz: h1}]}}",
            "unknown key 'xyz'",
            "known keys: node, program, port, hosts, profile, service",
        ),
        ("", "expected a mapping, found nothing", f"write a mapping; its keys: {STACKS}"),
    ],
)
def test_a_key_in_a_short_form_is_compared_with_those_that_there_are(stack: str, message: str, hint: str) -> None:
    """A short form is made into another mapping than the file's, and the hint had been to remove the key."""
    with pytest.raises(ScenarioError) as error:
        scenario(stack=stack)
    assert (message, hint) in [(each.message, each.hint) for each in error.value.problems], error.value.render()


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("flows", "write a list; or leave the key out"),
        ("name", 'write a text, such as "edge-networks"'),
        (
            "network",
            "write a mapping; its keys: defaults, nodes, templates, links, machines, controller, framing, best-effort, import",
        ),
    ],
)
def test_a_key_without_a_value_is_told_what_belongs_there(key: str, hint: str) -> None:
    text = {"name": "x", "network": "{nodes: {h1: host}}", "stack": "{udp: {}}"} | {key: ""}
    with pytest.raises(ScenarioError) as error:
        load("".join(f"{name}: {value}\n" for name, value in text.items()))
    assert hint in [each.hint for each in error.value.problems], error.value.render()


FLOWS = "name: x\nnetwork: {nodes: {h1: host, h2: host, s: switch}, links: [[h[1-2], s]]}\nstack: {udp: {}}\nflows:\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9)
)


MOST_UNITS = 100
"""Of CPU time, for any text; the dearest of these takes about 20."""


def _unit_s() -> float:
    """CPU time of a fixed piece of work, about 40 ms on the machines of CI while they do nothing else."""
    begun, table = time.process_time(), {}
    for number in range(300_000):
        table[str(number % 1000)] = number
    return time.process_time() - begun


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FLOWS + "  - {name: a, from: h1, too: h2, size: 100, period: 10}\n" * 10_000, "has no 'to'"),
        (FLOWS + "x: y: z\n" * 10_000, "no valid YAML"),
        (b"\x7fELF" + bytes(range(256)) * 1000, "binary file"),
        ("name: café\n".encode("latin-1"), "not UTF-8"),
        (b"x" * 2_000_001, "more than 2000000 bytes"),
        (BOMB, "more than 150000 values"),
        ("\n" + "[" * 100_000, "nested deeper"),
        ("&a [*a]\n", "unknown alias"),
        ("name: x\n\tnetwork: 1\n", "no valid YAML"),
        ("name: x\nname: y\n", "duplicate key 'name'"),
        ("a: !!python/object/apply:os.system [x]\n", "the tag"),
        ("? [1]\n: 2\n", "as a key"),
        ("a: 1\n---\nb: 2\n", "second document"),
        ("\n", "empty"),
        ("- a\n- b\n", "is a mapping"),
        ("a: \x01\n", "unreadable"),
        (FLOWS + "  - {name: a, from: h[1-99999], to: h2, size: 100 B, period: 1 s}\n", "more than 20000 names"),
        (FLOWS + "  - {name: a, from: h[1-1000000000], to: h2, size: 100 B, period: 1 s}\n", "more than 6 digits"),
        (FLOWS + "  - {name: a, from: h1, to: h2, size: 100 B, period: 1 s, count: 20000}\n" * 6, "duplicate flow"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) and "\n" not in value else "",
)
def test_hostile_texts_are_refused_quickly(text: str | bytes, message: str) -> None:
    # How much a second of CPU time is worth varies with what else the machine does: what is held is the work, in units of some that is known.
    unit, before = _unit_s(), time.process_time()
    found = problems(text)
    taken = time.process_time() - before
    assert any(message in problem.message for problem in found), found[:3]
    assert all(problem.hint for problem in found)
    if taken > 2:
        unit = max(unit, _unit_s())
        assert taken < MOST_UNITS * unit, f"took {taken} s, {taken / unit:.0f} units"


def test_a_missing_file_and_a_folder_are_problems() -> None:
    assert "does not exist" in problems("no-such-file.yaml")[0].message
    assert "does not exist" in problems("x" * 5000)[0].message or "cannot be read" in problems("x" * 5000)[0].message
    assert problems("a\0b")[0].message


def test_pipes_and_devices_are_problems_and_nobody_waits_for_them(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "is no regular file" in problems(str(pipe))[0].message
    assert "is no regular file" in problems("/dev/zero")[0].message
    start = "name: test\nstack: {udp: {}}\n"
    traced = NETWORK.replace("rate: 10 Mbit/s", f"trace: {pipe}")
    assert traced != NETWORK
    content = flow(f"period: 1 s, content: {pipe}")
    for text in (traced + flow("period: 1 s"), NETWORK + content):
        # A content without MQTT is told as well.
        found = problems(start + text)[-1]
        assert "is no regular file" in found.message and found.line > 0


def test_a_number_that_no_field_can_hold_is_out_of_range() -> None:
    for number in (2**53 + 1, 10**30):
        (found,) = problems(
            f"name: test\nstack: {{udp: {{}}}}\n{NETWORK}{flow('period: 1 s')}run: {{seed: {number}}}\n"
        )
        assert "out of range" in found.message and found.hint
    (found,) = problems(f"name: test\nstack: {{udp: {{}}}}\n{NETWORK}{flow('period: 1 s')}run: {{seed: '7'}}\n")
    assert found.message == "expected a whole number, found '7'"


WORDS = st.sampled_from(
    ["name", "network", "nodes", "links", "flows", "stack", "udp", "mqtt", "broker", "h1", "h[1-3]", "host", "s1", "switch", "at",
     "run", "${n}", "parameters", "include", "10 ms", "5..3 ms", "1 %", "null", "true", "[", "]", "{", "}", ":", ": ", ", ", "\n", "  ",
     "- ", "&a", "*a", "<<", "!", "#", "'", '"', "|", ">", "\t", "%", "@", "between", "loss", "from", "to", "period", "link s1-h1"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(WORDS, max_size=60).map("".join))
def test_anything_like_yaml_loads_or_is_a_scenario_error(text: str) -> None:
    try:
        load(text + "\n")
    except ScenarioError as error:
        assert error.problems
        assert error.render()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_load_or_are_a_scenario_error(data: bytes) -> None:
    with pytest.raises(ScenarioError):
        load(data)


GOOD = f"name: x\nparameters: {{n: 2}}\n{NETWORK}stack: {{mqtt: {{broker: h5}}}}\n{flow('period: 10..20 ms, count: ${n}')}at: {{1 s: {{link s1-s4: {{loss: 3 %}}}}}}\n"


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, len(GOOD) - 1),
    st.integers(0, 12),
    st.sampled_from(["", "x", "[", "}", ": ", "null", "5", "\n", "ü", "- ", "*a"]),
)
def test_a_damaged_scenario_loads_or_is_a_scenario_error(start: int, length: int, new: str) -> None:
    try:
        load(GOOD[:start] + new + GOOD[start + length :] + "\n")
    except ScenarioError as error:
        assert error.problems
