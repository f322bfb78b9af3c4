"""What a stranger's scenario can do to this host: nothing, whatever it states. What is opened for it, who runs it has opened."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.live.test_emulation import pytestmark, timebound
from timebound.engine import opened
from timebound.engine.control import ControlError

__all__ = ["pytestmark"]

TEXT = """
name: stranger
network:
  nodes:
    h1: {kind: host, processes: 50, run: [{name: look, command: [sh, look.sh], folder: .}]}
    h2: host
    s1: switch
  links: [["h[1-2]", s1]]
flows: [{name: a, from: h1, to: h2, size: 64 B, period: 50 ms}]
stack: {udp: {}}
run: {duration: 1500 ms, simulate: {duration: 100 ms, search: 0}, precision: {lateness-p99: 9 s, late-frame: 9 s, longest-overrun: 9 s, steal: 100 %}}
"""


@pytest.mark.parametrize("more", [[], ["--rootless"]])
@pytest.mark.parametrize("writable", [False, True])
def test_a_program_writes_where_whoever_runs_it_says(tmp_path: Path, more: list[str], writable: bool) -> None:
    results, mark = tmp_path / "results", f"zz_timebound_{os.getpid()}"
    results.mkdir()
    (tmp_path / "stranger.yaml").write_text(TEXT)
    places = ["/etc", "/root", "/var/lib", "/tmp", "/run", str(tmp_path), str(results), "$TIMEBOUND_HERE"]
    words = " ".join(f'"{place}"' for place in places)
    script = f'for f in {words}; do (echo x >"$f/{mark}") 2>/dev/null && echo "$f"; done; exit 0\n'
    (tmp_path / "look.sh").write_text(script)
    folder = tmp_path / "run"
    environment = {**os.environ, "TIMEBOUND_HERE": str(folder)}
    if writable:
        environment["TIMEBOUND_WRITABLE"] = str(results)
    command = timebound("emulate", str(tmp_path / "stranger.yaml"), "-o", str(folder), "--quiet", *more)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode in (0, 4), done.stderr
    wrote = (folder / "logs" / "look.log").read_text().split()
    assert wrote == ["/tmp", "/run", *([str(results)] if writable else []), str(folder)]
    assert not any((Path(place) / mark).exists() for place in ("/etc", "/root", "/var/lib", "/tmp", "/run", tmp_path))
    assert (results / mark).exists() == writable


def test_the_whole_host_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("/", str(tmp_path / "none"), f"{tmp_path}:/.."):
        monkeypatch.setenv(opened.VARIABLE, text)
        with pytest.raises(ControlError, match="not a folder that can be opened"):
            opened.writable()
    monkeypatch.setenv(opened.VARIABLE, f"{tmp_path}:")
    assert opened.writable() == [str(tmp_path.resolve())]
