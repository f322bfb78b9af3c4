//! Release patterns: when each stream hands its frames to its first port.

use crate::bucket::Bucket;
use timebound_fabric::Draws;
use timebound_model::units::NANOS_PER_SECOND;
use timebound_model::{Arrival, Rate, Release, Span, Stream, Time, WireBytes};

/// One release of a stream: all its frames enter back to back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// What a deadline counts from (of a token bucket the actual release).
    pub nominal: Time,
    /// When the frames reach the first port: `nominal <= actual <= nominal + jitter`.
    pub actual: Time,
}

/// The releases of one stream, in order of time.
///
/// A stream with a declared arrival curve never exceeds it: whatever its pattern asks for is held back until the curve
/// allows it, and each release consists of the frames of the curve (of the pattern, where the curve is a token bucket). A stream without one (`Arrival::Unbounded`) sends
/// single frames (or bursts) of the size that its pattern states, at most of the declared largest frame; a periodic or
/// sporadic pattern has no period there and stays silent.
#[derive(Debug, Clone)]
pub struct Source {
    pattern: Pattern,
    curve: Option<Curve>,
    bucket: Option<Bucket>,
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
    /// The bucket at once, as much again at its rate, then a pause until it is full: on average its rate, with its burst again
    /// and again.
    Greedy {
        from: u64,
        sent: u64,
        batch: u64,
        refill: u64,
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
            Arrival::TokenBucket { .. } | Arrival::Unbounded { .. } => None,
        };
        let bucket = match &stream.arrival {
            Arrival::TokenBucket {
                rate, burst_bytes, ..
            } => Some(Bucket::new(*rate, *burst_bytes)),
            Arrival::Periodic { .. } | Arrival::Unbounded { .. } => None,
        };
        let frames = frames(&stream.arrival, &stream.release);
        let pattern = match (&stream.arrival, &stream.release) {
            (
                Arrival::TokenBucket {
                    rate, burst_bytes, ..
                },
                Release::Greedy { offset, .. },
            ) => greedy(*rate, *burst_bytes, *offset, &frames, &mut draws),
            _ => pattern(&stream.release, curve.as_ref(), &mut draws),
        };
        Self {
            pattern,
            curve,
            bucket,
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

    /// What the bucket allows at the time that the pattern asks for.
    fn admit(&mut self, wanted: u64) -> Released {
        let actual = match (&mut self.bucket, &mut self.curve) {
            (Some(bucket), _) => {
                let bytes = self.frames.iter().map(|frame| u64::from(frame.0)).sum();
                bucket.admit(wanted, bytes)
            }
            (None, Some(curve)) => return curve.admit(wanted),
            (None, None) => wanted,
        };
        Released {
            nominal: Time(actual),
            actual: Time(actual),
        }
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
        let Some(curve) = self.curve.as_ref().filter(|_| *late) else {
            return Some(self.admit(nominal));
        };
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

/// What one release consists of.
fn frames(arrival: &Arrival, release: &Release) -> Vec<WireBytes> {
    let (count, frame) = match release {
        Release::Greedy { frames, .. } => return frames.clone(),
        Release::Burst { frames, frame, .. } => (*frames as usize, *frame),
        Release::Poisson { frame, .. } | Release::Constant { frame, .. } | Release::Trace { frame, .. } => {
            (1, *frame)
        }
        Release::Periodic { .. } | Release::Sporadic { .. } | Release::Silent => (0, WireBytes::MIN),
    };
    match arrival {
        Arrival::Periodic { frames, .. } => frames.clone(),
        Arrival::Unbounded { max_frame } => vec![frame.min(*max_frame); count],
        Arrival::TokenBucket {
            burst_bytes,
            min_frame,
            max_frame,
            ..
        } => {
            let frame = frame.clamp(*min_frame, *max_frame);
            // What exceeds a burst could not leave at once.
            let room = *burst_bytes / u64::from(frame.0.max(1));
            vec![frame; count.min(usize::try_from(room).unwrap_or(usize::MAX))]
        }
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
        | (Release::Burst { .. } | Release::Silent | Release::Greedy { .. }, _) => Pattern::Silent,
    }
}

fn greedy(
    rate: Rate,
    burst_bytes: u64,
    offset: Option<Span>,
    frames: &[WireBytes],
    draws: &mut Draws,
) -> Pattern {
    let bytes: u64 = frames.iter().map(|frame| u64::from(frame.0)).sum();
    let refill =
        (u128::from(burst_bytes) * 8 * u128::from(NANOS_PER_SECOND)).div_ceil(u128::from(rate.0.max(1)));
    let refill = u64::try_from(refill).unwrap_or(u64::MAX);
    Pattern::Greedy {
        from: offset.map_or_else(|| draws.up_to(refill), |offset| offset.0),
        sent: 0,
        batch: (burst_bytes / bytes.max(1)).max(1).saturating_mul(2),
        refill,
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
            Pattern::Greedy { from, .. } => *from,
            Pattern::Silent => return None,
        };
        let released = self.admit(wanted);
        if let Pattern::Greedy {
            from,
            sent,
            batch,
            refill,
        } = &mut self.pattern
        {
            *sent += 1;
            if *sent == *batch {
                *sent = 0;
                *from = released.actual.0.saturating_add(*refill);
            }
        }
        Some(released)
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
            least_frame: None,
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

    fn with_greedy() -> impl Strategy<Value = Release> {
        let greedy =
            (proptest::option::of(0u64..5_000), 1usize..3).prop_map(|(offset, count)| Release::Greedy {
                offset: offset.map(Span),
                frames: vec![WireBytes(100); count],
            });
        prop_oneof![greedy, patterns()]
    }

    proptest! {
        #[test]
        fn every_pattern_stays_within_its_token_bucket(
            rate in 1u64..20_000_000_000, burst_bytes in 300u64..2_000, release in with_greedy(), seed: u64,
        ) {
            let arrival = Arrival::TokenBucket { rate: Rate(rate), burst_bytes, min_frame: WireBytes(90), max_frame: WireBytes(120) };
            let silent = matches!(release, Release::Periodic { .. } | Release::Sporadic { .. });
            let greedy = matches!(release, Release::Greedy { .. });
            let source = Source::new(&stream(arrival, release), seed);
            let bytes: u64 = source.frames().iter().map(|frame| u64::from(frame.0)).sum();
            let at: Vec<u64> = source.take(80).map(|released| released.actual.0).collect();
            prop_assert!(!silent || at.is_empty());
            for (first, from) in at.iter().enumerate() {
                for (later, to) in at.iter().enumerate().skip(first) {
                    prop_assert!(from <= to);
                    // In tokens, so that nothing is rounded.
                    let sent = u128::from(bytes) * (later - first + 1) as u128 * 8_000_000_000;
                    let allowed = u128::from(burst_bytes) * 8_000_000_000 + u128::from(rate) * u128::from(to - from);
                    prop_assert!(sent <= allowed, "{sent} of {allowed}");
                }
            }
            if greedy {
                let burst = (burst_bytes / bytes) as usize;
                prop_assert_eq!(at[0], at[burst - 1], "all of the burst at once");
            }
        }

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
