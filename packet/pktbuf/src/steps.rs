//! Handles on their way into and out of the pool's array, in steps of one width.
//!
//! What is given back is often taken again at once, and a load is served from a store that has not
//! left the core yet only when that store holds all of it. libc's `memcpy` loads up to 64 bytes
//! where the compiler's loop had stored 16: half of the time of a bulk was that wait. (Steps of 32
//! bytes, by AVX2, are no faster than these.)

/// Handles in a step of 16 bytes.
const LANES: usize = 4;
/// Handles in a round. The compiler turns a loop of one step into a call of `memcpy`.
const ROUND: usize = 4 * LANES;

/// Copies handles as `put` makes them of what `get` reads; returns the bits in which any of them
/// differs from `tag`.
///
/// # Panics
/// When the two have different lengths.
#[inline(always)]
pub(crate) fn copy<F, T>(
    from: &[F],
    to: &mut [T],
    tag: u32,
    get: impl Fn(&F) -> u32,
    put: impl Fn(u32) -> T,
) -> u32 {
    assert_eq!(from.len(), to.len());
    let mut different = [0; LANES];
    let mut rounds = from.chunks_exact(ROUND);
    let mut places = to.chunks_exact_mut(ROUND);
    for (from, to) in rounds.by_ref().zip(places.by_ref()) {
        for at in 0..ROUND {
            let raw = get(&from[at]);
            to[at] = put(raw);
            different[at % LANES] |= raw ^ tag;
        }
    }
    let mut all = different.iter().fold(0, |all, lane| all | lane);
    for (from, to) in rounds.remainder().iter().zip(places.into_remainder()) {
        let raw = get(from);
        *to = put(raw);
        all |= raw ^ tag;
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::copy;

    const TAG: u32 = 0x0120_0000;

    proptest! {
        // Goal: whatever their number, all are copied in order, and each one's bits are seen.
        #[test]
        fn all_are_copied(handles in proptest::collection::vec(any::<u32>(), 0..100)) {
            let mut copied = vec![0; handles.len()];
            let different = copy(&handles, &mut copied, TAG, |raw| *raw, |raw| raw);
            prop_assert_eq!(&copied, &handles);
            prop_assert_eq!(different, handles.iter().fold(0, |all, raw| all | raw ^ TAG));
        }
    }
}
