//! How figures are spread.

use std::fmt;

/// Ratios, sorted.
#[derive(Debug, Clone, Default)]
pub struct Spread(Vec<f64>);

impl Spread {
    #[must_use]
    pub fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }
    /// The value below which a share of the others lies; NaN where there are none.
    #[must_use]
    pub fn at(&self, share: f64) -> f64 {
        let place = (self.0.len().max(1) - 1) as f64 * share;
        self.0.get(place as usize).copied().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "mean {:.3}, median {:.3}, p90 {:.3}, p95 {:.3}, max {:.2}",
            self.mean(),
            self.at(0.5),
            self.at(0.9),
            self.at(0.95),
            self.at(1.0)
        )
    }
}
