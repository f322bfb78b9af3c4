"""The report: a run folder becomes one self-contained HTML page with figures; two or more are compared.

Knows the run folder (docs/results.md) and nothing of how it came about: neither the engine nor the Rust core.
"""

from .compare import check_page, is_comparison, write_comparison
from .figures import FIGURES, figure_svg
from .png import svg_to_png
from .rows import Column, FlowTable, TableRow, flow_table
from .run import ReportError
from .sweep import write_sweep
from .write import write_report

__all__ = [
    "FIGURES",
    "Column",
    "FlowTable",
    "ReportError",
    "TableRow",
    "check_page",
    "figure_svg",
    "flow_table",
    "is_comparison",
    "svg_to_png",
    "write_comparison",
    "write_report",
    "write_sweep",
]
