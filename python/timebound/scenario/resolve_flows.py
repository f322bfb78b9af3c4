"""`stack` and `flows` -> brokers and flow instances: ranges and counts expanded, periods drawn, receivers served."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path as FilePath

from timebound.scenario import shape
from timebound.scenario.context import Context, close_to
from timebound.scenario.files import instead_of_file
from timebound.scenario.graph import Graph
from timebound.scenario.model import Flow, MqttStack, Service, Stack
from timebound.scenario.names import RangeError, expand, group_of, is_flow_name
from timebound.scenario.resolve_broker import check_via
from timebound.scenario.resolve_media import bucket, check_burst
from timebound.scenario.resolve_network import Net
from timebound.scenario.resolve_programs import named_programs
from timebound.scenario.resolve_reserved import asks, check_asking
from timebound.scenario.resolve_routes import resolve_routes
from timebound.scenario.resolve_stack import BETWEEN_NETWORKS, Homes, class_of, resolve_hosts
from timebound.scenario.tree import Path
from timebound.scenario.units import format_time

MOST_FLOWS = 100_000
MOST_RECEIVERS = 1_000_000
_LARGEST_DATAGRAM = 65_507
"""RFC 768; what is above the MTU travels in fragments."""
_GRID_NS = 1_000
_DATAGRAM_HEADERS = 28
"""UDP and IP of an unfragmented datagram."""

_FIELDS = {
    "from": "source",
    "to": "receivers",
    "topic": "topic",
    "size": "size_bytes",
    "least-size": "least_bytes",
    "period": "period_ns",
    "jitter": "jitter_ns",
    "deadline": "deadline_ns",
    "priority": "priority",
    "qos": "qos",
    "pattern": "pattern",
    "offset": "offset_ns",
    "trace": "trace_ns",
    "token-bucket": "token_bucket",
    "broker": "services",
    "via": "services",
    "start": "start_ns",
    "join": "start_ns",
    "content": "content",
    "route": "routes",
    "connection": "connection",
    "after": "after",
    "multicast": "multicast",
    "sealed": "sealed",
    "reserve": "reserve",
    "programs": "programs",
    "name": "name",
}

_LONGEST_TOPIC = 1000


class FlowResolver:
    """Expands flows; keeps what they share: names, the graph, hops from each broker."""

    def __init__(self, net: Net, graph: Graph, stack: Stack, seed: int, context: Context) -> None:
        self.net = net
        self.graph = graph
        self.stack = stack
        self.seed = seed
        self.context = context
        self.flows: list[Flow] = []
        self.names: set[str] = set()
        self.receivers = 0
        self.reserved = isinstance(stack, MqttStack) and stack.reserved
        self.kind = stack.kind
        self.homes = Homes(stack.brokers if isinstance(stack, MqttStack) else (), graph)

    def add(self, flow: shape.Flow, index: int) -> None:
        """Resolves the flow at this position of the file."""
        path: Path = ("flows", index)
        if not is_flow_name(flow.name):
            self.context.error(
                (*path, "name"),
                f"{flow.name!r} is no name of a flow",
                "use letters, digits, '_', '.', '-', '/', space; no part between '/' may be empty, '.' or '..'",
            )
        sources = resolve_hosts(flow.from_, self.net, (*path, "from"), self.context)
        receivers = resolve_hosts(flow.to, self.net, (*path, "to"), self.context)
        self.check(flow, path)
        programs = named_programs(flow, sources, receivers, self.net, path, self.context)
        total = len(sources) * flow.count
        self.receivers += total * len(receivers)
        if len(self.flows) + total > MOST_FLOWS or self.receivers > MOST_RECEIVERS:
            if not self.context.failed:
                self.context.error(path, f"more than {MOST_FLOWS} flow instances", "make ranges and counts smaller")
            return
        self.expand(flow, path, sources, receivers, programs)

    def expand(
        self, flow: shape.Flow, path: Path, sources: list[str], receivers: list[str], programs: set[str]
    ) -> None:
        total = len(sources) * flow.count
        if total > 1 and flow.name.endswith("]"):
            self.context.error((*path, "name"), f"{flow.name!r} is the name of one instance", "drop the brackets")
            return
        if flow.least_size is not None and flow.least_size > flow.size:
            message = f"the smallest message ({flow.least_size} B) is larger than the largest ({flow.size} B)"
            self.context.error((*path, "least-size"), message, "state at most size")
            return
        periods = self.periods(flow, total)
        first = len(self.flows)
        for number in range(total):
            source = sources[number // flow.count]
            if number % flow.count == 0:
                services = self.services(flow, path, source, receivers)
            name = flow.name if total == 1 else f"{flow.name}[{number + 1}]"
            if name in self.names:
                self.context.error((*path, "name"), f"duplicate flow {name!r}", "rename one of them")
                return
            self.names.add(name)
            self.context.remember(f"flows[{len(self.flows)}]", path, _FIELDS)
            period = periods[number]
            self.flows.append(
                Flow(
                    name=name,
                    group=group_of(flow.name),
                    source=source,
                    receivers=tuple(receivers),
                    topic=flow.topic or flow.name,
                    size_bytes=flow.size,
                    least_bytes=None if flow.least_size == flow.size else flow.least_size,
                    period_ns=period,
                    jitter_ns=flow.jitter,
                    deadline_ns=flow.deadline,
                    priority=class_of(flow, self.stack),
                    qos=flow.qos,
                    pattern=flow.pattern if flow.token_bucket is None else "token-bucket",
                    offset_ns=flow.offset,
                    mean_extra_ns=self.mean_extra(flow, period),
                    trace_ns=tuple(flow.trace),
                    token_bucket=bucket(flow.token_bucket),
                    start_ns=flow.start + number * flow.join,
                    content=self.content(flow),
                    services=services,
                    connection=flow.connection,
                    after=flow.after,
                    multicast=flow.multicast,
                    sealed=flow.sealed,
                    reserve=flow.reserve,
                    programs=tuple(name for name in (source, *receivers) if name in programs),
                )
            )
        self.flows[first:] = resolve_routes(
            self.flows[first:], flow.route, self.stack, self.net, self.graph, path, self.context
        )

    @staticmethod
    def mean_extra(flow: shape.Flow, period: int) -> int:
        if flow.pattern != "sporadic":
            return 0
        return period // 2 if flow.mean_extra is None else flow.mean_extra

    def periods(self, flow: shape.Flow, count: int) -> list[int]:
        """One period per instance, drawn from the stream named by seed and flow."""
        stated = bucket(flow.token_bucket)
        if stated is not None:
            return [max(1, stated.time_ns(self.net.framing.wire(flow.size + _DATAGRAM_HEADERS)))] * count
        if flow.pattern == "trace":
            gaps = [after - before for before, after in zip(flow.trace, flow.trace[1:], strict=False)]
            return [max(1, min(gaps, default=flow.period[0] if flow.period else 1))] * count
        low, high = flow.period or (1, 1)
        if low == high:
            return [low] * count
        first, last = math.ceil(low / _GRID_NS), high // _GRID_NS
        if last < first:
            return [low] * count
        return [(first + _draw(self.seed, flow.name, number, last - first + 1)) * _GRID_NS for number in range(count)]

    def services(self, flow: shape.Flow, path: Path, source: str, receivers: list[str]) -> tuple[Service, ...]:
        """Who serves which receiver; every segment must have a path."""
        if not isinstance(self.stack, MqttStack):
            for receiver in receivers:
                if receiver == source:
                    self.context.error((*path, "to"), f"{source!r} sends to itself", "a receiver is another host")
                else:
                    self.reach(source, receiver, (*path, "to"))
            return ()
        if flow.via is not None:
            return self.over_bridges(check_via(flow, self.stack, path, self.context), path, source, receivers)
        served: dict[str, list[str]] = {}
        for receiver in receivers:
            broker = flow.broker or self.homes.of(receiver)
            if broker is None:
                if self.homes.known:
                    hint = "add the missing link"
                    self.context.error((*path, "to"), f"{receiver!r} cannot be reached from any broker", hint)
                continue
            served.setdefault(broker, []).append(receiver)
        known = self.homes.known
        if flow.broker is not None and flow.broker not in known:
            return ()
        home = self.homes.of(source) if self.kind in BETWEEN_NETWORKS else None
        if home is not None:
            self.reach(source, home, (*path, "from"))
        elif self.kind in BETWEEN_NETWORKS and known:
            self.context.error((*path, "from"), f"{source!r} cannot reach any broker", "add the missing link")
        for broker, group in served.items():
            self.reach(home or source, broker, (*path, "from" if home is None else "to"))
            for receiver in group:
                self.reach(broker, receiver, (*path, "to"))
        order = [broker for broker in known if broker in served]
        if self.kind in ("dm-mqtt", "mrt-mqtt") and home is not None and set(order) - {home} and not asks(flow):
            message = f"{flow.name!r} asks for no channel, and between networks nothing else carries messages"
            hint = "give it a deadline and a priority above 0, or keep it in the network of its broker"
            self.context.error((*path, "to"), message, hint)
        return tuple(
            Service(
                broker=broker,
                receivers=tuple(served[broker]),
                via=() if home in (None, broker) else (home,),
            )
            for broker in order
        )

    def over_bridges(self, via: list[str] | None, path: Path, source: str, receivers: list[str]) -> tuple[Service, ...]:
        """One way over several brokers, of which the last serves all receivers."""
        if via is None:
            return ()
        for number, (before, after) in enumerate(zip([source, *via], via, strict=False)):
            self.reach(before, after, (*path, "via", number))
        for receiver in receivers:
            self.reach(via[-1], receiver, (*path, "to"))
        return (Service(broker=via[-1], receivers=tuple(receivers), via=tuple(via[:-1])),)

    def reach(self, source: str, destination: str, path: Path) -> None:
        if not self.graph.reaches(source, destination):
            self.context.error(path, f"{destination!r} cannot be reached from {source!r}", "add the missing link")

    def check(self, flow: shape.Flow, path: Path) -> None:
        self.check_times(flow, path)
        context = self.context
        mqtt = isinstance(self.stack, MqttStack)
        for key, stated in (
            ("start", flow.start),
            ("join", flow.join),
            ("content", flow.content),
            ("via", flow.via),
            ("connection", flow.connection),
            ("after", flow.after),
            ("multicast", flow.multicast),
            ("sealed", flow.sealed),
        ):
            if stated and not mqtt:
                context.error((*path, key), f"{key} works with MQTT alone", "remove it, or use stack: {mqtt: ...}")
        check_asking(flow, self.reserved, self.kind, path, context)
        if self.kind in BETWEEN_NETWORKS and not self.reserved:
            for key in ("via", "connection", "after"):
                if getattr(flow, key):
                    message = f"{key} with {self.kind}, where messages go by way of the brokers of their networks"
                    context.error((*path, key), message, "remove it, or use stack: {mqtt: ...}")
        if flow.join and not flow.start:
            context.error((*path, "join"), "join without start", "start: 1 ms, so that the first one joins as well")
        if flow.content is not None:
            self.check_content(flow.content, (*path, "content"))
        if flow.qos and not mqtt:
            context.warn((*path, "qos"), "qos has no meaning without MQTT", "remove it")
        if not mqtt:
            self.check_datagram(flow, path)
        elif flow.size > 16_000_000:
            context.error((*path, "size"), f"a message of {flow.size} B is too large", "use at most 16 MB")
        if flow.topic is not None:
            self.check_topic(flow.topic, (*path, "topic"), mqtt=mqtt)
        if flow.broker is None:
            return
        known = self.homes.known
        if not mqtt:
            context.error((*path, "broker"), "a broker without MQTT", "remove it, or use stack: {mqtt: ...}")
        elif flow.broker not in known:
            hint = close_to(flow.broker, known, f"brokers of the stack: {', '.join(known) or 'none'}")
            context.error((*path, "broker"), f"{flow.broker!r} is no broker of the stack", hint)

    def check_topic(self, topic: str, path: Path, *, mqtt: bool) -> None:
        """A topic name (MQTT 5.0, section 4.7): no wildcards, no U+0000, not empty."""
        if len(topic) > _LONGEST_TOPIC:
            message, hint = f"a topic of {len(topic)} characters", f"use at most {_LONGEST_TOPIC}"
        elif not topic:
            message, hint = "the topic is empty", "write a name, such as plant/press; in quotes where it has a #"
        elif set("#+\0") & set(topic):
            message, hint = f"{topic!r} is no topic to publish on", "no wildcards (# and +) and no U+0000"
        else:
            if mqtt and topic.startswith("$"):
                hint = "take another name: brokers refuse to publish there, or keep it from subscribers"
                self.context.warn(path, f"{topic!r}: topics that begin with $ are the broker's own", hint)
            return
        self.context.error(path, message, hint)

    def content(self, flow: shape.Flow) -> str | None:
        return None if flow.content is None else str(((self.context.folder or FilePath()) / flow.content).absolute())

    def check_content(self, name: str, path: Path) -> None:
        file = (self.context.folder or FilePath()) / name
        reason: str | None
        try:
            wrong = instead_of_file(file)
            reason = None if wrong is None else f"it {wrong}"
            if reason is None:
                file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        if reason is not None:
            self.context.error(path, f"{name!r} is no text that can be read: {reason}", "name a text file in UTF-8")

    def check_bucket(self, flow: shape.Flow, path: Path) -> None:
        """A token bucket takes the place of everything else that says when messages are released."""
        context = self.context
        check_burst(flow.token_bucket, path, context)
        for key, stated in (
            ("period", flow.period is not None),
            ("jitter", flow.jitter > 0),
            ("trace", bool(flow.trace)),
            ("mean-extra", flow.mean_extra is not None),
            ("pattern", flow.pattern != "periodic"),
        ):
            if stated:
                context.error((*path, key), f"a {key} beside a token bucket", "state one of both")
        if isinstance(self.stack, MqttStack):
            hint = "state a period, or use stack: {udp: {}}"
            context.error(
                (*path, "token-bucket"), "a token bucket with MQTT, whose frames TCP sends in its own time", hint
            )

    def check_times(self, flow: shape.Flow, path: Path) -> None:
        context = self.context
        if flow.token_bucket is not None:
            self.check_bucket(flow, path)
            return
        if flow.pattern == "trace":
            if not flow.trace:
                context.error((*path, "pattern"), "a trace without times", "trace: [0 ms, 7 ms, ...]")
            for number, (before, after) in enumerate(zip(flow.trace, flow.trace[1:], strict=False), 1):
                if after <= before:
                    context.error((*path, "trace", number), "the times of a trace do not rise", "sort them")
                    break
        else:
            if flow.trace:
                context.error((*path, "trace"), f"a trace, but the pattern is {flow.pattern}", "pattern: trace")
            if flow.period is None:
                context.error(path, f"flow {flow.name!r} has no period", "period: 15 ms")
                return
            if flow.period[0] == 0:
                context.error((*path, "period"), "a period of zero", "state the time between two releases")
            if flow.deadline is not None and flow.deadline > flow.period[0]:
                text = f"the deadline ({format_time(flow.deadline)}) is longer than the period"
                context.warn((*path, "deadline"), text, "the papers take deadlines up to the period; it works")
        if flow.mean_extra is not None and flow.pattern != "sporadic":
            context.error((*path, "mean-extra"), f"mean-extra, but the pattern is {flow.pattern}", "pattern: sporadic")
        if flow.offset is not None and flow.pattern != "periodic":
            context.error((*path, "offset"), f"an offset, but the pattern is {flow.pattern}", "remove it")

    def check_datagram(self, flow: shape.Flow, path: Path) -> None:
        if flow.size > _LARGEST_DATAGRAM:
            message = f"a datagram of {flow.size} B does not exist"
            self.context.error((*path, "size"), message, f"UDP carries at most {_LARGEST_DATAGRAM} B")


def _quiet(text: str) -> list[str]:
    try:
        return expand(text)
    except RangeError:
        return []


def _draw(seed: int, name: str, number: int, below: int) -> int:
    """A number in 0..below-1 of the stream (seed, flow, "period"); the same on every machine."""
    text = f"{seed}/{name}/period/{number}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big") % below
