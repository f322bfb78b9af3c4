"""A broker in each edge network: a publisher uses that of its network, and what receivers of other networks want goes from there to theirs.

`mqtt-bridged`: over a bridge for every flow and network. Everybody else's part of a message's way is as with one broker.
"""

from __future__ import annotations

from collections.abc import Mapping

from timebound.scenario.model import Broker
from timebound.stacks.mqtt_connection import Connection

Listeners = Mapping[tuple[str, str, str], int]
"""(flow, broker, next broker) -> port of the bridge's listener there."""


def lay(connection: Connection, brokers: Mapping[str, Broker], listeners: Listeners) -> None:
    """Lays a flow: to the broker of its network, from there to the others', from each to its receivers."""
    flow = connection.flow
    if not flow.services:
        return
    first = flow.services[0]
    home = brokers[first.via[0] if first.via else first.broker]
    local = [receiver for service in flow.services if not service.via for receiver in service.receivers]
    remote = [service for service in flow.services if service.via]
    arrived = connection.publish(home, len(local) + len(remote)).forwarded
    for service in remote:
        broker = brokers[service.broker]
        port = listeners[flow.name, home.node, broker.node]
        there = connection.bridge(home, broker, port, len(service.receivers), arrived).forwarded
        for receiver in service.receivers:
            connection.deliver(broker, receiver, there)
    for receiver in local:
        connection.deliver(home, receiver, arrived)
