"""Everything that Timebound writes for a user goes through here: nothing that is not ours is replaced, and no link is followed.

Knows folders, files and the manifest of a run folder; nothing of scenarios, plans or reports.
"""

from .beneath import FolderError, Kind, Place
from .former import REPORT
from .inputs import refuse_input, refuse_inputs_beneath
from .lock import holding, release, take
from .mark import LOCK, MARK, Claim, Mark, adopt, close_list, foreign, is_empty, read_mark, results_of, take_over
from .marked import take_marked
from .named import given, named, named_file, named_folder, suffix
from .single import may_write, write_file, write_with

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
    "given",
    "holding",
    "is_empty",
    "may_write",
    "named",
    "named_file",
    "named_folder",
    "read_mark",
    "refuse_input",
    "refuse_inputs_beneath",
    "release",
    "results_of",
    "suffix",
    "take",
    "take_marked",
    "take_over",
    "write_file",
    "write_with",
]
