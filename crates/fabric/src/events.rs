//! The event queue: a 4-ary heap of 128-bit keys (time, sequence, event).
//!
//! Frames in flight wait in FIFOs of their links, so the heap holds about two entries per busy port.

/// What happens, and to which port (or medium).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The port has sent the last bit of its frame, unless that had to go back meanwhile.
    TransmissionEnd(u32),
    /// The first frame in the link's FIFO enters the node at its end.
    Arrival(u32),
    /// The earliest frame on a reordering link enters the node at its end.
    Overtaking(u32),
    /// A port that waited for its link or for its next opportunity to deliver looks again.
    Wake(u32),
    /// A shared medium chooses who sends next, after everything else at this time has asked.
    Grant(u32),
}

const EVENT_BITS: u32 = 25;
const INDEX_BITS: u32 = EVENT_BITS - 3;
/// Largest number of ports and media that fit into an event.
pub(crate) const MOST_PORTS: usize = 1 << INDEX_BITS;
const SEQUENCE_MASK: u64 = (1 << (64 - EVENT_BITS)) - 1;
/// Sorts after every other event of the same time.
pub(crate) const LAST: u64 = SEQUENCE_MASK;

impl Event {
    fn encode(self) -> u64 {
        let (kind, index) = match self {
            Self::TransmissionEnd(port) => (0, port),
            Self::Arrival(port) => (1, port),
            Self::Overtaking(port) => (2, port),
            Self::Grant(medium) => (3, medium),
            Self::Wake(port) => (4, port),
        };
        kind << INDEX_BITS | u64::from(index)
    }

    fn decode(key: u128) -> Self {
        let index = key as u32 & ((1 << INDEX_BITS) - 1);
        match (key as u32 >> INDEX_BITS) & 7 {
            0 => Self::TransmissionEnd(index),
            1 => Self::Arrival(index),
            2 => Self::Overtaking(index),
            3 => Self::Grant(index),
            _ => Self::Wake(index),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct EventQueue {
    heap: Vec<u128>,
}

impl EventQueue {
    /// Time of the next event, `u64::MAX` if there is none.
    #[inline]
    pub(crate) fn next_time(&self) -> u64 {
        self.heap.first().map_or(u64::MAX, |key| (key >> 64) as u64)
    }

    pub(crate) fn clear(&mut self) {
        self.heap.clear();
    }

    #[inline]
    pub(crate) fn push(&mut self, time: u64, sequence: u64, event: Event) {
        let low = (sequence & SEQUENCE_MASK) << EVENT_BITS | event.encode();
        let key = u128::from(time) << 64 | u128::from(low);
        let mut hole = self.heap.len();
        self.heap.push(key);
        while hole > 0 {
            let parent = (hole - 1) / 4;
            if self.heap[parent] <= key {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = key;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        let last = self.heap.pop()?;
        let Some(&top) = self.heap.first() else {
            return Some(((last >> 64) as u64, Event::decode(last)));
        };
        let heap = self.heap.as_mut_slice();
        let mut hole = 0;
        loop {
            let first = hole * 4 + 1;
            if first >= heap.len() {
                break;
            }
            let mut least = first;
            for child in first + 1..(first + 4).min(heap.len()) {
                if heap[child] < heap[least] {
                    least = child;
                }
            }
            if last <= heap[least] {
                break;
            }
            heap[hole] = heap[least];
            hole = least;
        }
        heap[hole] = last;
        Some(((top >> 64) as u64, Event::decode(top)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pops_in_order_of_time_then_sequence(items in proptest::collection::vec((0u64..50, 0u32..4), 0..200)) {
            let mut queue = EventQueue::default();
            let mut expected = Vec::new();
            for (sequence, &(time, kind)) in items.iter().enumerate() {
                let event = match kind {
                    0 => Event::TransmissionEnd(sequence as u32),
                    1 => Event::Arrival(sequence as u32),
                    2 => Event::Overtaking(sequence as u32),
                    _ => Event::Grant(sequence as u32),
                };
                queue.push(time, sequence as u64, event);
                expected.push((time, sequence, event));
            }
            expected.sort_by_key(|e| (e.0, e.1));
            for (time, _, event) in expected {
                prop_assert_eq!(queue.next_time(), time);
                prop_assert_eq!(queue.pop(), Some((time, event)));
            }
            prop_assert_eq!(queue.pop(), None);
            prop_assert_eq!(queue.next_time(), u64::MAX);
        }
    }

    #[test]
    fn a_grant_comes_after_all_else_at_its_time() {
        let mut queue = EventQueue::default();
        queue.push(5, LAST, Event::Grant(0));
        queue.push(5, 900, Event::Arrival(3));
        assert_eq!(queue.pop(), Some((5, Event::Arrival(3))));
    }
}
