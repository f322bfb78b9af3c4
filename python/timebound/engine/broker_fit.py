"""From measured times to the costs of a first-in-first-out server that covers them. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Burst:
    """Messages one after another: (when the broker had it, when the last copy had left), ns, in the order of arrival."""

    times: tuple[tuple[int, int], ...]

    def spans(self) -> list[int]:
        """How long each took."""
        return [max(0, left - came) for came, left in self.times]

    def work_each(self) -> float:
        """Mean time per message while the broker was busy: each from the later of its arrival and the end of the one before.

        A broker may handle a whole burst before it sends anything: what it took is then in the span of the first message.
        """
        ordered = sorted(self.times)
        busy, free = 0, ordered[0][0]
        for came, left in ordered:
            busy += max(0, left - max(came, free))
            free = max(free, left)
        return busy / len(ordered)

    def lateness(self, work_ns: int) -> int:
        """The most by which a message left later than a server would let it go that works `work_ns` on each."""
        ordered, late = sorted(self.times), 0
        # Times may be negative: they count from the end of the warm-up.
        free = ordered[0][0]
        for came, left in ordered:
            free = max(came, free) + work_ns
            late = max(late, left - free)
        return late


@dataclass(frozen=True, slots=True)
class CellSamples:
    """Everything measured of one payload size, QoS and number of receivers. `alone` are bursts of one."""

    size_bytes: int
    message_bytes: int
    qos: int
    fan_out: int
    first_ns: tuple[int, ...]
    alone: tuple[Burst, ...]
    bursts: tuple[Burst, ...]

    def work_each_ns(self) -> list[int]:
        """Per burst the mean work per message, rounded up: what is shown of them and what the costs are raised to are the same figures."""
        return [math.ceil(burst.work_each()) for burst in self.bursts]

    @property
    def acknowledgements(self) -> int:
        """Acknowledgements per message that the broker receives: PUBACKs, or PUBREL, PUBRECs and PUBCOMPs."""
        return {0: 0, 1: self.fan_out, 2: 1 + 2 * self.fan_out}[self.qos]


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of a server; see `BrokerService`."""

    latency_ns: int
    message_ns: int
    copy_ns: int
    byte_ps: int
    acknowledgement_ns: int

    def work_ns(self, cell: CellSamples) -> int:
        """All work that one message of the cell brings, its acknowledgements included."""
        content = cell.message_bytes * (1 + cell.fan_out) * self.byte_ps
        return (
            self.message_ns
            + self.copy_ns * cell.fan_out
            + self.acknowledgement_ns * cell.acknowledgements
            + -(-content // 1000)
        )


def fit(cells: Sequence[CellSamples]) -> Costs:
    """Costs that cover what was measured: no cell's median work back to back (that of `quantiles`, which a profile shows) is above its fitted
    work, and no message was later than the server would let it go by more than the latency."""
    rows = [
        (1.0, float(cell.fan_out), cell.message_bytes * (1 + cell.fan_out) / 1000.0, float(cell.acknowledgements))
        for cell in cells
    ]
    medians = [float(quantiles(cell.work_each_ns())["median_ns"]) for cell in cells]
    message, copy, kilobyte, acknowledgement = least_squares(np.array(rows), np.array(medians))
    fitted = [float(np.dot(row, (message, copy, kilobyte, acknowledgement))) for row in rows]
    raised = max((median / value for median, value in zip(medians, fitted, strict=True) if value > 0), default=1.0)
    raised = max(1.0, raised)
    costs = Costs(
        latency_ns=0,
        message_ns=math.ceil(message * raised),
        copy_ns=math.ceil(copy * raised),
        byte_ps=math.ceil(kilobyte * raised),
        acknowledgement_ns=math.ceil(acknowledgement * raised),
    )
    latency = max(
        (burst.lateness(_work_to_last_copy(costs, cell)) for cell in cells for burst in (*cell.alone, *cell.bursts)),
        default=0,
    )
    return Costs(latency, costs.message_ns, costs.copy_ns, costs.byte_ps, costs.acknowledgement_ns)


def _work_to_last_copy(costs: Costs, cell: CellSamples) -> int:
    """The work on the packet that has the copies sent: what a prediction counts for it, without the acknowledgements that come later."""
    per_byte = cell.message_bytes * costs.byte_ps
    forwards = costs.copy_ns * cell.fan_out + per_byte * cell.fan_out // 1000
    if cell.qos == 2:
        return forwards + costs.acknowledgement_ns
    return forwards + costs.message_ns + per_byte // 1000


def least_squares(rows: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> tuple[float, ...]:
    """Non-negative least squares by trying every set of columns: the best of those without a negative coefficient.

    The optimum is the unconstrained one on its own support (Lawson and Hanson 1974, chapter 23), and there are few columns.
    """
    best, width = (math.inf, np.zeros(rows.shape[1])), rows.shape[1]
    for count in range(width + 1):
        for columns in combinations(range(width), count):
            found = np.zeros(width)
            if columns:
                found[list(columns)] = np.linalg.lstsq(rows[:, list(columns)], values, rcond=None)[0]
            if (found >= 0).all():
                error = float(((rows @ found - values) ** 2).sum())
                if error < best[0] * (1 - 1e-12):
                    best = (error, found)
    return tuple(float(value) for value in best[1])


def quantiles(values: list[int]) -> dict[str, int]:
    """`count`, `median_ns`, `p99_ns`, `max_ns`; quantiles are values that were measured, the next larger one."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "count": len(ordered),
        "median_ns": ordered[math.ceil(last * 0.5)],
        "p99_ns": ordered[math.ceil(last * 0.99)],
        "max_ns": ordered[-1],
    }
