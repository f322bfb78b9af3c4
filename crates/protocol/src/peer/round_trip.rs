//! How long to wait for an acknowledgement (RFC 6298).

use timebound_model::units::Span;

/// Smoothed round-trip time, its variation, and the retransmission time-out with its back-off.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundTrip {
    smoothed: Option<(Span, Span)>,
    timeout: Span,
    first: Span,
    least: Span,
    greatest: Span,
}

impl RoundTrip {
    pub(super) const fn new(first: Span, least: Span, greatest: Span) -> Self {
        Self {
            smoothed: None,
            timeout: first,
            first,
            least,
            greatest,
        }
    }

    /// A round trip of a datagram that was sent once (section 3).
    pub(super) fn sample(&mut self, measured: Span) {
        let (mean, variation) = match self.smoothed {
            None => (measured, Span(measured.0 / 2)),
            Some((mean, variation)) => {
                let off = mean.0.abs_diff(measured.0);
                let variation = Span(variation.0 / 4 * 3 + off / 4);
                (Span(mean.0 / 8 * 7 + measured.0 / 8), variation)
            }
        };
        self.smoothed = Some((mean, variation));
        self.timeout = self.bounded(mean.saturating_add(Span(variation.0.saturating_mul(4))));
    }

    /// A time-out passed without an answer (section 5.5).
    pub(super) fn back_off(&mut self) {
        self.timeout = self.bounded(Span(self.timeout.0.saturating_mul(2)));
    }

    /// There was progress: the back-off is over (section 5.7).
    pub(super) fn progress(&mut self) {
        self.timeout = match self.smoothed {
            Some((mean, variation)) => self.bounded(mean.saturating_add(Span(variation.0.saturating_mul(4)))),
            None => self.first,
        };
    }

    pub(super) const fn timeout(&self) -> Span {
        self.timeout
    }

    fn bounded(&self, span: Span) -> Span {
        span.max(self.least).min(self.greatest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_ends_the_back_off_before_anything_was_measured() {
        let ms = Span::from_millis;
        let mut trip = RoundTrip::new(ms(100), ms(10), ms(1_000));
        trip.back_off();
        trip.back_off();
        assert_eq!(trip.timeout(), ms(400));
        trip.progress();
        assert_eq!(trip.timeout(), ms(100));
    }

    #[test]
    fn the_timeout_follows_the_round_trip_and_backs_off() {
        let ms = Span::from_millis;
        let mut trip = RoundTrip::new(ms(100), ms(10), ms(1_000));
        assert_eq!(trip.timeout(), ms(100));
        trip.sample(ms(8));
        assert_eq!(trip.timeout(), ms(24));
        for _ in 0..100 {
            trip.sample(ms(8));
        }
        // No variation is left: the least one counts.
        assert_eq!(trip.timeout(), ms(10));
        for _ in 0..20 {
            trip.back_off();
        }
        assert_eq!(trip.timeout(), ms(1_000));
        trip.progress();
        assert_eq!(trip.timeout(), ms(10));
    }
}
