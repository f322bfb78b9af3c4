"""Whole numbers that are none, and home folders that no shell has put in."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.cli.app import execute

TEXT = """
name: small
network: {best-effort: BEST, nodes: {a: host, b: host}, links: [{between: [a, b], rate: 100 Mbit/s, delay: 5 us}]}
flows: [{name: alpha, from: a, to: b, size: 100 B, period: 10 ms, deadline: 5 ms}]
stack: {udp: {}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    (tmp_path / "small.yaml").write_text(TEXT.replace("BEST", "none"))
    return "small.yaml"


@pytest.mark.parametrize(
    ("arguments", "option", "value"),
    [
        (["predict", "small.yaml", "--effort", "1.5"], "--effort", "1.5"),
        (["predict", "small.yaml", "--effort", "1e-1"], "--effort", "1e-1"),
        (["predict", "small.yaml", "--effort", "nan"], "--effort", "nan"),
        (["predict", "small.yaml", "--effort", "1e999999999"], "--effort", "1e999999999"),
        (["sweep", "small.yaml", "--jobs", "2.5"], "--jobs", "2.5"),
        (["reproduce", "velox-model", "--hops", "2.5"], "--hops", "2.5"),
        (["reproduce", "mqtt-scalability", "--scenario", "1.5"], "--scenario", "1.5"),
    ],
)
def test_a_number_that_is_not_whole_is_not_rounded(
    file: str, arguments: list[str], option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments) == 2
    assert f"{option}: '{value}' is no whole number" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("value", ["1000", "1e3", "1_000", "0x3e8", "1000.0"])
def test_a_whole_number_may_be_written_in_several_ways(file: str, value: str) -> None:
    assert execute(["predict", file, "--effort", value, "--quiet"]) == 0


@pytest.mark.parametrize("name", ["~", "~/runs", "~root/x"])
def test_no_folder_is_made_for_a_home_that_no_shell_put_in(
    file: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["predict", file, "-o", name, "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "only a shell makes a home folder of it" in said and f"or ./{name}" in said
    assert not list(Path().glob("~*"))


def test_a_folder_that_is_called_so_can_be_meant(file: str) -> None:
    assert execute(["predict", file, "-o", "./~", "--quiet"]) == 0
    assert (Path("~") / "summary.json").exists()
    assert execute(["predict", file, "-o", "~", "--quiet"]) == 0  # it is there now


def test_a_file_in_a_home_that_no_shell_put_in_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["predict", "~/gone.yaml"]) == 2
    assert "only a shell makes a home folder of ~" in capsys.readouterr().err


@pytest.mark.parametrize(("best", "shares"), [("none", False), ("1538 B", True)])
def test_undeclared_traffic_is_spoken_of_where_there_may_be_some(
    file: str, best: str, shares: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(file).write_text(TEXT.replace("BEST", best))
    assert execute(["admit", file]) == 0
    said = capsys.readouterr().out
    assert ("undeclared traffic" in said) == shares and "as the lowest" in said
