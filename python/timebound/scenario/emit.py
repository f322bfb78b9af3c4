"""A resolved scenario as YAML that loads to an equal one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from timebound.scenario.emit_broker import broker, way
from timebound.scenario.emit_hardware import hardware, machines
from timebound.scenario.emit_media import framing, tdma, token_bucket
from timebound.scenario.emit_switches import controller
from timebound.scenario.framing import ETHERNET
from timebound.scenario.model import (
    Background,
    Direction,
    Disconnections,
    Event,
    Flow,
    Jitter,
    Link,
    Loss,
    MqttStack,
    Node,
    NodeFile,
    Precision,
    Program,
    Queue,
    Scenario,
    Stack,
)
from timebound.scenario.shape_tcp import emit_tcp
from timebound.scenario.units import format_frequency, format_rate, format_share, format_size, format_time

_PLAIN = re.compile(r"[A-Za-z0-9µ][A-Za-z0-9_./%µ>\- ]*")
_AMBIGUOUS = re.compile(
    r"[-+]?[0-9._]+([eE][-+]?[0-9]+)?|0[box][0-9a-fA-F_]+|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*"
    r"|true|false|null|yes|no|on|off",
    re.IGNORECASE,
)
"""What a reader of YAML 1.1 or 1.2 takes for something else than text."""


def to_yaml(scenario: Scenario) -> str:
    """The scenario with everything written out: one line per node, link and flow."""
    lines = ["# resolved scenario: includes, parameters, ranges and defaults are expanded"]
    for key, text in (
        ("name", scenario.name),
        ("description", scenario.description),
        ("reading", scenario.reading),
    ):
        if text:
            lines.append(f"{key}: {flow_style(text)}")
    lines += ["network:", "  nodes:"]
    lines += [
        f"    {flow_style(node.name)}: {flow_style(_node(node, scenario))}"
        for node in scenario.nodes
        if node.side_of is None
    ]
    lines += _list("  links", (_link(link) for link in scenario.links), "  ")
    lines += machines(scenario)
    if scenario.framing != ETHERNET:
        lines.append(f"  framing: {flow_style(framing(scenario.framing))}")
    if scenario.stated_best_effort_bytes is not None:
        stated = scenario.stated_best_effort_bytes
        lines.append(f"  best-effort: {format_size(stated) if stated else 'none'}")
    if scenario.controller is not None:
        lines.append(f"  controller: {flow_style(controller(scenario))}")
    lines += _list("flows", (_flow_entry(flow, scenario.stack) for flow in scenario.flows))
    lines.append(f"stack: {flow_style(_stack(scenario.stack))}")
    lines += _list("background", (_background(item) for item in scenario.background))
    lines += _events(scenario)
    run = scenario.run
    lines.append("run:")
    for key, value in {
        "duration": format_time(run.duration_ns),
        "warm-up": format_time(run.warm_up_ns),
        "seed": run.seed,
        "captures": list(run.captures),
        "simulate": {
            "duration": format_time(run.simulate.duration_ns),
            "search": run.simulate.evaluations
            if run.simulate.search_ns is None
            else format_time(run.simulate.search_ns),
        },
        "log-limit": format_size(run.log_limit_bytes),
        "precision": _precision(run.precision),
        "data-plane": {
            "back-end": run.data_plane.back_end,
            "threads": run.data_plane.threads,
            "back-pressure": run.data_plane.back_pressure,
        },
    }.items():
        if value is None:
            continue
        lines.append(f"  {key}: {flow_style(value)}")
    return "\n".join(lines) + "\n"


def _precision(precision: Precision) -> dict[str, Any] | None:
    """What is stated of it, by the keys of the file."""
    shown: dict[str, Any] = {}
    for name, value in precision.stated().items():
        if name.endswith("_ns"):
            shown[name.removesuffix("_ns").replace("_", "-")] = format_time(int(value))
        else:
            shown[name.replace("_", "-")] = value if name == "ring_lost" else format_share(value)
    return shown or None


def _list(key: str, items: Iterable[Mapping[str, Any]], indent: str = "") -> list[str]:
    lines = [f"{indent}  - {flow_style(item)}" for item in items]
    return [f"{key}:", *lines] if lines else []


def flow_style(value: Any) -> str:
    """A value in YAML's flow style."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and not _AMBIGUOUS.fullmatch(value) and value == value.strip():
            return value
        quoted = json.dumps(value, ensure_ascii=False)
        return re.sub(r"[^\x20-\x7e\xa0-\ud7ff]", lambda match: f"\\U{ord(match[0]):08x}", quoted)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow_style(key)}: {flow_style(inner)}" for key, inner in value.items()) + "}"
    return "[" + ", ".join(flow_style(item) for item in value) + "]"


def _node(node: Node, scenario: Scenario) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": node.kind}
    if node.gateway is not None:
        gateway, side = node.gateway, scenario.node(node.gateway.outside)
        told = {"outside": gateway.outside, "nat": gateway.nat, "dhcp": gateway.dhcp, "dns": gateway.dns}
        optional = {"address": side.address, "domain": gateway.domain}
        told |= {key: value for key, value in optional.items() if value is not None}
        entry = {"kind": "gateway", "gateway": told}
    if node.dhcp:
        entry["address"] = "dhcp"
    if node.kind == "switch":
        entry["delay"] = f"{format_time(node.switching_min_ns)}..{format_time(node.switching_max_ns)}"
        if node.engine != "fabric":
            entry["engine"] = node.engine
        if node.replication_max_ns:
            entry["replication"] = f"{format_time(node.replication_min_ns)}..{format_time(node.replication_max_ns)}"
    if node.address is not None:
        entry["address"] = node.address
    if node.kind == "host":
        entry["mtu"] = node.mtu
    if node.tcp is not None:
        entry["tcp"] = emit_tcp(node.tcp)
    if node.cpu_share is not None:
        entry["cpu"] = format_share(node.cpu_share)
    if node.cpu_hz is not None:
        entry["cpu"] = format_frequency(node.cpu_hz)
    if node.cpu_reservation is not None:
        entry["cpu-reservation"] = format_share(node.cpu_reservation)
    if node.memory_bytes is not None:
        entry["memory"] = format_size(node.memory_bytes)
    if node.processes is not None:
        entry["processes"] = node.processes
    if node.hostname is not None:
        entry["hostname"] = node.hostname
    if node.environment:
        entry["env"] = dict(node.environment)
    if node.files:
        entry["files"] = {file.path: _file(file) for file in node.files}
    if node.programs:
        entry["run"] = [_program(program) for program in node.programs]
    entry |= hardware(node)
    if node.latitude is not None and node.longitude is not None:
        entry["latitude"], entry["longitude"] = node.latitude, node.longitude
    return entry


def _file(file: NodeFile) -> dict[str, Any]:
    mode = f"{file.mode:04o}"
    return {"content": file.content, "mode": mode} if file.source is None else {"from": file.source, "mode": mode}


def _program(program: Program) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": program.name, "command": list(program.command)}
    if program.environment:
        entry["env"] = dict(program.environment)
    if program.folder is not None:
        entry["folder"] = program.folder
    if program.essential:
        entry["essential"] = True
    if program.ready_port is not None:
        entry["ready-port"] = program.ready_port
    if program.start_ns:
        entry["start"] = format_time(program.start_ns)
    return entry


def _link(link: Link) -> dict[str, Any]:
    entry: dict[str, Any] = {"between": [link.a, link.b]}
    if link.half_duplex:
        entry["duplex"] = "half"
    if link.length_m is not None:
        entry["length"] = f"{link.length_m} m"
    entry |= tdma(link)
    if replace(link.forward, slots=None) == replace(link.backward, slots=None):
        return entry | _direction(link.forward)
    return entry | {"forward": _direction(link.forward), "backward": _direction(link.backward)}


def _direction(direction: Direction) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "rate": format_rate(direction.rate_bps),
        "delay": format_time(direction.delay_ns),
        "queue": _queue(direction.queue),
        "buffer": format_size(direction.buffer_bytes),
    }
    impairments = direction.impairments
    if impairments.jitter is not None:
        entry["jitter"] = _jitter(impairments.jitter)
    if impairments.loss is not None:
        entry["loss"] = _loss(impairments.loss)
    if impairments.corruption:
        entry["corruption"] = format_share(impairments.corruption)
    if impairments.corruption_drops:
        entry["corruption-drops"] = True
    if impairments.duplication:
        entry["duplication"] = format_share(impairments.duplication)
    if impairments.disconnections is not None:
        entry["disconnections"] = _disconnections(impairments.disconnections)
    if impairments.held:
        entry["queued"] = "held"
    if direction.trace is not None:
        del entry["rate"]
        entry["trace"] = {"opportunities": direction.trace.short()}
    if impairments.outages:
        entry["outages"] = [f"{format_time(start)}..{format_time(stop)}" for start, stop in impairments.outages]
    return entry


def _disconnections(disconnections: Disconnections | None) -> Any:
    if disconnections is None:
        return "none"
    return {
        "mean-up": format_time(disconnections.mean_up_ns),
        "mean-down": format_time(disconnections.mean_down_ns),
        "distribution": disconnections.distribution,
    }


def _queue(queue: Queue) -> Any:
    if queue.kind != "drr":
        return queue.kind
    classes = {str(index): f"{quantum} B" for index, quantum in enumerate(queue.quanta_bytes)}
    return {"drr": {"classes": classes}}


def _jitter(jitter: Jitter) -> dict[str, Any]:
    greatest = format_time(jitter.max_ns)
    parameters: dict[str, dict[str, Any]] = {
        "normal": {"mean": format_time(jitter.mean_ns), "deviation": format_time(jitter.deviation_ns)},
        "pareto": {"scale": format_time(jitter.scale_ns), "alpha": jitter.alpha},
        "exponential": {"mean": format_time(jitter.mean_ns)},
    }
    inner = {**parameters.get(jitter.kind, {}), "max": greatest}
    entry: dict[str, Any] = {jitter.kind: greatest if jitter.kind == "uniform" else inner}
    return entry | ({"reorder": True} if jitter.reorder else {})


def _loss(loss: Loss) -> Any:
    if loss.kind == "bernoulli":
        return format_share(loss.probability)
    return {
        "gilbert-elliott": {
            "good-to-bad": format_share(loss.good_to_bad),
            "bad-to-good": format_share(loss.bad_to_good),
            "loss-in-good": format_share(loss.loss_in_good),
            "loss-in-bad": format_share(loss.loss_in_bad),
        }
    }


def _flow_entry(flow: Flow, stack: Stack) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": flow.name,
        "from": flow.source,
        "to": list(flow.receivers),
        "topic": flow.topic,
        "size": f"{flow.size_bytes} B",
    }
    if flow.least_bytes is not None:
        entry["least-size"] = f"{flow.least_bytes} B"
    if flow.pattern == "trace":
        entry["trace"] = [format_time(time) for time in flow.trace_ns]
    if flow.token_bucket is not None:
        entry["token-bucket"] = token_bucket(flow.token_bucket)
    elif flow.pattern != "trace" or len(flow.trace_ns) == 1:
        entry["period"] = format_time(flow.period_ns)
    if flow.jitter_ns:
        entry["jitter"] = format_time(flow.jitter_ns)
    if flow.deadline_ns is not None:
        entry["deadline"] = format_time(flow.deadline_ns)
    entry["priority"] = flow.priority
    if flow.qos:
        entry["qos"] = flow.qos
    if flow.pattern not in ("periodic", "token-bucket"):
        entry["pattern"] = flow.pattern
    if flow.pattern == "sporadic":
        entry["mean-extra"] = format_time(flow.mean_extra_ns)
    if flow.offset_ns is not None:
        entry["offset"] = format_time(flow.offset_ns)
    if flow.start_ns:
        entry["start"] = format_time(flow.start_ns)
    if flow.content is not None:
        entry["content"] = flow.content
    if len(flow.services) == 1:
        entry |= way(flow.services[0], stack)
    if flow.routes:
        entry["route"] = [list(route) for route in flow.routes]
    if flow.connection is not None:
        entry["connection"] = flow.connection
    if flow.after is not None:
        entry["after"] = flow.after
    if flow.multicast:
        entry["multicast"] = True
    if flow.sealed:
        entry["sealed"] = True
    if not flow.reserve:
        entry["reserve"] = False
    if flow.programs:
        entry["programs"] = list(flow.programs)
    return entry


def _stack(stack: Stack) -> dict[str, Any]:
    if not isinstance(stack, MqttStack):
        return {"udp": {"multicast": stack.multicast}}
    entry: dict[str, Any] = {
        "broker": [broker(item) for item in stack.brokers],
        "version": stack.version,
        "clients": stack.clients,
        "connections": stack.connections,
    }
    if not stack.reserved and not stack.priorities:
        entry["priorities"] = False
    return {stack.kind: entry}


def _background(item: Background) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": item.kind, "name": item.name, "from": item.source, "to": item.destination}
    if item.rate_bps is not None:
        entry["rate"] = format_rate(item.rate_bps)
    if item.kind != "tcp":
        entry["size"] = f"{item.size_bytes} B"
    if item.kind == "burst":
        entry["frames"] = item.frames
    if item.kind in ("burst", "request-response"):
        entry["period"] = format_time(item.gap_ns)
    if item.kind == "request-response":
        entry["response"] = f"{item.response_bytes} B"
    if item.kind == "video":
        entry["frames-per-second"] = item.frames_per_second
    if item.token_bucket is not None:
        entry["token-bucket"] = token_bucket(item.token_bucket)
    if item.program is not None:
        entry["program"] = item.program
    entry["priority"] = item.priority
    if item.start_ns:
        entry["start"] = format_time(item.start_ns)
    if item.stop_ns is not None:
        entry["stop"] = format_time(item.stop_ns)
    return entry


def _events(scenario: Scenario) -> list[str]:
    """One line per event. Two changes of one target at one time keep their order: the second is written `links`."""
    times: dict[int, dict[str, str]] = {}
    for event in scenario.events:
        changes = times.setdefault(event.at_ns, {})
        target = event.target
        while target in changes:
            kind, _, rest = target.partition(" ")
            target = f"links {rest}" if kind == "link" else f"{kind} {' '}{rest}"
        changes[target] = flow_style(_event(event))
    for order in scenario.node_events:
        times.setdefault(order.at_ns, {})[f"node {order.node}"] = order.order
    lines: list[str] = ["at:"] if times else []
    for time, changes in sorted(times.items()):
        lines.append(f"  {format_time(time)}:")
        lines += [f"    {flow_style(target)}: {change}" for target, change in changes.items()]
    return lines


def _event(event: Event) -> dict[str, Any]:
    direction = event.forward if event.ways[0] else event.backward
    impairments = direction.impairments
    stated: dict[str, Any] = {
        "rate": format_rate(direction.rate_bps),
        "delay": format_time(direction.delay_ns),
        "loss": "0 %" if impairments.loss is None else _loss(impairments.loss),
        "jitter": "0 ns" if impairments.jitter is None else _jitter(impairments.jitter),
        "corruption": format_share(impairments.corruption),
        "duplication": format_share(impairments.duplication),
        "corruption_drops": impairments.corruption_drops,
        "buffer": format_size(direction.buffer_bytes),
        "disconnections": _disconnections(impairments.disconnections),
        "queued": "held" if impairments.held else "dropped",
        "up": event.up_forward if event.ways[0] else event.up_backward,
    }
    return {key.replace("_", "-"): stated[key] for key in event.changed}
