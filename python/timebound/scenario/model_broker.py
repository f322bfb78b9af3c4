"""What a broker takes over a message: declared, or fitted to a measured profile (docs/broker.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Where the figures of a service come from when they were measured: they held then, and nothing guarantees them."""

    file: str
    """Absolute path of the profile."""
    messages: int
    """How many messages were measured; the latency is the largest of so many."""
    measured: str
    """When, as the profile says (ISO 8601)."""
    program: str
    """Broker and version."""
    largest_bytes: int
    """Largest payload that was measured."""
    largest_fan_out: int
    qos: tuple[int, ...]
    disturbed: bool
    """Was the machine too busy while it was measured?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerService:
    """A broker as a server: it deals with one packet after another in the order of their arrival, each after at most `latency_ns`.

    The work on a PUBLISH is `message_ns`, `copy_ns` for every copy that it sends, and `byte_ps` for every byte of the packet received and
    of every copy; the work on an acknowledgement that it receives (PUBACK, PUBREC, PUBREL, PUBCOMP) and on a PINGREQ is `acknowledgement_ns`.
    """

    latency_ns: int = 0
    """Added once to every response; keeps nobody else waiting."""
    message_ns: int = 0
    copy_ns: int = 0
    byte_ps: int = 0
    """Picoseconds per byte."""
    acknowledgement_ns: int = 0
    measured: Measured | None = None
    """`None`: declared by hand, an assumption like a period."""

    def publish_ns(self, message_bytes: int, copies: int) -> int:
        """Work on a PUBLISH packet of so many bytes that goes to so many receivers (or over so many bridges), rounded upwards."""
        return self.message_ns + self.forward_ns(message_bytes, copies) + -(-message_bytes * self.byte_ps // 1000)

    def forward_ns(self, message_bytes: int, copies: int) -> int:
        """The part of it that sending the copies takes, rounded upwards."""
        return copies * self.copy_ns + -(-message_bytes * copies * self.byte_ps // 1000)
