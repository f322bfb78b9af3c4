"""Adds rows up per link, node and interval, in bounded memory.

Where a capture is so long that its intervals become too many, they are joined two by two: the interval that results is
part of the answer. Nodes beyond `MOST_NODES` are counted together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from timebound.engine.packets.frames import MEASURES

if TYPE_CHECKING:
    import polars as pl

MOST_ROWS = 300_000
"""Rows of one table in memory, before intervals are joined."""
MOST_NODES = 4096
OTHERS = "(others)"
PORT_KEY = ("port", "start_ns", "category", "frame_class", "ip_class")
NODE_KEY = ("node", "direction", "start_ns", "category")
PACKET_KEY = ("port", "type")


@dataclass(slots=True)
class Counts:
    """The sums of one capture."""

    interval_ns: int
    origin_unix_ns: int | None
    most_rows: int = MOST_ROWS
    ports: pl.DataFrame | None = None
    nodes: pl.DataFrame | None = None
    packets: pl.DataFrame | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    cut: int = 0
    """Frames of which fewer bytes were captured than there were."""
    _known: dict[str, None] = field(default_factory=dict)

    def add(self, rows: pl.DataFrame, packets: pl.DataFrame | None = None) -> None:
        """Adds rows of `Reader.rows`."""
        import polars as pl

        if rows.height == 0:
            return
        times = rows["time_ns"].drop_nulls()
        if times.len():
            low, high = int(times.min()), int(times.max())  # type: ignore[arg-type]
            self.first_ns = low if self.first_ns is None else min(self.first_ns, low)
            self.last_ns = high if self.last_ns is None else max(self.last_ns, high)
            self.origin_unix_ns = low if self.origin_unix_ns is None else self.origin_unix_ns
        self.cut += rows.filter(pl.col("captured_bytes") < pl.col("frame_bytes")).height
        since = pl.col("time_ns").fill_null(self.origin_unix_ns or 0) - (self.origin_unix_ns or 0)
        rows = rows.with_columns(start_ns=since // self.interval_ns * self.interval_ns)
        self.ports = _sum([self.ports, rows], PORT_KEY)
        self.nodes = _sum([self.nodes, *self._ends(rows)], NODE_KEY)
        if packets is not None and packets.height:
            self.packets = _packets([self.packets, packets])
        while max(self.ports.height, self.nodes.height) > self.most_rows and self._coarsen():
            pass

    def _ends(self, rows: pl.DataFrame) -> list[pl.DataFrame]:
        """Each frame once for who sent it and once for whom it is."""
        import polars as pl

        ends = []
        for column, direction in (("source", "sent"), ("target", "received")):
            names = rows[column].unique(maintain_order=True)
            for name in names:
                if len(self._known) < MOST_NODES:
                    self._known.setdefault(name)
            strange = [name for name in names if name not in self._known]
            node = pl.col(column) if not strange else pl.col(column).replace(dict.fromkeys(strange, OTHERS))
            ends.append(rows.with_columns(node=node, direction=pl.lit(direction)))
        return ends

    def _coarsen(self) -> bool:
        """Joins intervals two by two; False when there is one left."""
        import polars as pl

        assert self.ports is not None and self.nodes is not None
        if self.ports["start_ns"].n_unique() < 2:
            return False
        self.interval_ns *= 2
        joined = (pl.col("start_ns") // self.interval_ns * self.interval_ns).alias("start_ns")
        self.ports = _sum([self.ports.with_columns(joined)], PORT_KEY)
        self.nodes = _sum([self.nodes.with_columns(joined)], NODE_KEY)
        return True


def _sum(tables: list[pl.DataFrame | None], key: tuple[str, ...]) -> pl.DataFrame:
    import polars as pl

    columns = [*key, *MEASURES]
    whole = pl.concat([table.select(columns) for table in tables if table is not None])
    return whole.group_by(key).agg(pl.col(MEASURES).sum()).sort(key)


def _packets(tables: list[pl.DataFrame | None]) -> pl.DataFrame:
    import polars as pl

    whole = pl.concat([table.select(*PACKET_KEY, "packets") for table in tables if table is not None])
    return whole.group_by(PACKET_KEY).agg(pl.col("packets").sum()).sort(PACKET_KEY)
