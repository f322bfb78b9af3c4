"""MQTT over TCP: one connection per flow instance and broker, one per flow instance and receiver, one per flow and bridge.

Here: brokers as programs, clients, topics, and what a flow needs of them. What a connection puts on the wire: `mqtt_connection`.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from timebound.scenario.model import Broker, Flow, MqttStack, Service
from timebound.stacks import groups, mqtt_per_node, networks, peers, release, reserved
from timebound.stacks.mqtt_connection import BROKER_JITTER_NS, HOST_JITTER_NS, KEEP_ALIVE_S, Arrived, Connection
from timebound.stacks.plan import Plan, PlanError
from timebound.stacks.shared import shared_connections
from timebound.stacks.wire import MEASUREMENT_HEADER_BYTES

FIRST_CLIENT_PORT = 20_000
FIRST_BRIDGE_PORT = 10_000
"""A bridge chooses its own port, so every one gets a listener of its own at the other end, by which its frames are known."""


def lay(plan: Plan, stack: MqttStack) -> None:
    """Adds the scenario's flows as MQTT connections, and the brokers as programs."""
    brokers = {broker.node: broker for broker in stack.brokers}
    ports: Counter[str] = Counter()
    if stack.connections == "per-node":
        # Of one length, so that all messages on a connection are of one size.
        topics = topics_of(plan, padded=True)
        _add_brokers(plan, stack, [], topics)
        mqtt_per_node.lay(plan, stack, topics, partial(_add_client, plan, stack, ports))
        return
    topics = topics_of(plan)
    bridges = _bridges(plan, stack, topics)
    _add_brokers(plan, stack, bridges, topics)
    listeners = {(bridge.flow, bridge.source, bridge.target): bridge.port for bridge in bridges}
    shared = shared_connections(plan.scenario.flows, topics, stack.version == "5")
    passed_on = _passed_on(plan.scenario.flows)
    arrived: dict[tuple[str, str], Arrived] = {}
    multicast = {flow.name for flow in plan.scenario.flows if flow.multicast}
    # Those whose messages others pass on come first.
    order = sorted(
        enumerate(plan.scenario.flows),
        key=lambda entry: (entry[1].after is not None, not entry[1].multicast, entry[1].after in multicast),
    )
    for index, flow in order:
        connect = partial(
            Connection,
            plan=plan,
            stack=stack,
            flow=flow,
            origin=f"flows[{index}]",
            topic=topics[flow.name],
            client=partial(_add_client, plan, stack, ports),
            shared=None if flow.connection is None else shared.get(flow.connection),
        )
        if stack.between != "copies":
            networks.lay(connect(leg=plan.leg(flow.name, flow.receivers), several=False), brokers, listeners)
            continue
        for service in flow.services:
            connection = connect(leg=plan.leg(flow.name, service.receivers), several=len(flow.services) > 1)
            chain = [brokers[name] for name in (*service.via, service.broker)]
            before = None if flow.after is None else arrived[flow.after, chain[0].node]
            if flow.multicast:
                members = [(brokers[name], passed_on[flow.name, name][0]) for name in service.receivers]
                arrived |= peers.lay(connection, chain[0], members, arrived)
            else:
                found = _lay_service(connection, service, chain, listeners, before, passed_on)
                arrived |= {(flow.name, node): there for node, there in found.items()}
    if stack.between == "groups":
        groups.finish(plan, stack)
    if any(flow.after is not None for flow in plan.scenario.flows) or any(
        broker.program == "manager" for broker in stack.brokers
    ):
        plan.unemulated = (
            "flows that pass on the messages of others (after) and managers are predicted and simulated, not emulated"
        )
    plan.notes.append(
        "Every flow instance has its own connection to the broker and from it to each receiver; the unit of a reservation is "
        f"the connection. Declared beyond the flows: a broker without declared or measured times answers within {BROKER_JITTER_NS / 1e6:g} ms "
        f"of its fastest answer, a client within {HOST_JITTER_NS / 1e6:g} ms; TCP sends at most one acknowledgement per segment. A bound "
        "holds while nothing is lost or retransmitted."
    )
    _note_unknown(plan)


def _note_unknown(plan: Plan) -> None:
    """Says whose TCP is somebody else's, and what is assumed of it."""
    ends = dict.fromkeys(end for carrier in plan.carriers.values() for end in (carrier.sender, carrier.receiver))
    unknown = [name for name in ends if not plan.scenario.node(name).sender.known]
    if unknown:
        plan.notes.append(
            f"Nothing is known of TCP of {', '.join(unknown[:5])}{' and others' if len(unknown) > 5 else ''}: bounds count on windows of ten segments "
            "(RFC 6928), which smaller messages are taken to find open, and on no pacing."
        )


def _lay_service(
    connection: Connection,
    service: Service,
    chain: list[Broker],
    listeners: networks.Listeners,
    before: Arrived | None,
    passed_on: Mapping[tuple[str, str], tuple[int, int]],
) -> dict[str, Arrived]:
    """One way of a flow: to the first broker, over bridges to the last, from it to the receivers. Where its messages are then, by broker.

    `before`: its messages are at the first broker already, brought there by another flow. `passed_on`: how many flows take them from a broker,
    and how many of these as soon as the PUBLISH is there.
    """
    flow = connection.flow.name
    others = [passed_on[flow, broker.node] for broker in chain]
    copies = [1] * len(service.via) + [len(service.receivers)]
    found: dict[str, Arrived] = {}
    if before is None:
        before = connection.publish(chain[0], copies[0] + others[0][0], others[0][1])
        found[chain[0].node] = before
    forwarded = before.forwarded
    for place, (here, there) in enumerate(itertools.pairwise(chain), 1):
        port = listeners.get((flow, here.node, there.node), there.port)
        count, at_once = others[place]
        before = connection.bridge(here, there, port, copies[place] + count, forwarded, at_once)
        found[there.node], forwarded = before, before.forwarded
    for receiver in service.receivers:
        connection.deliver(chain[-1], receiver, forwarded)
    return found


def _passed_on(flows: Sequence[Flow]) -> Mapping[tuple[str, str], tuple[int, int]]:
    """(flow, broker) -> how many flows take its messages there to pass them on, and how many of these multicast them."""
    found: dict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for flow in flows:
        if flow.after is not None:
            for service in flow.services:
                place = (flow.after, (*service.via, service.broker)[0])
                copies, at_once = found[place]
                found[place] = (copies, at_once + 1) if flow.multicast else (copies + 1, at_once)
    return found


@dataclass(frozen=True, slots=True)
class _Bridge:
    """A connection between two brokers for one flow; `port` is its listener at `target`."""

    flow: str
    topic: str
    qos: int
    source: str
    target: str
    port: int


def _bridges(plan: Plan, stack: MqttStack, topics: dict[str, str]) -> list[_Bridge]:
    """One bridge for every flow and step of its way from broker to broker.

    Raises:
        PlanError: a topic that the configuration of mosquitto cannot name.
    """
    for index, flow in enumerate(plan.scenario.flows):
        if stack.between == "groups":
            return []
        if any(service.via for service in flow.services) and re.search(r"[\s\"#]", topics[flow.name]):
            raise PlanError(
                f"flows[{index}].topic",
                f"a bridge of mosquitto cannot be told of the topic {topics[flow.name]!r}",
                "name a topic without spaces and quotation marks",
            )
    taken = {broker.port for broker in stack.brokers}
    programs = {broker.node: broker.program for broker in stack.brokers}
    free = (port for port in itertools.count(FIRST_BRIDGE_PORT) if port not in taken)
    return [
        _Bridge(flow.name, topics[flow.name], flow.qos, source, target, next(free))
        for flow in plan.scenario.flows
        for service in flow.services
        for source, target in itertools.pairwise((*service.via, service.broker))
        if "manager" not in (programs[source], programs[target])
    ]


def topics_of(plan: Plan, *, padded: bool = False) -> dict[str, str]:
    """Flow name -> topic. Flows that name the same topic publish below it, each on its own (a connection carries one flow)."""
    publishing = [flow for flow in plan.scenario.flows if flow.after is None]
    users = Counter(flow.topic for flow in publishing)
    numbers: Counter[str] = Counter()
    topics: dict[str, str] = {}
    for flow in publishing:
        numbers[flow.topic] += 1
        width = len(str(users[flow.topic])) if padded else 1
        topics[flow.name] = flow.topic if users[flow.topic] == 1 else f"{flow.topic}/{numbers[flow.topic]:0{width}}"
    after = {flow.name: flow.after for flow in plan.scenario.flows}
    for name, before in after.items():
        while before is not None and before not in topics:
            before = after[before]
        if before is not None:
            topics[name] = topics[before]
    return topics


def _add_brokers(plan: Plan, stack: MqttStack, bridges: list[_Bridge], topics: Mapping[str, str]) -> None:
    """The brokers as programs. Those that others forward to come first: a bridge that finds nobody waits a second."""
    depth: dict[str, int] = {}
    for flow in plan.scenario.flows:
        for service in flow.services:
            for place, name in enumerate(reversed((*service.via, service.broker))):
                depth[name] = max(depth.get(name, 0), place)
    for broker in sorted(stack.brokers, key=lambda broker: depth.get(broker.node, 0)):
        plan.role(broker.node, "broker")
        if broker.program == "manager":
            continue
        if stack.reserved:
            _add_broker(plan, broker, bridges, topics, "127.0.0.1", reserved.BROKER_PORT)
        else:
            _add_broker(plan, broker, bridges, topics, "0.0.0.0", broker.port)
    for broker in stack.brokers:
        _await_bridges(plan, broker.node, bridges)
    if stack.reserved:
        reserved.lay(plan, stack)


def _add_broker(
    plan: Plan, broker: Broker, bridges: list[_Bridge], topics: Mapping[str, str], bind: str, port: int
) -> None:
    name = f"broker-{broker.node}"
    if broker.program == "embedded":
        argv = [sys.executable, "-m", "timebound.node", "broker", "--bind", bind, "--port", str(port)]
        argv += [word for topic in _without_header(plan.scenario.flows, topics) for word in ("--short", topic)]
    else:
        configuration = f"{name}.conf"
        lines = mosquitto_configuration([port, *(b.port for b in bridges if b.target == broker.node)], bind)
        for number, bridge in enumerate(bridges):
            if bridge.source == broker.node:
                lines += _bridge_configuration(number, bridge, plan.addresses[bridge.target])
        plan.files[configuration] = "\n".join([*lines, ""])
        argv = ["mosquitto", "-c", configuration]
    plan.programs.append(
        {
            "name": name,
            "node": broker.node,
            "argv": argv,
            "essential": True,
            "ready": {"tcp_port": port, "timeout_ms": 15_000},
        }
    )


def _without_header(flows: Sequence[Flow], topics: Mapping[str, str]) -> list[str]:
    """Topics of the messages that bear no measurement header: they have no room for one, or a program publishes them."""
    return sorted({topics[flow.name] for flow in flows if flow.size_bytes < MEASUREMENT_HEADER_BYTES or flow.is_own})


def _await_bridges(plan: Plan, node: str, bridges: list[_Bridge]) -> None:
    """Nothing is measured before the bridges of a node stand: a program of the node looks for their connections, and ends."""
    targets = [f"{plan.addresses[bridge.target]}:{bridge.port}" for bridge in bridges if bridge.source == node]
    if not targets:
        return
    ready = f"broker-{node}-bridges.ready"
    argv = [sys.executable, "-m", "timebound.node", "bridges", "--ready", ready]
    plan.programs.append(
        {
            "name": f"broker-{node}-bridges",
            "node": node,
            "argv": [*argv, *(word for target in targets for word in ("--to", target))],
            "essential": False,
            "ready": {"file": ready, "timeout_ms": 30_000},
        }
    )


def mosquitto_configuration(ports: list[int], bind: str = "0.0.0.0") -> list[str]:
    """The lines of a mosquitto that listens at these ports, keeps nothing and holds nothing back."""
    return [
        *(f"listener {port} {bind}" for port in ports),
        "allow_anonymous true",
        "persistence false",
        # Without it Nagle's algorithm holds back messages for up to 40 ms.
        "set_tcp_nodelay true",
        "max_queued_messages 100000",
        "max_inflight_messages 0",
        # Stay who we are: in the run's own user namespace there is nobody else.
        "user root",
        "log_dest stdout",
    ]


def _bridge_configuration(number: int, bridge: _Bridge, address: str) -> list[str]:
    """A connection that forwards the topic of one flow and nothing else (mosquitto.conf(5), section Configuring Bridges)."""
    return [
        "",
        f"connection bridge{number}",
        f"address {address}:{bridge.port}",
        f"topic {bridge.topic} out {bridge.qos}",
        # As a bridge of MQTT 5, mosquitto 2.0.11 with max_inflight_messages sends a CONNECT that other brokers refuse.
        "bridge_protocol_version mqttv311",
        f"remote_clientid tbbridge{number:06d}",
        f"local_clientid tblocal{number:06d}",
        "cleansession true",
        # Neither the bridge's state ($SYS) nor its marks in packets: what crosses the network is the flow.
        "notifications false",
        "try_private false",
        "bridge_attempt_unsubscribe false",
        f"keepalive_interval {KEEP_ALIVE_S}",
        "restart_timeout 1",
    ]


def _add_client(
    plan: Plan,
    stack: MqttStack,
    ports: Counter[str],
    node: str,
    name: str,
    broker: Broker,
    flow: Flow,
    role: dict[str, object],
    start_ns: int,
) -> int:
    """Adds a client that belongs to `flow`; its local port."""
    port = FIRST_CLIENT_PORT + ports[node]
    ports[node] += 1
    if stack.reserved and flow.asks:
        role, asked = reserved.asking(flow, role)
    else:
        asked = []
    plan.clients.append(
        {
            "name": name,
            "node": node,
            # Letters and digits alone: brokers may refuse anything else (MQTT 5.0, section 3.1.3.1).
            "client_id": f"tb{len(plan.clients):06d}",
            "protocol": 5 if stack.version == "5" else 4,
            "broker": plan.addresses[broker.node],
            "port": broker.port,
            "local_address": plan.addresses[node],
            "local_port": port,
            "dscp": flow.priority * release.DSCP_PER_CLASS,
            "keep_alive_s": KEEP_ALIVE_S,
            "connect_at_ns": start_ns or None,
            "user_properties": asked,
            "role": role,
        }
    )
    return port
