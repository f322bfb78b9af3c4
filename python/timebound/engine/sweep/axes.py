"""`--vary PATH=VALUES`: lists, integer ranges, steps; `--zip` for values that vary together; the same from a file."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from timebound.scenario.files import instead_of_file
from timebound.scenario.problems import Problem, ScenarioError

MOST_POINTS = 100_000
RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:/(\d+))?")
EXAMPLE = '--vary flows.alpha.period="5 ms, 10 ms" --vary run.seed=1..5 --vary flows.beta.size=100..500/200'


@dataclass(frozen=True, slots=True)
class Axis:
    """Paths that vary together, and their values: one tuple per step, one value per path."""

    paths: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        """For people: the paths joined."""
        return " + ".join(self.paths)


def problem(label: str, message: str, hint: str, line: int = 0, column: int = 0, source: str = "") -> Problem:
    """A problem of an option or of a line in a file."""
    return Problem(file=label, line=line, column=column, path="", message=message, hint=hint, source_line=source)


def parse_axes(vary: Sequence[str], zipped: Sequence[str], file: Path | None) -> list[Axis]:
    """All axes: those of the file first, then `--vary` in order, then the one that all `--zip` make together.

    Raises:
        ScenarioError: every option that cannot be read, a path that is varied twice, more points than `MOST_POINTS`.
    """
    problems: list[Problem] = []
    axes = [] if file is None else _from_file(file, problems)
    for text in vary:
        if (single := _assignment("--vary", text, problems)) is not None:
            axes.append(Axis((single[0],), tuple((value,) for value in single[1])))
    pairs = [pair for text in zipped if (pair := _assignment("--zip", text, problems)) is not None]
    if pairs:
        axes += _zip(pairs, "--zip", problems)
    _check(axes, problems)
    if problems:
        raise ScenarioError(problems)
    return axes


def _check(axes: list[Axis], problems: list[Problem]) -> None:
    seen: set[str] = set()
    count = 1
    for axis in axes:
        count *= len(axis.steps)
        for path in axis.paths:
            if path in seen:
                problems.append(problem("--vary", f"{path} is varied twice", "give all its values in one list"))
            seen.add(path)
        if len(set(axis.steps)) < len(axis.steps):
            problems.append(problem("--vary", f"{axis.name} has the same value twice", "remove it"))
    if count > MOST_POINTS:
        problems.append(problem("--vary", f"{count} points are too many", f"at most {MOST_POINTS}; vary less at once"))


def _assignment(label: str, text: str, problems: list[Problem]) -> tuple[str, list[str]] | None:
    path, separator, values = text.partition("=")
    if not separator or not path.strip():
        problems.append(problem(label, f"{text!r} is no assignment", f"write PATH=VALUES: {EXAMPLE}"))
        return None
    found = _values(f"{label} {path.strip()}", values, problems)
    return None if found is None else (path.strip(), found)


def _values(label: str, text: str, problems: list[Problem]) -> list[str] | None:
    """The values of a list; ranges of integers are written out."""
    parts = split(text)
    if parts is None or not all(parts):
        reason = "a bracket or quote that is not closed" if parts is None else "an empty value"
        problems.append(problem(label, f"{text.strip()!r} has {reason}", f"separate values by commas: {EXAMPLE}"))
        return None
    values: list[str] = []
    for part in parts:
        if (match := RANGE.fullmatch(part)) is None:
            values.append(part)
            continue
        first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
        if step == 0 or last < first or (last - first) // step >= MOST_POINTS:
            hint = f"from the smaller to the larger, at most {MOST_POINTS} values: 10..50/10"
            problems.append(problem(label, f"{part!r} is no range", hint))
            return None
        values += [str(value) for value in range(first, last + 1, step)]
    return values


def split(text: str) -> list[str] | None:
    """At commas outside of brackets and quotes; None where one is left open."""
    parts, depth, quote, current = [], 0, "", ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in "]})":
            depth -= 1
        if letter == "," and not quote and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += letter
    parts.append(current.strip())
    return None if quote or depth else parts


def _zip(pairs: list[tuple[str, list[str]]], label: str, problems: list[Problem]) -> list[Axis]:
    lengths = {len(values) for _, values in pairs}
    if len(lengths) > 1:
        counts = ", ".join(f"{path} has {len(values)}" for path, values in pairs)
        problems.append(
            problem(label, f"values that vary together must be as many: {counts}", "give each as many values")
        )
        return []
    return [Axis(tuple(path for path, _ in pairs), tuple(zip(*(values for _, values in pairs), strict=True)))]


def _from_file(file: Path, problems: list[Problem]) -> list[Axis]:
    """A `.csv` is one axis: its first line names the paths, each other line is one step. Anything else is YAML."""
    text = ""
    try:
        if (wrong := instead_of_file(file)) is None:
            text = file.read_text(encoding="utf-8")
        reason = None if wrong is None else f"it {wrong}"
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
    if reason is not None:
        problems.append(problem(str(file), f"cannot be read: {reason}", "name a YAML or CSV file"))
        return []
    if file.suffix.lower() == ".csv":
        return _from_csv(file, text, problems)
    return _from_yaml(file, text, problems)


def _from_csv(file: Path, text: str, problems: list[Problem]) -> list[Axis]:
    lines = [(number, row) for number, row in enumerate(csv.reader(io.StringIO(text)), start=1) if any(row)]
    if len(lines) < 2:
        problems.append(problem(str(file), "has no line of values", "first line: paths; then one line per point"))
        return []
    head = [cell.strip() for cell in lines[0][1]]
    for number, row in lines[1:]:
        if len(row) != len(head) or not all(cell.strip() for cell in row):
            message = f"this line has {sum(1 for cell in row if cell.strip())} values, the first one {len(head)} paths"
            problems.append(problem(str(file), message, "one value per path", number, 1, ",".join(row)))
    if not all(head):
        problems.append(
            problem(str(file), "a column has no path", "name a path above each column", 1, 1, ",".join(head))
        )
    return [Axis(tuple(head), tuple(tuple(cell.strip() for cell in row) for _, row in lines[1:]))]


def _from_yaml(file: Path, text: str, problems: list[Problem]) -> list[Axis]:
    """`vary: {PATH: values, ...}` and `zip: {PATH: values, ...}`; values as on the command line, or a list."""
    source = text.splitlines()

    def at(node: yaml.Node | None, message: str, hint: str) -> None:
        line = node.start_mark.line if node else 0
        column = node.start_mark.column if node else 0
        shown = source[line] if line < len(source) else ""
        problems.append(problem(str(file), message, hint, line + 1, column + 1, shown))

    hint = "vary: {flows.alpha.period: [5 ms, 10 ms], run.seed: 1..5}"
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        message = f"is no YAML: {getattr(error, 'problem', error)}"
        place = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        problems.append(problem(str(file), message, hint, *place))
        return []
    except (RecursionError, ValueError) as error:
        problems.append(problem(str(file), f"is no YAML: {type(error).__name__}", hint))
        return []
    if not isinstance(root, yaml.MappingNode):
        at(root, "is no mapping", hint)
        return []
    axes: list[Axis] = []
    for key, group in root.value:
        if key.value not in ("vary", "zip") or not isinstance(group, yaml.MappingNode):
            at(key, f"{key.value!r} is neither `vary: {{...}}` nor `zip: {{...}}`", hint)
            continue
        pairs = []
        for path, node in group.value:
            values = _yaml_values(file, node, problems, at)
            if values:
                pairs.append((str(path.value), values))
        if key.value == "vary":
            axes += [Axis((path,), tuple((value,) for value in values)) for path, values in pairs]
        elif pairs:
            axes += _zip(pairs, str(file), problems)
    if not axes and not problems:
        at(root, "varies nothing", hint)
    return axes


def _yaml_values(file: Path, node: yaml.Node, problems: list[Problem], at: object) -> list[str] | None:
    if isinstance(node, yaml.ScalarNode):
        return _values(str(file), node.value, problems)
    if isinstance(node, yaml.SequenceNode) and node.value:
        return [_shown(item) for item in node.value]
    assert callable(at)
    at(node, "these are no values", "a list, or a text as on the command line: 1..5")
    return None


def _shown(node: yaml.Node) -> str:
    """An item as text that reads as the same YAML."""
    if isinstance(node, yaml.ScalarNode):
        return f'"{node.value}"' if node.style == '"' else f"'{node.value}'" if node.style == "'" else str(node.value)
    return yaml.serialize(node, Dumper=yaml.SafeDumper, width=10**9).strip().removesuffix("...").strip()


def product(axes: Sequence[Axis]) -> list[dict[str, str]]:
    """The settings of every point: the cartesian product, the last axis fastest."""
    points = []
    for combination in itertools.product(*(axis.steps for axis in axes)):
        settings: dict[str, str] = {}
        for axis, step in zip(axes, combination, strict=True):
            settings.update(zip(axis.paths, step, strict=True))
        points.append(settings)
    return points
