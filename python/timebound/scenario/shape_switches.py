"""The shape of real switches: their controller."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from timebound.scenario.fields import Shape, Short, Time, Word, fail
from timebound.scenario.written import TextForm


class Controller(Shape):
    """The OpenFlow controller of the real switches: a program that runs where they do. A list of words is its command alone.

    It finds OpenFlow connections coming to `127.0.0.1`, OVSDB at the socket in `TIMEBOUND_OVSDB`, and what the switches are called in
    `switches.json` of the run folder (`TIMEBOUND_RUN`).
    """

    program: list[Word] = Field(
        min_length=1,
        description="program and arguments; `{run}` in them is the run folder",
        examples=[["timebound", "controller", "/etc/timebound/controller.yaml"]],
    )
    env: dict[str, Word] = Field(default_factory=dict, description="environment added", examples=[{"LANG": "C"}])
    port: int = Field(
        default=6653, ge=1, le=65535, description="TCP port at which the switches look for it", examples=[6653]
    )
    ready_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="it is ready once this TCP port accepts; default: the port at which switches look for it",
        examples=[8080],
    )
    ready_file: str | None = Field(
        default=None, description="it is ready once this file is in the run folder", examples=["controller-ready"]
    )
    timeout: Time = Field(
        default=30_000_000_000, description="how long it may take until it is ready", examples=["20 s"]
    )


def _controller(value: Any) -> Any:
    if isinstance(value, str):
        raise fail("a controller is a list of words", 'write controller: ["timebound", "controller"]')
    return {"program": value} if isinstance(value, list) else value


ControllerField = Annotated[
    Controller,
    Short(_controller, {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1}),
    TextForm(),
]
