"""What bounds are made of: explanations of flows hop by hop, and the same bounds by each method.

Explanations are those of `crates/bounds` (`Explanation`): parts that add up to the bound to the nanosecond. What lies between two network
segments of a flow (a broker) is a part of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from timebound.engine.endtoend import end_to_end
from timebound.engine.figures import micros
from timebound.engine.methods import Safe, work_out
from timebound.engine.predict import Prediction
from timebound.scenario.problems import Problem, ScenarioError

METHODS: tuple[Safe, ...] = ("holistic", "calculus")
LEAST_SLACK = 5
"""Flows whose explanation is part of the summary."""
MOST_NAMED = 6
"""Streams of a class that the summary names per hop; the others are one sum."""

Key = tuple[str, str]
Methods = dict[str, dict[Key, int | None]]


def by_method(prediction: Prediction) -> Methods:
    """Method -> (stream, receiver) -> bound from the actual release, ns; None without a bound.

    Arrivals of answers (a broker forwards, a receiver acknowledges) are those of the printed bound in every method.
    """
    return {
        method: {key: outcome.actual_ns for key, outcome in work_out(prediction, method).outcomes.items()}
        for method in METHODS
    }


def pairs_of(prediction: Prediction, names: Iterable[str]) -> list[Key]:
    """(flow, receiver) of all receivers of the named flows; the bare name of a flow with several instances means them all.

    Raises:
        ScenarioError: a name that is no flow of the scenario.
    """
    flows = {flow.name: flow for flow in prediction.plan.scenario.flows}
    groups: dict[str, list[str]] = {}
    for flow in flows.values():
        groups.setdefault(flow.group, []).append(flow.name)
    problems = [
        _unknown(name, list(dict.fromkeys([*flows, *groups])))
        for name in names
        if name not in flows and name not in groups
    ]
    if problems:
        raise ScenarioError(problems)
    wanted = [one for name in names for one in ([name] if name in flows else groups[name])]
    return [(name, receiver) for name in dict.fromkeys(wanted) for receiver in flows[name].receivers]


def by_slack(prediction: Prediction, pairs: list[Key]) -> list[Key]:
    """Those without a bound first, then those that it leaves least room to their deadline; without deadlines the longest bounds."""
    flows = {flow.name: flow for flow in prediction.plan.scenario.flows}

    def order(pair: Key) -> tuple[int, int]:
        bound, deadline = end_to_end(prediction, flows[pair[0]], pair[1]).bound_ns, flows[pair[0]].deadline_ns
        if bound is None:
            return 0, 0
        return (2, -bound) if deadline is None else (1, deadline - bound)

    return sorted(pairs, key=order)


def _unknown(name: str, known: list[str]) -> Problem:
    close = difflib.get_close_matches(name, known, 3, 0.5)
    shown = close or known[:8]
    more = f" and {len(known) - len(shown)} more" if not close and len(known) > len(shown) else ""
    names = ", ".join(repr(one) for one in shown)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"the flows are {names}{more}"
    if not known:
        hint = "the scenario has no flow"
    message = f"there is no flow {name!r}"
    return Problem(file="--explain", line=0, column=0, path=name, message=message, hint=hint, source_line="", length=0)


def explain(prediction: Prediction, pairs: list[Key], method: str = "bound") -> list[dict[str, Any]]:
    """For every (flow, receiver) its segments with their explanations and the stages between them, times in ns.

    `bound_ns` of a stage is None where a broker's own time is left out of it, and `counted_ns` is what it has in the whole figure all the same.
    Its `steps` are what its bound is the sum of: streams that cross the network, brokers at work, hosts that answer. The blocking of a
    hop has `longest_slot_ns` where a frame of any length was cut to what a time slot lets through. `explanation` of a segment is None where there is no bound, with the `reason`.
    """
    plan = prediction.plan
    flows = {flow.name: flow for flow in plan.scenario.flows}
    leaves = [(s.stream, s.destination) for pair in pairs for s in plan.segments[pair]]
    answers = {
        (a["stream"], a["receiver"]): a for a in prediction.steady.explain(list(dict.fromkeys(leaves)), {}, method)
    }
    found = []
    for name, receiver in pairs:
        whole = end_to_end(prediction, flows[name], receiver)
        segments = []
        for segment in plan.segments[name, receiver]:
            outcome = prediction.segment(segment)
            _note_slots(prediction, answers[segment.stream, segment.destination]["explanation"])
            _note_release(prediction, segment.stream, answers[segment.stream, segment.destination]["explanation"])
            answer = answers[segment.stream, segment.destination]
            segments.append(
                {
                    "name": segment.name,
                    "stream": segment.stream,
                    "source": segment.source,
                    "destination": segment.destination,
                    "explanation": answer["explanation"],
                    "reason": outcome.reason or answer["reason"],
                    "window": window_of(prediction, segment.stream),
                    "joined": joined_of(prediction, segment.stream),
                }
            )
        found.append(
            {
                "flow": name,
                "receiver": receiver,
                "deadline_ns": flows[name].deadline_ns,
                "end_to_end_ns": whole.bound_ns,
                "segments": segments,
                "between": [
                    [
                        {
                            "kind": part.stage.kind,
                            "name": part.stage.name,
                            "bound_ns": part.bound_ns if part.known else None,
                            "counted_ns": part.bound_ns,
                            "steps": [asdict(step) for step in part.steps],
                        }
                        for part in parts
                        if part.stage.kind != "network"
                    ]
                    for parts in whole.between()
                ],
                "statement": whole.statement,
            }
        )
    return found


def window_of(prediction: Prediction, stream: str) -> dict[str, Any] | None:
    """What TCP's window adds to a segment's bound: rounds in which its last frames wait for acknowledgements."""
    rounds = prediction.windows.rounds.get(stream)
    if rounds is None or not rounds.wait_ns:
        return None
    return {
        "segments": rounds.segments,
        "rounds": rounds.count,
        "round_ns": rounds.round_ns,
        "wait_ns": rounds.wait_ns,
        "reason": rounds.reason,
    }


def joined_of(prediction: Prediction, stream: str) -> dict[str, int] | None:
    """The largest segment that packets of a stream may leave in together: how many of them, and its bytes on the wire."""
    joined = prediction.streams[stream].joined
    return None if joined is None else {"messages": joined.packets, "frame_bytes": joined.frame_bytes}


def _note_release(prediction: Prediction, stream: str, explanation: dict[str, Any] | None) -> None:
    """Of packets that may have waited for others the core knows no nominal release."""
    found = prediction.streams[stream]
    if explanation is not None and found.joined is not None and explanation["source_jitter_ns"] == 0:
        explanation["source_jitter_ns"] = found.jitter_ns
        explanation["from_nominal_ns"] += found.jitter_ns


def _note_slots(prediction: Prediction, explanation: dict[str, Any] | None) -> None:
    """Says of each hop whether the longest slot is what the blocking frame was cut to."""
    links = prediction.plan.scenario.links
    for hop in explanation["hops"] if explanation is not None else ():
        link = links[hop["port"] // 2]
        direction = link.backward if hop["port"] % 2 else link.forward
        longest = None if direction.slots is None else direction.slots.longest_ns
        cut = longest is not None and hop["blocking"]["time_ns"] == longest
        hop["blocking"]["longest_slot_ns"] = longest if cut else None


def least_slack(flows: list[dict[str, Any]], most: int = LEAST_SLACK) -> list[Key]:
    """The flows of a summary whose bound leaves least room to the deadline; then those without deadline, longest bound first."""

    def order(flow: dict[str, Any]) -> tuple[int, float]:
        bound, deadline = flow["bound_us"]["bound"], flow["deadline_us"]
        if deadline is None:
            return 1, -bound
        return 0, deadline - (flow["end_to_end_us"]["bound"] or bound + flow["jitter_us"])

    bounded = [flow for flow in flows if flow["bound_us"]["bound"] is not None and flow["segments"]]
    return [(flow["flow"], flow["receiver"]) for flow in sorted(bounded, key=order)[:most]]


def summary_of(prediction: Prediction, flows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`explained` of `summary.json`: the flows with the least slack, times in microseconds, few streams by name."""
    entries = []
    for entry in explain(prediction, least_slack(flows)):
        segments = [
            {
                "name": segment["name"],
                "stream": segment["stream"],
                "bound_us": micros(segment["explanation"]["from_actual_ns"]),
                "source_jitter_us": micros(segment["explanation"]["source_jitter_ns"]),
                "hops": [_hop(hop) for hop in segment["explanation"]["hops"]],
            }
            for segment in entry["segments"]
            if segment["explanation"] is not None
        ]
        between = [
            # What is known of a handshake counts in the whole figure, also where its broker's own time is left out.
            [
                {"name": f"{part['kind']} {part['name']}", "bound_us": micros(part["counted_ns"] or None)}
                for part in parts
            ]
            for parts in entry["between"]
        ]
        entries.append(
            {
                "flow": entry["flow"],
                "receiver": entry["receiver"],
                "deadline_us": micros(entry["deadline_ns"]),
                "end_to_end_us": micros(entry["end_to_end_ns"]),
                "segments": segments,
                "between": between,
            }
        )
    return entries


def _hop(hop: dict[str, Any]) -> dict[str, Any]:
    blocking = hop["blocking"]
    return {
        "port": hop["name"],
        "utilisation": hop["utilisation"]["value"],
        "method": hop["method"],
        "response_us": micros(hop["response_ns"]),
        "unshaped_us": micros(hop["unshaped_ns"]),
        "blocking_us": micros(blocking["time_ns"]),
        "blocked_by": blocker(blocking),
        "higher_us": micros(_sum(hop["higher"])),
        "higher": _named(hop["higher"]),
        "same_us": micros(_sum(hop["same"])),
        "same": _named(hop["same"]),
        "own_us": micros(hop["own_ns"]),
        "service_us": micros(hop["service_ns"]),
        "shaping_us": micros(_sum(hop["shaping"]) - hop["rounding_ns"]),
        "window_us": micros(hop["window_ns"]),
        "counted_before_us": micros(hop["counted_before_ns"]),
        "propagation_us": micros(hop["propagation_ns"]),
        "link_jitter_us": micros(hop["link_jitter_ns"]),
        "switching_us": micros(hop["switching_ns"]),
    }


def _sum(parts: list[dict[str, Any]]) -> int:
    return sum(part["time_ns"] for part in parts)


def _named(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The longest, and the others as one entry without a name."""
    shown = [{"stream": p["stream"], "frames": p["frames"], "us": micros(p["time_ns"])} for p in parts[:MOST_NAMED]]
    rest = parts[MOST_NAMED:]
    if rest:
        shown.append({"stream": None, "streams": len(rest), "us": micros(_sum(rest))})
    return shown


def blocker(blocking: dict[str, Any]) -> str | None:
    """Whose frame blocks, in words."""
    if blocking["by"] == "nobody":
        return None
    slot = blocking.get("longest_slot_ns")
    if slot is not None:
        return f"one frame of lower priority or best effort, as long as the longest slot lets through ({slot / 1000:,.3f} us)"
    if blocking["by"] == "best-effort":
        return f"one frame of undeclared best effort, {blocking['bytes']} bytes"
    return f"one frame of {blocking['stream']} (class {blocking['class']}), {blocking['bytes']} bytes"
