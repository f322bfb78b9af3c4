"""What problems say: the keys of the file, the place of a byte, the least that would do."""

from __future__ import annotations

import pytest
from scenario_helpers import NETWORK, problems

from timebound.engine.runs import plan_of
from timebound.scenario import ScenarioError, load


def text(flow: str, more: str = "") -> str:
    return f"name: x\n{NETWORK}stack: {{udp: {{}}}}\nflows:\n  - {{name: alpha, from: h1, to: h5, size: 100 B, {flow}}}\n{more}"


@pytest.mark.parametrize(
    ("bucket", "message", "hint"),
    [
        ("{rate: 100 bit/s, burst: 20 GB}", "a burst of 20000000000 B takes 1600000000 s at 100 bit/s", "burst: 12500000 B or less, or rate: 160 kbit/s or more"),
        ("{rate: 1 Mbit/s, burst: 10 B}", "a burst of 10 bytes never lets a message pass", "burst: 166 B, or more"),
    ],
)  # fmt: skip
def test_a_burst_that_cannot_be_is_named_with_its_key(bucket: str, message: str, hint: str) -> None:
    whole = text(f"token-bucket: {bucket}")
    with pytest.raises(ScenarioError) as error:
        plan_of(load(whole))
    [problem] = error.value.problems
    assert problem.path == "flows[0].token-bucket.burst" and problem.message.startswith(message)
    assert problem.hint == hint
    assert whole.splitlines()[problem.line - 1][problem.column - 1 :].startswith(bucket.split("burst: ")[1])


def test_a_burst_of_background_is_named_with_its_key() -> None:
    bucket = "{rate: 100 bit/s, burst: 20 GB}"
    found = problems(
        text(
            "period: 1 s",
            f"background: [{{kind: poisson, from: h1, to: h5, rate: 1 Mbit/s, token-bucket: {bucket}}}]\n",
        )
    )
    assert [problem.path for problem in found] == ["background[0].token-bucket.burst"]


def test_the_limits_that_a_burst_is_told_hold() -> None:
    plan_of(load(text("token-bucket: {rate: 100 bit/s, burst: 12500000 B}")))
    plan_of(load(text("token-bucket: {rate: 160 kbit/s, burst: 20 GB}")))


def test_a_path_of_the_model_is_told_as_in_the_file() -> None:
    loaded = load(text("period: 1 s", "  - {name: beta, from: 'h[1-2]', to: h5, size: 9 B, period: 1 s}\n"))
    assert loaded.path_in_file("flows[2].size_bytes") == "flows[1].size"
    assert loaded.path_in_file("flows[2]") == "flows[1]"
    assert loaded.path_in_file("somewhere.else") == "somewhere.else"


@pytest.mark.parametrize(
    ("data", "place", "message", "hint"),
    [
        (b"# ok\nname: caf\xe9 x\n", (2, 10), "byte 0xe9 is not UTF-8", "in Latin-1 this byte is '\u00e9'"),
        ("name: \u00e9".encode() + b"\xff", (1, 8), "byte 0xff is not UTF-8", "save the file as UTF-8"),
        ("name: x".encode("utf-16"), (1, 1), "the file is UTF-16", "save the file as UTF-8"),
    ],
)
def test_a_byte_that_is_no_utf_8_has_a_place(data: bytes, place: tuple[int, int], message: str, hint: str) -> None:
    [problem] = problems(data)
    assert (problem.line, problem.column, problem.message) == (*place, message) and hint in problem.hint


@pytest.mark.parametrize("size", ["0 B", "0 kB", "0.0 B"])
def test_no_undeclared_frame_is_said_in_words(size: str) -> None:
    found = problems(text("period: 1 s").replace("network:\n", f"network:\n  best-effort: {size}\n"))
    assert [problem.message for problem in found] == [f"no frame has {size}"] and "none" in found[0].hint
