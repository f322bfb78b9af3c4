"""Topologies from and to other formats; drawings."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenario_helpers import NETWORK, scenario

from timebound.scenario import Scenario, ScenarioError, draw, load, topology
from timebound.scenario.topology_formats import FormatError

FIXTURES = Path(__file__).parent / "fixtures"


def imported(file: Path, more: str = "hosts-per-node: 1, rate: 1 Gbit/s") -> Scenario:
    return load(f"name: x\nnetwork: {{import: {{file: {file}, {more}}}}}\nstack: {{udp: {{}}}}\n")


def test_gml_lengths_become_delays() -> None:
    loaded = imported(FIXTURES / "triangle.gml")
    assert [node.name for node in loaded.nodes] == ["Koln", "Berlin", "Munchen", "Koln-h1", "Berlin-h1", "Munchen-h1"]
    assert len(loaded.links) == 6
    first, second = loaded.links[:2]
    assert first.forward.delay_ns == 2_502_500
    assert first.forward.rate_bps == 1_000_000_000
    assert abs(second.forward.delay_ns - 5_000 * 504) < 5_000 * 3  # Berlin to Munich is 504 km by air
    assert loaded.node("Berlin").latitude == 52.52
    assert load(loaded.to_yaml()) == loaded


def test_graphml_with_both_directions_is_one_link() -> None:
    loaded = imported(FIXTURES / "pair.graphml", "hosts-per-node: 2, host-rate: 1 Mbit/s")
    assert (loaded.links[0].a, loaded.links[0].b) == ("left", "right")
    assert len(loaded.links) == 5
    assert (loaded.links[0].forward.rate_bps, loaded.links[0].forward.delay_ns) == (2_000_000, 500_000)
    assert loaded.links[1].forward.rate_bps == 1_000_000


def test_json_with_equal_names() -> None:
    loaded = imported(FIXTURES / "line.json", "hosts-per-node: 0")
    assert [node.name for node in loaded.nodes] == ["A", "B", "A-2"]
    assert loaded.links[1].forward.delay_ns == 2_500


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".gml", "graph [ node [ id 0 ] edge [ source 0 target 1 ] ]"),
        (".gml", "graph [ node [ id 0 "),
        (".gml", "graph [ ] ]"),
        (".gml", 'graph [ node [ id 0 label "x ]'),
        (".gml", "nothing"),
        (".graphml", "<graphml>"),
        (".graphml", "<!DOCTYPE x [<!ENTITY a 'b'>]><graphml><graph/></graphml>"),
        (".graphml", "<graphml/>"),
        (".json", "{"),
        (".json", "[]"),
        (".json", '{"nodes": [{"name": "x"}], "edges": []}'),
        (".json", "[" * 100_000),
        (".csv", "a,b"),
    ],
)
def test_what_is_no_topology_says_so(suffix: str, text: str) -> None:
    with pytest.raises(FormatError) as error:
        topology.parse_topology(text, suffix)
    assert error.value.hint


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.sampled_from('graph [node]id 0"label#edgsourct\n1<>/{}:,&;'), max_size=80),
    st.sampled_from([".gml", ".graphml", ".json"]),
)
def test_any_text_is_a_topology_or_a_format_error(text: str, suffix: str) -> None:
    for content in (text, f"graph [ {text} ]", f"<graphml><graph>{text}</graph></graphml>"):
        try:
            topology.parse_topology(content, suffix)
        except FormatError as error:
            assert error.message


def test_a_broken_import_is_a_problem_at_its_name(tmp_path: Path) -> None:
    (tmp_path / "t.gml").write_text("graph [", encoding="utf-8")
    main = tmp_path / "main.yaml"
    main.write_text("name: x\nnetwork: {import: t.gml}\nstack: {udp: {}}\n", encoding="utf-8")
    with pytest.raises(ScenarioError) as error:
        load(main)
    (problem,) = error.value.problems
    assert (problem.line, problem.column) == (2, 19)
    assert "ends too early" in problem.message


@pytest.mark.parametrize("suffix", [".gml", ".graphml", ".json"])
def test_an_exported_topology_reads_back(suffix: str, tmp_path: Path) -> None:
    loaded = imported(FIXTURES / "triangle.gml")
    writer = {".gml": topology.to_gml, ".graphml": topology.to_graphml, ".json": topology.to_json}[suffix]
    again = topology.parse_topology(writer(loaded), suffix)
    assert [node.name for node in again.nodes] == [node.name for node in loaded.nodes]
    assert [(link.a, link.b, link.rate_bps) for link in again.links] == [
        (link.a, link.b, link.forward.rate_bps) for link in loaded.links
    ]
    for link, before in zip(again.links, loaded.links, strict=True):
        assert link.kilometres is not None
        assert abs(link.kilometres * 5_000 - before.forward.delay_ns) < 6


def test_a_drawing_is_valid_deterministic_and_shows_every_node() -> None:
    loaded = scenario("", stack="{mqtt: {broker: h5}}")
    image = draw.svg(loaded)
    assert image == draw.svg(scenario("", stack="{mqtt: {broker: h5}}"))
    root = ElementTree.fromstring(image)
    words = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {node.name for node in loaded.nodes} <= words
    assert "10 Mbit/s" in words
    assert len(list(root.iter("{http://www.w3.org/2000/svg}line"))) == len(loaded.links)


@pytest.mark.parametrize("hosts", [1, 8, 20, 60])
def test_nodes_do_not_lie_upon_each_other(hosts: int) -> None:
    network = (
        f"network: {{nodes: {{h[1-{hosts}]: host, s[1-3]: switch}}, links: [[h[1-{hosts}], s1], [s1, s2], [s2, s3]]}}"
    )
    places = list(draw.layout(scenario(network=network)).values())
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in places)
    gaps = [abs(a[0] - b[0]) + abs(a[1] - b[1]) for i, a in enumerate(places) for b in places[:i]]
    assert min(gaps) > 0.25 / len(places)


def test_geography_is_kept() -> None:
    places = draw.layout(imported(FIXTURES / "triangle.gml"))
    assert places["Koln"][0] < places["Munchen"][0] < places["Berlin"][0]
    assert places["Berlin"][1] < places["Koln"][1] < places["Munchen"][1]


def test_the_text_drawing_names_every_link_once() -> None:
    shown = draw.text(scenario())
    assert shown.count("Mbit/s") == 5
    assert shown.splitlines()[0].startswith("test: 4 hosts, 2 switches, 5 links")
    assert "no link" in draw.text(scenario(network=NETWORK.replace("s4: switch", "s4: switch, s7: switch")))


def _outside() -> list[Path]:
    folder = os.environ.get("TIMEBOUND_TOPOLOGIES")
    files = sorted(Path(folder).rglob("*")) if folder else []
    return [file for file in files if file.suffix in (".gml", ".graphml", ".json")]


if _outside():

    @pytest.mark.parametrize("file", _outside(), ids=lambda file: f"{file.parent.name}/{file.name}")
    def test_a_published_topology_loads_and_draws(file: Path) -> None:
        loaded = imported(file)
        assert any(link.forward.delay_ns for link in loaded.links)
        assert load(loaded.to_yaml()) == loaded
        ElementTree.fromstring(draw.svg(loaded))
