//! Copying of handles into and out of the pool's array, with stores and loads of one width.
//!
//! Freed handles are often allocated again immediately. Store-to-load forwarding then works only if
//! one store covers the whole load. libc's `memcpy` loads up to 64 bytes, but the compiler's loop
//! stores 16, so these loads stall. (Steps of 32 bytes, with AVX2, are no faster than 16.)

/// Handles per step of 16 bytes.
const LANES: usize = 4;
/// Handles per round. With one step per round the compiler would emit a call of `memcpy`.
const ROUND: usize = 4 * LANES;

/// Copies handles: `get` reads each and `put` converts it. Returns the bits in which any of them
/// differs from `tag`.
///
/// # Panics
/// If the lengths differ.
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
        // Goal: for every length, handles are copied in order and the bits of each handle are
        // checked.
        #[test]
        fn copies_in_order_and_checks_every_handle(
            handles in proptest::collection::vec(any::<u32>(), 0..100),
        ) {
            let mut copied = vec![0; handles.len()];
            let different = copy(&handles, &mut copied, TAG, |raw| *raw, |raw| raw);
            prop_assert_eq!(&copied, &handles);
            prop_assert_eq!(different, handles.iter().fold(0, |all, raw| all | raw ^ TAG));
        }
    }
}
