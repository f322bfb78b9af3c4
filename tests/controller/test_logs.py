"""The controller's log: what happened and why, in both forms."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from timebound.control.controller.run import configure_logs


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.parametrize("kind", ("text", "json"))
def test_what_the_store_says_comes_with_its_reason(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`store out of reach`, and nothing else, had been all of it."""
    configure_logs(kind)
    about = {"store": "tcp:10.0.0.1:6640", "reason": "Connection refused"}
    logging.getLogger("timebound.srt").warning("store out of reach", extra=about)
    (line,) = capsys.readouterr().err.splitlines()
    assert "store out of reach" in line
    for key, value in about.items():
        assert (json.loads(line)[key] == value) if kind == "json" else (key in line and value in line)


def test_a_failure_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("text")
    try:
        raise ValueError("the reason")
    except ValueError:
        logging.getLogger("timebound.srt").exception("it failed", extra={"what": "this"})
    said = capsys.readouterr().err
    assert "it failed" in said and "this" in said and "ValueError: the reason" in said
