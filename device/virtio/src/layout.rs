//! Memory layout of rings: split (virtio 1.3, 2.7) and packed (2.8). All numbers are little-endian.

/// Maximum number of descriptors of a queue.
pub const SIZE_MAX: u16 = 1 << 15;

/// Checks the size of a queue: 1 to [`SIZE_MAX`], in a split ring a power of two (virtio 1.3, 2.7
/// and 2.8.10). `Err` is a text with the allowed sizes.
pub fn queue_size(size: u32, is_packed: bool) -> Result<u16, String> {
    let allowed = u16::try_from(size).ok().filter(|size| (1..=SIZE_MAX).contains(size));
    allowed.filter(|size| is_packed || size.is_power_of_two()).ok_or_else(|| {
        let kind = if is_packed { "" } else { "a power of two from " };
        format!("size {size} is not allowed: {kind}1 to {SIZE_MAX}")
    })
}

/// Flags of a descriptor.
pub mod flag {
    /// The chain continues.
    pub const NEXT: u16 = 1;
    /// The buffer is device-writable.
    pub const WRITE: u16 = 2;
    /// The buffer holds an indirect table.
    pub const INDIRECT: u16 = 4;
    /// Wrap counter of the driver when it made the descriptor available (packed ring).
    pub const AVAIL: u16 = 1 << 7;
    /// Wrap counter of the device when it used the descriptor (packed ring).
    pub const USED: u16 = 1 << 15;
}

/// Bytes of one descriptor, in a ring or in an indirect table.
pub const DESC_LEN: u32 = 16;

/// Offsets in a split ring.
pub mod split {
    use super::DESC_LEN;

    /// Value of `avail.flags`: the driver suppresses interrupts.
    pub const NO_INTERRUPT: u16 = 1;
    /// Value of `used.flags`: the device suppresses notifications.
    pub const NO_NOTIFY: u16 = 1;

    /// Offset of descriptor `i`: addr (u64), len (u32), flags (u16), next (u16).
    pub const fn desc(i: u16) -> u32 {
        i as u32 * DESC_LEN
    }

    /// Offset of `avail.flags` in the driver area, which is flags, idx, the ring of heads,
    /// `used_event`.
    pub const AVAIL_FLAGS: u32 = 0;
    /// Offset of `avail.idx` in the driver area.
    pub const AVAIL_IDX: u32 = 2;
    /// Offset of entry `i` of the available ring.
    pub const fn avail_ring(i: u16) -> u32 {
        4 + 2 * i as u32
    }
    /// Offset of `used_event`: the used index at which the driver requests an interrupt.
    pub const fn used_event(size: u16) -> u32 {
        avail_ring(size)
    }

    /// Offset of `used.flags` in the device area, which is flags, idx, the ring of id and len (u32
    /// each), `avail_event`.
    pub const USED_FLAGS: u32 = 0;
    /// Offset of `used.idx` in the device area.
    pub const USED_IDX: u32 = 2;
    /// Offset of entry `i` of the used ring.
    pub const fn used_ring(i: u16) -> u32 {
        4 + 8 * i as u32
    }
    /// Offset of `avail_event`: the available index at which the device requests a notification.
    pub const fn avail_event(size: u16) -> u32 {
        used_ring(size)
    }

    /// Lengths of the descriptor table, the driver area and the device area, in bytes.
    pub const fn areas(size: u16) -> [u32; 3] {
        [desc(size), used_event(size) + 2, avail_event(size) + 2]
    }
}

/// Offsets in a packed ring.
pub mod packed {
    use super::{DESC_LEN, flag};

    /// Offset of descriptor `i`: addr (u64), len (u32), id (u16), flags (u16).
    pub const fn desc(i: u16) -> u32 {
        i as u32 * DESC_LEN
    }

    /// Offset of the position and wrap counter (u16) in the event suppression structure of either
    /// area.
    pub const EVENT_OFF_WRAP: u32 = 0;
    /// Offset of the flags (u16) in the event suppression structure.
    pub const EVENT_FLAGS: u32 = 2;
    /// Value of the flags: events are enabled.
    pub const ENABLE: u16 = 0;
    /// Value of the flags: events are disabled.
    pub const DISABLE: u16 = 1;
    /// Value of the flags: one descriptor raises an event (`EVENT_IDX`).
    pub const DESC: u16 = 2;

    /// Lengths of the ring, the driver area and the device area, in bytes.
    pub const fn areas(size: u16) -> [u32; 3] {
        [desc(size), 4, 4]
    }

    /// True when a descriptor with these flags is available to the device, where the driver's wrap
    /// counter is `wrap`.
    #[inline]
    pub(crate) fn is_available(flags: u16, wrap: bool) -> bool {
        let available = if wrap { flag::AVAIL } else { flag::USED };
        flags & (flag::AVAIL | flag::USED) == available
    }
}

/// Alignments of the descriptor table, the driver area and the device area (2.7). For packed rings
/// 2.8 requires 4 for the driver area.
pub const ALIGN: [usize; 3] = [16, 2, 4];

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the areas have the lengths of the specification's formulas (2.7: 16n, 6 + 2n, 6 + 8n).
    #[test]
    fn areas_are_as_specified() {
        assert_eq!(split::areas(256), [16 * 256, 6 + 2 * 256, 6 + 8 * 256]);
        assert_eq!(packed::areas(256), [16 * 256, 4, 4]);
    }
}
