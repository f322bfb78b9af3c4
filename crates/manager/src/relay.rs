//! One connection of a client from its CONNECT to its end: moves bytes as its session says.

use crate::http::LINGER;
use crate::peers;
use crate::pipe::{Pipe, Room};
use crate::report::Reporter;
use crate::strangers::Stranger;
use crate::stream::{Stream, discard};
use crate::worker::{Handle, Worker};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use timebound_model::{Span, Time};
use timebound_protocol::intermediary::{Phase, Session, Step};
use tokio::io::AsyncWrite;
use tokio::time::Sleep;

/// A last packet must have gone to the client in that time, and what was said before to the broker.
const FAREWELL: Span = Span(1_000_000_000);
/// Half a connection lives that long.
const HALF_OPEN: Span = Span(5_000_000_000);
/// Beyond what a header may have: the fixed header, and what comes behind.
const SLACK: usize = 64 * 1024;

/// Why the relay stops.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The session wants the broker's side.
    Dial,
    /// Everything that was to be said has been said.
    Done,
    /// No CONNECT came in time.
    Late,
    /// The client's side broke, or the end took too long.
    Broken,
    /// Connections that nobody knows hold too much, and this one the most.
    Crowded,
}

/// What pumping one direction came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pumped {
    /// There is nothing to be done before something happens.
    Waits,
    /// Something has changed for the other direction.
    Matters,
    Dial,
}

pub(crate) struct Relay {
    pub(crate) session: Session,
    pub(crate) client: Stream,
    pub(crate) broker: Option<Stream>,
    up: Pipe,
    down: Pipe,
    pub(crate) reporter: Reporter,
    worker: Rc<Worker>,
    handle: Rc<Handle>,
    timer: Option<(Time, Pin<Box<Sleep>>)>,
    /// Nothing may last longer.
    limit: Option<Time>,
    /// When it was last looked after: one look at the clock for all that has come until then.
    now: Time,
    packets: (u64, u64),
    /// Until the broker has accepted it.
    stranger: Option<Rc<Stranger>>,
    /// Bytes of its CONNECT, of which the session keeps its part.
    greeting: usize,
}

impl Relay {
    pub(crate) fn new(
        session: Session,
        client: Stream,
        reporter: Reporter,
        worker: Rc<Worker>,
        handle: Rc<Handle>,
        (limit, stranger): (Time, Rc<Stranger>),
    ) -> Self {
        Self {
            session,
            client,
            broker: None,
            up: Pipe::default(),
            down: Pipe::default(),
            reporter,
            worker,
            handle,
            timer: None,
            limit: Some(limit),
            now: Time(0),
            packets: (0, 0),
            stranger: Some(stranger),
            greeting: 0,
        }
    }

    pub(crate) fn stranger(&self) -> Option<Rc<Stranger>> {
        self.stranger.clone()
    }

    /// The broker's side is open.
    pub(crate) fn dialed(&mut self, broker: Stream) {
        self.broker = Some(broker);
        self.limit = None;
        self.session.dialed();
    }

    pub(crate) fn unreachable(&mut self) {
        self.worker.counters.broker_failures.add(1);
        self.session.unreachable();
    }

    /// Moves bytes until something else has to be done.
    pub(crate) async fn run(&mut self) -> Stop {
        poll_fn(|cx| self.drive(cx)).await
    }

    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<Stop> {
        if self
            .stranger
            .as_ref()
            .is_some_and(|stranger| stranger.is_to_go(cx))
        {
            return Poll::Ready(Stop::Crowded);
        }
        self.handle.waits(cx.waker());
        self.now = self.worker.now();
        if self.worker.is_stopping() && self.session.phase() != Phase::Closing {
            self.session.broker_gone();
        }
        for (number, revision, verdict) in self.handle.verdicts() {
            self.reporter
                .verdict(&mut self.session, number, revision, verdict);
        }
        for packet in self.handle.taken() {
            self.session.taken(packet);
        }
        let stop = self.turn(cx);
        self.tell_peers();
        self.count();
        let Self {
            reporter,
            session,
            client,
            ..
        } = self;
        reporter.report(session, client);
        match stop {
            Ok(Some(stop)) => Poll::Ready(stop),
            // What was reported may have been decided on the spot.
            Ok(None) if self.reporter.has_decided() => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(None) => self.wait(cx),
            Err(_) => Poll::Ready(Stop::Broken),
        }
    }

    /// Pumps both directions until neither can go on.
    fn turn(&mut self, cx: &mut Context<'_>) -> io::Result<Option<Stop>> {
        loop {
            if self.pump_up(cx)? == Pumped::Dial {
                return Ok(Some(Stop::Dial));
            }
            // What the client's direction has to say to the client goes with this one.
            let down = self.pump_down(cx)?;
            if self.is_done() {
                return Ok(Some(Stop::Done));
            }
            if self.session.phase() == Phase::Closing {
                self.limit_to(FAREWELL);
            }
            if down == Pumped::Waits {
                return Ok(None);
            }
        }
    }

    fn is_done(&self) -> bool {
        let is_said = self.down.is_over && self.down.is_drained();
        // What went before an offence still belongs to the broker, if that takes it.
        is_said && (self.broker.is_none() || self.up.is_drained())
    }

    fn limit_to(&mut self, span: Span) {
        let limit = self.now.after(span);
        self.limit = Some(self.limit.map_or(limit, |before| before.min(limit)));
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Stop> {
        let due = [self.session.timeout(), self.limit].into_iter().flatten().min();
        let Some(due) = due else {
            self.timer = None;
            return Poll::Pending;
        };
        let now = self.worker.now();
        if now >= due {
            return self.overdue(cx, now);
        }
        if self.timer.as_ref().is_none_or(|(at, _)| *at != due) {
            let sleep = tokio::time::sleep(Duration::from_nanos(due.since(now).0));
            self.timer = Some((due, Box::pin(sleep)));
        }
        let timer = self.timer.as_mut().map(|(_, sleep)| sleep.as_mut().poll(cx));
        if timer.is_some_and(|poll| poll.is_ready()) {
            // Timers are rounded to milliseconds: look at the clock again.
            self.timer = None;
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn overdue(&mut self, cx: &mut Context<'_>, now: Time) -> Poll<Stop> {
        if self.limit.is_some_and(|limit| now >= limit) {
            if self.down.is_over && self.down.is_drained() {
                return Poll::Ready(Stop::Done);
            }
            let is_late = !self.session.has_begun();
            return Poll::Ready(if is_late { Stop::Late } else { Stop::Broken });
        }
        // A hold has ended.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn pump_up(&mut self, cx: &mut Context<'_>) -> io::Result<Pumped> {
        let worker = Rc::clone(&self.worker);
        let groups = worker.groups();
        loop {
            let blocked = self.up.is_over || self.up.has_patch();
            let step = (!blocked).then(|| {
                let surroundings = worker.surroundings(self.now, groups.as_deref(), self.handle.number());
                self.session.client_bytes(self.up.unjudged(), &surroundings)
            });
            let step = match step {
                Some(Step::Forward(count)) => {
                    self.up.approve(count);
                    continue;
                }
                Some(Step::Replace { take, with }) => {
                    self.up.replace(take, with);
                    None
                }
                other => other,
            };
            if self.flush_up(cx).is_pending() {
                return Ok(Pumped::Waits);
            }
            match step {
                None if self.up.is_over => return Ok(Pumped::Waits),
                // What was put in is gone.
                None | Some(Step::Forward(_) | Step::Replace { .. }) => continue,
                Some(Step::Dial) => {
                    self.greeting = self.up.unjudged().len();
                    self.measure()?;
                    return Ok(Pumped::Dial);
                }
                Some(Step::Hold) => return Ok(Pumped::Waits),
                Some(Step::End) => {
                    self.up.is_over = true;
                    return Ok(Pumped::Waits);
                }
                Some(Step::More) => {}
            }
            if self.up.at_end {
                return self.client_ended(cx);
            }
            let room = Room {
                most: worker.limits.connect_bytes() + SLACK,
                is_known: self.stranger.is_none(),
            };
            let read = self.up.poll_read(cx, &mut self.client, room);
            self.measure()?;
            match read {
                Poll::Ready(read) => worker.counters.bytes[0].add(read? as u64),
                Poll::Pending => return Ok(Pumped::Waits),
            }
        }
    }

    /// What a connection holds that nobody knows counts among all of them. An error: it is to go.
    fn measure(&self) -> io::Result<()> {
        match &self.stranger {
            Some(stranger) => stranger.said(self.greeting + self.up.capacity()),
            None => Ok(()),
        }
    }

    /// The broker has accepted the client, or begun to talk with whoever it is.
    fn accepted(&mut self, has_talked: bool) {
        let phase = self.session.phase();
        if (phase == Phase::Open || (phase == Phase::Tunnel && has_talked))
            && let Some(stranger) = self.stranger.take()
        {
            stranger.is_accepted();
        }
    }

    /// Writes to the broker. If that breaks, nothing more goes up; what the broker has to say about it can still be read.
    fn flush_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(broker) = self.broker.as_mut() else {
            return Poll::Ready(());
        };
        let mut count = 0;
        let written = std::task::ready!(self.up.poll_write(cx, broker, &mut count));
        if written.is_err() {
            self.up.abandon();
        }
        Poll::Ready(())
    }

    /// The client says nothing more: what it said has gone on, and now its end does.
    fn client_ended(&mut self, cx: &mut Context<'_>) -> io::Result<Pumped> {
        self.limit_to(HALF_OPEN);
        let Some(broker) = self.broker.as_mut() else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        if Pin::new(broker).poll_shutdown(cx).is_ready() {
            self.up.is_over = true;
        }
        Ok(Pumped::Waits)
    }

    fn pump_down(&mut self, cx: &mut Context<'_>) -> io::Result<Pumped> {
        let worker = Rc::clone(&self.worker);
        let mut pumped = Pumped::Waits;
        loop {
            let blocked = self.down.is_over || self.down.has_patch();
            let phase = self.session.phase();
            let step = (!blocked).then(|| {
                let surroundings = worker.surroundings(self.now, None, self.handle.number());
                self.session.broker(self.down.unjudged(), &surroundings)
            });
            if self.session.phase() != phase {
                // What the client said before it was accepted may have waited for that.
                pumped = Pumped::Matters;
            }
            let step = match step {
                Some(Step::Forward(count)) => {
                    self.down.approve(count);
                    continue;
                }
                Some(Step::Replace { take, with }) => {
                    self.down.replace(take, with);
                    // Answers are on their way: the client may go on saying what is answered.
                    pumped = Pumped::Matters;
                    None
                }
                other => other,
            };
            let mut count = 0;
            let flushed = self.down.poll_write(cx, &mut self.client, &mut count);
            worker.counters.bytes[1].add(count);
            self.accepted(count > 0);
            match flushed {
                Poll::Ready(written) => written?,
                Poll::Pending => return Ok(pumped),
            }
            match step {
                None if self.down.is_over => return Ok(pumped),
                None | Some(Step::Forward(_) | Step::Replace { .. }) => continue,
                Some(Step::Hold | Step::Dial) => return Ok(pumped),
                Some(Step::End) => {
                    self.down.is_over = true;
                    return Ok(pumped);
                }
                Some(Step::More) => {}
            }
            if self.down.at_end {
                // The rest of a packet will never come.
                self.down.is_over = true;
                return Ok(pumped);
            }
            if !self.read_down(cx, &worker) {
                return Ok(pumped);
            }
            if self.down.at_end {
                pumped = Pumped::Matters;
            }
        }
    }

    /// `false`: there is nothing to be read.
    fn read_down(&mut self, cx: &mut Context<'_>, worker: &Worker) -> bool {
        let Some(broker) = self.broker.as_mut() else {
            return false;
        };
        let room = Room {
            most: worker.limits.header_bytes + SLACK,
            is_known: true,
        };
        let read = match self.down.poll_read(cx, broker, room) {
            Poll::Pending => return false,
            Poll::Ready(read) => read,
        };
        let broke_off = matches!(self.session.phase(), Phase::Greeting | Phase::Open);
        if read.is_err() || self.down.at_end {
            if broke_off {
                worker.counters.broker_failures.add(1);
            }
            self.down.at_end = true;
            self.up.abandon();
            if read.is_err() {
                self.session.broker_gone();
            } else {
                self.session.broker_closed();
            }
        }
        true
    }

    /// What is for other networks goes to them.
    fn tell_peers(&mut self) {
        while let Some(outgoing) = self.session.poll_outgoing() {
            if let Some(peers) = &self.worker.peers {
                let connection = self.handle.number();
                peers.order(peers::Order::Outgoing { connection, outgoing });
            }
        }
    }

    fn count(&mut self) {
        let (up, down) = self.session.packets;
        let counters = &self.worker.counters;
        counters.packets[0].add(up - self.packets.0);
        counters.packets[1].add(down - self.packets.1);
        self.packets = (up, down);
    }

    /// Ends the client's side so that the last packet arrives, and gives back what was asked for.
    pub(crate) async fn finish(mut self, stop: Stop) {
        self.broker = None;
        self.session.closed(self.worker.now());
        self.tell_peers();
        if let Some(peers) = self.worker.peers.as_ref().filter(|peers| peers.relays) {
            let connection = self.handle.number();
            peers.order(peers::Order::Closed { connection });
        }
        self.reporter.report(&mut self.session, &self.client);
        let violation = self.client.violation();
        if let Some(violation) = violation {
            self.reporter.violated(&self.session, violation);
        }
        self.reporter.closed();
        self.worker.forget(&self.handle);
        if stop == Stop::Done || violation.is_some() {
            let farewell = async {
                poll_fn(|cx| Pin::new(&mut self.client).poll_shutdown(cx)).await?;
                poll_fn(|cx| discard(cx, &mut self.client)).await
            };
            drop(tokio::time::timeout(LINGER, farewell).await);
        }
    }
}
