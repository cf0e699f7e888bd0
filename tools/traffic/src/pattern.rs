//! Reproducible byte patterns: a seed and a position determine each byte.

/// Bytes of one block.
pub const BLOCK: usize = 64 << 10;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection that scatters its input (the finaliser of `SplitMix64`).
pub fn scatter(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Endless sequence of blocks. Block n is one random block with every word changed by a key of n.
/// All words of a block and all blocks differ, at the cost of a copy.
#[derive(Debug)]
pub struct Pattern {
    seed: u64,
    base: Vec<u64>,
}

impl Pattern {
    /// Pattern of a seed.
    pub fn new(seed: u64) -> Self {
        let seed = scatter(seed.wrapping_add(GOLDEN));
        let word = |i: u64| scatter(seed.wrapping_add(i.wrapping_mul(GOLDEN)));
        Self { seed, base: (1..=BLOCK as u64 / 8).map(word).collect() }
    }

    fn key(&self, block: u64) -> u64 {
        scatter(self.seed ^ scatter(block.wrapping_mul(GOLDEN)))
    }

    /// Writes the beginning of a block, at most [`BLOCK`] bytes.
    pub fn fill(&self, block: u64, out: &mut [u8]) {
        let key = self.key(block);
        for (to, base) in out.chunks_mut(8).zip(&self.base) {
            let word = (base ^ key).to_le_bytes();
            match to.len() {
                8 => to.copy_from_slice(&word),
                n => to.copy_from_slice(&word[..n]),
            }
        }
    }

    /// Returns the first position at which `got` differs from the beginning of a block.
    pub fn check(&self, block: u64, got: &[u8]) -> Option<usize> {
        let key = self.key(block);
        let mut words = got.chunks_exact(8);
        let mut difference = 0;
        // The loop has no branch, so the compiler vectorizes it.
        for (word, base) in words.by_ref().zip(&self.base) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            difference |= u64::from_le_bytes(bytes) ^ base ^ key;
        }
        if difference == 0 && words.remainder().is_empty() && got.len() <= BLOCK {
            return None;
        }
        let mut right = vec![0; got.len().min(BLOCK)];
        self.fill(block, &mut right);
        let differs = right.iter().zip(got).position(|(a, b)| a != b);
        differs.or((got.len() > BLOCK).then_some(BLOCK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Goal: an unchanged block verifies, and one flipped bit is found at its position.
        #[test]
        fn a_flipped_bit_is_found(
            seed: u64, block: u64, len in 1..=BLOCK, at: prop::sample::Index, bit in 0..8u32,
        ) {
            let pattern = Pattern::new(seed);
            let mut bytes = vec![0; len];
            pattern.fill(block, &mut bytes);
            prop_assert_eq!(pattern.check(block, &bytes), None);
            let at = at.index(len);
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(pattern.check(block, &bytes), Some(at));
        }

        // Goal: bytes of another block, another stream or another position in the block are
        // rejected.
        #[test]
        fn misplaced_bytes_are_found(seed: u64, block: u64, other: u64, words in 1..100usize) {
            prop_assume!(block != other);
            let mut bytes = vec![0; 4096];
            Pattern::new(seed).fill(block, &mut bytes);
            prop_assert!(Pattern::new(seed).check(other, &bytes).is_some());
            prop_assert!(Pattern::new(seed ^ 1).check(block, &bytes).is_some());
            prop_assert!(Pattern::new(seed).check(block, &bytes[words * 8..]).is_some());
        }
    }

    // Goal: bytes after the end of a block are reported as wrong.
    #[test]
    fn too_long_is_wrong() {
        let pattern = Pattern::new(7);
        let mut bytes = vec![0; BLOCK + 1];
        pattern.fill(3, &mut bytes);
        assert_eq!(pattern.check(3, &bytes), Some(BLOCK));
    }
}
