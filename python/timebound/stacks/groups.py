"""`mrt-mqtt` and `dm-mqtt`: every flow with receivers in other networks is a multicast group between managers.

What a group puts on the wire: `peers`. Here: which frames are whose, and what emulation needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from timebound.scenario.model import Broker, MqttStack
from timebound.stacks.group_address import group_of
from timebound.stacks.mqtt_connection import Arrived, Connection, Forwarded
from timebound.stacks.peers import HEADER_BYTES, PART_BYTES, Group
from timebound.stacks.plan import Marker, Plan, PlanError

PEER_PORT = 1_884


def peer_port(brokers: Sequence[Broker]) -> int:
    """The one port of all managers' groups and connections between them: no broker's."""
    taken = {broker.port for broker in brokers}
    return next(port for port in range(PEER_PORT, 65_536) if port not in taken)


def lay(
    connection: Connection, home: Broker, members: list[tuple[Broker, int]], arrived: Arrived
) -> tuple[Forwarded, dict[str, Forwarded]]:
    """Lays a flow's group. `members`: brokers of other networks, and how many copies each sends on.

    Returns what makes the broker of the publisher's network send its copies, and the same of each member.

    Raises:
        PlanError: a publisher of QoS 2 on its broker's host.
    """
    if not members:
        return arrived.forwarded, {}
    plan, flow = connection.plan, connection.flow
    if flow.qos == 2 and arrived.published.stream is None:
        message = f"{flow.name!r} publishes with QoS 2 on the host of its broker {home.node!r}"
        raise PlanError(connection.origin, message, "use QoS 0 or 1, or another host")
    group = Group(connection, home, arrived.published)
    found = group.lay(members)
    for node in found:
        # A member is on the way, and no receiver.
        del plan.segments[flow.name, node], plan.ways[flow.name, node]
    _name_datagrams(connection, home)
    forwarded = arrived.forwarded
    if flow.qos == 2:
        # Its broker may pass a message on when the publisher releases it, and so after all members have taken it.
        forwarded = replace(forwarded, way=group.waiting(forwarded.way))
    return forwarded, {node: there.forwarded for node, there in found.items()}


def _name_datagrams(connection: Connection, home: Broker) -> None:
    """The 5-tuple of a group's datagrams. A message may take several: the first has its measurement header."""
    plan, flow = connection.plan, connection.flow
    group = group_of(connection.topic, flow.priority, plan.groups)
    plan.groups.append(group)
    # First byte, topic and (empty) properties stand before the payload; there is no length (`peer::message`).
    offset = 1 + 2 + len(connection.topic.encode()) + 1
    size = offset + flow.size_bytes
    plan.markers.append(
        Marker(
            source=plan.addresses[home.node],
            destination=group,
            protocol="udp",
            source_port=None,
            destination_port=peer_port(connection.stack.brokers),
            data=f"{flow.name}/multicast",
            header=(HEADER_BYTES + offset, size + HEADER_BYTES * -(-size // PART_BYTES)),
        )
    )


def finish(plan: Plan, stack: MqttStack) -> None:
    """What concerns all flows: frames between managers by their connections, what must be known of them."""
    _name_connections(plan, stack.brokers)
    plan.notes.append(
        "Between networks a message goes once, as multicast datagrams; managers answer each other on one connection per pair, whose frames are counted, but "
        "not told apart by flow. A manager passes a message on within what is declared for brokers."
    )
    if not plan.scenario.real_switches:
        plan.unemulated = f"{stack.kind} reserves in real switches, and there is none (engine: ovs makes switches real)"


def _name_connections(plan: Plan, brokers: Sequence[Broker]) -> None:
    """What managers tell each other about all flows travels on one connection per pair and class: its frames are known as such, not by flow."""
    port = peer_port(brokers)
    known: dict[tuple[str, str], dict[str, str]] = {}
    for stream in plan.streams:
        if "/multicast/" in stream.name and stream.role != "data":
            known.setdefault((stream.source, stream.destinations[0]), {}).setdefault(stream.role, stream.name)
    for (source, target), names in known.items():
        for ends in ((None, port), (port, None)):
            plan.markers.append(
                Marker(
                    source=plan.addresses[source],
                    destination=plan.addresses[target],
                    protocol="tcp",
                    source_port=ends[0],
                    destination_port=ends[1],
                    data=names.get("control"),
                    ack=names.get("ack"),
                )
            )
