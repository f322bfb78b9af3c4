"""Includes, parameters, overrides."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario_helpers import NETWORK, flow, problems

from timebound.scenario import ScenarioError, load, tree

BASE = f"{NETWORK}stack: {{udp: {{}}}}\n{flow('period: 10 ms')}"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / "main.yaml"


def test_an_include_is_merged_and_the_including_file_wins(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        base=BASE + "run: {seed: 3, duration: 5 s}\n",
        main="name: x\ninclude: base.yaml\nnetwork: {nodes: {h9: host}, links: [[h9, s1]]}\nrun: {seed: 4}\n",
    )
    loaded = load(main)
    assert [node.name for node in loaded.nodes][-1] == "h9"
    assert len(loaded.links) == 6
    assert (loaded.run.seed, loaded.run.duration_ns, len(loaded.flows)) == (4, 5 * 10**9, 1)


def test_an_include_may_depend_on_a_parameter(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        low="parameters: {n: 2}\n",
        high="parameters: {n: 5}\n",
        main="name: x\nparameters: {load: low}\ninclude: ['${load}.yaml']\n"
        + BASE.replace("period", "count: ${n}, period"),
    )
    assert len(load(main).flows) == 2
    assert len(load(main, {"load": "high"}).flows) == 5
    assert len(load(main, {"parameters.load": "high", "n": 7}).flows) == 7


def test_an_include_may_be_set(tmp_path: Path) -> None:
    main = write(tmp_path, seeds="run: {seed: 7}\n", main="name: x\n" + BASE)
    assert load(main, {"include": "seeds.yaml"}).run.seed == 7
    with pytest.raises(ScenarioError, match=r"gone\.yaml"):
        load(main, {"include": "[gone.yaml]"})


def test_a_link_that_was_named_the_other_way_round_is_suggested() -> None:
    (problem,) = problems("name: x\n" + BASE, {"network.links.s4-s1.rate": "10 Mbit/s"})
    assert (problem.message, problem.hint) == ("nothing is called 's4-s1' in this list", "did you mean 's1-s4'?")


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("abc", "neither a number of evaluations nor a time"),
        (".nan", "neither a number of evaluations nor a time"),
        ("99999999999999999999", "99999999999999999999 evaluations are not possible"),
        ("-1", "-1 evaluations are not possible"),
        ("3 parsecs", "is no unit of a time"),
    ],
)
def test_how_long_a_search_takes_is_a_number_or_a_time(search: str, message: str) -> None:
    (problem,) = problems("name: x\n" + BASE, {"run.simulate.search": search})
    assert message in problem.message and problem.hint


def test_problems_of_an_included_file_name_that_file(tmp_path: Path) -> None:
    main = write(
        tmp_path, base="network: {nodes: {h1: hots}}\n", main="name: x\ninclude: base.yaml\nstack: {udp: {}}\n"
    )
    with pytest.raises(ScenarioError) as error:
        load(main)
    (problem,) = error.value.problems
    assert (Path(problem.file).name, problem.line, problem.column) == ("base.yaml", 1, 23)


def test_includes_in_a_circle_are_found(tmp_path: Path) -> None:
    main = write(tmp_path, a="include: main.yaml\n", main="name: x\ninclude: a.yaml\n" + BASE)
    with pytest.raises(ScenarioError) as error:
        load(main)
    assert "includes itself" in error.value.problems[0].message


def test_a_missing_include_is_shown_where_it_is_named(tmp_path: Path) -> None:
    main = write(tmp_path, main="name: x\ninclude: [gone.yaml]\n" + BASE)
    with pytest.raises(ScenarioError) as error:
        load(main)
    assert (error.value.problems[0].line, error.value.problems[0].column) == (2, 11)


TEXT = f"name: x\nparameters: {{n: 2, t: 10 ms}}\n{NETWORK}stack: {{udp: {{}}}}\n{flow('period: ${t}, count: ${n}')}"


def test_parameters_are_put_in_without_quotes() -> None:
    loaded = load(TEXT)
    assert [f.period_ns for f in loaded.flows] == [10_000_000] * 2


@pytest.mark.parametrize(
    ("key", "value", "seen"),
    [
        ("n", 3, lambda s: len(s.flows) == 3),
        ("parameters.t", "7 ms", lambda s: s.flows[0].period_ns == 7_000_000),
        ("flows.alpha.period", "9 ms", lambda s: s.flows[0].period_ns == 9_000_000),
        ("flows.0.period", "9 ms", lambda s: s.flows[0].period_ns == 9_000_000),
        ("flows.alpha.to", "[h2, h3]", lambda s: s.flows[0].receivers == ("h2", "h3")),
        ("network.defaults.link.rate", "50 Mbit/s", lambda s: s.links[0].forward.rate_bps == 50_000_000),
        ("network.links.s1-s4.loss", "1 %", lambda s: s.links[-1].forward.impairments.loss is not None),
        ("network.links.h5-s4.rate", "1 Mbit/s", lambda s: s.links[3].forward.rate_bps == 1_000_000),
        ("network.nodes.s4.delay", "1..2 us", lambda s: s.node("s4").switching_max_ns == 2_000),
        ("run.seed", 9, lambda s: s.run.seed == 9),
        ("run.simulate.search", "5", lambda s: s.run.simulate.evaluations == 5),
        ("run.simulate.search", "5 s", lambda s: s.run.simulate.search_ns == 5 * 10**9),
        ("stack.udp.multicast", True, lambda s: s.stack.multicast),
    ],
)
def test_anything_can_be_overridden(key: str, value: object, seen: object) -> None:
    assert callable(seen)
    assert not seen(load(TEXT))
    assert seen(load(TEXT, {key: value}))


def test_an_override_leaves_what_shares_an_anchor_alone() -> None:
    text = TEXT + "  - &b {name: beta, from: h1, to: h5, size: 99 B, period: 1 s}\n  - {<<: *b, name: gamma}\n"
    loaded = load(text, {"flows.beta.period": "2 s"})
    assert [f.period_ns for f in loaded.flows[2:]] == [2 * 10**9, 10**9]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("flows.alpah.period", "9 ms", "nothing is called 'alpah'"),
        ("flows.alpha.period", "9", "no unit"),
        ("flows.alpha.periode", "9 ms", "unknown key 'periode'"),
        ("run.seed", "[", "no valid YAML"),
        ("run..seed", "1", "an empty name"),
        ("flows.alpha.period.x", "1", "nothing below a single value"),
    ],
)
def test_a_wrong_override_is_a_problem_of_the_command_line(key: str, value: str, message: str) -> None:
    (problem,) = [p for p in problems(TEXT, {key: value}) if message in p.message]
    assert problem.hint


def test_an_unknown_parameter_is_a_problem() -> None:
    found = problems(TEXT.replace("${n}", "${m}"))
    assert any(p.message == "unknown parameter 'm'" and "parameters" in p.hint for p in found)


def test_nothing_is_said_about_what_stands_in_for_an_unknown_value() -> None:
    wrong = flow('period: 10 ms, count: "${m} times"')
    (problem,) = problems(f"name: x\n{NETWORK}stack: {{udp: {{}}}}\n{wrong}")
    assert problem.message == "unknown parameter 'm'"


def test_what_does_not_fit_into_one_file_fits_into_several_and_the_hint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "MOST_NODES", 1000)
    head = 'name: many\nnetwork: {nodes: {"h[1-2]": host}, links: [[h1, h2]]}\nstack: udp\n'
    flows = [f"- {{name: f{n}, from: h1, to: h2, size: {n} B, period: 1 s}}\n" for n in range(150)]
    (tmp_path / "whole.yaml").write_text(f"{head}flows:\n{''.join(flows)}", encoding="utf-8")
    with pytest.raises(ScenarioError) as error:
        load(tmp_path / "whole.yaml")
    assert "include" in error.value.problems[0].hint
    for name, part in (("a", flows[:75]), ("b", flows[75:])):
        (tmp_path / f"{name}.yaml").write_text(f"flows:\n{''.join(part)}", encoding="utf-8")
    (tmp_path / "parts.yaml").write_text(f"include: [a.yaml, b.yaml]\n{head}", encoding="utf-8")
    assert len(load(tmp_path / "parts.yaml").flows) == 150


def test_a_file_that_is_too_large_is_told_so_before_it_is_read_further(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text("{" * 2_300_000, encoding="utf-8")
    with pytest.raises(ScenarioError) as error:
        load(tmp_path / "large.yaml")
    (problem,) = error.value.problems
    assert problem.message == "the file has more than 2000000 bytes" and "include" in problem.hint


@pytest.mark.parametrize(
    ("key", "value", "message", "hint"),
    [
        ("network.framing.kinds.0", "vlan", "network.framing.kinds is no list yet", '--set network.framing.kinds="[vlan]"'),
        ("run.captures.0", "h1-s1", "run.captures is no list yet: it has no entry '0'", '--set run.captures="[h1-s1]"'),
        ("flows.alarm.to.0", "h1", "nothing below a single value ('0')", '--set flows.alarm.to="[h1]"'),
        ("network.nodes.h1.run.0.env", "x", "network.nodes.h1.run is no list yet", '--set network.nodes.h1.run="[...]"'),
        ("flows.alarm.size.x", "3", "nothing below a single value ('x')", "--set flows.alarm.size=VALUE"),
    ],
)  # fmt: skip
def test_an_entry_of_a_list_that_is_not_there_has_a_hint_that_can_be_used(
    key: str, value: str, message: str, hint: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        load("hello", {key: value})
    (problem,) = caught.value.problems
    assert message in problem.message and problem.hint.endswith(hint)


def test_what_a_list_has_as_its_short_form_can_be_set() -> None:
    host = load("hello", {"network.nodes.h1.run.command": "[true]"}).hosts[0]
    assert host.programs[0].command == ("true",)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"root:SECRET:19000:0\nbin:*:1\n", 0),
        (b"SECRET: SECRET\nb: [1\n", 3),
        (b"SECRET: SECRET\n", 0),
        (b"SECRET: 1\nSECRET: 2\n", 2),
        (b"a: SECRET\n\tb: SECRET\n", 2),
        (b"SECRET\xff\n", 1),
        (b"- SECRET\n", 0),
        (b'{"SECRET": "SECRET"}\n', 0),
        (b"name: x\nSECRET: y\n", 0),
    ],
)
def test_what_an_included_file_holds_that_is_no_scenario_is_not_shown(
    content: bytes, line: int, tmp_path: Path
) -> None:
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    elsewhere.mkdir()
    here.mkdir()
    (elsewhere / "shadow").write_bytes(content)
    (here / "link").symlink_to(elsewhere / "shadow")
    for name in ("../elsewhere/shadow", "link", str(elsewhere / "shadow")):
        (here / "x.yaml").write_text(f"include: {name}\n{NETWORK}")
        with pytest.raises(ScenarioError) as caught:
            load(here / "x.yaml")
        said = caught.value.render()
        assert "SECRET" not in said and f"{name!r} is no scenario{f' (line {line})' if line else ''}\n" in said
    link = f"{{between: [s1, s4], trace: {elsewhere / 'shadow'}}}"
    network = NETWORK.replace("{between: [s1, s4], rate: 10 Mbit/s}", link)
    (here / "x.yaml").write_text(f"name: x\n{network}stack: udp\nrun: {{duration: 1 s}}\n{flow('period: 10 ms')}")
    with pytest.raises(ScenarioError) as caught:
        load(here / "x.yaml")
    assert "SECRET" not in caught.value.render() and "shadow" in caught.value.render()


def test_what_is_included_from_elsewhere_is_a_scenario_with_its_places(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "base.yaml").write_text(NETWORK.replace("h5: host", "h5: hots", 1))
    (here / "x.yaml").write_text("include: ../base.yaml\nname: x\n")
    with pytest.raises(ScenarioError) as caught:
        load(here / "x.yaml")
    assert any(
        problem.file.endswith("base.yaml") and "hots" in problem.source_line for problem in caught.value.problems
    )
    (here / "x.yaml").write_text("include: ../none.yaml\nname: x\n")
    with pytest.raises(ScenarioError) as caught:
        load(here / "x.yaml")
    assert any("none.yaml" in problem.message for problem in caught.value.problems)
