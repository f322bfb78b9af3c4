//! The emulator's own error as a history: what happened to the departures in each window of 100 ms, and when the loop did not
//! get round although something was due. Fixed arrays; nothing here allocates, locks or waits.

use hdrhistogram::Histogram;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Length of a window. A data plane that did not run closes its window when it runs again: that one is longer.
pub(crate) const WINDOW_NS: u64 = 100_000_000;
/// A round of the loop that came this late counts as an overrun. A wake-up of an idle virtual machine is late by 0.1 ms.
const OVERRUN_NS: u64 = 1_000_000;

/// One window of a data plane's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    /// Run time.
    pub start_ns: u64,
    pub end_ns: u64,
    /// Which thread of the data plane.
    pub thread: u32,
    /// Frames handed over.
    pub frames: u32,
    /// Real handover minus virtual arrival, to 3 %.
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// Frames later than the plan's `late_frame_ns`.
    pub late: u32,
    /// Frames handed over before their time.
    pub early: u32,
    /// Frames that found the ring full.
    pub ring_lost: u32,
    /// Frames that the receiving kernel did not take.
    pub refused: u32,
    /// How often the wall clock was set.
    pub clock_steps: u32,
    /// Rounds that came [`OVERRUN_NS`] late or more, and by how much together.
    pub overruns: u32,
    pub overrun_ns: u64,
    /// The latest round, and when it came (run time): from `gap_end_ns - gap_ns` on the data plane should have run.
    pub gap_ns: u64,
    pub gap_end_ns: u64,
    /// CPU time of the thread, and time in which it could have run but another did (`/proc/thread-self/schedstat`).
    pub cpu_ns: u64,
    pub wait_ns: u64,
}

/// What the run's precision is judged by, over the whole run.
#[derive(Debug, Clone)]
pub(crate) struct Lateness {
    /// Real handover minus virtual arrival, ns.
    pub(crate) histogram: Histogram<u64>,
    /// Frames handed over before their time (there must be none).
    pub(crate) early: u64,
    /// Frames later than the plan's `late_frame_ns`.
    pub(crate) late: u64,
}

impl Lateness {
    fn new() -> Self {
        // 1 ns to 100 s in three digits: fixed bounds, so recording never allocates.
        let histogram = Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("constant bounds are valid");
        Self {
            histogram,
            early: 0,
            late: 0,
        }
    }
}

/// Which lateness counts against the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged {
    /// A frame later than this is a late one.
    pub(crate) late_frame: u64,
    /// Length of the measured run. Lateness after it is recorded with the frames, but not judged: all connections close then.
    pub(crate) duration: u64,
}

/// What was counted since the last window by others.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) ring_lost: u64,
    pub(crate) refused: u64,
    pub(crate) clock_steps: u64,
}

/// The history of one thread.
pub(crate) struct History {
    pub(crate) total: Lateness,
    judged: Judged,
    /// CLOCK_MONOTONIC at time zero; none before the measured run.
    origin: Option<u64>,
    /// CLOCK_MONOTONIC of the end of this window.
    closes: u64,
    window: Window,
    buckets: Buckets,
    /// When the loop was to come round.
    due: u64,
    before: Counts,
    schedstat: Option<File>,
    scheduled: (u64, u64),
}

impl History {
    pub(crate) fn new(judged: Judged) -> Self {
        Self {
            total: Lateness::new(),
            judged,
            origin: None,
            closes: u64::MAX,
            window: Window::default(),
            buckets: Buckets::new(),
            due: u64::MAX,
            before: Counts::default(),
            schedstat: None,
            scheduled: (0, 0),
        }
    }

    /// Called by the thread itself, whose scheduling is watched from now on.
    pub(crate) fn enter_thread(&mut self) {
        // A host without /proc or schedstats (CONFIG_SCHED_INFO) has zeros there.
        self.schedstat = File::open("/proc/thread-self/schedstat").ok();
    }

    /// Time zero lies at `origin`; what was counted before does not matter.
    pub(crate) fn begin(&mut self, origin: u64) {
        self.total = Lateness::new();
        self.buckets.clear();
        self.origin = Some(origin);
        self.window = Window::default();
        self.closes = origin + WINDOW_NS.min(self.judged.duration.max(1));
        self.before = Counts::default();
        self.scheduled = self.read_schedule();
    }

    /// The loop has come round at `now`.
    #[inline]
    pub(crate) fn look(&mut self, now: u64) {
        let late = now.saturating_sub(self.due);
        self.due = now;
        if late > self.window.gap_ns {
            self.note_gap(late, now);
        } else if late >= OVERRUN_NS {
            self.note_overrun(late, now);
        }
    }

    /// The loop is to come round at `until` at the latest.
    #[inline]
    pub(crate) fn rest(&mut self, until: u64) {
        self.due = until;
    }

    #[cold]
    fn note_gap(&mut self, late: u64, now: u64) {
        // Of what reached back before time zero only the part behind it belongs to the run.
        if let Some(time) = self.origin.and_then(|origin| now.checked_sub(origin)) {
            let late = late.min(time);
            (self.window.gap_ns, self.window.gap_end_ns) = (late.max(self.window.gap_ns), time);
            self.note_overrun(late, now);
        }
    }

    #[cold]
    fn note_overrun(&mut self, late: u64, now: u64) {
        if late >= OVERRUN_NS && self.origin.is_some_and(|origin| now >= origin) {
            self.window.overruns += 1;
            self.window.overrun_ns += late;
        }
    }

    /// A frame that was due at `due` (virtual arrival) was handed over at `now`; its lateness.
    #[inline]
    pub(crate) fn handed_over(&mut self, due: u64, now: u64) -> u64 {
        let lateness = now.saturating_sub(due);
        let early = u32::from(now < due);
        self.total.early += u64::from(early);
        self.window.early += early;
        self.window.frames += 1;
        self.window.max_ns = self.window.max_ns.max(lateness);
        self.buckets.record(lateness);
        if self
            .origin
            .is_none_or(|origin| due.saturating_sub(origin) <= self.judged.duration)
        {
            let late = u32::from(lateness > self.judged.late_frame);
            self.window.late += late;
            self.total.late += u64::from(late);
            self.total.histogram.saturating_record(lateness.max(1));
        }
        lateness
    }

    /// Is the window over?
    #[inline]
    pub(crate) fn is_over(&self, now: u64) -> bool {
        now >= self.closes
    }

    /// Closes the window; none before time zero. `counts` are those since time zero.
    pub(crate) fn close(&mut self, now: u64, counts: Counts) -> Option<Window> {
        let time = now.checked_sub(self.origin?)?;
        let mut window = std::mem::take(&mut self.window);
        window.end_ns = time;
        (window.p50_ns, window.p99_ns) = self.buckets.quantiles(window.max_ns);
        self.buckets.clear();
        let since = |now: u64, before: u64| u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX);
        window.ring_lost = since(counts.ring_lost, self.before.ring_lost);
        window.refused = since(counts.refused, self.before.refused);
        window.clock_steps = since(counts.clock_steps, self.before.clock_steps);
        self.before = counts;
        let scheduled = self.read_schedule();
        window.cpu_ns = scheduled.0.saturating_sub(self.scheduled.0);
        window.wait_ns = scheduled.1.saturating_sub(self.scheduled.1);
        self.scheduled = scheduled;
        self.window.start_ns = time;
        self.window.thread = window.thread;
        // On the grid, but for one border more where the judged part ends.
        let next = (time / WINDOW_NS + 1) * WINDOW_NS;
        let end = self.judged.duration;
        self.closes = now - time + if time < end { next.min(end) } else { next };
        Some(window)
    }

    /// CPU time and waiting time of this thread, ns.
    fn read_schedule(&self) -> (u64, u64) {
        let mut text = [0u8; 96];
        let Some(length) = self
            .schedstat
            .as_ref()
            .and_then(|file| file.read_at(&mut text, 0).ok())
        else {
            return (0, 0);
        };
        let mut numbers = text[..length].split(u8::is_ascii_whitespace).map(|digits| {
            digits.iter().fold(0u64, |sum, digit| {
                sum.wrapping_mul(10)
                    .wrapping_add(u64::from(digit.wrapping_sub(b'0')))
            })
        });
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }
}

/// Sub-buckets of an octave: values are kept to 1/32 of themselves.
const FINE: u32 = 5;
/// Octaves from 1 ns to 2^36 ns (69 s); later frames count in the last bucket.
const OCTAVES: u32 = 36;

/// A histogram of one window: log-linear as in HdrHistogram, but small enough to be scanned ten times a second.
struct Buckets {
    counts: Box<[u32; ((OCTAVES - FINE + 1) << FINE) as usize]>,
    frames: u32,
}

impl Buckets {
    fn new() -> Self {
        Self {
            counts: Box::new([0; _]),
            frames: 0,
        }
    }

    fn clear(&mut self) {
        if self.frames > 0 {
            self.counts.fill(0);
            self.frames = 0;
        }
    }

    #[inline]
    fn index(value: u64) -> usize {
        let value = value.min((1 << OCTAVES) - 1);
        if value < 1 << FINE {
            return value as usize;
        }
        let octave = value.ilog2() - FINE;
        (((octave + 1) as usize) << FINE) + ((value >> octave) as usize & ((1 << FINE) - 1))
    }

    /// Greatest value of a bucket.
    fn top(index: usize) -> u64 {
        let (octave, fine) = (index >> FINE, (index & ((1 << FINE) - 1)) as u64);
        if octave == 0 {
            return fine;
        }
        (((1 << FINE) + fine + 1) << (octave - 1)) - 1
    }

    #[inline]
    fn record(&mut self, value: u64) {
        self.counts[Self::index(value)] += 1;
        self.frames += 1;
    }

    /// p50 and p99, never above `max`; zero without frames.
    fn quantiles(&self, max: u64) -> (u64, u64) {
        let wanted = [self.frames.div_ceil(2), (self.frames - self.frames / 100).max(1)];
        let mut found = [0; 2];
        let mut sum = 0;
        for (index, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            for (wanted, found) in wanted.iter().zip(&mut found) {
                if sum < *wanted && sum + count >= *wanted {
                    *found = Self::top(index).min(max);
                }
            }
            sum += count;
        }
        (found[0], found[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUDGED: Judged = Judged {
        late_frame: 5_000_000,
        duration: 250_000_000,
    };

    #[test]
    fn buckets_hold_every_value_to_three_percent() {
        let mut last = 0;
        for value in (0..40).flat_map(|octave| [1u64 << octave, (1 << octave) + (1 << octave) / 3]) {
            let index = Buckets::index(value);
            assert!(index >= last, "{value}");
            last = index;
            let top = Buckets::top(index);
            let value = value.min((1 << OCTAVES) - 1);
            assert!(top >= value && top - value <= value / 32, "{value} {top}");
        }
    }

    #[test]
    fn the_quantiles_of_a_window_are_those_of_its_frames() {
        let mut buckets = Buckets::new();
        (1..=100).for_each(|value| buckets.record(value * 1_000));
        let (p50, p99) = buckets.quantiles(100_000);
        assert!((50_000..=51_600).contains(&p50), "{p50}");
        assert!((99_000..=100_000).contains(&p99), "{p99}");
        buckets.clear();
        assert_eq!(buckets.quantiles(0), (0, 0));
    }

    #[test]
    fn windows_lie_on_the_grid_and_end_where_the_judged_part_does() {
        let mut history = History::new(JUDGED);
        history.begin(1_000);
        let mut ends = Vec::new();
        for now in (0..400).map(|ms| 1_000 + ms * 1_000_000) {
            if history.is_over(now) {
                let window = history.close(now, Counts::default()).unwrap();
                ends.push((window.start_ns / 1_000_000, window.end_ns / 1_000_000));
            }
        }
        assert_eq!(ends, [(0, 100), (100, 200), (200, 250), (250, 300)]);
    }

    #[test]
    fn a_loop_that_was_held_up_is_noticed_without_any_frame() {
        let mut history = History::new(JUDGED);
        history.begin(0);
        history.look(10_000_000);
        history.rest(60_000_000);
        history.look(310_000_000);
        let window = history.close(310_000_000, Counts::default()).unwrap();
        assert_eq!((window.frames, window.overruns), (0, 1));
        assert_eq!((window.gap_ns, window.gap_end_ns), (250_000_000, 310_000_000));
    }

    #[test]
    fn a_wake_up_before_its_time_is_no_gap() {
        let mut history = History::new(JUDGED);
        history.begin(0);
        history.rest(50_000_000);
        history.look(20_000_000);
        history.look(20_400_000);
        let window = history.close(100_000_000, Counts::default()).unwrap();
        assert_eq!((window.gap_ns, window.overruns), (400_000, 0));
    }

    #[test]
    fn what_was_before_time_zero_and_after_the_end_is_not_judged() {
        let mut history = History::new(JUDGED);
        history.handed_over(0, 90_000_000);
        history.begin(100_000_000);
        assert_eq!(history.total.late, 0);
        history.handed_over(200_000_000, 206_000_000);
        history.handed_over(360_000_000, 399_000_000);
        assert_eq!((history.total.late, history.total.histogram.len()), (1, 1));
        let window = history.close(400_000_000, Counts::default()).unwrap();
        assert_eq!((window.frames, window.late, window.max_ns), (2, 1, 39_000_000));
    }

    #[test]
    fn the_thread_knows_its_own_scheduling() {
        let mut history = History::new(JUDGED);
        history.enter_thread();
        if history.schedstat.is_none() {
            return;
        }
        let (before, _) = history.read_schedule();
        let begun = std::time::Instant::now();
        while begun.elapsed().as_millis() < 5 {
            std::hint::black_box(begun);
        }
        assert!(history.read_schedule().0 > before);
    }
}
