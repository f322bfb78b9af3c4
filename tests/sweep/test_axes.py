"""What may be varied and how it is written; every mistake is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.engine.sweep.axes import Axis, parse_axes, product, split
from timebound.engine.sweep.drive import mine
from timebound.engine.sweep.points import Point, describe
from timebound.engine.sweep.results import effects, numbers, worst_code
from timebound.scenario.problems import ScenarioError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("run.seed=1..5", ["1", "2", "3", "4", "5"]),
        ("a.b=10..50/20", ["10", "30", "50"]),
        ("a.b=10..45/20", ["10", "30"]),
        ("a.b=-2..0", ["-2", "-1", "0"]),
        ("a.b=1..2, 7", ["1", "2", "7"]),
        ('a.b=5 ms, "10 ms"', ["5 ms", '"10 ms"']),
        ("a.b=5..10 ms", ["5..10 ms"]),
        ("a.b={x: 1, y: [2, 3]}, null", ["{x: 1, y: [2, 3]}", "null"]),
        ("a.b='x,y'", ["'x,y'"]),
        ("a.b=h[1-3]", ["h[1-3]"]),
    ],
)
def test_values_are_lists_ranges_and_steps(text: str, values: list[str]) -> None:
    assert [step[0] for step in parse_axes([text], [], None)[0].steps] == values


@pytest.mark.parametrize(
    ("vary", "zipped", "words"),
    [
        (["a.b"], [], "is no assignment"),
        (["=1"], [], "is no assignment"),
        (["a.b=1,,2"], [], "an empty value"),
        (["a.b="], [], "an empty value"),
        (["a.b=[1,2"], [], "not closed"),
        (["a.b='1"], [], "not closed"),
        (["a.b=5..1"], [], "is no range"),
        (["a.b=1..5/0"], [], "is no range"),
        (["a.b=1..999999999999"], [], "is no range"),
        (["a.b=1", "a.b=2"], [], "varied twice"),
        (["a.b=1"], ["a.b=2"], "varied twice"),
        (["a.b=1,1"], [], "same value twice"),
        ([], ["a=1,2", "b=1,2,3"], "a has 2, b has 3"),
        (["a=1..1000", "b=1..1000"], [], "too many"),
    ],
)
def test_mistakes_are_told(vary: list[str], zipped: list[str], words: str) -> None:
    with pytest.raises(ScenarioError) as found:
        parse_axes(vary, zipped, None)
    assert any(words in problem.message for problem in found.value.problems)
    assert all(problem.hint for problem in found.value.problems)


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(ScenarioError) as found:
        parse_axes(["a", "b=", "c=3..1"], ["d"], None)
    assert len(found.value.problems) == 4


def test_all_combinations_with_the_last_axis_fastest_and_zipped_ones_together() -> None:
    axes = parse_axes(["x=1,2"], ["y=a,b", "z=c,d"], None)
    assert product(axes) == [
        {"x": "1", "y": "a", "z": "c"},
        {"x": "1", "y": "b", "z": "d"},
        {"x": "2", "y": "a", "z": "c"},
        {"x": "2", "y": "b", "z": "d"},
    ]


def test_a_file_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "vary.yaml"
    file.write_text(
        "vary:\n  run.seed: 1..3\n  flows.alpha.period: [5 ms, 10 ms]\nzip:\n  a: 1, 2\n  b: ['x', {y: 1}]\n"
    )
    axes = parse_axes(["c=7"], [], file)
    assert [axis.paths for axis in axes] == [("run.seed",), ("flows.alpha.period",), ("a", "b"), ("c",)]
    assert axes[1].steps == (("5 ms",), ("10 ms",)) and axes[2].steps == (("1", "'x'"), ("2", "{y: 1}"))
    table = tmp_path / "vary.csv"
    table.write_text('run.seed,flows.alpha.period\n1,5 ms\n2,"10 ms"\n')
    assert parse_axes([], [], table) == [Axis(("run.seed", "flows.alpha.period"), (("1", "5 ms"), ("2", "10 ms")))]


@pytest.mark.parametrize(
    ("name", "content", "line", "column", "words"),
    [
        ("v.yaml", "vary: {a: 1..3}\nvarry: {b: 2}\n", 2, 1, "'varry'"),
        ("v.yaml", "vary: [1]\n", 1, 1, "'vary'"),
        ("v.yaml", "vary:\n  a: {b: 1}\n", 2, 6, "no values"),
        ("v.yaml", "vary: {a: [1\n", 2, 1, "no YAML"),
        ("v.yaml", "- 1\n", 1, 1, "no mapping"),
        ("v.yaml", "{}\n", 1, 1, "varies nothing"),
        ("v.csv", "a,b\n1,2\n3\n", 3, 1, "has 1 values"),
        ("v.csv", "a,\n1,2\n", 1, 1, "no path"),
        ("v.csv", "a,b\n", 0, 0, "no line of values"),
    ],
)
def test_mistakes_in_files_have_line_and_column(
    tmp_path: Path, name: str, content: str, line: int, column: int, words: str
) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(ScenarioError) as found:
        parse_axes([], [], file)
    problem = next(p for p in found.value.problems if words in p.message)
    assert (problem.line, problem.column, problem.file) == (line, column, str(file))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ScenarioError) as found:
            parse_axes([], [], path)
        assert "cannot be read" in found.value.problems[0].message


@given(st.binary(max_size=200), st.sampled_from(["v.yaml", "v.csv"]))
def test_any_file_gives_axes_or_problems(tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    file = tmp_path_factory.getbasetemp() / name
    file.write_bytes(content)
    try:
        axes = parse_axes([], [], file)
    except ScenarioError as error:
        assert error.problems
    else:
        assert axes and all(len(step) == len(axis.paths) for axis in axes for step in axis.steps)


@given(st.lists(st.text(alphabet="ab12 .:", min_size=1).map(str.strip).filter(bool), min_size=1, max_size=6))
def test_lists_come_back_as_they_were_written(values: list[str]) -> None:
    assert split(",".join(values)) == values
    assert split(",".join(f"[{value},x]" for value in values)) == [f"[{value},x]" for value in values]


@given(st.integers(0, 200), st.integers(1, 17))
def test_shards_are_all_points_once(count: int, parts: int) -> None:
    points = [Point(i, {}, str(i), 0.0) for i in range(count)]
    shards = [mine(points, (i, parts)) for i in range(1, parts + 1)]
    assert sorted(point.index for shard in shards for point in shard) == list(range(count))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "2.5"], [1.0, 2.5]),
        (["5 ms", "10ms", "1 s"], [5e6, 1e7, 1e9]),
        (["1 Mbit/s", "10 kbit/s"], [1e6, 1e4]),
        (['"100 B"', "1 KiB"], [100.0, 1024.0]),
        (["tcp", "udp"], None),
        (["5 ms", "10 B"], None),
        (["nan", "1"], None),
        (["1", "1.0"], None),
    ],
)
def test_values_are_numbers_where_all_of_them_are(values: list[str], expected: list[float] | None) -> None:
    assert numbers(values) == expected


def test_the_worst_exit_code_is_by_the_houses_order() -> None:
    assert [worst_code(codes) for codes in ([], [0, 0], [0, 1], [1, 4], [4, 3, 0], [3, 2], [0, 77])] == [
        0,
        0,
        1,
        4,
        3,
        2,
        3,
    ]


def test_what_matters_is_what_the_metric_follows() -> None:
    axes = [{"name": n, "paths": [n], "steps": [["1"], ["2"]]} for n in ("big", "none")]
    points = [
        {"settings": {"big": b, "none": n}, "metrics": {"m": 100.0 * int(b) + (0.1 if n == "2" else 0.0), "flat": 5.0}}
        for b in "12"
        for n in "12"
    ]
    found = {(e["metric"], e["axis"]): e for e in effects(axes, points, ["m", "flat"])}
    assert found["m", "big"]["matters"] and found["m", "big"]["share"] > 0.99
    assert not found["m", "none"]["matters"] and not found["flat", "big"]["matters"]


def test_a_point_is_named_by_the_last_words_where_they_are_clear() -> None:
    assert describe({"flows.a.period": "1 ms", "run.seed": "2"}) == "period=1 ms, seed=2"
    assert describe({"flows.a.period": "1 ms", "flows.b.period": "2 ms"}) == "flows.a.period=1 ms, flows.b.period=2 ms"
