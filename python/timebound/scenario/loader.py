"""`load`: a file, a text or a built-in name -> a checked `Scenario`, or a `ScenarioError` with every problem."""

from __future__ import annotations

import contextlib
import difflib
import gc
import os
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ValidationError

from timebound.scenario import shape
from timebound.scenario.builtin import find as find_file
from timebound.scenario.conditions import check_profiles
from timebound.scenario.context import Context
from timebound.scenario.graph import Graph
from timebound.scenario.lifecycle import resolve_node_events
from timebound.scenario.model import Scenario
from timebound.scenario.problems import Problem, ScenarioError
from timebound.scenario.resolve_flows import FlowResolver, resolve_stack
from timebound.scenario.resolve_machines import resolve_machines
from timebound.scenario.resolve_network import resolve_network
from timebound.scenario.resolve_routes import assign
from timebound.scenario.resolve_run import resolve_background, resolve_run
from timebound.scenario.resolve_schedule import event_times, resolve_events
from timebound.scenario.sources import read
from timebound.scenario.tree import Path, Sources, TooManyProblemsError, decode, dotted, to_plain

TEXT = "<text>"


def load(source: str | bytes | os.PathLike[str], overrides: Mapping[str, object] | None = None) -> Scenario:
    """Loads a scenario.

    `source` is a file, the name of a built-in scenario (`hello`), or the text itself (a string with a line break, or
    bytes). `overrides` are `{dotted path: value}` as given with `--set`. Raises `ScenarioError` with all problems in
    the order of the file, and nothing else.
    """
    sources = Sources()
    text: str | None = None
    file: FilePath | None = None
    label = TEXT
    if isinstance(source, bytes):
        text = decode(source, TEXT, sources)
    elif isinstance(source, str) and ("\n" in source or source.strip() == ""):
        text = decode(source.encode("utf-8", "surrogatepass"), TEXT, sources)
    else:
        label = os.fspath(source)
        file = find_file(label)
    if not sources.problems:
        with contextlib.suppress(TooManyProblemsError), _without_collection():
            scenario = _load(text, file, label, overrides or {}, sources)
            if scenario is not None:
                return scenario
    raise ScenarioError(_ordered(sources))


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """A large tree without cycles grows here; searching it for garbage again and again takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _ordered(sources: Sources) -> list[Problem]:
    """By file in the order of reading, then by place, each once."""
    files = {file: number for number, file in enumerate(sources.lines)}
    unique = dict.fromkeys(sources.problems)
    return sorted(unique, key=lambda problem: (files.get(problem.file, -1), problem.line, problem.column))


def _load(
    text: str | None, file: FilePath | None, label: str, overrides: Mapping[str, object], sources: Sources
) -> Scenario | None:
    tree = read(text, file, label, overrides, sources)
    if tree is None:
        return None
    context = Context(tree, sources, file.parent if file else None)
    checked = _validate(to_plain(tree), context)
    if checked is None:
        return None
    scenario = _resolve(checked, context, file)
    return None if sources.problems else scenario


def _resolve(checked: shape.ScenarioShape, context: Context, file: FilePath | None) -> Scenario:
    profiles = check_profiles(checked.conditions, context)
    net = resolve_network(checked.network, context, checked.conditions)
    graph = Graph(net.nodes.values(), net.links)
    stack = resolve_stack(checked.stack, net, context)
    flows = FlowResolver(net, graph, stack, checked.run.seed, context)
    for index, flow in enumerate(checked.flows):
        flows.add(flow, index)
    flows.flows = assign(flows.flows, checked.assigned, stack, net, graph, context)
    if not checked.flows and not checked.background:
        context.warn((), "the scenario has no flows and no background", "flows: [{name: alpha, from: h1, to: h2, ...}]")
    background = resolve_background(checked.background, net, graph, context)
    times = event_times(checked.at, checked.run.duration + checked.run.warm_up, context)
    end = checked.run.duration + checked.run.warm_up
    events = resolve_events(checked.at, times, net, profiles, end, context)
    node_events = resolve_node_events(checked.at, times, net, context)
    run = resolve_run(checked.run, net, context)
    return Scenario(
        name=checked.name,
        description=checked.description,
        reading=checked.reading,
        nodes=tuple(net.nodes.values()),
        links=tuple(net.links),
        flows=tuple(flows.flows),
        stack=stack,
        background=background,
        events=events,
        node_events=node_events,
        run=run,
        machines=resolve_machines(checked.network.machines, net.nodes, net.links, context),
        file=str(file) if file else None,
        locations=context.locations,
        warnings=tuple(dict.fromkeys(context.sources.warnings)),
    )


def _validate(plain: Any, context: Context) -> shape.ScenarioShape | None:
    models: dict[int, type[BaseModel]] = {}
    try:
        return shape.ScenarioShape.model_validate(plain, context={"models": models})
    except ValidationError as errors:
        for error in errors.errors(include_url=False):
            _report(error, plain, models, context)
    return None


def _report(error: Any, plain: Any, models: dict[int, type[BaseModel]], context: Context) -> None:
    path: Path = tuple(part for part in error["loc"] if part != "[key]")
    kind, details = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        parent = plain
        for part in path[:-1]:
            try:
                parent = (
                    parent[part]
                    if not (isinstance(parent, dict) and isinstance(part, int))
                    else list(parent.values())[part]
                )
            except (KeyError, IndexError, TypeError):
                continue
        known = _keys(models.get(id(parent)))
        key = str(path[-1])
        close = difflib.get_close_matches(key, known, 1, 0.55)
        known_text = f"known keys: {', '.join(known)}" if known else "remove it"
        hint = f"did you mean {close[0]!r}?" if close else known_text
        context.key_error(path, f"unknown key {key!r}", hint)
    elif kind == "missing":
        where = dotted(path[:-1]) or "the scenario"
        message = f"{where} has no {str(path[-1])!r}"
        context.error(path[:-1], message, f"add {path[-1]}: ... (see docs/scenario.md)")
    else:
        message, hint = _worded(kind, details, error)
        context.error(path, message, hint)


def _keys(model: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _worded(kind: str, details: dict[str, Any], error: Any) -> tuple[str, str]:
    """Message and hint for the kinds of errors that the shapes can give."""
    if kind == "scenario":
        return str(details["message"]), str(details["hint"])
    if kind == "literal_error":
        expected = str(details["expected"])
        known = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
        close = difflib.get_close_matches(str(error["input"]), known, 1, 0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"use one of: {', '.join(known)}"
        return f"{_shown(error['input'])} is not possible here", hint
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, found {_shown(error['input'])}", f"write {_EXPECTED[kind]}"
    limits = {
        "greater_than_equal": ("ge", "at least"),
        "less_than_equal": ("le", "at most"),
        "greater_than": ("gt", "more than"),
    }
    if kind in limits:
        key, words = limits[kind]
        return f"{_shown(error['input'])} is out of range", f"use {words} {details[key]}"
    lengths = {
        "too_short": ("min_length", "at least", "entry", "entries"),
        "too_long": ("max_length", "at most", "entry", "entries"),
        "string_too_short": ("min_length", "at least", "character", "characters"),
        "string_too_long": ("max_length", "at most", "character", "characters"),
    }
    if kind in lengths:
        key, words, one, many = lengths[kind]
        limit, found = details[key], len(error["input"])
        wanted = f"{words} {limit} {one if limit == 1 else many}"
        shown = "an empty text" if found == 0 and one == "character" else _shown(error["input"])
        if found == 0:
            return (
                f"expected {wanted}, found {'an empty list' if one == 'entry' else shown}",
                "name one, or leave the key out",
            )
        return f"expected {wanted}, found {found}", f"write {wanted}"
    return f"{error['msg']}: {_shown(error['input'])}", "see docs/scenario.md"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
