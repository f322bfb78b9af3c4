"""Synthetic run folders of every kind that the report has to show. Seeded, so a test that fails once fails again."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from report_explained import explained

HOSTILE = '<script>document.title="owned"</script>"\'><img src=x onerror=alert(1)>&amp;\u202etxt.exe\x07'


def quantiles(low: float, spread: float, tail: float) -> list[float]:
    """101 quantiles of something that looks like a latency: a floor, a body, a tail."""
    return [round(low + spread * (i / 100) ** 2 + (tail * ((i - 95) / 5) ** 2 if i > 95 else 0), 3) for i in range(101)]


def spread(values: list[float]) -> dict[str, float]:
    return {"min": values[0], "p50": values[50], "p99": values[99], "max": values[100]}


def segment(name: str, flow: str, path: list[str], share: float, observed: list[float], bound: float) -> dict[str, Any]:
    return {
        "name": name,
        "stream": f"{flow}/{name}",
        "source": path[0].split("->")[0],
        "destination": path[-1].split("->")[1],
        "latency_us": spread([v * share for v in observed]),
        "simulated_max_us": observed[100] * share * 1.05,
        "bound_us": bound * share,
        "holistic_us": bound * share * 1.02,
        "calculus_us": bound * share,
        "best_us": observed[0] * share * 0.9,
        "bound_observed_us": bound * share * 1.1,
        "declared_jitter_us": 400.0,
        "observed_jitter_us": 389.25 if share < 0.5 else 612.5,
        "kept": share < 0.5,
        "reason": None,
        "path": path,
    }


def flow(
    name: str, receiver: str, draw: random.Random, *, scale: float = 1.0, deadline: float | None = 15000.0
) -> dict[str, Any]:
    network = quantiles(180 * scale, 240 * scale * draw.uniform(0.5, 1.5), 150 * scale)
    application = [round(v + 320 + draw.uniform(0, 40) * i / 100, 3) for i, v in enumerate(network)]
    simulated = [round(v * 1.04, 3) for v in network]
    bound = round(network[100] * 1.4, 3)
    return {
        "flow": name,
        "receiver": receiver,
        "topic": f"plant/{name}",
        "priority": draw.randint(1, 6),
        "qos": draw.randint(0, 2),
        "size_bytes": 1429,
        "period_us": 15000.0,
        "jitter_us": 400.0,
        "sent": 600,
        "received": 600,
        "lost": 0,
        "late": 0,
        "duplicates": 0,
        "reordered": 0,
        "latency_us": spread(network),
        "application_us": spread(application),
        "shares_us": {
            "network": {"p50": network[50], "max": network[100]},
            "broker": {"p50": 120.5, "max": 803.0},
            "host": {"p50": 204.25, "max": 1911.0},
        },
        "simulated_max_us": simulated[100],
        "bound_us": {
            "holistic": round(bound * 1.02, 3),
            "calculus": bound,
            "bound": bound,
            "observed_arrivals": round(bound * 1.08, 3),
            "reason": None,
        },
        "segments": [
            segment("publish", name, ["h1->s1", "s1->h2"], 0.4, network, bound),
            segment("deliver", name, ["h2->s1", "s1->s2", f"s2->{receiver}"], 0.6, network, bound),
        ],
        "end_to_end_us": {
            "bound": round(400.0 + bound + 900.0, 3),
            "observed_arrivals": round(400.0 + bound * 1.08 + 900.0, 3),
            "from_actual": {"bound": round(bound + 900.0, 3), "simulated": simulated[100] + 120.0},
            "reason": None,
            "covers": "measured",
            "statement": f"with the measured service time of broker h2 (profile of {name}); measured, not guaranteed",
            "parts": [
                {"kind": "network", "name": "publish", "bound": 400.0 + bound * 0.4, "known": True, "reason": None},
                {"kind": "broker", "name": "h2", "bound": 900.0, "known": True, "reason": None},
                {"kind": "network", "name": "deliver", "bound": bound * 0.6, "known": True, "reason": None},
            ],
            "measured": [],
        },
        "best_us": round(network[0] * 0.9, 3),
        "deadline_us": deadline,
        "verdict": "met",
        "distribution": {"network_us": network, "application_us": application, "simulated_us": simulated},
    }


def port(name: str, load: float, rate: int = 100_000_000) -> dict[str, Any]:
    return {
        "port": name,
        "rate_bps": rate,
        "utilisation_declared": round(load * 1.05, 4),
        "utilisation_observed": round(load, 4),
        "utilisation_simulated": round(load * 1.01, 4),
        "bound_reason": None,
        "backlog_bound_bytes": 12304,
        "queues": [
            {
                "class": priority,
                "largest_delay_us": 812.5,
                "backlog_bytes": 6152 * (7 - priority),
                "room_bytes": 16384,
                "exceeds": 6152 * (7 - priority) > 16384,
                "reason": None,
            }
            for priority in (5, 3)
        ],
        "dropped": 0,
        "largest_queue_bytes": 4614,
    }


def small_topology() -> dict[str, Any]:
    nodes = [
        ("h1", "host", 0.0, 0.15, ["publisher"]),
        ("h2", "host", 0.0, 0.85, ["broker"]),
        ("s1", "switch", 0.33, 0.5, []),
    ]
    nodes += [
        ("s2", "switch", 0.67, 0.5, []),
        ("h3", "host", 1.0, 0.15, ["subscriber"]),
        ("h5", "host", 1.0, 0.85, ["subscriber"]),
    ]
    pairs = [("h1", "s1"), ("h2", "s1"), ("s1", "s2"), ("s2", "h3"), ("s2", "h5")]
    return {
        "nodes": [{"name": n, "kind": k, "x": x, "y": y, "roles": r} for n, k, x, y, r in nodes],
        "links": [{"a": a, "b": b, "rate_bps": 100_000_000, "delay_ns": 5000} for a, b in pairs],
    }


def all_well(flows: int = 4) -> dict[str, Any]:
    """A run in which everything is as it should be."""
    draw = random.Random(1)
    names = ["alpha", "beta", "gamma", "camera-front-left"]
    made = [
        flow(names[i % 4] + ("" if i < 4 else f"-{i // 4}"), "h5" if i % 2 else "h3", draw, scale=1 + (i % 7) * 0.8)
        for i in range(flows)
    ]
    topology = small_topology()
    loads = [0.28, 0.02, 0.27, 0.55, 0.81, 0.06, 0.4, 0.004, 0.35, 0.01]
    directed = [p for link in topology["links"] for p in (f"{link['a']}->{link['b']}", f"{link['b']}->{link['a']}")]
    seconds = [float(t) for t in range(30)]
    return {
        "schema": 1,
        "scenario": {
            "name": "hello",
            "description": "Three hosts, two switches, one broker.",
            "seed": 1,
            "duration_s": 30.0,
            "warmup_s": 1.0,
            "stack": "mqtt",
            "reading": "one connection for each flow and receiver",
        },
        "topology": topology,
        "ports": [port(name, loads[i % len(loads)]) for i, name in enumerate(directed)],
        "flows": made,
        "series": {
            "time_s": seconds,
            "flows": {
                f"{f['flow']}>{f['receiver']}": {
                    "p50_us": [round(f["latency_us"]["p50"] * (1 + 0.1 * math.sin(t)), 3) for t in seconds],
                    "max_us": [
                        round(f["latency_us"]["max"] * (0.8 + 0.2 * math.sin(t * 1.7) ** 2), 3) for t in seconds
                    ],
                }
                for f in made
            },
            "links": {
                name: [max(0.0, round(loads[i % len(loads)] * (1 + 0.3 * math.sin(t / 3 + i)), 4)) for t in seconds]
                for i, name in enumerate(directed)
            },
        },
        "nodes": [
            {
                "node": n["name"],
                "cpu_share": {"mean": 0.031, "max": 0.12},
                "memory_bytes": {"max": 11_534_336},
                "sent_bytes": 918_200,
                "received_bytes": 922_004,
            }
            for n in topology["nodes"]
        ],
        "undeclared": [
            {"source": "h1", "destination": "ff02::2", "protocol": "icmpv6", "frames": 12, "bytes": 1234, "largest": 90}
        ],
        "tcp": {"retransmissions": 0, "verdict": "no segment was sent twice"},
        "precision": {
            "verdict": "good",
            "reasons": [],
            "lateness_us": {"p50": 3.1, "p99": 41.0, "p999": 96.5, "max": 310.2},
            "series": {
                "time_s": [index / 10 for index in range(120)],
                **{
                    f"{name}_us": [10.0 + index % 7] * 120
                    for index, name in enumerate(("p50", "p99", "max", "overrun"))
                },
            },
            "frames": 12345,
            "early": 0,
            "ring_lost": 0,
            "fifo": True,
            "rootless": True,
            "preflight": [
                {"check": "rate of s1->s2", "expected": "100 Mbit/s", "measured": "99.98 Mbit/s", "ok": True},
                {"check": "round trip h1 to h5", "expected": "62.1 us or more", "measured": "81.4 us", "ok": True},
            ],
        },
        "data_plane": {
            "back_end": "ring",
            "reason": "200 frames/s are declared",
            "stamps": "kernel",
            "threads": 0,
            "back_pressure": True,
            "frames_in_per_s": 198.4,
            "frames_out_per_s": 197.6,
            "peak_out_per_s": 678.4,
            "cpu_us_per_frame": 42.6,
            "slept_share": 0.982,
            "spun_share": 0.009,
        },
        "verdict": "met",
        "violations": [],
        "explained": explained(),
        "packets": packets(),
    }


def packets() -> dict[str, Any]:
    """Captures of one link, as `timebound packets` sums them up (docs/results.md)."""

    def entry(scale: int) -> dict[str, Any]:
        kinds = {
            "publish": (500, 400_000),
            "mqtt-control": (900, 86_000),
            "tcp-control": (400, 36_000),
            "arp": (2, 168),
        }
        frames = scale * sum(count for count, _ in kinds.values())
        return {
            "totals": {
                "frames": frames,
                "wire_bytes": scale * 522_168,
                "payload_bytes": scale * 350_000,
                "goodput_bytes_per_s": scale * 35_000.0,
                "overhead": {"wire_bytes": scale * 172_168, "wire_share": 0.3297},
                "without_transport_payload": {"frames": scale * 402, "share": 0.2231},
                "without_application_payload": {"frames": scale * 1302, "share": 0.7225},
                "categories": {
                    name: {"frames": scale * count, "share": scale * count / frames, "wire_bytes": scale * wire}
                    for name, (count, wire) in kinds.items()
                },
                "tcp": {"retransmissions": 3, "spurious_retransmissions": 1, "duplicate_acks": 2, "out_of_order": 0},
            },
            "sizes": {"frame": {"40-79": scale * 1300, "80-159": scale * 2, "640-1279": scale * 500}},
        }

    series = {
        "step_ns": 1_000_000_000,
        "time_s": [float(t) for t in range(10)],
        "wire_bytes": [104_000 + 900 * t for t in range(10)],
        "payload_bytes": [70_000 + 500 * t for t in range(10)],
        "retransmissions": [0, 2, 0, 1, 0, 0, 0, 0, 0, 0],
    }
    ports = [{"port": name, **entry(1)} for name in ("h1->s1", "s1->h1")]
    capture = {"capture": "h1-s1", "notes": [], "problem": None, **entry(2), "ports": ports, "series": series}
    return {"schema": 1, "status": "complete", "reason": None, "tshark": "4.0.17", "captures": [capture]}


def violated() -> dict[str, Any]:
    """A latency above its bound: a defect that has to be seen."""
    run = all_well()
    bad = run["flows"][1]
    bad["verdict"] = run["verdict"] = "violated"
    bad["latency_us"]["max"] = bad["bound_us"]["observed_arrivals"] * 1.2
    text = f"observed {bad['latency_us']['max']:.1f} us, bound {bad['bound_us']['observed_arrivals']:.1f} us"
    run["violations"] = [{"flow": bad["flow"], "receiver": bad["receiver"], "text": text}]
    return run


def missed() -> dict[str, Any]:
    run = all_well(9)
    for bad, deadline in zip(run["flows"][3:5], (1400.0, 900.0), strict=True):
        bad["deadline_us"], bad["verdict"], bad["late"], bad["lost"] = deadline, "missed", 17, 2
    run["verdict"] = "missed"
    return run


def disturbed() -> dict[str, Any]:
    run = all_well()
    run["verdict"] = "disturbed"
    run["precision"] |= {
        "verdict": "disturbed",
        "reasons": ["lateness p99 1.9 ms is above 1 ms", "3 frames were lost in the ring"],
        "lateness_us": {"p50": 22.0, "p99": 1900.0, "p999": 5200.0, "max": 48_000.0},
        "ring_lost": 3,
        "fifo": False,
        "lateness_limit_us": 1000.0,
        "late": 7,
        "handover_refused": 0,
        "records_lost": 0,
        "captures_lost": 0,
        "memory_locked": False,
        "clock_steps": 0,
        "steal": 0.013,
        "overruns": {"longest_us": 101_000.0, "longest_at_s": 4.377, "count": 3, "total_us": 130_000.0},
        "periods": [
            {"from_s": 4.3, "to_s": 4.5, "kinds": ["lateness", "overrun"], "lateness_us": 132e3, "overrun_us": 101e3},
            {"from_s": 9.0, "to_s": 9.1, "kinds": ["ring"], "lateness_us": 40.0, "overrun_us": 60.0},
        ],
        "periods_s": 0.3,
        "cpu_s": 0.732,
        "run_queue_s": 0.11,
        "series": {
            "time_s": [index / 10 for index in range(120)],
            "p50_us": [None if index == 60 else 12.0 for index in range(120)],
            "p99_us": [41.0 + 100_000.0 * (index == 43) for index in range(120)],
            "max_us": [90.0 + 132_000.0 * (index == 43) for index in range(120)],
            "overrun_us": [80.0 + 101_000.0 * (index == 43) for index in range(120)],
        },
        "compared": {"with": "deadline slack", "flow": "alpha", "receiver": "h5", "value_us": 8000.0, "share": 0.2375},
    }
    run["precision"]["preflight"][1]["ok"] = False
    run["series"]["events"] = [
        {"time_s": 11.0, "text": "departures up to 48 ms late"},
        {"time_s": 20.0, "text": "loss 30 % on s1-s2"},
    ]
    return run


def overloaded() -> dict[str, Any]:
    """Ports beyond their rate: flows across them have no finite bound."""
    run = all_well(8)
    reason = "utilisation 1.69 of s2->h5 is 1 or more: no finite bound"
    for entry in run["ports"]:
        if entry["port"] == "s2->h5":
            entry |= {
                "utilisation_declared": 1.69,
                "utilisation_observed": 1.0,
                "utilisation_simulated": 1.0,
                "bound_reason": reason,
                "backlog_bound_bytes": None,
                "dropped": 90210,
                "largest_queue_bytes": 262144,
            }
    for entry in run["flows"]:
        if entry["receiver"] == "h5":
            entry["bound_us"] = {
                "holistic": None,
                "calculus": None,
                "bound": None,
                "observed_arrivals": None,
                "reason": reason,
            }
            entry["verdict"] = "unbounded"
            entry["latency_us"]["max"] = 21000.0
            entry["simulated_max_us"] = 20971.5
            entry["lost"] = 212
    run["flows"][0]["bound_us"] = {
        "holistic": None,
        "calculus": None,
        "bound": None,
        "observed_arrivals": None,
        "reason": "s2->h3 loses frames (0.1 %)",
    }
    run["flows"][0]["verdict"] = "unsupported"
    run["series"]["links"]["s2->h5"] = [1.0] * 30
    run["verdict"] = "unbounded"
    return run


def predict_only() -> dict[str, Any]:
    """What `timebound predict` writes: nothing measured, nothing simulated."""
    run = all_well()
    empty = dict.fromkeys(("min", "p50", "p99", "max"))
    for entry in run["flows"]:
        entry |= {
            **dict.fromkeys(("sent", "received", "lost", "late", "duplicates", "reordered", "simulated_max_us")),
            "latency_us": empty,
            "application_us": empty,
            "shares_us": None,
            "distribution": None,
        }
        entry["bound_us"]["observed_arrivals"] = None
        for part in entry["segments"]:
            part |= {
                "latency_us": empty,
                "simulated_max_us": None,
                "bound_observed_us": None,
                "observed_jitter_us": None,
                "kept": None,
            }
    for entry in run["ports"]:
        entry |= {
            "utilisation_observed": None,
            "utilisation_simulated": None,
            "dropped": None,
            "largest_queue_bytes": None,
        }
    run |= {"series": None, "nodes": [], "undeclared": [], "tcp": None}
    run["precision"] = {"verdict": "not-run", "reasons": [], "lateness_us": None, "preflight": []}
    run["data_plane"] = None
    return run


def hostile() -> dict[str, Any]:
    """Every text of a run is markup that would like to run."""

    def poison(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: poison(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [poison(v, key) for v in value]
        if isinstance(value, str) and key != "verdict":
            return value + HOSTILE
        return value

    run = poison(violated())
    run["precision"]["verdict"] = run["verdict"] = HOSTILE
    run["scenario"]["name"] = HOSTILE
    return dict(run)


def empty() -> dict[str, Any]:
    run = predict_only()
    run |= {"flows": [], "explained": [], "ports": [], "topology": {"nodes": [], "links": []}, "verdict": "met"}
    return run


def huge(flows: int = 5000, nodes: int = 350) -> dict[str, Any]:
    """As large as runs get: every flow with its distribution, a ring of switches with hosts."""
    run = all_well(flows)
    draw = random.Random(2)
    names = [(f"s{i}", "switch", [], 0.35) for i in range(50)] + [(f"h{i}", "host", [], 0.5) for i in range(nodes - 50)]
    run["topology"] = {"nodes": [], "links": []}
    for i, (name, kind, roles, radius) in enumerate(names):
        angle = 2 * math.pi * (i if kind == "switch" else (i - 50) / 6) / 50
        x, y = 0.5 + radius * math.cos(angle), 0.5 + radius * math.sin(angle)
        run["topology"]["nodes"].append({"name": name, "kind": kind, "x": x, "y": y, "roles": roles})
    for i in range(50):
        run["topology"]["links"].append({"a": f"s{i}", "b": f"s{(i + 1) % 50}", "rate_bps": 10**9, "delay_ns": 5000})
    for i in range(nodes - 50):
        run["topology"]["links"].append({"a": f"h{i}", "b": f"s{i // 6}", "rate_bps": 10**8, "delay_ns": 5000})
    run["ports"] = [
        port(f"{a}->{b}", draw.random() * 0.9)
        for link in run["topology"]["links"]
        for a, b in ((link["a"], link["b"]), (link["b"], link["a"]))
    ]
    for i, entry in enumerate(run["flows"]):
        entry["flow"], entry["receiver"] = f"flow-{i}", f"h{i % (nodes - 50)}"
    run["series"] = None
    return run


MANIFEST: dict[str, Any] = {
    "started": "2026-11-20T09:30:00+00:00",
    "ended": "2026-11-20T09:30:44+00:00",
    "command": ["timebound", "run", "hello", "--set", 'flows.alpha.period="10 ms"'],
    "host": {"machine": "x86_64", "cores": 2},
    "timebound": "0.1.0",
    "python": "3.11.7",
    "kernel": "Linux 6.8.0",
    "seed": 1,
    "parts": ["predict", "simulate", "emulate"],
}


def write(folder: Path, summary: dict[str, Any], manifest: dict[str, Any] | None = None) -> Path:
    """Writes the run folder and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps(MANIFEST if manifest is None else manifest), encoding="utf-8")
    (folder / "scenario.yaml").write_text(
        f"name: {summary['scenario'].get('name')!r}\nrun: {{seed: 1}}\n", encoding="utf-8"
    )
    return folder


def add_frames(folder: Path, frames: int = 20_000) -> None:
    """Writes a `frames.parquet` in which the emulator is late in seconds 3 and 4."""
    import polars as pl

    draw = random.Random(3)
    at = [int(i * 10e9 / frames) for i in range(frames)]
    late = [
        int(draw.expovariate(1 / 4000.0) + (2_500_000 if 3 <= t // 10**9 < 5 and i % 40 == 0 else 0))
        for i, t in enumerate(at)
    ]
    pl.DataFrame({"stream": ["alpha/publish"] * frames, "delivered_ns": at, "lateness_ns": late}).write_parquet(
        folder / "frames.parquet"
    )


KINDS = {
    "all-well": all_well,
    "violated": violated,
    "missed": missed,
    "disturbed": disturbed,
    "overloaded": overloaded,
    "predict-only": predict_only,
    "hostile": hostile,
    "empty": empty,
}
