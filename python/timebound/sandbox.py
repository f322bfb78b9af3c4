"""The process that becomes the sandbox of one emulation: `python -m timebound.sandbox PLAN.json`.

It must stay single-threaded until the core has entered its namespaces, so it imports nothing but the core.
"""

import sys

from timebound import _core

if __name__ == "__main__":
    sys.exit(_core.sandbox(sys.argv[1]))
