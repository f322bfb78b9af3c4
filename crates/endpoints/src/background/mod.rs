//! The thread of background traffic: it only loads the network, so it runs apart from what is measured, without priority.

mod flow;
mod schedule;
mod tcp;

use crate::control::{Control, NamespaceProvider, RunClock};
use crate::error::EndpointError;
use crate::measured::Shared;
use crate::plan::EndpointPlan;
use crate::sockets::Opener;
use crate::summary::BackgroundSummary;
use crate::sys::{Epoll, Interest, Ready, exact_timers};
use flow::Flow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;

/// What every flow uses.
pub(crate) struct Tools<'a> {
    epoll: Epoll,
    opener: Opener<'a>,
    scratch: Vec<u8>,
    zeros: Vec<u8>,
}

const LISTENER: u64 = 0;
const CLIENT: u64 = 1;
const SERVER: u64 = 2;
const WAKER: u64 = u64::MAX;
/// Releases served before sockets get their turn.
const BATCH: usize = 64;
/// Longest sleep: how late an end without further events is noticed.
const IDLE_NS: i64 = 20_000_000;

fn token(index: usize, end: u64) -> u64 {
    ((index as u64) << 2) | end
}

/// Runs all background flows of a plan; blocks until they are over.
///
/// # Errors
/// When a flow cannot be set up. One that breaks later only says so in its counts.
pub(crate) fn run(
    plan: &EndpointPlan,
    namespaces: &dyn NamespaceProvider,
    clock: RunClock,
    (control, shared): (&Control, &Shared),
) -> Result<Vec<BackgroundSummary>, EndpointError> {
    let system = |action| move |source| EndpointError::System { action, source };
    let epoll = Epoll::new().map_err(system("create an epoll instance"))?;
    let waker = control.waker().map_err(system("create an eventfd"))?;
    epoll
        .add(&*waker, Interest::Read, WAKER)
        .map_err(system("watch an eventfd"))?;
    exact_timers();
    let opener = Opener::new(namespaces);
    let mut tools = Tools {
        epoll,
        opener,
        scratch: vec![0; 1 << 18],
        zeros: vec![0; 1 << 16],
    };
    let mut flows = Vec::with_capacity(plan.background.len());
    for (index, background) in plan.background.iter().enumerate() {
        flows.push(Flow::open(background, index, &mut tools)?);
    }
    let mut engine = Engine {
        clock,
        tools,
        flows,
        timers: BinaryHeap::new(),
        ready: Vec::with_capacity(256),
    };
    let is_ended = || control.is_stopped() || shared.abort.load(Ordering::SeqCst);
    let turn = |engine: &mut Engine<'_>| {
        engine.turn().map_err(system("wait for sockets"))?;
        waker.reset();
        Ok(())
    };
    let give_up_ns = clock.now_ns().saturating_add_unsigned(plan.connect_timeout_ns);
    while !is_ended() && !engine.flows.iter().all(Flow::is_connected) {
        turn(&mut engine)?;
        let late = |flow: &&Flow<'_>| clock.now_ns() > give_up_ns && !flow.is_connected();
        let timeout = || engine.flows.iter().find(late).map(Flow::connect_timeout);
        if let Some(error) = engine.flows.iter().find_map(Flow::connect_error).or_else(timeout) {
            return Err(error);
        }
    }
    shared.background_ready.store(true, Ordering::SeqCst);
    control.wake();
    while !is_ended() && control.start_ns().is_none() {
        turn(&mut engine)?;
    }
    if let Some(start_ns) = control.start_ns() {
        let length_ns = plan.warmup_ns.saturating_add(plan.duration_ns);
        engine.start(start_ns, length_ns);
        let latest_ns = start_ns
            .saturating_add_unsigned(length_ns)
            .saturating_add_unsigned(plan.settle_ns);
        while !is_ended() && clock.now_ns() < latest_ns && !engine.flows.iter().all(Flow::is_settled) {
            turn(&mut engine)?;
        }
    }
    Ok(engine.flows.into_iter().map(|flow| flow.counts).collect())
}

struct Engine<'a> {
    clock: RunClock,
    tools: Tools<'a>,
    flows: Vec<Flow<'a>>,
    timers: BinaryHeap<Reverse<(i64, usize)>>,
    ready: Vec<Ready>,
}

impl Engine<'_> {
    fn start(&mut self, start_ns: i64, length_ns: u64) {
        for (index, flow) in self.flows.iter_mut().enumerate() {
            self.timers
                .push(Reverse((flow.start(start_ns, length_ns), index)));
        }
    }

    /// One round: what is due, then what is ready.
    fn turn(&mut self) -> std::io::Result<()> {
        for _ in 0..BATCH {
            let now_ns = self.clock.now_ns();
            let Some(Reverse((at_ns, index))) = self.timers.peek().copied() else {
                break;
            };
            if at_ns > now_ns {
                break;
            }
            self.timers.pop();
            if let Some(next_ns) = self.flows[index].fire(now_ns, &mut self.tools) {
                self.timers.push(Reverse((next_ns, index)));
            }
        }
        let next_ns = self.timers.peek().map_or(i64::MAX, |Reverse((at_ns, _))| *at_ns);
        let timeout_ns = (next_ns.saturating_sub(self.clock.now_ns())).min(IDLE_NS);
        self.tools.epoll.wait(timeout_ns, &mut self.ready)?;
        let events = std::mem::take(&mut self.ready);
        for ready in events.iter().copied() {
            if ready.token == WAKER {
                continue;
            }
            let flow = &mut self.flows[(ready.token >> 2) as usize];
            match ready.token & 3 {
                LISTENER => flow.listener_ready(&mut self.tools),
                CLIENT => flow.client_ready(ready, self.clock.now_ns(), &mut self.tools),
                _ => flow.server_ready(ready, &mut self.tools),
            }
        }
        self.ready = events;
        Ok(())
    }
}
