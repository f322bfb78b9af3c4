//! Response times of one class at a port whose service is more than strict priority at a constant rate.
//!
//! With `S(t)` the work of the class itself, `H(w)` that of more urgent ones, `I_j(x, w)` what another class of a weighted port sends
//! while ours sends `x`, and `F(x)` the time until `x` of work is done:
//!
//! ```text
//! w(t) = least w with  w = B + F(A + S(t) - C + H(w) + sum over j of I_j(S(t) - C, w) + C) - C      start of the frame that came at t
//! R    = max over t of w(t) + C - t                                I_j(x, w) = min(psi_j(x), departures of j in [0, w])
//! ```
//!
//! with `A` what undeclared traffic may have in the same queue; which is [`crate::level`] with `F(x) = x` and without the sum. `t` counts from the start of a backlog of the class, and steps of `S` are
//! the candidates until one finds all earlier work done. What another class sends after that start departs after it, so its departures
//! (its arrivals with its own delay here as jitter) are a bound as good as `psi`; the port takes the lesser of both.
//!
//! On a half-duplex medium every frame of a port costs `V` more, one largest frame of each other sender: the medium serves requests in
//! their order, a port has one request at a time, and asks again behind all that wait. `V` is part of the weights here.

use super::drr::{self, Share};
use super::tdma::Tdma;
use super::work::{WHOLE, Work, in_window, next_step, share};
use timebound_model::Speed;

/// Another class of a weighted port.
#[derive(Debug, Clone)]
pub(crate) struct Rival {
    pub(crate) share: Share,
    /// What departs from it, where that is known: its arrivals, later by up to its delay here.
    pub(crate) departures: Option<Vec<Work>>,
}

/// The class's part in deficit round robin.
#[derive(Debug, Clone)]
pub(crate) struct Weighted {
    pub(crate) speed: Speed,
    pub(crate) ours: Share,
    pub(crate) rivals: Vec<Rival>,
}

/// One class at a port; times in ticks of its speed.
#[derive(Debug)]
pub(crate) struct Level<'a> {
    /// The rest of a frame under way when the backlog starts.
    pub(crate) blocking: u64,
    /// Undeclared work of the class that is in its queue by then, and is served like its own.
    pub(crate) ahead: u64,
    pub(crate) same: &'a [Work],
    pub(crate) higher: &'a [Work],
    pub(crate) weighted: Option<Weighted>,
    pub(crate) slots: Option<&'a Tdma>,
}

/// A frame's worst case: `response = start + own - window`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Response {
    pub(crate) response: u64,
    /// From the start of the backlog to the frame's arrival.
    pub(crate) window: u64,
}

/// Why there are no response times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The class can need all that it surely gets, or more.
    Overloaded,
    /// A time exceeds the limit, or the computation does.
    TooLong,
}

impl Level<'_> {
    /// The response time for each transmission time of `own` (each at most the weight of one release). `limit` bounds all times,
    /// `steps` the computation; what is left of the latter is written back.
    pub(crate) fn responses(
        &self,
        own: &[u64],
        limit: u64,
        steps: &mut u64,
    ) -> Result<Vec<Response>, Failure> {
        if self.load() >= self.capacity() {
            return Err(Failure::Overloaded);
        }
        match self.exact(own, limit, steps) {
            Err(Failure::TooLong) => self.lines(own, limit),
            found => found,
        }
    }

    /// Candidate by candidate.
    fn exact(&self, own: &[u64], limit: u64, steps: &mut u64) -> Result<Vec<Response>, Failure> {
        let mut worst = vec![Response::default(); own.len()];
        let mut t = 0;
        loop {
            let work = in_window(self.same, t);
            for (own, worst) in own.iter().zip(&mut worst) {
                let before = work.saturating_sub(u128::from(*own));
                let start = self.start(before, *own, limit, steps)?;
                let response = start.saturating_add(*own).saturating_sub(t);
                if response > worst.response {
                    *worst = Response { response, window: t };
                }
            }
            let done = self.start(work, 0, limit, steps)?;
            let next = next_step(self.same, t);
            if done <= next {
                return Ok(worst);
            }
            t = next;
        }
    }

    /// Least time at which a frame that takes `own` can start once `before` of the class's own work is done.
    fn start(&self, before: u128, own: u64, limit: u64, steps: &mut u64) -> Result<u64, Failure> {
        let before = before.saturating_add(u128::from(self.ahead));
        let mut start = self.blocking;
        loop {
            self.spend(steps)?;
            let work = before
                .saturating_add(in_window(self.higher, start))
                .saturating_add(self.rivals(before, start));
            let done = match self.slots {
                Some(slots) => slots
                    .finish(work.saturating_add(u128::from(own)))
                    .saturating_sub(u128::from(own)),
                None => work,
            };
            let next = u64::try_from(done.saturating_add(u128::from(self.blocking))).unwrap_or(u64::MAX);
            if next > limit {
                return Err(Failure::TooLong);
            }
            if next <= start {
                return Ok(start);
            }
            start = next;
        }
    }

    fn spend(&self, steps: &mut u64) -> Result<(), Failure> {
        let rivals = self.weighted.iter().flat_map(|weighted| &weighted.rivals);
        let departures = rivals.map(|rival| rival.departures.as_ref().map_or(0, Vec::len) as u64 + 1);
        let slots = self.slots.map_or(0, Tdma::cost);
        let cost = 1 + (self.same.len() + self.higher.len()) as u64 + slots + departures.sum::<u64>();
        *steps = steps.checked_sub(cost).ok_or(Failure::TooLong)?;
        Ok(())
    }

    fn rivals(&self, before: u128, window: u64) -> u128 {
        let most = |rival: &Rival| {
            let time = self.turns_of(rival, before);
            match &rival.departures {
                Some(departures) => time.min(in_window(departures, window)),
                None => time,
            }
        };
        let rivals = self.weighted.iter().flat_map(|weighted| &weighted.rivals);
        rivals.map(most).fold(0, u128::saturating_add)
    }

    /// Time that a rival takes by its turns.
    fn turns_of(&self, rival: &Rival, before: u128) -> u128 {
        let Some(weighted) = &self.weighted else { return 0 };
        // Transmission times are rounded up, so that no more bytes than these were sent in them.
        let bytes =
            before.saturating_mul(u128::from(weighted.speed.rate.0)) / weighted.speed.ticks_per_byte();
        let sent = drr::interference(bytes, weighted.ours, rival.share);
        transmission(sent, rival.share.least, weighted.speed)
    }

    /// With a straight line above every staircase: as all lines together rise less than the service, the start is latest for the
    /// frame that comes first, and the least fixed point is a quotient.
    fn lines(&self, own: &[u64], limit: u64) -> Result<Vec<Response>, Failure> {
        let least = own.iter().copied().min().unwrap_or(0);
        let before = (line_at_zero(self.same).saturating_add(u128::from(self.ahead)))
            .saturating_sub(u128::from(least));
        let (mut work, mut rising) = (
            before.saturating_add(line_at_zero(self.higher)),
            share(self.higher),
        );
        let load = self.rival_loads();
        let rivals = self.weighted.iter().flat_map(|weighted| &weighted.rivals);
        for (rival, (turns, departures)) in rivals.zip(load) {
            match (&rival.departures, departures) {
                (Some(known), Some(share)) if share <= turns => {
                    work = work.saturating_add(line_at_zero(known));
                    rising += share;
                }
                // One visit more, so that the turns lie below a line from there.
                _ => {
                    let ours = self.weighted.as_ref().map_or(0, |weighted| {
                        transmission(u128::from(weighted.ours.quantum), 1, weighted.speed)
                    });
                    work = work.saturating_add(self.turns_of(rival, before.saturating_add(ours)));
                }
            }
        }
        let latency = self.slots.map_or(0, Tdma::latency);
        // start = B + latency + (work + least + rising start) / capacity, less the frame itself
        let free = self.capacity().checked_sub(rising).filter(|free| *free > 0);
        let fixed = u128::from(self.blocking).saturating_add(u128::from(latency));
        let total = fixed
            .saturating_mul(self.capacity())
            .saturating_add(work.saturating_add(u128::from(least)).saturating_mul(WHOLE));
        let finish = total.div_ceil(free.ok_or(Failure::Overloaded)?);
        let response = u64::try_from(finish).ok().filter(|finish| *finish <= limit);
        let response = Response {
            response: response.ok_or(Failure::TooLong)?,
            window: 0,
        };
        Ok(vec![response; own.len()])
    }

    /// What the class and all that goes before it need in the long run, in units of [`WHOLE`].
    fn load(&self) -> u128 {
        let rivals = self.rival_loads().into_iter();
        let least = rivals.map(|(turns, departures)| departures.map_or(turns, |share| turns.min(share)));
        share(self.same)
            .saturating_add(share(self.higher))
            .saturating_add(least.fold(0, u128::saturating_add))
    }

    /// Of every rival: its share by its turns, and by its departures where these are known.
    fn rival_loads(&self) -> Vec<(u128, Option<u128>)> {
        let Some(weighted) = &self.weighted else {
            return Vec::new();
        };
        let (rate, byte) = (u128::from(weighted.speed.rate.0), weighted.speed.ticks_per_byte());
        let rounding = u128::from(weighted.speed.rounding());
        let own = share(self.same);
        let load = |rival: &Rival| {
            let plain = own
                .saturating_mul(u128::from(rival.share.quantum))
                .div_ceil(u128::from(weighted.ours.quantum.max(1)));
            // As in `transmission`, the rounding of each frame.
            let extra = plain
                .saturating_mul(rate)
                .saturating_mul(rounding)
                .div_ceil(byte * u128::from(rival.share.least.max(1)));
            (
                plain.saturating_add(extra),
                rival.departures.as_deref().map(share),
            )
        };
        weighted.rivals.iter().map(load).collect()
    }

    fn capacity(&self) -> u128 {
        self.slots.map_or(WHOLE, Tdma::share)
    }
}

/// Lines above the staircases: where they begin. Each rises with the share of its work.
fn line_at_zero(work: &[Work]) -> u128 {
    let start = |work: &Work| {
        let late = u128::from(work.jitter) * u128::from(work.weight);
        late.div_ceil(u128::from(work.period.max(1)))
            .saturating_add(u128::from(work.weight))
    };
    work.iter().map(start).fold(0, u128::saturating_add)
}

/// Time to send `bytes` in frames of at least `least` bytes, each rounded up.
fn transmission(bytes: u128, least: u64, speed: Speed) -> u128 {
    let plain = bytes
        .saturating_mul(speed.ticks_per_byte())
        .div_ceil(u128::from(speed.rate.0.max(1)));
    let frames = bytes.div_ceil(u128::from(least.max(1)));
    plain.saturating_add(frames.saturating_mul(u128::from(speed.rounding())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use timebound_model::{Grain, Rate, Slots, Span};

    const LIMIT: u64 = 1_000_000_000_000_000_000;
    const TICKS: Speed = Speed {
        rate: Rate(8_000_000_000),
        grain: Grain {
            per_nano: 1,
            carries: false,
        },
    };

    const fn work(period: u64, weight: u64, jitter: u64) -> Work {
        Work {
            period,
            jitter,
            weight,
        }
    }

    fn plain<'a>(blocking: u64, same: &'a [Work], higher: &'a [Work]) -> Level<'a> {
        Level {
            blocking,
            ahead: 0,
            same,
            higher,
            weighted: None,
            slots: None,
        }
    }

    fn one(level: &Level<'_>, own: u64) -> Result<u64, Failure> {
        level
            .responses(&[own], LIMIT, &mut 1_000_000)
            .map(|found| found[0].response)
    }

    #[test]
    fn without_anything_special_it_is_strict_priority() {
        // The vector of the specification: three messages, C = 1 ms, T = 2.5, 3.5, 3.5 ms.
        let set = [
            work(2_500, 1_000, 0),
            work(3_500, 1_000, 0),
            work(3_500, 1_000, 0),
        ];
        let found: Vec<_> = (0..3)
            .map(|index| {
                let blocking = if index < 2 { 1_000 } else { 0 };
                one(&plain(blocking, &set[index..=index], &set[..index]), 1_000)
            })
            .collect();
        assert_eq!(found, [Ok(2_000), Ok(3_000), Ok(3_500)]);
    }

    fn weighted(own: Share, others: &[(Share, Option<Work>)]) -> Option<Weighted> {
        Some(Weighted {
            speed: TICKS,
            ours: own,
            rivals: others
                .iter()
                .map(|(share, departures)| Rival {
                    share: *share,
                    departures: departures.map(|work| vec![work]),
                })
                .collect(),
        })
    }

    const fn quantum(quantum: u64, largest: u64) -> Share {
        Share {
            quantum,
            largest,
            least: 1,
        }
    }

    #[test]
    fn a_class_gets_its_share_and_no_more() {
        // One of four equal shares: 100 ns of work every 500 ns fit, every 400 ns they do not.
        let others = [(quantum(100, 100), None); 3];
        let found = |period| {
            let same = [work(period, 100, 0)];
            let level = Level {
                weighted: weighted(quantum(100, 100), &others),
                ..plain(0, &same, &[])
            };
            one(&level, 100)
        };
        // Every other class has a visit, and less than a frame that it kept from the visit before.
        assert_eq!(found(700), Ok(3 * 199 + 100));
        assert_eq!(found(450), Ok(3 * 199 + 100));
        assert_eq!(found(400), Err(Failure::Overloaded));
    }

    #[test]
    fn what_departs_from_others_bounds_them_too() {
        let found = |departures| {
            let same = [work(1_000, 100, 0)];
            let level = Level {
                weighted: weighted(quantum(100, 100), &[(quantum(1_000, 100), departures)]),
                ..plain(0, &same, &[])
            };
            one(&level, 100)
        };
        // One frame of the other class in 10 us, whenever its visit is.
        assert_eq!(found(None), Err(Failure::Overloaded));
        assert_eq!(found(Some(work(10_000, 100, 300))), Ok(200));
    }

    #[test]
    fn slots_delay_and_limit() {
        let slots = Slots::new(Span(1_000), &[(0, 250)]).expect("slots");
        let tdma = Tdma::new(&slots, 100, 100).expect("fits");
        let found = |period, jitter| {
            let same = [work(period, 100, jitter)];
            let level = Level {
                slots: Some(&tdma),
                ..plain(30, &same, &[])
            };
            one(&level, 100)
        };
        // Blocked for 30, then 99 before the end of the slot, 750 until the next one.
        assert_eq!(found(1_000, 0), Ok(30 + 99 + 750 + 100));
        // Two fit in a slot: with three at once the third waits a cycle more.
        assert_eq!(found(10_000, 20_000), Ok(30 + 99 + 750 + 1_000 + 100));
        assert_eq!(found(500, 0), Err(Failure::Overloaded));
    }

    #[test]
    fn straight_lines_are_never_below_the_staircases() {
        let slots = Slots::new(Span(1_000), &[(0, 450), (600, 210)]).expect("slots");
        let tdma = Tdma::new(&slots, 40, 100).expect("fits");
        let mut state = 3u64;
        let mut draw = |low: u64, high: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            low + (state >> 33) % (high - low + 1)
        };
        let mut compared = 0;
        for case in 0..600 {
            let mut list = |count: u64| -> Vec<Work> {
                (0..count)
                    .map(|_| work(draw(900, 9_000), draw(40, 100), draw(0, 3_000)))
                    .collect()
            };
            let (same, higher, other) = (list(3), list(case % 3), list(1));
            let departures = (case % 2 == 0).then(|| other[0]);
            let level = Level {
                ahead: draw(0, 60),
                weighted: (case % 4 < 2)
                    .then(|| weighted(quantum(300, 100), &[(quantum(200, 100), departures)]))
                    .flatten(),
                slots: (case % 3 > 0).then_some(&tdma),
                ..plain(draw(0, 100), &same, &higher)
            };
            let own = [same[0].weight];
            let Ok(exact) = level.responses(&own, LIMIT, &mut 1_000_000) else {
                continue;
            };
            let lines = level.lines(&own, LIMIT).expect("the same load");
            assert!(lines[0].response >= exact[0].response, "{level:?}");
            compared += 1;
        }
        assert!(compared > 300, "{compared}");
    }

    #[test]
    fn no_input_overflows_or_runs_for_ever() {
        let huge = work(1 << 60, u64::MAX, u64::MAX);
        let close = [
            work(1_000_000_007, 500_000_000, 0),
            work(1_000_000_009, 500_000_003, 5),
        ];
        for same in [&[huge][..], &close[..], &[work(1, 1, 0)]] {
            let higher = [huge];
            let level = Level {
                weighted: weighted(quantum(u64::from(u32::MAX), 9_300), &[(quantum(1, 1), None)]),
                ..plain(u64::MAX / 2, same, &higher)
            };
            assert!(level.responses(&[1, u64::MAX], LIMIT, &mut 10_000).is_err());
        }
    }
}
