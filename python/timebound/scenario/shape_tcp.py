"""The shape of `tcp` of a host, and what it is resolved to."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from timebound.scenario.context import Context
from timebound.scenario.fields import Shape, Short, Size, fail, to_key
from timebound.scenario.model_tcp import SOMEBODYS
from timebound.scenario.model_tcp import Tcp as Resolved
from timebound.scenario.tree import Path
from timebound.scenario.units import format_size

DEFAULTS: Path = ("network", "defaults", "host")
LEAST_BYTES = 1_000
"""Less than a segment would be no window."""


_KNOWN = (
    "initial-window",
    "slow-start-after-idle",
    "congestion-control",
    "pacing",
    "receive-window",
    "send-buffer",
)


class Tcp(Shape):
    """How much TCP of a host may have under way without an acknowledgement, and how it sends that. `unknown`: somebody else's."""

    instead_of: ClassVar = dict.fromkeys(_KNOWN, frozenset({"unknown"})) | {"unknown": frozenset(_KNOWN)}
    unknown: bool = Field(
        default=False,
        description="somebody else's, of which nothing is known: bounds count on ten segments after idle time (RFC 6928)",
        examples=[True],
    )
    initial_window: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="segments before the first acknowledgement; bounds count on no growth; default: enough for all that can be under way",
        examples=[10],
    )
    slow_start_after_idle: bool = Field(
        default=False, description="does the window begin again after idle time?", examples=[True]
    )
    congestion_control: Literal["cubic", "reno", "bbr"] | None = Field(
        default=None,
        description="what the sender does after losses; bbr paces, which leaves no bound; default: cubic, or reno where nodes may not have cubic",
        examples=["reno"],
    )
    pacing: bool = Field(
        default=False,
        description="does it wait between segments (bbr, the queue fq)? Then there is no bound; only bbr's is emulated",
        examples=[True],
    )
    receive_window: Size | None = Field(
        default=None,
        description="what others may send to it without an acknowledgement, at least; default: enough",
        examples=["64 KiB"],
    )
    send_buffer: Size | None = Field(
        default=None, description="what it has room for to send, at least; default: enough", examples=["64 KiB"]
    )


def _tcp(value: Any) -> Any:
    if value is None:
        raise fail("tcp has no value", "tcp: unknown, tcp: {initial-window: 10}, or remove the key")
    if isinstance(value, str):
        if value != "unknown":
            raise fail("tcp is unknown, or what is known of it", "tcp: unknown, or tcp: {initial-window: 10}")
        return {"unknown": True}
    return value


TcpField = Annotated[Tcp | None, Short(_tcp, {"enum": ["unknown"]})]


def _contradictions(tcp: Tcp, at: Path, context: Context) -> None:
    """What is stated beside its opposite would be dropped without a word."""
    others = sorted(to_key(name) for name in tcp.model_fields_set - {"unknown"})
    if tcp.unknown and others:
        context.error((*at, "unknown"), "what is unknown has nothing stated", f"remove unknown, or {', '.join(others)}")
    elif tcp.congestion_control == "bbr" and "pacing" in tcp.model_fields_set and not tcp.pacing:
        context.error((*at, "pacing"), "bbr paces what it sends", "remove pacing, or state another congestion-control")


def resolve_tcp(
    stated: Tcp | None, host: Tcp | None, path: Path, context: Context, *, emulated: bool
) -> Resolved | None:
    """What a host states, or the default of all hosts; problems go to `context`."""
    tcp = stated or host
    if tcp is None:
        return None
    at = (*(path if stated is not None else DEFAULTS), "tcp")
    _contradictions(tcp, at, context)
    if tcp.unknown:
        return SOMEBODYS
    for key, value in (("receive-window", tcp.receive_window), ("send-buffer", tcp.send_buffer)):
        if value is not None and value < LEAST_BYTES:
            context.error((*at, key), f"{key} of {value} bytes holds no segment", "state 2 kB or more")
    if tcp.pacing and tcp.congestion_control != "bbr" and emulated:
        context.error(
            (*at, "pacing"),
            "emulation paces with bbr alone",
            "add congestion-control: bbr, or state pacing of hosts that are not emulated",
        )
    return Resolved(
        initial_window=tcp.initial_window,
        slow_start_after_idle=tcp.slow_start_after_idle,
        congestion_control=tcp.congestion_control,
        pacing=tcp.pacing,
        receive_window=tcp.receive_window,
        send_buffer=tcp.send_buffer,
    )


def emit_tcp(tcp: Resolved) -> Any:
    """As a scenario says it."""
    if not tcp.known:
        return "unknown"
    found = {
        "initial-window": tcp.initial_window,
        "slow-start-after-idle": tcp.slow_start_after_idle or None,
        "congestion-control": tcp.congestion_control,
        "pacing": tcp.pacing or None,
        "receive-window": None if tcp.receive_window is None else format_size(tcp.receive_window),
        "send-buffer": None if tcp.send_buffer is None else format_size(tcp.send_buffer),
    }
    return {key: value for key, value in found.items() if value is not None}
