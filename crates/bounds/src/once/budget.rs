//! Whose stretches are looked at where there is not time for all: those of the streams with the least slack.
//!
//! First every stream has the stretches that begin at its source, while the work lasts; what is left goes to those that begin at later
//! ports. Work is counted, not timed, so that the same network has the same bounds everywhere. A stream with several frame sizes has enough for
//! all of them or is passed over.

use crate::layout::{Flow, NONE};
use crate::propagation::Propagation;
use crate::result::LookedAt;
use crate::settled::NEVER;
use timebound_model::StreamId;

/// Which ports of a path stretches begin at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Starts {
    All,
    Source,
}

/// What the stretches of a stream cost.
struct Bill {
    stream: usize,
    /// Time between the bound as it is and the deadline; those without a deadline come last.
    slack: i128,
    from_source: u64,
    from_all: u64,
}

/// Which stretches of each flow are looked at, and for how many streams there was enough, if not for all.
pub(super) fn shares(pass: &Propagation<'_>, effort: u64) -> (Vec<Option<Starts>>, Option<LookedAt>) {
    let layout = &pass.layout;
    let mut bills: Vec<Bill> = (0..layout.flows_of.len())
        .filter_map(|stream| bill(pass, stream))
        .collect();
    bills.sort_by_key(|bill| (bill.slack, bill.stream));
    let mut shares = vec![None; layout.flows.len()];
    let mut left = effort;
    let mut enough = |amount: u64| {
        let rest = left.checked_sub(amount);
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let looked_at: Vec<&Bill> = bills.iter().filter(|bill| enough(bill.from_source)).collect();
    for bill in &looked_at {
        let starts = if enough(bill.from_all - bill.from_source) {
            Starts::All
        } else {
            Starts::Source
        };
        shares[layout.flows_of[bill.stream].clone()].fill(Some(starts));
    }
    let partial = (looked_at.len() < bills.len()).then_some(LookedAt {
        streams: looked_at.len(),
        of: bills.len(),
    });
    (shares, partial)
}

/// Nothing for a stream without a bound, or over single ports.
fn bill(pass: &Propagation<'_>, stream: usize) -> Option<Bill> {
    let layout = &pass.layout;
    let declared = &pass.network.streams[StreamId::new(stream).index()];
    let (mut from_source, mut from_all, mut latest) = (0u64, 0u64, 0);
    for flow in &layout.flows[layout.flows_of[stream].clone()] {
        for leaf in &declared.tree.leaves {
            let (visits, ports) = visits(pass, flow, leaf.hop);
            let slot = layout.slot_of[flow.first_hop + leaf.hop as usize] as usize;
            let departure = pass.settled.departure(slot);
            if ports < 2 || departure == NEVER {
                continue;
            }
            latest = departure.max(latest);
            // A rival is gathered once for every start, and looked at once for every end.
            from_source = from_source.saturating_add(visits.saturating_mul(ports));
            from_all = from_all.saturating_add(visits.saturating_mul(ports).saturating_mul(ports));
        }
    }
    let slack = |deadline: timebound_model::Span| i128::from(deadline.0) - i128::from(latest);
    (from_source > 0).then(|| Bill {
        stream,
        slack: declared.deadline.map_or(i128::MAX, slack),
        from_source,
        from_all,
    })
}

/// Slots of the classes that count at the ports of a way, and the ports.
fn visits(pass: &Propagation<'_>, flow: &Flow, leaf: u32) -> (u64, u64) {
    let layout = &pass.layout;
    let (mut visits, mut ports, mut at) = (0, 0, layout.slot_of[flow.first_hop + leaf as usize]);
    while at != NONE {
        let slot = &layout.slots[at as usize];
        let level = &layout.levels[slot.level as usize];
        visits += (level.end - level.port_start) as u64;
        ports += 1;
        at = slot.parent;
    }
    (visits, ports)
}
