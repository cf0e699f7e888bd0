//! Pseudo-random numbers from a seed.

/// Generator of 64-bit numbers (the constants of splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Creates a generator. Each combination of seed and words gives another sequence.
    pub(crate) fn new(seed: u64, words: &[&str]) -> Self {
        let mut rng = Self(seed);
        for byte in words.iter().flat_map(|word| word.bytes().chain([0])) {
            rng.0 = rng.next() ^ u64::from(byte);
        }
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Random number from 0 to `end - 1`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Random element of `list`.
    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}
