//! The corpora's random numbers.

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, the same everywhere.
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// The stream of network `index` of a corpus.
    #[must_use]
    pub fn of(seed: u64, index: u64) -> Self {
        Self(seed ^ index.wrapping_mul(0xA076_1D64_78BD_642F))
    }
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// Uniform on `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.word() % (high - low + 1)
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        self.word().is_multiple_of(n)
    }
    pub fn choose<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[(self.word() % among.len() as u64) as usize]
    }
}
