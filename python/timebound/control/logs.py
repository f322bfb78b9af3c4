"""Structured logs of the services: one JSON object per line, or for people. To standard error; never secrets."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal

import structlog

from timebound.scenario.problems import plain


def _plain(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Without what uvicorn adds for terminals: its messages once more, in colours."""
    event.pop("color_message", None)
    return event


def _on_one_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What clients, switches and brokers are called is shown and not obeyed, and begins no line of its own."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = plain(value).replace("\n", "\\n")
    return event


def _printable(_logger: Any, _method: str, line: str) -> str:
    """JSON leaves everything from 0x7f on as it is; the same, by its escapes."""
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)


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
        last += [structlog.processors.JSONRenderer(ensure_ascii=False), _printable]
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
