"""Shared by the tests of sweeps: a small scenario, the command line, processes of a test's folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SMALL = """name: small
network:
  defaults: {link: {rate: 10 Mbit/s, delay: 100 us}, switch: {delay: 10 us}}
  nodes: {a: host, b: host, c: host, s1: switch}
  links: [[a, s1], [b, s1], [c, s1]]
flows:
  - {name: alpha, from: a, to: c, size: 200 B, period: 10 ms, jitter: 1 ms, deadline: 9 ms, priority: 5}
  - {name: beta, from: b, to: c, size: 1000 B, period: 20 ms, jitter: 1 ms, deadline: 18 ms, priority: 4}
stack: {udp: {}}
run: {duration: 1 s, warm-up: 200 ms, seed: 1, simulate: {duration: 1 s, search: 0}}
"""
"""Without a search: that finds the same worst case for every period and seed, and what is the same everywhere is not drawn."""


def scenario(folder: Path, text: str = SMALL) -> Path:
    file = folder / "small.yaml"
    file.write_text(text)
    return file


def command(*arguments: object) -> list[str]:
    return [
        sys.executable,
        "-c",
        "from timebound.cli import main\nif __name__ == '__main__': main()",
        *map(str, arguments),
    ]


def tb(*arguments: object, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=timeout, check=False)


def swept(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "sweep.json").read_text())
    return found


def results(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "results").iterdir() if not path.name.startswith("."))


def descendants(pid: int) -> set[int]:
    """Living processes below one."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found.update(children)
        todo += children
    return found


def alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        os.kill(process.pid, 9)
    process.wait()
