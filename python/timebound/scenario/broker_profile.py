"""The measured profile of a broker as a file (docs/broker.md): what `timebound profile-broker` writes and scenarios refer to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from timebound.scenario.files import instead_of_file
from timebound.scenario.model_broker import BrokerService, Measured

FORMAT = "timebound-broker-profile"
MOST_BYTES = 4 * 2**20
Nanos = Annotated[int, Field(ge=0, le=10**15)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Text = Annotated[str, Field(max_length=1000)]


class ProfileError(ValueError):
    """A file that is no profile; `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class BrokerName(_Part):
    """Which broker was measured."""

    program: Literal["embedded", "mosquitto"]
    version: Text


class Precision(_Part):
    """The emulator's own verdict on the measurement."""

    verdict: Literal["good", "disturbed"]
    reasons: list[Text] = Field(default_factory=list, max_length=1000)


class Times(_Part):
    """Measured times of one cell."""

    count: Count
    median_ns: Nanos
    p99_ns: Nanos
    max_ns: Nanos


class Cell(_Part):
    """One payload size, QoS and fan-out. `alone` to the last byte of the last copy; `back_to_back` per message of a burst."""

    size_bytes: Count
    message_bytes: Count
    qos: Annotated[int, Field(ge=0, le=2)]
    fan_out: Annotated[int, Field(ge=1, le=10**6)]
    alone: Times
    first_copy: Times
    back_to_back: Times


class Fit(_Part):
    """Costs that cover what was measured."""

    latency_ns: Nanos
    message_ns: Nanos
    copy_ns: Nanos
    byte_ps: Nanos
    acknowledgement_ns: Nanos


class ProfileFile(_Part):
    """The whole file. Keys beyond these are for readers."""

    format: Literal["timebound-broker-profile"]
    schema_: Annotated[Literal[1], Field(alias="schema")]
    measured: Text
    broker: BrokerName
    precision: Precision
    cells: Annotated[list[Cell], Field(min_length=1, max_length=10_000)]
    fit: Fit

    @property
    def messages(self) -> int:
        """Messages measured alone and back to back."""
        return sum(cell.alone.count + cell.back_to_back.count for cell in self.cells)


def parse_profile(content: bytes, name: str) -> ProfileFile:
    """A profile from the bytes of its file.

    Raises:
        ProfileError: it is none.
    """
    hint = "write one with timebound profile-broker"
    if len(content) > MOST_BYTES:
        raise ProfileError(f"{name!r} is larger than {MOST_BYTES} bytes", hint)
    try:
        tree: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{name!r} is not JSON: {error}", hint) from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise ProfileError(f"{name!r} is no profile of a broker: it has no format {FORMAT!r}", hint)
    try:
        return ProfileFile.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ProfileError(f"{name!r} is damaged: {place}: {first['msg']}", hint) from None


def read_profile(file: Path) -> ProfileFile:
    """Reads a profile.

    Raises:
        ProfileError: it cannot be read, or is none.
    """
    try:
        if (reason := instead_of_file(file)) is not None:
            raise ProfileError(f"{str(file)!r} {reason}", "write one with timebound profile-broker")
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, ProfileError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise ProfileError(f"{str(file)!r} cannot be read: {reason}", "name a readable file") from None
    return parse_profile(content, str(file))


def service_of(profile: ProfileFile, file: str) -> BrokerService:
    """The broker as a server with the fitted costs."""
    fit = profile.fit
    return BrokerService(
        latency_ns=fit.latency_ns,
        message_ns=fit.message_ns,
        copy_ns=fit.copy_ns,
        byte_ps=fit.byte_ps,
        acknowledgement_ns=fit.acknowledgement_ns,
        measured=Measured(
            file=file,
            messages=profile.messages,
            measured=profile.measured,
            program=f"{profile.broker.program} {profile.broker.version}",
            largest_bytes=max(cell.size_bytes for cell in profile.cells),
            largest_fan_out=max(cell.fan_out for cell in profile.cells),
            qos=tuple(sorted({cell.qos for cell in profile.cells})),
            disturbed=profile.precision.verdict == "disturbed",
        ),
    )
