"""Shared by the tests of packet analysis."""

from __future__ import annotations

from tests.tools import needs

needs_tshark = needs("tshark", "mergecap")
