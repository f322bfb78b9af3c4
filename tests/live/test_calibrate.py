"""The quick calibration on this host: bounded, complete, and what it found is what it says."""

from __future__ import annotations

import time

import pytest

from timebound.engine import calibration
from timebound.engine.calibrate import CalibrationError, calibrate
from timebound.engine.doctor import can_emulate


def test_a_quick_calibration_is_complete_and_ends_in_time() -> None:
    if not can_emulate():
        pytest.skip("this host refuses namespaces")
    begun = time.monotonic()
    try:
        found = calibrate(quick=True)
    except CalibrationError as error:
        pytest.fail(str(error))
    # Its own limit is 15 s; a machine under test may take longer over a single step.
    assert time.monotonic() - begun < 60
    assert not calibration.damaged(found)
    assert found["nodes"]["measured"][0]["nodes"] == 10
    assert found["nodes"]["carried"] >= found["nodes"]["measured"][-1]["nodes"]
    for mode in found["modes"].values():
        kept = [step["frames_per_s"] for step in mode["rates"] if step["kept"]]
        assert mode["frames_per_s"] == (kept[-1] if kept else None)
        assert len(mode["delays"]) == 9 and any(entry["frames"] > 0 for entry in mode["delays"])
