"""The page's section on the run's fidelity: verdict, reasons, the emulator's error over time, and how it compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import tables
from .document import facts, section
from .markup import Markup, el
from .picture import picture
from .run import Run, figure, mapping, text
from .units import count_text, share_text, time_text
from .words import reasons


def _yes(value: object, yes: str, no: str) -> str | None:
    return (yes if value else no) if isinstance(value, bool) else None


def fidelity(run: Run) -> Markup:
    """The certificate at a glance, then its grounds."""
    precision = run.precision
    verdict = text(precision.get("verdict")) or "not-run"
    meaning = {
        "good": "The emulator kept within its limits: what was measured can be judged.",
        "disturbed": "The emulator left its limits: what was measured is shown, but proves nothing against the network or the bounds.",
        "not-run": "Nothing was emulated: the figures are computed or simulated.",
    }.get(verdict, "")
    state = {"good": "met", "disturbed": "disturbed"}.get(verdict, "unmeasured")
    why = reasons(run)
    shown = facts(
        [
            ("Frames emulated", _count(precision.get("frames"))),
            ("Frames early", _count(precision.get("early"))),
            ("Frames late beyond their limit", _count(precision.get("late"))),
            ("Frames lost in the ring", _count(precision.get("ring_lost"))),
            ("Frames refused by a kernel", _count(precision.get("handover_refused"))),
            ("Records lost", _count(precision.get("records_lost"))),
            ("Captured frames lost", _count(precision.get("captures_lost"))),
            ("Data plane held up", _overruns(precision.get("overruns"))),
            ("Waiting for a CPU", _waited(precision)),
            ("Beside the flows", _compared(precision.get("compared"))),
            ("Limit for the p99 of lateness", _time(precision.get("lateness_limit_us"))),
            ("Wall clock set", _times(precision.get("clock_steps"))),
            ("Taken by a hypervisor", _share(precision.get("steal"))),
            (
                "Memory",
                _yes(
                    precision.get("memory_locked"), "locked", "not locked: it may be paged out, so lateness is higher"
                ),
            ),
            (
                "Scheduling",
                _yes(
                    precision.get("fifo"),
                    "real-time (SCHED_FIFO)",
                    "ordinary: the kernel may run others first, so lateness is higher",
                ),
            ),
            ("Data plane", _data_plane(run.data_plane)),
            ("Frames per second", _load(run.data_plane)),
            ("Cost of the data plane", _cost(run.data_plane)),
            ("Rights", _yes(precision.get("rootless"), "without root, in user namespaces", "root")),
        ]
    )
    checks = tables.preflight(run)
    ran = verdict != "not-run"
    caption = "How long after its virtual departure a frame really left. This is the emulator's own error; it is not part of the network latency."
    course = (
        "When frames left late, and when the data plane itself was held up: 100 ms are one point, in long runs several."
    )
    return section(
        "fidelity",
        "Fidelity of this run",
        el("p", el("span", f"Precision: {verdict}. ", class_=f"word is-{state}"), meaning),
        el("ul", *(el("li", reason) for reason in why)) if why else None,
        shown,
        picture(run, "fidelity", course, "The emulator's lateness over time was not recorded.") if ran else None,
        picture(run, "lateness", caption, "The emulator's lateness was not recorded.") if ran else None,
        el("h3", "Real switches") if run.switches else None,
        tables.switches(run).render() if run.switches else None,
        el("h3", "Pre-flight check") if ran else None,
        (checks.render() if checks.rows else el("p", "No check was recorded.", class_="note")) if ran else None,
    )


def _data_plane(found: Mapping[str, Any]) -> str | None:
    """Which back end carried the frames, and why."""
    names = {"ring": "packet ring", "tap": "TAP and io_uring"}
    back_end = text(found.get("back_end"))
    if not back_end:
        return None
    stamps = {
        "kernel": "arrivals stamped by the kernel",
        "reaped": "arrivals stamped when they were reaped, later than they came",
    }
    parts = [
        names.get(back_end, back_end),
        text(found.get("reason")),
        stamps.get(text(found.get("stamps")) or "", ""),
        f"{count_text(figure(found.get('threads')))} threads of its own for input and output",
        "back-pressure at the hosts" if found.get("back_pressure") is True else "",
    ]
    return "; ".join(part for part in parts if part)


def _load(found: Mapping[str, Any]) -> str | None:
    incoming, outgoing = figure(found.get("frames_in_per_s")), figure(found.get("frames_out_per_s"))
    peak = figure(found.get("peak_out_per_s"))
    if incoming is None or outgoing is None or peak is None:
        return None
    return f"{incoming:,.0f} in, {outgoing:,.0f} out on average; {peak:,.0f} out in the busiest 100 ms"


def _cost(found: Mapping[str, Any]) -> str | None:
    cost, slept, spun = (figure(found.get(key)) for key in ("cpu_us_per_frame", "slept_share", "spun_share"))
    if cost is None or slept is None or spun is None:
        return None
    return f"{time_text(cost)} of CPU per frame; asleep {share_text(slept)} of the time, spinning {share_text(spun)}"


def _time(value: object) -> str | None:
    found = figure(value)
    return None if found is None else f"{time_text(found)}; above it the run is called disturbed"


def _overruns(value: object) -> str | None:
    """How long the data plane did not run although it should have."""
    found = mapping(value)
    longest, at, count = figure(found.get("longest_us")), figure(found.get("longest_at_s")), figure(found.get("count"))
    if longest is None:
        return None
    where = "" if at is None else f" at {at:.3f} s of the run"
    return f"for {time_text(longest)} at worst{where}; longer than 1 ms: {count_text(count)} times"


def _waited(precision: Mapping[str, Any]) -> str | None:
    waited, used = figure(precision.get("run_queue_s")), figure(precision.get("cpu_s"))
    if waited is None or used is None:
        return None
    return f"the data plane used {time_text(used * 1e6)} of CPU time and waited {time_text(waited * 1e6)} for it"


def _compared(value: object) -> str | None:
    """The emulator's error as a share of what the flows have to spare."""
    found = mapping(value)
    share, of = figure(found.get("share")), figure(found.get("value_us"))
    if share is None or of is None:
        return None
    flow = f"{text(found.get('flow'))} at {text(found.get('receiver'))}"
    return f"p99 of lateness is {share_text(share)} of the smallest {text(found.get('with'))} ({time_text(of)}, {flow})"


def _times(value: object) -> str | None:
    found = figure(value)
    return None if found is None else f"{count_text(found)} times during the run"


def _share(value: object) -> str | None:
    found = figure(value)
    return None if found is None else f"{share_text(found)} of the processors' time"


def _count(value: object) -> str | None:
    found = figure(value)
    return None if found is None else count_text(found)
