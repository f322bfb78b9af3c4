"""What a site says of itself, as the planner needs it. Everything has a default that errs on the safe side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from timebound.control.srt.rows import ConnectionRow
from timebound.scenario.framing import ETHERNET, Framing
from timebound.scenario.model_broker import BrokerService

MOST_URGENT, LEAST_URGENT = 6, 1
"""Classes that are given away. 7 is the network's own (probes, control), 0 is best effort."""
ONE_CLASS = 4
"""That of everything that is reserved where nothing goes before anything (`Site.priorities`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A broker, with the manager where both are on one host."""

    service: BrokerService | None
    """`None`: nothing is known; then bounds leave its time out, and what it sends has the jitter that stacks declare for such a broker."""
    program: Literal["embedded", "mosquitto"] = "mosquitto"


ASSUMED = Server(
    service=BrokerService(
        latency_ns=1_000_000, message_ns=60_000, copy_ns=30_000, byte_ps=2_000, acknowledgement_ns=20_000
    )
)
"""Declared for a manager and broker of which a site says nothing: several times what mosquitto and the manager take on a small machine
(docs/broker.md: an assumption, to be replaced by a profile)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Assumptions and choices of a site."""

    servers: Mapping[str, Server] = field(default_factory=dict)
    """By the manager's id."""
    default_server: Server = ASSUMED
    manager_service: BrokerService = field(
        default=BrokerService(
            latency_ns=500_000, message_ns=20_000, copy_ns=10_000, byte_ps=1_000, acknowledgement_ns=10_000
        )
    )
    """Of a manager whose broker is on another host, alone."""
    jitter_ns: int = 1_000_000
    """Release jitter of publishers that state none."""
    properties_bytes: int = 256
    """Room for the properties of each PUBLISH (attributes among them), beside the payload."""
    host_queue: Literal["fifo", "strict-priority"] = "fifo"
    """How the network cards of hosts serve: unmodified clients do not sort."""
    buffer_bytes: int = 256 * 1024
    """Room of each class's queue at switches and hosts, wire bytes."""
    mtu: int = ETHERNET.mtu
    framing: Framing = ETHERNET
    """How long frames are."""
    reservable: float = 1.0
    """Greatest share of a port that may be reserved, 0 to 1."""
    meter_slack_bytes: int = 0
    """What meters let pass beyond the declared bursts. Software switches that wait for the processor see frames at once that came one after the
    other, and would drop them; but a client that breaks its word can use it, too, and bounds do not know of it."""
    class_limits_ns: tuple[int, ...] = (2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000)
    """Deadline-monotonic classes: a deadline of at most the first has class 6, of at most the second 5, and so on; longer ones have class 1."""
    priorities: bool = True
    """`False`: everything that is reserved has one class, and is served first in, first out (DM-MQTT, against which MRT-MQTT compares itself)."""
    candidates: int = 4
    """Ways that are tried for a connection."""
    trials: int = 24
    """Decisions that the search for an offer may take."""

    def server(self, manager: str) -> Server:
        """The server behind (and with) a manager."""
        return self.servers.get(manager, self.default_server)

    @property
    def lowest(self) -> int:
        """The class of who has no wish and no deadline."""
        return LEAST_URGENT if self.priorities else ONE_CLASS

    def class_of(self, deadline_ns: int) -> int:
        """The class of a deadline: shorter ones never have a lower class (deadline-monotonic, Leung and Whitehead 1982)."""
        if not self.priorities:
            return ONE_CLASS
        for index, limit in enumerate(self.class_limits_ns):
            if deadline_ns <= limit:
                return MOST_URGENT - index
        return LEAST_URGENT

    def longest_in_class(self, priority: int) -> int | None:
        """The longest deadline that has this class; `None`: there is none."""
        if not self.priorities:
            return None
        index = MOST_URGENT - priority
        return self.class_limits_ns[index] if index < len(self.class_limits_ns) else None


def broker_of(connection: ConnectionRow, manager_broker: tuple[str, int]) -> tuple[str, int]:
    """Which broker serves a connection: managers in front of one broker share its topics."""
    return (connection.broker_leg[2], connection.broker_leg[3]) if connection.broker_leg else manager_broker
