//! The egress queues of one port: strict priority, plain FIFO, or deficit round robin.

use crate::slab::{List, Slab};
use timebound_model::Discipline;

#[derive(Debug, Clone)]
pub(crate) struct Queues {
    lists: [List; 8],
    /// Wire bytes that wait in each.
    bytes: [u64; 8],
    /// Bit `c` is set while class `c` waits.
    occupied: u8,
    service: Service,
}

#[derive(Debug, Clone)]
enum Service {
    StrictPriority,
    Fifo,
    DeficitRoundRobin(Box<Rounds>),
}

/// Deficit round robin (Shreedhar and Varghese 1996, section 3): each visit to a waiting class adds its quantum to what
/// it may send; what is left when the next frame does not fit is kept for the next round, and lost when the class runs empty.
/// Whether it has is asked when a frame has been sent, as there: one that comes meanwhile still belongs to the visit. (The bounds
/// count the visits between two frames of a class that has frames waiting or under way all the time, `bounds::service::drr`.)
#[derive(Debug, Clone)]
struct Rounds {
    quanta: [u64; 8],
    deficits: [u64; 8],
    class: usize,
    /// The current class got its quantum for this visit.
    credited: bool,
}

impl Queues {
    pub(crate) fn new(discipline: &Discipline) -> Self {
        let service = match discipline {
            Discipline::StrictPriority => Service::StrictPriority,
            Discipline::Fifo => Service::Fifo,
            Discipline::Drr(quanta) => Service::DeficitRoundRobin(Box::new(Rounds {
                quanta: quanta.map(|q| u64::from(q.max(1))),
                deficits: [0; 8],
                class: 7,
                credited: false,
            })),
        };
        Self {
            lists: [List::EMPTY; 8],
            bytes: [0; 8],
            occupied: 0,
            service,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.lists = [List::EMPTY; 8];
        self.bytes = [0; 8];
        self.occupied = 0;
        if let Service::DeficitRoundRobin(rounds) = &mut self.service {
            rounds.deficits = [0; 8];
            rounds.class = 7;
            rounds.credited = false;
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// The queue of a class: with FIFO service there is one for all.
    #[inline]
    fn queue_of(&self, class: u8) -> u8 {
        match self.service {
            Service::Fifo => 0,
            _ => class.min(7),
        }
    }

    /// Wire bytes that wait in the queue of a class.
    #[inline]
    pub(crate) fn bytes_before(&self, class: u8) -> u64 {
        self.bytes[usize::from(self.queue_of(class))]
    }

    /// The queue of a class, and the wire bytes that wait in it.
    #[inline]
    pub(crate) fn waiting(&self, class: u8) -> (usize, u64) {
        let queue = usize::from(self.queue_of(class));
        (queue, self.bytes[queue])
    }

    #[inline]
    pub(crate) fn push(&mut self, slab: &mut Slab, index: u32) {
        let frame = &slab.get(index).frame;
        let (class, wire) = (self.queue_of(frame.class.0), u64::from(frame.wire.0));
        self.lists[usize::from(class)].push(slab, index);
        self.bytes[usize::from(class)] += wire;
        self.occupied |= 1 << class;
    }

    /// A frame that was taken comes back before all others of its class.
    pub(crate) fn push_front(&mut self, slab: &mut Slab, index: u32) {
        let frame = &slab.get(index).frame;
        let (class, wire) = (self.queue_of(frame.class.0), u64::from(frame.wire.0));
        self.lists[usize::from(class)].push_front(slab, index);
        self.bytes[usize::from(class)] += wire;
        self.occupied |= 1 << class;
    }

    /// Does the more urgent frame go first, whoever came first?
    pub(crate) const fn is_by_class(&self) -> bool {
        matches!(self.service, Service::StrictPriority)
    }

    /// A frame is sent past the empty queues: the same as if it had waited there alone.
    #[inline]
    pub(crate) fn skip(&mut self, class: u8, wire: u32) {
        if let Service::DeficitRoundRobin(rounds) = &mut self.service {
            let class = usize::from(class.min(7));
            let wire = u64::from(wire);
            rounds.class = class;
            rounds.credited = true;
            rounds.deficits[class] = wire.next_multiple_of(rounds.quanta[class]) - wire;
        }
    }

    /// The last frame that was taken is gone: if its class is empty behind it, its visit is over.
    #[inline]
    pub(crate) fn sent(&mut self) {
        if let Service::DeficitRoundRobin(rounds) = &mut self.service
            && self.occupied & (1 << rounds.class) == 0
        {
            rounds.deficits[rounds.class] = 0;
            rounds.leave();
        }
    }

    /// The frame that [`Queues::pop`] would take.
    pub(crate) fn peek(&self, slab: &Slab) -> Option<u32> {
        if self.occupied == 0 {
            return None;
        }
        let class = match &self.service {
            Service::StrictPriority | Service::Fifo => 7 - self.occupied.leading_zeros() as usize,
            Service::DeficitRoundRobin(rounds) => rounds.clone().choose(self.occupied, &self.lists, slab),
        };
        self.lists[class].head()
    }

    #[inline]
    pub(crate) fn pop(&mut self, slab: &Slab) -> Option<u32> {
        if self.occupied == 0 {
            return None;
        }
        let class = match &mut self.service {
            Service::StrictPriority | Service::Fifo => 7 - self.occupied.leading_zeros() as usize,
            Service::DeficitRoundRobin(rounds) => rounds.choose(self.occupied, &self.lists, slab),
        };
        let index = self.lists[class].pop(slab);
        if let Some(index) = index {
            self.bytes[class] -= u64::from(slab.get(index).frame.wire.0);
        }
        if self.lists[class].head().is_none() {
            self.occupied &= !(1 << class);
        }
        index
    }
}

impl Rounds {
    fn leave(&mut self) {
        self.class = (self.class + 7) % 8;
        self.credited = false;
    }

    /// The class that sends next, its deficit already charged. From the most urgent class downwards, then around.
    fn choose(&mut self, occupied: u8, lists: &[List; 8], slab: &Slab) -> usize {
        let need = |class: usize| {
            lists[class]
                .head()
                .map_or(0, |head| u64::from(slab.get(head).frame.wire.0))
        };
        let mut fruitless = 0;
        loop {
            let class = self.class;
            if occupied & (1 << class) != 0 {
                if !self.credited {
                    self.deficits[class] += self.quanta[class];
                    self.credited = true;
                }
                if need(class) <= self.deficits[class] {
                    self.deficits[class] -= need(class);
                    return class;
                }
            }
            self.leave();
            fruitless += 1;
            if fruitless == 8 {
                self.skip_rounds(occupied, need);
                fruitless = 0;
            }
        }
    }

    /// Adds the quanta of all rounds in which nobody could send at once, so that tiny quanta cost no time.
    fn skip_rounds(&mut self, occupied: u8, need: impl Fn(usize) -> u64) {
        let waiting = || (0..8).filter(|class| occupied & (1 << class) != 0);
        let rounds = waiting()
            .map(|class| (need(class).saturating_sub(self.deficits[class])).div_ceil(self.quanta[class]))
            .min()
            .unwrap_or(0)
            .saturating_sub(1);
        for class in waiting() {
            self.deficits[class] += rounds * self.quanta[class];
        }
    }
}
