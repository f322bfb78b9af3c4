"""How fast requests are decided: one more publisher, and one more subscriber, beside so many that are granted.

    .venv/bin/python benches/planner.py [MOST_FLOWS]

A ring of switches with links of 1 Gbit/s, forty hosts, one manager; every flow is a publisher and a subscriber, each with a connection of its own (eight streams
with acknowledgements and keep-alives). Times are CPU seconds of one thread, medians of several decisions; wall times beside them.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time

from timebound.control.planner import Server, Site, State, World, answers, decide
from timebound.control.srt.rows import ConnectionRow, ManagerRow, RequestRow, Requirements, Side, Tables
from timebound.control.topology import Host, Link, PortId, Switch, Topology
from timebound.scenario.model_broker import BrokerService

MS = 1_000_000
HOSTS = 40
REPEATS = 5
SITE = Site(
    default_server=Server(
        service=BrokerService(
            latency_ns=300_000, message_ns=15_000, copy_ns=8_000, byte_ps=500, acknowledgement_ns=4_000
        )
    )
)


def network(switches: int) -> Topology:
    """The ring; host 0 is the manager's."""
    names = [f"s{number}" for number in range(switches)]
    cables = [*itertools.pairwise(names), (names[-1], names[0])]
    homes = {f"h{number}": names[number % switches] for number in range(HOSTS)}
    ports = itertools.count(1)
    links = {}
    for a, b in (*cables, *homes.items()):
        for source, target in ((a, b), (b, a)):
            out = PortId(names.index(source) + 1, next(ports)) if source in names else None
            name = f"{source}->{target}"
            links[name] = Link(
                name=name, source=source, target=target, out=out, into=None, rate_bps=10**9, delay_ns=(5_000, 5_000)
            )
    hosts = {}
    for number, (host, home) in enumerate(homes.items(), 1):
        at = links[f"{home}->{host}"].out
        assert at is not None
        hosts[host] = Host(name=host, mac=f"02:00:00:00:00:{number:02x}", address=f"10.0.0.{number}", at=at)
    made = {
        name: Switch(datapath=number, name=name, connected=True, delay_ns=(10_000, 20_000))
        for number, name in enumerate(names, 1)
    }
    return Topology(made, {}, links, hosts)


def table(flows: int) -> tuple[Tables, list[str]]:
    """Rows, and the requests in the order in which they were asked."""
    rows = Tables()
    rows.managers["m"] = ManagerRow(
        id="m",
        addresses=("10.0.0.1",),
        ports=(1883,),
        broker_address="127.0.0.1",
        broker_port=1884,
        version="",
        beat_ns=0,
    )
    for number in range(2 * flows):
        side = Side.SUBSCRIBE if number % 2 else Side.PUBLISH
        flow = number // 2
        client = 2 + (flow * 7 + 3 if number % 2 else flow) % (HOSTS - 1)
        rows.connections[f"c{number}"] = ConnectionRow(
            id=f"c{number}", manager="m", client_id="", user=None, client_address=f"10.0.0.{client}",
            client_port=20_000 + number, manager_address="10.0.0.1", manager_port=1883,
        )  # fmt: skip
        wanted = Requirements(qos=0)
        if side is Side.PUBLISH:
            wanted = Requirements(
                deadline_ns=(20 + flow % 80) * MS, period_ns=(50 + flow % 50) * MS, size_bytes=100, qos=0
            )
        rows.requests[f"r{number}"] = RequestRow(
            id=f"r{number}", connection=f"c{number}", side=side, topic=f"plant/{flow}", requirements=wanted, revision=1,
            asked_ns=number,
        )  # fmt: skip
    return rows, list(rows.requests)


def measure(switches: int, flows: int) -> str:
    """One line of the table."""
    rows, requests = table(flows + REPEATS)
    world = World(network(switches), SITE, rows)
    began = time.perf_counter()
    state = decide(world, State(), requests[: 2 * flows]).state
    together = time.perf_counter() - began
    spent, taken = [], []
    for request in requests[2 * flows :]:
        cpu, wall = time.thread_time(), time.perf_counter()
        state = decide(world, state, [request]).state
        spent.append(time.thread_time() - cpu)
        taken.append(time.perf_counter() - wall)
    began = time.perf_counter()
    answers(world, state)
    rest = time.perf_counter() - began
    granted = sum(request in state.granted for request in requests)
    cpu = statistics.median(spent)
    return (
        f"{switches:8} {flows:6} {granted:8} {together:10.2f} {1000 * cpu:10.1f} {1000 * statistics.median(taken):10.1f} "
        f"{1 / cpu:10.1f} {1000 * rest:10.1f}"
    )


def main() -> None:
    """Prints the table, a line at a time."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    print("switches  flows  granted all at, s   one, ms    wall, ms   1/CPU s  rows, ms")
    for switches in (8, 50):
        for flows in (10, 100, 500):
            if flows <= most:
                print(measure(switches, flows), flush=True)


if __name__ == "__main__":
    main()
