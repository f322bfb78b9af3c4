"""Who may ask for what. Pure: rules, a request and what is held already go in, a decision with its rule comes out.

The first rule that applies decides; where none does, the default. A rule applies when all that it states matches. That is asked of a request for
a filter in two ways: a rule that allows must cover the filter, or somebody would get with `plant/#` what only `plant/alarm` gives; a rule that
denies applies as soon as the filter meets it, or somebody would get with `#` what `secret/#` denies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Literal

from timebound.control.manager.topics import covers, meets
from timebound.control.srt.columns import GREATEST
from timebound.control.srt.rows import Requirements, Side

Per = Literal["client", "user", "certificate", "address"]
DEFAULT_FLOWS = 64
"""Requests that a client may have at a time where no rule of the site applies."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a rule lets through; `None`: any."""

    priority: int | None = None
    bandwidth_bps: int | None = None
    flows: int | None = None
    deadline_ns: int | None = None
    """The least."""
    per: Per = "client"
    """Bandwidth and flows count for each of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of the site; `None`: whatever it is. Texts may have `*`, `?` and `[...]` (fnmatch, with case)."""

    name: str
    users: tuple[str, ...] | None = None
    clients: tuple[str, ...] | None = None
    certificates: tuple[str, ...] | None = None
    addresses: tuple[IPv4Network | IPv6Network, ...] | None = None
    topics: tuple[str, ...] | None = None
    side: Side | None = None
    allow: bool = True
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Policy:
    """All rules, in their order, and what holds where none applies."""

    rules: tuple[Rule, ...] = ()
    default: Rule = field(default_factory=lambda: default_rule(allow=True))


def default_rule(*, allow: bool) -> Rule:
    """What holds where no rule applies."""
    return Rule(name="default", allow=allow, limits=Limits(flows=DEFAULT_FLOWS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who asks, as the manager knows it."""

    client_id: str
    address: str
    user: str | None = None
    certificate: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A request that was let through and is there still."""

    rule: str
    key: str
    """Of whom it counts for (`Limits.per`)."""
    bandwidth_bps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What became of a request."""

    rule: str
    reason: str = ""
    """Why it may not be asked for, with the rule's name; empty: it may."""
    requirements: Requirements
    """As they are to be asked for: a rule that limits the priority sets it where nothing was said."""
    held: Held

    @property
    def allowed(self) -> bool:
        """May it be asked for?"""
        return not self.reason


def decide(
    policy: Policy,
    asker: Asker,
    side: Side,
    topic: str,
    needs: Requirements,
    held: Callable[[str, str], Collection[Held]],
) -> Decision:
    """May this be asked for? `held`: what counts against it, by rule and by whom it counts for; this request not among it."""
    rule = next((rule for rule in policy.rules if _applies(rule, asker, side, topic)), policy.default)
    if rule.limits.priority is not None and needs.priority is None:
        needs = replace(needs, priority=rule.limits.priority)
    mine = Held(rule=rule.name, key=_key(rule.limits.per, asker), bandwidth_bps=bandwidth_bps(needs) or 0)
    reason = _unstorable(needs) or ("" if rule.allow else "nothing may be asked for here")
    reason = reason or _beyond(rule.limits, needs, held(mine.rule, mine.key))
    said = f"rule {rule.name!r}: {reason}" if reason else ""
    return Decision(rule=rule.name, reason=said, requirements=needs, held=mine)


def bandwidth_bps(needs: Requirements) -> int | None:
    """What a request takes: the greatest bandwidth that it states, else its payload by its period, rounded up; `None`: it does not say."""
    if needs.bandwidth_bps is not None:
        return max(needs.bandwidth_bps)
    if needs.size_bytes is None or not needs.period_ns:
        return None
    return -(-needs.size_bytes * 8 * 1_000_000_000 // needs.period_ns)


def _applies(rule: Rule, asker: Asker, side: Side, topic: str) -> bool:
    if rule.side is not None and rule.side is not side:
        return False
    for patterns, value in (
        (rule.users, asker.user),
        (rule.clients, asker.client_id),
        (rule.certificates, asker.certificate),
    ):
        if patterns is not None and not (value is not None and any(_pattern(each).match(value) for each in patterns)):
            return False
    if rule.addresses is not None:
        address = ip_address(asker.address)
        address = getattr(address, "ipv4_mapped", None) or address
        if not any(address in network for network in rule.addresses):
            return False
    holds = covers if rule.allow else meets
    return rule.topics is None or any(holds(each, topic) for each in rule.topics)


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(translate(text))


def _key(per: Per, asker: Asker) -> str:
    values = {"client": asker.client_id, "user": asker.user, "certificate": asker.certificate, "address": asker.address}
    return values[per] or ""


def _unstorable(needs: Requirements) -> str:
    numbers = (
        needs.deadline_ns,
        needs.period_ns,
        needs.jitter_ns,
        needs.size_bytes,
        needs.transmission_ns,
        *(needs.bandwidth_bps or ()),
    )
    return "a number is out of range" if any(number is not None and number > GREATEST for number in numbers) else ""


def _beyond(limits: Limits, needs: Requirements, others: Collection[Held]) -> str:
    if limits.priority is not None and needs.priority is not None and needs.priority > limits.priority:
        return f"priority {limits.priority} at most"
    if limits.deadline_ns is not None and needs.deadline_ns is not None and needs.deadline_ns < limits.deadline_ns:
        return f"a deadline of {limits.deadline_ns / 1e6:g} ms or more"
    if limits.flows is not None and len(others) >= limits.flows:
        return f"{limits.flows} requests per {limits.per} at most"
    if limits.bandwidth_bps is not None:
        asked = bandwidth_bps(needs)
        if asked is None:
            return "bandwidth is limited here: state a bandwidth, or a period"
        taken = sum(other.bandwidth_bps for other in others)
        if taken + asked > limits.bandwidth_bps:
            rest = max(0, limits.bandwidth_bps - taken)
            return f"{_rate(limits.bandwidth_bps)} per {limits.per} at most ({_rate(rest)} left)"
    return ""


def _rate(bps: int) -> str:
    for factor, unit in ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s")):
        if bps >= factor:
            return f"{bps / factor:g} {unit}"
    return f"{bps} bit/s"
