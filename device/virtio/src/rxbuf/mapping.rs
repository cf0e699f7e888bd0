//! Mapping of RX buffers for the device.

use mqnet_pktbuf::Mapping;

use crate::Features;

/// Mapping of the buffer pool of a queue; page 0 has the device address `base`.
///
/// If the device uses the driver's addresses directly, one mapping of the whole pool suffices, and
/// a buffer's device address is `base` plus its offset. With vhost-user, `base` is an address of
/// the memory table. A device behind an address translation (`ACCESS_PLATFORM`) needs a mapping for
/// each buffer, so that the pool only allocates.
pub fn of(features: Features, base: u64) -> Mapping {
    if features.has(Features::ACCESS_PLATFORM) {
        Mapping::Allocation
    } else {
        Mapping::Device(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: `ACCESS_PLATFORM` alone selects the mapping, independent of other features.
    #[test]
    fn one_bit_decides() {
        let some = Features::VERSION_1.or(Features::MRG_RXBUF);
        assert_eq!(of(some, 4096), Mapping::Device(4096));
        assert_eq!(of(some.or(Features::ACCESS_PLATFORM), 4096), Mapping::Allocation);
    }
}
