//! From the vertices of `S` and the steps of `H` to worst cases: responses and what waits.

use crate::bundle::ONE;
use crate::demand::HORIZON;

/// `S` at `t`, just before and at it; behind it rises with `slope` (the sum of `lines` lines, each rounded up).
#[derive(Debug, Clone, Copy)]
pub(super) struct Vertex {
    pub(super) t: u64,
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) slope: u64,
    pub(super) lines: u64,
}

/// What decides about a class's responses.
#[derive(Debug)]
pub(super) enum Form<'a> {
    Exact {
        vertices: &'a [Vertex],
        /// `H(0)`, then the steps of `H` as (window, work).
        at_once: u64,
        steps: &'a [(u64, u64)],
    },
    /// `B + S(0)` and `H(0)` as straight lines, and the share of the higher classes in 2^-60.
    Fluid { work: u128, higher_share: u128 },
}

/// Response times of one class, for every transmission time in it.
#[derive(Debug)]
pub(crate) struct Responses<'a> {
    pub(super) blocking: u64,
    pub(super) form: Form<'a>,
}

/// The worst case of a frame, and what it is made of: `response = blocking + same + higher - window`, where `same` contains the
/// frame itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Worst {
    pub(crate) response: u64,
    /// From the start of the busy period to the frame's arrival.
    pub(crate) window: u64,
    pub(crate) same: u64,
    pub(crate) higher: u64,
}

/// A part of a busy period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its first and last instant.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// No frame that arrives in it starts later.
    pub(crate) reach: u64,
}

pub(super) fn bounded(work: u128) -> Option<u64> {
    u64::try_from(work).ok().filter(|work| *work <= HORIZON)
}

/// Which steps of `H` a start passes: with `K` ahead of it and all steps before the `i`-th, it passes that one if the step is at most at
/// `K + H` so far. So the first step that is not passed is the first at which the largest "time of a step less `H` before it" is above `K`.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    /// By step: that largest difference (0 if it is below), and `H` before it; then `H` after all.
    steps: Vec<(u64, u64)>,
}

impl Starts {
    fn fill(&mut self, at_once: u64, steps: &[(u64, u64)]) {
        self.steps.clear();
        self.steps.reserve(steps.len() + 1);
        let (mut most, mut higher) = (0, at_once);
        for &(at, added) in steps {
            most = at.saturating_sub(higher).max(most);
            self.steps.push((most, higher));
            higher += added;
        }
        self.steps.push((u64::MAX, higher));
    }
    /// How many steps are passed with `ahead`, at least `from`.
    fn passed(&self, ahead: u64, mut from: usize) -> usize {
        while self.steps[from].0 <= ahead {
            from += 1;
        }
        from
    }
    /// The same where `to` are passed with more.
    fn passed_within(&self, ahead: u64, to: usize) -> usize {
        self.steps[..to].partition_point(|(most, _)| *most <= ahead)
    }
    fn higher(&self, passed: usize) -> u64 {
        self.steps[passed].1
    }
}

/// Walks along `S` with the steps of `H`.
struct Walk<'a> {
    /// `B - C_i`; what `S` adds to is never less than nothing.
    blocking: u64,
    own: u64,
    higher: u64,
    steps: &'a [(u64, u64)],
    taken: usize,
    worst: Worst,
}

impl Walk<'_> {
    /// A frame that arrives at `t` when `same` is the work of the class.
    fn see(&mut self, t: u64, same: u64) {
        let mut start = (self.blocking + same).saturating_sub(self.own) + self.higher;
        while let Some(&(_, added)) = self.steps.get(self.taken).filter(|(at, _)| *at <= start) {
            start += added;
            self.higher += added;
            self.taken += 1;
        }
        // A start before t is no start: without this frame the port would have been idle by then.
        let response = (start + self.own).saturating_sub(t);
        if response > self.worst.response {
            self.worst = Worst {
                response,
                window: t,
                same,
                higher: self.higher,
            };
        }
    }

    /// On a line that rises slower than time goes, the starts that pass a release of a higher class.
    fn rise(&mut self, from: &Vertex, to: &Vertex) {
        while let Some(&(at, _)) = self.steps.get(self.taken) {
            let same = (at + self.own).saturating_sub(self.higher + self.blocking);
            if same > to.before {
                return;
            }
            // Every line is rounded up to the nanosecond: the true one may be there earlier.
            let risen = u128::from(same.saturating_sub(from.after + from.lines)) << 32;
            let t = from.t + (risen / u128::from(from.slope)).min(u128::from(to.t - from.t)) as u64;
            self.see(t, same.max(from.after));
        }
    }
}

impl Responses<'_> {
    /// The response time of a frame of the class that takes `own` to transmit; `None` beyond the horizon.
    pub(crate) fn of(&self, own: u64) -> Option<Worst> {
        match &self.form {
            Form::Exact {
                vertices,
                at_once,
                steps,
            } => {
                let mut walk = Walk {
                    blocking: self.blocking,
                    own,
                    higher: *at_once,
                    steps,
                    taken: 0,
                    worst: Worst::default(),
                };
                for (index, vertex) in vertices.iter().enumerate() {
                    if let Some(from) = index
                        .checked_sub(1)
                        .map(|index| &vertices[index])
                        .filter(|from| from.slope > 0)
                    {
                        if from.slope < ONE {
                            walk.rise(from, vertex);
                        }
                        walk.see(vertex.t, vertex.before);
                    }
                    walk.see(vertex.t, vertex.after);
                }
                Some(walk.worst)
            }
            Form::Fluid { work, higher_share } => {
                let free = (1u128 << 60) - higher_share;
                let start = (work.saturating_sub(u128::from(own)) << 60).div_ceil(free);
                let response = bounded(start + u128::from(own))?;
                Some(Worst {
                    response,
                    window: 0,
                    same: response - self.blocking.min(response),
                    higher: 0,
                })
            }
        }
    }

    /// The response times alone of frames, where they are longer than what is `found` of them: transmission times and responses. Frames of
    /// slow lines it does not know: all slopes are 1 or more, or 0.
    pub(crate) fn longest(&self, starts: &mut Starts, found: &mut [(u64, u64)]) -> Option<()> {
        let Form::Exact {
            vertices,
            at_once,
            steps,
        } = &self.form
        else {
            return None;
        };
        starts.fill(*at_once, steps);
        let shortest = |found: &[(u64, u64)]| found.iter().map(|(_, response)| *response).min();
        let (mut passed, mut least) = (0, shortest(found)?);
        let mut see = |t: u64, same: u64| {
            // A frame is sent by the time at which one that takes no time at all could begin.
            let work = self.blocking + same;
            passed = starts.passed(work, passed);
            if (work + starts.higher(passed)).saturating_sub(t) <= least {
                return;
            }
            for (frame, longest) in &mut *found {
                let ahead = work.saturating_sub(*frame);
                let start = ahead + starts.higher(starts.passed_within(ahead, passed));
                *longest = (start + *frame).saturating_sub(t).max(*longest);
            }
            least = shortest(found).unwrap_or(u64::MAX);
        };
        for (index, vertex) in vertices.iter().enumerate() {
            if index > 0 && vertices[index - 1].slope > 0 {
                see(vertex.t, vertex.before);
            }
            see(vertex.t, vertex.after);
        }
        Some(())
    }

    /// The part of the busy period outside of which no frame takes longer than what is `known` of it: transmission times and responses.
    /// `None` inside where there is no such part at all. As with [`Responses::longest`], all slopes are 1 or more, or 0.
    pub(crate) fn longer(&self, starts: &mut Starts, known: &[(u64, u64)]) -> Option<Option<Part>> {
        let Form::Exact {
            vertices,
            at_once,
            steps,
        } = &self.form
        else {
            return None;
        };
        starts.fill(*at_once, steps);
        let least = known.iter().map(|(_, response)| *response).min()?;
        let mut passed = 0;
        // When a frame that takes no time at all would begin, if any takes longer.
        let mut begins = |t: u64, same: u64| {
            let work = self.blocking + same;
            passed = starts.passed(work, passed);
            let begin = work + starts.higher(passed);
            let is_longer = |(frame, response): &(u64, u64)| {
                let ahead = work.saturating_sub(*frame);
                let start = ahead + starts.higher(starts.passed_within(ahead, passed));
                (start + *frame).saturating_sub(t) > *response
            };
            (begin.saturating_sub(t) > least && known.iter().any(is_longer)).then_some(begin)
        };
        let mut part: Option<Part> = None;
        for (index, vertex) in vertices.iter().enumerate() {
            let previous = index.checked_sub(1).map(|index| &vertices[index]);
            let before = previous
                .filter(|previous| previous.slope > 0)
                .and_then(|_| begins(vertex.t, vertex.before));
            let begin = begins(vertex.t, vertex.after).or(before);
            match (&mut part, begin) {
                (None, Some(reach)) => {
                    part = Some(Part {
                        // On a line that rises it may have been so since the last vertex.
                        from: previous.map_or(0, |previous| previous.t),
                        to: u64::MAX,
                        reach,
                    });
                }
                (Some(part), Some(reach)) => (part.to, part.reach) = (u64::MAX, reach),
                // What holds at a vertex may hold until the next one.
                (Some(part), None) if part.to == u64::MAX => part.to = vertex.t - 1,
                _ => {}
            }
        }
        // Nobody has to start after he arrives.
        Some(part.map(|part| Part {
            to: part.to.min(part.reach),
            ..part
        }))
    }

    /// No release after this window counted; `None` where all of them do.
    pub(crate) fn end(&self) -> Option<u64> {
        let Form::Exact {
            vertices,
            at_once,
            steps,
        } = &self.form
        else {
            return None;
        };
        let same = vertices.last().map_or(0, |vertex| vertex.after);
        let higher = steps
            .iter()
            .fold(*at_once, |sum, (_, added)| sum.saturating_add(*added));
        Some(self.blocking.saturating_add(same).saturating_add(higher))
    }

    /// Work of the class and all above it that can be there at once, in nanoseconds: `max over t of B + S(t) + H(t) - t`.
    pub(crate) fn pending(&self) -> Option<u64> {
        let Form::Exact {
            vertices,
            at_once,
            steps,
        } = &self.form
        else {
            return Some(self.of(0)?.response);
        };
        let (mut higher, mut taken, mut most) = (*at_once, 0, 0);
        for (index, vertex) in vertices.iter().enumerate() {
            let from = index.checked_sub(1).map(|index| &vertices[index]);
            while let Some(&(at, added)) = steps.get(taken).filter(|(at, _)| *at <= vertex.t) {
                higher += added;
                taken += 1;
                let same = from.map_or(vertex.after, |from| vertex.before.min(rise(from, at)));
                most = most.max((self.blocking + same + higher).saturating_sub(at));
            }
            most =
                most.max((self.blocking + vertex.after.max(vertex.before) + higher).saturating_sub(vertex.t));
        }
        let same = vertices.last().map_or(0, |vertex| vertex.after);
        for &(at, added) in &steps[taken..] {
            higher += added;
            most = most.max((self.blocking + same + higher).saturating_sub(at));
        }
        Some(most)
    }

    /// Work of the class alone that can wait at once: how far `S` rises above what the class has been served by then, which is at least
    /// `max over v <= t of v - B - H(v)`.
    pub(crate) fn backlog(&self) -> Option<u64> {
        let Form::Exact {
            vertices,
            at_once,
            steps,
        } = &self.form
        else {
            return Some(self.of(0)?.response);
        };
        let mut service = Service {
            blocking: self.blocking,
            higher: *at_once,
            steps,
            taken: 0,
            served: 0,
        };
        let mut most = 0;
        for (index, vertex) in vertices.iter().enumerate() {
            if let Some(from) = index
                .checked_sub(1)
                .map(|index| &vertices[index])
                .filter(|from| from.slope > 0)
            {
                // On a slow line what waits is most where the service begins again: no later than the next step of H.
                while from.slope < ONE && service.next() < vertex.t {
                    let at = service.next();
                    let served = service.served;
                    service.pass();
                    most = most.max(vertex.before.min(rise(from, at)).saturating_sub(served));
                }
                if from.slope < ONE {
                    most = most.max(vertex.before.saturating_sub(service.served));
                }
                most = most.max(vertex.before.saturating_sub(service.until(vertex.t)));
            }
            most = most.max(vertex.after.saturating_sub(service.until(vertex.t)));
        }
        Some(most)
    }
}

/// `S` on the line behind `from`, rounded up.
fn rise(from: &Vertex, t: u64) -> u64 {
    let risen = (u128::from(from.slope) * u128::from(t - from.t)).div_ceil(u128::from(ONE));
    from.after
        .saturating_add(u64::try_from(risen).unwrap_or(u64::MAX))
        .saturating_add(from.lines)
}

/// What the class has been served at least.
struct Service<'a> {
    blocking: u64,
    higher: u64,
    steps: &'a [(u64, u64)],
    taken: usize,
    served: u64,
}

impl Service<'_> {
    fn next(&self) -> u64 {
        self.steps.get(self.taken).map_or(u64::MAX, |(at, _)| *at)
    }
    /// Takes the next step of `H`.
    fn pass(&mut self) {
        let (at, added) = self.steps[self.taken];
        self.served = self
            .served
            .max(at.saturating_sub(self.blocking.saturating_add(self.higher)));
        self.higher = self.higher.saturating_add(added);
        self.taken += 1;
    }
    fn until(&mut self, t: u64) -> u64 {
        while self.next() <= t {
            self.pass();
        }
        self.served = self
            .served
            .max(t.saturating_sub(self.blocking.saturating_add(self.higher)));
        self.served
    }
}
