//! The corpus on which tightness is measured: fixed, seeded, without jitter.
//!
//! Networks of two to eight switches in a random tree, two to three hosts on each, 100 Mbit/s everywhere, switching delays between 2 and 10 us and
//! the same for all frames, propagation up to 5 us. 20 to 60 periodic unicast streams between random hosts; frames of 84 to 1538 wire
//! bytes (a third full, a third of the smallest hundred bytes, a third in between); periods of 1 to 20 ms before the load is set; no
//! release jitter. The busiest port is loaded to between 20 and 90 per cent. FIFO ports, or strict priority with three classes (a fifth of
//! the streams in the highest, two fifths in each of the others).

use crate::draw::Draw;
use crate::parts::{link, loaded, node};
use timebound_model::Network;
use timebound_model::declaration::{
    ArrivalDecl, Declaration, ImpairmentsDecl, NodeKindDecl, QueueDecl, ReleaseDecl, RoleDecl, StreamDecl,
};

/// How ports serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Fifo,
    ThreeClasses,
}

/// Network `index`; the same streams and links for both services.
#[must_use]
pub fn network(seed: u64, index: u64, service: Service) -> Network {
    let mut draw = Draw::of(seed, index);
    let queue = match service {
        Service::Fifo => QueueDecl::Fifo,
        Service::ThreeClasses => QueueDecl::StrictPriority,
    };
    let switches = draw.between(2, 8);
    let (mut nodes, mut links) = (Vec::new(), Vec::new());
    let mut join = |draw: &mut Draw, a: String, b: String| {
        links.push(link(
            a,
            b,
            100_000_000,
            draw.between(0, 5_000),
            &queue,
            ImpairmentsDecl::default(),
        ));
    };
    for s in 0..switches {
        let delay = draw.between(2_000, 10_000);
        nodes.push(node(format!("s{s}"), NodeKindDecl::Switch, delay, delay));
        if s > 0 {
            let other = draw.between(0, s - 1);
            join(&mut draw, format!("s{other}"), format!("s{s}"));
        }
    }
    let mut hosts = 0;
    for s in 0..switches {
        for _ in 0..draw.between(2, 3) {
            nodes.push(node(format!("h{hosts}"), NodeKindDecl::Host, 0, 0));
            join(&mut draw, format!("h{hosts}"), format!("s{s}"));
            hosts += 1;
        }
    }
    let streams = (0..draw.between(20, 60))
        .map(|number| stream(&mut draw, number, hosts))
        .collect();
    let declaration = Declaration {
        nodes,
        links,
        streams,
        best_effort_frame_bytes: 1538,
        traces: std::collections::BTreeMap::new(),
    };
    let percent = draw.between(20, 90);
    loaded(declaration, percent as f64 / 100.0)
}

fn stream(draw: &mut Draw, number: u64, hosts: u64) -> StreamDecl {
    let source = draw.between(0, hosts - 1);
    let to = (source + draw.between(1, hosts - 1)) % hosts;
    let bytes = match draw.between(0, 2) {
        0 => 1538,
        1 => draw.between(84, 184),
        _ => draw.between(184, 1538),
    };
    StreamDecl {
        name: format!("f{number}"),
        source: format!("h{source}"),
        destinations: vec![format!("h{to}")],
        class: *draw.choose(&[2, 1, 1, 0, 0]),
        role: RoleDecl::Data,
        arrival: ArrivalDecl::Periodic {
            period_ns: draw.between(1_000, 20_000) * 1_000,
            jitter_ns: 0,
            frames_bytes: vec![bytes as u32],
        },
        release: ReleaseDecl::Periodic { offset_ns: None },
        deadline_ns: None,
        least_frame_bytes: None,
        route: None,
    }
}
