//! Streams: their arrival curves and how the simulator releases them.

use super::tree::compile_tree;
use super::{Checker, Names};
use crate::declaration::{ArrivalDecl, ReleaseDecl, RoleDecl, StreamDecl};
use crate::network::{Arrival, Network, NodeKind, Release, Role, Stream, Tree};
use crate::units::{Class, NANOS_PER_SECOND, Rate, Span, Time, WireBytes};

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
    let least_frame = compile_least(decl, path, check);
    let release = compile_release(&decl.release, path, check);
    check_greedy(&arrival, &release, path, check);
    let source = source?;
    let tree = compile_tree(decl, path, network, names, source, &destinations, check);
    check_slots(network, &tree, arrival.largest_frame(), path, check);
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
        least_frame,
        release,
        deadline: decl.deadline_ns.map(Span),
        tree,
    })
}

/// The least that a frame may really be.
fn compile_least(decl: &StreamDecl, path: &str, check: &mut Checker) -> Option<WireBytes> {
    let at = format!("{path}.least_frame_bytes");
    let least = decl.least_frame_bytes?;
    match &decl.arrival {
        ArrivalDecl::Periodic { frames_bytes, .. } => {
            if frames_bytes.iter().any(|declared| *declared < least) {
                check.error(
                    at.as_str(),
                    "a declared frame is smaller than the least one",
                    "state at most the size of the smallest declared frame",
                );
            }
        }
        ArrivalDecl::TokenBucket { .. } => check.error(
            at.as_str(),
            "a least frame beside that of a token bucket",
            "state it as min_frame_bytes of the arrival",
        ),
        ArrivalDecl::Unbounded { .. } => check.error(
            at.as_str(),
            "a least frame of a stream that promises nothing",
            "leave it out",
        ),
    }
    Some(check.frame(&at, least))
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
        ArrivalDecl::TokenBucket {
            rate_bps,
            burst_bytes,
            min_frame_bytes,
            max_frame_bytes,
        } => {
            let at = format!("{path}.arrival");
            let min_frame = check.frame(&format!("{at}.min_frame_bytes"), *min_frame_bytes);
            let max_frame = check.frame(&format!("{at}.max_frame_bytes"), *max_frame_bytes);
            if min_frame > max_frame {
                check.error(
                    format!("{at}.min_frame_bytes"),
                    "the least frame is larger than the largest",
                    "exchange them",
                );
            }
            check_bucket(*rate_bps, *burst_bytes, max_frame, &at, check);
            Arrival::TokenBucket {
                rate: Rate((*rate_bps).max(1)),
                burst_bytes: *burst_bytes,
                min_frame: min_frame.min(max_frame),
                max_frame,
            }
        }
        ArrivalDecl::Unbounded { max_frame_bytes } => Arrival::Unbounded {
            max_frame: check.frame(&format!("{path}.arrival.max_frame_bytes"), *max_frame_bytes),
        },
    }
}

/// A frame that is longer than every slot of a port would wait there for ever.
fn check_slots(network: &Network, tree: &Tree, largest: WireBytes, path: &str, check: &mut Checker) {
    for hop in &tree.hops {
        let port = &network.ports[hop.port.index()];
        let Some(slots) = &port.slots else { continue };
        let takes = port.rate.transmission_time(largest);
        if takes > slots.longest() {
            check.error(
                format!("{path}.arrival"),
                format!(
                    "a frame of {} bytes takes {takes} at {}, and the longest slot there has {}",
                    largest.0,
                    network.port_name(hop.port),
                    slots.longest()
                ),
                "make the slots longer, the frames shorter (mtu) or the rate higher",
            );
            return;
        }
    }
}

fn check_bucket(rate_bps: u64, burst_bytes: u64, max_frame: WireBytes, at: &str, check: &mut Checker) {
    if !(1..=10_000_000_000_000).contains(&rate_bps) {
        check.error(
            format!("{at}.rate_bps"),
            format!("a token rate of {rate_bps} bit/s is impossible"),
            "state a rate between 1 bit/s and 10 Tbit/s",
        );
        return;
    }
    if burst_bytes < u64::from(max_frame.0) {
        check.error(
            format!("{at}.burst_bytes"),
            format!(
                "a burst of {burst_bytes} bytes never lets a frame of {} bytes pass",
                max_frame.0
            ),
            "state at least one whole frame on the wire",
        );
    }
    let nanos = u128::from(burst_bytes) * 8 * u128::from(NANOS_PER_SECOND) / u128::from(rate_bps);
    let at = format!("{at}.burst_bytes");
    check.time(&at, u64::try_from(nanos).unwrap_or(u64::MAX));
}

/// A greedy release sends frames that its bucket knows, and can send all of them at once.
fn check_greedy(arrival: &Arrival, release: &Release, path: &str, check: &mut Checker) {
    let Release::Greedy { frames, .. } = release else {
        return;
    };
    let Arrival::TokenBucket {
        burst_bytes,
        min_frame,
        max_frame,
        ..
    } = arrival
    else {
        check.error(
            format!("{path}.release"),
            "a greedy release without a token bucket",
            "declare the arrival as a token bucket",
        );
        return;
    };
    let sum: u64 = frames.iter().map(|bytes| u64::from(bytes.0)).sum();
    let known = frames
        .iter()
        .all(|bytes| (min_frame..=max_frame).contains(&bytes));
    if frames.is_empty() || !known || sum > *burst_bytes {
        check.error(
            format!("{path}.release.frames_bytes"),
            format!(
                "a release of {} frames with {sum} bytes does not fit the token bucket",
                frames.len()
            ),
            "frames are within its least and largest one, and together not more than its burst",
        );
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
        ReleaseDecl::Greedy {
            offset_ns,
            frames_bytes,
        } => Release::Greedy {
            offset: offset_ns.map(|n| check.time(&at, n)),
            frames: frames_bytes
                .iter()
                .map(|bytes| check.frame(&at, *bytes))
                .collect(),
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
