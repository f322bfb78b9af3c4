"""Structured logs of the services: one JSON object per line, or for people. To standard error; never secrets."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal

import structlog

from timebound.control.text import json_line, shown


def _plain(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Without what uvicorn adds for terminals: its messages once more, in colours."""
    event.pop("color_message", None)
    return event


def _on_one_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What clients, switches and brokers are called is shown and not obeyed, and begins no line of its own."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = shown(value)
    return event


def begin(format: Literal["json", "console"] | str, level: str) -> None:
    """Everything that is logged below `timebound`, and warnings of libraries, from now on go to standard error."""
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        _plain,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    last: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if format == "json":
        # Without local variables: a token may be one.
        traceback = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        last += [structlog.processors.ExceptionRenderer(traceback)]
        last += [structlog.processors.JSONRenderer(serializer=json_line)]
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        last += [_on_one_line, renderer]
    handler = logging.StreamHandler()
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("timebound").setLevel(level.upper())
