"""`trace` of links: files read, places of errors."""

from __future__ import annotations

from pathlib import Path as FilePath

from timebound.scenario import shape_network as shape
from timebound.scenario.context import Context
from timebound.scenario.files import instead_of_file
from timebound.scenario.traces import MOST_BYTES, Trace, TraceError, parse_short, parse_trace
from timebound.scenario.tree import Path


class Traces:
    """The traces that links name, each file read once."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.known: dict[str, Trace | None] = {}
        self._default: dict[int, Trace | None] = {}
        """Of links that state neither trace nor rate, by way: looked at once, so that mistakes are told once."""

    def of(
        self, link: shape.Link, own: shape.Conditions | None, way: int, path: Path, defaults: shape.Conditions
    ) -> Trace | None:
        """The trace of one direction (0 forward), `None` where there is none or where it was reported.

        A trace is for full-duplex links without a rate of their own; whether the medium is shared the link's ends say. That of the defaults is for
        links that state neither.
        """
        side = ("forward", "backward")[way]
        stated, place = (link.trace, (*path, "trace"))
        rates = [(link.rate, (*path, "rate"))]
        if own is not None and own.trace is not None:
            stated, place, rates = own.trace, (*path, side, "trace"), []
        if own is not None:
            rates.append((own.rate, (*path, side, "rate")))
        if stated is None:
            rated = any(rate is not None for rate, _ in rates)
            return None if rated or defaults.trace is None else self._of_defaults(link, way, path, defaults)
        trace = self._resolve(stated, way, place, inner=place[-2:-1] == (side,))
        both = stated is not link.trace or stated.file is not None or stated.opportunities is not None
        wrong = next((where for rate, where in rates if rate is not None), None)
        if trace is not None and wrong is not None and (both or wrong[-2:-1] == (side,)):
            self.context.error(wrong, "a rate beside a trace", "the trace says when how much passes: remove the rate")
        return self._on(link, trace, path)

    def _on(self, link: shape.Link, trace: Trace | None, path: Path) -> Trace | None:
        if trace is not None and link.duplex == "half":
            hint = "remove duplex: the two directions of a cellular link have a trace each"
            self.context.error((*path, "duplex"), "a trace on a half-duplex link", hint)
        return trace

    def _of_defaults(self, link: shape.Link, way: int, path: Path, defaults: shape.Conditions) -> Trace | None:
        if way not in self._default and defaults.trace is not None:
            place = ("network", "defaults", "link")
            self._default[way] = self._resolve(defaults.trace, way, (*place, "trace"), inner=False)
            if defaults.rate is not None and way == 0:
                hint = "the trace says when how much passes: remove the rate"
                self.context.error((*place, "rate"), "a rate beside a trace", hint)
        return self._on(link, self._default.get(way), path)

    def _resolve(self, stated: shape.Trace, way: int, place: Path, *, inner: bool) -> Trace | None:
        if stated.opportunities is not None:
            try:
                return parse_short(stated.opportunities)
            except TraceError as error:
                where = f" (number {error.line})" if error.line else ""
                self.context.error(place, f"{error.message}{where}", error.hint)
                return None
        name = stated.file or (stated.up, stated.down)[way]
        if inner and stated.file is None:
            self.context.error(place, "up and down belong to the link, not to one direction", "write trace: lte.up")
            return None
        return None if name is None else self._read(name, place)

    def _read(self, name: str, place: Path) -> Trace | None:
        if name not in self.known:
            self.known[name] = self._parse(name, place)
        return self.known[name]

    def _parse(self, name: str, place: Path) -> Trace | None:
        folder = self.context.folder
        file = FilePath(name) if folder is None else folder / name
        try:
            if (reason := instead_of_file(file)) is not None:
                self.context.error(place, f"{str(file)!r} {reason}", "name a file of delivery opportunities")
                return None
            with file.open("rb") as stream:
                content = stream.read(MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.context.error(place, f"{str(file)!r} cannot be read: {reason}", "name a readable file")
            return None
        try:
            return parse_trace(content, name)
        except TraceError as error:
            where = f":{error.line}" if error.line else ""
            self.context.error(place, f"{name}{where}: {error.message}", error.hint)
            return None
