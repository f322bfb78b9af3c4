"""The table of real-time requirements (SRT): its rows, and the stores that keep it."""

import logging

# Whoever uses the stores decides what is logged, and where to.
logging.getLogger("timebound").addHandler(logging.NullHandler())
