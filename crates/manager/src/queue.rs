//! Events on their way to whoever polls.

use crate::contract::Event;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Events in one poll at most.
const MOST_AT_ONCE: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Queue {
    events: Mutex<(VecDeque<Event>, bool)>,
    there: Condvar,
    most: usize,
}

impl Queue {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            events: Mutex::new((VecDeque::new(), false)),
            there: Condvar::new(),
            most,
        }
    }

    fn locked(&self) -> MutexGuard<'_, (VecDeque<Event>, bool)> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `false`: there are too many already. What ends something that was told before always has a place: there is no more of that than was told.
    pub(crate) fn push(&self, event: Event) -> bool {
        let ends = matches!(event, Event::Withdrawn { .. } | Event::Closed { .. });
        let mut events = self.locked();
        if !ends && events.0.len() >= self.most {
            return false;
        }
        events.0.push_back(event);
        drop(events);
        self.there.notify_one();
        true
    }

    /// Waits for events as long as that; none if there are none, or after [`Queue::close`].
    pub(crate) fn poll(&self, timeout: Duration) -> Vec<Event> {
        let until = Instant::now() + timeout;
        let mut events = self.locked();
        while events.0.is_empty() && !events.1 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            events = self
                .there
                .wait_timeout(events, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let count = events.0.len().min(MOST_AT_ONCE);
        events.0.drain(..count).collect()
    }

    /// Nobody waits any longer.
    pub(crate) fn close(&self) {
        self.locked().1 = true;
        self.there.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems() -> Event {
        Event::Problems {
            connection: String::new(),
            client_id: String::new(),
            client_address: std::net::Ipv4Addr::LOCALHOST.into(),
            user: None,
            problems: vec![],
        }
    }

    #[test]
    fn what_ends_something_has_a_place_in_a_full_queue() {
        let queue = Queue::new(2);
        assert!(queue.push(problems()) && queue.push(problems()));
        assert!(!queue.push(problems()));
        assert!(queue.push(Event::Withdrawn { id: "a".to_owned() }));
        assert_eq!(queue.poll(Duration::ZERO).len(), 3);
        assert!(queue.push(problems()));
    }

    #[test]
    fn who_waits_is_woken_by_an_event_and_by_the_end() {
        let queue = Queue::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.poll(Duration::from_secs(20)).len());
            queue.push(problems());
            assert_eq!(waiting.join().unwrap(), 1);
            let waiting = scope.spawn(|| queue.poll(Duration::from_secs(20)).len());
            queue.close();
            assert_eq!(waiting.join().unwrap(), 0);
        });
        let begin = Instant::now();
        assert!(queue.poll(Duration::from_secs(20)).is_empty());
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
}
