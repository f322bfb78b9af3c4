"""What one client makes the manager write into its audit log, again and again; and characters that nobody is to see."""

from __future__ import annotations

import io
import json
import logging
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manager_helpers import STATS, asked, closed
from prometheus_client import generate_latest

from timebound.control import logs
from timebound.control.manager import desk as desks
from timebound.control.manager.audit import LONGEST, Audit
from timebound.control.manager.desk import Desk, Doing
from timebound.control.manager.metrics import Figures, registry
from timebound.control.manager.policy import Policy
from timebound.control.manager.repeats import MORE, MOST_KNOWN, MOST_OF_ADDRESS, MOST_OF_USER, WINDOW_NS, Repeats
from timebound.control.quiet import QUIET_S, Quiet
from timebound.control.text import json_line, shortened, shown

NASTY = "a\x1b[2J\x9bb\u202ec\u2028d\u200be\x7f\ufeff\U000e0001"
"""Control characters of both kinds, a mark that turns the line, one that ends it, and some that nobody sees."""


def reconnecting(ours: Desk, times: int, begin_ns: int, **other: object) -> Doing:
    """Connections that ask for the same and end, one after another."""
    return desks.join(
        ours.event(event, begin_ns + number * 1_000_000)
        for number in range(times)
        for event in (asked(f"r{number}.1", of=f"r{number}", **other), closed(f"r{number}"))
    )


def test_a_client_that_connects_again_and_again_is_written_once_and_counted(tmp_path: Path) -> None:
    """It had filled the disk by 12 MB a minute."""
    ours, audit = Desk(Policy()), Audit(tmp_path / "audit.jsonl")
    doing = reconnecting(ours, 1_000, 1)
    assert len(doing.changes) > 1_000, "the table has all of it"
    audit.write(doing.audit)
    assert [entry["event"] for entry in doing.audit] == ["asked", "answered", "withdrawn"]
    assert ours.summed_up(WINDOW_NS) == Doing(), "a minute from the first"
    summed = ours.summed_up(WINDOW_NS + 1)
    audit.write(summed.audit)
    assert summed.audit == [
        {
            "event": MORE, "at_ns": WINDOW_NS + 1, "address": "10.0.0.1", "user": None, "reason": "and 2,997 more in the last minute",
            "lines": 2_997, "of": {"answered": 999, "asked": 999, "withdrawn": 999}, "since_ns": 1,
        }
    ]  # fmt: skip
    assert summed.log == [(desks.SUMMED_UP, {"lines": 2_997, "of_clients": 1})]
    assert (tmp_path / "audit.jsonl").stat().st_size < 2_000
    assert ours.summed_up(3 * WINDOW_NS) == Doing()
    assert len(reconnecting(ours, 5, 4 * WINDOW_NS).audit) == 3, "the next minute begins anew"
    assert ours.summed_up(4 * WINDOW_NS, last=True).audit[0]["lines"] == 12


def test_what_differs_is_written_and_another_client_is_another() -> None:
    ours = Desk(Policy())
    assert len(reconnecting(ours, 3, 1).audit) == 3
    assert len(reconnecting(ours, 3, 1, topic="another").audit) == 3
    assert len(reconnecting(ours, 3, 1, user="another").audit) == 3
    assert len(reconnecting(ours, 3, 1, client_address="10.0.0.2").audit) == 3
    answered = [entry for entry in reconnecting(ours, 1, 1, topic="third").audit if entry["event"] == "answered"]
    assert [(entry["client_id"], entry["address"], entry["topic"]) for entry in answered] == [
        ("press", "10.0.0.1", "third")
    ], "each line says whose it is"


def line(number: int, address: str = "10.0.0.1", user: str | None = None) -> dict[str, object]:
    return {"event": "asked", "at_ns": 1, "address": address, "user": user, "topic": str(number)}


def test_a_client_that_says_something_else_each_time_is_bounded_too() -> None:
    ours = Repeats()
    assert sum(ours.takes(line(number)) for number in range(10_000)) == MOST_OF_USER
    assert sum(ours.takes(line(number, user=str(number))) for number in range(10_000)) == MOST_OF_ADDRESS - MOST_OF_USER
    assert ours.takes(line(0, "10.0.0.2")), "another address has its own lines"
    assert [(entry["user"], entry["lines"]) for entry in ours.due(2 * WINDOW_NS)] == [
        (None, 10_000 - MOST_OF_USER),
        (None, 10_000 - MOST_OF_ADDRESS + MOST_OF_USER),
    ]


def test_addresses_without_end_share_one_count() -> None:
    ours = Repeats()
    taken = sum(ours.takes(line(0, f"2001:db8:0:{number:x}::1")) for number in range(MOST_KNOWN + 5_000))
    assert taken == MOST_KNOWN + MOST_OF_USER
    assert ours.due(2 * WINDOW_NS)[0]["lines"] == 5_000 - MOST_OF_USER
    hosts = (line(number, f"2001:db8::{number:x}") for number in range(1_000))
    assert sum(ours.takes(each) for each in hosts) == MOST_OF_USER, "of IPv6 a network of 64 bits is one"


def test_what_comes_from_no_client_is_always_written() -> None:
    ours = Repeats()
    assert all(ours.takes({"event": "peering", "at_ns": 1, "about": "m2"}) for _ in range(5))


def test_offences_of_one_client_leave_others_their_lines() -> None:
    ours = Desk(Policy())
    offence = {"kind": "offence", "client_id": "x", "client_address": "10.0.0.1", "user": None, "reason": "malformed"}
    doing = desks.join(ours.event(json.dumps(offence), 1) for _ in range(1_000))
    assert (len(doing.audit), len(doing.log)) == (1, 1)
    other = ours.event(json.dumps({**offence, "client_address": "10.0.0.2"}), 1)
    assert (len(other.audit), len(other.log)) == (1, 1)


def test_quiet_counts_many_at_once_and_tells_the_rest_later(caplog: pytest.LogCaptureFixture) -> None:
    quiet = Quiet(logging.getLogger("timebound.test"), "crowded")
    assert [quiet.count(0.0, "a", 7), quiet.count(1.0, "b", 5), quiet.count(2.0, "", 0)] == [7, 0, 0]
    assert [quiet.count(QUIET_S, "", 0), quiet.count(3 * QUIET_S, "", 0)] == [5, 0]
    assert [record.__dict__["times"] for record in caplog.records] == [7, 5]


def hidden(text: str) -> list[str]:
    return [each for each in text if not each.isprintable() and each != "\n"]


@given(st.text() | st.sampled_from(list(NASTY)))
def test_whatever_the_text_no_character_of_a_line_is_hidden(text: str) -> None:
    written = json_line({"client_id": text})
    assert written.isprintable()
    assert json.loads(written) == {"client_id": text}, "nothing is lost"
    assert shown(text).isprintable()


def test_the_audit_log_holds_no_character_that_a_terminal_obeys(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    doing = Desk(Policy()).event(asked(topic=NASTY, client_id=NASTY, user=NASTY), 1)
    audit.write(doing.audit)
    written = (tmp_path / "audit.jsonl").read_text(encoding="utf-8")
    assert not hidden(written)
    assert json.loads(written.splitlines()[0])["client_id"] == NASTY
    assert "\\u009b" in written and "\\u202e" in written


def test_a_text_of_64_kib_does_not_make_a_line_of_it(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    audit.write(Desk(Policy()).event(asked(topic="x" * 65_535, user="y" * 65_535), 1).audit)
    first = json.loads((tmp_path / "audit.jsonl").read_text().splitlines()[0])
    assert first["topic"] == "x" * LONGEST + "... (65,535 characters)"
    assert shortened([("a" * 4, 1)], 3) == [["aaa... (4 characters)", 1]]


@pytest.mark.parametrize("format", ["json", "console"])
def test_logs_hold_none_either(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    root, before = logging.getLogger(), logging.getLogger().handlers
    monkeypatch.setattr(sys, "stderr", stream)
    try:
        logs.begin(format, "info")
        logging.getLogger("timebound.manager").warning(
            "said", extra={"about": {"client_id": NASTY}, "why": NASTY, "at": [NASTY]}
        )
    finally:
        root.handlers = before
    assert "said" in stream.getvalue() and not hidden(stream.getvalue())


def test_labels_of_figures_hold_none_either() -> None:
    stats = json.dumps({**STATS, "peers": {**STATS["peers"], "relayed": {NASTY: 1}}})
    text = generate_latest(registry(Figures(lambda: stats, dict))).decode()
    assert "peers_relayed_total{peer=" in text and not hidden(text)
