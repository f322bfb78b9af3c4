"""What the verbs for running experiments share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import Parameter

from timebound.engine import registry
from timebound.engine.control import Link

RunName = Annotated[
    str, Parameter(help="A running experiment: its scenario (name or file), run id or run folder (`timebound ps`).")
]
NodeRange = Annotated[str, Parameter(help="Hosts: `h1`, `h[1-60]`, `h1,h5` or `all`.")]


@contextmanager
def connected(run: str) -> Iterator[Link]:
    """A connection to the one running experiment that is meant."""
    with Link(registry.find(run).socket) as link:
        yield link


def host_names(link: Link) -> list[str]:
    """All hosts of the experiment."""
    return [str(node["node"]) for node in link.ask("status")["nodes"]]
