"""What bounds are made of, for synthetic runs."""

from __future__ import annotations

from typing import Any


def hop(port: str, scale: float, **other: Any) -> dict[str, Any]:
    """A port with every kind of part; the parts sum up to `response_us`."""
    parts = {
        "blocking_us": 123.04,
        "higher_us": round(240.0 * scale, 3),
        "same_us": round(520.0 * scale, 3),
        "own_us": 118.0,
        "service_us": 0.0,
        "shaping_us": round(130.0 * scale, 3),
        "window_us": round(60.0 * scale, 3),
        **{key: value for key, value in other.items() if key.endswith("_us")},
    }
    plus = sum(parts[f"{kind}_us"] for kind in ("blocking", "higher", "same", "own", "service"))
    return {
        "port": port,
        "utilisation": 0.42,
        "method": "calculus",
        "response_us": round(plus - parts["shaping_us"] - parts["window_us"], 3),
        "unshaped_us": round(plus - parts["window_us"], 3),
        "blocked_by": "one frame of undeclared best effort, 1538 bytes",
        "higher": [{"stream": "urgent/deliver>h5", "frames": 2, "us": parts["higher_us"]}],
        "same": [
            {"stream": "alpha/deliver>h5", "frames": 1, "us": 40.0},
            {"stream": None, "streams": 12, "us": round(parts["same_us"] - 40.0, 3)},
        ],
        "propagation_us": 5.0,
        "link_jitter_us": 0.0,
        "switching_us": 20.0,
        **parts,
        **other,
    }


def explained() -> list[dict[str, Any]]:
    """Two flows over a broker, one on a direct way."""

    def segment(name: str, hops: list[dict[str, Any]], jitter: float) -> dict[str, Any]:
        return {"name": name, "stream": f"alpha/{name}", "bound_us": 1.0, "source_jitter_us": jitter, "hops": hops}

    def way(flow: str, receiver: str, deadline: float | None, scale: float) -> dict[str, Any]:
        publish = segment("publish", [hop("h1->s1", scale), hop("s1->h2", 2 * scale)], 400.0)
        deliver = segment(
            "deliver", [hop("h2->s1", scale), hop("s1->s2", scale), hop(f"s2->{receiver}", 3 * scale)], 90.0
        )
        return {
            "flow": flow,
            "receiver": receiver,
            "deadline_us": deadline,
            "end_to_end_us": 1.0,
            "segments": [publish, deliver],
            "between": [[{"name": "broker h2", "bound_us": 320.0}]],
        }

    direct = {**way("gamma", "h3", None, 0.4), "between": []}
    direct["segments"] = [segment("direct", [hop("h1->s1", 0.2), hop("s1->s2", 0.1, service_us=210.0)], 0.0)]
    return [way("alpha", "h5", 9_000.0, 1.0), way("camera-front-left", "h3", 60_000.0, 2.5), direct]
