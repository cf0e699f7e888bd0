//! Scratchpads of the handshake.
//!
//! Each end writes sizes, counts and QP_LINKS first and the version last. The kernel repeats its
//! writes every 10 ms until it reads its own version and counts from this end. Nothing is
//! negotiated: this end answers once, with the peer's counts.

use super::VERSION;

/// Numbers of the scratchpads.
pub mod pad {
    /// Version; written last.
    pub const VERSION: usize = 0;
    /// Bit map of the queue pairs that the writer opens.
    pub const QP_LINKS: usize = 1;
    /// Number of queue pairs.
    pub const NUM_QPS: usize = 2;
    /// Number of memory windows.
    pub const NUM_MWS: usize = 3;
    /// Upper half of the size of window 0; `SIZE_HIGH + 2 * i` is that of window `i`.
    pub const SIZE_HIGH: usize = 4;
    /// Lower half of the size of window 0; `SIZE_LOW + 2 * i` is that of window `i`.
    pub const SIZE_LOW: usize = 5;
}

/// Largest number of queue pairs: one bit of QP_LINKS each, without bit 31, the mark of an
/// unwritten value.
pub const PAIRS_MAX: u16 = 31;

/// Limits of this end.
#[derive(Clone, Copy, Debug)]
pub struct OwnLimits<'a> {
    /// Largest number of queue pairs that have a doorbell.
    pub pairs: u16,
    /// Bytes of each window.
    pub windows: &'a [u32],
}

/// Values of a peer that is an `ntb_transport`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerValues {
    /// Number of queue pairs.
    pub pairs: u16,
    /// Bytes that the peer uses of each window of this end.
    pub sizes: Vec<u32>,
}

/// Error for a value with which no link is possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Number of queue pairs is out of range.
    #[error(
        "peer: {pairs} queue pairs, allowed 1 to {max}: load ntb_transport there with \
         max_num_clients={max} or less"
    )]
    Pairs {
        /// Value of the peer.
        pairs: u32,
        /// Largest value.
        max: u16,
    },
    /// Number of memory windows is out of range.
    #[error("peer: {windows} memory windows, allowed 1 to {max}")]
    Windows {
        /// Value of the peer.
        windows: u32,
        /// Largest value.
        max: usize,
    },
    /// Size of a memory window is out of range.
    #[error("peer: {size} bytes of memory window {window}, allowed 1 to {max}")]
    Size {
        /// Number of the window.
        window: usize,
        /// Value of the peer.
        size: u64,
        /// Largest value.
        max: u32,
    },
}

/// Reads the peer's values, each scratchpad once. `None` unless the version is [`VERSION`]; `Err`
/// if a value is out of its limits.
pub fn read(
    spad: impl Fn(usize) -> u32,
    limits: OwnLimits<'_>,
) -> Result<Option<PeerValues>, HandshakeError> {
    // Read the version first: the peer writes it last.
    if spad(pad::VERSION) != VERSION {
        return Ok(None);
    }
    let (pairs, windows) = (spad(pad::NUM_QPS), spad(pad::NUM_MWS));
    let max = limits.pairs.min(PAIRS_MAX);
    let pairs = match u16::try_from(pairs) {
        Ok(n) if (1..=max).contains(&n) => n,
        _ => return Err(HandshakeError::Pairs { pairs, max }),
    };
    let all = limits.windows;
    let used = match usize::try_from(windows) {
        Ok(n) if (1..=all.len()).contains(&n) => n,
        _ => return Err(HandshakeError::Windows { windows, max: all.len() }),
    };
    let size = |window: usize| {
        let at = 2 * window;
        let (high, low) = (spad(pad::SIZE_HIGH + at), spad(pad::SIZE_LOW + at));
        let size = u64::from(high) << 32 | u64::from(low);
        let max = all[window];
        match u32::try_from(size) {
            Ok(n) if (1..=max).contains(&n) => Ok(n),
            _ => Err(HandshakeError::Size { window, size, max }),
        }
    };
    let sizes = (0..used).map(size).collect::<Result<_, _>>()?;
    Ok(Some(PeerValues { pairs, sizes }))
}

/// Scratchpads and values that this end writes, in order. All other scratchpads must be cleared
/// before.
pub fn writes(pairs: u16, windows: &[u32]) -> impl Iterator<Item = (usize, u32)> {
    let sizes = windows.iter().enumerate().flat_map(|(window, &size)| {
        let at = 2 * window;
        [(pad::SIZE_HIGH + at, 0), (pad::SIZE_LOW + at, size)]
    });
    let counts = [(pad::NUM_MWS, windows.len() as u32), (pad::NUM_QPS, pairs.into())];
    sizes.chain(counts).chain([(pad::QP_LINKS, 0), (pad::VERSION, VERSION)])
}

/// Number of scratchpads that a handshake with `windows` windows uses.
pub const fn pads_for(windows: usize) -> usize {
    pad::SIZE_HIGH + 2 * windows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: OwnLimits<'static> = OwnLimits { pairs: 29, windows: &[2 << 20, 1 << 20] };

    fn honest() -> [u32; 16] {
        let mut pads = [0; 16];
        writes(4, LIMITS.windows).for_each(|(at, value)| pads[at] = value);
        pads
    }

    // Goal: the version is written last, and the written values are read back unchanged.
    #[test]
    fn version_comes_last() {
        assert_eq!(writes(4, LIMITS.windows).last(), Some((pad::VERSION, VERSION)));
        let pads = honest();
        let read = read(|at| pads[at], LIMITS).unwrap().unwrap();
        assert_eq!(read, PeerValues { pairs: 4, sizes: LIMITS.windows.to_vec() });
    }

    // Rule: a value in a scratchpad is accepted within its limits, and refused with an error
    // outside of them. Another version is no error: there is no handshake yet.
    #[test]
    fn values_outside_the_limits_are_refused() {
        for at in 0..8 {
            for value in [0, 1, 2, 3, 4, 5, 29, 30, 31, 32, 1 << 20, 2 << 20, 1 << 31, u32::MAX] {
                let mut pads = honest();
                pads[at] = value;
                let result = read(|at| pads[at], LIMITS);
                let good = match at {
                    pad::VERSION => {
                        assert_eq!(result.as_ref().unwrap().is_some(), value == VERSION);
                        true
                    }
                    pad::QP_LINKS => true,
                    pad::NUM_QPS => (1..=29).contains(&value),
                    pad::NUM_MWS => (1..=2).contains(&value),
                    4 | 6 => value == 0,
                    5 => (1..=2 << 20).contains(&value),
                    _ => (1..=1 << 20).contains(&value),
                };
                assert_eq!(result.is_ok(), good, "pad {at} = {value:#x}");
                if let Err(e) = result {
                    assert!(e.to_string().starts_with("peer: "), "{e}");
                }
            }
        }
    }

    proptest! {
        // Goal: accepted values are within the limits, for any scratchpads.
        #[test]
        fn accepted_values_are_within_the_limits(pads: [u32; 16], small: [u8; 4]) {
            let mut pads = pads;
            for (pad, small) in pads.iter_mut().zip(small) {
                *pad = small.into();
            }
            if let Ok(Some(values)) = read(|at| pads[at], LIMITS) {
                prop_assert!((1..=29).contains(&values.pairs));
                prop_assert!(values.sizes.iter().zip(LIMITS.windows).all(|(a, b)| a <= b));
            }
        }
    }
}
