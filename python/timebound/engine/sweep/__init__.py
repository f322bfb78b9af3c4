"""Many runs of one scenario with other values: every point checked first, results kept by their content, one comparison.

A point is a scenario with settings, as with `--set`. Its key is the hash of what it is (resolved scenario, verb, seed,
version): a result that is there is not computed again, whoever computed it, so a sweep goes on wherever it was killed,
and its parts can be worked on by several machines that share a folder or bring their folders together.
"""

from timebound.engine.sweep.axes import Axis, parse_axes, product
from timebound.engine.sweep.drive import Options, Outcome, gather, run_sweep
from timebound.engine.sweep.points import Point, Sweep, plan_sweep

__all__ = [
    "Axis",
    "Options",
    "Outcome",
    "Point",
    "Sweep",
    "gather",
    "parse_axes",
    "plan_sweep",
    "product",
    "run_sweep",
]
