"""Tables of the report: cells with the exact figure for sorting and the rounded one for reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .markup import Markup, el, join
from .ranking import critical, loaded
from .run import SHARES, Flow, Run, figure, items, mapping, text
from .units import bytes_text, count_text, plain_text, rate_text, ratio_text, share_text, time_text
from .words import SYMBOL, known_verdict

# More rows than this make a page slow to open on a phone; the rest is in summary.json, and the caption says so.
MOST_FLOWS = 2000
MOST_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown, and for figures the exact value (`None` when absent)."""

    shown: str | Markup
    value: float | None = None
    is_figure: bool = False
    class_: str | None = None

    def render(self) -> Markup:
        if not self.is_figure:
            return el("td", self.shown, class_=self.class_)
        return el("td", self.shown, data_v="" if self.value is None else repr(self.value), class_=self.class_)


def time_cell(us: float | None, *, bad: bool = False) -> Cell:
    return Cell(time_text(us, 4), us, True, "bad" if bad else None)


def count_cell(count: float | None, *, bad: bool = False) -> Cell:
    return Cell(count_text(count), count, True, "bad" if bad and count else None)


def share_cell(share: float | None, *, bad: bool = False) -> Cell:
    return Cell(share_text(share), share, True, "bad" if bad else None)


def ratio_cell(ratio: float | None) -> Cell:
    return Cell(ratio_text(ratio), ratio, True)


def bytes_cell(size: float | None, *, bad: bool = False) -> Cell:
    return Cell(bytes_text(size), size, True, "bad" if bad else None)


def verdict_word(verdict: str) -> Markup:
    known = known_verdict(verdict)
    return el("span", f"{SYMBOL[known]}\u00a0{verdict or known}", class_=f"word is-{known}")


@dataclass(frozen=True, slots=True)
class Row:
    heading: str
    cells: Sequence[Cell]
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its caption; `total` counts the rows there would be without the cap."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Row]
    total: int
    filtered: bool = False
    where: str = field(default="summary.json")

    def render(self) -> Markup:
        caption = self.caption
        if self.total > len(self.rows):
            caption += f" Shown are the {count_text(len(self.rows))} most critical of {count_text(self.total)}; all are in {self.where}."
        figures = {i + 1 for i, cell in enumerate(self.rows[0].cells) if cell.is_figure} if self.rows else set()
        head = el(
            "tr", *(el("th", c, scope="col", class_="n" if i in figures else None) for i, c in enumerate(self.columns))
        )
        body = [
            el(
                "tr",
                el("th", row.heading, scope="row", title=row.heading),
                *(c.render() for c in row.cells),
                class_="bad" if row.bad else None,
            )
            for row in self.rows
        ]
        table = el(
            "table",
            el("caption", caption, class_="cut" if len(self.rows) > 80 else None),
            el("thead", head),
            el("tbody", join(body, "\n")),
            class_="sortable",
            id=self.name,
        )
        tools = el("div", class_="tools", data_for=self.name) if self.filtered and len(self.rows) > 10 else None
        return join([tools, el("div", table, class_="box", tabindex=0, role="region", aria_label=caption)])


FLOW_COLUMNS = (
    "flow → receiver",
    "verdict",
    "deadline",
    "margin",
    "bound",
    "holistic",
    "calculus",
    "best case",
    "end to end",
    "bound, arrivals observed",
    "simulated max",
    "bound / found",
    "network max",
    "network p99",
    "network p50",
    "network min",
    "application max",
    "application p99",
    "application p50",
    "application min",
    "network share p50",
    "broker share p50",
    "host share p50",
    "sent",
    "received",
    "lost",
    "late",
    "duplicates",
    "reordered",
    "period",
    "jitter",
    "size",
    "priority",
    "QoS",
    "topic",
    "reason",
)


def flow_row(flow: Flow) -> Row:
    limit = flow.limit
    violated = flow.verdict == "violated"
    network, application, counts = flow.network, flow.application, flow.counts

    def over(value: float | None) -> bool:
        return violated and value is not None and limit is not None and value > limit

    deadline = flow.deadline
    late = application.max is not None and deadline is not None and application.max > deadline
    cells = [
        Cell(verdict_word(flow.verdict)),
        time_cell(deadline),
        time_cell(flow.margin, bad=flow.margin is not None and flow.margin < 0),
        time_cell(flow.bound) if flow.bound is not None else Cell(_no_bound(flow), None, True),
        *(time_cell(v) for v in (flow.holistic, flow.calculus, flow.best)),
        time_cell(flow.way.bound),
        time_cell(flow.bound_observed),
        time_cell(flow.simulated, bad=over(flow.simulated)),
        ratio_cell(flow.tightness),
        time_cell(network.max, bad=over(network.max)),
        *(time_cell(v) for v in (network.p99, network.p50, network.min)),
        time_cell(application.max, bad=late),
        *(time_cell(v) for v in (application.p99, application.p50, application.min)),
        *(time_cell(flow.shares[name].p50) for name in SHARES),
        count_cell(counts["sent"]),
        count_cell(counts["received"]),
        *(count_cell(counts[name], bad=True) for name in ("lost", "late", "duplicates", "reordered")),
        time_cell(flow.period),
        time_cell(flow.jitter),
        bytes_cell(flow.size),
        Cell(plain_text(flow.priority), flow.priority, True),
        Cell(plain_text(flow.qos), flow.qos, True),
        Cell(flow.topic),
        Cell(flow.reason, class_="wrap" if flow.reason else None),
    ]
    return Row(flow.name, cells, bad=violated)


def _no_bound(flow: Flow) -> str:
    if flow.verdict == "unsupported":
        return "unsupported"
    return "no finite bound" if flow.verdict == "unbounded" or flow.reason else time_text(None)


def flows(run: Run) -> Table:
    rows = [flow_row(flow) for flow in critical(run.flows)[:MOST_FLOWS]]
    caption = "Every flow at every receiver, the most critical first. Bounds count from the actual release at the first port of each segment, without the broker's time, and are the least of the holistic analysis and of network calculus at every port, and over stretches of ports, where a stream that goes the same way counts once. End to end is the bound from the nominal release, with release jitter and the brokers' times: a deadline is compared with it, and margin is deadline minus end to end."
    return Table("table-flows", caption, FLOW_COLUMNS, rows, len(run.flows), filtered=True)


def segments(run: Run) -> Table:
    found = [(flow, segment) for flow in critical(run.flows) for segment in flow.segments]
    columns = (
        "flow → receiver",
        "segment",
        "from",
        "to",
        "kept its jitter",
        "jitter declared",
        "jitter observed",
        "network max",
        "simulated max",
        "bound",
        "holistic",
        "calculus",
        "best case",
        "bound / found",
        "bound, arrivals observed",
        "path",
        "reason",
    )
    rows = []
    for flow, segment in found[:MOST_ROWS]:
        kept = {True: "✓ kept", False: "✗ not kept", None: "not measured"}[segment.kept]
        limit = segment.bound if segment.bound_observed is None else segment.bound_observed
        over = flow.verdict == "violated" and limit is not None
        cells = [
            Cell(segment.name),
            Cell(segment.source),
            Cell(segment.destination),
            Cell(kept, class_="bad" if segment.kept is False else None),
            time_cell(segment.declared_jitter),
            time_cell(segment.observed_jitter),
            time_cell(segment.latency.max, bad=over and (segment.latency.max or 0) > (limit or 0)),
            time_cell(segment.simulated, bad=over and (segment.simulated or 0) > (limit or 0)),
            *(time_cell(v) for v in (segment.bound, segment.holistic, segment.calculus, segment.best)),
            ratio_cell(segment.tightness),
            time_cell(segment.bound_observed),
            Cell("  ".join(port.replace("->", "→") for port in segment.path), class_="wrap"),
            Cell(segment.reason, class_="wrap" if segment.reason else None),
        ]
        rows.append(Row(flow.name, cells))
    caption = "The network segments of each flow, and whether the source kept its declared jitter at the segment's first port. Not kept is no failure: a busy host releases later than it declares, and the bound for the observed arrivals stands beside. Declare that jitter, and both bounds are one."
    return Table("table-segments", caption, columns, rows, len(found), filtered=True)


def queues(run: Run) -> Table:
    """Queue by queue what can wait at most."""
    found = [(port, queue) for port in loaded(run.ports) for queue in port.queues]
    columns = ("port", "class", "longest delay", "backlog", "buffer", "fits", "why no finite bound")
    rows = []
    for port, queue in found[:MOST_ROWS]:
        fits = "" if queue.backlog is None else ("✗ frames can be lost" if queue.exceeds else "✓ nothing is lost")
        cells = [
            Cell(plain_text(queue.priority), queue.priority, True),
            time_cell(queue.longest),
            bytes_cell(queue.backlog, bad=queue.exceeds),
            bytes_cell(queue.room),
            Cell(fits, class_="bad" if queue.exceeds else None),
            Cell(queue.reason, class_="wrap bad" if queue.reason else None),
        ]
        rows.append(Row(port.name.replace("->", " → "), cells, bad=queue.exceeds))
    caption = "The queue of every class that declared traffic uses: the longest that a frame stays, and the most that can wait. A buffer of that size loses nothing."
    return Table("table-queues", caption, columns, rows, len(found), filtered=True)


def ports(run: Run) -> Table:
    columns = (
        "port",
        "rate",
        "load declared",
        "load observed",
        "load simulated",
        "dropped",
        "largest queue",
        "backlog bound",
        "queue of bound",
        "why no finite bound",
    )
    rows = []
    for port in loaded(run.ports)[:MOST_ROWS]:
        used = None
        if port.largest_queue is not None and port.backlog_bound:
            used = port.largest_queue / port.backlog_bound
        cells = [
            Cell(rate_text(port.rate), port.rate, True),
            *(share_cell(v, bad=v is not None and v >= 1) for v in (port.declared, port.observed, port.simulated)),
            count_cell(port.dropped, bad=True),
            bytes_cell(port.largest_queue),
            bytes_cell(port.backlog_bound),
            share_cell(used, bad=used is not None and used > 1),
            Cell(port.reason, class_="wrap bad" if port.reason else None),
        ]
        rows.append(Row(port.name.replace("->", " → "), cells, bad=bool(port.reason)))
    caption = "Every output port: load as a share of its rate, drops, and the largest queue beside the backlog bound."
    return Table("table-ports", caption, columns, rows, len(run.ports), filtered=True)


def nodes(run: Run) -> Table:
    kinds = {text(n.get("name")): n for n in items(run.topology.get("nodes"))}
    columns = ("node", "kind", "cpu mean", "cpu max", "memory max", "sent", "received")
    rows = []
    ordered = sorted(
        run.nodes, key=lambda n: (-(figure(mapping(n.get("cpu_share")).get("max")) or 0.0), text(n.get("node")))
    )
    for raw in ordered[:MOST_ROWS]:
        cpu = mapping(raw.get("cpu_share"))
        name = text(raw.get("node"))
        cells = [
            Cell(text(kinds.get(name, {}).get("kind"))),
            share_cell(figure(cpu.get("mean"))),
            share_cell(figure(cpu.get("max"))),
            bytes_cell(figure(mapping(raw.get("memory_bytes")).get("max"))),
            bytes_cell(figure(raw.get("sent_bytes"))),
            bytes_cell(figure(raw.get("received_bytes"))),
        ]
        rows.append(Row(name, cells))
    caption = "What each node used while the run was measured; 100 % is one processor core."
    return Table("table-nodes", caption, columns, rows, len(run.nodes), filtered=True)


def undeclared(run: Run) -> Table:
    columns = ("source", "destination", "protocol", "frames", "bytes", "largest frame")
    ordered = sorted(run.undeclared, key=lambda raw: -(figure(raw.get("bytes")) or 0.0))
    rows = [
        Row(
            text(raw.get("source")),
            [
                Cell(text(raw.get("destination"))),
                Cell(text(raw.get("protocol"))),
                count_cell(figure(raw.get("frames"))),
                bytes_cell(figure(raw.get("bytes"))),
                bytes_cell(figure(raw.get("largest"))),
            ],
        )
        for raw in ordered[:MOST_ROWS]
    ]
    caption = "Frames seen on the wire that no stream declared. Bounds do not count them, beyond one largest frame of best effort on every port."
    return Table("table-undeclared", caption, columns, rows, len(run.undeclared))


def switches(run: Run) -> Table:
    """Transit times of real switches beside what is declared of them."""
    rows = []
    for raw in run.switches[:MOST_ROWS]:
        transit, declared = mapping(raw.get("transit_us")), raw.get("declared_us")
        least, greatest = declared if isinstance(declared, list) and len(declared) == 2 else (None, None)
        above, below = figure(raw.get("above")), figure(raw.get("below"))
        cells = [
            Cell(f"{time_text(figure(least))} to {time_text(figure(greatest))}"),
            *(time_cell(figure(transit.get(name))) for name in ("min", "p50", "p99", "p999", "max")),
            count_cell(figure(raw.get("left"))),
            count_cell(above, bad=True),
            count_cell(below, bad=True),
            count_cell(figure(raw.get("vanished"))),
            count_cell(figure(raw.get("entered"))),
        ]
        rows.append(Row(text(raw.get("switch")), cells, bad=bool(above or below)))
    caption = (
        "How long each real switch kept frames, from their last bit on the link to the moment it sent them; the emulator's own lateness "
        "is in it. Frames above or below the declared range disturb the run: the bounds assume the range."
    )
    head = (
        "switch",
        "declared",
        "least",
        "median",
        "p99",
        "p99.9",
        "most",
        "copies sent",
        "above",
        "below",
        "dropped",
        "its own",
    )
    return Table("table-switches", caption, head, rows, len(run.switches))


def preflight(run: Run) -> Table:
    checks = items(run.precision.get("preflight"))
    rows = []
    for raw in checks[:MOST_ROWS]:
        ok = raw.get("ok")
        word = ("✓ as expected" if ok else "✗ not as expected") if isinstance(ok, bool) else "not checked"
        cells = [
            Cell(text(raw.get("expected")), class_="wrap"),
            Cell(text(raw.get("measured")), class_="wrap"),
            Cell(word, class_="bad" if ok is False else None),
        ]
        rows.append(Row(text(raw.get("check")), cells, bad=ok is False))
    caption = (
        "Before anything was measured, probes checked that the emulated conditions are what the scenario asks for."
    )
    return Table("table-preflight", caption, ("check", "expected", "measured", "result"), rows, len(checks))
