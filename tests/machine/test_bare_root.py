"""`scripts/bare-root`: what the README does not name is not there, what it names works, and nothing outside changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.packages import PACKAGES
from tests.tools import PATH, need

SCRIPT = Path(__file__).parents[2] / "scripts" / "bare-root"
MORE = ("apt-get", "hostname", "openssl", "ping", "ps", "ss", "ssh", "sudo", "wget")
"""Commands that no test may need, and some machines have."""
STAY = {"nsenter", "unshare"}
"""Of util-linux, which every Linux has."""
LOOK = "import json, shutil, sys; print(json.dumps([t for t in sys.argv[2:] if shutil.which(t, path=sys.argv[1])]))"


@pytest.fixture(autouse=True)
def possible() -> None:
    if os.geteuid() != 0:
        pytest.skip("hiding commands needs root")
    need("dpkg-query", "unshare")


def bare(*command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(SCRIPT), *command], input=text, capture_output=True, text=True, timeout=120)


def test_every_program_that_a_test_may_skip_for_is_hidden_wherever_one_looks() -> None:
    tools = sorted({*PACKAGES, *MORE} - STAY)
    outside = json.loads(subprocess.check_output([sys.executable, "-c", LOOK, PATH, *tools], text=True))
    assert "dpkg-query" in outside, "the way of looking finds what is there"
    inside = bare(sys.executable, "-c", LOOK, PATH, *tools)
    assert (inside.returncode, inside.stdout) == (0, "[]\n"), inside.stderr
    # Not on the path alone: the files are gone.
    inside = bare("sh", "-c", "ls -d /usr/*bin/dpkg* /usr/*bin/ip /bin/ip /sbin/ip /usr/sbin/mosquitto")
    assert inside.returncode != 0 and inside.stdout == ""


def test_what_the_readme_names_is_there_and_works(tmp_path: Path) -> None:
    script = (
        "git --version && make --version && python3 -m venv --help >/dev/null && python3 --version && cargo --version"
        f" && echo 'int main(void) {{ return 0; }}' | cc -x c -o '{tmp_path}/program' - && '{tmp_path}/program'"
    )
    done = bare("bash", "-euc", script)
    assert done.returncode == 0, done.stderr


def test_exit_code_input_and_output_are_the_command_s_and_nothing_is_left_outside() -> None:
    mounts = Path("/proc/self/mountinfo")
    before = mounts.read_text()
    done = bare("sh", "-c", "cat; echo problem >&2; exit 7", text="said\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, "said\n", "problem\n")
    assert bare("no-such-command-of-ours").returncode == 127
    assert mounts.read_text() == before
