"""Why a flow misses its requirement, in the report and on the terminal."""

from __future__ import annotations

from timebound.cli.table import flow_reasons
from timebound.report.run import Flow
from timebound.report.words import why_missed

RAW = {
    "flow": "q0",
    "receiver": "c",
    "verdict": "missed",
    "late": 3,
    "late_reason": "3 by the time in brokers",
    "risk": "100 messages were not sent",
}


def test_the_report_says_what_was_late_and_what_could_not_be_sent() -> None:
    assert why_missed(Flow.parse(RAW)) == "q0 → c: 3 late; late 3 by the time in brokers; 100 messages were not sent"


def test_a_missing_bound_hides_neither_on_the_terminal() -> None:
    flow = {**RAW, "bound_us": {"reason": "no bound"}, "end_to_end_us": {}}
    assert flow_reasons({"flows": [flow]}) == [
        "q0 at c: no bound",
        "q0 at c: 100 messages were not sent",
        "q0 at c: late 3 by the time in brokers",
    ]
