//! Streams: their arrival curves and how the simulator releases them.

use super::tree::compile_tree;
use super::{Checker, Names};
use crate::declaration::{ArrivalDecl, ReleaseDecl, RoleDecl, StreamDecl};
use crate::network::{Arrival, Network, NodeKind, Release, Role, Stream};
use crate::units::{Class, Span, Time};

pub(super) fn compile_stream(
    decl: &StreamDecl,
    path: &str,
    network: &Network,
    names: &Names<'_>,
    check: &mut Checker,
) -> Option<Stream> {
    let errors_before = check.errors.len();
    let mut host = |field: String, name: &str| {
        match names.get(name).copied() {
            None => check.error(
                field,
                format!("unknown node {name:?}"),
                "declare it under network.nodes",
            ),
            Some(id) if network.nodes[id.index()].kind != NodeKind::Host => {
                check.error(
                    field,
                    format!("{name:?} is no host"),
                    "streams start and end at hosts",
                );
            }
            Some(id) => return Some(id),
        }
        None
    };
    let source = host(format!("{path}.source"), &decl.source);
    let mut destinations = Vec::new();
    for (index, name) in decl.destinations.iter().enumerate() {
        if let Some(id) = host(format!("{path}.destinations[{index}]"), name) {
            destinations.push((index, id));
        }
    }
    if decl.destinations.is_empty() {
        check.error(
            format!("{path}.destinations"),
            "no destination",
            "name at least one receiver",
        );
    }
    if decl.class > 7 {
        check.error(
            format!("{path}.class"),
            format!("class {} does not exist", decl.class),
            "classes are 0 to 7",
        );
    }
    let arrival = compile_arrival(&decl.arrival, path, check);
    let release = compile_release(&decl.release, path, check);
    let source = source?;
    let tree = compile_tree(decl, path, network, names, source, &destinations, check);
    if check.errors.len() > errors_before {
        return None;
    }
    Some(Stream {
        name: decl.name.clone(),
        source,
        class: Class(decl.class),
        role: match decl.role {
            RoleDecl::Data => Role::Data,
            RoleDecl::Ack => Role::Ack,
            RoleDecl::Control => Role::Control,
            RoleDecl::Background => Role::Background,
        },
        arrival,
        release,
        deadline: decl.deadline_ns.map(Span),
        tree,
    })
}

fn compile_arrival(decl: &ArrivalDecl, path: &str, check: &mut Checker) -> Arrival {
    match decl {
        ArrivalDecl::Periodic {
            period_ns,
            jitter_ns,
            frames_bytes,
        } => {
            if *period_ns == 0 {
                check.error(
                    format!("{path}.arrival.period_ns"),
                    "a period of zero",
                    "state the least time between releases",
                );
            }
            if frames_bytes.is_empty() {
                check.error(
                    format!("{path}.arrival.frames_bytes"),
                    "no frame",
                    "a release sends at least one frame",
                );
            }
            let at = format!("{path}.arrival.frames_bytes");
            Arrival::Periodic {
                period: check.time(&format!("{path}.arrival.period_ns"), (*period_ns).max(1)),
                jitter: check.time(&format!("{path}.arrival.jitter_ns"), *jitter_ns),
                frames: frames_bytes
                    .iter()
                    .map(|bytes| check.frame(&at, *bytes))
                    .collect(),
            }
        }
        ArrivalDecl::Unbounded { max_frame_bytes } => Arrival::Unbounded {
            max_frame: check.frame(&format!("{path}.arrival.max_frame_bytes"), *max_frame_bytes),
        },
    }
}

fn compile_release(decl: &ReleaseDecl, path: &str, check: &mut Checker) -> Release {
    let at = format!("{path}.release");
    let gap = |check: &mut Checker, nanos: u64| {
        if nanos == 0 {
            check.error(
                at.as_str(),
                "a gap of zero between releases",
                "state a positive gap",
            );
        }
        check.time(&at, nanos.max(1))
    };
    match decl {
        ReleaseDecl::Periodic { offset_ns } => Release::Periodic {
            offset: offset_ns.map(|n| check.time(&at, n)),
        },
        ReleaseDecl::Sporadic { mean_extra_ns } => Release::Sporadic {
            mean_extra: check.time(&at, *mean_extra_ns),
        },
        ReleaseDecl::Poisson {
            mean_gap_ns,
            frame_bytes,
        } => Release::Poisson {
            mean_gap: gap(check, *mean_gap_ns),
            frame: check.frame(&at, *frame_bytes),
        },
        ReleaseDecl::Constant { gap_ns, frame_bytes } => Release::Constant {
            gap: gap(check, *gap_ns),
            frame: check.frame(&at, *frame_bytes),
        },
        ReleaseDecl::Burst {
            gap_ns,
            frames,
            frame_bytes,
        } => Release::Burst {
            gap: gap(check, *gap_ns),
            frames: *frames,
            frame: check.frame(&at, *frame_bytes),
        },
        ReleaseDecl::Trace {
            times_ns,
            frame_bytes,
        } => {
            if !times_ns.is_sorted() {
                check.error(at.as_str(), "the times of a trace are not in order", "sort them");
            }
            Release::Trace {
                times: times_ns.iter().copied().map(Time).collect(),
                frame: check.frame(&at, *frame_bytes),
            }
        }
        ReleaseDecl::Silent => Release::Silent,
    }
}
