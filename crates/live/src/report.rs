//! `live.json`: what a run was, how precise it was, and what it counted. Written at every end that we live to see.

use crate::plan::{Plan, PrecisionPlan};
use crate::plane::{FlowReport, PlaneReport, Refusals, Undeclared};
use crate::programs::ProgramReport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use timebound_model::{Network, PortId};

/// The file.
#[derive(Debug, Serialize)]
pub struct LiveReport {
    /// 1
    pub schema: u32,
    pub run_id: String,
    pub exit_code: i32,
    /// Why it failed; null otherwise.
    pub failure: Option<String>,
    /// Wall clock at time zero, ns since 1970; null if the run never got there.
    pub epoch_unix_ns: Option<u64>,
    /// CLOCK_MONOTONIC at time zero.
    pub epoch_monotonic_ns: Option<u64>,
    /// From time zero to the end of measuring.
    pub measured_ns: u64,
    pub planned_ns: u64,
    pub times: Times,
    pub precision: Precision,
    pub ports: Vec<PortReport>,
    pub undeclared: Vec<UndeclaredReport>,
    /// Undeclared frames of 5-tuples beyond the 65,536 that are told apart.
    pub undeclared_overflow: Counted,
    /// Frames that the model does not carry.
    pub refused_frames: Refusals,
    pub tcp: TcpReport,
    pub programs: Vec<ProgramReport>,
    /// Summary of the built-in endpoints (`timebound_endpoints::summary::Summary`); null without.
    pub endpoints: Option<serde_json::Value>,
    pub warnings: Vec<String>,
}

/// How long things took, ns.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Times {
    /// Namespaces, interfaces, addresses.
    pub bring_up_ns: u64,
    pub preflight_ns: u64,
    /// Programs ready, endpoints connected.
    pub setup_ns: u64,
    /// Programs and endpoints ended. (What the kernel removes after our end is not in it.)
    pub stop_ns: u64,
}

/// What the emulator itself did to the frames.
#[derive(Debug, Clone, Serialize)]
pub struct Precision {
    /// `good`, `disturbed`, or `not-run`.
    pub verdict: &'static str,
    pub reasons: Vec<String>,
    /// Frames handed over since time zero.
    pub frames: u64,
    /// Real handover minus virtual arrival.
    pub lateness_ns: Quantiles,
    /// Frames handed over before their virtual arrival; always 0 unless we are broken.
    pub early: u64,
    /// Frames later than `late_frame_ns` of the plan.
    pub late: u64,
    /// Frames that found the ring full: lost by the emulator, not by the model.
    pub ring_lost: u64,
    /// Frames that the receiving kernel did not take.
    pub handover_refused: u64,
    /// Records that could not be written in time.
    pub records_lost: u64,
    pub captures_lost: u64,
    /// Does the data plane run under SCHED_FIFO?
    pub fifo: bool,
    pub memory_locked: bool,
    pub rootless: bool,
    /// How often the wall clock was set during the run.
    pub clock_steps: u64,
    /// Share of all CPUs' time that a hypervisor took away.
    pub steal: f64,
    pub preflight: Vec<Check>,
    /// What the verdict was reached with.
    pub lateness_limit_ns: u64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Quantiles {
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// One line of the pre-flight check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub check: String,
    pub expected: String,
    pub measured: String,
    pub ok: bool,
}

#[derive(Debug, Serialize)]
pub struct PortReport {
    /// `from->to`.
    pub port: String,
    pub index: u32,
    pub frames: u64,
    pub wire_bytes: u64,
    pub dropped_buffer: u64,
    pub dropped_link: u64,
    pub largest_queue_bytes: u64,
}

#[derive(Debug, Default, Serialize)]
pub struct Counted {
    pub frames: u64,
    pub bytes: u64,
    pub largest: u32,
}

#[derive(Debug, Serialize)]
pub struct UndeclaredReport {
    /// `h1:1883`, or the address where no host has it.
    pub source: String,
    pub destination: String,
    /// `tcp`, `udp`, `icmp` or the number.
    pub protocol: String,
    pub frames: u64,
    /// On the wire.
    pub bytes: u64,
    pub largest: u32,
}

#[derive(Debug, Serialize)]
pub struct TcpReport {
    pub retransmissions: u64,
    pub connections: Vec<RetransmissionReport>,
}

#[derive(Debug, Serialize)]
pub struct RetransmissionReport {
    pub source: String,
    pub destination: String,
    pub retransmissions: u64,
}

/// Names of addresses, for people.
pub(crate) struct Names(BTreeMap<Ipv4Addr, String>);

impl Names {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self(
            plan.hosts
                .iter()
                .map(|host| (host.address, host.node.clone()))
                .collect(),
        )
    }

    fn end(&self, address: u32, port: u16) -> String {
        let address = Ipv4Addr::from(address);
        let name = self
            .0
            .get(&address)
            .cloned()
            .unwrap_or_else(|| address.to_string());
        if port == 0 { name } else { format!("{name}:{port}") }
    }
}

pub(crate) fn undeclared(flows: &[FlowReport], names: &Names) -> Vec<UndeclaredReport> {
    let mut lines: Vec<_> = flows.iter().filter(|flow| flow.undeclared.frames > 0).collect();
    lines.sort_by_key(|flow| (std::cmp::Reverse(flow.undeclared.wire_bytes), flow.key));
    lines
        .into_iter()
        .map(|FlowReport { key, undeclared, .. }| UndeclaredReport {
            source: names.end(key.source, key.source_port),
            destination: names.end(key.destination, key.destination_port),
            protocol: match key.protocol {
                1 => "icmp".to_owned(),
                6 => "tcp".to_owned(),
                17 => "udp".to_owned(),
                other => other.to_string(),
            },
            frames: undeclared.frames,
            bytes: undeclared.wire_bytes,
            largest: undeclared.largest,
        })
        .collect()
}

pub(crate) fn tcp(flows: &[FlowReport], names: &Names) -> TcpReport {
    TcpReport {
        retransmissions: flows.iter().map(|flow| flow.retransmissions).sum(),
        connections: flows
            .iter()
            .filter(|flow| flow.retransmissions > 0)
            .map(|flow| RetransmissionReport {
                source: names.end(flow.key.source, flow.key.source_port),
                destination: names.end(flow.key.destination, flow.key.destination_port),
                retransmissions: flow.retransmissions,
            })
            .collect(),
    }
}

pub(crate) fn ports(report: &PlaneReport, network: &Network) -> Vec<PortReport> {
    let counters = report.counters.iter().enumerate();
    counters
        .map(|(index, counters)| PortReport {
            port: network.port_name(PortId::new(index)),
            index: index as u32,
            frames: counters.frames,
            wire_bytes: counters.wire_bytes,
            dropped_buffer: counters.dropped_buffer,
            dropped_link: counters.dropped_link,
            largest_queue_bytes: counters.largest_queue_bytes,
        })
        .collect()
}

impl From<Undeclared> for Counted {
    fn from(counts: Undeclared) -> Self {
        Self {
            frames: counts.frames,
            bytes: counts.wire_bytes,
            largest: counts.largest,
        }
    }
}

/// What is known of the host when a run is judged.
pub(crate) struct Circumstances {
    pub(crate) rootless: bool,
    pub(crate) steal: f64,
    pub(crate) measured: bool,
    pub(crate) preflight: Vec<Check>,
}

/// Judges the precision of a run by the plan's limits.
pub(crate) fn judge(plan: &PrecisionPlan, report: &PlaneReport, about: Circumstances) -> Precision {
    let histogram = &report.lateness.histogram;
    let lateness = Quantiles {
        p50: histogram.value_at_quantile(0.5),
        p99: histogram.value_at_quantile(0.99),
        p999: histogram.value_at_quantile(0.999),
        max: histogram.max(),
    };
    let limit = plan
        .lateness_p99_ns
        .unwrap_or(if report.fifo { 250_000 } else { 1_000_000 });
    let frames = histogram.len();
    let mut reasons = Vec::new();
    let mut note = |bad: bool, text: String| {
        if bad {
            reasons.push(text);
        }
    };
    let us = |nanos: u64| nanos as f64 / 1_000.0;
    note(
        lateness.p99 > limit,
        format!(
            "1 frame in 100 left {:.0} us late or later; the limit is {:.0} us",
            us(lateness.p99),
            us(limit)
        ),
    );
    let share = report.lateness.late as f64 / frames.max(1) as f64;
    note(
        share > plan.late_share,
        format!(
            "{} of {frames} frames left more than {:.0} us late; allowed is a share of {}",
            report.lateness.late,
            us(plan.late_frame_ns),
            plan.late_share
        ),
    );
    note(
        report.ring_lost > plan.ring_lost,
        format!("{} frames found the ring full", report.ring_lost),
    );
    note(
        report.lateness.early > 0,
        format!("{} frames left before their time", report.lateness.early),
    );
    note(
        report.refused > 0,
        format!("{} frames were refused by the receiving kernel", report.refused),
    );
    note(
        report.records_lost > 0,
        format!("{} records could not be written in time", report.records_lost),
    );
    note(
        report.clock_steps > 0,
        format!("the wall clock was set {} times", report.clock_steps),
    );
    let verdict = match (about.measured, reasons.is_empty()) {
        (false, _) => "not-run",
        (true, true) => "good",
        (true, false) => "disturbed",
    };
    Precision {
        verdict,
        reasons,
        frames,
        lateness_ns: lateness,
        early: report.lateness.early,
        late: report.lateness.late,
        ring_lost: report.ring_lost,
        handover_refused: report.refused,
        records_lost: report.records_lost,
        captures_lost: report.captures_lost,
        fifo: report.fifo,
        memory_locked: report.memory_locked,
        rootless: about.rootless,
        clock_steps: report.clock_steps,
        steal: about.steal,
        preflight: about.preflight,
        lateness_limit_ns: limit,
    }
}
