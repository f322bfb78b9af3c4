"""`load`: a file, a text or a built-in name -> a checked `Scenario`, or a `ScenarioError` with every problem."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path as FilePath

from timebound.scenario import shape
from timebound.scenario.builtin import find as find_file
from timebound.scenario.complaints import validate
from timebound.scenario.conditions import check_profiles
from timebound.scenario.context import Context
from timebound.scenario.files import noting
from timebound.scenario.graph import Graph
from timebound.scenario.lifecycle import resolve_node_events
from timebound.scenario.model import Scenario
from timebound.scenario.problems import Problem, ScenarioError
from timebound.scenario.resolve_flows import FlowResolver
from timebound.scenario.resolve_machines import resolve_machines
from timebound.scenario.resolve_network import resolve_network
from timebound.scenario.resolve_programs import check_programs
from timebound.scenario.resolve_reserved import default_controller
from timebound.scenario.resolve_routes import assign
from timebound.scenario.resolve_run import resolve_background, resolve_run
from timebound.scenario.resolve_schedule import event_times, resolve_events
from timebound.scenario.resolve_shared import check_shared
from timebound.scenario.resolve_stack import resolve_stack
from timebound.scenario.resolve_switches import resolve_controller
from timebound.scenario.sources import read
from timebound.scenario.tree import Sources, TooManyProblemsError, decode, to_plain

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
            with noting() as inputs:
                scenario = _load(text, file, label, overrides or {}, sources)
            if scenario is not None:
                return replace(scenario, inputs=tuple(inputs))
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
    checked = validate(shape.ScenarioShape, to_plain(tree), context)
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
    check_shared(flows.flows, stack, context)
    check_programs(flows.flows, stack, net, context, several_machines=bool(checked.network.machines))
    flows.flows = assign(flows.flows, checked.assigned, stack, net, graph, context)
    if not checked.flows and not checked.background:
        context.warn((), "the scenario has no flows and no background", "flows: [{name: alpha, from: h1, to: h2, ...}]")
    background = resolve_background(checked.background, net, graph, context)
    times = event_times(checked.at, checked.run.duration + checked.run.warm_up, context)
    end = checked.run.duration + checked.run.warm_up
    events = resolve_events(checked.at, times, net, profiles, end, context)
    node_events = resolve_node_events(checked.at, times, net, context)
    run = resolve_run(checked.run, net, context)
    computers = resolve_machines(checked.network.machines, net.nodes, net.links, context)
    controller = resolve_controller(checked.network.controller, net.nodes, net.links, computers, context)
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
        machines=computers,
        controller=controller or default_controller(stack, net),
        framing=net.framing,
        stated_best_effort_bytes=checked.network.best_effort,
        file=str(file) if file else None,
        locations=context.locations,
        paths=context.paths,
        warnings=tuple(dict.fromkeys(context.sources.warnings)),
    )
