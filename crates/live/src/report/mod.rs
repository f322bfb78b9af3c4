//! `live.json`: what a run was, how precise it was, and what it counted. Written at every end that we live to see.

pub mod switches;

use crate::certificate::{Certificate, Quantiles, Totals, Verdict, judge};
use crate::choice::Choice;
use crate::history::{self, HISTORY_FILE};
use crate::plan::{Plan, PrecisionPlan};
use crate::plane::{CutReport, FlowReport, Load, OwnReport, PlaneReport, Refusals, Stamps, Undeclared};
use crate::programs::ProgramReport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
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
    pub data_plane: DataPlaneReport,
    pub ports: Vec<PortReport>,
    pub undeclared: Vec<UndeclaredReport>,
    /// Undeclared frames of 5-tuples beyond the 65,536 that are told apart.
    pub undeclared_overflow: Counted,
    /// Frames that the model does not carry.
    pub refused_frames: Refusals,
    pub tcp: TcpReport,
    /// Messages of programs that are not ours.
    pub own: OwnReport,
    pub programs: Vec<ProgramReport>,
    /// Summary of the built-in endpoints (`timebound_endpoints::summary::Summary`); null without.
    pub endpoints: Option<serde_json::Value>,
    /// Orders for nodes, in the order in which they were given.
    pub lifecycle: Vec<crate::lifecycle::NodeEventReport>,
    pub warnings: Vec<String>,
    /// The tunnel of a run on two machines; null on one.
    pub cut: Option<CutReport>,
    /// Real switches, in the order of the plan.
    pub switches: Vec<switches::SwitchReport>,
}

/// How frames were moved, how many, and at what cost.
#[derive(Debug, Serialize)]
pub struct DataPlaneReport {
    /// `ring` or `tap`.
    pub back_end: &'static str,
    /// Why this one.
    pub reason: String,
    /// `kernel` or `reaped`: who stamped the arrivals.
    pub stamps: Stamps,
    /// Input/output threads beside the fabric's.
    pub threads: usize,
    pub back_pressure: bool,
    #[serde(flatten)]
    pub load: Load,
}

/// How long things took, ns.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Times {
    /// Namespaces, interfaces, addresses.
    pub bring_up_ns: u64,
    /// Real switches started and configured.
    pub switches_ns: u64,
    pub preflight_ns: u64,
    /// Programs ready, endpoints connected.
    pub setup_ns: u64,
    /// Programs and endpoints ended. (What the kernel removes after our end is not in it.)
    pub stop_ns: u64,
    /// Spent by PID 1 on taking the samples of `nodes.csv`.
    pub statistics_ns: u64,
}

/// What the emulator itself did to the frames.
#[derive(Debug, Clone, Serialize)]
pub struct Precision {
    #[serde(flatten)]
    pub certificate: Certificate,
    #[serde(flatten)]
    pub totals: Totals,
    /// Does the data plane run under SCHED_FIFO?
    pub fifo: bool,
    pub memory_locked: bool,
    pub rootless: bool,
    pub preflight: Vec<Check>,
    /// `limits.lateness_p99_ns`.
    pub lateness_limit_ns: u64,
}

/// One line of the pre-flight check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub check: String,
    pub expected: String,
    pub measured: String,
    /// Null: could not be checked, and `measured` says why.
    pub ok: Option<bool>,
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

pub(crate) fn data_plane(choice: &Choice, report: &PlaneReport) -> DataPlaneReport {
    DataPlaneReport {
        back_end: choice.back_end.name(),
        reason: choice.reason.clone(),
        stamps: report.stamps,
        threads: choice.threads,
        back_pressure: choice.back_pressure,
        load: report.load.clone(),
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
pub(crate) struct Circumstances<'a> {
    pub(crate) rootless: bool,
    /// Was there a measured part, and how long was it to be?
    pub(crate) measured: Option<u64>,
    pub(crate) preflight: Vec<Check>,
    /// The run folder, with the history.
    pub(crate) folder: &'a Path,
}

/// The precision of a run: its counts, judged by the plan's limits and its history.
pub(crate) fn precision(plan: &PrecisionPlan, report: &PlaneReport, about: Circumstances<'_>) -> Precision {
    let histogram = &report.lateness.histogram;
    let totals = Totals {
        frames: histogram.len(),
        lateness_ns: Quantiles {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        },
        early: report.lateness.early,
        late: report.lateness.late,
        ring_lost: report.ring_lost,
        handover_refused: report.refused,
        records_lost: report.records_lost,
        captures_lost: report.captures_lost,
        clock_steps: report.clock_steps,
    };
    let judged = about.measured.map_or_else(
        || Ok(Certificate::not_run(plan)),
        |duration| {
            File::open(about.folder.join(HISTORY_FILE))
                .map_err(|error| error.to_string())
                .and_then(|file| {
                    judge(plan, duration, &totals, history::read(file)).map_err(|error| error.to_string())
                })
        },
    );
    let mut certificate = judged.unwrap_or_else(|error| Certificate {
        // What cannot be shown to be good is not called good.
        verdict: Verdict::Disturbed,
        reasons: vec![format!("the history of the run cannot be read: {error}")],
        ..Certificate::not_run(plan)
    });
    if let Some(cut) = &report.cut {
        certificate.crossed(cut.received, cut.late, cut.lateness_p99_ns);
    }
    for reason in switches::disturbances(&report.switches, about.measured.unwrap_or_default()) {
        certificate.disturb(reason);
    }
    Precision {
        certificate,
        totals,
        fifo: report.fifo,
        memory_locked: report.memory_locked,
        rootless: about.rootless,
        preflight: about.preflight,
        lateness_limit_ns: plan.lateness_p99_ns,
    }
}
