"""What the edges of an imported topology say of rate, delay and length, in the words and units of many programs; and what of it was not used."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from timebound.scenario import units


@dataclass(frozen=True, slots=True)
class Stated:
    """What an edge states."""

    rate_bps: int | None = None
    delay_ns: int | None = None
    kilometres: float | None = None


_RATES = ("linkspeedraw", "ratebps", "bandwidth", "capacity", "rate", "bw", "speed", "linkspeed", "datarate", "bitrate")
_DELAYS = ("delayns", "latency", "delay", "propagationdelay", "propdelay")
_LENGTHS = ("dist", "lengthkm", "distance", "distancekm", "length")
_IN_KEY = {
    "ns": "ns",
    "us": "us",
    "ms": "ms",
    "s": "s",
    "sec": "s",
    "kbps": "kbit/s",
    "mbps": "Mbit/s",
    "gbps": "Gbit/s",
    "m": "m",
}
"""Units at the end of a key: `latency_ms`, `bandwidth_mbps`, `length_m`."""
_UNDERSTOOD = frozenset({"linkspeedraw", "ratebps", "delayns", *_LENGTHS})
"""Numbers without a unit mean bit/s, ns and km there, as the Topology Zoo, topohub and our own export write them."""
_DECORATION = frozenset(
    {
        "id",
        "key",
        "name",
        "label",
        "type",
        "color",
        "fill",
        "width",
        "style",
        "zorder",
        "graphics",
        "description",
        "url",
        "note",
    }
    | {"linklabel", "linktype", "linknote", "linkstatus", "edgelabel", "source", "target", "directed"}
)
"""What draws or names a link: nothing is lost without it."""
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?)\s*([^\s0-9].*?)?\s*")
_RATE_UNIT = re.compile(r"([kKMGT]?)(?:(?:(bits?|b|bps|B|Bps)(?:/s|/sec|ps)?)|i?(?=$))")


@dataclass
class Reader:
    """Reads edge by edge, and remembers what was not understood."""

    unused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def read(self, values: dict[str, Any]) -> Stated:
        """What one edge states; attributes that are not used are counted."""
        plain = {re.sub(r"[^a-z0-9]", "", key.lower()): (key, value) for key, value in values.items()}
        rate = self._first(plain, _RATES, units.RATE)
        delay = self._first(plain, _DELAYS, units.TIME)
        length = self._first(plain, _LENGTHS, units.LENGTH)
        for short, (key, value) in plain.items():
            known = short in _DECORATION or (short == "linkspeedunits" and rate is not None)
            if not known and _family(short) is None and str(value).strip():
                self._leave(key, value)
        return Stated(
            None if rate is None else round(rate),
            None if delay is None else units.integer(delay),
            None if length is None else float(length / 1_000_000),
        )

    def notes(self) -> list[tuple[str, str]]:
        """Messages and hints, one per attribute."""
        found = []
        for key, count in sorted(self.unused.items()):
            which = "1 link has" if count == 1 else f"{count} links have"
            message = f"{which} an attribute {key!r} that is not read, such as {self.examples[key]!r}"
            found.append(
                (
                    message,
                    "read are rate, delay and length, each with its unit: bandwidth 10 Mbit/s, latency 50 ms, length 12.5 km",
                )
            )
        return found

    def _first(self, plain: dict[str, tuple[str, Any]], names: tuple[str, ...], kind: units.Kind) -> Fraction | None:
        """The first of the attributes of a kind that can be understood; those that cannot, or say something else, are counted."""
        found: Fraction | None = None
        speed = plain.get("linkspeedunits", ("", ""))[1]
        for short in sorted(plain, key=lambda each: _rank(each, names)):
            if _family(short) != names:
                continue
            key, value = plain[short]
            if not str(value).strip():
                continue
            unit = f"{speed}bit/s" if short == "linkspeed" and speed else _unit_of(short, names)
            said = _quantity(str(value), unit, kind)
            if found is None:
                found = said
            if said is None or said != found:
                self._leave(key, value)
        return found

    def _leave(self, key: str, value: Any) -> None:
        self.unused[key] += 1
        self.examples.setdefault(key, str(value)[:40])


def _family(short: str) -> tuple[str, ...] | None:
    for names in (_RATES, _DELAYS, _LENGTHS):
        if _rank(short, names) < len(names):
            return names
    return None


def _rank(short: str, names: tuple[str, ...]) -> int:
    for place, name in enumerate(names):
        if short == name or (short.startswith(name) and short[len(name) :] in _IN_KEY):
            return place
    return len(names)


def _unit_of(short: str, names: tuple[str, ...]) -> str | None:
    if short in _UNDERSTOOD:
        return {_RATES: "bit/s", _DELAYS: "ns", _LENGTHS: "km"}[names]
    name = names[_rank(short, names)]
    return _IN_KEY.get(short[len(name) :])


def _quantity(text: str, unit: str | None, kind: units.Kind) -> Fraction | None:
    """In the base unit of its kind; `unit` is that of a number alone."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    own = match[2] or unit
    if own is None:
        return None
    if kind is units.RATE:
        rate = _RATE_UNIT.fullmatch(own)
        if rate is None:
            return None
        own = f"{rate[1].replace('K', 'k')}{'B' if (rate[2] or '').startswith('B') else 'bit'}/s"
    elif own not in kind.units:
        own = {
            "sec": "s",
            "seconds": "s",
            "msec": "ms",
            "usec": "us",
            "nsec": "ns",
            "kilometers": "km",
            "meters": "m",
        }.get(own, own.lower())
    try:
        return units.parse(f"{match[1]} {own}", kind)
    except units.UnitError:
        return None
