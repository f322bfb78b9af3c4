//! Who feeds whom, port by port, and what a look at a port needs to know of its levels, side by side in memory.

use super::state::{Port, RANKS, State};

/// A number for each level of a port, in one cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Row(pub(super) [u64; RANKS]);

/// A port that feeds another, as either of them sees the other. Frames keep their class, so that one rank says it for both: that of the one
/// that sorts by priority.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) port: u32,
    /// Ranks in which slots come over it, one bit for each.
    pub(super) mask: u8,
    /// Does the port at the other end serve all classes in one rank?
    pub(super) is_flat: bool,
    slots: [u32; RANKS],
}

impl Link {
    /// By how much frames come later over it, rank by rank of a port that sorts or does not, from what the departures before it rise by.
    pub(super) fn carry(&self, sorts: bool, departures: &Row, arrivals: &mut [u64; RANKS]) {
        for rank in (0..RANKS).filter(|rank| self.mask & 1 << rank != 0) {
            let later = departures.0[if self.is_flat { 0 } else { rank }];
            let arrival = &mut arrivals[if sorts { rank } else { 0 }];
            *arrival = later.max(*arrival);
        }
    }

    /// The ranks at the other end that read departures of these ranks here.
    pub(super) fn readers(&self, sorts: bool, risen: u8) -> u8 {
        let read = match (sorts, risen) {
            (true, _) => self.mask & risen,
            (false, 0) => 0,
            (false, _) => self.mask,
        };
        if self.is_flat { u8::from(read != 0) } else { read }
    }
}

/// Counts a slot of the level `to` that is fed by the level `from`, or no longer. Returns the ranks at the port of `from` that feed `to`.
pub(super) fn connect(
    (inputs, outputs): (&mut [Vec<Link>], &mut [Vec<Link>]),
    ports: &[Port],
    (from, to): (u32, u32),
    more: i32,
) -> u8 {
    let (before, after) = (from as usize / RANKS, to as usize / RANKS);
    let ranks = (from as usize % RANKS, to as usize % RANKS);
    // The other one is nought where a port does not sort.
    let rank = ranks.0.max(ranks.1);
    let flat = (!ports[before].sorts, !ports[after].sorts);
    count(&mut outputs[before], (after as u32, flat.1), rank, more);
    let mask = count(&mut inputs[after], (before as u32, flat.0), rank, more);
    match flat {
        (true, _) => u8::from(mask != 0),
        (false, true) => mask,
        (false, false) => mask & 1 << rank,
    }
}

fn count(links: &mut Vec<Link>, (port, is_flat): (u32, bool), rank: usize, more: i32) -> u8 {
    let found = links.iter().position(|link| link.port == port);
    let place = found.unwrap_or_else(|| {
        links.push(Link {
            port,
            mask: 0,
            is_flat,
            slots: [0; RANKS],
        });
        links.len() - 1
    });
    let link = &mut links[place];
    link.slots[rank] = link.slots[rank].saturating_add_signed(more);
    if link.slots[rank] == 0 {
        link.mask &= !(1 << rank);
    } else {
        link.mask |= 1 << rank;
    }
    let mask = link.mask;
    if mask == 0 {
        links.swap_remove(place);
    }
    mask
}

/// The levels of a port.
#[derive(Debug, Clone, Default)]
#[repr(align(64))]
pub(super) struct Glance {
    /// Jitters may move up by less than this, and responses stay.
    pub(super) bears: [u64; RANKS],
    /// All departures to receivers may be later by this; nothing where nobody has looked.
    pub(super) slack: [u64; RANKS],
    /// How far jitters were said to move up.
    pub(super) asked: [u64; RANKS],
    /// Does the port sort by priority?
    pub(super) sorts: bool,
    /// Levels at which there is somebody, one bit for each.
    pub(super) present: u8,
    /// Those of which too little is known.
    pub(super) open: u8,
    /// Those that have a window.
    pub(super) windowed: u8,
    /// When this was read from the levels; 0: it is to be read again.
    pub(super) transaction: u32,
}

impl State {
    /// Reads what a look at a port needs, where it may have changed.
    pub(super) fn read_glance(&mut self, port: usize, transaction: u32) {
        let glance = &mut self.glances[port];
        if std::mem::replace(&mut glance.transaction, transaction) == transaction {
            return;
        }
        (glance.present, glance.open, glance.windowed) = (0, 0, 0);
        glance.sorts = self.ports[port].sorts;
        let base = port * RANKS;
        for rank in 0..RANKS {
            let (level, known) = (&self.levels[base + rank], &self.known[base + rank]);
            let is_open = level.late > 0 || level.now.is_unbounded || level.now.gave_up;
            glance.present |= u8::from(level.slots > 0) << rank;
            glance.open |= u8::from(is_open) << rank;
            glance.windowed |= u8::from(self.windows[base + rank].is_any()) << rank;
            glance.bears[rank] = known.bears();
            glance.slack[rank] = level.slack.unwrap_or(0);
        }
    }
}

impl State {
    /// Reads a little of everything that sweeps of these ranks at a port are about to read, one bit for each. Its places are known here all
    /// at once, so that the processor fetches many at a time; sweeps would wait for one after another.
    pub(super) fn touch(&self, port: usize, swept: u8) {
        let base = port * RANKS;
        let count = RANKS - swept.leading_zeros() as usize;
        let windowed = swept & self.glances[port].windowed;
        let mut sum = 0u64;
        for (rank, level) in self.levels[base..base + count].iter().enumerate() {
            if windowed & 1 << rank != 0 {
                sum ^= self.windows[base + rank].read();
            }
            for group in &level.groups {
                sum ^= group.first_step ^ group.work_of(1);
            }
            if swept & 1 << rank != 0 {
                sum ^= level.now.answers.first().map_or(0, |(own, _)| *own);
            }
        }
        std::hint::black_box(sum);
    }

    /// The same of all links.
    pub(super) fn touch_links(&self) {
        let links = self.inputs.iter().chain(&self.outputs).flatten();
        std::hint::black_box(links.fold(0, |sum, link| sum ^ link.port));
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, Row};

    fn link(is_flat: bool) -> Link {
        Link {
            port: 0,
            mask: 0b101,
            is_flat,
            slots: [1, 0, 1, 0, 0, 0, 0, 0],
        }
    }

    #[test]
    fn each_rank_hears_of_those_that_feed_it() {
        let departures = Row([7, 8, 9, 0, 0, 0, 0, 0]);
        // Where the other end serves all in one rank, and where this one does.
        for (is_flat, sorts, expected) in [
            (false, true, [7, 0, 9, 0, 0, 0, 0, 0]),
            (true, true, [7, 0, 7, 0, 0, 0, 0, 0]),
            (false, false, [9, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            let mut arrivals = [0; 8];
            link(is_flat).carry(sorts, &departures, &mut arrivals);
            assert_eq!(arrivals, expected);
        }
        for (is_flat, sorts, risen, expected) in [
            (false, true, 0b111, 0b101),
            (false, true, 0b010, 0),
            (true, true, 0b100, 1),
            (true, true, 0b010, 0),
            (false, false, 1, 0b101),
            (false, false, 0, 0),
        ] {
            assert_eq!(link(is_flat).readers(sorts, risen), expected);
        }
    }
}
