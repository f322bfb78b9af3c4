"""Channels over real Open vSwitches in user space, on this machine: request to proof, failover, restarts.

    python benches/switches.py [CHANNELS] [FAILURES]

Switches, controller and hosts are in network namespaces of this run, which needs root. Everything is measured where a user would: from the call of
`install` to the report, and from the last frame that arrived before a failure to the first one after it. CHANNELS are installed one after the other
(default 200), FAILURES links taken down of each kind (default 10). Exit code 1 where a channel is not proven or an aim is missed that is stated as one.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.control.group_helpers import Listener, Source, asked, beating, order
from tests.control.ovs_lab import Lab, lab, run, until
from tests.control.switch_helpers import Controller, channel, controller, introduce, site, stream, way
from tests.control.test_controller_over_switches import serving

from timebound.control.openflow.settings import Times
from timebound.control.srt.rows import ChannelState, GroupRow, Side
from timebound.control.srt.store import Put

FAILOVER_AIM_S = 0.05
RESTORED_AIM_S = 2.0
SHORT, AROUND = "h1 s1 s2 s3 h2", "h1 s1 s4 s3 h2"


def quantiles(times: Sequence[float]) -> str:
    """In ms."""
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * (len(ordered) - 1)))]
    return f"p50 {statistics.median(ordered) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, max {ordered[-1] * 1e3:.1f} ms"


def at(held: Controller, name: str, state: ChannelState, after: int = 0) -> float:
    """When a channel was reported to be in a state."""
    reports = [report for report in held.states if report[1] == name][after:]
    return next(when for when, _name, reported, _reason in reports if reported is state)


def requests(
    net: Lab, held: Controller, count: int, nodes: str, backup: str | None = None, *, keep: int = 0
) -> tuple[list[float], list[float]]:
    """Times from the call to `installed`, and to `proven`; the first `keep` channels stay."""
    installed: list[float] = []
    proven: list[float] = []
    for number in range(count):
        name = f"{nodes}{backup}{number}"
        row = channel(net, name, nodes, source_port=10000 + number)
        began = time.monotonic()
        held.enforcer.install(row, way(net, *backup.split()) if backup else ())
        state, reason = held.settled(name)
        if state is not ChannelState.PROVEN:
            raise SystemExit(f"{name}: {reason}")
        installed.append(at(held, name, ChannelState.INSTALLED) - began)
        proven.append(at(held, name, ChannelState.PROVEN) - began)
        if number >= keep:
            held.enforcer.remove(name)
    return installed, proven


def failover(net: Lab, held: Controller, link: str, number: int) -> tuple[float, int]:
    """Without frames for so long, and how many were lost of one each 0.5 ms."""
    name = f"failover {link} {number}"
    held.enforcer.install(channel(net, name, SHORT, rate_bps=20_000_000), way(net, *AROUND.split()))
    if held.settled(name)[0] is not ChannelState.PROVEN:
        raise SystemExit(f"{name}: {held.of(name)}")
    seen = len(held.of(name))
    with stream(net, period_s=0.0005) as sent:
        time.sleep(0.2)
        down = time.monotonic()
        run("ip", "-n", net.inside, "link", "set", link, "down")
        held.settled(name, after=seen)
        time.sleep(0.1)
        sent.end()
    # Frames that were lost tell how long it took; gaps of arrivals contain stalls of this machine, too.
    times = sorted(when for when, _mark in sent.arrived.values())
    around = [b - a for a, b in itertools.pairwise(times) if b > down - 0.01]
    run("ip", "-n", net.inside, "link", "set", link, "up")
    until(lambda: held.links_up() == 8, 10, "the link again")
    held.enforcer.remove(name)
    time.sleep(0.3)
    return max(around), len(sent.lost)


def restarts(count: int) -> list[float]:
    """From the start of a vswitchd that was killed until all channels over eight switches are proven again."""
    times: list[float] = []
    with lab(8, [(n, n + 1) for n in range(1, 8)], [1, 8]) as net, controller(net, site(net, times=Times())) as held:
        introduce(net, held)
        names = [f"c{number}" for number in range(10)]
        for number, name in enumerate(names):
            held.enforcer.install(channel(net, name, "h1 s1 s2 s3 s4 s5 s6 s7 s8 h2", source_port=10000 + number))
            held.settled(name)
        for _round in range(count):
            seen = {name: len(held.of(name)) for name in names}
            net.kill_vswitchd()
            reached(held, seen, ChannelState.BROKEN)
            began = time.monotonic()
            net.start_vswitchd()
            reached(held, seen, ChannelState.PROVEN)
            times.append(time.monotonic() - began)
    return times


def join(held: Controller, links: str) -> float:
    """From the order of a tree until every member is proven."""
    seen, began = len(held.of("g")), time.monotonic()
    held.enforcer.install_group(order("g", links))
    state, reason = held.settled("g", after=seen)
    if state is not ChannelState.PROVEN:
        raise SystemExit(f"{links}: {reason}")
    return time.monotonic() - began


def trees(net: Lab, held: Controller, count: int) -> None:
    """A group of two members over three switches, and a third member who comes and goes."""
    two, three = "h1->s1 s1->s2 s2->h2 s1->s3 s3->h3", "h1->s1 s1->s2 s2->h2 s1->s3 s3->h3 s3->h6"
    whole, joins = [], []
    for _ in range(count):
        whole.append(join(held, two))
        joins.append(join(held, three))
        held.enforcer.remove("g")
        time.sleep(0.2)
    print(f"  multicast tree over 3 switches to 2 members, {count} times, to proven: {quantiles(whole)}")
    print(f"  a member more, to proven: {quantiles(joins)}", flush=True)


def moved(net: Lab, held: Controller, folder: Path, count: int) -> None:
    """A link of a tree goes down under a datagram each 4 ms: the controller's service plans and proves another. Without datagrams for so long."""
    gaps, lost = [], []
    with beating(folder) as managers, serving(folder, held):
        managers[1].transact([Put(row) for row in asked(1, Side.PUBLISH, "t", 4_000_000, 0)])
        for number in (2, 3):
            managers[number].transact([Put(row) for row in asked(number, Side.SUBSCRIBE, "t", qos=0)])

        def row() -> GroupRow | None:
            found = managers[1].snapshot().groups.get("group:m1:t")
            whole = found is not None and found.members == ("m2", "m3") and found.state is ChannelState.PROVEN
            return found if whole else None

        until(row, 20, "the group")
        for _ in range(count):
            before = row()
            assert before is not None
            used = next(name for name in before.links if name.startswith("s1->s"))
            heard = [Listener(net, number, before.address) for number in (2, 3)]
            source = Source(net, before.address)
            source.begin(0.004)
            time.sleep(0.3)
            run("ip", "-n", net.inside, "link", "set", used.replace("->", "-"), "down")
            until(lambda used=used: (now := row()) and used not in now.links, 10, "another tree")
            time.sleep(0.2)
            source.close()
            time.sleep(0.1)
            for listener in heard:
                listener.close()
            times = [sorted(when for when, _number, _mark in listener.heard) for listener in heard]
            gaps.append(max(b - a for found in times for a, b in itertools.pairwise(found)))
            lost.append(max(source.sent - len(listener.numbers()) for listener in heard))
            run("ip", "-n", net.inside, "link", "set", used.replace("->", "-"), "up")
            until(lambda: held.links_up() == 6, 10, "the link again")
            time.sleep(0.5)
    print(f"  link of a tree down, {count} times, a member without datagrams for: {quantiles(gaps)}", end="")
    print(f"; lost of one each 4 ms: median {statistics.median(lost):g}, most {max(lost)}", flush=True)


def reached(held: Controller, seen: dict[str, int], state: ChannelState) -> None:
    """Waits until every channel was reported to be in a state after what was seen of it."""

    def all_are() -> bool:
        return all(any(s is state for s, _reason in held.of(name)[count:]) for name, count in seen.items())

    until(all_are, 30, f"all {state}")


def main() -> int:
    """All figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    failures = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    missed = False
    with lab(4, [(1, 2), (2, 3), (3, 4)], [1, 4]) as net, controller(net, site(net, times=Times())) as held:
        introduce(net, held)
        requests(net, held, 5, "h1 s1 s2 s3 s4 h2")
        installed, proven = requests(net, held, count, "h1 s1 s2 s3 s4 h2", keep=50)
        print(f"  request over 4 switches, {count} times, to rules confirmed and read back: {quantiles(installed)}")
        print(f"  to proven: {quantiles(proven)}", flush=True)
    with lab(4, [(1, 2), (2, 3), (3, 4), (4, 1)], [1, 3]) as net, controller(net, site(net, times=Times())) as held:
        introduce(net, held)
        _installed, proven = requests(net, held, count // 4, SHORT, AROUND)
        print(f"  request over 3 switches with a backup way, both proven: {quantiles(proven)}", flush=True)
        for link, words in (("s1-s2", "at the first switch"), ("s2-s3", "further on")):
            results = [failover(net, held, link, number) for number in range(failures)]
            gaps, lost = [gap for gap, _lost in results], [lost for _gap, lost in results]
            missed |= statistics.median(gaps) > FAILOVER_AIM_S
            print(f"  link down {words}, {failures} times, without frames for: {quantiles(gaps)}", end="")
            print(f"; lost of one each 0.5 ms: median {statistics.median(lost):g}, most {max(lost)}", flush=True)
    with lab(3, [(1, 2), (2, 3), (1, 3)], [1, 2, 3, 1, 2, 3]) as net, controller(net, site(net, times=Times())) as held:
        introduce(net, held)
        trees(net, held, count // 4)
        with tempfile.TemporaryDirectory() as folder:
            moved(net, held, Path(folder), failures)
    times = restarts(3)
    missed |= statistics.median(times) > RESTORED_AIM_S
    print(f"  vswitchd of 8 switches killed and started, until 10 channels are proven: {quantiles(times)}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
