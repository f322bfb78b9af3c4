//! Load and queues of every port over time, in a bounded number of intervals.

use crate::outcome::{Interval, PortOutcome};
use timebound_fabric::{Fabric, PortCounters};
use timebound_model::{Network, PortId, Span};

/// When so many intervals are full, pairs of them are joined and the interval doubles.
const MOST_INTERVALS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Series {
    interval: u64,
    /// Counters at the start of the measured part.
    start: Vec<PortCounters>,
    /// Counters at the end of the last piece.
    last: Vec<PortCounters>,
    ports: Vec<Vec<Interval>>,
    /// Pieces of the original interval in the current, unfinished interval, and how many make a whole one.
    pieces: u32,
    whole: u32,
}

impl Series {
    pub(crate) fn begin(fabric: &mut Fabric, interval: Span) -> Self {
        fabric.begin_window();
        let start: Vec<PortCounters> = counters(fabric).collect();
        let ports = vec![Vec::new(); start.len()];
        Self {
            interval: interval.0,
            last: start.clone(),
            start,
            ports,
            pieces: 0,
            whole: 1,
        }
    }

    /// Ends a piece of one original interval.
    pub(crate) fn sample(&mut self, fabric: &mut Fabric) {
        for ((now, last), series) in counters(fabric).zip(&mut self.last).zip(&mut self.ports) {
            let piece = difference(&now, last, now.window_queue_bytes);
            match series.last_mut() {
                Some(open) if self.pieces > 0 => join(open, &piece),
                _ => series.push(piece),
            }
            *last = now;
        }
        fabric.begin_window();
        self.pieces += 1;
        if self.pieces == self.whole {
            self.pieces = 0;
            if self
                .ports
                .first()
                .is_some_and(|series| series.len() == MOST_INTERVALS)
            {
                self.coarsen();
            }
        }
    }

    fn coarsen(&mut self) {
        for series in &mut self.ports {
            for pair in 0..series.len() / 2 {
                let mut joined = series[2 * pair];
                join(&mut joined, &series[2 * pair + 1]);
                series[pair] = joined;
            }
            series.truncate(series.len() / 2);
        }
        self.interval *= 2;
        self.whole *= 2;
    }

    /// Length of one interval, and what every port did in a measured part of length `span`.
    pub(crate) fn finish(self, network: &Network, span: Span) -> (Span, Vec<PortOutcome>) {
        let ports = self
            .ports
            .into_iter()
            .zip(self.start.iter().zip(&self.last))
            .enumerate();
        let outcome = ports.map(|(index, (series, (start, end)))| {
            let largest = series
                .iter()
                .map(|interval| interval.largest_queue_bytes)
                .max()
                .unwrap_or(0);
            let total = difference(end, start, largest);
            let capacity = network.ports[index].rate.0 as f64 * span.0 as f64 / 1e9;
            PortOutcome {
                port: PortId::new(index),
                frames: total.frames,
                wire_bytes: total.wire_bytes,
                dropped_buffer: end.dropped_buffer - start.dropped_buffer,
                dropped_link: end.dropped_link - start.dropped_link,
                largest_queue_bytes: largest,
                largest_class_queue_bytes: end.largest_class_queue_bytes,
                utilisation: if span.0 == 0 {
                    0.0
                } else {
                    total.wire_bytes as f64 * 8.0 / capacity
                },
                series,
            }
        });
        (Span(self.interval), outcome.collect())
    }
}

fn counters(fabric: &Fabric) -> impl Iterator<Item = PortCounters> + '_ {
    (0..fabric.network().ports.len()).map(|port| *fabric.counters(PortId::new(port)))
}

fn difference(now: &PortCounters, before: &PortCounters, largest_queue_bytes: u64) -> Interval {
    Interval {
        frames: now.frames - before.frames,
        wire_bytes: now.wire_bytes - before.wire_bytes,
        dropped: now.dropped_buffer + now.dropped_link - before.dropped_buffer - before.dropped_link,
        largest_queue_bytes,
    }
}

fn join(into: &mut Interval, other: &Interval) {
    into.frames += other.frames;
    into.wire_bytes += other.wire_bytes;
    into.dropped += other.dropped;
    into.largest_queue_bytes = into.largest_queue_bytes.max(other.largest_queue_bytes);
}
