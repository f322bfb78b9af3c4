"""Short forms are what they stand for, also where `include` or `--set` lays something upon them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from scenario_helpers import problems

from timebound.scenario import Scenario, load
from timebound.scenario.fields import Short
from timebound.scenario.shape import ScenarioShape
from timebound.scenario.short_forms import Spot
from timebound.scenario.sources import SCENARIO
from timebound.scenario.tree import Sources, compose, to_plain
from timebound.scenario.written import walk

HEAD = "name: short\n"
TEXT = """
network:
  framing: FRAMING
  controller: CONTROLLER
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us, loss: LOSS, jitter: JITTER, queue: QUEUE, disconnections: NEVER}}
  nodes:
    a: NODE
    b: {kind: host, tcp: TCP, cpu: CPU, run: RUN, files: {/etc/app: FILE}}
    c: host
    s: {kind: switch, engine: ovs}
  links: [LINK, [b, s], {between: [s, c], rate: 1 Mbit/s}]
flows: [{name: alpha, from: a, to: b, size: 100 B, period: 10 ms}]
stack: STACK
at: {2 s: {link b-s: CHANGE, node c: ORDER}}
"""
USUAL = {
    "FRAMING": "ethernet",
    "CONTROLLER": "{program: [ctl]}",
    "LOSS": "{independent: 1 %}",
    "JITTER": "{uniform: 1 ms}",
    "QUEUE": "{kind: fifo}",
    "NEVER": "{mean-up: 0 s, mean-down: 0 s}",
    "NODE": "{kind: host}",
    "TCP": "{initial-window: 9}",
    "CPU": "{share: 40 %}",
    "RUN": "[{command: [sleep, '1']}]",
    "FILE": "{content: text}",
    "LINK": "{between: [a, s]}",
    "STACK": "{mqtt: {broker: [{node: a}]}}",
    "CHANGE": "{up: false}",
    "ORDER": "{state: pause}",
}
LINKS = ("network", "defaults", "link")
HOST = ("network", "nodes", "b")
BURSTS = "{good-to-bad: 1 %, bad-to-good: 9 %}"
CASES = [
    ("FRAMING", "vlan", ("network", "framing", "overhead"), "4 B", "{kinds: [vlan], overhead: 4 B}"),
    ("FRAMING", "[vlan, prp]", ("network", "framing", "overhead"), "4 B", "{kinds: [vlan, prp], overhead: 4 B}"),
    ("FRAMING", "vlan", ("network", "framing", "kinds"), "[prp]", "{kinds: [prp]}"),
    ("CONTROLLER", "[ctl, x]", ("network", "controller", "port"), "6654", "{program: [ctl, x], port: 6654}"),
    ("LOSS", "1 %", (*LINKS, "loss", "independent"), "2 %", "{independent: 2 %}"),
    ("LOSS", "1 %", (*LINKS, "loss", "gilbert-elliott"), BURSTS, f"{{gilbert-elliott: {BURSTS}}}"),
    ("LOSS", f"{{gilbert-elliott: {BURSTS}}}", (*LINKS, "loss", "independent"), "2 %", "2 %"),
    ("JITTER", "1 ms", (*LINKS, "jitter", "reorder"), "true", "{uniform: 1 ms, reorder: true}"),
    ("JITTER", "1 ms", (*LINKS, "jitter", "exponential", "mean"), "1 ms", "{exponential: {mean: 1 ms}}"),
    ("QUEUE", "fifo", (*LINKS, "queue", "kind"), "drr", "drr"),
    ("QUEUE", "drr", (*LINKS, "queue", "drr", "default"), "2000 B", "{drr: {default: 2000 B}}"),
    ("QUEUE", "fifo", (*LINKS, "queue", "drr", "default"), "2000 B", "{drr: {default: 2000 B}}"),
    ("NEVER", "none", (*LINKS, "disconnections", "mean-up"), "2 s", "{mean-up: 2 s, mean-down: 0 s}"),
    ("NODE", "host", ("network", "nodes", "a", "mtu"), "1000", "{kind: host, mtu: 1000}"),
    ("TCP", "unknown", (*HOST, "tcp", "initial-window"), "10", "{initial-window: 10}"),
    ("TCP", "{initial-window: 10}", (*HOST, "tcp", "unknown"), "true", "unknown"),
    ("CPU", "50 %", (*HOST, "cpu", "share"), "60 %", "60 %"),
    ("CPU", "50 %", (*HOST, "cpu", "frequency"), "200 MHz", "200 MHz"),
    ("RUN", "[sleep, 1]", (*HOST, "run", "essential"), "true", "[{command: [sleep, '1'], essential: true}]"),
    ("FILE", "text", (*HOST, "files", "/etc/app", "mode"), "'0600'", "{content: text, mode: '0600'}"),
    ("STACK", "udp", ("stack", "udp", "multicast"), "true", "{udp: {multicast: true}}"),
    ("STACK", "udp", ("stack", "mqtt", "broker"), "a", "{mqtt: {broker: a}}"),
    ("STACK", "{mqtt: {broker: a}}", ("stack", "udp", "multicast"), "true", "{udp: {multicast: true}}"),
    ("STACK", "{mqtt: {broker: a}}", ("stack", "mqtt", "broker", "port"), "9", "{mqtt: {broker: {node: a, port: 9}}}"),
    ("CHANGE", "down", ("at", "2 s", "link b-s", "loss"), "3 %", "{up: false, loss: 3 %}"),
    ("ORDER", "pause", ("at", "2 s", "node c", "state"), "stop", "stop"),
]
"""Part of the text, its short form, what is laid upon it, and what comes out."""
ENTRIES = [
    ("LINK", "[a, s]", ("network", "links", "a-s", "delay"), "1 ms", "{between: [a, s], delay: 1 ms}"),
    ("LINK", "[a, s]", ("network", "links", "0", "delay"), "1 ms", "{between: [a, s], delay: 1 ms}"),
    ("RUN", "[sleep, 1]", (*HOST, "run", "0", "essential"), "true", "{command: [sleep, '1'], essential: true}"),
    ("RUN", "[[a], [b]]", (*HOST, "run", "1", "essential"), "true", "[[a], {command: [b], essential: true}]"),
    (
        "STACK",
        "{mqtt: {broker: a}}",
        ("stack", "mqtt", "broker", "0", "port"),
        "9",
        "{mqtt: {broker: {node: a, port: 9}}}",
    ),
    (
        "STACK",
        "{mqtt: {broker: [a, c]}}",
        ("stack", "mqtt", "broker", "c", "port"),
        "9",
        "{mqtt: {broker: [a, {node: c, port: 9}]}}",
    ),
    (
        "STACK",
        "{mqtt: {broker: [a, c]}}",
        ("stack", "mqtt", "broker", "1", "port"),
        "9",
        "{mqtt: {broker: [a, {node: c, port: 9}]}}",
    ),
]
"""As `CASES`, with an entry of a list, which only `--set` can name."""


def text(part: str, value: str) -> str:
    found = TEXT
    for each, usual in USUAL.items():
        found = found.replace(each, value if each == part else usual)
    return found


def shown(scenario: Scenario) -> Any:
    return scenario.to_yaml()


@pytest.mark.parametrize(("part", "short", "path", "value", "result"), CASES + ENTRIES)
def test_set_adds_to_what_a_short_form_stands_for(
    part: str, short: str, path: tuple[str, ...], value: str, result: str
) -> None:
    found = load(HEAD + text(part, short), {".".join(path): value})
    assert shown(found) == shown(load(HEAD + text(part, result)))


@pytest.mark.parametrize(("part", "short", "path", "value", "result"), CASES)
def test_an_include_is_added_to_in_the_same_way(
    tmp_path: Path, part: str, short: str, path: tuple[str, ...], value: str, result: str
) -> None:
    over = value
    for key in reversed(path):
        over = f"{{{key}: {over}}}"
    (tmp_path / "base.yaml").write_text(text(part, short))
    (tmp_path / "main.yaml").write_text(f"{HEAD}include: base.yaml\n{over[1:-1]}\n")
    assert shown(load(tmp_path / "main.yaml")) == shown(load(HEAD + text(part, result)))


def test_a_short_form_laid_upon_a_long_one_takes_its_place(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(text("FRAMING", "{kinds: [prp], overhead: 4 B}"))
    (tmp_path / "main.yaml").write_text(f"{HEAD}include: base.yaml\nnetwork: {{framing: vlan}}\n")
    assert load(tmp_path / "main.yaml").framing.kinds == ("vlan",)
    assert load(tmp_path / "main.yaml").framing.stated_overhead_bytes == 0


BETA = "{from: b, to: a, size: 9 B, period: 1 s}"


@pytest.mark.parametrize(
    ("below", "over", "names", "period_ns"),
    [
        ("[{name: alpha, from: a, to: b, size: 1 B, period: 1 s}]", f"{{beta: {BETA}}}", ["alpha", "beta"], 10**9),
        ("{alpha: {from: a, to: b, size: 1 B, period: 1 s}}", f"[{{name: beta, {BETA[1:]}]", ["alpha", "beta"], 10**9),
        ("[{name: alpha, from: a, to: b, size: 1 B, period: 1 s}]", "{alpha: {period: 2 s}}", ["alpha"], 2 * 10**9),
    ],
)
def test_flows_by_name_and_as_a_list_come_together(
    tmp_path: Path, below: str, over: str, names: list[str], period_ns: int
) -> None:
    usual = text("", "")
    start = usual.index("flows: ")
    base = usual[:start] + f"flows: {below}\n" + usual[usual.index("stack: ") :]
    (tmp_path / "base.yaml").write_text(base)
    (tmp_path / "main.yaml").write_text(f"{HEAD}include: base.yaml\nflows: {over}\n")
    found = load(tmp_path / "main.yaml")
    assert [flow.name for flow in found.flows] == names and found.flows[0].period_ns == period_ns


def test_an_alias_that_is_written_out_leaves_the_other_alone() -> None:
    found = TEXT.replace("    c: host\n", "    c: *one\n")
    for each, usual in (USUAL | {"NODE": "&one host"}).items():
        found = found.replace(each, usual)
    loaded = load(HEAD + found, {"network.nodes.a.mtu": "900"})
    assert (loaded.node("a").mtu, loaded.node("c").mtu) == (900, 1500)


def test_below_a_single_value_there_is_nothing() -> None:
    [problem] = problems(HEAD + text("", ""), {"flows.alpha.size.x": "1"})
    assert problem.message == "there is nothing below a single value ('x')"


def spots(spot: Spot, model: Any, path: tuple[str, ...], found: dict[str, list[str]]) -> None:
    """Every place with short forms -> examples of them from the schema's enumerations."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        marks = [mark for _, marks in walk(field.annotation) for mark in marks] + list(field.metadata)
        if any(isinstance(mark, Short) for mark in marks):
            found[".".join((*path, key))] = [
                word
                for mark in marks
                if isinstance(mark, Short)
                for schema in mark.schemas
                for word in schema.get("enum", [])
            ]
        for member, _ in walk(field.annotation):
            inner = [member, *get_args(member)]
            for each in inner:
                for one, _ in walk(each):
                    if isinstance(one, type) and issubclass(one, BaseModel) and len(path) < 6:
                        steps = (key,) if one is member else (key, "x")
                        spots(spot, one, (*path, *steps), found)


def test_every_word_that_is_short_for_a_mapping_is_written_out() -> None:
    """Whoever adds a short form gets it everywhere: it is read from the shapes."""
    found: dict[str, list[str]] = {}
    spots(SCENARIO, ScenarioShape, (), found)
    assert len(found) > 40
    for path, words in found.items():
        for word in words:
            spot = SCENARIO
            for part in path.split("."):
                spot = spot.below(part)
            tree = compose(word, "x", Sources())
            assert tree is not None
            if path != "network.best-effort":
                assert isinstance(to_plain(spot.written_out(tree)), dict), path
