"""Every backbone of a folder with 1,000 random flows each: nothing that simulation or search finds is above its bound.

    python benches/topologies.py FOLDER [EVALUATIONS]

Every node of a topology is a switch (2 to 10 us) with one host on a link of its own. Links have the rate of the file, 1 Gbit/s where it has
none, and the delay of their length. The flows go between random hosts by the shortest way, in three classes, every second one with a release jitter
of up to a tenth of its period; their periods are set so that the busiest port is loaded to 70 per cent. A name that comes in several formats
is one topology. EVALUATIONS are those of the search for each receiver. Exit code 1 where a bound is broken.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from timebound import _core
from timebound.scenario.topology import Topology, parse_topology
from timebound.scenario.units import propagation_ns

FLOWS = 1_000
LOAD = 0.7
RATE_BPS = 1_000_000_000
FORMATS = (".gml", ".graphml", ".json")
EVALUATIONS = 1
"""The start that is built from the witness, for every receiver."""


def backbones(folder: Path) -> dict[str, Path]:
    """Name (with its folder's) -> file, in the order of `FORMATS` where there are several."""
    files = [file for suffix in FORMATS for file in sorted(folder.rglob(f"*{suffix}"))]
    found: dict[str, Path] = {}
    for file in files:
        found.setdefault(f"{file.parent.name}/{file.stem}", file)
    return dict(sorted(found.items()))


def parts(topology: Topology) -> list[list[str]]:
    """Nodes that can reach each other."""
    of = {node.name: [node.name] for node in topology.nodes}
    for link in topology.links:
        a, b = of[link.a], of[link.b]
        if a is not b:
            a.extend(b)
            of.update(dict.fromkeys(b, a))
    return list({id(part): part for part in of.values()}.values())


def link(a: str, b: str, rate_bps: int, delay_ns: int) -> dict[str, Any]:
    """The same both ways, strict priority, room for everything."""
    way = {
        "rate_bps": rate_bps,
        "delay_ns": delay_ns,
        "queue": {"kind": "strict-priority"},
        "buffer_bytes": 1 << 30,
    }
    return {"a": a, "b": b, "forward": way, "backward": way}


def declaration(topology: Topology, draw: random.Random) -> dict[str, Any]:
    """The topology with its hosts and flows; periods are not set yet to the load."""
    nodes: list[dict[str, Any]] = []
    for node in topology.nodes:
        nodes.append({"name": node.name, "kind": "switch", "switching_min_ns": 2_000, "switching_max_ns": 10_000})
        nodes.append({"name": f"host-{node.name}", "kind": "host"})
    links = [link(f"host-{node.name}", node.name, RATE_BPS, 1_000) for node in topology.nodes]
    links += [
        link(one.a, one.b, one.rate_bps or RATE_BPS, propagation_ns(round((one.kilometres or 0) * 1e6)))
        for one in topology.links
    ]
    largest = max(parts(topology), key=len)
    streams = []
    for number in range(FLOWS):
        source, destination = draw.sample(largest, 2)
        period_ns = draw.randrange(1_000_000, 20_000_000)
        arrival = {
            "kind": "periodic",
            "period_ns": period_ns,
            "jitter_ns": draw.randrange(period_ns // 10) if draw.random() < 0.5 else 0,
            "frames_bytes": [draw.randrange(84, 1539)],
        }
        streams.append(
            {
                "name": f"f{number}",
                "source": f"host-{source}",
                "destinations": [f"host-{destination}"],
                "class": draw.choice((2, 1, 0)),
                "role": "data",
                "arrival": arrival,
                "release": {"kind": "periodic"},
            }
        )
    return {"nodes": nodes, "links": links, "streams": streams}


def loaded(declared: dict[str, Any]) -> tuple[_core.Network, int]:
    """The network with the busiest port at `LOAD`, and the longest period in it."""
    ports = json.loads(_core.Network(json.dumps(declared)).bounds("{}"))["ports"]
    factor = max(port["utilisation"]["value"] for port in ports) / LOAD
    for stream in declared["streams"]:
        arrival = stream["arrival"]
        arrival["period_ns"] = int(arrival["period_ns"] * factor) + 1
        arrival["jitter_ns"] = int(arrival["jitter_ns"] * factor)
    return _core.Network(json.dumps(declared)), max(stream["arrival"]["period_ns"] for stream in declared["streams"])


def check(name: str, file: Path, evaluations: int) -> tuple[list[str], list[float]]:
    """What broke, and bound / worst found of every receiver."""
    draw = random.Random(f"topologies {name}")
    declared = declaration(parse_topology(file.read_text(encoding="utf-8"), file.suffix), draw)
    network, longest_ns = loaded(declared)
    duration = {"duration_ns": 4 * longest_ns, "warmup_ns": 0, "seed": 1, "schedule": []}
    plain = json.loads(network.simulate(json.dumps(duration)))
    found = json.loads(network.search(json.dumps({"evaluations": evaluations * FLOWS, "seed": 1})))
    worst = {entry["stream"]: entry["leaves"][0]["latency"]["max"] for entry in plain["streams"]}
    for entry in found["worst"]:
        worst[entry["stream"]] = max(worst[entry["stream"]], entry["latency"] or 0)
    broken: list[str] = []
    tightness: list[float] = []
    for method in ("holistic", "calculus", "bound"):
        analysis = json.loads(network.bounds(json.dumps({"method": method})))
        for index, stream in enumerate(analysis["streams"]):
            outcome = stream["leaves"][0]["outcome"]
            if outcome["kind"] != "bound":
                broken.append(f"{name}, {stream['stream']}: no bound by {method}: {outcome['reason']}")
                continue
            if worst[index] > outcome["from_actual_ns"]:
                broken.append(
                    f"{name}, {stream['stream']}: {worst[index]} ns above {outcome['from_actual_ns']} ns ({method})"
                )
            if method == "bound":
                tightness.append(outcome["from_actual_ns"] / worst[index])
        for bound, port in zip(analysis["ports"], plain["ports"], strict=True):
            if bound["backlog_bytes"] is not None and port["largest_queue_bytes"] > bound["backlog_bytes"]:
                broken.append(f"{name}, port {bound['name']}: queue of {port['largest_queue_bytes']} bytes ({method})")
    return broken, tightness


def main() -> int:
    folder = Path(sys.argv[1])
    evaluations = int(sys.argv[2]) if len(sys.argv) > 2 else EVALUATIONS
    started = time.monotonic()
    broken: list[str] = []
    tightness: list[float] = []
    found = backbones(folder)
    if not found:
        print(f"no topology in {folder}")
        return 2
    for name, file in found.items():
        wrong, ratios = check(name, file, evaluations)
        broken += wrong
        tightness += ratios
    tightness.sort()
    print(
        f"{len(found)} topologies, {FLOWS} flows each, {evaluations} evaluations for each receiver: {len(tightness)} bounds, {len(broken)} broken; "
        f"bound / worst found: mean {sum(tightness) / max(1, len(tightness)):.3f}, median {tightness[len(tightness) // 2]:.3f}, "
        f"p90 {tightness[len(tightness) * 9 // 10]:.3f}, max {tightness[-1]:.2f}; {time.monotonic() - started:.1f} s"
    )
    for text in broken[:20]:
        print(f"BROKEN {text}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
