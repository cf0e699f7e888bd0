//! Mapping of RX buffers for the device.

use mqnet_pktbuf::Mapping;

use crate::Features;

/// Mapping of the pool of a queue; the device sees page 0 at `base`.
///
/// A device that uses addresses as the driver gives them learns the memory once, and a buffer costs
/// an addition: the pool is mapped as a whole. A device behind an address translation
/// (`ACCESS_PLATFORM`) gets a mapping for each buffer, so that its pool only allocates. With
/// vhost-user, the addresses are those of the memory table.
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

    // Goal: a single feature bit decides, independent of other features.
    #[test]
    fn one_bit_decides() {
        let some = Features::VERSION_1.or(Features::MRG_RXBUF);
        assert_eq!(of(some, 4096), Mapping::Device(4096));
        assert_eq!(of(some.or(Features::ACCESS_PLATFORM), 4096), Mapping::Allocation);
    }
}
