"""Who had a channel in a run, from the controller's audit log."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from timebound.engine.answers import AUDIT, answers, without_channel
from timebound.engine.summary import lose_bound, overall

LIVE = {"epoch_unix_ns": 1_800_000_000_000_000_000, "measured_ns": 10_000_000_000}
WARM_UP_NS = 1_000_000_000


def entry(at_s: float, outcome: str, topic: str = "t", side: str = "publish", **more: str) -> dict[str, str]:
    """`at_s` counts from the beginning of the judged part."""
    at = datetime.fromtimestamp(1_800_000_001 + at_s, UTC).isoformat()
    return {"time": at, "what": "verdict", "outcome": outcome, "topic": topic, "side": side, "client_id": "c", **more}


def found(folder: Path, *entries: dict[str, str]) -> list[tuple[str, str, float, str | None]]:
    file = folder / AUDIT
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in entries))
    told = answers(folder, {"t": "press", "u": "lathe"}, WARM_UP_NS, LIVE)
    return [(each["flow"], each["outcome"], each["granted"], each["text"]) for each in told]


def test_a_channel_for_the_whole_run_needs_no_words(tmp_path: Path) -> None:
    lines = [entry(-0.5, "granted"), entry(3, "granted"), entry(10.2, "unavailable", reason="the network is gone")]
    assert found(tmp_path, *lines) == [("press", "granted", 1.0, None)]


def test_who_is_refused_is_best_effort_and_the_reason_is_told(tmp_path: Path) -> None:
    refused = entry(-0.5, "refused", side="subscribe", reason="1 ms too much")
    ((_, outcome, granted, text),) = found(tmp_path, refused, entry(1, "granted", topic="another"))
    assert (outcome, granted) == ("refused", 0)
    assert text is not None and text.startswith("press: the subscriber's channel was refused: 1 ms too much.")


def test_a_channel_that_came_late_or_went_is_counted(tmp_path: Path) -> None:
    lines = [entry(2.5, "granted"), entry(7.5, "unavailable", reason="no way"), entry(0, "granted", topic="u")]
    lathe, press = found(tmp_path, *lines)
    assert lathe == ("lathe", "granted", 1.0, None)
    assert press[1:3] == ("unavailable", 0.5) and press[3] is not None and "50%" in press[3] and "no way" in press[3]
    ((_, outcome, granted, text),) = found(tmp_path, entry(1, "granted"))
    assert (outcome, granted) == ("granted", 0.9) and text is not None and "90% of the time" in text


def test_runs_without_our_controller_have_no_answers(tmp_path: Path) -> None:
    assert answers(tmp_path, {"t": "press"}, WARM_UP_NS, LIVE) == []
    found(tmp_path, entry(1, "granted"))
    assert answers(tmp_path, {"t": "press"}, WARM_UP_NS, {**LIVE, "epoch_unix_ns": None}) == []


def test_who_had_no_channel_all_the_time_has_no_bound(tmp_path: Path) -> None:
    file = tmp_path / AUDIT
    file.parent.mkdir()
    lines = [
        entry(-0.5, "granted"),
        entry(-0.5, "refused", topic="u", reason="too much"),
        entry(2, "granted", topic="u"),
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = answers(tmp_path, {"t": "press", "u": "lathe"}, WARM_UP_NS, LIVE)
    assert without_channel(told) == {
        "lathe": "the publisher's channel was granted for 80% of the time, best effort in the rest"
    }
    met, missed = (
        {"verdict": verdict, "decides": False, "bound_us": {"reason": None}} for verdict in ("met", "missed")
    )
    for flow in (met, missed):
        lose_bound(flow, "refused")
    # It asked for a channel, so there was something to be had, also without a deadline.
    assert (
        met == {"verdict": "unbounded", "decides": True, "bound_us": {"reason": "refused"}}
        and missed["verdict"] == "missed"
    )
    assert overall([met], {"verdict": "good"}, []) == "unbounded"
