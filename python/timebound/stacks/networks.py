"""A broker in each edge network: a publisher uses that of its network, and what receivers of other networks want goes from there to theirs.

`mqtt-bridged`: over a bridge for every flow and network. `mrt-mqtt`, `dm-mqtt`: to a multicast group for every flow. Everybody else's part of a
message's way is as with one broker.
"""

from __future__ import annotations

from collections.abc import Mapping

from timebound.scenario.model import Broker
from timebound.stacks import groups
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
    remote = [(brokers[service.broker], service.receivers) for service in flow.services if service.via]
    if connection.stack.between == "groups":
        arrived = connection.publish(home, len(local), 1 if remote else 0)
        forwarded, brought = groups.lay(connection, home, [(broker, len(to)) for broker, to in remote], arrived)
    else:
        forwarded = connection.publish(home, len(local) + len(remote)).forwarded
        brought = {
            broker.node: connection.bridge(
                home, broker, listeners[flow.name, home.node, broker.node], len(to), forwarded
            ).forwarded
            for broker, to in remote
        }
    for broker, receivers in remote:
        for receiver in receivers:
            connection.deliver(broker, receiver, brought[broker.node])
    for receiver in local:
        connection.deliver(home, receiver, forwarded)
