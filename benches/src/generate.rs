//! Random networks: trees of switches with some extra links, hosts at their edges, unicast and multicast streams in up to
//! eight classes, jitter up to two periods, ranges of switching delay, bounded link jitter.

use timebound_model::declaration::{
    ArrivalDecl, Declaration, DirectionDecl, ImpairmentsDecl, JitterDecl, JitterDistribution, LinkDecl,
    NodeDecl, NodeKindDecl, QueueDecl, ReleaseDecl, RoleDecl, StreamDecl,
};

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, the same everywhere.
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// Uniform on `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.word() % (high - low + 1)
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        self.word().is_multiple_of(n)
    }
}

/// Limits of what is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub switches: u64,
    pub hosts: u64,
    pub streams: u64,
    pub classes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            switches: 8,
            hosts: 10,
            streams: 14,
            classes: 8,
        }
    }
}

/// Network `index` of a corpus.
#[must_use]
pub fn network(seed: u64, index: u64, limits: &Limits) -> Declaration {
    let mut draw = Draw::new(seed ^ index.wrapping_mul(0xA076_1D64_78BD_642F));
    let switches = draw.between(1, limits.switches);
    let hosts = draw.between(2, limits.hosts);
    let fifo = draw.one_in(4);
    let mut nodes = Vec::new();
    let mut links = Vec::new();
    for s in 0..switches {
        let least = draw.between(0, 20_000);
        let greatest = least
            + if draw.one_in(2) {
                draw.between(0, 30_000)
            } else {
                0
            };
        nodes.push(node(format!("s{s}"), NodeKindDecl::Switch, least, greatest));
        if s > 0 {
            let other = draw.between(0, s - 1);
            links.push(link(&mut draw, format!("s{other}"), format!("s{s}"), fifo));
        }
    }
    for _ in 0..switches / 3 {
        let (a, b) = (draw.between(0, switches - 1), draw.between(0, switches - 1));
        if a != b {
            links.push(link(&mut draw, format!("s{a}"), format!("s{b}"), fifo));
        }
    }
    for h in 0..hosts {
        nodes.push(node(format!("h{h}"), NodeKindDecl::Host, 0, 0));
        let at = draw.between(0, switches - 1);
        links.push(link(&mut draw, format!("h{h}"), format!("s{at}"), fifo));
    }
    let count = draw.between(1, limits.streams);
    let classes = draw.between(1, limits.classes);
    let streams = (0..count)
        .map(|f| stream(&mut draw, f, hosts, count, classes))
        .collect();
    Declaration {
        nodes,
        links,
        streams,
        best_effort_frame_bytes: 1538,
        traces: std::collections::BTreeMap::new(),
    }
}

fn node(name: String, kind: NodeKindDecl, switching_min_ns: u64, switching_max_ns: u64) -> NodeDecl {
    NodeDecl {
        name,
        kind,
        switching_min_ns,
        switching_max_ns,
    }
}

fn link(draw: &mut Draw, a: String, b: String, fifo: bool) -> LinkDecl {
    let rate_bps = [10_000_000, 100_000_000, 100_000_000, 1_000_000_000][draw.between(0, 3) as usize];
    let delay_ns = draw.between(0, 50_000);
    let jitter = draw.one_in(6).then(|| JitterDecl {
        distribution: JitterDistribution::Uniform {
            max_ns: draw.between(1, 200_000),
        },
        reorder: false,
    });
    let direction = DirectionDecl {
        rate_bps,
        delay_ns,
        queue: if fifo {
            QueueDecl::Fifo
        } else {
            QueueDecl::StrictPriority
        },
        buffer_bytes: 1 << 30,
        impairments: ImpairmentsDecl {
            jitter,
            ..ImpairmentsDecl::default()
        },
        trace: None,
        slots: None,
    };
    LinkDecl {
        a,
        b,
        forward: direction.clone(),
        backward: direction,
        half_duplex: false,
    }
}

fn stream(draw: &mut Draw, number: u64, hosts: u64, count: u64, classes: u64) -> StreamDecl {
    let source = draw.between(0, hosts - 1);
    let mut destinations: Vec<String> = Vec::new();
    for _ in 0..if draw.one_in(3) { draw.between(2, 4) } else { 1 } {
        let to = draw.between(0, hosts - 1);
        let name = format!("h{to}");
        if to != source && !destinations.contains(&name) {
            destinations.push(name);
        }
    }
    if destinations.is_empty() {
        destinations.push(format!("h{}", (source + 1) % hosts));
    }
    let frames_bytes: Vec<u32> = (0..if draw.one_in(5) { draw.between(2, 4) } else { 1 })
        .map(|_| draw.between(84, 1538) as u32)
        .collect();
    // So that the slowest link is loaded to between a few and 95 per cent when many streams meet there.
    let work = frames_bytes.iter().map(|b| u64::from(*b)).sum::<u64>() * 800;
    let period_ns = work * 100 * count / draw.between(5, 95).max(1) / draw.between(1, 4);
    let jitter_ns = match draw.between(0, 3) {
        0 => 0,
        1 => draw.between(0, period_ns / 10),
        2 => draw.between(0, period_ns),
        _ => draw.between(0, 2 * period_ns),
    };
    let arrival = ArrivalDecl::Periodic {
        period_ns,
        jitter_ns,
        frames_bytes,
    };
    let (arrival, release) = if draw.one_in(4) {
        bucket(draw, period_ns, &arrival)
    } else {
        (arrival, ReleaseDecl::Periodic { offset_ns: None })
    };
    StreamDecl {
        name: format!("f{number}"),
        source: format!("h{source}"),
        destinations,
        class: (draw.between(0, classes - 1)) as u8,
        role: RoleDecl::Data,
        arrival,
        release,
        deadline_ns: None,
        route: None,
    }
}

/// A token bucket of the same rate whose burst holds one to four releases of one size, or of two.
fn bucket(draw: &mut Draw, period_ns: u64, periodic: &ArrivalDecl) -> (ArrivalDecl, ReleaseDecl) {
    let ArrivalDecl::Periodic { frames_bytes, .. } = periodic else {
        return (periodic.clone(), ReleaseDecl::Silent);
    };
    let sum: u64 = frames_bytes.iter().map(|bytes| u64::from(*bytes)).sum();
    let burst_bytes = sum * draw.between(1, 4) + draw.between(0, sum);
    let arrival = ArrivalDecl::TokenBucket {
        rate_bps: (sum * 8_000_000_000 / period_ns).max(1),
        burst_bytes,
        min_frame_bytes: frames_bytes.iter().copied().min().unwrap_or(84),
        max_frame_bytes: frames_bytes.iter().copied().max().unwrap_or(1538),
    };
    let release = ReleaseDecl::Greedy {
        offset_ns: None,
        frames_bytes: frames_bytes.clone(),
    };
    (arrival, release)
}
