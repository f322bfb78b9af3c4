//! Release patterns: when each stream hands its frames to its first port.

use timebound_fabric::Draws;
use timebound_model::{Arrival, Release, Span, Stream, Time, WireBytes};

/// One release of a stream: all its frames enter back to back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// What a deadline counts from.
    pub nominal: Time,
    /// When the frames reach the first port: `nominal <= actual <= nominal + jitter`.
    pub actual: Time,
}

/// The releases of one stream, in order of time.
///
/// A stream with a declared arrival curve never exceeds it: whatever its pattern asks for is held back until the curve
/// allows it, and each release consists of the frames of the curve. A stream without one (`Arrival::Unbounded`) sends
/// single frames (or bursts) of the size that its pattern states, at most of the declared largest frame; a periodic or
/// sporadic pattern has no period there and stays silent.
#[derive(Debug, Clone)]
pub struct Source {
    pattern: Pattern,
    curve: Option<Curve>,
    frames: Vec<WireBytes>,
    draws: Draws,
    last_actual: u64,
}

#[derive(Debug, Clone)]
enum Pattern {
    /// Nominal releases `gap` apart, the next one at `next`; late by a random share of the jitter.
    Regular {
        next: u64,
        gap: u64,
        mean_extra: u64,
        late: bool,
    },
    Poisson {
        last: u64,
        mean_gap: u64,
    },
    Trace {
        times: Vec<Time>,
        next: usize,
    },
    Silent,
}

/// Release k conforms if it has a nominal time, at least a period after that of k-1, of which it is late by at most the
/// jitter (the generic cell rate algorithm, ITU-T I.371, with the jitter as its limit).
#[derive(Debug, Clone)]
struct Curve {
    period: u64,
    jitter: u64,
    last_nominal: Option<u64>,
}

impl Curve {
    /// The earliest conforming release at or after `wanted`.
    fn admit(&mut self, wanted: u64) -> Released {
        let earliest = self
            .last_nominal
            .map_or(0, |last| last.saturating_add(self.period));
        let nominal = earliest.max(wanted.saturating_sub(self.jitter));
        self.last_nominal = Some(nominal);
        Released {
            nominal: Time(nominal),
            actual: Time(nominal.max(wanted)),
        }
    }
}

impl Source {
    /// The stream's releases under `seed`; draws come from the stream named (stream, `release`).
    #[must_use]
    pub fn new(stream: &Stream, seed: u64) -> Self {
        let mut draws = Draws::named(seed, &stream.name, "release");
        let curve = match &stream.arrival {
            Arrival::Periodic { period, jitter, .. } => Some(Curve {
                period: period.0,
                jitter: jitter.0,
                last_nominal: None,
            }),
            Arrival::Unbounded { .. } => None,
        };
        let pattern = pattern(&stream.release, curve.as_ref(), &mut draws);
        let frames = match (&stream.arrival, &stream.release) {
            (Arrival::Periodic { frames, .. }, _) => frames.clone(),
            (Arrival::Unbounded { max_frame }, release) => {
                let (count, frame) = match *release {
                    Release::Burst { frames, frame, .. } => (frames as usize, frame),
                    Release::Poisson { frame, .. } | Release::Constant { frame, .. } => (1, frame),
                    Release::Trace { frame, .. } => (1, frame),
                    Release::Periodic { .. } | Release::Sporadic { .. } | Release::Silent => (0, *max_frame),
                };
                vec![frame.min(*max_frame); count]
            }
        };
        Self {
            pattern,
            curve,
            frames,
            draws,
            last_actual: 0,
        }
    }

    /// The frames of one release.
    #[must_use]
    pub fn frames(&self) -> &[WireBytes] {
        &self.frames
    }

    fn regular(&mut self) -> Option<Released> {
        let Pattern::Regular {
            next,
            gap,
            mean_extra,
            late,
        } = &mut self.pattern
        else {
            return None;
        };
        let nominal = *next;
        *next = next.saturating_add(*gap);
        if *mean_extra > 0 {
            *next = next.saturating_add(self.draws.exponential(Span(*mean_extra)).0);
        }
        let Some(curve) = self.curve.as_mut() else {
            return Some(Released {
                nominal: Time(nominal),
                actual: Time(nominal),
            });
        };
        if !*late {
            return Some(curve.admit(nominal));
        }
        // A later release is never before an earlier one; that keeps it within its own jitter, too.
        let actual = nominal
            .saturating_add(self.draws.up_to(curve.jitter))
            .max(self.last_actual);
        self.last_actual = actual;
        Some(Released {
            nominal: Time(nominal),
            actual: Time(actual),
        })
    }
}

fn pattern(release: &Release, curve: Option<&Curve>, draws: &mut Draws) -> Pattern {
    let mut regular = |gap: u64, mean_extra: u64, late: bool| Pattern::Regular {
        next: draws.up_to(gap.saturating_sub(1)),
        gap,
        mean_extra,
        late,
    };
    match (release, curve) {
        (Release::Periodic { offset: None }, Some(curve)) => regular(curve.period, 0, true),
        (Release::Periodic { offset: Some(offset) }, Some(curve)) => Pattern::Regular {
            next: offset.0,
            gap: curve.period,
            mean_extra: 0,
            late: true,
        },
        (Release::Sporadic { mean_extra }, Some(curve)) => regular(curve.period, mean_extra.0, true),
        (Release::Constant { gap, .. }, _) => regular(gap.0, 0, false),
        (Release::Burst { gap, frames, .. }, _) if *frames > 0 => regular(gap.0, 0, false),
        (Release::Poisson { mean_gap, .. }, _) => Pattern::Poisson {
            last: 0,
            mean_gap: mean_gap.0,
        },
        (Release::Trace { times, .. }, _) => Pattern::Trace {
            times: times.clone(),
            next: 0,
        },
        (Release::Periodic { .. } | Release::Sporadic { .. }, None)
        | (Release::Burst { .. } | Release::Silent, _) => Pattern::Silent,
    }
}

impl Iterator for Source {
    type Item = Released;

    fn next(&mut self) -> Option<Released> {
        let wanted = match &mut self.pattern {
            Pattern::Regular { .. } => return self.regular(),
            Pattern::Poisson { last, mean_gap } => {
                *last = last.saturating_add(self.draws.exponential(Span(*mean_gap)).0);
                *last
            }
            Pattern::Trace { times, next } => {
                *next += 1;
                times.get(*next - 1)?.0
            }
            Pattern::Silent => return None,
        };
        Some(match &mut self.curve {
            Some(curve) => curve.admit(wanted),
            None => Released {
                nominal: Time(wanted),
                actual: Time(wanted),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use timebound_model::{Class, NodeId, Role, Tree};

    fn stream(arrival: Arrival, release: Release) -> Stream {
        Stream {
            name: "s".to_owned(),
            source: NodeId(0),
            class: Class(0),
            role: Role::Data,
            arrival,
            release,
            deadline: None,
            tree: Tree::default(),
        }
    }

    fn patterns() -> impl Strategy<Value = Release> {
        let frame = WireBytes(100);
        prop_oneof![
            proptest::option::of(0u64..5_000).prop_map(|o| Release::Periodic { offset: o.map(Span) }),
            (0u64..5_000).prop_map(|n| Release::Sporadic { mean_extra: Span(n) }),
            (1u64..5_000).prop_map(move |n| Release::Poisson {
                mean_gap: Span(n),
                frame
            }),
            (1u64..5_000).prop_map(move |n| Release::Constant { gap: Span(n), frame }),
            (1u64..5_000).prop_map(move |n| Release::Burst {
                gap: Span(n),
                frames: 3,
                frame
            }),
            proptest::collection::vec(0u64..50_000, 0..100).prop_map(move |mut times| {
                times.sort_unstable();
                Release::Trace {
                    times: times.into_iter().map(Time).collect(),
                    frame,
                }
            }),
        ]
    }

    proptest! {
        #[test]
        fn every_pattern_stays_within_the_declared_curve(period in 1u64..3_000, jitter in 0u64..10_000, release in patterns(), seed: u64) {
            let arrival = Arrival::Periodic { period: Span(period), jitter: Span(jitter), frames: vec![WireBytes(90), WireBytes(100)] };
            let source = Source::new(&stream(arrival, release), seed);
            prop_assert_eq!(source.frames().len(), 2);
            let releases: Vec<Released> = source.take(120).collect();
            for (first, from) in releases.iter().enumerate() {
                prop_assert!(from.nominal <= from.actual && from.actual.0 <= from.nominal.0 + jitter);
                for (later, to) in releases.iter().enumerate().skip(first + 1) {
                    prop_assert!(from.actual <= to.actual);
                    // A window that just holds both is one tick longer than their distance.
                    let window = to.actual.0 - from.actual.0 + 1;
                    prop_assert!((later - first + 1) as u64 <= (window + jitter).div_ceil(period));
                }
            }
        }
    }

    #[test]
    fn poisson_has_its_mean_gap() {
        let frame = WireBytes(100);
        let arrival = Arrival::Unbounded {
            max_frame: WireBytes(80),
        };
        let source = Source::new(
            &stream(
                arrival,
                Release::Poisson {
                    mean_gap: Span(10_000),
                    frame,
                },
            ),
            4,
        );
        assert_eq!(source.frames(), [WireBytes(80)], "never larger than declared");
        let last = source.take(20_000).last().unwrap().actual.0 as f64 / 20_000.0;
        assert!((last - 10_000.0).abs() < 200.0, "{last}");
    }

    #[test]
    fn nothing_is_promised_and_nothing_stated() {
        let arrival = Arrival::Unbounded {
            max_frame: WireBytes(80),
        };
        assert_eq!(
            Source::new(&stream(arrival.clone(), Release::Silent), 4).next(),
            None
        );
        assert_eq!(
            Source::new(&stream(arrival, Release::Periodic { offset: None }), 4).next(),
            None
        );
    }
}
