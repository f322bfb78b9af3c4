"""The six cells of the experiment, each as a scenario with the releases of its clients."""

from __future__ import annotations

import hashlib
import itertools
import random
from dataclasses import dataclass, replace

from timebound.scenario import load
from timebound.scenario.builtin import builtin_file
from timebound.scenario.model import Flow, MqttStack, Scenario, Service

NAME = "mqtt-scalability"
RATE_PER_S = 100
"""Messages per second of all clients together."""
FIRST_JOIN_NS = 500_000_000
SETTLED_NS = 300_000_000
"""A client counts as joined this long after it began to connect."""
MOST_CLIENTS = 350
SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run: `scenario` 1 (many publishers, one subscriber) or 2 (one to one), one QoS."""

    scenario: int
    qos: int
    clients: int
    join_ns: int
    """Between one client and the next."""
    hold_ns: int
    """How long the run goes on once all have joined."""

    @property
    def name(self) -> str:
        return f"s{self.scenario}-qos{self.qos}"

    @property
    def all_joined_ns(self) -> int:
        return FIRST_JOIN_NS + (self.clients - 1) * self.join_ns + SETTLED_NS

    @property
    def duration_ns(self) -> int:
        return self.all_joined_ns + self.hold_ns


def joins(cell: Cell) -> list[int]:
    """When each client begins to connect, ns of run time."""
    return [FIRST_JOIN_NS + number * cell.join_ns for number in range(cell.clients)]


def receiver_of(number: int, clients: int) -> int:
    """Scenario 2: each client's messages go to the one that joined before it, the first one's to the last."""
    return (number - 1) % clients


def releases(cell: Cell, seed: int = SEED) -> list[list[int]]:
    """When each client publishes, ns of run time: every 10 ms one of those that may, drawn at random.

    A client may publish once it has joined, and in scenario 2 once its receiver has joined too: a message for somebody who is
    not there would be lost by the protocol, not by the network.
    """
    since = [start + SETTLED_NS for start in joins(cell)]
    if cell.scenario == 2:
        since = [max(since[number], since[receiver_of(number, cell.clients)]) for number in range(cell.clients)]
    order = sorted(range(cell.clients), key=lambda number: (since[number], number))
    # One stream of draws for all cells of a scenario: the QoS levels carry the same messages at the same times.
    digest = hashlib.blake2b(f"{seed}/{NAME}/{cell.scenario}".encode(), digest_size=8).digest()
    draws = random.Random(int.from_bytes(digest, "big"))
    found: list[list[int]] = [[] for _ in range(cell.clients)]
    step = 1_000_000_000 // RATE_PER_S
    ready = 0
    for time in range(min(since), cell.duration_ns, step):
        while ready < cell.clients and since[order[ready]] <= time:
            ready += 1
        found[order[draws.randrange(ready)]].append(time)
    return found


def scenario_of(cell: Cell, seed: int = SEED) -> Scenario:
    """The scenario file with this cell's clients, QoS and releases.

    Raises:
        ValueError: more clients than the network has meters, or fewer than two.
    """
    if not 2 <= cell.clients <= MOST_CLIENTS:
        raise ValueError(f"{cell.clients} clients: 2 to {MOST_CLIENTS} are possible")
    base = load(
        builtin_file(NAME),
        {"parameters.clients": str(cell.clients), "parameters.qos": str(cell.qos), "run.seed": str(seed)},
    )
    unused = {f"meter{number}" for number in range(cell.clients + 1, MOST_CLIENTS + 1)}
    if cell.scenario == 2:
        unused.add("utility")
    times, starts = releases(cell, seed), joins(cell)
    flows = [_flow(flow, cell, number, starts[number], times[number]) for number, flow in enumerate(base.flows)]
    assert isinstance(base.stack, MqttStack)
    return replace(
        base,
        name=f"{NAME}-{cell.name}",
        reading=f"scenario {cell.scenario}, QoS {cell.qos}, {cell.clients} clients",
        nodes=tuple(node for node in base.nodes if node.name not in unused),
        links=tuple(link for link in base.links if not {link.a, link.b} & unused),
        flows=tuple(flows),
        run=replace(base.run, duration_ns=cell.duration_ns, warm_up_ns=0, seed=seed),
    )


def _flow(flow: Flow, cell: Cell, number: int, start_ns: int, times: list[int]) -> Flow:
    # A client that the draw never names has joined all the same: one release behind the end of the run is never due.
    trace = tuple(time - start_ns for time in times) or (cell.duration_ns,)
    gaps = [after - before for before, after in itertools.pairwise(trace)]
    flow = replace(
        flow, pattern="trace", trace_ns=trace, period_ns=min(gaps, default=cell.duration_ns), start_ns=start_ns
    )
    if cell.scenario == 1:
        return flow
    receiver = f"meter{receiver_of(number, cell.clients) + 1}"
    width = len(str(cell.clients))
    return replace(
        flow,
        receivers=(receiver,),
        topic=f"{flow.topic}/{number + 1:0{width}}",
        services=tuple(Service(broker=service.broker, receivers=(receiver,)) for service in flow.services),
    )
