"""The shape of `stack`: what carries the flows, and the brokers."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from timebound.scenario.fields import NodeNames, Shape, Short, fail, one_of
from timebound.scenario.shape_broker import BrokerTimes
from timebound.scenario.written import TextForm, value_of


class Broker(Shape):
    """A broker. `broker: h5` is short for `broker: {node: h5}`; a list names several."""

    node: str = Field(description="host on which it runs", examples=["h5"])
    program: Literal["embedded", "mosquitto", "manager"] | None = Field(
        default=None,
        description="embedded: comes with Timebound, the default; mosquitto: the system's, the default of mqtt-bridged, dm-mqtt and mrt-mqtt; manager: no broker, but an "
        "intermediary that passes messages on both ways (not emulated)",
        examples=["mosquitto"],
    )
    port: int = Field(default=1883, ge=1, le=65535, description="TCP port", examples=[1883])
    hosts: NodeNames | None = Field(
        default=None,
        description="hosts whose broker this is, with several brokers: their edge network; default: those that have no nearer broker",
        examples=[["h[1-5]"]],
    )
    profile: str | None = Field(
        default=None,
        description="its own time as `timebound profile-broker` measured it: a file, relative to this one (docs/broker.md)",
        examples=["mosquitto.json"],
    )
    service: BrokerTimes | None = Field(
        default=None,
        description="its own time, declared by hand; without it and without a profile end-to-end figures leave it out",
        examples=[{"latency": "200 us", "per-message": "20 us", "per-copy": "10 us"}],
    )


def _broker(value: Any) -> Any:
    return {"node": value} if isinstance(value, str) else value


def _brokers(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


BrokerField = Annotated[Broker, Short(_broker, {"type": "string"}), TextForm()]


class Mqtt(Shape):
    """MQTT over TCP. With several brokers each receiver is served by its nearest one (fewest links, ties by the order
    here), or by the one whose `hosts` name it; how messages get there differs from stack to stack."""

    broker: Annotated[list[BrokerField], Short(_brokers, {"type": "string"}, {"type": "object"})] = Field(
        min_length=1, description="broker or brokers", examples=["h5"]
    )
    version: Literal["5", "3.1.1"] = Field(default="5", description="version of the protocol", examples=["3.1.1"])
    clients: Literal["auto", "shared", "per-node"] = Field(
        default="auto",
        description="processes of the built-in clients. shared: one with real-time priority, for exact releases; per-node: "
        "one for each host, whose CPU time and memory are the host's; auto: per-node where a host has limits or orders",
        examples=["per-node"],
    )
    connections: Literal["per-flow", "per-node"] = Field(
        default="per-flow",
        description="per-flow: each flow instance has its own, so that it can have its own class and bounds; per-node: one "
        "for all that a host publishes (one flow) and receives, as most devices do, without bounds",
        examples=["per-node"],
    )
    priorities: bool | None = Field(
        default=None,
        description="mqtt and mqtt-bridged: false puts every flow into class 0, whatever its priority, as a network does that knows nothing of them; "
        "default: true",
        examples=[False],
    )


class Udp(Shape):
    """One datagram per message and receiver, or one to a multicast group."""

    multicast: bool = Field(default=False, description="send to a group instead of each receiver", examples=[True])


MqttKind = Literal["mqtt", "mqtt-bridged", "rt-mqtt", "dm-mqtt", "mrt-mqtt"]
MQTT_STACKS: tuple[MqttKind, ...] = ("mqtt", "mqtt-bridged", "rt-mqtt", "dm-mqtt", "mrt-mqtt")
"""As written in the file."""


def _version(value: Any) -> Any:
    """Without quotes the version 5 is a number."""
    if isinstance(value, dict) and value_of(value.get("version")) in (5, 5.0):
        return {**value, "version": "5"}
    return value


MqttField = Annotated[Mqtt, Short(_version)] | None


class Stack(Shape):
    """What carries the messages: exactly one of the stacks."""

    instead_of: ClassVar = one_of(*MQTT_STACKS, "udp")
    mqtt: MqttField = Field(
        default=None, description="MQTT; with several brokers a publisher sends a copy to each that serves a receiver"
    )
    mqtt_bridged: MqttField = Field(
        default=None,
        description="MQTT with a broker in each edge network: publishers and receivers use the broker of their network, and mosquitto's bridges "
        "carry a copy to each other broker that serves a receiver (docs/edge-networks.md)",
    )
    rt_mqtt: MqttField = Field(
        default=None,
        description="MQTT with guaranteed channels: before each broker stands `timebound manager`, at the real switches `timebound controller`; clients "
        "of flows with a deadline ask for it in user properties (docs/rt-mqtt.md)",
    )
    dm_mqtt: MqttField = Field(
        default=None,
        description="as mrt-mqtt, but all channels in one class: bandwidth is reserved, and nobody comes before anybody else (docs/edge-networks.md)",
    )
    mrt_mqtt: MqttField = Field(
        default=None,
        description="rt-mqtt with a broker in each edge network: between the networks messages go by multicast, in channels (docs/edge-networks.md)",
    )
    udp: Annotated[Udp, Short(lambda value: {} if value is None else value)] | None = Field(
        default=None, description="UDP"
    )

    def mqtt_stack(self) -> tuple[MqttKind, Mqtt] | None:
        """Name in the file and content of the MQTT stack; `None` where it is another one."""
        for name in MQTT_STACKS:
            found = getattr(self, name.replace("-", "_"))
            if found is not None:
                return name, found
        return None


def stack_field(value: Any) -> Any:
    """`stack: udp` is short; of several stacks none is meant."""
    if isinstance(value, str):
        value = {value: {}}
    if isinstance(value, dict):
        if len(value) != 1:
            raise fail(
                "state exactly one stack",
                "stack: {mqtt: {broker: h5}}, stack: {rt-mqtt: {broker: h5}} or stack: {udp: {}}",
            )
        return {key: {} if value_of(inner) is None else inner for key, inner in value.items()}
    return value
