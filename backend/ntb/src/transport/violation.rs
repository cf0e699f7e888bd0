//! Violation of the protocol in one queue pair.

/// Violation of the protocol in one queue pair.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    /// Wrong packet number of a slot.
    #[error(
        "slot {slot}: packet number {number}, expected {expected}: slots here have {size} bytes; \
         give both ends the same transport_mtu{}", hint(.slot, .number, .expected, .size)
    )]
    Number {
        /// Number of the slot.
        slot: u32,
        /// Value of the peer.
        number: u32,
        /// Expected value.
        expected: u32,
        /// Bytes of a slot.
        size: u32,
    },
    /// Invalid length of a frame.
    #[error("slot {slot}: frame of {len} bytes, allowed 1 to {max}")]
    Length {
        /// Number of the slot.
        slot: u32,
        /// Value of the peer.
        len: u32,
        /// Largest value.
        max: u32,
    },
    /// Complete slot while slot 0, which comes first, is not complete.
    #[error(
        "slot {slot} is complete and slot 0 is not: slots here have {size} bytes; give both ends \
         the same transport_mtu (the peer's seems to be {})",
        (u64::from(*.slot) + 1) * u64::from(*.size)
    )]
    Order {
        /// Number of the slot.
        slot: u32,
        /// Bytes of a slot.
        size: u32,
    },
    /// Credit for a slot that does not exist.
    #[error("credit {credit}, allowed 0 to {max}")]
    Credit {
        /// Value of the peer.
        credit: u32,
        /// Largest value.
        max: u32,
    },
    /// Credit for a slot that is consumed already, or not published.
    #[error("credit {credit}: {consumed} slots consumed, {published} are published")]
    Consumed {
        /// Value of the peer.
        credit: u32,
        /// Number of slots that the credit would return.
        consumed: u32,
        /// Number of published slots.
        published: u32,
    },
}

/// Text with the peer's slot size, if smaller slots explain the number; otherwise empty.
fn hint(slot: &u32, number: &u32, expected: &u32, size: &u32) -> String {
    let slots = number.wrapping_sub(*expected).wrapping_add(1);
    match (*slot, *expected, slots) {
        (0, 0, 2..=64) if size.is_multiple_of(slots) => {
            format!(" (the peer's seems to be {})", size / slots)
        }
        _ => String::new(),
    }
}
