//! The check of the emulated conditions before anything is measured.
//!
//! Probe frames go from node to node through kernel sockets and a fabric of their own (the random streams of the measured run
//! are not touched). Four things must hold, or the run is refused: the virtual latency of every probe is what rates, delays and
//! switching say, worked out here without the fabric; the fabric replayed with the recorded stamps gives the same verdicts at
//! the same times; real receivers got what the verdicts say, never early and about in time; and TCP passes data.
//!
//! What cannot be tried (a way that loses everything, or takes too long) is a line that says "not checked", and the run goes on.

mod blame;
mod judge;
mod paths;
mod probe;
mod replay;
#[cfg(test)]
mod tests;

use crate::failure::Failure;
use crate::kernel::clock;
use crate::nodes::Nodes;
use crate::plan::Plan;
use crate::plane::{Command, Kind, Lane};
use crate::stage::Stage;
pub(crate) use blame::{Blame, Line, verdict};
use judge::{FEWEST, Seen, line, not_checked};
use paths::Route;
use probe::Prober;
use std::sync::Arc;
use std::time::Duration;
use timebound_fabric::Fabric;
use timebound_model::{Network, NodeId, PortId};

/// Bytes of a small probe's payload: the measurement header alone.
const SMALL: usize = 16;
/// A probe that may take longer than this is not sent.
const LONGEST: u64 = 10_000_000_000;
/// Nor is a full-sized one that keeps the next one of its way waiting for longer than this.
const LONGEST_PAUSE: u64 = 3_000_000_000;
/// What the plan's limit may be exceeded by because ways are slow.
const MOST_PATIENCE: u64 = 8_000_000_000;
/// So many ways are probed in the plan's limit; more have more time.
const WAYS: u64 = 1_000;

/// Checks the conditions.
///
/// # Errors
/// When the host refuses sockets. A condition that does not hold is a line that is not `ok`.
pub(crate) fn check(
    plan: &Plan,
    network: &Arc<Network>,
    switches: &[NodeId],
    unprobed: &[String],
    nodes: &Nodes,
    stage: &Stage,
) -> Result<Vec<Line>, Failure> {
    let (routes, coverable) = paths::cover(network, nodes, switches, plan.framing);
    if let Some(lines) = nothing_to_probe(network, &routes, unprobed, nodes) {
        return Ok(lines);
    }
    let mut prober =
        Prober::open(nodes, &routes).map_err(|error| Failure::host("cannot open probe sockets", error))?;
    let received = stage.received();
    // Everything is ready: only now does time begin to run.
    let origin = clock::monotonic();
    let mut fabric = Box::new(Fabric::new(Arc::clone(network), plan.seed));
    fabric.hand_over(switches);
    stage.send(Command::Open(Lane::new(Kind::Preflight, fabric, origin)));
    let mut left_out = unprobed.to_vec();
    let limit = plan.preflight.limit_ns * (1 + routes.len() as u64 / WAYS);
    let visited = visit(
        &mut prober,
        network,
        nodes,
        &routes,
        origin + limit / 2,
        &mut left_out,
    );
    let deadline = (origin + limit).max(clock::monotonic() + limit / 4);
    let counted = count_losses(plan, network, &mut prober, &visited, deadline, &mut left_out);
    let tcp = tcp_line(network, nodes, &visited, deadline);
    let slowest = visited.iter().map(|visit| visit.greatest).max().unwrap_or(0);
    settle(&mut prober, stage, deadline + limit / 4 + slowest);
    // Others than the probes may send all the time (devices): what is judged has to be complete.
    let complete = stage.close_lane(clock::monotonic() + limit + slowest);
    prober.collect();
    let log = stage.probes();
    let seen = Seen {
        network,
        routes: &routes,
        single: &prober.single,
        arrivals: &prober.arrivals,
        log: &log,
        origin,
        offset: clock::realtime_offset(),
        tolerance: plan.preflight.tolerance_ns,
    };
    let mut latency = seen.latency();
    // A data plane that is alive but saw none of the probes has no working ring: that is no question of load.
    if prober.has_sent() && stage.received() == received {
        latency.blame = Blame::Condition;
    }
    let mut lines = vec![latency];
    lines.extend(tcp);
    lines.push(seen.handover());
    lines.extend(seen.timeliness());
    let replayed = replay::run(plan.seed, network, switches, &log);
    let unknown = log.ingress.is_empty() || !complete;
    lines.push(
        replayed
            .line(&log)
            .or_blame(if unknown { Blame::Machine } else { Blame::Either }),
    );
    lines.extend(counted.iter().map(|port| seen.losses(*port, &replayed)));
    lines.push(seen.coverage(&coverable));
    lines.extend(judge::unprobed(&left_out));
    lines.extend(settings_lines(nodes));
    Ok(lines)
}

/// The whole answer where there is no way to probe, or each takes too long.
fn nothing_to_probe(
    network: &Network,
    routes: &[Route],
    unprobed: &[String],
    nodes: &Nodes,
) -> Option<Vec<Line>> {
    let expected = || "ports on routes between hosts".to_owned();
    let none = |why: &str| {
        let mut lines = vec![not_checked("coverage", expected(), why.to_owned()).or_blame(Blame::Machine)];
        lines.extend(judge::unprobed(unprobed));
        lines.extend(settings_lines(nodes));
        lines
    };
    if routes.is_empty() {
        let outside = nodes.list.iter().any(|node| node.external);
        return Some(none(if outside {
            "none: no two hosts that are neither devices nor virtual machines, so nothing was proved"
        } else {
            "none: no two hosts with a way between them, so nothing was proved"
        }));
    }
    let slow = |route: &Route| payloads(route, network, nodes).is_empty();
    routes.iter().all(slow).then(|| {
        none(&format!(
            "none: a probe may take more than {} s on each way, so nothing was proved",
            LONGEST / 1_000_000_000
        ))
    })
}

/// A way on which probes were sent.
struct Visit<'a> {
    route: &'a Route,
    /// Of all its probes, copies included.
    greatest: u64,
}

/// Sizes of the probes of a way: those that do not take too long.
fn payloads(route: &Route, network: &Network, nodes: &Nodes) -> Vec<usize> {
    let mtu = (nodes.list[route.sender].mtu).min(nodes.list[route.receiver].mtu) as usize;
    sizes(route, network, mtu)
}

fn sizes(route: &Route, network: &Network, mtu: usize) -> Vec<usize> {
    let full = mtu.saturating_sub(28).max(SMALL);
    let takes = |payload: usize| route.greatest_with_copies(network, route.wire(payload));
    let mut sizes = vec![SMALL, SMALL, full];
    if takes(full) > LONGEST || route.occupancy(network, route.wire(full)) > LONGEST_PAUSE {
        sizes.pop();
    }
    if takes(SMALL) > LONGEST || route.occupancy(network, route.wire(SMALL)) > LONGEST_PAUSE {
        sizes.clear();
    }
    sizes
}

/// Sends the probes of all ways that time permits; which these were. Slow ways get the time that they need, up to
/// [`MOST_PATIENCE`] together; what was left out for being too slow is named in `left_out`.
fn visit<'a>(
    prober: &mut Prober<'_>,
    network: &Network,
    nodes: &Nodes,
    routes: &'a [Route],
    until: u64,
    left_out: &mut Vec<String>,
) -> Vec<Visit<'a>> {
    let mut visited = Vec::new();
    let mut patience = 0u64;
    for route in routes {
        if clock::monotonic() > until + patience.min(MOST_PATIENCE) {
            break;
        }
        let payloads = payloads(route, network, nodes);
        if payloads.len() < 3 {
            let what = if payloads.is_empty() { "" } else { " in full size" };
            left_out.push(format!("{}{what} (too slow)", route.name(network)));
        }
        let Some(largest) = payloads.last() else {
            continue;
        };
        let begun = clock::monotonic();
        prober.visit(route, network, &payloads);
        let greatest = route.greatest_with_copies(network, route.wire(*largest));
        if route.is_slow(network, route.wire(*largest)) {
            patience += clock::monotonic() - begun;
        }
        visited.push(Visit { route, greatest });
    }
    visited
}

/// Sends probes in numbers over each port that judges by chance; the ports with losses for which that was done.
fn count_losses(
    plan: &Plan,
    network: &Network,
    prober: &mut Prober<'_>,
    visited: &[Visit<'_>],
    deadline: u64,
    left_out: &mut Vec<String>,
) -> Vec<PortId> {
    // Damage and second copies are rare too: the replay has to see some.
    let by_chance = |port: &PortId| {
        let impairments = &network.ports[port.index()].impairments;
        impairments.loss.is_some() || impairments.corruption > 0.0 || impairments.duplication > 0.0
    };
    let mut ways = std::collections::BTreeMap::new();
    for visit in visited {
        for port in visit.route.ports.iter().filter(|port| by_chance(port)) {
            ways.entry(*port).or_insert(visit.route);
        }
    }
    let mut done = Vec::new();
    let share = deadline.saturating_sub(clock::monotonic()) / 2 / (ways.len() as u64).max(1);
    for (port, route) in ways {
        // Copies need their time too.
        let gap = route
            .slowest_transmission(network, SMALL)
            .saturating_mul(route.most_copies(network));
        let count = u64::from(plan.preflight.loss_probes).min(share / gap.max(2_000));
        if count >= u64::from(FEWEST) {
            prober.burst(route, count as u32, gap);
            if network.ports[port.index()].impairments.loss.is_some() {
                done.push(port);
            }
        } else {
            left_out.push(format!(
                "the share of frames lost, damaged or doubled by {} (too slow)",
                network.port_name(port)
            ));
        }
    }
    done
}

/// Waits until the model is empty and its records are written, collecting what arrives.
fn settle(prober: &mut Prober<'_>, stage: &Stage, deadline: u64) {
    let mut quiet_since = None;
    loop {
        prober.collect();
        let now = clock::monotonic();
        if stage.inside() > 0 {
            quiet_since = None;
        } else if now - *quiet_since.get_or_insert(now) > 30_000_000 {
            break;
        }
        if now > deadline {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    prober.collect();
}

/// What the kernel says of TCP in the nodes: no load makes it another.
fn settings_lines(nodes: &Nodes) -> impl Iterator<Item = Line> + '_ {
    (nodes.tcp.iter()).map(|check| check.clone().or_blame(Blame::Condition))
}

/// Linux keeps room for 48 bytes of options and data in a segment, whatever the MTU (net.ipv4.tcp_min_snd_mss): with smaller ones there
/// is no TCP.
const LEAST_TCP_MTU: u32 = 88;

/// A TCP connection over one path without losses carries data intact.
fn tcp_line(network: &Network, nodes: &Nodes, visited: &[Visit<'_>], deadline: u64) -> Option<Line> {
    let lossless = |port: &PortId| !network.ports[port.index()].impairments.is_lossy();
    let usable = |route: &&Route| {
        let back = network.routes.path(&network.ports, route.to, route.from);
        route.ports.iter().all(lossless)
            && back.is_some_and(|back| back.iter().all(lossless))
            && [route.sender, route.receiver]
                .iter()
                .all(|position| nodes.list[*position].mtu >= LEAST_TCP_MTU)
            && route.greatest_latency(network, 1500) < 20_000_000
    };
    let route = visited.iter().map(|visit| visit.route).find(usable)?;
    let bytes = route
        .bytes_within(network, Duration::from_millis(100))
        .clamp(2_000, 65_536);
    let result = probe::tcp(nodes, route, bytes, deadline);
    let expected = format!("{bytes} bytes over one connection, {}", route.name(network));
    let line = match result {
        Ok(()) => line("tcp", expected, "all, intact".to_owned(), true),
        Err(error) => line("tcp", expected, error.to_string(), false),
    };
    Some(line.or_blame(Blame::Either))
}
