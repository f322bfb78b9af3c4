"""Shared by all tests. In CI (`TIMEBOUND_CI=1`) a skipped test is a failed one: what it needs is installed there.

Where `TIMEBOUND_SKIPS` names a file, each skipped test becomes a line of it; where `TIMEBOUND_ONLY` names such a file, only its tests run
(`scripts/skips`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes is the machine's business, and what else it does: no test of properties fails for that.
settings.register_profile("timebound", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("timebound")


def pytest_configure() -> None:
    # A shell script's background jobs ignore SIGINT, and so does all that they start: tests that send it would wait for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    listed = os.environ.get("TIMEBOUND_ONLY")
    if listed is None:
        return
    lines = [line.split("\t") for line in Path(listed).read_text(encoding="utf-8").splitlines()]
    wanted = {test for runner, _, test, _ in lines if runner == "pytest"}
    if absent := sorted(wanted - {item.nodeid for item in items}):
        raise pytest.UsageError(f"{listed} names tests that are not there: {', '.join(absent)}")
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
    items[:] = [item for item in items if item.nodeid in wanted]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if os.environ.get("TIMEBOUND_CI") == "1":
            report.outcome = "failed"
            report.longrepr = f"skipped in CI, where nothing may be missing: {reason}"
        elif (listed := os.environ.get("TIMEBOUND_SKIPS")) is not None:
            words = " ".join(reason.removeprefix("Skipped: ").split())
            with Path(listed).open("a", encoding="utf-8") as file:
                file.write(f"pytest\t\t{report.nodeid}\t{words}\n")
    return report
