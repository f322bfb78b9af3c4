"""Admission: topology and table in, verdicts, offers and channels out.

Pure: values in, values out; no store, no socket, no clock. Everything rests on one judgement: the granted requests, laid on the live network as a
scenario (`layout`), keep their deadlines by the same prediction that `timebound predict` makes of that scenario (`judge`).

| file | what |
|---|---|
| `site` | what a site assumes and chooses |
| `world` | topology, site and table, and who is where |
| `demand` | a request with all that it means, or why it is unclear |
| `groups` | multicast between edge networks: who needs it, and the trees |
| `routes` | ways, cheapest first; disjoint ways |
| `state` | what is granted, as a value |
| `layout` | a state as a scenario |
| `judge` | its bounds |
| `decide` | may these requests be granted as well? |
| `offers` | what would be granted instead |
| `upkeep` | what has left or lost its way; disjoint ways; a state from rows |
| `loads`, `answers`, `between` | a state as verdicts, channels and groups |
"""

from timebound.control.planner.answers import Answers, answers, channel_id
from timebound.control.planner.decide import Decided, Refused, decide, settled
from timebound.control.planner.groups import group_id, grouped, needs
from timebound.control.planner.judge import Bound, Judged, judge
from timebound.control.planner.layout import lay_out
from timebound.control.planner.offers import offer_for
from timebound.control.planner.site import ASSUMED, LEAST_URGENT, MOST_URGENT, Server, Site
from timebound.control.planner.state import Group, Route, State
from timebound.control.planner.upkeep import Upkeep, keep_up, restore, urgency, with_backup
from timebound.control.planner.world import World

__all__ = [
    "ASSUMED",
    "LEAST_URGENT",
    "MOST_URGENT",
    "Answers",
    "Bound",
    "Decided",
    "Group",
    "Judged",
    "Refused",
    "Route",
    "Server",
    "Site",
    "State",
    "Upkeep",
    "World",
    "answers",
    "channel_id",
    "decide",
    "group_id",
    "grouped",
    "judge",
    "keep_up",
    "lay_out",
    "needs",
    "offer_for",
    "restore",
    "settled",
    "urgency",
    "with_backup",
]
