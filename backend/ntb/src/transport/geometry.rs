//! Division of the memory windows among queue pairs.
//!
//! Queue pair `q` uses window `q % W` of `W`. The queue pairs of a window have equal parts. A
//! part has slots of `transport_mtu` bytes from its start, and the credit word in its last four
//! bytes. A part may begin at any byte, because the division may have a remainder.

use super::{HEADER, SLOTS_MIN};

/// Bytes of the credit word.
const CREDIT: u32 = 4;

/// Part of a window that belongs to one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPart {
    /// Number of the window.
    pub window: u16,
    /// Offset of the part in the window.
    pub at: u32,
    /// Bytes of the part, including the credit word.
    pub len: u32,
    /// Bytes of a slot.
    pub slot: u32,
    /// Number of slots.
    pub slots: u32,
}

/// Error for a queue pair with too few slots, with values that would be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "queue pair {pair}: {slots} slots of {transport_mtu} bytes, at least {SLOTS_MIN} are needed: \
     use a window of {window_needed} bytes or more{}",
    fewer_pairs(*pairs_possible)
)]
pub struct TooFewSlots {
    /// Number of the queue pair.
    pub pair: u16,
    /// Number of slots that the queue pair would have.
    pub slots: u32,
    /// Bytes of a slot.
    pub transport_mtu: u32,
    /// Bytes of the smallest sufficient window, a power of two, for the requested queue pairs.
    pub window_needed: u64,
    /// Largest number of queue pairs with the present windows; 0 for none.
    pub pairs_possible: u16,
}

/// Text that recommends fewer queue pairs; empty if no number is possible.
fn fewer_pairs(possible: u16) -> String {
    match possible {
        0 => String::new(),
        n => format!(
            ", or at most {n} queue pairs (queues= here, max_num_clients= of ntb_transport)"
        ),
    }
}

/// Number of queue pairs in window `window` of `windows`.
fn pairs_in(window: u16, windows: u16, pairs: u16) -> u16 {
    pairs / windows + u16::from(window < pairs % windows)
}

/// Bytes of a part with the smallest number of slots.
fn part_min(transport_mtu: u32) -> u64 {
    u64::from(SLOTS_MIN) * u64::from(transport_mtu) + u64::from(CREDIT)
}

impl WindowPart {
    /// Part of queue pair `pair` of `pairs` in windows of these sizes. `None` if there is no
    /// window or no such pair, or if two slots with a payload do not fit.
    pub fn of(sizes: &[u32], pairs: u16, pair: u16, transport_mtu: u32) -> Option<Self> {
        let windows = u16::try_from(sizes.len()).ok().filter(|&n| n > 0)?;
        if pair >= pairs {
            return None;
        }
        let window = pair % windows;
        let len = sizes[usize::from(window)] / u32::from(pairs_in(window, windows, pairs));
        let ring = len.checked_sub(CREDIT)?;
        let slot = transport_mtu.min(ring / 2);
        if slot <= HEADER {
            return None;
        }
        let at = len * u32::from(pair / windows);
        Some(Self { window, at, len, slot, slots: ring / slot })
    }

    /// Parts of all queue pairs, in order; `Err` if one has too few slots.
    pub fn all(sizes: &[u32], pairs: u16, transport_mtu: u32) -> Result<Vec<Self>, TooFewSlots> {
        let part = |pair| {
            let part = Self::of(sizes, pairs, pair, transport_mtu);
            part.filter(|part| part.slots >= SLOTS_MIN).ok_or_else(|| TooFewSlots {
                pair,
                slots: part.map_or(0, |part| part.slots),
                transport_mtu,
                window_needed: window_for(sizes.len(), pairs, transport_mtu),
                pairs_possible: pairs_for(sizes, transport_mtu),
            })
        };
        (0..pairs).map(part).collect()
    }

    /// Offset of a slot in the window.
    pub fn slot_at(&self, slot: u32) -> u32 {
        debug_assert!(slot < self.slots);
        self.at + self.slot * slot
    }

    /// Offset of a slot's header in the window.
    pub fn header_at(&self, slot: u32) -> u32 {
        self.slot_at(slot) + self.slot - HEADER
    }

    /// Offset of the credit word in the window.
    pub fn credit_at(&self) -> u32 {
        self.at + self.len - CREDIT
    }

    /// Bytes of the largest frame that a slot holds.
    pub fn payload_max(&self) -> u32 {
        self.slot - HEADER
    }
}

/// Bytes of the smallest window, a power of two, that gives each of `pairs` queue pairs enough
/// slots.
pub fn window_for(windows: usize, pairs: u16, transport_mtu: u32) -> u64 {
    let windows = u16::try_from(windows).unwrap_or(u16::MAX).max(1);
    let shares = pairs.div_ceil(windows).max(1);
    (u64::from(shares) * part_min(transport_mtu)).next_power_of_two()
}

/// Largest number of queue pairs that have enough slots each in windows of these sizes.
pub fn pairs_for(sizes: &[u32], transport_mtu: u32) -> u16 {
    let fits = |pairs: &u16| {
        (0..*pairs).all(|pair| {
            WindowPart::of(sizes, *pairs, pair, transport_mtu).is_some_and(|p| p.slots >= SLOTS_MIN)
        })
    };
    (1..=u16::from(u8::MAX)).take_while(fits).last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transport::TRANSPORT_MTU;

    proptest! {
        // Goal: for any sizes and numbers, the parts of a window do not overlap, and slots,
        // headers and credit words are inside their part.
        #[test]
        fn parts_are_disjoint_and_inside(
            sizes in prop::collection::vec(0u32..64 << 20, 1..5),
            pairs in 1u16..=64,
            mtu in prop_oneof![Just(TRANSPORT_MTU), 13u32..200_000],
        ) {
            let mut ends = vec![0u32; sizes.len()];
            for pair in 0..pairs {
                let Some(part) = WindowPart::of(&sizes, pairs, pair, mtu) else { continue };
                let window = usize::from(part.window);
                prop_assert!(part.at >= ends[window]);
                ends[window] = part.at + part.len;
                prop_assert!(ends[window] <= sizes[window]);
                prop_assert!(part.slots >= 2);
                let last = part.slots - 1;
                prop_assert_eq!(part.header_at(last) + HEADER, part.slot_at(last) + part.slot);
                prop_assert!(part.header_at(last) + HEADER <= part.credit_at());
                prop_assert_eq!(part.credit_at() + 4, part.at + part.len);
            }
        }

        // Goal: the values that a refusal recommends are accepted.
        #[test]
        fn refusals_name_values_that_work(
            size in 4096u32..8 << 20,
            windows in 1usize..=4,
            pairs in 1u16..=32,
        ) {
            let sizes = vec![size; windows];
            let Err(refusal) = WindowPart::all(&sizes, pairs, TRANSPORT_MTU) else { return Ok(()) };
            let enough = vec![refusal.window_needed as u32; windows];
            prop_assert!(WindowPart::all(&enough, pairs, TRANSPORT_MTU).is_ok());
            prop_assert!(refusal.pairs_possible < pairs);
            if refusal.pairs_possible > 0 {
                let parts = WindowPart::all(&sizes, refusal.pairs_possible, TRANSPORT_MTU);
                prop_assert!(parts.is_ok());
            }
        }
    }

    // Goal: the results are those of the kernel: with 2 MiB, 4 pairs have 7 slots each, and 8
    // pairs with 3 slots each are refused. The pairs use the windows in turn.
    #[test]
    fn numbers_are_those_of_the_wire() {
        let parts = WindowPart::all(&[2 << 20], 4, TRANSPORT_MTU).unwrap();
        assert_eq!(
            parts[3],
            WindowPart { window: 0, at: 3 << 19, len: 1 << 19, slot: 65536, slots: 7 }
        );
        assert_eq!((parts[0].header_at(0), parts[0].credit_at()), (65524, (1 << 19) - 4));
        let refusal = WindowPart::all(&[2 << 20], 8, TRANSPORT_MTU).unwrap_err();
        assert_eq!((refusal.slots, refusal.window_needed, refusal.pairs_possible), (3, 4 << 20, 5));
        let none = WindowPart::all(&[2 << 20], 4, 1 << 20).unwrap_err();
        assert!(none.to_string().ends_with("use a window of 33554432 bytes or more"), "{none}");
        let two = WindowPart::all(&[1 << 20, 2 << 20], 3, TRANSPORT_MTU).unwrap();
        let places: Vec<_> = two.iter().map(|p| (p.window, p.at, p.slots)).collect();
        assert_eq!(places, [(0, 0, 7), (1, 0, 31), (0, 1 << 19, 7)]);
    }
}
