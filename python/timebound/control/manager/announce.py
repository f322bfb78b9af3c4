"""Retained messages of the manager about itself, published to its broker as a client of its own.

`<topic>/<name>/state` says whether channels are guaranteed now, and why not; the broker publishes its last word (the will) when the manager dies.
`<topic>/<name>/channels/<request>` says what became of a request, `<topic>/<name>/groups/<group>` whether the members of a group are there. Messages about
requests and groups of a former life are removed.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
from contextlib import suppress
from typing import Any

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from timebound.control.manager.configuration import AnnounceConfiguration
from timebound.control.text import json_line

log = logging.getLogger("timebound.manager")

LAST_S = 2.0
"""For the broker's acknowledgement of the last word; who leaves does not wait longer."""


class Announcer:
    """Keeps the broker's retained messages as they should be. It never blocks, and its failure is nobody else's."""

    def __init__(self, said: AnnounceConfiguration, name: str, broker: dict[str, Any]) -> None:
        """`broker`: as the intermediary is told (`Broker` of the contract)."""
        self._channels = said.channels
        self._topic = f"{said.topic}/{name}"
        self._lock = threading.Lock()
        self._wanted: dict[str, str] = {}
        """Text by topic."""
        self._connected = False
        client = Client(CallbackAPIVersion.VERSION2, f"timebound-manager-{name}", protocol=MQTTProtocolVersion.MQTTv311)
        client.on_connect, client.on_disconnect, client.on_message = (
            self._on_connect,
            self._on_disconnect,
            self._on_message,
        )
        client.will_set(f"{self._topic}/state", json.dumps({"state": "gone"}), qos=1, retain=True)
        client.reconnect_delay_set(1, 10)
        client.suppress_exceptions = True
        if said.user is not None:
            client.username_pw_set(said.user, said.password)
        if broker["tls"] is not None:
            client.tls_set_context(_context(broker["tls"]["authority"], broker["tls"]["server_name"]))
        self._client = client
        client.connect_async(broker["address"], broker["port"], keepalive=10)
        client.loop_start()

    def state(self, what: dict[str, Any]) -> None:
        """How the manager is doing."""
        self._publish(f"{self._topic}/state", json_line(what))

    def request(self, id: str, what: dict[str, Any] | None) -> None:
        """What became of a request; `None`: it is gone."""
        if self._channels:
            self._publish(f"{self._topic}/channels/{id}", "" if what is None else json_line(what))

    def group(self, id: str, what: dict[str, Any] | None) -> None:
        """How a group is doing; `None`: it is gone."""
        if self._channels:
            self._publish(f"{self._topic}/groups/{id}", "" if what is None else json_line(what))

    def close(self, last: dict[str, Any]) -> None:
        """Removes what it said of requests and groups, says a last word and leaves."""
        with self._lock:
            topics = [topic for topic in self._wanted if topic != f"{self._topic}/state"]
        for topic in topics:
            self._publish(topic, "")
        self._say_last(f"{self._topic}/state", json_line(last))
        self._client.disconnect()
        self._client.loop_stop()

    def _say_last(self, topic: str, text: str) -> None:
        """Its acknowledgement comes behind all that the broker sends back of what was published before. Whoever closes a connection with unread bytes resets it
        (RFC 2525, section 2.17), and a broker that sees a reset before it has read DISCONNECT publishes the will behind the last word."""
        with self._lock:
            self._wanted[topic] = text
            sent = self._client.publish(topic, text, qos=1, retain=True) if self._connected else None
        if sent is not None:
            # It was not sent after all: the connection has just gone.
            with suppress(RuntimeError, ValueError):
                sent.wait_for_publish(LAST_S)

    def _publish(self, topic: str, text: str) -> None:
        with self._lock:
            if text:
                self._wanted[topic] = text
            else:
                self._wanted.pop(topic, None)
            if self._connected:
                self._client.publish(topic, text, qos=0, retain=True)

    def _on_connect(
        self, client: Client, userdata: Any, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.is_failure:
            log.warning("the broker does not let the manager speak of itself", extra={"why": str(reason)})
            return
        with self._lock:
            self._connected = True
            for topic, text in self._wanted.items():
                client.publish(topic, text, qos=0, retain=True)
        if self._channels:
            client.subscribe([(f"{self._topic}/channels/#", 0), (f"{self._topic}/groups/#", 0)])

    def _on_disconnect(
        self, client: Client, userdata: Any, flags: DisconnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        with self._lock:
            was, self._connected = self._connected, False
        if was and reason.is_failure:
            log.warning("the manager's own connection to the broker was lost", extra={"why": str(reason)})

    def _on_message(self, client: Client, userdata: Any, message: MQTTMessage) -> None:
        """Its own messages come back; of those that it did not write now, the retained ones are of a former life."""
        with self._lock:
            if message.retain and message.payload and message.topic not in self._wanted:
                client.publish(message.topic, "", qos=0, retain=True)


class _NamedContext(ssl.SSLContext):
    """For a broker whose certificate has another name than its address."""

    name: str | None = None

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return super().wrap_socket(
            *arguments, **{**options, "server_hostname": self.name or options["server_hostname"]}
        )


def _context(authority: str, name: str | None) -> ssl.SSLContext:
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.name = name
    context.load_verify_locations(authority)
    return context
