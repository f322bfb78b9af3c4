"""The tables of `summary.json` beside the flows: ports, nodes, link load over time, TCP, precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timebound.engine import certificate, figures, records

if TYPE_CHECKING:
    import polars as pl

    from timebound.engine.measured import Measured
    from timebound.engine.predict import Prediction
    from timebound.engine.summary import Results


def ports(results: Results) -> list[dict[str, Any]]:
    """Utilisation, drops and queues of every port, declared, observed and simulated."""
    measured, simulation = results.measured, results.simulation
    observed = {} if measured is None else measured.port_figures()
    rates = _rates(results.prediction)
    rooms = _rooms(results.prediction)
    used = _classes_of_flows(results.prediction)
    rows = []
    for index, port in enumerate(results.prediction.ports):
        simulated = None if simulation is None else simulation.outcome["ports"][index]
        seen = observed.get(index)
        rows.append(
            {
                "port": port["name"],
                "rate_bps": rates[index],
                "utilisation_declared": port["utilisation"]["value"],
                "utilisation_observed": None
                if seen is None or not seen["span_ns"]
                else round(seen["wire_bytes"] * 8e9 / seen["span_ns"] / rates[index], 6),
                "utilisation_simulated": None if simulated is None else simulated["utilisation"],
                "bound_reason": _reason(port, used.get(port["name"], set())),
                "backlog_bound_bytes": port["backlog_bytes"],
                "queues": _queues(port, rooms[index]),
                "dropped": None if seen is None else seen["dropped"],
                "largest_queue_bytes": None if seen is None else seen["largest_queue_bytes"],
                "simulated_largest_queue_bytes": None if simulated is None else simulated["largest_queue_bytes"],
                "simulated_dropped": None
                if simulated is None
                else simulated["dropped_buffer"] + simulated["dropped_link"],
            }
        )
    return rows


def _classes_of_flows(prediction: Prediction) -> dict[str, set[int]]:
    """Port name -> classes that flows (not only background) use there."""
    used: dict[str, set[int]] = {}
    for name, receivers in prediction.network.paths().items():
        stream = prediction.streams[name]
        if stream.role != "background":
            for path in receivers.values():
                for port in path:
                    used.setdefault(port, set()).add(stream.priority)
    return used


def _reason(port: dict[str, Any], classes: set[int]) -> str | None:
    """Why a flow has no bound at this port; background below the flows needs none."""
    reasons = [
        entry["reason"] for entry in port["classes"] if entry["class"] in classes and entry["reason"] is not None
    ]
    return reasons[0] if reasons else None


def shortages(prediction: Prediction) -> dict[tuple[str, int], str]:
    """(port name, class) -> why frames of the class can be lost there for want of room."""
    rooms = _rooms(prediction)
    return {
        (port["name"], entry["class"]): (
            f"the queue of class {entry['class']} at port {port['name']} may need {entry['backlog_bytes']} bytes and has room "
            f"for {rooms[port['port']]}: messages can be lost"
        )
        for port in prediction.ports
        for entry in port["classes"]
        if entry["exceeds_buffer"]
    }


def _queues(port: dict[str, Any], room: int) -> list[dict[str, Any]]:
    """The queue of every class: a buffer of `backlog_bytes` loses nothing."""
    return [
        {
            "class": entry["class"],
            "largest_delay_us": figures.micros(entry["largest_delay_ns"]),
            "backlog_bytes": entry["backlog_bytes"],
            "room_bytes": room,
            "exceeds": entry["exceeds_buffer"],
            "reason": entry["reason"],
        }
        for entry in port["classes"]
    ]


def _rooms(prediction: Prediction) -> list[int]:
    links = prediction.plan.scenario.links
    return [direction.buffer_bytes for link in links for direction in (link.forward, link.backward)]


def _rates(prediction: Prediction) -> list[int]:
    links = prediction.plan.scenario.links
    return [direction.rate_bps for link in links for direction in (link.forward, link.backward)]


def tightness(bounds_us: list[float | None], found_us: list[float | None]) -> float | None:
    """Bound / worst found, each summed over the segments; `None` where one of them is missing. At least 1 unless a bound is broken."""
    bounds = [bound for bound in bounds_us if bound is not None]
    found = [worst for worst in found_us if worst is not None]
    if not bounds or len(bounds) < len(bounds_us) or len(found) < len(found_us) or sum(found) <= 0:
        return None
    return round(sum(bounds) / sum(found), 4)


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


def nodes(measured: Measured) -> list[dict[str, Any]]:
    """CPU, memory and traffic of every node over the whole run."""
    if measured.nodes is None:
        return []
    rows = []
    for key, table in measured.nodes.partition_by("node", as_dict=True, maintain_order=True).items():
        shares = table["cpu_share"].drop_nulls()
        rows.append(
            {
                "node": str(key[0]),
                "cpu_share": {"mean": _rounded(shares.mean()), "max": _rounded(shares.max())} if shares.len() else None,
                "memory_bytes": {"max": table["rss_bytes"].max()},
                "wait_s": {"programs": _waited(table, "wait_ns"), "clients": _waited(table, "client_wait_ns")},
                "sent_bytes": table["tx_bytes"].max(),
                "received_bytes": table["rx_bytes"].max(),
            }
        )
    return rows


def _waited(table: pl.DataFrame, name: str) -> float | None:
    """Time without a CPU in the run, by its cumulative counter."""
    told: list[int] = table[name].to_list()
    return round((max(told) - min(told)) / 1e9, 6) if told else None


def _rounded(value: Any) -> float | None:
    return None if value is None else round(float(value), 4)


def link_series(measured: Measured, prediction: Prediction, step_ns: int, steps: int) -> dict[str, list[float | None]]:
    """Load of every port, 0..1, per step."""
    import polars as pl

    if measured.links is None or steps == 0:
        return {}
    rates = dict(enumerate(_rates(prediction)))
    names = dict(enumerate(port["name"] for port in prediction.ports))
    table = (
        measured.links.filter(pl.col("start_ns") >= 0)
        .with_columns(step=pl.col("start_ns") // step_ns)
        .group_by("index", "step", maintain_order=True)
        .agg(pl.col("wire_bytes").sum(), pl.col("length_ns").sum())
    )
    series: dict[str, list[float | None]] = {}
    for row in table.iter_rows(named=True):
        values = series.setdefault(names[row["index"]], [None] * steps)
        if 0 <= row["step"] < steps and row["length_ns"]:
            values[row["step"]] = round(row["wire_bytes"] * 8e9 / row["length_ns"] / rates[row["index"]], 4)
    return series


def switches(measured: Measured) -> list[dict[str, Any]]:
    """What each real switch took for the frames that passed it, microseconds."""
    kept = ("switch", "arrived", "left", "vanished", "entered", "above", "below")
    return [
        {key: switch[key] for key in kept}
        | {
            "declared_us": [figures.micros(switch["declared_min_ns"]), figures.micros(switch["declared_max_ns"])],
            "transit_us": {"min": figures.micros(switch["transit_min_ns"])}
            | {name: figures.micros(value) for name, value in switch["transit_ns"].items()},
            "slowest_at_s": switch["slowest_at_ns"] / 1e9,
            "histogram": [[figures.micros(upper), copies] for upper, copies in switch["histogram"]],
        }
        for switch in measured.live.get("switches", [])
    ]


def precision(measured: Measured, flows: list[dict[str, Any]], warm_up_ns: int) -> dict[str, Any]:
    """The run's certificate: lateness in microseconds, times in seconds of run time (warm-up included)."""
    live: dict[str, Any] = measured.live["precision"]
    lateness = {name: figures.micros(live["lateness_ns"][name]) for name in ("p50", "p99", "p999", "max")}
    converted = ("lateness_ns", "lateness_limit_ns", "overruns", "periods", "periods_ns", "cpu_ns", "run_queue_ns")
    kept = {key: value for key, value in live.items() if key not in converted}
    overruns = live["overruns"]
    return {
        **kept,
        "lateness_us": lateness,
        "lateness_limit_us": figures.micros(live["lateness_limit_ns"]),
        "overruns": {
            "longest_us": figures.micros(overruns["longest_ns"]),
            "longest_at_s": overruns["longest_at_ns"] / 1e9,
            "count": overruns["count"],
            "total_us": figures.micros(overruns["total_ns"]),
        },
        "periods": [
            {
                "from_s": period["from_ns"] / 1e9,
                "to_s": period["to_ns"] / 1e9,
                "kinds": period["kinds"],
                "lateness_us": figures.micros(period["lateness_ns"]),
                "overrun_us": figures.micros(period["overrun_ns"]),
            }
            for period in live["periods"]
        ],
        "periods_s": live["periods_ns"] / 1e9,
        "cpu_s": live["cpu_ns"] / 1e9,
        "run_queue_s": live["run_queue_ns"] / 1e9,
        "series": certificate.course(measured.precision, warm_up_ns),
        "compared": certificate.compared(flows, lateness["p99"] or 0.0),
    }
