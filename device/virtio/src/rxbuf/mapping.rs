//! Who maps RX buffers for the device.

use mqnet_pktbuf::Mapping;

use crate::Features;

/// The pool of a queue whose page 0 the device finds at `base`.
///
/// A device that uses addresses as the driver gives them is told of the memory once, and a buffer
/// costs an addition: the pool is mapped as a whole. One whose accesses go through a mapping of its
/// own (`ACCESS_PLATFORM`) is told of each buffer when it gets it, so that its pool is for
/// allocation only. Over vhost-user the addresses that count are those of the memory table.
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

    // Goal: one bit decides, whatever else was agreed.
    #[test]
    fn one_bit_decides() {
        let some = Features::VERSION_1.or(Features::MRG_RXBUF);
        assert_eq!(of(some, 4096), Mapping::Device(4096));
        assert_eq!(of(some.or(Features::ACCESS_PLATFORM), 4096), Mapping::Allocation);
    }
}
