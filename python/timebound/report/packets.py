"""The section of the report on captured packets."""

from __future__ import annotations

from collections.abc import Callable

from .document import section
from .figures.packets import captures
from .markup import Markup, el
from .run import Run, figure, items, mapping, text
from .tables import Cell, Row, Table, bytes_cell, count_cell, share_cell

TCP = ("retransmissions", "spurious_retransmissions", "duplicate_acks", "out_of_order")
COLUMNS = (
    "capture",
    "frames",
    "bytes on the wire",
    "application payload",
    "goodput",
    "overhead on the wire",
    "without TCP/UDP payload",
    "without application payload",
    "TCP control",
    "MQTT control",
    "PUBLISH",
    *(name.replace("_", " ") for name in TCP),
    "ARP",
)
PAPER = (
    "The vNET paper says of its captures that over 80 % of the packets were TCP overhead, and at QoS 1 that 30 % had a data payload, "
    "MQTT control and segments of a few bytes included: compare “without TCP/UDP payload” with the latter."
)


def packets(run: Run, picture: Callable[[Run, str, str, str], Markup]) -> Markup | None:
    """The section; None where the run captured nothing."""
    found = run.packets
    if not found:
        return None
    reason = text(found.get("reason"))
    if not captures(run):
        return section("packets", "Packets", el("p", reason or "The captures hold no packets.", class_="note"))
    entries = items(found.get("captures"))
    said = [
        f"{text(e.get('capture'))}: {words}"
        for e in entries
        for words in (*(e.get("notes") or []), e.get("problem"))
        if words
    ]
    caption = "All frames of a capture are 100 %. Rows with an arrow are one direction of the link above them."
    missing = "Nothing to show."
    return section(
        "packets",
        "Packets",
        el("p", f"What the captures are made of, as tshark {text(found.get('tshark'))} dissects them.", class_="muted"),
        el("div", el("strong", "Mind"), el("ul", *(el("li", words) for words in said[:40])), class_="note")
        if said
        else None,
        picture(run, "packet-kinds", caption, missing),
        picture(run, "packet-sizes", caption, missing),
        picture(
            run,
            "packet-overhead",
            "What of the line's time carries application payload, and what the rest is for.",
            missing,
        ),
        picture(
            run,
            "packet-series",
            "Per interval; the red marks are segments sent again.",
            "The captures are too short for a course over time.",
        ),
        _table(run).render(),
        el("p", PAPER, class_="muted"),
    )


def _table(run: Run) -> Table:
    rows = []
    for entry in captures(run):
        rows.append(_row(text(entry.get("capture")), entry))
        ports = items(entry.get("ports"))
        if len(ports) > 1:
            rows += [_row(text(port.get("port")).replace("->", " → "), port) for port in ports]
    caption = "Captures: frames, bytes, shares of frames, and what TCP had to repair."
    return Table("packet-table", caption, COLUMNS, rows[:1000], len(rows))


def _row(name: str, entry: object) -> Row:
    totals = mapping(mapping(entry).get("totals"))
    kinds = mapping(totals.get("categories"))
    tcp = mapping(totals.get("tcp"))

    def share(kind: str) -> Cell:
        return share_cell(figure(mapping(kinds.get(kind)).get("share")))

    goodput = figure(totals.get("goodput_bytes_per_s"))
    return Row(
        name,
        (
            count_cell(figure(totals.get("frames"))),
            bytes_cell(figure(totals.get("wire_bytes"))),
            bytes_cell(figure(totals.get("payload_bytes"))),
            Cell("–" if goodput is None else f"{bytes_cell(goodput).shown}/s", goodput, True),
            share_cell(figure(mapping(totals.get("overhead")).get("wire_share"))),
            share_cell(figure(mapping(totals.get("without_transport_payload")).get("share"))),
            share_cell(figure(mapping(totals.get("without_application_payload")).get("share"))),
            share("tcp-control"),
            share("mqtt-control"),
            share("publish"),
            *(count_cell(figure(tcp.get(kind))) for kind in TCP),
            count_cell(figure(mapping(kinds.get("arp")).get("frames"))),
        ),
    )
