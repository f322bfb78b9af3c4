"""Rates of a running experiment: the difference between two looks at its counters. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_NODE_COUNTERS = ("cpu_ns", "tx_bytes", "rx_bytes", "tx_frames", "rx_frames")
_LINK_COUNTERS = ("frames", "wire_bytes", "dropped")


@dataclass(frozen=True, slots=True)
class Load:
    """What happened between two looks.

    `nodes`: node, state, cpu_share (of one CPU), rss_bytes, tx_bps and rx_bps (Ethernet frames without preamble, FCS and gap).
    `links`: port, rate_bps, bps (on the wire), load (0..1), frames_per_s, drops_per_s, dropped, queue_bytes,
    largest_queue_bytes. `emulator`: frames, lateness and losses since time zero; None before it.
    """

    status: dict[str, Any]
    span_s: float
    nodes: list[dict[str, Any]]
    links: list[dict[str, Any]]
    emulator: dict[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        status = {name: value for name, value in self.status.items() if name != "nodes"}
        return {**status, "span_s": self.span_s, "hosts": self.nodes, "links": self.links, "emulator": self.emulator}

    def headline(self) -> str:
        """Which run, and how far it is."""
        at = self.status["run_ns"]
        time = "" if at is None else f", {at / 1e9:.0f} s"
        return f"{self.status['scenario']} ({self.status['run_id']}): {self.status['phase']}{time}"

    def emulator_line(self) -> str:
        """How late the emulator is."""
        found = self.emulator
        if found is None:
            return "emulator: no figures before time zero"
        p50, p99, most = (found[f"lateness_{name}_ns"] / 1000 for name in ("p50", "p99", "max"))
        return (
            f"emulator: {found['frames']} frames, late by p50 {p50:.0f} us, p99 {p99:.0f} us, max {most:.0f} us; "
            f"{found['ring_lost']} lost in the ring, {found['refused']} refused"
        )


def rates(before: dict[str, Any], after: dict[str, Any]) -> Load:
    """Rates between two answers to `top`. A counter that went backwards (time zero lay between) gives no rate."""
    span = max(1e-9, (after["taken_ns"] - before["taken_ns"]) / 1e9)
    states = {node["node"]: node["state"] for node in after["status"]["nodes"]}
    old_nodes = {node["node"]: node for node in before["nodes"]}
    old_links = {link["port"]: link for link in before["links"]}
    nodes = []
    for node in after["nodes"]:
        grown = _grown(node, old_nodes.get(node["node"]), _NODE_COUNTERS)
        nodes.append(
            {
                "node": node["node"],
                "state": states.get(node["node"], "unknown"),
                "cpu_share": grown["cpu_ns"] / 1e9 / span,
                "rss_bytes": node["rss_bytes"],
                "tx_bps": 8 * grown["tx_bytes"] / span,
                "rx_bps": 8 * grown["rx_bytes"] / span,
                "tx_frames_per_s": grown["tx_frames"] / span,
                "rx_frames_per_s": grown["rx_frames"] / span,
            }
        )
    links = []
    for link in after["links"]:
        grown = _grown(link, old_links.get(link["port"]), _LINK_COUNTERS)
        bps = 8 * grown["wire_bytes"] / span
        links.append(
            {
                "port": link["port"],
                "rate_bps": link["rate_bps"],
                "bps": bps,
                "load": bps / link["rate_bps"] if link["rate_bps"] else 0.0,
                "frames_per_s": grown["frames"] / span,
                "drops_per_s": grown["dropped"] / span,
                "dropped": link["dropped"],
                "queue_bytes": link["queue_bytes"],
                "largest_queue_bytes": link["largest_queue_bytes"],
            }
        )
    return Load(after["status"], span, nodes, links, after["emulator"])


def _grown(now: dict[str, Any], before: dict[str, Any] | None, names: tuple[str, ...]) -> dict[str, int]:
    return {name: 0 if before is None else max(0, now[name] - before[name]) for name in names}
