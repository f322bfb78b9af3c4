"""Protocol stacks: from a scenario to a plan.

A plan says what is on the wire (streams with their arrival curves), what is started where (clients, brokers, programs)
and how frames are recognised again (5-tuples). Bounds, simulator and emulator are all given the same plan. This room
starts nothing and knows neither the command line nor the Rust core.
"""

from timebound.stacks.build import build_plan
from timebound.stacks.plan import Follows, Plan, PlanError, Segment, Stream

__all__ = ["Follows", "Plan", "PlanError", "Segment", "Stream", "build_plan"]
