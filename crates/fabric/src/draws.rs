//! Seeded, named random streams. Integer arithmetic only, so every machine draws the same numbers.
//!
//! The generator is PCG XSL-RR 128/64 (O'Neill 2014, HMC-CS-2014-0905): one 128-bit multiplication per draw, and an
//! increment of its own for every name, so two streams never run through the same sequence.

use timebound_model::Span;

/// A stream's name, hashed once so that a reset with another seed costs no string work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamName(u128);

impl StreamName {
    /// The name of what is drawn for (`h1->s1`) and what for (`loss`).
    #[must_use]
    pub fn new(name: &str, purpose: &str) -> Self {
        // FNV-1a with 128 bits; 0xff cannot occur in UTF-8, so ("ab", "c") and ("a", "bc") differ.
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        for byte in name.bytes().chain([0xff]).chain(purpose.bytes()) {
            hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
        }
        Self(hash)
    }

    /// The stream of this name under `seed`.
    #[must_use]
    pub fn draws(self, seed: u64) -> Draws {
        let (high, low) = ((self.0 >> 64) as u64, self.0 as u64);
        let word = |salt: u64, part: u64| u128::from(mix(mix(seed ^ salt) ^ part));
        let start = word(0x9e37_79b9_7f4a_7c15, high) << 64 | word(0xd1b5_4a32_d192_ed03, low);
        let sequence = word(0x8cb9_2ba7_2f3d_8dd7, low) << 64 | word(0xaef1_7502_108e_f2d9, high);
        let mut draws = Draws {
            state: 0,
            increment: sequence << 1 | 1,
        };
        draws.step();
        draws.state = draws.state.wrapping_add(start);
        draws.step();
        draws
    }
}

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A random stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draws {
    state: u128,
    increment: u128,
}

impl Draws {
    /// The stream named (`name`, `purpose`) under `seed`.
    #[must_use]
    pub fn named(seed: u64, name: &str, purpose: &str) -> Self {
        StreamName::new(name, purpose).draws(seed)
    }

    #[inline]
    fn step(&mut self) {
        const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// Uniform on all 64-bit numbers.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.step();
        (((self.state >> 64) ^ self.state) as u64).rotate_right((self.state >> 122) as u32)
    }

    /// Uniform on `0..=greatest`; one draw, with a bias below `greatest / 2^64`.
    #[inline]
    pub fn up_to(&mut self, greatest: u64) -> u64 {
        let wide = u128::from(self.bits()) * (u128::from(greatest) + 1);
        (wide >> 64) as u64
    }

    /// Uniform on the open interval (0, 1), in steps of 2^-52 (all of them exact in binary64).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
    }

    /// Exponential with this mean; the logarithm is `libm`'s, the same on every machine.
    pub fn exponential(&mut self, mean: Span) -> Span {
        Span((-(mean.0 as f64) * libm::log(self.unit())) as u64)
    }

    /// True with probability `chance`; always takes one draw.
    #[inline]
    pub fn hits(&mut self, chance: Chance) -> bool {
        self.bits() < chance.threshold || chance.certain
    }
}

/// A probability as an integer threshold, converted once: comparing integers is the same on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chance {
    threshold: u64,
    certain: bool,
}

impl Chance {
    /// From a probability; values outside 0..=1 (and NaN) are taken as the nearer end.
    #[must_use]
    pub fn new(probability: f64) -> Self {
        // Multiplying by a power of two is exact; the cast saturates.
        Self {
            threshold: (probability * 18_446_744_073_709_551_616.0) as u64,
            certain: probability >= 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_draws_are_the_same_on_every_machine() {
        let mut draws = Draws::named(1, "h1->s1", "loss");
        let first: Vec<u64> = (0..3).map(|_| draws.bits()).collect();
        assert_eq!(
            first, FIRST,
            "changing the generator changes every seeded result: say so in the changelog"
        );
    }
    const FIRST: [u64; 3] = [
        3_978_480_106_556_887_129,
        11_953_871_780_568_422_041,
        15_692_016_389_392_122_066,
    ];

    #[test]
    fn names_and_purposes_are_independent() {
        let mut seen = std::collections::BTreeSet::new();
        for (name, purpose) in [("ab", "c"), ("a", "bc"), ("ab", "d"), ("b", "c")] {
            assert!(seen.insert(Draws::named(7, name, purpose).bits()));
        }
        assert!(seen.insert(Draws::named(8, "ab", "c").bits()));
    }

    #[test]
    fn certain_and_impossible() {
        let mut draws = Draws::named(1, "x", "y");
        assert!((0..1000).all(|_| draws.hits(Chance::new(1.0))));
        assert!((0..1000).all(|_| !draws.hits(Chance::new(0.0))));
    }

    #[test]
    fn uniform_range_reaches_both_ends_and_is_even() {
        let mut draws = Draws::named(3, "x", "y");
        let mut counts = [0u32; 5];
        for _ in 0..50_000 {
            counts[draws.up_to(4) as usize] += 1;
        }
        assert!(counts.iter().all(|c| (9_500..10_500).contains(c)), "{counts:?}");
        let mut draws = Draws::named(3, "x", "y");
        let _ = draws.up_to(u64::MAX);
    }

    #[test]
    fn chances_are_met() {
        let mut draws = Draws::named(9, "x", "y");
        let hits = (0..100_000).filter(|_| draws.hits(Chance::new(0.3))).count();
        assert!((29_400..30_600).contains(&hits), "{hits}");
    }
}
