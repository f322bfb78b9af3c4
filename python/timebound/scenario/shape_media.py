"""The shape of token buckets and of time slots."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from timebound.scenario.fields import Rate, Shape, Short, Size, Time


class TokenBucket(Shape):
    """What a source promises that has no period: in any time `d` at most `burst` and `rate` times `d`, counted on the wire."""

    rate: Rate = Field(description="rate on the wire, on average", examples=["2 Mbit/s"])
    burst: Size = Field(description="bytes on the wire that may come at once", examples=["10 kB"])


class Slot(Shape):
    """A time in the cycle in which a sender may send. A frame is sent whole within one slot."""

    at: Time = Field(description="start, from the start of the cycle", examples=["2 ms"])
    length: Time = Field(description="length", examples=["1 ms"])


def _slots(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


class Tdma(Shape):
    """Time division: each sender has slots of a cycle that repeats from the start of the run on."""

    cycle: Time = Field(description="length of the cycle", examples=["10 ms"])
    slots: dict[str, Annotated[list[Slot], Short(_slots, {"type": "object"})]] = Field(
        min_length=1,
        description="slots by the node that sends (on a link also `forward` and `backward`); names may be ranges",
        examples=[{"h1": [{"at": "0 ms", "length": "4 ms"}], "h2": [{"at": "4 ms", "length": "4 ms"}]}],
    )
