"""Timebound: do publish/subscribe messages arrive in time?

```python
import timebound

experiment = timebound.load("hello")
experiment.predict()  # a polars frame: one row per flow and receiver
run = experiment.run()  # predict, simulate, emulate; a folder with a report
```
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

try:
    __version__ = version("timebound")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

if TYPE_CHECKING:
    from timebound.api import Experiment, Run, load
    from timebound.scenario.problems import ScenarioError

__all__ = ["Experiment", "Run", "ScenarioError", "__version__", "load"]


def __getattr__(name: str) -> object:
    # The command line starts in the time that these imports take, so only who asks for them pays for them.
    if name in ("Experiment", "Run", "load"):
        from timebound import api

        return getattr(api, name)
    if name == "ScenarioError":
        from timebound.scenario.problems import ScenarioError

        return ScenarioError
    raise AttributeError(f"module 'timebound' has no attribute {name!r}")
