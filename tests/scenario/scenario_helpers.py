"""What the tests of scenarios share."""

from __future__ import annotations

from timebound.scenario import Problem, Scenario, ScenarioError, load

NETWORK = """
network:
  defaults: {link: {rate: 100 Mbit/s, delay: 5 us}, switch: {delay: 10..20 us}}
  nodes: {h[1-3]: host, h5: host, s1: switch, s4: switch}
  links: [[h[1-3], s1], [h5, s4], {between: [s1, s4], rate: 10 Mbit/s}]
"""


def scenario(rest: str = "", *, network: str = NETWORK, stack: str = "{udp: {}}") -> Scenario:
    """A scenario on the small network with some more text."""
    return load(f"name: test\n{network}\nstack: {stack}\n{rest}")


def flow(text: str) -> str:
    """One flow from h1 to h5 with other keys."""
    return f"flows:\n  - {{name: alpha, from: h1, to: h5, size: 100 B, {text}}}\n"


def problems(text: str | bytes, overrides: dict[str, object] | None = None) -> tuple[Problem, ...]:
    """What is wrong with a text that must not load."""
    try:
        load(text, overrides)
    except ScenarioError as error:
        assert error.render().endswith("nothing was started")
        return error.problems
    raise AssertionError("this text should not load")
