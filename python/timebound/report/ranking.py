"""Which flows and ports a reader has to see first."""

from __future__ import annotations

from collections.abc import Sequence

from .run import Flow, Port, Run

_WEIGHT = {"violated": 0, "missed": 1, "disturbed": 2, "unbounded": 3, "unsupported": 4}
_REST = 5


def critical(flows: Sequence[Flow]) -> list[Flow]:
    """Flows, the most critical first: by verdict, then by the share of the deadline (or of the bound) that is used up."""

    def order(flow: Flow) -> tuple[int, float, str]:
        seen = [v for v in (flow.network.max, flow.application.max, flow.simulated) if v is not None]
        worst = max([*seen, *([flow.promise] if flow.promise is not None else [])], default=0.0)
        used = 0.0
        if flow.deadline:
            used = worst / flow.deadline
        elif flow.bound:
            used = max(seen, default=0.0) / flow.bound
        weight = _WEIGHT.get(flow.verdict, _REST) if flow.decides or flow.verdict == "violated" else _REST
        return (weight, -used, flow.name)

    return sorted(flows, key=order)


def loaded(ports: Sequence[Port]) -> list[Port]:
    """Ports, those without a finite bound first, then by load."""
    return sorted(ports, key=lambda port: (not port.reason, -(port.load or 0.0), port.name))


def violations_of(run: Run) -> dict[tuple[str, str], str]:
    """The text of each violation by flow and receiver."""
    return {(str(v.get("flow")), str(v.get("receiver"))): str(v.get("text") or "") for v in run.violations}
