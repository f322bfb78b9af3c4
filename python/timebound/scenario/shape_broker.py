"""The shape of what a scenario says of a broker's own time."""

from __future__ import annotations

from pydantic import Field

from timebound.scenario.fields import Cost, Shape, Time


class BrokerTimes(Shape):
    """A broker's own time, declared by hand: it deals with one packet after another, in the order of their arrival. What is left
    out is zero."""

    latency: Time = Field(
        default=0, description="added to every packet's time, without keeping others waiting", examples=["200 us"]
    )
    per_message: Time = Field(default=0, description="work on each PUBLISH received", examples=["20 us"])
    per_copy: Time = Field(default=0, description="work on each copy of it sent", examples=["10 us"])
    per_byte: Cost = Field(
        default=0, description="work on each byte of a PUBLISH received or of a copy sent", examples=["0.5 ns"]
    )
    per_acknowledgement: Time = Field(
        default=0,
        description="work on each PUBACK, PUBREC, PUBREL, PUBCOMP and PINGREQ received",
        examples=["10 us"],
    )
