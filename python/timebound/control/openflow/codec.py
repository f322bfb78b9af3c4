"""Rules, meters and groups as OpenFlow 1.3 messages and back. The bytes are os-ken's work."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from timebound.control.openflow.rules import (
    CONTROLLER,
    WHOLE_FRAME,
    Action,
    Bucket,
    Difference,
    Group,
    Match,
    MatchValue,
    Meter,
    Output,
    Rule,
    SetField,
    SetQueue,
    ToGroup,
    match,
)

Message = Any
"""A message of os-ken, which has no types."""
Datapath = Any
"""What os-ken's messages want to know: protocol version and parser (`ofproto_protocol.ProtocolDesc`)."""

TABLE = 0
PORT_DOWN_STATES = ofp.OFPPS_LINK_DOWN | ofp.OFPPS_BLOCKED


class NotOurKindError(ValueError):
    """A rule, meter or group that this controller would never have written."""


class _Match(parser.OFPMatch):  # type: ignore[misc]
    """A match as os-ken's messages take it. Its own encodes every field anew each time, which is most of the time that a rule takes."""

    def __init__(self, fields: Match) -> None:
        # Fields in the order of their numbers: what a field depends on comes before it (OpenFlow 1.3.5, section 7.2.3.6).
        body = b"".join(encoded for _number, encoded in sorted(_field(name, value) for name, value in fields))
        size = 4 + len(body)
        self._bytes = struct.pack("!HH", ofp.OFPMT_OXM, size) + body + bytes(-size % 8)

    def serialize(self, buffer: bytearray, offset: int) -> int:
        """Appends itself to a message that ends at `offset`."""
        del buffer[offset:]
        buffer += self._bytes
        return len(self._bytes)


@functools.lru_cache(maxsize=1 << 14)
def _field(name: str, value: MatchValue) -> tuple[int, bytes]:
    number, plain, mask = ofp.oxm_from_user(name, value)
    encoded = bytearray()
    ofp.oxm_serialize(number, plain, mask, encoded, 0)
    return number, bytes(encoded)


def rule_messages(switch: Datapath, diff: Difference) -> list[Message]:
    """What carries out a difference, without a barrier. The order is the one that `Difference` asks for."""
    messages = [meter_mod(switch, meter, ofp.OFPMC_ADD) for meter in diff.meters]
    messages += [meter_mod(switch, meter, ofp.OFPMC_MODIFY) for meter in diff.changed_meters]
    messages += [group_mod(switch, group, ofp.OFPGC_ADD) for group in diff.groups]
    messages += [group_mod(switch, group, ofp.OFPGC_MODIFY) for group in diff.changed_groups]
    messages += [flow_mod(switch, rule) for rule in diff.rules]
    messages += [flow_removal(switch, rule) for rule in diff.stale_rules]
    messages += [parser.OFPGroupMod(switch, ofp.OFPGC_DELETE, ofp.OFPGT_FF, group) for group in diff.stale_groups]
    messages += [parser.OFPMeterMod(switch, ofp.OFPMC_DELETE, 0, meter) for meter in diff.stale_meters]
    return messages


def flow_mod(switch: Datapath, rule: Rule) -> Message:
    """Adds a rule, or replaces the one with the same key (counters start again)."""
    instructions: list[Any] = []
    if rule.meter is not None:
        instructions.append(parser.OFPInstructionMeter(rule.meter, ofp.OFPIT_METER))
    if rule.actions:
        instructions.append(parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, list(actions_of(rule.actions))))
    return parser.OFPFlowMod(
        datapath=switch,
        cookie=rule.cookie,
        table_id=TABLE,
        command=ofp.OFPFC_ADD,
        priority=rule.priority,
        match=_Match(rule.match),
        instructions=instructions,
    )


def flow_removal(switch: Datapath, rule: Rule) -> Message:
    """Takes out one rule."""
    return parser.OFPFlowMod(
        datapath=switch,
        cookie=rule.cookie,
        cookie_mask=(1 << 64) - 1,
        table_id=TABLE,
        command=ofp.OFPFC_DELETE_STRICT,
        priority=rule.priority,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=_Match(rule.match),
    )


def meter_mod(switch: Datapath, meter: Meter, command: int) -> Message:
    """Adds or changes a meter with a single drop band."""
    unit = ofp.OFPMF_PKTPS if meter.packets else ofp.OFPMF_KBPS
    bands = [parser.OFPMeterBandDrop(rate=meter.rate, burst_size=meter.burst)]
    return parser.OFPMeterMod(switch, command, unit | ofp.OFPMF_BURST, meter.id, bands)


def group_mod(switch: Datapath, group: Group, command: int) -> Message:
    """Adds or changes a group."""
    buckets = [
        parser.OFPBucket(watch_port=bucket.watch_port, actions=list(actions_of(bucket.actions)))
        for bucket in group.buckets
    ]
    return parser.OFPGroupMod(switch, command, ofp.OFPGT_ALL if group.all else ofp.OFPGT_FF, group.id, buckets)


def actions_of(actions: Iterable[Action]) -> Iterable[Any]:
    """Actions as os-ken has them."""
    for action in actions:
        match action:
            case Output(port):
                yield parser.OFPActionOutput(port, WHOLE_FRAME if port == CONTROLLER else 0)
            case SetField(name, value):
                yield parser.OFPActionSetField(**{name: value})
            case SetQueue(queue):
                yield parser.OFPActionSetQueue(queue)
            case ToGroup(group):
                yield parser.OFPActionGroup(group)


def packet_out(
    switch: Datapath, frame: bytes, actions: Iterable[Action], in_port: int = ofp.OFPP_CONTROLLER
) -> Message:
    """A frame for a switch to send; `Output(OFPP_TABLE)` sends it through the switch's own rules, as if it had come in at `in_port`."""
    return parser.OFPPacketOut(switch, ofp.OFP_NO_BUFFER, in_port, list(actions_of(actions)), data=frame)


def rule_from(stats: Any) -> Rule:
    """A rule as a switch describes it (`OFPFlowStats`). Raises `NotOurKindError` for what `Rule` cannot say."""
    meter: int | None = None
    actions: list[Action] = []
    for instruction in stats.instructions:
        if instruction.type == ofp.OFPIT_METER:
            meter = int(instruction.meter_id)
        elif instruction.type == ofp.OFPIT_APPLY_ACTIONS:
            actions += [action_from(action) for action in instruction.actions]
        else:
            raise NotOurKindError(f"instruction {instruction.type}")
    if stats.table_id != TABLE or stats.idle_timeout or stats.hard_timeout:
        raise NotOurKindError("another table, or a rule that ends")
    return Rule(int(stats.priority), match(**dict(stats.match.items())), tuple(actions), int(stats.cookie), meter)


def action_from(action: Any) -> Action:
    """An action as os-ken has it. Raises `NotOurKindError`."""
    if isinstance(action, parser.OFPActionOutput):
        return Output(int(action.port))
    if isinstance(action, parser.OFPActionSetField):
        return SetField(str(action.key), action.value)
    if isinstance(action, parser.OFPActionSetQueue):
        return SetQueue(int(action.queue_id))
    if isinstance(action, parser.OFPActionGroup):
        return ToGroup(int(action.group_id))
    raise NotOurKindError(f"action {getattr(action, 'type', action)}")


def meter_from(stats: Any) -> Meter:
    """A meter as a switch describes it (`OFPMeterConfigStats`). Raises `NotOurKindError`."""
    bands = list(stats.bands)
    if len(bands) != 1 or not isinstance(bands[0], parser.OFPMeterBandDrop):
        raise NotOurKindError("a meter that does more than drop")
    packets = bool(stats.flags & ofp.OFPMF_PKTPS)
    return Meter(int(stats.meter_id), int(bands[0].rate), int(bands[0].burst_size), packets)


def group_from(stats: Any) -> Group:
    """A group as a switch describes it (`OFPGroupDescStats`). Raises `NotOurKindError`."""
    if stats.type not in (ofp.OFPGT_FF, ofp.OFPGT_ALL):
        raise NotOurKindError("neither a fast-failover nor a multicast group")
    buckets = tuple(
        Bucket(int(bucket.watch_port), tuple(action_from(action) for action in bucket.actions))
        for bucket in stats.buckets
    )
    return Group(int(stats.group_id), buckets, all=stats.type == ofp.OFPGT_ALL)
