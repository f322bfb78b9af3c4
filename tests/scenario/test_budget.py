"""What small files may grow to: limits are checked first, and over all files together."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from timebound.scenario import ScenarioError, load
from timebound.scenario.closest import closest
from timebound.scenario.topology import parse_topology
from timebound.scenario.topology_formats import FormatError
from timebound.scenario.tree import MOST_ALL_BYTES, MOST_ALL_NODES

REST = "network: {nodes: {h: host, g: host, s: switch}, links: [[h, s], [g, s]]}\nstack: udp\n"
FLOW = "flows: [{name: f, from: h, to: g, size: 1 B, period: 1 s}]\n"


def message(source: str | Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(source)
    (problem,) = caught.value.problems
    return f"{problem.message}; {problem.hint}"


def test_what_is_put_in_for_parameters_counts() -> None:
    value = "x" * 100_000
    text = f'name: a\nparameters: {{p: "{value}"}}\n{FLOW}{REST}description: "%s"\n'
    load(text % ("${p}" * 30))
    found = message(text % ("${p}" * 20_000))
    assert f"more than {MOST_ALL_BYTES} bytes" in found and "put in for parameters" in found
    many = "".join(f'- {{name: f{n}, from: h, to: g, size: 1 B, period: 1 s, topic: "${{p}}"}}\n' for n in range(1000))
    found = message(f'name: a\nparameters: {{p: "{value}"}}\nflows:\n{many}{REST}')
    assert f"more than {MOST_ALL_BYTES} bytes" in found


def test_a_file_counts_as_often_as_it_is_included(tmp_path: Path) -> None:
    flows = "".join(f"- {{name: f{n}, from: h, to: g, size: 1 B, period: 1 s}}\n" for n in range(12_000))
    (tmp_path / "flows.yaml").write_text(f"flows:\n{flows}")
    main = tmp_path / "main.yaml"
    main.write_text(f"name: a\ninclude: flows.yaml\n{REST}")
    assert len(load(main).flows) == 12_000
    main.write_text(f"name: a\ninclude: [{', '.join(['flows.yaml'] * 20)}]\n{REST}")
    assert f"more than {MOST_ALL_NODES} values" in message(main)
    (tmp_path / "long.yaml").write_text("# " + "x" * 1_900_000 + "\nrun: {seed: 1}\n")
    main.write_text(f"name: a\ninclude: [{', '.join(['long.yaml'] * 20)}]\n{FLOW}{REST}")
    assert f"more than {MOST_ALL_BYTES} bytes" in message(main)


def test_imports_are_counted_before_anything_else_and_alike_names_cost_nothing() -> None:
    def gml(count: int) -> str:
        return "graph [" + "".join(f'node [ id {n} label "x" ]\n' for n in range(count)) + "]"

    began = time.process_time()
    topology = parse_topology(gml(20_000), ".gml")
    assert [node.name for node in topology.nodes[:3]] == ["x", "x-2", "x-3"] and topology.nodes[-1].name == "x-20000"
    # It took minutes where each name tried all numbers below its own; this is a guard against that, not a figure.
    assert time.process_time() - began < 20
    with pytest.raises(FormatError, match="20001 nodes, and a network has at most 20000"):
        parse_topology(gml(20_001), ".gml")
    graphml = '<graphml><graph edgedefault="undirected">' + "".join(f'<node id="n{n}"/>' for n in range(60_000))
    with pytest.raises(FormatError, match="60000 nodes"):
        parse_topology(graphml + "</graph></graphml>", ".graphml")
    taken = (
        'graph [ node [ id 1 label "x" ] node [ id 2 label "x-2" ] node [ id 3 label "x" ] node [ id 4 label "x" ] ]'
    )
    assert [node.name for node in parse_topology(taken, ".gml").nodes] == ["x", "x-2", "x-3", "x-4"]


def test_a_hint_among_many_names_is_one_that_is_alike() -> None:
    names = [f"sensor-{n}" for n in range(4_000)]
    assert closest("sensr-17", names) in names and closest("Sensor-17", names) is not None
    assert closest("camera", names) is None and closest("s" * 1_000, names) is None
    assert closest("plc1", ["plc", "plc1x", "robot"]) == "plc1x"
    shuffled = random.Random(1).sample([*names, "gateway"], len(names) + 1)
    assert closest("gatway", shuffled) == "gateway"


def test_the_ways_of_all_flows_together_are_bounded() -> None:
    from timebound.engine.runs import check

    links = "".join(f"  - [s{n}, s{n + 1}]\n" for n in range(1, 4_000))
    flows = "".join(f"- {{name: f{n}, from: h, to: g, size: 1 B, period: 1 s}}\n" for n in range(400))
    nodes = "{s[1-4000]: switch, h: host, g: host}"
    scenario = load(
        f"name: a\nnetwork:\n  nodes: {nodes}\n  links:\n  - [h, s1]\n  - [g, s4000]\n{links}flows:\n{flows}stack: udp\n"
    )
    with pytest.raises(ScenarioError, match="more than 1500000 hops"):
        check(scenario)
