//! Input/output threads: each owns an inlet and the departures of its share of the interfaces, and exchanges frames with the data
//! plane's thread through queues without locks.
//!
//! A thread copies what comes in into a pool of slots of its own, so that the kernel gets its room back at once; what goes out it
//! reads where the data plane keeps it, and the data plane keeps it until the thread has said when it was handed over. The
//! threads never spin, and run at a higher priority than the data plane's, which does: on a machine with few CPUs they would
//! otherwise wait for it to stop waiting for them.
//!
//! Order: frames of one interface stay in order, since one thread has them. Between threads the data plane takes the one with the
//! earliest stamp of those it can see; a frame that a thread still had while the data plane advanced past its stamp enters 1 ns
//! after that time, and is counted (`restamped`).

use super::doorbell::Doorbell;
use super::wire::{Departures, Handover, Inlet, MOST_WATCHED, Received, Stamps};
use crate::kernel::{clock, sched};
use std::io;
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Frames that may be under way in each direction between the data plane and one thread.
const QUEUE: usize = 4096;
/// Priority among SCHED_FIFO threads; the data plane's is 60.
const PRIORITY: i32 = 61;
/// Interval at which losses are looked at.
const HOUSEKEEPING: u64 = 50_000_000;
/// Longest sleep.
const LONGEST_SLEEP: u64 = 50_000_000;
/// While the data plane has not given slots back, what arrives stays in the kernel this long between looks.
const FULL_PAUSE: u64 = 50_000;

/// A frame that came in, in a slot of the pool.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    slot: u32,
    length: u32,
    interface: u32,
    truncated: bool,
    stamp: u64,
}

/// A frame to hand over.
struct Order {
    frame: *const [u8],
    interface: u32,
}

// SAFETY: the bytes are the data plane's; it leaves them alone until the order is reported done (see `Handover::push`).
unsafe impl Send for Order {}

/// Slots that one thread fills and the other reads; who may touch a slot is said by the queues.
struct Slots {
    memory: *mut u8,
    size: usize,
    count: usize,
}

// SAFETY: a slot's number is in exactly one place at a time (free queue, arrivals queue, or a thread's hand).
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    fn new(size: usize, count: usize) -> Self {
        let memory = Box::leak(vec![0u8; size * count].into_boxed_slice()).as_mut_ptr();
        Self { memory, size, count }
    }

    /// # Safety
    /// The slot must be the caller's.
    #[expect(
        clippy::mut_from_ref,
        reason = "which thread owns a slot is said by the queues"
    )]
    unsafe fn get(&self, slot: u32, length: u32) -> &mut [u8] {
        // SAFETY: within the allocation, and the caller's alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.add(slot as usize * self.size), length as usize) }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let whole = std::ptr::slice_from_raw_parts_mut(self.memory, self.size * self.count);
        // SAFETY: the allocation leaked in `new`.
        drop(unsafe { Box::from_raw(whole) });
    }
}

/// What both sides of one thread share.
struct Link {
    bell: Doorbell,
    stop: AtomicBool,
    lost: AtomicU64,
    refused: AtomicU64,
    /// Kernel id of the thread, 0 before it runs.
    thread: AtomicI32,
}

struct Worker<I, D> {
    inlet: I,
    departures: D,
    arrivals: rtrb::Producer<Arrival>,
    free: rtrb::Consumer<u32>,
    slots: Arc<Slots>,
    orders: rtrb::Consumer<Order>,
    done: rtrb::Producer<u64>,
    link: Arc<Link>,
    plane: Arc<Doorbell>,
}

impl<I: Inlet, D: Departures> Worker<I, D> {
    fn run(mut self) {
        sched::name_thread(c"fabric-io");
        self.link.thread.store(clock::thread_id(), Ordering::Relaxed);
        sched::enter_fifo(PRIORITY);
        sched::tighten_timer_slack();
        self.inlet.start();
        self.departures.start();
        let mut next_check = 0;
        while !self.link.stop.load(Ordering::Acquire) {
            let moved = self.hand_over() + self.take_in();
            let now = clock::monotonic();
            if now >= next_check {
                next_check = now + HOUSEKEEPING;
                self.link
                    .lost
                    .fetch_add(self.inlet.take_lost(), Ordering::Relaxed);
            }
            if moved == 0 {
                self.sleep();
            }
        }
        self.link
            .lost
            .fetch_add(self.inlet.take_lost(), Ordering::Relaxed);
    }

    fn hand_over(&mut self) -> usize {
        let mut count = 0;
        while !self.departures.is_full() {
            let Ok(order) = self.orders.pop() else { break };
            // SAFETY: the data plane keeps the frame until it is reported done, which is after the flush.
            unsafe { self.departures.push(order.interface, &*order.frame) };
            count += 1;
        }
        if count > 0 {
            let refused = self.departures.flush();
            self.link.refused.fetch_add(refused, Ordering::Relaxed);
            let at = clock::monotonic();
            for _ in 0..count {
                // As many fit as there can be orders.
                let _ = self.done.push(at);
            }
        }
        count
    }

    fn take_in(&mut self) -> usize {
        let mut count = 0;
        self.inlet.gather();
        while let Some(received) = self.inlet.peek() {
            let Ok(slot) = self.free.pop() else { break };
            let length = received.bytes.len().min(self.slots.size);
            // SAFETY: a slot from the free queue is ours.
            unsafe { self.slots.get(slot, length as u32) }.copy_from_slice(&received.bytes[..length]);
            let arrival = Arrival {
                slot,
                length: length as u32,
                interface: received.interface,
                truncated: received.truncated || length < received.bytes.len(),
                stamp: received.stamp,
            };
            self.inlet.consume();
            // As many fit as there are slots.
            let _ = self.arrivals.push(arrival);
            count += 1;
        }
        if count > 0 {
            self.plane.ring();
        }
        count
    }

    fn sleep(&mut self) {
        if self.inlet.is_ready() {
            // Frames wait, and there is no slot for them.
            std::thread::sleep(std::time::Duration::from_nanos(FULL_PAUSE));
            return;
        }
        self.link.bell.set_sleeping(true);
        if self.orders.is_empty() && !self.link.stop.load(Ordering::Acquire) {
            let mut watched = Watched::new();
            watched.add(self.link.bell.fd());
            self.inlet.watch(|fd| watched.add(fd));
            watched.wait(LONGEST_SLEEP);
        }
        self.link.bell.set_sleeping(false);
    }
}

/// Descriptors that end a sleep.
pub(crate) struct Watched {
    list: [libc::pollfd; MOST_WATCHED + 1],
    count: usize,
}

impl Watched {
    pub(crate) fn new() -> Self {
        let none = libc::pollfd {
            fd: -1,
            events: libc::POLLIN,
            revents: 0,
        };
        Self {
            list: [none; MOST_WATCHED + 1],
            count: 0,
        }
    }

    /// # Panics
    /// If there are more than [`MOST_WATCHED`] and one.
    pub(crate) fn add(&mut self, fd: RawFd) {
        self.list[self.count].fd = fd;
        self.count += 1;
    }

    /// True when the time ran out, false when something happened before.
    pub(crate) fn wait(&mut self, nanos: u64) -> bool {
        let timeout = libc::timespec {
            tv_sec: 0,
            tv_nsec: nanos.min(999_999_999) as i64,
        };
        // SAFETY: array and timespec live for the call; no signal mask is passed.
        let ready = unsafe {
            libc::ppoll(
                self.list.as_mut_ptr(),
                self.count as libc::nfds_t,
                &raw const timeout,
                std::ptr::null(),
            )
        };
        ready == 0
    }
}

/// The data plane's end of one thread's inlet.
struct Strand {
    arrivals: rtrb::Consumer<Arrival>,
    free: rtrb::Producer<u32>,
    slots: Arc<Slots>,
    link: Arc<Link>,
}

/// All threads' inlets as one.
pub(crate) struct Gathered<I> {
    strands: Vec<Strand>,
    /// The strand with the earliest stamp.
    head: Option<usize>,
    capacity: usize,
    kind: PhantomData<fn() -> I>,
}

impl<I> Gathered<I> {
    fn choose(&mut self) {
        let stamp = |strand: &Strand| strand.arrivals.peek().ok().map(|arrival| arrival.stamp);
        let earliest = |(index, strand)| Some((stamp(strand)?, index));
        self.head = (self.strands.iter().enumerate().filter_map(earliest).min()).map(|(_, index)| index);
    }
}

impl<I: Inlet> Inlet for Gathered<I> {
    const STAMPS: Stamps = I::STAMPS;

    fn gather(&mut self) {
        self.choose();
    }

    fn peek(&self) -> Option<Received<'_>> {
        let strand = &self.strands[self.head?];
        let arrival = strand.arrivals.peek().ok()?;
        Some(Received {
            // SAFETY: a slot in the arrivals queue is ours until it goes into the free queue.
            bytes: unsafe { strand.slots.get(arrival.slot, arrival.length) },
            stamp: arrival.stamp,
            interface: arrival.interface,
            truncated: arrival.truncated,
        })
    }

    fn consume(&mut self) {
        let Some(strand) = self.head.and_then(|head| self.strands.get_mut(head)) else {
            return;
        };
        if let Ok(arrival) = strand.arrivals.pop() {
            // As many fit as there are slots.
            let _ = strand.free.push(arrival.slot);
        }
        self.choose();
    }

    fn is_ready(&self) -> bool {
        self.strands.iter().any(|strand| !strand.arrivals.is_empty())
    }

    fn watch(&self, _add: impl FnMut(RawFd)) {
        // The data plane watches its own doorbell, which the threads ring.
    }

    fn take_lost(&mut self) -> u64 {
        let take = |strand: &Strand| strand.link.lost.swap(0, Ordering::Relaxed);
        self.strands.iter().map(take).sum()
    }

    fn frame_capacity(&self) -> usize {
        self.capacity
    }
}

/// The data plane's end of one thread's departures.
struct Way {
    orders: rtrb::Producer<Order>,
    done: rtrb::Consumer<u64>,
    link: Arc<Link>,
    pushed: bool,
    /// Orders whose end has not been asked about: never more than fit the queue of ends.
    under_way: usize,
}

/// All threads' departures as one.
pub(crate) struct Spread {
    ways: Vec<Way>,
    threads: Vec<JoinHandle<()>>,
}

impl Handover for Spread {
    fn threads(&self) -> Vec<libc::pid_t> {
        let id = |way: &Way| way.link.thread.load(Ordering::Relaxed);
        self.ways.iter().map(id).collect()
    }

    fn ways(&self) -> usize {
        self.ways.len()
    }

    fn way(&self, interface: u32) -> usize {
        interface as usize % self.ways.len()
    }

    fn is_full(&self, way: usize) -> bool {
        self.ways[way].under_way >= QUEUE
    }

    unsafe fn push(&mut self, way: usize, interface: u32, frame: &[u8]) {
        let way = &mut self.ways[way];
        let order = Order { frame, interface };
        assert!(way.orders.push(order).is_ok(), "the way is full");
        way.under_way += 1;
        way.pushed = true;
    }

    fn flush(&mut self) {
        for way in &mut self.ways {
            if std::mem::take(&mut way.pushed) {
                way.link.bell.ring();
            }
        }
    }

    fn done(&mut self, way: usize) -> Option<u64> {
        let way = &mut self.ways[way];
        let at = way.done.pop().ok()?;
        way.under_way -= 1;
        Some(at)
    }

    fn take_refused(&mut self) -> u64 {
        let take = |way: &Way| way.link.refused.swap(0, Ordering::Relaxed);
        self.ways.iter().map(take).sum()
    }
}

impl Drop for Spread {
    fn drop(&mut self) {
        for way in &self.ways {
            way.link.stop.store(true, Ordering::Release);
            way.link.bell.ring_always();
        }
        for thread in self.threads.drain(..) {
            // One that panicked has said so; there is nothing left to undo.
            let _ = thread.join();
        }
    }
}

/// Starts one thread for each pair. Interface `i` belongs to pair `i` modulo their number.
///
/// # Errors
/// When a thread or a descriptor cannot be made.
pub(crate) fn spread<I: Inlet, D: Departures>(
    pairs: Vec<(I, D)>,
    plane: &Arc<Doorbell>,
) -> io::Result<(Gathered<I>, Spread)> {
    let capacity = pairs.first().map_or(0, |pair| pair.0.frame_capacity());
    let (mut strands, mut spread) = (
        Vec::with_capacity(pairs.len()),
        Spread {
            ways: Vec::with_capacity(pairs.len()),
            threads: Vec::with_capacity(pairs.len()),
        },
    );
    for (number, (inlet, departures)) in pairs.into_iter().enumerate() {
        let slots = Arc::new(Slots::new(capacity, QUEUE));
        let (arrivals, arrivals_out) = rtrb::RingBuffer::new(QUEUE);
        let (mut free, free_out) = rtrb::RingBuffer::new(QUEUE);
        let (orders, orders_out) = rtrb::RingBuffer::new(QUEUE);
        let (done, done_out) = rtrb::RingBuffer::new(QUEUE);
        for slot in 0..QUEUE as u32 {
            let _ = free.push(slot);
        }
        let link = Arc::new(Link {
            bell: Doorbell::new()?,
            stop: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            thread: AtomicI32::new(0),
        });
        strands.push(Strand {
            arrivals: arrivals_out,
            free,
            slots: Arc::clone(&slots),
            link: Arc::clone(&link),
        });
        spread.ways.push(Way {
            orders,
            done: done_out,
            link: Arc::clone(&link),
            pushed: false,
            under_way: 0,
        });
        let worker = Worker {
            inlet,
            departures,
            arrivals,
            free: free_out,
            slots,
            orders: orders_out,
            done,
            link,
            plane: Arc::clone(plane),
        };
        let builder = std::thread::Builder::new().name(format!("fabric-io-{number}"));
        spread.threads.push(builder.spawn(move || worker.run())?);
    }
    let gathered = Gathered {
        strands,
        head: None,
        capacity,
        kind: PhantomData,
    };
    Ok((gathered, spread))
}
