//! Which sequence numbers of a flow arrived at a receiver: duplicates and reorderings.

use std::collections::BTreeMap;

const PAGE: u32 = 4096;

/// What a message is, given those that arrived before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Above all before it.
    InOrder,
    /// New, but a greater one had arrived.
    Reordered,
    /// Had arrived before.
    Duplicate,
}

/// One bit per sequence number, in pages: memory grows with the messages that arrived, whatever numbers they carry.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    pages: BTreeMap<u32, Box<[u64; PAGE as usize / 64]>>,
    greatest: Option<u32>,
    pub(crate) received: u64,
    pub(crate) duplicates: u64,
    pub(crate) reordered: u64,
}

impl Arrivals {
    /// Enters a message and says what it is.
    pub(crate) fn enter(&mut self, sequence: u32) -> Arrival {
        self.received += 1;
        let page = self
            .pages
            .entry(sequence / PAGE)
            .or_insert_with(|| Box::new([0; PAGE as usize / 64]));
        let bit = sequence % PAGE;
        let word = &mut page[(bit / 64) as usize];
        let mask = 1u64 << (bit % 64);
        if *word & mask != 0 {
            self.duplicates += 1;
            return Arrival::Duplicate;
        }
        *word |= mask;
        match self.greatest {
            Some(greatest) if sequence < greatest => {
                self.reordered += 1;
                Arrival::Reordered
            }
            _ => {
                self.greatest = Some(sequence);
                Arrival::InOrder
            }
        }
    }

    /// How many different messages arrived.
    #[must_use]
    pub(crate) fn distinct(&self) -> u64 {
        self.received - self.duplicates
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(sequences in proptest::collection::vec(prop_oneof![0u32..50, any::<u32>(), 4090u32..4100], 0..200)) {
            let mut arrivals = Arrivals::default();
            let mut seen = BTreeSet::new();
            for sequence in sequences {
                let greatest = seen.last().copied();
                let expected = match (seen.insert(sequence), greatest) {
                    (false, _) => Arrival::Duplicate,
                    (true, Some(greatest)) if sequence < greatest => Arrival::Reordered,
                    _ => Arrival::InOrder,
                };
                prop_assert_eq!(arrivals.enter(sequence), expected);
            }
            prop_assert_eq!(arrivals.distinct(), seen.len() as u64);
        }
    }
}
