"""What was skipped: the list that tests write, the table at the end of `make test`, and running exactly these tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SKIPS = str(ROOT / "scripts" / "skips")
TESTS = """import os
import pytest
from tests.tools import absent

HERE = "THE_TOOL_IS_HERE" in os.environ

@pytest.mark.skipif(not HERE, reason=absent(["tshark", "mosquitto"]))
@pytest.mark.parametrize("text", ["a b", "x\\ty"])
def test_that_needs(text): pass

def test_that_skips():
    if not HERE: pytest.skip("no luck\\nhere")

def test_that_runs(): pass
"""


def clean(**more: str) -> dict[str, str]:
    """Without what this run of the tests was told."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("TIMEBOUND_", "MAKE"))} | more


def run(folder: Path, **more: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    environment = clean(PYTHONPATH=str(ROOT), **more)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, env=environment)
    return done.returncode, done.stdout.strip().splitlines()[-1]


def test_skipped_tests_are_listed_and_exactly_these_run_again(tmp_path: Path) -> None:
    folder, listed = tmp_path / "tests-of-ours", tmp_path / "list"
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_it.py").write_text(TESTS)
    code, last = run(folder, TIMEBOUND_SKIPS=str(listed))
    assert code == 0 and re.match("1 passed, 3 skipped in", last), last
    assert listed.read_text().splitlines() == [
        "pytest\t\ttest_it.py::test_that_needs[a b]\tnot installed: tshark, mosquitto",
        "pytest\t\ttest_it.py::test_that_needs[x\\ty]\tnot installed: tshark, mosquitto",
        "pytest\t\ttest_it.py::test_that_skips\tno luck here",
    ]
    code, last = run(folder, TIMEBOUND_ONLY=str(listed), TIMEBOUND_CI="1")
    assert code == 1 and re.match("1 failed, 1 deselected, 2 errors in", last), last
    code, last = run(folder, TIMEBOUND_ONLY=str(listed), TIMEBOUND_CI="1", THE_TOOL_IS_HERE="1")
    assert code == 0 and re.match("3 passed, 1 deselected in", last), last
    with listed.open("a") as file:
        file.write("pytest\t\ttest_it.py::test_that_is_gone\tnot installed: tshark\n")
    code, _ = run(folder, TIMEBOUND_ONLY=str(listed), THE_TOOL_IS_HERE="1")
    assert code == 4, "a test that is not there has not run"


LIST = """cargo\tswitches\ta_ring\tnot installed: ovs-vswitchd, ovsdb-server
cargo\tswitches\ta_ring\tnot installed: ovs-vswitchd, ovsdb-server
pytest\t\ttests/a.py::test_a\tnot installed: mosquitto, tshark
pytest\t\ttests/a.py::test_b\tnot installed: mosquitto, tshark
pytest\t\ttests/a.py::test_c\tthis host allows no user namespaces and we are not root
"""
TABLE = """On this machine 4 tests were skipped:

  tests  why                                                      package
      2  not installed: mosquitto, tshark                         mosquitto tshark
      1  not installed: ovs-vswitchd, ovsdb-server                openvswitch-switch
      1  this host allows no user namespaces and we are not root  -

All that is not installed comes with
  sudo apt-get install --no-install-recommends mosquitto openvswitch-switch tshark
"""


def table(listed: Path) -> str:
    return subprocess.check_output([sys.executable, SKIPS, "table", str(listed)], text=True, timeout=60)


def test_the_table_counts_each_test_once_and_names_one_command(tmp_path: Path) -> None:
    listed = tmp_path / "list"
    assert table(listed) == "No test was skipped on this machine.\n"
    listed.write_text(LIST)
    assert table(listed) == TABLE


def test_both_parts_of_make_test_run_whatever_becomes_of_the_first(tmp_path: Path) -> None:
    for name in ("scripts", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    # The recipe of `test` as it is, before parts that take no time.
    before, rest = (ROOT / "Makefile").read_text().split("\ntest-rust:")
    after = rest[rest.index("\nlint:") :]
    (tmp_path / "list").write_text(LIST)
    for rust, python, code in (("false", "true", 2), ("true", "false", 2), ("true", "true", 0)):
        parts = f"\ntest-rust:\n\t@{rust}\n\ntest-python:\n\t@echo python ran; cp list $$TIMEBOUND_SKIPS; {python}\n"
        (tmp_path / "Makefile").write_text(before + parts + after)
        command = ["make", "-s", "test", f"PYTHON={sys.executable}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=clean())
        said = {"true": "passed", "false": "FAILED"}
        last = f"\nRust tests: {said[rust]}. Python tests: {said[python]}.\n"
        assert done.stdout == f"python ran\n\n{TABLE}{last}", done.stdout + done.stderr
        assert done.returncode == code


def fake_cargo(folder: Path, passed: int, code: int = 0) -> dict[str, str]:
    """Says what it was asked, and that so many tests passed."""
    program = folder / "cargo"
    program.write_text(
        f'#!/bin/sh\necho "$TIMEBOUND_CI: $*"\necho "test result: ok. {passed} passed; 0 failed"\nexit {code}\n'
    )
    program.chmod(0o755)
    return clean(PATH=f"{folder}:{os.environ['PATH']}")


def test_rust_tests_are_run_again_by_name_and_must_have_run(tmp_path: Path) -> None:
    listed = tmp_path / "list"
    listed.write_text("cargo\tswitches\ta_ring\tx\ncargo\tswitches\ttwo\tx\ncargo\trooms\t\tx\n")
    for passed, code, expected in ((2, 0, 0), (1, 0, 1), (2, 101, 1)):
        done = subprocess.run(
            [sys.executable, SKIPS, "rerun", str(listed)],
            capture_output=True, text=True, timeout=60, env=fake_cargo(tmp_path, passed, code),
        )  # fmt: skip
        assert done.returncode == expected, done.stdout
        assert "1: test --workspace --locked --quiet --test switches -- --exact a_ring two\n" in done.stdout
        assert "1: test --workspace --locked --quiet --test rooms\n" in done.stdout
