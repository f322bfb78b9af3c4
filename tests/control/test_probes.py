"""What a proof makes of probes that come late, come back wrong, or do not come, in virtual time; over real switches: `test_openflow_switches`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from tests.control.test_channels import RING, WAY, channel
from tests.control.test_reservations_orders import in_virtual_time
from timebound.control.openflow import frames
from timebound.control.openflow.channels import hops_of, program
from timebound.control.openflow.probes import NotProvenError, OutdatedError, Prober, marked
from timebound.control.openflow.rules import channel_cookie
from timebound.control.openflow.session import VERSION
from timebound.control.openflow.switchbox import Found
from timebound.control.topology import PortId

HOPS = hops_of(WAY, RING.links)
FIRST, LAST = HOPS[0], HOPS[-1]
RULES = program(channel(), HOPS, (), 7, None, lambda port: False).tables[LAST.switch].rules
WITHIN_S = 0.25
RIGHT = (PortId(LAST.switch, LAST.in_port), 40, False)
ASTRAY = (PortId(4, 1), 40, True)
Outcome = tuple[float, tuple[PortId, int, bool]] | None
"""Of a probe: after how many seconds it comes to the controller, and where, with which mark, astray. `None`: never."""


class _Switches:
    """The first switch sends probes into a network that does with the nth of them what `fate` says; the last one counts what it is given."""

    def __init__(self, fate: Callable[[int], Outcome]) -> None:
        self.fate = fate
        self.sent: list[float] = []
        self.counted = 0
        session = {number: self._session(number) for number in (FIRST.switch, LAST.switch)}
        self.boxes: Any = {
            number: SimpleNamespace(connected=session[number], rules_of=self._rules_of) for number in session
        }
        self.prober = Prober(self.boxes, lambda port: False, WITHIN_S)

    def _session(self, number: int) -> SimpleNamespace:
        return SimpleNamespace(
            switch=ProtocolDesc(version=VERSION), send=lambda messages: [self._take(number, m) for m in messages]
        )

    async def _rules_of(self, cookie: int) -> Found:
        assert cookie == channel_cookie("c1")
        return self.found()

    def found(self) -> Found:
        return Found(dict(RULES), dict.fromkeys(RULES, self.counted))

    def _take(self, switch: int, message: Any) -> None:
        if switch == LAST.switch:
            self.counted += 1
            return
        self.sent.append(asyncio.get_running_loop().time())
        outcome = self.fate(len(self.sent))
        if outcome is not None:
            after_s, (at, mark, astray) = outcome
            asyncio.get_running_loop().call_later(after_s, self._come, message.data, at, mark, astray)

    def _come(self, data: bytes, at: PortId, mark: int, astray: bool) -> None:
        frame = frames.read(marked(data, mark))
        assert frame is not None
        assert self.prober.caught(frame, at, astray=astray)

    async def prove(self, outdated: Callable[[], bool] = lambda: False) -> float:
        """How long it took."""
        began = asyncio.get_running_loop().time()
        await self.prober.prove(channel(), HOPS, self.found(), outdated, named=lambda number: f"s{number}")
        return asyncio.get_running_loop().time() - began


def refused(fate: Callable[[int], Outcome]) -> tuple[str, _Switches]:
    switches = _Switches(fate)

    async def work() -> None:
        with pytest.raises(NotProvenError) as caught:
            await switches.prove()
        reasons.append(str(caught.value))

    reasons: list[str] = []
    in_virtual_time(work())
    assert not switches.prober._waiting
    return reasons[0], switches


def proven(fate: Callable[[int], Outcome]) -> tuple[float, _Switches]:
    switches = _Switches(fate)

    async def work() -> None:
        lasted.append(await switches.prove())

    lasted: list[float] = []
    in_virtual_time(work())
    assert not switches.prober._waiting
    return lasted[0], switches


def test_a_probe_that_comes_proves_at_once() -> None:
    lasted, switches = proven(lambda number: (0.001, RIGHT))
    assert lasted < 0.003 and len(switches.sent) == 1


def test_a_probe_counts_even_if_others_were_sent_since() -> None:
    """A starved switch: every probe takes longer than it is waited for before the next one is sent."""
    lasted, switches = proven(lambda number: (0.2, RIGHT))
    assert 0.2 <= lasted < 0.21 and len(switches.sent) > 2


def test_one_that_a_meter_drops_is_repeated() -> None:
    lasted, _switches = proven(lambda number: None if number < 3 else (0.001, RIGHT))
    assert lasted < 0.1


def test_what_strayed_while_rules_were_changing_does_not_count_against_what_arrives() -> None:
    proven(lambda number: (0.001, ASTRAY if number == 1 else RIGHT))


def test_probes_are_not_sent_faster_because_they_stray() -> None:
    reason, switches = refused(lambda number: (0.001, ASTRAY))
    assert reason == "a probe strayed: s4 has no rule for it"
    assert len(switches.sent) < 8


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (ASTRAY, "a probe strayed: s4 has no rule for it"),
        ((PortId(LAST.switch, 9), 40, False), "a probe came in at port 9 of s3, not at port"),
        ((RIGHT[0], 8, False), "a probe came to s3 with mark 8 in place of 40"),
    ],
)
@pytest.mark.parametrize("which", [1, 2, 4])
def test_what_was_seen_of_one_probe_is_the_reason_though_others_never_came(
    seen: tuple[PortId, int, bool], words: str, which: int
) -> None:
    """On a busy machine the last of them may not be back when time is up."""
    reason, _switches = refused(lambda number: (0.001, seen) if number == which else None)
    assert words in reason


def test_a_probe_that_never_comes_is_said_and_not_waited_for_without_end() -> None:
    switches = _Switches(lambda number: None)

    async def work() -> None:
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotProvenError, match="a probe from s1 did not reach s3"):
            await switches.prove()
        assert WITHIN_S <= asyncio.get_running_loop().time() - began < 2 * WITHIN_S

    in_virtual_time(work())


def test_nobody_waits_for_what_is_outdated() -> None:
    switches = _Switches(lambda number: (0.001, ASTRAY))

    async def work() -> None:
        with pytest.raises(OutdatedError):
            await switches.prove(lambda: len(switches.sent) == 2)

    in_virtual_time(work())
    assert len(switches.sent) == 2


def test_a_probe_of_a_proof_that_is_over_is_still_ours_and_proves_nothing() -> None:
    """It must not be taken for a host's frame."""
    switches = _Switches(lambda number: (0.001, RIGHT) if number == 2 else (0.5, RIGHT))

    async def work() -> None:
        await switches.prove()
        await asyncio.sleep(1)  # the first one comes meanwhile; `_come` says that it was taken for ours
        assert not switches.prober._waiting

    in_virtual_time(work())
