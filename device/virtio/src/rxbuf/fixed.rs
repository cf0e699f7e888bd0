//! Buffers that hold the largest frame; several per page if they fit.

use super::align64;

/// Headroom of a frame in bytes.
pub const HEADROOM: u32 = 256;
/// Bytes of tailroom, and of the frame's Ethernet header.
const PAD: u32 = 320 + 14;

/// Buffer sizes for one MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Number of device-writable bytes.
    pub data: u32,
    /// Size of a buffer with headroom and tailroom.
    pub size: u32,
    /// Number of buffers per page.
    pub per_page: u32,
    /// Bytes of the block of a buffer that shares no page.
    pub block: u32,
}

impl Fixed {
    /// Computes the sizes for frames of MTU `mtu` in pages of `page` bytes.
    pub const fn new(mtu: u32, page: u32) -> Self {
        let size = align64(mtu + PAD + HEADROOM);
        let per_page = page / size;
        let block = if size <= page { page } else { size.next_power_of_two() };
        Self { data: mtu + 14, size, per_page, block }
    }
}

/// Largest MTU of a netdev with an XDP program: a frame must fit one page.
pub const fn xdp_mtu_max(page: u32) -> u32 {
    page - PAD - HEADROOM
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: sizes and buffers per page equal those of the reference table, for three page sizes.
    #[test]
    fn golden_table() {
        let table = [
            (1400, 2048, [2, 8, 32]),
            (1458, 2048, [2, 8, 32]),
            (1459, 2112, [1, 7, 31]),
            (1500, 2112, [1, 7, 31]),
            (4000, 4608, [0, 3, 14]),
            (9000, 9600, [0, 1, 6]),
        ];
        for (mtu, size, per_page) in table {
            for (page, fit) in [4096, 16384, 65536].into_iter().zip(per_page) {
                let fixed = Fixed::new(mtu, page);
                assert_eq!((fixed.size, fixed.per_page), (size, fit), "{mtu} in {page}");
                assert_eq!(fixed.data, mtu + 14);
            }
        }
    }

    // Goal: a buffer that does not share its page gets one page, or the next power of two if it is
    // larger than a page.
    #[test]
    fn blocks() {
        let block = |mtu, page| Fixed::new(mtu, page).block;
        assert_eq!((block(1500, 4096), block(4000, 4096), block(9000, 4096)), (4096, 8192, 16384));
        assert_eq!(block(9000, 65536), 65536);
        assert_eq!(xdp_mtu_max(4096), 3506);
    }
}
