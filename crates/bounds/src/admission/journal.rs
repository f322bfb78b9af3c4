//! What a transaction has changed, so that it can be undone to the last digit and compared with what was before.

use super::state::{Level, Now, State};

#[derive(Debug)]
struct SlotBefore {
    slot: u32,
    latest: u64,
    departure: u64,
    is_late: bool,
}

#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) transaction: u32,
    slots: Vec<SlotBefore>,
    levels: Vec<(u32, Now)>,
    /// The transaction that touched each stream last.
    stamps: Vec<u32>,
    /// Streams of which a receiver's bound moved.
    pub(super) touched: Vec<u32>,
    /// Those of them that may have missed a deadline meanwhile; some more than once.
    pub(super) suspects: Vec<u32>,
}

impl Journal {
    pub(super) fn begin(&mut self, state: &mut State) {
        self.transaction = self.transaction.wrapping_add(1);
        if self.transaction == 0 {
            // Once in four thousand million transactions, lest an old number be taken for the new one.
            self.transaction = 1;
            self.stamps.fill(0);
            state.slots.iter_mut().for_each(|slot| slot.saved = 0);
            state.levels.iter_mut().for_each(|level| level.saved = 0);
            state.glances.iter_mut().for_each(|glance| glance.transaction = 0);
            state.known.iter_mut().for_each(super::facts::Known::recount);
        }
        self.stamps.resize(state.streams.len().max(self.stamps.len()), 0);
        self.slots.clear();
        self.levels.clear();
        self.touched.clear();
        self.suspects.clear();
    }

    /// Keeps a slot as it is, the first time.
    pub(super) fn slot(&mut self, slot: u32, state: &mut State) {
        let data = &mut state.slots[slot as usize];
        if std::mem::replace(&mut data.saved, self.transaction) == self.transaction {
            return;
        }
        self.slots.push(SlotBefore {
            slot,
            latest: data.latest,
            departure: data.departure,
            is_late: data.is_late,
        });
    }

    /// Keeps what a level was, the first time.
    pub(super) fn level(&mut self, index: u32, level: &mut Level, before: Now) {
        if std::mem::replace(&mut level.saved, self.transaction) != self.transaction {
            self.levels.push((index, before));
        }
    }

    /// A receiver's bound moved.
    pub(super) fn touch(&mut self, stream: u32) {
        if self.stamps.len() <= stream as usize {
            self.stamps.resize(stream as usize + 1, 0);
        }
        if std::mem::replace(&mut self.stamps[stream as usize], self.transaction) != self.transaction {
            self.touched.push(stream);
        }
    }

    /// Undoes all of it; flows must still stand where they stood.
    pub(super) fn undo(&mut self, state: &mut State) {
        let mut moves = Vec::new();
        for before in self.slots.drain(..) {
            moves.clear();
            let slot = before.slot as usize;
            let jitter = before.latest.saturating_sub(state.slots[slot].earliest);
            state.set_jitter(slot, (!before.is_late).then_some(jitter), &mut moves);
            state.slots[slot].latest = before.latest;
            state.slots[slot].departure = before.departure;
            let level = state.slots[slot].level as usize;
            state.levels[level].slack = None;
        }
        for (level, before) in self.levels.drain(..) {
            state.levels[level as usize].now = before;
        }
    }

    /// Levels that were replaced, and what they were.
    pub(super) fn levels(&self) -> &[(u32, Now)] {
        &self.levels
    }

    /// The departure of a slot before the transaction.
    pub(super) fn departure_before(&self, slot: u32, state: &State) -> u64 {
        let data = &state.slots[slot as usize];
        let found =
            (data.saved == self.transaction).then(|| self.slots.iter().find(|before| before.slot == slot));
        found.flatten().map_or(data.departure, |before| before.departure)
    }

    /// The response of a slot before the transaction.
    pub(super) fn response_before(&self, slot: u32, state: &State) -> u64 {
        let data = &state.slots[slot as usize];
        let level = &state.levels[data.level as usize];
        let found = (level.saved == self.transaction)
            .then(|| self.levels.iter().find(|(index, _)| *index == data.level));
        found
            .flatten()
            .map_or(&level.now, |(_, before)| before)
            .response(data.own)
    }
}
