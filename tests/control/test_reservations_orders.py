"""Orders for a channel that overtake each other, while links fail and come back: whatever happens, a channel comes to an end that is true.

The switches and the proofs are models here, in virtual time, so that thousands of orders of events are tried; over real switches:
`test_controller_over_switches`, `test_openflow_restarts`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import selectors
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.control.nets import topology
from tests.control.test_channels import BACKUP, WAY, channel
from timebound.control.openflow.channels import Hops, hops_of
from timebound.control.openflow.probes import NotProvenError, OutdatedError
from timebound.control.openflow.reservations import Reservations
from timebound.control.openflow.rules import Tables
from timebound.control.openflow.switchbox import Found
from timebound.control.srt.rows import ChannelRow, ChannelState
from timebound.control.topology import Port, PortId, Topology

MS = 1_000_000
RING = topology([(1, 2), (2, 3), (3, 4), (4, 1)], [1, 3])
LINKS = ("s1->s2", "s2->s3", "s3->s4", "s4->s1")
PROOF_S, PROBE_S = 0.2, 0.01
QUIET_S = 30.0
"""Longer than all that may be under way."""


class _Selector(selectors.DefaultSelector):
    """Waiting costs no time: the clock goes on at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(0)


def in_virtual_time(work: Coroutine[Any, Any, None]) -> None:
    selector = _Selector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


class _Box:
    """A switch that does what it is told, some time later."""

    def __init__(self, datapath: int, slow_s: float) -> None:
        self.datapath, self.slow_s = datapath, slow_s
        self.ready = asyncio.Event()
        self.ready.set()
        self.parts: dict[str, Tables] = {}

    def part(self, name: str) -> Tables | None:
        return self.parts.get(name)

    def numbers_for(self, name: str, cookie: int, *, with_group: bool) -> tuple[int, int | None]:
        return 1, 1 if with_group else None

    async def put(self, name: str, tables: Tables | None) -> None:
        await asyncio.sleep(self.slow_s)
        if tables is None:
            self.parts.pop(name, None)
        else:
            self.parts[name] = tables

    async def verify(self, part: Tables, cookie: int) -> Found:
        await asyncio.sleep(self.slow_s)
        return Found({}, {})


class _World:
    """A ring whose links fail and come back; the controller hears of it `lag_s` later."""

    def __init__(self, slow_s: float) -> None:
        self.up = dict.fromkeys(LINKS, True)
        self.heard = dict(self.up)
        self.states: dict[str, ChannelState] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.failed: list[BaseException] = []
        times = SimpleNamespace(adopt_ns=1000 * MS, probe_ns=int(PROOF_S * 1e9), drain_ns=50 * MS)
        self.boxes = {number: _Box(number, slow_s) for number in (1, 2, 3, 4)}
        network = SimpleNamespace(
            boxes=self.boxes,
            settings=SimpleNamespace(times=times),
            spawn=self.spawn,
            settled=True,
            clean=lambda: None,
            learned=SimpleNamespace(topology=lambda: self.topology(self.heard)),
        )
        self.reservations = Reservations(self.report, lambda _: None, lambda _: None)
        self.reservations.attach(network, lambda _: False, self.queues)  # type: ignore[arg-type]
        self.reservations.prober = self  # type: ignore[assignment]
        self.reservations.changed(self.topology(self.heard))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed.append(error)

    async def queues(self, port: PortId) -> str:
        return ""

    def report(self, id: str, state: ChannelState, reason: str) -> None:
        self.states[id] = state

    @staticmethod
    def topology(up: dict[str, bool]) -> Topology:
        both = up | {"->".join(reversed(name.split("->"))): is_up for name, is_up in up.items()}
        links = {
            name: dataclasses.replace(link, up=both.get(name, True))
            for name, link in RING.links.items()
        }  # fmt: skip
        ends = {end for link in links.values() for end in (link.out, link.into) if end is not None}
        ports = {end: Port(id=end, name=f"p{end.number}", up=True) for end in ends}
        return dataclasses.replace(RING, links=links, ports=ports)

    def carries(self, hops: Hops) -> bool:
        links = self.topology(self.up).links.values()
        live = {(link.out, link.into) for link in links if link.up}
        return all(
            (before.out, PortId(behind.switch, behind.in_port)) in live for before, behind in itertools.pairwise(hops)
        )

    async def prove(
        self,
        row: ChannelRow,
        hops: Hops,
        last: Found,
        outdated: Callable[[], bool],
        *,
        named: object,
        spare: bool = False,
    ) -> None:
        """`Prober.prove`."""
        for _ in range(int(PROOF_S / PROBE_S)):
            await asyncio.sleep(PROBE_S)
            if self.carries(hops):
                return
            if outdated():
                raise OutdatedError
        raise NotProvenError("a probe did not come")

    async def turn(self, name: str, up: bool, lag_s: float) -> None:
        self.up[name] = up
        await asyncio.sleep(lag_s)
        self.heard[name] = self.up[name]
        self.reservations.changed(self.topology(self.heard))


GONE: tuple[Any, Any] = ((), ())
"""In the place of what is asked for: nobody needs the channel any more."""
ASKED = st.sampled_from([(WAY, BACKUP), (BACKUP, WAY), (WAY, ()), (BACKUP, ())])
EVENTS = st.lists(
    st.tuples(
        st.one_of(
            ASKED, st.just(GONE), st.tuples(st.sampled_from(LINKS), st.booleans(), st.sampled_from([0.0, 0.015, 0.3]))
        ),
        st.sampled_from([0.0, 0.0, 0.001, 0.004, 0.012, 0.05, 0.26, 1.0]),
    ),
    max_size=12,
)


async def happen(events: list[tuple[Any, float]], first: tuple[Any, Any], slow_s: float) -> None:
    world = _World(slow_s)
    asked = first
    ever_down: set[str] = set()
    world.reservations.install(channel(links=asked[0]), asked[1])
    for event, wait_s in events:
        await asyncio.sleep(wait_s)
        if len(event) == 2:
            asked = event
            if asked == GONE:
                world.reservations.remove("c1")
            else:
                world.reservations.install(channel(links=asked[0]), asked[1])
        else:
            ever_down |= set() if event[1] else {event[0]}
            world.spawn(world.turn(*event))
    await asyncio.sleep(QUIET_S)
    assert not world.failed, world.failed
    assert not world.tasks, "something is still under way"
    if asked == GONE:
        assert not any(box.parts for box in world.boxes.values()), "a channel that nobody needs is in switches"
        assert not world.reservations.names()
        return
    state = world.states["c1"]
    held = world.reservations._held["c1"]
    ways = {hops_of(way, RING.links): set(_plain(way)) for way in asked if way}
    way = hops_of(asked[0], RING.links)
    assert state in (ChannelState.PROVEN, ChannelState.BROKEN), f"{state} for ever"
    if state is ChannelState.PROVEN:
        assert held.hops in ways, "it uses a way that nobody asked for"
        assert world.carries(held.hops)
        assert all(world.boxes[hop.switch].part(held.part) for hop in held.hops)
    else:
        assert not world.carries(way), "broken, though the way that was asked for is there"
        assert all(links & ever_down for links in ways.values()), "broken, though a way was there all the time"


def _plain(way: tuple[str, ...]) -> list[str]:
    """The links of a way by the names of `LINKS`."""
    return [name if name in LINKS else "->".join(reversed(name.split("->"))) for name in way[1:-1]]


@settings(max_examples=150, deadline=None)
@given(EVENTS, ASKED, st.sampled_from([0.0, 0.002, 0.03]))
def test_a_channel_comes_to_an_end_that_is_true(events: list[tuple[Any, float]], first: Any, slow_s: float) -> None:
    in_virtual_time(happen(events, first, slow_s))


def test_a_channel_that_is_asked_for_again_while_it_goes_is_there() -> None:
    """The old one leaves the switches behind its first one somewhat later: it had taken the new one's rules with it."""

    async def story() -> None:
        world = _World(0.002)
        world.reservations.install(channel(), BACKUP)
        await asyncio.sleep(1.0)
        world.reservations.remove("c1")
        await asyncio.sleep(0.02)
        world.reservations.install(channel(), BACKUP)
        await asyncio.sleep(QUIET_S)
        assert world.states["c1"] is ChannelState.PROVEN
        assert set(world.boxes) == {number for number, box in world.boxes.items() if box.parts}

    in_virtual_time(story())


def test_a_fail_over_that_a_new_way_has_overtaken_leaves_it_proven() -> None:
    """The new way is put in while a second word of the dead link comes: what was to fail over finds nothing to do, and the proof was given up."""

    async def story() -> None:
        world = _World(0.01)
        world.reservations.install(channel(), BACKUP)
        await asyncio.sleep(1.0)
        assert world.states["c1"] is ChannelState.PROVEN
        world.up["s1->s2"] = world.heard["s1->s2"] = False
        world.up["s4->s1"] = False  # for a moment: the proof has to try twice, and sees that it is outdated
        world.reservations.install(channel(links=BACKUP), ())
        await asyncio.sleep(0.015)
        world.reservations.changed(world.topology(world.heard))
        await asyncio.sleep(0.05)
        world.up["s4->s1"] = True
        await asyncio.sleep(QUIET_S)
        assert world.states["c1"] is ChannelState.PROVEN
        assert world.reservations._held["c1"].hops == hops_of(BACKUP, RING.links)

    in_virtual_time(story())
