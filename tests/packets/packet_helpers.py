"""Shared by the tests of packet analysis."""

from __future__ import annotations

import shutil

import pytest

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
