"""What is to be said of programs that are clients of flows: what of them could not be read, how much of what they declare they sent, and at which QoS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from timebound.engine import own_held, records
from timebound.engine.own_names import Programs
from timebound.scenario.model import Flow, MqttStack
from timebound.stacks import Plan

if TYPE_CHECKING:
    import polars as pl

FEW = 0.9
"""A program that sends less than this share of what its period allows has pauses that are more than those of its own clock."""


@dataclass(slots=True)
class Said:
    """Notes, and what makes a flow unmeasured at a receiver: (flow, receiver) -> why."""

    notes: list[str] = field(default_factory=list)
    unread: dict[tuple[str, str], str] = field(default_factory=dict)
    held: own_held.Held = field(default_factory=own_held.Held)
    """When programs kept their brokers waiting, in run time."""


def say(plan: Plan, endpoints: pl.DataFrame, live: Mapping[str, Any]) -> Said:
    """`endpoints`: with the messages of programs; `live`: what the data plane said in the end (`live.json`)."""
    told = live.get("own") or {}
    programs = Programs(plan)
    said = Said()
    _unread(programs, told.get("unread") or [], said)
    said.notes += _qualities(programs, told.get("ends") or [])
    stopped = {order["node"] for order in live.get("lifecycle") or []}
    span_ns = min(plan.scenario.run.duration_ns, live.get("measured_ns", 0) - plan.scenario.run.warm_up_ns)
    for number, leg in enumerate(plan.legs):
        flow = programs.flows[leg.flow]
        if flow.programs:
            mine = endpoints.filter(pl_is(number))
            said.notes += _Pace(programs, flow, mine, span_ns).say(leg.receivers, stopped)
            said.notes += _deaf(plan, flow, port(plan, number), live)
            said.notes += _left(programs, number, mine, told.get("left") or [])
    said.held = own_held.held(programs, endpoints, live)
    said.notes += own_held.notes(programs, said.held)
    said.notes = list(dict.fromkeys(said.notes))
    return said


LEFT = {
    "disconnected": "disconnected from its broker",
    "closed": "closed its connection",
    "reset": "broke off its connection",
    "unsubscribed": "unsubscribed",
}


def _left(programs: Programs, number: int, mine: pl.DataFrame, left: Iterable[Mapping[str, Any]]) -> list[str]:
    """Subscribing programs that left while messages were still sent, and how many of these did not reach them."""
    import polars as pl

    flow, warm_up = programs.flow(number), programs.plan.scenario.run.warm_up_ns
    end = warm_up + programs.plan.scenario.run.duration_ns
    hosts = programs.plan.host_numbers()
    found = []
    for each in left:
        node = programs.nodes.get(each["source"], "")
        if number not in each["flows"] or node not in flow.programs or node not in flow.receivers:
            continue
        then = pl.col("time_ns").is_between(max(warm_up, each["at_ns"]), end, closed="left")
        sent = mine.filter((pl.col("kind") == records.SENT) & then)
        came = mine.filter((pl.col("kind") == records.RECEIVED) & (pl.col("receiver") == hosts[node]))
        missing = sent.filter(~pl.col("sequence").is_in(came["sequence"].implode())).height
        if not missing:
            continue
        at = (each["at_ns"] - warm_up) / 1e9
        when = f"at {at:.3f} s" if at >= 0 else "before the measured time"
        found.append(
            f"The {programs.name(node)} {LEFT[each['how']]} {when}: {missing:,} messages of {flow.name!r} that were published from then on did not reach it."
        )
    return found


def _silent(flow: Flow, live: Mapping[str, Any]) -> dict[str, int]:
    """Receivers whose hosts said that no socket was there (RFC 1122, section 4.1.3.1), with how often; one such message may be the end of the run."""
    return {
        entry["source"]: entry["frames"]
        for entry in live.get("undeclared") or []
        if entry["protocol"] == "icmp" and entry["destination"] == flow.source and entry["frames"] > 1
    }


def gone(plan: Plan, flow: Flow, live: Mapping[str, Any]) -> dict[str, int]:
    """Receivers of datagrams whose programs had all ended by themselves, at which run time. What they had started may go on, so it takes the word of the host."""
    if isinstance(plan.scenario.stack, MqttStack):
        return {}
    found: dict[str, int] = {}
    for receiver in set(flow.programs) & set(_silent(flow, live)):
        ended = [program for program in live.get("programs") or [] if program["node"] == receiver]
        if ended and all(program["ended_ns"] is not None and not program["stopped"] for program in ended):
            found[receiver] = max(program["ended_ns"] for program in ended)
    return found


def _deaf(plan: Plan, flow: Flow, port: int | None, live: Mapping[str, Any]) -> list[str]:
    """Programs that nobody heard of but their host's kernel: a datagram counts as received when it leaves the last port, so nothing else tells."""
    silent, known = _silent(flow, live), gone(plan, flow, live)
    return [
        f"{silent[receiver]:,} ICMP messages went from {receiver} back to {flow.source}: at times no program may have listened on {receiver}{'' if port is None else f', port {port}'}. "
        f"Datagrams of {flow.name!r} count as received when they leave the last port."
        for receiver in flow.receivers
        if receiver in flow.programs and receiver in silent and receiver not in known
    ]


@dataclass(frozen=True, slots=True)
class Arrived:
    """Messages on a flow's topic that came to a receiver from a broker, since its programs were started, whoever sent them."""

    messages: int = 0
    retained: int = 0
    """Those of them that the broker had kept, and nobody had sent since."""

    def words(self) -> str:
        """Where none of them is one that the flow's publisher was seen to send."""
        if self.messages > self.retained:
            kept = f", {self.retained:,} of them retained" if self.retained else ""
            return f"{self.messages:,} came, none of which its publisher was seen to send{kept},"
        return f"only {self.retained:,} retained came" if self.retained else "none came"


def arrived(plan: Plan, number: int, receiver: str, live: Mapping[str, Any]) -> Arrived:
    """What came to a receiver of a flow, by what the data plane counted at its connections."""
    ends = (live.get("own") or {}).get("ends") or []
    there = plan.addresses[receiver]
    mine = [end for end in ends if end["flow"] == number and end["destination"] == there]
    return Arrived(sum(sum(end["qos"]) for end in mine), sum(end["retained"] for end in mine))


def port(plan: Plan, number: int) -> int | None:
    """The port to which a flow's datagrams go."""
    leg = plan.legs[number]
    stream = plan.segments[leg.flow, leg.receivers[0]][0].stream
    return next((mark.destination_port for mark in plan.markers if (mark.data, mark.protocol) == (stream, "udp")), None)


def pl_is(number: int) -> pl.Expr:
    """Rows of one flow number."""
    import polars as pl

    return pl.col("flow") == number


def _unread(programs: Programs, connections: list[dict[str, Any]], said: Said) -> None:
    run = programs.plan.scenario.run
    everyone = range(len(programs.plan.legs))
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for each in connections:
        if each["first_ns"] < run.warm_up_ns + run.duration_ns:
            key = (each["source"], each["destination"], *each["flows"], each["last_ns"] >= run.warm_up_ns)
            alike.setdefault(key, []).append(each)
    for each, *others in alike.values():
        ends = [programs.nodes.get(each[end], each[end]) for end in ("source", "destination")]
        node = programs.owner(ends, each["flows"] or everyone)
        if node is None:
            continue
        at = (each["first_ns"] - run.warm_up_ns) / 1e9
        when = f"at {at:.3f} s" if at >= 0 else "before the measured time"
        which = f"{each['source']}:{each['source_port']} to {each['destination']}:{each['destination_port']}"
        what = f"{each['bytes']:,} bytes from {ends[0]} to {ends[1]} could not be read as MQTT, the first {when} (connection of {programs.name(node)}, {which})"
        if others:
            what += f", and {sum(other['bytes'] for other in others):,} bytes of {len(others):,} more such connections"
        if not each["flows"]:
            said.notes.append(f"{what}: none of its messages are measured.")
            continue
        names = []
        for number in each["flows"]:
            flow, leg = programs.flow(number), programs.plan.legs[number]
            # The way of its messages, not that of what answers them.
            sends = ends[0] == node == flow.source
            here = leg.receivers if sends else [name for name in leg.receivers if name == node == ends[1]]
            names += [f"{flow.name!r} to {receiver!r}" for receiver in here]
            if each["last_ns"] >= run.warm_up_ns:
                said.unread.update({(flow.name, receiver): what for receiver in here})
        said.notes.append(
            f"Messages of {', '.join(names)} are not all measured: {what}."
            if names
            else f"{what}: what answers messages of the other direction, which are measured."
        )


def _qualities(programs: Programs, ends: list[dict[str, Any]]) -> list[str]:
    """Who uses another QoS than is declared: bounds are those of the declared one."""
    published: dict[int, Counter[int]] = {}
    addresses = programs.plan.addresses
    for end in ends:
        if end["source"] == addresses[programs.flow(end["flow"]).source]:
            counts = published.setdefault(end["flow"], Counter())
            counts.update({qos: count for qos, count in enumerate(end["qos"]) if count})
    found = []
    for end in ends:
        flow, number = programs.flow(end["flow"]), end["flow"]
        seen = {qos: count for qos, count in enumerate(end["qos"]) if count}
        if end["source"] == addresses[flow.source]:
            expected, node, verb = {flow.qos}, flow.source, "publishes"
        else:
            # A broker sends on at the lower of the publisher's and the subscriber's (MQTT 5.0, section 3.8.4).
            expected = {min(qos, flow.qos) for qos in published.get(number) or {flow.qos: 1}}
            node, verb = programs.nodes.get(end["destination"], ""), "gets"
        other = {qos: count for qos, count in seen.items() if qos not in expected}
        if not other or node not in flow.programs:
            continue
        kinds = " and ".join(f"QoS {qos}" for qos in other)
        count, whole = sum(other.values()), sum(seen.values())
        more = "" if count == whole else f" ({count:,} of {whole:,})"
        why = "" if verb == "publishes" else f" by its subscription to {flow.topic!r} (or a filter that has it)"
        found.append(
            f"The {programs.name(node)} {verb} messages of {flow.name!r} at {kinds}{why}{more} where the flow declares QoS {flow.qos}: "
            "bounds and acknowledgements were worked out for that one."
        )
    return found


@dataclass(frozen=True, slots=True)
class _Pace:
    """How much of what its period allows a program published, and from when on another one got it. Times count from the end of the warm-up."""

    programs: Programs
    flow: Flow
    rows: pl.DataFrame
    """Messages of one sender, with run times."""
    span_ns: int

    def say(self, receivers: Iterable[str], stopped: set[str]) -> list[str]:
        found = []
        sent, kinds = self._sent(), self.rows["kind"]
        owes = self.flow.is_own and self.flow.source not in stopped and bool((kinds == records.SENT).any())
        if owes and (few := self._few(sent["time_ns"].to_list())):
            found.append(few)
        for receiver in receivers:
            if receiver in self.flow.programs and receiver not in stopped and (late := self._late(receiver, sent)):
                found.append(late)
        return found

    def _sent(self) -> pl.DataFrame:
        import polars as pl

        time = pl.col("time_ns") - self.programs.plan.scenario.run.warm_up_ns
        rows = self.rows.filter(pl.col("kind") == records.SENT).with_columns(time)
        return rows.filter(pl.col("time_ns").is_between(0, self.span_ns, closed="left")).sort("time_ns")

    def _few(self, times: list[int]) -> str | None:
        """Nothing of a flow that is not periodic: it has no number of messages to send. One of which no message was ever seen has its own note."""
        flow, period = self.flow, self.flow.period_ns
        if flow.pattern != "periodic" or self.span_ns <= 0:
            return None
        allowed = self.span_ns // period
        least = (self.span_ns - flow.jitter_ns) // period
        if len(times) >= FEW * least:
            return None
        program = self.programs.name(flow.source)
        when = self._when(times, allowed - len(times)) if times else ""
        said = f"{len(times):,} of the {allowed:,} messages of {flow.name!r} that its period allows in the measured time{when}."
        return f"The {program} published {said}{' What is said of the flow holds for these.' if times else ''}"

    def _when(self, times: list[int], missing: int) -> str:
        """The silence that most of the missing ones are due to, or how long silences are."""
        edges = [0, *times, self.span_ns]
        gap, start, end = max((end - start, start, end) for start, end in pairwise(edges))
        if 2 * gap < missing * self.flow.period_ns:
            return f", with up to {gap / 1e9:.3f} s between two"
        if end == times[0]:
            return f", the first one at {end / 1e9:.3f} s"
        return f", none after {start / 1e9:.3f} s" + ("" if start == times[-1] else f" until {end / 1e9:.3f} s")

    def _late(self, receiver: str, sent: pl.DataFrame) -> str | None:
        """From when on a program got messages: it is owed none of before."""
        import polars as pl

        number = self.programs.plan.host_numbers()[receiver]
        came = self.rows.filter((pl.col("kind") == records.RECEIVED) & (pl.col("receiver") == number))
        if came.is_empty():
            return None
        before = sent.filter(pl.col("sequence") < came["sequence"].min()).height
        if not before:
            return None
        return (
            f"The {self.programs.name(receiver)} got its first message of {self.flow.name!r} when {before:,} of the {sent.height:,} of the measured time had been "
            "published: it is owed none of those."
        )
