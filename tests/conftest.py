"""Shared by all tests. In CI (`TIMEBOUND_CI=1`) a skipped test is a failed one: what it needs is installed there."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest


def pytest_configure() -> None:
    # A shell script's background jobs ignore SIGINT, and so does all that they start: tests that send it would wait for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and os.environ.get("TIMEBOUND_CI") == "1" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing may be missing: {reason}"
    return report
