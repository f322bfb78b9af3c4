"""Rules, meters and groups of an OpenFlow switch as values that can be compared, and the cookies that say whose they are. Pure.

All rules are in table 0, so that a switch with a single table is enough. Fields have the names of OpenFlow's OXM fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

CONTROLLER = 0xFFFFFFFD
"""OFPP_CONTROLLER."""
ANY_PORT = 0xFFFFFFFF
"""OFPP_ANY: no port is watched."""
WHOLE_FRAME = 0xFFFF
"""OFPCML_NO_BUFFER: the whole frame goes to the controller."""

MatchValue = int | str | tuple[str, str]
Match = tuple[tuple[str, MatchValue], ...]
"""Fields in the order of their names; a pair is value and mask."""


def match(**fields: MatchValue) -> Match:
    """A match by fields."""
    return tuple(sorted(fields.items()))


@dataclass(frozen=True, slots=True)
class Output:
    """Sends the frame out of a port."""

    port: int


@dataclass(frozen=True, slots=True)
class SetField:
    """Writes a header field."""

    name: str
    value: int | str


@dataclass(frozen=True, slots=True)
class SetQueue:
    """Chooses the queue of the ports that follow."""

    queue: int


@dataclass(frozen=True, slots=True)
class ToGroup:
    """Hands the frame to a group."""

    group: int


Action = Output | SetField | SetQueue | ToGroup


class Priority(IntEnum):
    """Of rules, the greater wins."""

    MISS = 0
    """Whatever nothing else takes: to the controller."""
    HOST = 30000
    """Best effort to a known host."""
    IGMP = 34000
    """Hosts say which groups they want. The table says it here, and nobody else is to hear of it."""
    UNKNOWN_PORT = 35000
    """Whatever comes in at a port where no host is known yet: to the controller, which learns who is there."""
    BROADCAST_ARP = 40000
    STRAY_GROUP = 45000
    """A group of ours where nothing is reserved for it: dropped, not flooded."""
    CHANNEL = 50000
    PROBE = 60000
    """A probe at the last switch of its channel: to the controller."""
    RESERVED = 64000
    """Link-local protocols of bridges (IEEE 802.1Q, table 8-1): not forwarded."""
    LLDP = 65000


class Kind(IntEnum):
    """What a rule is for; part of its cookie."""

    FIXED = 1
    """In every switch at all times."""
    HOST = 2
    CHANNEL = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """A flow entry. No actions: the frame is dropped."""

    priority: int
    match: Match
    actions: tuple[Action, ...]
    cookie: int
    meter: int | None = None

    @property
    def key(self) -> tuple[int, Match]:
        """What a switch tells entries apart by."""
        return self.priority, self.match


@dataclass(frozen=True, slots=True)
class Meter:
    """Drops what exceeds a rate."""

    id: int
    rate: int
    """kbit/s, or packets per second."""
    burst: int
    """kbit, or packets."""
    packets: bool = False


@dataclass(frozen=True, slots=True)
class Bucket:
    """One choice of a fast-failover group: taken while its port is alive and none before it is; or one copy of a multicast group (`ANY_PORT`)."""

    watch_port: int
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A fast-failover group: the first bucket whose port is alive; or a multicast group: all buckets, each with a copy."""

    id: int
    buckets: tuple[Bucket, ...]
    all: bool = False
    """Of type ALL."""


@dataclass(slots=True)
class Tables:
    """All that is, or is to be, in one switch."""

    rules: dict[tuple[int, Match], Rule] = field(default_factory=dict)
    meters: dict[int, Meter] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)

    def add(self, rules: Iterable[Rule] = (), meters: Iterable[Meter] = (), groups: Iterable[Group] = ()) -> None:
        """Puts in, or in the place of what has the same key."""
        self.rules.update((rule.key, rule) for rule in rules)
        self.meters.update((meter.id, meter) for meter in meters)
        self.groups.update((group.id, group) for group in groups)


@dataclass(frozen=True, slots=True)
class Difference:
    """What leads from what a switch has to what it is to have, in the order in which it is to be done: meters and groups before the rules that
    need them, and out only after those rules are out.
    """

    meters: tuple[Meter, ...] = ()
    changed_meters: tuple[Meter, ...] = ()
    groups: tuple[Group, ...] = ()
    changed_groups: tuple[Group, ...] = ()
    rules: tuple[Rule, ...] = ()
    stale_rules: tuple[Rule, ...] = ()
    stale_groups: tuple[int, ...] = ()
    stale_meters: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


def difference(present: Tables, wanted: Tables, *, remove: bool = True) -> Difference:
    """`remove` false: nothing is taken out (rules of others, without our cookies, never are; they are not even in `present`)."""
    stale = [rule for key, rule in present.rules.items() if key not in wanted.rules] if remove else []
    return Difference(
        meters=tuple(meter for id, meter in wanted.meters.items() if id not in present.meters),
        changed_meters=tuple(m for id, m in wanted.meters.items() if id in present.meters and present.meters[id] != m),
        groups=tuple(group for id, group in wanted.groups.items() if id not in present.groups),
        changed_groups=tuple(g for id, g in wanted.groups.items() if id in present.groups and present.groups[id] != g),
        rules=tuple(rule for key, rule in wanted.rules.items() if present.rules.get(key) != rule),
        stale_rules=tuple(stale),
        stale_groups=tuple(id for id in present.groups if id not in wanted.groups) if remove else (),
        stale_meters=tuple(id for id in present.meters if id not in wanted.meters) if remove else (),
    )


_OURS = 0x7462 << 48
OWNER_MASK = 0xFFFF << 48
_VALUE_BITS = 40
_VALUE_MASK = (1 << _VALUE_BITS) - 1


def cookie(kind: Kind, value: int) -> int:
    """16 bits that say that a rule is ours, 8 for its kind, 40 for whose it is."""
    return _OURS | kind << _VALUE_BITS | value & _VALUE_MASK


def kind_of(number: int) -> Kind | None:
    """The kind of a rule of ours; `None`: somebody else's."""
    if number & OWNER_MASK != _OURS:
        return None
    try:
        return Kind(number >> _VALUE_BITS & 0xFF)
    except ValueError:
        return None


def value_of(number: int) -> int:
    """What a cookie says beside owner and kind."""
    return number & _VALUE_MASK


def is_ours(number: int) -> bool:
    """Has a controller like this one written this cookie, in this version or another?"""
    return number & OWNER_MASK == _OURS


def channel_cookie(channel: str) -> int:
    """The cookie of all rules of a channel: a hash of its id, so that a controller that knows the id finds them again."""
    digest = hashlib.blake2b(channel.encode(), digest_size=_VALUE_BITS // 8, person=b"tb channel").digest()
    return cookie(Kind.CHANNEL, int.from_bytes(digest, "big"))
