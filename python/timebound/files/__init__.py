"""Everything that Timebound writes for a user goes through here: nothing that is not ours is replaced, and no link is followed.

Knows folders, files and the manifest of a run folder; nothing of scenarios, plans or reports.
"""

from .beneath import FolderError, Kind, Place, may_write, write_file, write_with
from .former import REPORT
from .mark import LOCK, MARK, Claim, Mark, adopt, close_list, foreign, is_empty, read_mark, take_over
from .marked import take_marked

__all__ = [
    "LOCK",
    "MARK",
    "REPORT",
    "Claim",
    "FolderError",
    "Kind",
    "Mark",
    "Place",
    "adopt",
    "close_list",
    "foreign",
    "is_empty",
    "may_write",
    "read_mark",
    "take_marked",
    "take_over",
    "write_file",
    "write_with",
]
