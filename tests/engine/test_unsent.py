"""Messages that a publisher could not send."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from timebound.engine.measured import Measured


def unsent(senders: list[tuple[str, int, int]], told: list[str]) -> dict[str, int]:
    live: dict[str, Any] = {
        "endpoints": {"senders": [{"node": n, "flow": leg, "dropped": dropped} for n, leg, dropped in senders]},
        "lifecycle": [{"node": node, "order": "stop"} for node in told],
    }
    plan: Any = SimpleNamespace(legs=[SimpleNamespace(flow="x"), SimpleNamespace(flow="y")])
    asked: Any = SimpleNamespace(live=live)
    return dict(Measured.unsent(asked, plan))


def test_what_could_not_be_sent_counts_for_its_flow() -> None:
    assert unsent([("a", 0, 100), ("b", 0, 3), ("c", 1, 0)], told=["broker"]) == {"x": 103}


def test_a_publisher_that_was_told_to_stop_owes_nothing() -> None:
    assert unsent([("a", 0, 100), ("b", 1, 3)], told=["a"]) == {"y": 3}


def test_a_run_without_endpoints_has_none() -> None:
    for live in ({}, {"endpoints": None, "lifecycle": None}):
        asked: Any = SimpleNamespace(live=live)
        assert not Measured.unsent(asked, SimpleNamespace(legs=[]))  # type: ignore[arg-type]
