//! Buffer sizes for each placement of frames in buffers.

use super::align64;
use crate::net::HDR_LEN;

/// Placement of frames in buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferMode {
    /// One small buffer per frame.
    Small,
    /// One or more buffers per frame (`MRG_RXBUF`).
    Mergeable,
    /// One buffer for the largest frame.
    Big,
}

impl BufferMode {
    /// Selects the mode: mergeable if negotiated; otherwise big if the MTU exceeds 1500 or GSO
    /// frames may arrive; otherwise small.
    pub const fn choose(mergeable: bool, mtu: u32, any_large: bool) -> Self {
        match mergeable {
            true => Self::Mergeable,
            false if mtu > 1500 || any_large => Self::Big,
            false => Self::Small,
        }
    }

    /// Name of the mode.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Mergeable => "mergeable",
            Self::Big => "big",
        }
    }
}

/// Largest frame of a small buffer: 1500 bytes after an Ethernet header with two VLAN tags.
pub const SMALL_FRAME: u32 = 1522;

/// Cache line size. A frame begins at a cache line; its header is at the end of the previous line.
/// Headers rarely change, so that a device that compares before it writes leaves that line shared.
/// If that line also held the start of the frame, the line would move between the caches for each
/// frame.
const LINE: u32 = 64;

/// Space before a frame, for consumers that build packets in place.
const PAD: u32 = LINE;
/// Space after a frame, for consumers that build packets in place.
const TAIL: u32 = 320;

/// Headroom for an XDP program.
pub const XDP_HEADROOM: u32 = 256;

/// Size of a small buffer with headroom and tailroom.
pub const fn small(xdp: bool) -> u32 {
    let headroom = if xdp { XDP_HEADROOM } else { 0 };
    align64(HDR_LEN + PAD + SMALL_FRAME + headroom) + TAIL
}

/// Space before the header that the device writes; the frame begins in the next cache line.
pub const fn headroom(xdp: bool) -> u32 {
    let lead = LINE - HDR_LEN;
    if xdp { lead + XDP_HEADROOM } else { lead }
}

/// Bytes of a mergeable buffer that are reserved for an XDP program (headroom and tailroom), as in
/// the kernel. The cache line before the frame is taken from this tailroom.
pub const MERGEABLE_XDP_ROOM: u32 = align64(XDP_HEADROOM + TAIL);

/// Smallest space for a frame in a mergeable buffer, so that a full ring of buffers holds a frame
/// of `max_mtu`.
pub fn mergeable_min(max_mtu: u32, ring: u16) -> u32 {
    let per_buffer = (HDR_LEN + 22 + max_mtu).div_ceil(ring.max(1).into());
    (per_buffer.max(HDR_LEN) - HDR_LEN).max(SMALL_FRAME)
}

/// Size of a mergeable buffer for frames of `average` bytes, at least `min` and at most a page.
/// With an XDP program, the size is a page without the reserved bytes.
pub fn mergeable(average: u32, min: u32, page: u32, xdp: bool) -> u32 {
    if xdp {
        return page - MERGEABLE_XDP_ROOM;
    }
    align64(LINE + average.clamp(min, (page - LINE).max(min))).min(page)
}

/// Exponentially weighted average of frame lengths, with weight 1/64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Average(u32);

impl Average {
    /// Adds the length of a frame.
    #[inline]
    pub fn add(&mut self, len: u32) {
        self.0 = match self.0 {
            0 => len,
            now => ((u64::from(now) * 63 + u64::from(len)) / 64) as u32,
        };
    }

    /// Current average; 0 before the first frame.
    pub fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Goal: two small buffers share a page, as in the kernel; with an XDP program a page holds one.
    #[test]
    fn small_buffers() {
        assert_eq!((small(false), small(true)), (1920, 2176));
        assert!(2 * small(false) <= 4096 && 2 * small(true) > 4096);
    }

    // Goal: mergeable buffers begin at 1600 bytes and grow with the average up to a page. With an
    // XDP program they have 3520 bytes.
    #[test]
    fn mergeable_buffers() {
        let min = mergeable_min(65535, 256);
        assert_eq!(min, 1522);
        assert_eq!(mergeable(0, min, 4096, false), 1600);
        assert_eq!(mergeable(1984, min, 4096, false), 2048);
        assert_eq!(mergeable(9000, min, 4096, false), 4096);
        assert_eq!((MERGEABLE_XDP_ROOM, mergeable(0, min, 4096, true)), (576, 3520));
        assert_eq!(mergeable_min(65535, 16), 4087, "a short ring needs longer buffers");
    }

    // Goal: sizes at their bounds have a line for the header, a granularity of 64 bytes, and at
    // most a page.
    #[test]
    fn thresholds() {
        let of = |average| mergeable(average, mergeable_min(1500, 256), 4096, false);
        let lens = [1522, 1536, 1537, 1600, 1601, 1984, 1985, 3968, 3969, 4032, 65_535];
        let sizes = [1600, 1600, 1664, 1664, 1728, 2048, 2112, 4032, 4096, 4096, 4096];
        assert_eq!(lens.map(of), sizes);
        // Largest size that shares a page: 2048 bytes.
        assert_eq!([1984, 1985].map(|average| 4096 / of(average)), [2, 1]);
        // Smallest space for a frame: ceil((12 + 22 + mtu) / ring) - 12.
        let min = |mtu, ring| mergeable_min(mtu, ring);
        assert_eq!([min(65_535, 32), min(65_535, 42), min(65_535, 43)], [2038, 1550, 1522]);
        assert_eq!(min(9000, 1), 9022);
        assert_eq!(mergeable(0, min(65_535, 16), 16_384, false), 4160);
        assert_eq!([headroom(false), headroom(true)], [52, 308]);
        assert_eq!([false, true].map(|xdp| (headroom(xdp) + HDR_LEN) % LINE), [0, 0]);
        assert!(headroom(true) + 3520 <= 4096, "what a program leaves of a page");
        assert_eq!(headroom(true) + HDR_LEN + SMALL_FRAME, 1842);
    }

    // Goal: mergeable buffers take precedence; otherwise frames that exceed a small buffer need big
    // ones.
    #[test]
    fn modes() {
        assert_eq!(BufferMode::choose(true, 9000, true), BufferMode::Mergeable);
        assert_eq!(BufferMode::choose(false, 1501, false), BufferMode::Big);
        assert_eq!(BufferMode::choose(false, 1500, true), BufferMode::Big);
        assert_eq!(BufferMode::choose(false, 1500, false), BufferMode::Small);
    }

    // Goal: the average starts with the first frame and moves by 1/64 of the difference.
    #[test]
    fn averages() {
        let mut average = Average::default();
        average.add(6400);
        assert_eq!(average.get(), 6400);
        average.add(0);
        assert_eq!(average.get(), 6300);
    }

    proptest! {
        // Goal: for any frames, a mergeable buffer holds a header and 1522 bytes and fits a page,
        // and a ring of buffers holds a frame of the MTU.
        #[test]
        fn sizes_stay_in_bounds(
            lens in prop::collection::vec(0..70_000u32, 0..50),
            ring in 5..10u32, mtu in 68..65_536u32, page in 12..17u32,
        ) {
            let (ring, page) = (1u16 << ring, 1 << page);
            let mut average = Average::default();
            lens.iter().for_each(|len| average.add(*len));
            let len = mergeable(average.get(), mergeable_min(mtu, ring), page, false);
            prop_assert!((1600..=page).contains(&len));
            prop_assert!(u32::from(ring) * (len - headroom(false)) >= mtu + 30);
        }
    }
}
