"""What a topology file says of its links and nodes is used, or it is said that it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.scenario import Scenario, load
from timebound.scenario.topology_names import name_of


def imported(folder: Path, text: str, suffix: str = ".gml", more: str = "hosts-per-node: 0") -> Scenario:
    file = folder / f"t{suffix}"
    file.write_text(text, encoding="utf-8")
    return load(f"name: x\nnetwork: {{import: {{file: {file}, {more}}}}}\nflows: []\nstack: udp\n")


def gml(edge: str, nodes: str = 'node [ id 0 label "A" ] node [ id 1 label "B" ]') -> str:
    return f"graph [ {nodes} edge [ source 0 target 1 {edge} ] ]"


def told(scenario: Scenario) -> list[str]:
    return [problem.message.partition(": ")[2] for problem in scenario.warnings if "no flows" not in problem.message]


@pytest.mark.parametrize(
    ("edge", "rate", "delay"),
    [
        ('latency "50 ms"', 100_000_000, 50_000_000),
        ("latency_ms 50", 100_000_000, 50_000_000),
        ('delay "2.5us" bandwidth "10 Mbit"', 10_000_000, 2_500),
        ('Bandwidth "10 Mbit/s" length "12.5 km"', 10_000_000, 62_500),
        ('capacity "1 Gbps" distance "100 m"', 1_000_000_000, 500),
        ('speed "40G" dist 100', 40_000_000_000, 500_000),
        ('bw "2 MB/s" length_m 1000', 16_000_000, 5_000),
        ('LinkSpeed "10" LinkSpeedUnits "G" LinkSpeedRaw 10000000000.0 LinkLabel "10G" dist 1', 10_000_000_000, 5_000),
        ('dist 100 latency "7 ms"', 100_000_000, 7_000_000),
        ("bandwidth_mbps 250 delay_ns 7", 250_000_000, 7),
    ],
)
def test_attributes_of_a_link_are_used(edge: str, rate: int, delay: int, tmp_path: Path) -> None:
    loaded = imported(tmp_path, gml(edge))
    (link,) = loaded.links
    assert link.forward == link.backward
    assert (link.forward.rate_bps, link.forward.delay_ns) == (rate, delay)
    assert told(loaded) == []


@pytest.mark.parametrize(
    ("edge", "attribute"),
    [
        ("dist 1 latency 50", "'latency'"),
        ('dist 1 bandwidth "fast"', "'bandwidth'"),
        ('dist 1 loss "1 %"', "'loss'"),
        ('delay "1 ms" dist "far"', "'dist'"),
        ("dist 1 weight 3", "'weight'"),
        ('latency_ms 0.5 delay "7 ms"', "'delay'"),
        ('dist 1 bandwidth "10 Mbit/s" capacity "1 Mbit/s"', "'capacity'"),
    ],
)
def test_an_attribute_that_is_not_used_is_named_with_the_number_of_its_links(
    edge: str, attribute: str, tmp_path: Path
) -> None:
    text = gml(edge).replace("] ]", f"] edge [ source 1 target 0 {edge} ] ]")
    (message,) = told(imported(tmp_path, text))
    assert message.startswith(f"2 links have an attribute {attribute} that is not read")


def test_a_link_without_any_distance_is_named_unless_a_delay_is_the_default(tmp_path: Path) -> None:
    nodes = 'node [ id 0 label "A" lat 50 lon 10 ] node [ id 1 label "B" ]'
    loaded = imported(tmp_path, gml("", nodes))
    assert loaded.links[0].forward.delay_ns == 0
    assert told(loaded) == ["1 link without delay, length or coordinates of both ends (A-B): no delay"]
    text = f"name: x\nnetwork: {{defaults: {{link: {{delay: 3 us}}}}, import: {{file: {tmp_path / 't.gml'}, hosts-per-node: 0}}}}\nstack: udp\n"
    loaded = load(text)
    assert loaded.links[0].forward.delay_ns == 3_000 and told(loaded) == []


def test_the_second_direction_of_a_directed_link_keeps_its_own_values(tmp_path: Path) -> None:
    nodes = "node [ id 0 label A ] node [ id 1 label B ] node [ id 2 label C ]"
    edges = """
      edge [ source 0 target 1 rate "10 Mbit/s" delay "1 ms" ] edge [ source 1 target 0 rate "2 Mbit/s" delay "9 ms" ]
      edge [ source 0 target 1 rate "30 Mbit/s" length "1 km" ] edge [ source 1 target 0 length "2 km" ]
      edge [ source 1 target 2 delay "4 ms" ] edge [ source 2 target 2 ]
    """
    loaded = imported(tmp_path, f"graph [ directed 1 {nodes} {edges} ]")
    found = [
        (link.a, link.b, *((way.rate_bps // 10**6, way.delay_ns) for way in (link.forward, link.backward)))
        for link in loaded.links
    ]
    assert found == [
        ("A", "B", (10, 1_000_000), (2, 9_000_000)),
        ("A", "B", (30, 5_000), (30, 10_000)),
        ("B", "C", (100, 4_000_000), (100, 4_000_000)),
    ]
    assert told(loaded) == [
        "1 link from a node to itself: left out",
        "1 link in one direction alone: they become links in both",
    ]
    assert load(loaded.to_yaml()).links == loaded.links


@pytest.mark.parametrize(
    ("key", "label", "name"),
    [
        ("0", "Zürich", "Zurich"),
        ("0", "København", "Kobenhavn"),
        ("0", "Łódź", "Lodz"),
        ("0", "Straße", "Strasse"),
        ("0", "Москва", "Moskva"),
        ("0", "Нижний Новгород", "Nizhniy-Novgorod"),
        ("0", "Αθήνα", "Athina"),
        ("7", "長野", "n7"),
        ("sw#7", "長野", "sw-7"),
        ("0", "Tokyo (東京)", "Tokyo"),
        ("Berlin", None, "Berlin"),
        ("n0", None, "n0"),
        ("3", None, "n3"),
        ("長", None, "n"),
        ("5", "12", "12"),
    ],
)
def test_names_stay_readable(key: str, label: str | None, name: str) -> None:
    assert name_of(key, label) == name


def test_gml_references_and_words_with_a_hash_are_names(tmp_path: Path) -> None:
    nodes = (
        'node [ id 0 label "Z&#252;rich" ] # a comment\n node [ id 1 label sw#2 ] node [ id 2 label "K&oslash;ge &x" ]'
    )
    loaded = imported(tmp_path, gml("dist 1 # km\n", nodes))
    assert [node.name for node in loaded.nodes] == ["Zurich", "sw-2", "Koge-x"]


def test_ids_of_networkx_are_names(tmp_path: Path) -> None:
    text = '{"directed": false, "nodes": [{"id": "Berlin"}, {"id": 7}], "links": [{"source": "Berlin", "target": 7, "delay": "1 ms"}]}'
    loaded = imported(tmp_path, text, ".json")
    assert [node.name for node in loaded.nodes] == ["Berlin", "n7"]
    assert loaded.links[0].forward.delay_ns == 1_000_000


def test_nodes_in_groups_of_yed_are_there_with_their_labels(tmp_path: Path) -> None:
    label = "<data key='d6'><y:ShapeNode><y:NodeLabel>{}</y:NodeLabel></y:ShapeNode></data>"
    text = f"""<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:y="http://www.yworks.com/xml/graphml">
      <key for="node" id="d6" yfiles.type="nodegraphics"/><key for="edge" id="d9" attr.name="delay" attr.type="string"/>
      <graph edgedefault="directed" id="G">
        <node id="n0"><data key='d6'><y:GroupNode><y:NodeLabel>Hall 1</y:NodeLabel></y:GroupNode></data>
          <graph id="n0:"><node id="n0::n0">{label.format("Press")}</node><node id="n0::n1">{label.format("Robot")}</node>
            <edge source="n0::n0" target="n0::n1"><data key="d9">2 ms</data></edge></graph></node>
        <node id="n1">{label.format("Core")}</node>
        <edge source="n0::n1" target="n1"><data key="d9">3 ms</data></edge>
      </graph></graphml>"""
    loaded = imported(tmp_path, text, ".graphml")
    assert sorted(node.name for node in loaded.nodes) == ["Core", "Press", "Robot"]
    assert {(link.a, link.b, link.forward.delay_ns) for link in loaded.links} == {
        ("Press", "Robot", 2_000_000),
        ("Robot", "Core", 3_000_000),
    }
