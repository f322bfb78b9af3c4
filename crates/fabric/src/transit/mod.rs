//! Frames inside switches that are not ours: what comes out is matched to what went in, so that it keeps its identity.
//!
//! A real switch gives no receipts. A frame is known again by what a switch does not change ([`fingerprint`]); copies of one frame are
//! told apart by the ports that they leave by. Pure: times are arguments, in whatever clock the caller keeps.

mod fingerprint;

pub use fingerprint::fingerprint;

use std::collections::{HashMap, VecDeque};
use timebound_model::{NodeId, Time};

/// Ports of a switch that can be told apart.
pub const MOST_SWITCH_PORTS: usize = 256;

/// A frame that went into a switch.
#[derive(Debug, Clone)]
struct Entry<T> {
    key: (NodeId, u64),
    at: u64,
    /// Ports by which copies have come out.
    left_by: [u64; MOST_SWITCH_PORTS / 64],
    /// Number of the next entry with the same key; 0: none (yet).
    next: u64,
    value: T,
}

impl<T> Entry<T> {
    fn has_left(&self) -> bool {
        self.left_by.iter().any(|word| *word != 0)
    }

    fn has_left_by(&self, port: usize) -> bool {
        self.left_by[port / 64] >> (port % 64) & 1 == 1
    }
}

/// Frames that went into switches of late: as long as `window` allows, and never more than `most`.
#[derive(Debug)]
pub struct Transits<T> {
    window: u64,
    most: usize,
    entries: VecDeque<Entry<T>>,
    /// Number of the entry in front; numbers start at 1.
    first: u64,
    /// First and last entry of each key.
    chains: HashMap<(NodeId, u64), (u64, u64)>,
}

/// A frame that came out of a switch is this one.
#[derive(Debug)]
pub struct Found<'a, T> {
    pub value: &'a T,
    /// Since it went in.
    pub transit_ns: u64,
    /// It is the first copy that came out.
    pub first: bool,
}

/// A frame that is given up on.
#[derive(Debug, PartialEq, Eq)]
pub struct Forgotten<T> {
    pub value: T,
    /// Did anything of it come out?
    pub left: bool,
}

impl<T> Transits<T> {
    /// Nothing is under way. Entries older than `window_ns` are forgotten, and the oldest one where there are `most`.
    ///
    /// # Panics
    /// If there is no room for a single one.
    #[must_use]
    pub fn new(window_ns: u64, most: usize) -> Self {
        assert!(most > 0, "room for at least one frame");
        Self {
            window: window_ns,
            most,
            entries: VecDeque::with_capacity(most.min(1024)),
            first: 1,
            chains: HashMap::new(),
        }
    }

    /// A frame goes into a switch at `at`, which is not before that of the frames put in earlier. What had to make room for it, if anything.
    pub fn put(&mut self, switch: NodeId, fingerprint: u64, at: Time, value: T) -> Option<Forgotten<T>> {
        let forgotten = (self.entries.len() >= self.most).then(|| self.pop()).flatten();
        let (key, number) = ((switch, fingerprint), self.first + self.entries.len() as u64);
        let chain = self.chains.entry(key).or_insert((number, number));
        let before = std::mem::replace(&mut chain.1, number);
        if before != number {
            self.entries[(before - self.first) as usize].next = number;
        }
        self.entries.push_back(Entry {
            key,
            at: at.0,
            left_by: [0; MOST_SWITCH_PORTS / 64],
            next: 0,
            value,
        });
        forgotten
    }

    /// A frame comes out of `switch` by its `port` (counted within the switch) at `at`: which one is it?
    ///
    /// Among frames that look the same it is the oldest of which nothing has come out; failing that, the oldest of which nothing
    /// has come out there. (The same frame may visit a switch twice, and a group's copies leave by several ports.)
    pub fn take(&mut self, switch: NodeId, fingerprint: u64, port: usize, at: Time) -> Option<Found<'_, T>> {
        if port >= MOST_SWITCH_PORTS {
            return None;
        }
        let (mut number, _) = *self.chains.get(&(switch, fingerprint))?;
        let mut chosen = None;
        while number != 0 {
            let entry = &self.entries[(number - self.first) as usize];
            if entry.at > at.0 {
                break;
            }
            if !entry.has_left() {
                chosen = Some((number, true));
                break;
            }
            if chosen.is_none() && !entry.has_left_by(port) {
                chosen = Some((number, false));
            }
            number = entry.next;
        }
        let (number, first) = chosen?;
        let entry = &mut self.entries[(number - self.first) as usize];
        entry.left_by[port / 64] |= 1 << (port % 64);
        Some(Found {
            value: &entry.value,
            transit_ns: at.0 - entry.at,
            first,
        })
    }

    /// The oldest frame, if its time is over by `now`; to be called until there is none.
    pub fn expire(&mut self, now: Time) -> Option<Forgotten<T>> {
        let oldest = self.entries.front()?;
        (oldest.at.saturating_add(self.window) < now.0)
            .then(|| self.pop())
            .flatten()
    }

    /// Gives up on all of them, the oldest first.
    pub fn clear(&mut self) -> impl Iterator<Item = Forgotten<T>> + '_ {
        std::iter::from_fn(|| self.pop())
    }

    /// Frames that may still come out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn pop(&mut self) -> Option<Forgotten<T>> {
        let entry = self.entries.pop_front()?;
        self.first += 1;
        if entry.next == 0 {
            self.chains.remove(&entry.key);
        } else if let Some(chain) = self.chains.get_mut(&entry.key) {
            chain.0 = entry.next;
        }
        Some(Forgotten {
            left: entry.has_left(),
            value: entry.value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S1: NodeId = NodeId(1);
    const S2: NodeId = NodeId(2);

    fn take(transits: &mut Transits<u32>, switch: NodeId, port: usize, at: u64) -> Option<(u32, u64, bool)> {
        let found = transits.take(switch, 7, port, Time(at))?;
        Some((*found.value, found.transit_ns, found.first))
    }

    #[test]
    fn copies_of_a_group_are_one_frame_at_several_ports_and_never_twice_at_one() {
        let mut transits = Transits::new(1_000, 10);
        transits.put(S1, 7, Time(100), 1);
        assert_eq!(take(&mut transits, S1, 0, 150), Some((1, 50, true)));
        assert_eq!(take(&mut transits, S1, 200, 160), Some((1, 60, false)));
        assert_eq!(take(&mut transits, S1, 0, 170), None, "nobody put it in twice");
        assert_eq!(take(&mut transits, S2, 0, 170), None, "another switch");
        assert_eq!(
            take(&mut transits, S1, MOST_SWITCH_PORTS, 170),
            None,
            "no such port"
        );
    }

    #[test]
    fn frames_that_look_the_same_leave_in_the_order_in_which_they_came() {
        let mut transits = Transits::new(1_000, 10);
        for number in 0..3 {
            transits.put(S1, 7, Time(100 + u64::from(number) * 10), number);
        }
        // The last one comes too late to be what leaves now.
        assert_eq!(take(&mut transits, S1, 0, 115), Some((0, 15, true)));
        assert_eq!(take(&mut transits, S1, 0, 118), Some((1, 8, true)));
        assert_eq!(take(&mut transits, S1, 0, 119), None);
        assert_eq!(take(&mut transits, S1, 0, 125), Some((2, 5, true)));
    }

    #[test]
    fn a_frame_that_comes_back_to_a_switch_is_timed_from_its_second_visit() {
        let mut transits = Transits::new(10_000, 10);
        transits.put(S1, 7, Time(100), 1);
        assert_eq!(take(&mut transits, S1, 0, 150), Some((1, 50, true)));
        transits.put(S1, 7, Time(2_000), 1);
        assert_eq!(take(&mut transits, S1, 1, 2_060), Some((1, 60, true)));
    }

    #[test]
    fn what_is_old_or_too_much_is_forgotten_oldest_first() {
        let mut transits = Transits::new(1_000, 2);
        assert_eq!(transits.put(S1, 7, Time(0), 1), None);
        assert_eq!(transits.put(S1, 7, Time(10), 2), None);
        assert!(take(&mut transits, S1, 0, 20).is_some());
        let forgotten = transits.put(S1, 7, Time(20), 3);
        assert_eq!(forgotten, Some(Forgotten { value: 1, left: true }));
        assert_eq!(transits.expire(Time(1_010)), None);
        assert_eq!(
            transits.expire(Time(1_011)),
            Some(Forgotten {
                value: 2,
                left: false
            })
        );
        assert_eq!(take(&mut transits, S1, 0, 30), Some((3, 10, true)));
        assert_eq!(transits.clear().count(), 1);
        assert!(transits.is_empty() && transits.chains.is_empty());
    }

    /// When it came, switch and look, the ports it left by, its number.
    type Listed = (u64, (u32, u64), Vec<usize>, usize);

    proptest! {
        /// Against a plain list that is searched through.
        #[test]
        fn it_finds_what_a_plain_list_finds(
            steps in proptest::collection::vec((any::<bool>(), 0u32..2, 0u64..3, 0usize..4, 0u64..30), 1..200),
            most in 1usize..20,
        ) {
            let mut transits = Transits::new(100, most);
            let mut list: Vec<Listed> = Vec::new();
            let mut now = 0;
            for (number, (goes_in, switch, print, port, later)) in steps.into_iter().enumerate() {
                now += later;
                while let Some(forgotten) = transits.expire(Time(now)) {
                    let (at, _, ports, value) = list.remove(0);
                    prop_assert!(at + 100 < now);
                    prop_assert_eq!(forgotten, Forgotten { value, left: !ports.is_empty() });
                }
                prop_assert!(list.first().is_none_or(|oldest| oldest.0 + 100 >= now));
                let key = (switch, print);
                if goes_in {
                    let forgotten = transits.put(NodeId(switch), print, Time(now), number);
                    prop_assert_eq!(forgotten.is_some(), list.len() >= most);
                    if forgotten.is_some() {
                        list.remove(0);
                    }
                    list.push((now, key, Vec::new(), number));
                    continue;
                }
                let same = |entry: &&mut Listed| entry.1 == key;
                let fresh = list.iter_mut().filter(same).any(|entry| entry.2.is_empty());
                let expected = list
                    .iter_mut()
                    .filter(same)
                    .find(|entry| if fresh { entry.2.is_empty() } else { !entry.2.contains(&port) });
                let found = transits.take(NodeId(switch), print, port, Time(now));
                prop_assert_eq!(
                    found.map(|found| (*found.value, found.transit_ns, found.first)),
                    expected.as_ref().map(|entry| (entry.3, now - entry.0, fresh))
                );
                if let Some(entry) = expected {
                    entry.2.push(port);
                }
            }
            prop_assert_eq!(transits.len(), list.len());
        }
    }
}
