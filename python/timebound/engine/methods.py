"""Figures of a method by name, beside the bound and never in its place.

`bound`, `port-by-port`, `holistic` and `calculus` are safe. `trajectory` is experimental; the two `as-published` ones are known to be exceeded and exist to be
compared with the paper that printed them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from timebound.engine.figures import micros
from timebound.engine.named import Named
from timebound.engine.outcome import Outcome, outcomes_of
from timebound.engine.predict import Prediction
from timebound.engine.together import Together

Safe = Literal["bound", "port-by-port", "holistic", "calculus"]
Unpromised = Literal["trajectory", "holistic-as-published", "trajectory-as-published"]
Method = Literal[
    "bound", "port-by-port", "holistic", "calculus", "trajectory", "holistic-as-published", "trajectory-as-published"
]

LABELS = {
    "safe": "safe",
    "experimental": "experimental, not a bound",
    "unsafe": "UNSAFE, not a bound",
}
MEANINGS = {
    "safe": "No frame exceeds these figures.",
    "experimental": "This method is optimistic in corners (the literature and our own checks know some): rely on the bound, not on these figures.",
    "unsafe": "Runs that exceed such figures are known: they are for comparison with the paper alone; rely on the bound.",
}


@dataclass(frozen=True, slots=True)
class Figures:
    """What one method says of every stream at every receiver, and how far to trust it (`safe`, `experimental`, `unsafe`)."""

    method: str
    safety: str
    outcomes: dict[tuple[str, str], Outcome]


def work_out(prediction: Prediction, method: Method) -> Figures:
    """The figures of a method for the arrivals of a prediction. The jitter of answers is that which the safe bounds gave.

    They are figures of frames. What TCP's windows hold back, and larger packets in the same segment, comes on top as it does in the bound, so that
    figures of all methods and the bound are of the same.
    """
    network = prediction.steady
    if method in get_args(Safe):
        analysis = network.bounds({}, method)
        outcomes = _with_waits(prediction, outcomes_of(analysis, prediction.streams))
        return Figures(method, "safe", Named(prediction.plan, prediction.streams).outcomes(outcomes))
    analysis = network.comparison(method)
    outcomes = _with_waits(prediction, outcomes_of(analysis, prediction.streams))
    said = {key: _said(prediction, each) for key, each in outcomes.items()}
    return Figures(method, str(analysis["safety"]), Named(prediction.plan, prediction.streams).outcomes(said))


def _with_waits(prediction: Prediction, outcomes: dict[tuple[str, str], Outcome]) -> dict[tuple[str, str], Outcome]:
    together = Together(prediction.together.directions)
    return prediction.windows.added(together.added(prediction.streams, outcomes))


def _said(prediction: Prediction, outcome: Outcome) -> Outcome:
    """Says of messages that may leave together that they do, not that they are the token bucket that the core was told."""
    named = re.search(r'stream "([^"]+)", which crosses port [^,]+, is a token bucket: ', outcome.reason or "")
    if outcome.reason is None or named is None or prediction.streams[named.group(1)].joined is None:
        return outcome
    reason = outcome.reason.replace("is a token bucket: ", "may leave with several messages in one segment: ")
    return replace(outcome, reason=reason)


def summary_of(figures: Figures, prediction: Prediction) -> dict[str, Any]:
    """The object `method` of `summary.json`: name, safety, label, and per flow and receiver the figure in microseconds or a reason."""
    flows = []
    for (flow, receiver), segments in prediction.plan.segments.items():
        outcomes = [figures.outcomes[segment.stream, segment.destination] for segment in segments]
        reasons = [outcome.reason for outcome in outcomes if outcome.reason is not None]
        total = sum(outcome.actual_ns or 0 for outcome in outcomes)
        flows.append(
            {
                "flow": flow,
                "receiver": receiver,
                "value_us": None if reasons else micros(total),
                "reason": reasons[0] if reasons else None,
            }
        )
    return {
        "name": figures.method,
        "safety": figures.safety,
        "label": LABELS[figures.safety],
        "meaning": MEANINGS[figures.safety],
        "flows": flows,
    }
