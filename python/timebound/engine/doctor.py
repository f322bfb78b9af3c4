"""What this host can do, as checks with an answer for people."""

from __future__ import annotations

import json
from typing import Any

from timebound import _core


def examine() -> list[dict[str, Any]]:
    """Checks `{"name", "ok", "needed", "text"}`; a needed one that fails means that nothing can be emulated here."""
    found: list[dict[str, Any]] = json.loads(_core.doctor())
    return found
