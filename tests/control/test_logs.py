"""What strangers are called in the log of a service: shown, not obeyed, and on the line it belongs to."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

BAD = "a\x1b[31mred\x9b1m\u202eé\nforged"
PROGRAM = """
import json, logging, sys
from timebound.control import logs
logs.begin(sys.argv[1], "info")
log, bad, token = logging.getLogger("timebound.x"), json.loads(sys.argv[2]), "SEC" + "RET"
log.warning("client %s", bad, extra={"client": bad, "names": [bad], "plain": "x" + bad[1:5]})
try:
    1 / 0
except ZeroDivisionError:
    log.exception("failed")
"""


@pytest.mark.parametrize("form", ["json", "console"])
def test_names_of_strangers_are_shown_and_not_obeyed(form: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, form, json.dumps(BAD)], capture_output=True, timeout=60, check=True
    )
    said = done.stderr.decode()
    assert all(character.isprintable() or character == "\n" for character in said)
    assert not any(line.startswith("forged") for line in said.splitlines())
    assert "é" in said and "SECRET" not in said and "ZeroDivisionError" in said
    if form == "json":
        first, second = map(json.loads, said.splitlines())
        assert first["client"] == BAD and first["names"] == [BAD] and first["event"] == f"client {BAD}"
        assert second["exception"][0]["exc_type"] == "ZeroDivisionError"
