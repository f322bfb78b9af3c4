"""The shape of `run.data-plane`: how an emulation moves frames between nodes and the emulated network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from timebound.scenario.fields import Shape

Threads = Literal["auto"] | Annotated[int, Field(ge=0, le=16)]


class DataPlane(Shape):
    """How frames get from the nodes into the emulated network and back."""

    back_end: Literal["auto", "ring", "tap"] = Field(
        default="auto",
        description="ring: packet ring on veth pairs, arrivals stamped by the kernel (precision); tap: TAP devices and io_uring, "
        "arrivals stamped when they are read (throughput); auto: ring, unless more frames are declared than it carries",
        examples=["tap"],
    )
    threads: Threads = Field(
        default="auto",
        description="input/output threads beside the one that runs the network; auto: none on up to 3 CPUs, else CPUs - 2, "
        "at most 4",
        examples=[2],
    )
    back_pressure: bool = Field(
        default=False,
        description="a host's senders wait while its first link is busy, as with a real network card, "
        "and nothing is dropped there",
        examples=[True],
    )
