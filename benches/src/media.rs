//! The random networks of [`crate::generate`] with other ways to be served: weighted ports, half-duplex links, shared segments, slots.

use crate::draw::Draw;
use crate::generate;
use crate::parts::{loaded, node};
use timebound_model::Network;
use timebound_model::declaration::{
    Declaration, DirectionDecl, ImpairmentsDecl, LinkDecl, NodeKindDecl, QueueDecl, SlotsDecl,
};

/// What differs in a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dress {
    /// Every port by deficit round robin.
    Weighted,
    /// Some links half duplex.
    HalfDuplex,
    /// The hosts of one switch on a shared segment.
    Segment,
    /// Some directions of links in slots.
    Slots,
    /// The segment in slots.
    SegmentSlots,
    /// Deficit round robin and slots.
    WeightedSlots,
}

impl Dress {
    pub const ALL: [Self; 6] = [
        Self::Weighted,
        Self::HalfDuplex,
        Self::Segment,
        Self::Slots,
        Self::SegmentSlots,
        Self::WeightedSlots,
    ];
}

/// Network `index` of a corpus in this dress, with less load: these ports have less to give.
///
/// # Panics
/// If the generator makes a network that does not compile.
#[must_use]
pub fn dressed(seed: u64, index: u64, dress: Dress) -> Network {
    let (mut declaration, utilisation) = generate::declaration(seed, index);
    let mut draw = Draw::of(seed ^ dress as u64, index);
    if matches!(dress, Dress::Weighted | Dress::WeightedSlots) {
        let quanta_bytes = std::array::from_fn(|_| draw.between(100, 4_000) as u32);
        directions(&mut declaration).for_each(|way| way.queue = QueueDecl::Drr { quanta_bytes });
    }
    match dress {
        Dress::Weighted => {}
        Dress::HalfDuplex => {
            for link in &mut declaration.links {
                link.half_duplex = draw.one_in(2);
            }
        }
        Dress::Segment => {
            segment(&mut declaration, &mut draw);
        }
        Dress::SegmentSlots => {
            let members = segment(&mut declaration, &mut draw);
            let mut senders: Vec<&mut DirectionDecl> = declaration
                .links
                .iter_mut()
                .zip(0usize..)
                .filter(|(_, index)| members.contains(index))
                .map(|(link, _)| {
                    if link.a == SEGMENT {
                        &mut link.backward
                    } else {
                        &mut link.forward
                    }
                })
                .collect();
            share_out(&mut senders, &mut draw);
        }
        Dress::Slots | Dress::WeightedSlots => {
            for link in &mut declaration.links {
                match draw.between(0, 3) {
                    0 => share_out(&mut [&mut link.forward], &mut draw),
                    1 => {
                        link.half_duplex = true;
                        share_out(&mut [&mut link.forward, &mut link.backward], &mut draw);
                    }
                    _ => {}
                }
            }
        }
    }
    loaded(declaration, utilisation / draw.between(1, 8) as f64)
}

const SEGMENT: &str = "segment";

fn directions(declaration: &mut Declaration) -> impl Iterator<Item = &mut DirectionDecl> {
    declaration
        .links
        .iter_mut()
        .flat_map(|link| [&mut link.forward, &mut link.backward])
}

/// Moves the hosts of one switch to a segment beside it; returns the links of the segment.
fn segment(declaration: &mut Declaration, draw: &mut Draw) -> Vec<usize> {
    let hosts: Vec<usize> = (0..declaration.links.len())
        .filter(|index| declaration.links[*index].a.starts_with('h'))
        .collect();
    let switch = declaration.links[hosts[draw.between(0, hosts.len() as u64 - 1) as usize]]
        .b
        .clone();
    let mut members: Vec<usize> = hosts
        .into_iter()
        .filter(|index| declaration.links[*index].b == switch)
        .collect();
    for index in &members {
        SEGMENT.clone_into(&mut declaration.links[*index].b);
    }
    let plain = DirectionDecl {
        impairments: ImpairmentsDecl::default(),
        ..declaration.links[members[0]].forward.clone()
    };
    let hosts: Vec<&str> = members
        .iter()
        .map(|index| declaration.links[*index].a.as_str())
        .collect();
    for path in declaration
        .streams
        .iter_mut()
        .flat_map(|stream| stream.route.iter_mut().flatten())
    {
        by_segment(path, &hosts);
    }
    members.push(declaration.links.len());
    declaration.links.push(LinkDecl {
        a: SEGMENT.to_owned(),
        b: switch,
        forward: plain.clone(),
        backward: plain,
        half_duplex: true,
    });
    declaration
        .nodes
        .push(node(SEGMENT.to_owned(), NodeKindDecl::Segment, 0, 0));
    members
}

/// A path from, to, or between hosts on the segment.
fn by_segment(path: &mut Vec<String>, hosts: &[&str]) {
    let on_segment = |node: Option<&String>| node.is_some_and(|node| hosts.contains(&node.as_str()));
    let (first, last) = (on_segment(path.first()), on_segment(path.last()));
    if first && last {
        path.splice(1..path.len() - 1, [SEGMENT.to_owned()]);
    } else if first {
        path.insert(1, SEGMENT.to_owned());
    } else if last {
        path.insert(path.len() - 1, SEGMENT.to_owned());
    }
}

/// Gives every sender one or two slots of a cycle, each long enough for a full frame.
fn share_out(senders: &mut [&mut DirectionDecl], draw: &mut Draw) {
    let mut lists = vec![Vec::new(); senders.len()];
    let mut at = draw.between(0, 50_000);
    for _ in 0..draw.between(1, 2) {
        for (sender, list) in senders.iter().zip(&mut lists) {
            let frame = (1_538 * 8_000_000_000u64).div_ceil(sender.rate_bps);
            let length = frame * draw.between(1, 3) + draw.between(0, frame);
            list.push((at, length));
            at += length + if draw.one_in(2) { draw.between(0, frame) } else { 0 };
        }
    }
    let cycle_ns = at + draw.between(0, 100_000);
    for (sender, slots_ns) in senders.iter_mut().zip(lists) {
        sender.slots = Some(SlotsDecl { cycle_ns, slots_ns });
    }
}
