"""The paper's statements about the experiment, each checked against the measured cells. Pure: cells in, verdicts out.

The texts are in our own words. The paper gives its figures as drawings, so orders and ratios that it states in words are checked,
and no numbers read off a drawing; Table II is the one place with figures. What a set of cells cannot decide has `holds` None and
says why.

A cell is the object that `measure.figures` makes; see docs/reproduce.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Cell = Mapping[str, Any]
Cells = Mapping[tuple[int, int], Cell]
"""(scenario, QoS) -> cell."""

NOISE = 0.02
"""Two figures closer than this share of the smaller one are not told apart: repeated cells differ by about as much."""
PAPER_CLIENTS = 350


@dataclass(frozen=True, slots=True)
class Found:
    """What the cells say: a verdict, the figures behind it, and why if there is no verdict or the paper is not met."""

    ours: str
    holds: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: where the paper makes it, what it says in our words, and its figures as printed."""

    id: str
    where: str
    text: str
    paper: str
    needs: tuple[tuple[int, int], ...]
    check: Callable[[Cells], Found]


def check_all(cells: Cells) -> list[dict[str, Any]]:
    """Every statement with its verdict, as it stands in `reproduce.json`."""
    answers = []
    for statement in STATEMENTS:
        missing = [
            f"scenario {scenario} QoS {qos}" for scenario, qos in statement.needs if (scenario, qos) not in cells
        ]
        found = Found("not run", None, f"needs {', '.join(missing)}") if missing else statement.check(cells)
        disturbed = sorted(
            f"scenario {s} QoS {q}"
            for s, q in statement.needs
            if (s, q) in cells and cells[s, q]["certificate"]["verdict"] != "good"
        )
        why = found.why
        if disturbed:
            why = f"{why}{'; ' if why else ''}the machine disturbed {', '.join(disturbed)}: read with care"
        answers.append(
            {
                "id": statement.id,
                "where": statement.where,
                "text": statement.text,
                "paper": statement.paper,
                "ours": found.ours,
                "holds": found.holds,
                "why": why,
            }
        )
    return answers


# --- what the checks share ---------------------------------------------------------------------------------------------


def _held(cell: Cell, name: str) -> float:
    """A mean over the time in which all clients had joined."""
    return float(cell["held"][name])


def _cpu(value: float) -> str:
    return f"{value * 100:.3g} %"


def _rate(value: float) -> str:
    return f"{value / 1000:.3g} kB/s"


def _row(values: list[float], show: Callable[[float], str]) -> str:
    return ", ".join(f"QoS {qos}: {show(value)}" for qos, value in enumerate(values))


def _rises(values: list[float], noise: float = NOISE) -> bool | None:
    """Does each value exceed the one before it? None where that is within the noise."""
    verdict: bool | None = True
    for before, after in itertools.pairwise(values):
        if after < before * (1 - noise):
            return False
        if after <= before * (1 + noise):
            verdict = None
    return verdict


def _spread(cells: Cells, keys: tuple[tuple[int, int], ...], *names: str) -> float:
    """The largest variation of these CPU figures within one of these cells, as a share of their median."""
    return max((float(cells[key].get("spread", {}).get(name, 0.0)) for key in keys for name in names), default=0.0)


def _unsure(found: Found, spread: float, smallest: float) -> Found:
    """Takes back a verdict on CPU time whose differences are within what the machine makes of one and the same load.

    `smallest` is the least relative difference on which the verdict rests.
    """
    if found.holds is None or smallest > spread or spread <= NOISE:
        return found
    why = f"CPU time varied by {spread:.0%} within a cell with what else this machine did: too much to tell"
    return Found(f"{found.ours} ({'as stated' if found.holds else 'not as stated'})", None, why)


def _least_difference(values: list[float]) -> float:
    return min((abs(b - a) / min(a, b) if min(a, b) > 0 else 0.0 for a, b in itertools.pairwise(values)), default=0.0)


def _order(values: list[float], show: Callable[[float], str]) -> Found:
    holds = _rises(values)
    why = {True: "", None: "two levels are too close to be told apart", False: "a higher level costs less"}[holds]
    return Found(_row(values, show), holds, why)


def _rising(scenario: int, name: str, show: Callable[[float], str]) -> Callable[[Cells], Found]:
    def check(cells: Cells) -> Found:
        keys = tuple((scenario, qos) for qos in range(3))
        values = [_held(cells[key], name) for key in keys]
        return _unsure(_order(values, show), _spread(cells, keys, name), _least_difference(values))

    return check


def _steps(scenario: int, name: str, show: Callable[[float], str]) -> Callable[[Cells], Found]:
    """Is the step from QoS 1 to 2 much larger (half as large again, at least) than that from 0 to 1?"""

    def check(cells: Cells) -> Found:
        keys = tuple((scenario, qos) for qos in range(3))
        values = [_held(cells[key], name) for key in keys]
        first, second = values[1] - values[0], values[2] - values[1]
        ours = f"0 to 1: {show(first)}, 1 to 2: {show(second)}"
        if second > 1.5 * max(first, 0.0):
            found = Found(ours, True)
        else:
            reason = "larger, but by less than half" if second > first else "the step to QoS 1 is as large or larger"
            found = Found(ours, False, f"{reason}: QoS 1 adds one packet to a message, QoS 2 adds two more")
        return _unsure(found, _spread(cells, keys, name), _least_difference(values))

    return check


def _ratio(above: float, below: float) -> float | None:
    return above / below if below > 0 else None


# --- scenario 1 --------------------------------------------------------------------------------------------------------


def _subscriber_cpu(cells: Cells) -> Found:
    ratios = [_ratio(_held(cells[1, qos], "subscriber_cpu"), _held(cells[1, qos], "publisher_cpu")) for qos in range(3)]
    if None in ratios:
        return Found("no CPU time of publishers", None, "publishers used no CPU time that could be measured")
    known = [ratio for ratio in ratios if ratio is not None]
    ours = _row(known, lambda ratio: f"{ratio:.3g} times")
    if max(known) <= 6 * 1.25:
        return Found(ours, True)
    return Found(
        ours,
        False,
        "the paper's publishers are whole virtual machines whose idle operating system is most of their 1 %; here a "
        "publisher is one process that costs next to nothing between its messages",
    )


def _subscriber_network(cells: Cells) -> Found:
    ratios = []
    for qos in range(3):
        cell = cells[1, qos]
        ratio = _ratio(_held(cell, "subscriber_bytes"), _held(cell, "publisher_bytes"))
        if ratio is None:
            return Found("publishers sent nothing", None, "no traffic of publishers")
        ratios.append(ratio)
    ours = _row(ratios, lambda ratio: f"{ratio:.3g} times")
    clients = cells[1, 0]["clients"]
    if clients != PAPER_CLIENTS:
        why = f"the ratio follows the number of publishers ({clients} here, {PAPER_CLIENTS} there)"
        return Found(ours, None, why)
    holds = 0.75 * 360 <= max(ratios) <= 1.25 * 360
    return Found(ours, holds, "" if holds else "what every message costs both ends in bytes differs")


def _cpu_less_than_network(cells: Cells) -> Found:
    shown, holds = [], True
    for qos in range(3):
        cell = cells[1, qos]
        cpu = _ratio(_held(cell, "subscriber_cpu"), _held(cell, "publisher_cpu"))
        network = _ratio(_held(cell, "subscriber_bytes"), _held(cell, "publisher_bytes"))
        if cpu is None or network is None:
            return Found("no figures of publishers", None, "publishers used nothing that could be measured")
        shown.append(f"QoS {qos}: CPU {cpu:.3g} times, network {network:.3g} times")
        holds &= cpu < network
    return Found("; ".join(shown), holds, "" if holds else "CPU grows as much as the traffic")


def _publisher_network(cells: Cells) -> Found:
    values = [_held(cells[1, qos], "publisher_bytes") for qos in range(3)]
    ours = _row(values, lambda value: f"{value:.3g} B/s")
    clients = cells[1, 0]["clients"]
    if clients != PAPER_CLIENTS:
        return Found(ours, None, f"100 messages/s are shared by {clients} publishers here, by {PAPER_CLIENTS} there")
    holds = all(450 <= value <= 1100 for value in values)
    why = (
        "100/350 messages/s of 717 B with all headers and answers make this much; the paper does not say what it counts"
    )
    return Found(ours, holds, "" if holds else why)


def _weaker_at_nodes(cells: Cells) -> Found:
    growth = {}
    for name in ("broker_cpu", "subscriber_cpu", "publisher_cpu"):
        ratio = _ratio(_held(cells[1, 2], name), _held(cells[1, 0], name))
        if ratio is None:
            return Found("no CPU time", None, f"{name} was not measurable")
        growth[name] = ratio
    ours = ", ".join(f"{name.removesuffix('_cpu')} x{ratio:.3g}" for name, ratio in growth.items()) + " from QoS 0 to 2"
    holds = growth["broker_cpu"] > max(growth["subscriber_cpu"], growth["publisher_cpu"]) * (1 + NOISE)
    why = "without an idle operating system in the figure, the acknowledgements weigh as much at a client as at the broker"
    names = ("broker_cpu", "subscriber_cpu", "publisher_cpu")
    others = max(growth["subscriber_cpu"], growth["publisher_cpu"])
    difference = abs(growth["broker_cpu"] - others) / min(growth["broker_cpu"], others)
    return _unsure(Found(ours, holds, "" if holds else why), _spread(cells, ((1, 0), (1, 2)), *names), difference)


def _grows_with_clients(cells: Cells) -> Found:
    """The extra cost of QoS 2 over QoS 0 at the subscriber, in the first and in the last quarter of the joining."""
    extra = []
    for low, high in ((0.0, 0.25), (0.75, 1.0)):
        means = []
        for qos in (0, 2):
            cell = cells[1, qos]
            points = [
                point["subscriber_cpu"]
                for point in cell["curve"]
                if low * cell["clients"] <= point["clients"] <= high * cell["clients"] and point["clients"] > 0
            ]
            if not points:
                return Found("too few samples", None, "the clients joined faster than samples were taken")
            means.append(sum(points) / len(points))
        extra.append(means[1] - means[0])
    ours = f"QoS 2 costs the subscriber {_cpu(extra[0])} more with few clients, {_cpu(extra[1])} with many"
    holds = extra[1] > extra[0] * 1.1
    why = "the messages per second are the same however many clients there are, and so is their cost"
    least = min(abs(extra[0]), abs(extra[1]))
    difference = abs(extra[1] - extra[0]) / least if least > 0 else 1.0
    return _unsure(
        Found(ours, holds, "" if holds else why), _spread(cells, ((1, 0), (1, 2)), "subscriber_cpu"), difference
    )


def _receives_more(cells: Cells) -> Found:
    shown, holds = [], True
    for qos in range(3):
        received, sent = (_held(cells[1, qos], f"broker_{way}_bytes") for way in ("rx", "tx"))
        shown.append(f"QoS {qos}: in {_rate(received)}, out {_rate(sent)}")
        holds &= received > sent * 1.1
    why = (
        "the subscriber keeps up here (what was lost is counted in each cell), so the broker sends on what it receives; the paper's "
        "own explanation is a subscriber that was overwhelmed"
    )
    return Found("; ".join(shown), holds, "" if holds else why)


def _host_cpu(cells: Cells) -> Found:
    return _rising(1, "all_nodes_cpu", _cpu)(cells)


# --- scenario 2 --------------------------------------------------------------------------------------------------------


def _little_effect(cells: Cells) -> Found:
    ratios = []
    for qos in range(3):
        ratio = _ratio(_held(cells[2, qos], "broker_cpu"), _held(cells[1, qos], "broker_cpu"))
        if ratio is None:
            return Found("no CPU time of the broker", None, "the broker's CPU time was not measured")
        ratios.append(ratio)
    holds = all(0.75 <= ratio <= 1.25 for ratio in ratios)
    ours = "scenario 2 over 1: " + _row(ratios, lambda ratio: f"{ratio:.3g}")
    why = "messages to one subscriber share reads, writes and segments, those to many do not"
    found = Found(ours, holds, "" if holds else why)
    spread = _spread(cells, (*_S1, *_S2), "broker_cpu")
    # Beyond a quarter is the verdict "differs": only what exceeds the machine's own variation can be that.
    return found if holds else _unsure(found, spread, max(abs(1 - ratio) for ratio in ratios))


def _equal_rates(cells: Cells) -> Found:
    shares = [
        _held(cells[2, qos], "broker_tx_bytes") / max(1.0, _held(cells[2, qos], "broker_rx_bytes")) for qos in range(3)
    ]
    holds = all(0.95 <= share <= 1.05 for share in shares)
    return Found(
        "out over in: " + _row(shares, lambda share: f"{share:.3g}"), holds, "" if holds else "more than 5 % apart"
    )


# --- packets of scenario 1 ---------------------------------------------------------------------------------------------


def _packets(check: Callable[[list[Mapping[str, Any]]], Found]) -> Callable[[Cells], Found]:
    def run(cells: Cells) -> Found:
        packets = [cells[1, qos].get("packets") for qos in range(3)]
        missing = next((cells[1, qos]["packets_missing"] for qos in range(3) if packets[qos] is None), None)
        if missing is not None:
            return Found("no packet analysis", None, str(missing))
        return check([entry for entry in packets if entry is not None])

    return run


def _shift(packets: list[Mapping[str, Any]]) -> Found:
    small, large = [], []
    for entry in packets:
        classes = entry["frame_classes"]
        total = max(1, sum(classes.values()))
        small.append((classes["40-79"] + classes["80-159"]) / total)
        large.append((classes["640-1279"] + classes[">=1280"]) / total)
    holds = _rises(small)
    falls = _rises([1 - share for share in large])
    verdict = True if holds and falls else False if holds is False or falls is False else None
    ours = (
        "below 160 bytes: "
        + _row(small, lambda s: f"{s:.1%}")
        + "; from 640 bytes: "
        + _row(large, lambda s: f"{s:.1%}")
    )
    why = {True: "", None: "two levels are too close to be told apart", False: "the shares do not shift one way"}[
        verdict
    ]
    return Found(ours, verdict, why)


def _arp(packets: list[Mapping[str, Any]]) -> Found:
    shares = [entry["categories"].get("arp", 0.0) for entry in packets]
    holds = all(share < 0.0005 for share in shares)
    return Found(
        _row(shares, lambda share: f"{share:.3%}"), holds, "" if holds else "every joining client resolves an address"
    )


def _class_is(name: str, kinds: tuple[str, ...], why: str) -> Callable[[list[Mapping[str, Any]]], Found]:
    """Do the frames of a class consist of these categories alone?"""

    def check(packets: list[Mapping[str, Any]]) -> Found:
        shares = []
        for entry in packets:
            inside = entry["kinds"][name]
            total = sum(inside.values())
            if total == 0:
                shares.append(1.0)
                continue
            shares.append(sum(inside.get(kind, 0) for kind in kinds) / total)
        holds = all(share > 0.999 for share in shares)
        return Found(_row(shares, lambda share: f"{share:.1%}"), holds, "" if holds else why)

    return check


def _without(name: str, least: float) -> Callable[[list[Mapping[str, Any]]], Found]:
    def check(packets: list[Mapping[str, Any]]) -> Found:
        shares = [entry[name] for entry in packets]
        holds = all(share > least for share in shares)
        why = "the kernels of today acknowledge most segments with the data they send anyway"
        return Found(_row(shares, lambda share: f"{share:.1%}"), holds, "" if holds else why)

    return check


def _payload_at_qos1(packets: list[Mapping[str, Any]]) -> Found:
    share = 1 - packets[1]["without_transport_payload"]
    holds = 0.25 <= share <= 0.35
    why = (
        "a message and its PUBACK are both data of TCP, on both sides of the broker, and today most acknowledgements of TCP travel "
        "with them; the share of packets with a message may be what the paper counted"
    )
    message = 1 - packets[1]["without_application_payload"]
    ours = f"{share:.1%} of the packets at QoS 1 carry data of TCP, {message:.1%} a message"
    return Found(ours, holds, "" if holds else why)


def _most_silent(packets: list[Mapping[str, Any]]) -> Found:
    shares = [entry["without_application_payload"] for entry in packets]
    holds = all(share > 0.5 for share in shares)
    return Found(
        _row(shares, lambda share: f"{share:.1%}"), holds, "" if holds else "at QoS 0 every other packet is a message"
    )


# --- all ---------------------------------------------------------------------------------------------------------------


def _delivered(cells: Cells) -> Found:
    lost = {key: cell["messages"]["lost"] for key, cell in cells.items() if key[1] == 0}
    sent = sum(cells[key]["messages"]["sent"] for key in lost)
    holds = sum(lost.values()) == 0
    return Found(f"{sum(lost.values())} of {sent} messages lost at QoS 0", holds, "" if holds else "see the cells")


def _nodes(cells: Cells) -> Found:
    largest = max(cells.values(), key=lambda cell: int(cell["nodes"]))
    verdict = largest["certificate"]["verdict"]
    ours = f"{largest['nodes']} nodes, emulator's own error: {verdict}"
    if largest["clients"] < PAPER_CLIENTS:
        return Found(ours, None, f"run with --clients {PAPER_CLIENTS}")
    return Found(ours, verdict == "good", "" if verdict == "good" else "the machine was disturbed")


def _not_here(_: Cells) -> Found:
    return Found(
        "not run",
        None,
        "this experiment has no network adapter in its path; timebound has hardware in the loop for that",
    )


_S1 = ((1, 0), (1, 1), (1, 2))
_S2 = ((2, 0), (2, 1), (2, 2))

STATEMENTS: tuple[Statement, ...] = (
    Statement("broker-cpu-order", "Fig. 8", "The broker's CPU use rises with the QoS level.", "0 < 1 < 2", _S1, _rising(1, "broker_cpu", _cpu)),
    Statement("broker-network-order", "Fig. 9", "What the broker sends and receives rises with the QoS level.", "0 < 1 < 2", _S1, _rising(1, "broker_bytes", _rate)),
    Statement("broker-cpu-step", "III-A", "The step in the broker's CPU use from QoS 1 to 2 is much larger than from 0 to 1.", "much larger", _S1, _steps(1, "broker_cpu", _cpu)),
    Statement("broker-network-step", "III-A", "So is the step in the broker's traffic.", "much larger", _S1, _steps(1, "broker_bytes", _rate)),
    Statement("subscriber-cpu-order", "Fig. 10", "The single subscriber's CPU use rises with the QoS level.", "0 < 1 < 2", _S1, _rising(1, "subscriber_cpu", _cpu)),
    Statement("subscriber-network-order", "Fig. 11", "The single subscriber's traffic rises with the QoS level.", "0 < 1 < 2", _S1, _rising(1, "subscriber_bytes", _rate)),
    Statement("subscriber-cpu-ratio", "Fig. 10", "The subscriber uses at most about six times the CPU of a publisher.", "about 6", _S1, _subscriber_cpu),
    Statement("subscriber-network-ratio", "III-A", "Its traffic is up to about 360 times that of a publisher.", "360", _S1, _subscriber_network),
    Statement("cpu-below-network", "III-A", "Its CPU use exceeds a publisher's by far less than its traffic does.", "6 against 360", _S1, _cpu_less_than_network),
    Statement("publisher-network", "III-A", "A publisher's mean traffic is between half and one kilobyte per second.", "0.5 to 1 kB/s", _S1, _publisher_network),
    Statement("publisher-cpu-order", "Table II", "A publisher's CPU use rises with the QoS level.", "0.971 %, 0.977 %, 1.022 %", _S1, _rising(1, "publisher_cpu", _cpu)),
    Statement("host-cpu-order", "Table II", "The CPU use of all nodes together rises with the QoS level.", "69.0 %, 69.7 %, 71.1 %", _S1, _host_cpu),
    Statement("qos-weighs-at-broker", "III-A", "The QoS level matters much less to the nodes' CPU than to the broker's.", "much less", _S1, _weaker_at_nodes),
    Statement("qos-cost-grows", "III-A", "The cost of higher QoS at the subscriber grows with the number of clients.", "grows", ((1, 0), (1, 2)), _grows_with_clients),
    Statement("broker-receives-more", "Fig. 9", "In scenario 1 the broker receives clearly more than it sends.", "always", _S1, _receives_more),
    Statement("scenario-2-broker-cpu", "Fig. 12", "The broker's CPU use is about the same in scenario 2 as in scenario 1.", "little effect", (*_S1, *_S2), _little_effect),
    Statement("scenario-2-broker-order", "Fig. 12", "In scenario 2 too the broker's CPU use rises with the QoS level.", "0 < 1 < 2", _S2, _rising(2, "broker_cpu", _cpu)),
    Statement("scenario-2-network-order", "Fig. 13", "In scenario 2 too the broker's traffic rises with the QoS level.", "0 < 1 < 2", _S2, _rising(2, "broker_bytes", _rate)),
    Statement("scenario-2-equal-rates", "Fig. 13", "In scenario 2 the broker sends as much as it receives.", "almost exactly", _S2, _equal_rates),
    Statement("sizes-shift", "Fig. 14", "With rising QoS there are more small packets and fewer large ones.", "shifts", _S1, _packets(_shift)),
    Statement("arp-share", "III-C", "ARP is a negligible part of the packets.", "below 0.05 %", _S1, _packets(_arp)),
    Statement("class-40-79", "III-C", "Packets of 40 to 79 bytes are ARP or TCP control, nothing else.", "ARP and TCP control", _S1,
              _packets(_class_is("40-79", ("arp", "tcp-control"), "an acknowledgement of MQTT (4 bytes behind 66 bytes of headers) falls into this class as well"))),
    Statement("class-80-159", "III-C", "Packets of 80 to 159 bytes are MQTT control with next to no payload.", "MQTT control", _S1,
              _packets(_class_is("80-159", ("mqtt-control",), "other packets fall into this class as well"))),
    Statement("class-640-1279", "III-C", "Packets of 640 to 1279 bytes are the PUBLISH packets, nothing else.", "PUBLISH", _S1,
              _packets(_class_is("640-1279", ("publish",), "other packets fall into this class as well"))),
    Statement("tcp-overhead-80", "III-C", "At every QoS level more than 80 % of the packets are TCP overhead.", "over 80 %", _S1, _packets(_without("without_transport_payload", 0.8))),
    Statement("payload-30", "Fig. 15", "At QoS 1 only 30 % of the packets carry data (so 70 %, not 80 %, are overhead: the paper contradicts itself).", "30 %", _S1, _packets(_payload_at_qos1)),
    Statement("most-without-message", "III-C", "Most packets carry no message at all.", "over 80 %, or 70 %", _S1, _packets(_most_silent)),
    Statement("qos0-arrives", "III-C", "Messages at QoS 0 arrive as well, because TCP delivers them.", "very likely", ((1, 0),), _delivered),
    Statement("nodes-supported", "II-D", "One ordinary computer carries 350 complete nodes.", "350", ((1, 0),), _nodes),
    Statement("adapter", "III-C", "A real network adapter in the broker's link causes no trouble.", "none", (), _not_here),
)  # fmt: skip
"""In the order of the paper's figures."""
