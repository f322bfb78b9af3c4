"""What is analysed: capture files, joined to links where a run says which port each of them shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timebound.engine.folder import FolderError
from timebound.scenario.framing import ETHERNET, Framing

MQTT_PORT = 1883
"""IANA's port of MQTT; tshark takes it for MQTT without being told."""
VERSIONS = {3: "MQTT v3.1", 4: "MQTT v3.1.1", 5: "MQTT v5.0"}
"""Protocol level (MQTT 5.0, section 3.1.2.2) -> tshark's word for it."""


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to analyse: a file, or both directions of a link.

    TCP is understood only where both directions are seen together and each segment once: the files of a link's two ports
    are merged, and a file that shows several links is taken apart by its interfaces.
    """

    name: str
    files: tuple[Path, ...]
    ports: tuple[str, ...] = ()
    """Names of the capture interfaces that belong to it; empty: all."""
    select: bool = False
    """The files hold other interfaces too."""
    mqtt_ports: tuple[int, ...] = (MQTT_PORT,)
    version: int | None = None
    """Protocol level to assume for connections whose CONNECT is not in the capture."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Address -> node."""
    origin_unix_ns: int | None = None
    """Where time zero is; the first frame where None."""
    framing: Framing = ETHERNET
    """How long frames are on the wire, of which captures do not show all."""

    @property
    def both_directions(self) -> bool | None:
        """Are both directions of the link captured? None where that is not known."""
        if not self.ports:
            return None
        ends = {tuple(port.split("->")) for port in self.ports}
        return all(tuple(reversed(end)) in ends for end in ends)


def of_files(files: Sequence[Path], mqtt_ports: Sequence[int] = ()) -> list[Source]:
    """Each file on its own, under its name.

    Raises:
        FolderError: a file that is not there, is no file, or is empty.
    """
    names = [file.name for file in files]
    ports = tuple(sorted({MQTT_PORT, *mqtt_ports}))
    sources = []
    for file in files:
        check(file)
        name = file.name if names.count(file.name) == 1 else str(file)
        sources.append(Source(name, (file,), mqtt_ports=ports))
    return sources


def check(file: Path) -> None:
    """A capture file has to exist and have a first byte; whether it is one, tshark says."""
    hint = "name a run folder or a .pcap or .pcapng file"
    if not file.exists():
        raise FolderError(f"{file} does not exist", hint)
    if not file.is_file():
        raise FolderError(f"{file} is no file", hint)
    if file.stat().st_size == 0:
        raise FolderError(f"{file} is empty: not even the header of a capture", "was the capture stopped too early?")


def of_run(folder: Path, mqtt_ports: Sequence[int] = ()) -> list[Source]:
    """The captures of a run folder, one source per link, in the order of the plan; empty where it has none.

    Raises:
        FolderError: no run folder, or a damaged plan.
    """
    captures = folder / "captures"
    if not (folder / "manifest.json").is_file() and not captures.is_dir():
        raise FolderError(f"{folder} is no run folder", "name a folder that `timebound run` wrote, or capture files")
    plan = _read(folder / "emulation.json")
    live = _read(folder / "live.json")
    found = sorted(captures.glob("*.pcap*")) if captures.is_dir() else []
    common = _common(plan, live, folder, mqtt_ports)
    links: dict[tuple[str, ...], list[tuple[Path, str]]] = {}
    planned: dict[Path, set[tuple[str, ...]]] = {}
    for capture in plan.get("captures", []):
        file = captures / str(capture["file"])
        if file not in found:
            continue
        for port in capture["ports"]:
            link = (*sorted((port["from"], port["to"])), str(port.get("parallel", 0)))
            links.setdefault(link, []).append((file, f"{port['from']}->{port['to']}"))
            planned.setdefault(file, set()).add(link)
    sources = []
    for (a, b, parallel), parts in links.items():
        files = tuple(dict.fromkeys(file for file, _ in parts))
        name = f"{a}-{b}" if parallel == "0" else f"{a}-{b} ({int(parallel) + 1})"
        select = any(len(planned[file]) > 1 for file in files)
        sources.append(Source(name, files, tuple(dict.fromkeys(port for _, port in parts)), select, **common))
    sources += [Source(file.name, (file,), **common) for file in found if file not in planned]
    return sources


def _common(plan: dict[str, Any], live: dict[str, Any], folder: Path, mqtt_ports: Sequence[int]) -> dict[str, Any]:
    endpoints = plan.get("endpoints") or {}
    clients = endpoints.get("clients", [])
    epoch = live.get("epoch_unix_ns")
    framing = plan.get("framing") or ETHERNET.plan()
    return {
        "framing": Framing((), int(framing["overhead_bytes"]), int(framing["least_frame_bytes"])),
        "mqtt_ports": tuple(sorted({MQTT_PORT, *mqtt_ports, *(int(client["port"]) for client in clients)})),
        "version": max((int(client["protocol"]) for client in clients), default=None),
        "names": {host["address"]: host["node"] for host in plan.get("hosts", [])},
        "origin_unix_ns": None if epoch is None else int(epoch) + int(endpoints.get("warmup_ns", 0)),
    }


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FolderError(f"{path} cannot be read: {error}", "name a folder that `timebound run` wrote") from error
    return content if isinstance(content, dict) else {}
