"""What a capture is made of: size classes, control and payload, goodput, overhead, retransmissions, per link, node and time.

tshark dissects, in a process of its own; this room only counts what it says, so that every number is one that tshark gives
for the same file. Frames are read as a stream: memory does not grow with the number of packets (tshark's own does, by
what it must remember of each connection).

```python
from timebound.engine.packets import analyse, of_files, of_run

analysis = analyse(of_run(Path("runs/hello")))
analysis.summary  # the key `packets` of summary.json (docs/results.md)
analysis.table  # polars frame: the content of packets.parquet
```
"""

from timebound.engine.packets.analyse import Analysis, analyse, summary_of_run
from timebound.engine.packets.sources import Source, of_files, of_run
from timebound.engine.packets.tshark import INSTALL, CaptureError, MissingToolError, find, preferences

__all__ = [
    "INSTALL",
    "Analysis",
    "CaptureError",
    "MissingToolError",
    "Source",
    "analyse",
    "find",
    "of_files",
    "of_run",
    "preferences",
    "summary_of_run",
]
