//! Exact long-run utilisation.

use crate::demand::Demand;
use crate::result::Utilisation;

/// Fallback denominator: fine enough that rounding up is invisible, coarse enough that sums stay far from 128 bits.
const FALLBACK: u128 = 1_000_000_000_000_000;

impl Utilisation {
    /// The sum of weight over period.
    pub(crate) fn of(demands: &[Demand]) -> Self {
        let mut parts: Vec<(u64, u64)> = demands.iter().map(|d| (d.period(), d.weight())).collect();
        parts.sort_unstable();
        let by_period: Vec<(u64, u128)> = parts
            .chunk_by(|a, b| a.0 == b.0)
            .map(|same| (same[0].0, same.iter().map(|part| u128::from(part.1)).sum()))
            .collect();
        let (numerator, denominator) = exact(&by_period).unwrap_or_else(|| rounded_up(&by_period));
        Self {
            value: ceil_div_f64(numerator, denominator),
            numerator,
            denominator,
        }
    }

    /// Is there no capacity left? Then queues can grow without limit.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.numerator >= self.denominator
    }
}

/// `None` where the common denominator of the periods needs more than 64 bits.
fn exact(by_period: &[(u64, u128)]) -> Option<(u128, u128)> {
    let mut denominator = 1u64;
    for &(period, _) in by_period {
        denominator = (denominator / gcd(denominator, period)).checked_mul(period)?;
    }
    let mut numerator = 0u128;
    for &(period, weight) in by_period {
        numerator = numerator.checked_add(weight.checked_mul(u128::from(denominator / period))?)?;
    }
    // A common factor of both divides the denominator and what is left of the numerator by it.
    let shared = gcd(denominator, (numerator % u128::from(denominator)) as u64);
    Some((numerator / u128::from(shared), u128::from(denominator / shared)))
}

/// Each summand rounded up: at most 10^-15 per distinct period above the exact value.
fn rounded_up(by_period: &[(u64, u128)]) -> (u128, u128) {
    let share = |&(period, weight): &(u64, u128)| match weight.checked_mul(FALLBACK) {
        Some(scaled) => scaled.div_ceil(u128::from(period)),
        None => (weight / u128::from(period))
            .saturating_add(1)
            .saturating_mul(FALLBACK),
    };
    (
        by_period.iter().map(share).fold(0, u128::saturating_add),
        FALLBACK,
    )
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    if a == 0 { 1 } else { a }
}

/// A float that is not below the fraction: both conversions and the division round to nearest, at most three steps.
fn ceil_div_f64(numerator: u128, denominator: u128) -> f64 {
    let quotient = numerator as f64 / denominator as f64;
    if numerator.is_multiple_of(denominator) && numerator / denominator < 1 << 53 {
        quotient
    } else {
        quotient.next_up().next_up().next_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(u64, u64)]) -> Utilisation {
        let demands: Vec<Demand> = pairs
            .iter()
            .map(|&(weight, period)| Demand::new(period, weight, 0))
            .collect();
        Utilisation::of(&demands)
    }

    #[test]
    fn a_third_and_a_sixth_and_a_half_are_exactly_one() {
        let sum = of(&[(1, 3), (1, 6), (1, 2)]);
        assert_eq!((sum.numerator, sum.denominator, sum.value), (1, 1, 1.0));
        assert!(sum.is_exhausted());
        assert!(!of(&[(1, 3), (1, 6), (499_999, 1_000_000)]).is_exhausted());
    }

    #[test]
    fn incommensurable_periods_are_rounded_up() {
        let primes = [
            999_999_937u64,
            999_999_893,
            999_999_883,
            999_999_797,
            999_999_761,
            999_999_757,
        ];
        let sum = of(&primes.map(|p| (1_000_000, p)));
        assert_eq!(sum.denominator, FALLBACK);
        assert!(sum.value > 6e-3 && sum.value < 6.000_01e-3);
    }

    #[test]
    fn an_idle_port_has_utilisation_zero() {
        assert_eq!(of(&[]).value, 0.0);
        assert!(!of(&[]).is_exhausted());
    }
}
