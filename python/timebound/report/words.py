"""What the run says in sentences: the verdict and why, the three numbers above everything, what words mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .ranking import critical
from .run import Flow, Run, text
from .units import count_text, share_text, time_text

SYMBOL = {
    "met": "✓",
    "missed": "✗",
    "violated": "‼",
    "disturbed": "≈",
    "unbounded": "∞",
    "unsupported": "–",
    "unmeasured": "?",
    "failed": "✗",
}

HEADLINE = {
    "met": "Met",
    "missed": "Missed",
    "violated": "Violated: a latency lies above its bound",
    "disturbed": "Disturbed: this machine could not measure precisely enough",
    "unbounded": "Unbounded: no finite worst case exists",
    "unmeasured": "Unmeasured: not every flow had a message in the measured time, or messages could not be told apart or read",
    "failed": "Failed: the emulation, or a program of it, did not reach its end",
}


def known_verdict(verdict: str) -> str:
    """The verdict if it is one of ours, else `unmeasured`: it becomes a class name."""
    return verdict if verdict in SYMBOL else "unmeasured"


def reasons(run: Run) -> list[str]:
    """Why the run's precision is what it is."""
    found = run.precision.get("reasons")
    return [text(reason) for reason in found if reason] if isinstance(found, list) else []


def seen(flow: Flow) -> list[tuple[str, float]]:
    """What is known of the flow's worst latency, in words and microseconds."""
    known = (
        (flow.promise_words, flow.promise),
        ("application latency observed", flow.application.max),
        ("network latency observed", flow.network.max),
        ("simulated", flow.simulated),
    )
    return [(words, value) for words, value in known if value is not None]


def why_missed(flow: Flow) -> str:
    """One clause on why a flow misses its requirement."""
    over = [f"{words} {time_text(v)}" for words, v in seen(flow) if flow.deadline is not None and v > flow.deadline]
    parts = []
    if over:
        parts.append(f"{', '.join(over)} against a deadline of {time_text(flow.deadline)}")
    parts += [f"{count_text(flow.counts[name])} {name}" for name in ("lost", "late") if flow.counts[name]]
    if flow.late_reason:
        parts.append(f"late {flow.late_reason}")
    if flow.risk:
        parts.append(flow.risk)
    return f"{flow.name}: {'; '.join(parts)}" if parts else flow.name


def kept(run: Run) -> str:
    """What there is of an emulation that broke off."""
    measured = run.precision.get("verdict") not in (None, "not-run")
    return "what was measured until then is shown." if measured else "nothing of it was measured."


def sentence(run: Run) -> str:
    """One sentence that says why the verdict is what it is."""
    flows = critical(run.flows)
    by = {name: [flow for flow in flows if flow.verdict == name and flow.decides] for name in SYMBOL}
    if run.verdict == "violated":
        found = max(len(run.violations), len(by["violated"]), 1)
        many = "One latency lies" if found == 1 else f"{count_text(found)} latencies lie"
        return (
            f"{many} above what was promised as a bound: a defect of Timebound, not of the network. Please report it."
        )
    if run.verdict == "disturbed":
        return f"{'; '.join(reasons(run)) or 'The emulator left its limits'}. Bounds and simulation are not touched by this."
    if run.verdict == "missed":
        if not by["missed"]:
            return "A requirement is not met."
        plural = "misses its requirement" if len(by["missed"]) == 1 else "miss their requirement"
        return f"{count_text(len(by['missed']))} of {count_text(len(flows))} flows {plural}; first {why_missed(by['missed'][0])}."
    if run.verdict == "unbounded":
        if not by["unbounded"]:
            first_reason = next((f"{flow.name}: {flow.reason}" for flow in by["unsupported"]), "no reason was recorded")
            return f"At least one flow has no bound, as the analysis does not apply to it; {first_reason}."
        first_flow = by["unbounded"][0]
        plural = "has" if len(by["unbounded"]) == 1 else "have"
        reason = first_flow.reason or "no reason was recorded"
        return f"{count_text(len(by['unbounded']))} of {count_text(len(flows))} flows {plural} no finite bound; {first_flow.name}: {reason}."
    if run.verdict == "failed" and run.failed_programs and not run.failure:
        return f"What the scenario asks for did not run: {run.failed_programs[0]}."
    if run.verdict == "failed":
        return f"It was interrupted or broke off; {kept(run)}"
    if run.verdict == "unmeasured":
        unmeasured = [flow for flow in flows if flow.verdict == "unmeasured"]
        plural = "was" if len(unmeasured) == 1 else "were"
        first = f", first {unmeasured[0].name}" if unmeasured else ""
        return f"{count_text(len(unmeasured))} of {count_text(len(flows))} flows {plural} not measured, or not to the end{first}. The notes say why."
    if run.verdict != "met":
        return (
            "This version of the report does not know the verdict of this run; the figures below speak for themselves."
        )
    if not flows:
        return "The scenario has no flow, so there was nothing to meet."
    return _met(run, flows)


def _met(run: Run, flows: list[Flow]) -> str:
    timed = [flow for flow in flows if flow.deadline is not None]
    exceeded = any(flow.bound_observed is not None and flow.bound_observed > (flow.bound or 0.0) for flow in flows)
    parts = []
    if timed:
        every = (
            "The only flow with a deadline keeps it"
            if len(timed) == 1
            else f"All {count_text(len(timed))} flows with a deadline keep it"
        )
        safe = all(
            flow.promise is not None and flow.deadline is not None and flow.promise <= flow.deadline for flow in timed
        )
        of = " of what is declared" if exceeded else ""
        parts.append(f"{every}, and so do the bounds{of}{_basis(timed)}" if safe else every)
    else:
        parts.append("No flow states a deadline")
    if any(flow.network.max is not None or flow.simulated is not None for flow in flows):
        # Where more was sent than is declared, what was seen is held against the bound for that.
        parts.append(f"no latency seen lies above its bound{' for what was sent' if exceeded else ''}")
    others = Counter(flow.verdict for flow in flows if flow.verdict not in ("met",))
    parts += [
        f"{count_text(n)} {_free(verdict)}, of which nothing is required" for verdict, n in sorted(others.items())
    ]
    return ", ".join(parts) + "."


def _free(verdict: str) -> str:
    """What is said of flows that do not decide."""
    return {"unbounded": "without a finite bound", "unsupported": "without a bound"}.get(verdict, verdict)


def _basis(flows: list[Flow]) -> str:
    """What the bounds from publisher to subscriber rest on, in words: a measured time is never a promise."""
    covers = {flow.way.covers for flow in flows if flow.way.has_broker}
    said = []
    if "network" in covers:
        said.append("without the own time of some brokers")
    if "measured" in covers:
        said.append("with measured, not guaranteed, times of brokers")
    if "declared" in covers:
        said.append("with declared times of brokers")
    return f" ({'; '.join(said)})" if said else ""


@dataclass(frozen=True, slots=True)
class Headline:
    """One of the three numbers: what it is, the value in microseconds, and where it comes from."""

    title: str
    value: float | None
    detail: str


def _left(flow: Flow) -> float | None:
    """The margin, or what the worst message seen left of the deadline where that is less: a message may wait outside what a bound covers."""
    if flow.margin is None or flow.deadline is None:
        return flow.margin
    return min([flow.margin, *(flow.deadline - value for _, value in seen(flow))])


def headlines(run: Run) -> list[Headline]:
    """Worst observed, worst simulated, tightest margin."""
    observed = max(
        (f for f in run.flows if f.network.max is not None), key=lambda f: f.network.max or 0.0, default=None
    )
    simulated = max((f for f in run.flows if f.simulated is not None), key=lambda f: f.simulated or 0.0, default=None)
    # Where no bound holds there is no margin either, whatever was worked out for a channel.
    bounded = (f for f in run.flows if f.verdict not in ("unbounded", "unsupported"))
    tight = min((f for f in bounded if f.margin is not None), key=lambda f: _left(f) or 0.0, default=None)
    found = [Headline("Worst network latency observed", None, "nothing was emulated")]
    if observed is not None:
        application = observed.application.max
        more = f"; up to {time_text(application)} for the application" if application is not None else ""
        found = [
            Headline(
                "Worst network latency observed",
                observed.network.max,
                f"{observed.name}{_used(observed, observed.network.max)}{more}",
            )
        ]
    if simulated is not None:
        found.append(
            Headline("Worst simulated", simulated.simulated, f"{simulated.name}{_used(simulated, simulated.simulated)}")
        )
    else:
        found.append(Headline("Worst simulated", None, "nothing was simulated"))
    if tight is None:
        why = (
            "no flow states a deadline"
            if not any(f.deadline for f in run.flows)
            else "neither a bound nor a latency is known"
        )
        found.append(Headline("Tightest margin to a deadline", None, why))
    else:
        against = "worst seen, as there is no bound"
        if tight.promise is not None:
            against = f"{tight.promise_words} {time_text(tight.promise)}"
        if tight.margin is not None and (_left(tight) or 0.0) < tight.margin:
            words, worst = max(seen(tight), key=lambda known: known[1])
            against = f"{words} {time_text(worst)}"
        detail = f"{tight.name}: deadline {time_text(tight.deadline)}, {against}"
        found.append(Headline("Tightest margin to a deadline", _left(tight), detail))
    return found


def _used(flow: Flow, value: float | None) -> str:
    limit = flow.limit
    return f", {share_text(value / limit)} of its bound" if value is not None and limit else ""


MEANINGS: Sequence[tuple[str, str]] = (
    (
        "Nominal release",
        "The instant at which a message is due by its declared period. Release jitter is how much later it may really be written. "
        "Deadlines, and the bound end to end, count from the nominal release; bounds of the network, like measured network "
        "latencies, from the actual one.",
    ),
    (
        "Network latency",
        "Over all network segments of a flow (publisher to broker, broker to subscriber): from the kernel's stamp of the frame at the "
        "first port to its departure from the last link, in the emulated network's own time. The emulator's lateness is not in it and is reported apart.",
    ),
    (
        "Application latency",
        "From the write at the publisher to the callback at the subscriber. It holds the network, broker and host share. Where one of them is a node's own program, it begins at "
        "the first port, or ends at the last one: what programs need before and after is not known.",
    ),
    (
        "Host and broker share",
        "What is left of the application latency after the network: scheduling and protocol stacks of the hosts, and the broker's own work. "
        "On one machine that plays every host they depend on that machine; a bound is given for a broker alone, from its declared or measured times.",
    ),
    (
        "Worst simulated",
        "The largest network latency that the simulator found. It is a lower limit to the true worst case, as a search can miss the worst. So is what a run observed "
        "while all sources kept what they declare; bound / found, with the larger of the two, says how much is open at most. Where a source did not keep it, more may be "
        "observed than ever happens to those who do: the bound for the arrivals observed holds then.",
    ),
    (
        "Bound",
        "An upper limit for the network latency that no frame may exceed while the sources keep their declared period and jitter.",
    ),
    (
        "Bound end to end",
        "From publisher to subscriber: the release jitter, the bounds of the segments and the response times of the brokers between them, one "
        "after another, from the nominal release. Deadlines and margins are about this figure. It "
        "assumes the service times of the brokers: as declared, or as measured in a profile, which is the most that was seen and no guarantee. "
        "Where neither is known it leaves the broker's own time out and says so.",
    ),
    (
        "Bound for the arrivals observed",
        "The same analysis with the jitter that was measured at the first port instead of the declared one. "
        "A measured latency above this one would be a defect of Timebound and is called violated.",
    ),
    (
        "Missed",
        "A deadline was missed in what was measured, or the bound lies above the deadline, so that it can be missed.",
    ),
    (
        "Unbounded",
        "No number is given: a port on the path is asked for as much as or more than it can carry, so that queues may grow without limit, or what comes there has no "
        "least distance (the reason says which). It decides about the run where a deadline is stated: what nobody requires cannot be missed.",
    ),
    ("Unsupported", "The analysis does not apply to what the path contains; the reason says what. No number is given."),
    (
        "Disturbed",
        "The machine was too late or lost frames while it emulated, or messages were late because Timebound's own publisher released them late, or because programs and "
        "endpoints waited for a CPU, so that the measurement is not precise enough to be judged. "
        "It says nothing against the network or the bounds.",
    ),
)

METHOD: Sequence[str] = (
    "Bounds are the least of the holistic response-time analysis and of network calculus with staircase arrival curves and line shaping, port by port, and of the two over stretches of several ports, for non-preemptive fixed priorities with first-in-first-out order inside a priority: "
    "at each output port the longest delay is a least fixed point over the interference of equal and higher priorities and one blocking frame of lower "
    "priority; what a frame can be late by becomes its jitter at the next port. Frames that come over the same link come one after the other (line shaping), and what a slow link has set apart stays so over the faster ones behind it. Over a stretch of ports, a stream that goes the same way counts once. The holistic approach is that of E. Shahri, P. Pedreiras and L. Almeida, "
    "“A Scalable Real-Time SDN-Based MQTT Framework for Industrial Applications” (IEEE Open Journal of the Industrial Electronics Society, 2024), "
    "in a corrected form: the flow's own frames are counted in the busy period, brackets are ceilings, and the jitter of every flow is carried from port to port.",
    "One largest frame of best-effort traffic is assumed to block on every port. Sizes count the whole wire: preamble, header, check sequence and gap. "
    "Every rounding goes upwards. The simulator and the emulator run the same queue and link code; only the clock differs.",
)

LIMITS: Sequence[str] = (
    "Bounds hold while sources keep period and jitter as declared (or as observed, for the second bound), while no frame is lost or retransmitted, "
    "and while nothing crosses the network that nobody declared. The tables above show whether that was so.",
    "Network bounds cover the network only. A broker's time is bounded as far as its service times hold; host time is measured, not bounded.",
    "A measurement or a simulation shows what happened, never what is the worst that can happen.",
    "Quantiles of short runs are coarse: p99 of 100 messages is the second largest.",
)
