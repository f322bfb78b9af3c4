"""The tables of `summary.json` beside the flows: ports, nodes, link load over time, TCP, precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timebound.engine import figures, records

if TYPE_CHECKING:
    from timebound.engine.measured import Measured
    from timebound.engine.predict import Prediction
    from timebound.engine.summary import Results


def ports(results: Results) -> list[dict[str, Any]]:
    """Utilisation, drops and queues of every port, declared, observed and simulated."""
    measured, simulation = results.measured, results.simulation
    observed = {} if measured is None else measured.port_figures()
    rates = _rates(results.prediction)
    rows = []
    for index, port in enumerate(results.prediction.ports):
        simulated = None if simulation is None else simulation.outcome["ports"][index]
        seen = observed.get(index)
        rows.append(
            {
                "port": port["name"],
                "rate_bps": rates[index],
                "utilisation_declared": port["utilisation"]["value"],
                "utilisation_observed": None if seen is None else seen["utilisation"],
                "utilisation_simulated": None if simulated is None else simulated["utilisation"],
                "bound_reason": port["reason"],
                "backlog_bound_bytes": port["backlog_bytes"],
                "dropped": None if seen is None else seen["dropped"],
                "largest_queue_bytes": None if seen is None else seen["largest_queue_bytes"],
                "simulated_largest_queue_bytes": None if simulated is None else simulated["largest_queue_bytes"],
                "simulated_dropped": None
                if simulated is None
                else simulated["dropped_buffer"] + simulated["dropped_link"],
            }
        )
    return rows


def _rates(prediction: Prediction) -> list[int]:
    links = prediction.plan.scenario.links
    return [direction.rate_bps for link in links for direction in (link.forward, link.backward)]


def segment_latency(measured: Measured | None, key: tuple[str, str]) -> dict[str, float | None] | None:
    """Network latency of the messages of one stream at one receiver (the measured part)."""
    if measured is None:
        return None
    frames = measured.segments.get(key)
    return None if frames is None else figures.spread(frames["delivered_ns"] - frames["ingress_ns"])


def tcp(measured: Measured) -> dict[str, Any]:
    """Were segments sent again? Then the bounds of their connections do not hold, and the report says so."""
    again = sum(found.retransmissions for found in measured.arrivals.values())
    lost = measured.frames.filter(measured.frames["flags"] & records.DROPPED > 0).height
    if again == 0:
        verdict = "no segment was sent twice: the bounds apply"
    elif lost:
        verdict = "segments were sent again after losses: the bounds do not cover retransmissions"
    else:
        verdict = "segments were sent again although none was lost (a timer ran out): the bounds do not cover them"
    return {"retransmissions": again, "lost_frames": lost, "verdict": verdict}
