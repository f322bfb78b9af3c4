//! Jitter: a random delay on top of the propagation delay.
//!
//! One draw per frame, by inversion of the truncated distribution function. Logarithms, powers and the error function
//! come from the `libm` crate (pure Rust on IEEE 754 binary64), and the rest is +, -, *, / and square root, which IEEE 754
//! rounds exactly: every machine gets the same nanoseconds.

use super::Verdict;
use crate::draws::Draws;
use timebound_model::Span;
use timebound_model::declaration::JitterDistribution;

#[derive(Debug, Clone)]
pub(super) struct Jitter {
    shape: Shape,
    max: u64,
}

#[derive(Debug, Clone)]
enum Shape {
    Uniform,
    Constant(u64),
    /// Quantiles between `low` and `high` of the normal distribution lie within the truncation.
    Normal {
        mean: f64,
        deviation: f64,
        low: f64,
        high: f64,
    },
    /// `mass` is the share of the untruncated distribution that lies below the truncation.
    Pareto {
        scale: f64,
        exponent: f64,
        mass: f64,
    },
    Exponential {
        mean: f64,
        mass: f64,
    },
}

impl Jitter {
    pub(super) fn new(distribution: &JitterDistribution) -> Self {
        let (shape, max) = match *distribution {
            JitterDistribution::Uniform { max_ns } => (Shape::Uniform, max_ns),
            JitterDistribution::Normal {
                mean_ns,
                deviation_ns: 0,
                max_ns,
            } => (Shape::Constant(mean_ns.min(max_ns)), max_ns),
            JitterDistribution::Normal {
                mean_ns,
                deviation_ns,
                max_ns,
            } => {
                let (mean, deviation) = (mean_ns as f64, deviation_ns as f64);
                let below = |x: f64| 0.5 * libm::erfc((mean - x) / (deviation * std::f64::consts::SQRT_2));
                (
                    Shape::Normal {
                        mean,
                        deviation,
                        low: below(0.0),
                        high: below(max_ns as f64),
                    },
                    max_ns,
                )
            }
            JitterDistribution::Pareto {
                scale_ns: 0, max_ns, ..
            }
            | JitterDistribution::Exponential { mean_ns: 0, max_ns } => (Shape::Constant(0), max_ns),
            JitterDistribution::Pareto {
                scale_ns,
                alpha,
                max_ns,
            } => {
                let scale = scale_ns as f64;
                let mass = 1.0 - libm::pow(scale / (scale + max_ns as f64), alpha);
                (
                    Shape::Pareto {
                        scale,
                        exponent: -1.0 / alpha,
                        mass,
                    },
                    max_ns,
                )
            }
            JitterDistribution::Exponential { mean_ns, max_ns } => {
                let mean = mean_ns as f64;
                (
                    Shape::Exponential {
                        mean,
                        mass: -libm::expm1(-(max_ns as f64) / mean),
                    },
                    max_ns,
                )
            }
        };
        Self { shape, max }
    }

    pub(super) fn judge(&self, draws: &mut Draws) -> Verdict {
        let nanos = match self.shape {
            Shape::Uniform => draws.up_to(self.max),
            Shape::Constant(nanos) => {
                draws.bits();
                nanos
            }
            // The casts saturate, and a quantile that rounding pushed out of range is cut below.
            Shape::Normal {
                mean,
                deviation,
                low,
                high,
            } => (mean + deviation * normal_quantile(low + draws.unit() * (high - low))) as u64,
            Shape::Pareto {
                scale,
                exponent,
                mass,
            } => (scale * libm::pow(1.0 - draws.unit() * mass, exponent) - scale) as u64,
            Shape::Exponential { mean, mass } => (-mean * libm::log1p(-draws.unit() * mass)) as u64,
        };
        Verdict::Delay(Span(nanos.min(self.max)))
    }
}

/// Quantile of the standard normal distribution (Acklam's rational approximation, relative error below 1.15e-9).
fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    let horner = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    let tail = |p: f64| {
        let q = (-2.0 * libm::log(p)).sqrt();
        horner(&C, q) / horner(&D, q)
    };
    if p <= 0.0 {
        f64::NEG_INFINITY
    } else if p >= 1.0 {
        f64::INFINITY
    } else if p < 0.024_25 {
        tail(p)
    } else if p > 1.0 - 0.024_25 {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        horner(&A, q * q) * q / horner(&B, q * q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(distribution: &JitterDistribution, count: usize) -> Vec<u64> {
        let (rule, mut draws) = (Jitter::new(distribution), Draws::named(11, "a->b", "jitter"));
        (0..count)
            .map(|_| match rule.judge(&mut draws) {
                Verdict::Delay(delay) => delay.0,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn mean(values: &[u64]) -> f64 {
        values.iter().map(|v| *v as f64).sum::<f64>() / values.len() as f64
    }

    #[test]
    fn quantiles_of_the_normal_distribution() {
        for (p, x) in [
            (0.5, 0.0),
            (0.975, 1.959_963_985),
            (0.001, -3.090_232_306),
            (0.841_344_746_1, 1.0),
        ] {
            assert!((normal_quantile(p) - x).abs() < 1e-7, "{p}");
        }
    }

    #[test]
    fn means_are_as_declared() {
        let close = |distribution, expected: f64| {
            let found = mean(&sample(&distribution, 40_000));
            assert!(
                (found - expected).abs() < expected * 0.02,
                "{distribution:?}: {found} against {expected}"
            );
        };
        close(JitterDistribution::Uniform { max_ns: 1_000_000 }, 500_000.0);
        close(
            JitterDistribution::Normal {
                mean_ns: 500_000,
                deviation_ns: 100_000,
                max_ns: 1_000_000,
            },
            500_000.0,
        );
        close(
            JitterDistribution::Exponential {
                mean_ns: 50_000,
                max_ns: 10_000_000,
            },
            50_000.0,
        );
        // Pareto less its scale: scale / (alpha - 1).
        close(
            JitterDistribution::Pareto {
                scale_ns: 100_000,
                alpha: 4.0,
                max_ns: 100_000_000,
            },
            33_333.0,
        );
    }

    proptest! {
        #[test]
        fn never_above_the_truncation(kind in 0..4u8, a in 0u64..2_000_000, b in 0u64..2_000_000, max_ns in 0u64..1_000_000, alpha in 0.01f64..50.0) {
            let distribution = match kind {
                0 => JitterDistribution::Uniform { max_ns },
                1 => JitterDistribution::Normal { mean_ns: a, deviation_ns: b, max_ns },
                2 => JitterDistribution::Pareto { scale_ns: a, alpha, max_ns },
                _ => JitterDistribution::Exponential { mean_ns: a, max_ns },
            };
            prop_assert!(sample(&distribution, 50).iter().all(|nanos| *nanos <= max_ns));
        }
    }
}
