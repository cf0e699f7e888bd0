//! Sums of bytes in place, for checksums.

use super::Span;

/// Words per step, which the compiler turns into vector instructions.
const WORDS: usize = 8;

impl Span<'_> {
    /// Sum of the 16-bit words in native byte order, modulo 65,535, from the start of the range. A
    /// last single byte is padded with 0. Used for the internet checksum: a concurrent write by a
    /// peer corrupts only a checksum.
    pub fn sum(&self) -> u64 {
        let len = self.len();
        let whole = len - len % (4 * WORDS);
        let mut sums = [0u64; WORDS];
        for at in (0..whole).step_by(4 * WORDS) {
            // SAFETY: at + 32 <= len; the read needs no alignment, and any bytes are valid numbers.
            let words = unsafe { self.ptr.add(at).cast::<[u32; WORDS]>().read_unaligned() };
            for (sum, word) in sums.iter_mut().zip(words) {
                *sum += u64::from(word);
            }
        }
        let mut rest = [0u8; 4 * WORDS];
        self.skip(whole).read_header(&mut rest);
        let (words, _) = rest.as_chunks::<4>();
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum += u64::from(u32::from_ne_bytes(*word));
        }
        // Each term is below 2^58, so the sum of the terms cannot overflow.
        sums.iter().map(|sum| (sum & 0xffff_ffff) + (sum >> 32)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the sum equals that of the words, for every length and alignment, modulo 65,535.
    #[test]
    fn every_length_is_summed() {
        let bytes: Vec<u8> = (0..400u32).map(|i| (i * 7 + i / 5) as u8).collect();
        for from in 0..5 {
            for len in 0..bytes.len() - from {
                let part = &bytes[from..from + len];
                let words = part.chunks(2).map(|word| {
                    u64::from(u16::from_ne_bytes([word[0], *word.get(1).unwrap_or(&0)]))
                });
                let (sum, slow) = (Span::of(part).sum(), words.sum::<u64>());
                assert_eq!(sum % 65_535, slow % 65_535, "{from} {len}");
                assert_eq!(sum == 0, slow == 0, "{from} {len}");
            }
        }
    }
}
