//! Buffer sizes by mode.

use super::align64;
use crate::net::HDR_LEN;

/// How frames lie in buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A frame in one small buffer.
    Small,
    /// A frame in as many buffers as it needs (`MRG_RXBUF`).
    Mergeable,
    /// A frame in one buffer that holds the largest one.
    Big,
}

impl Mode {
    /// The mode of a device: whether it merges buffers, its largest MTU, and whether its frames
    /// may be larger than that.
    pub const fn choose(mergeable: bool, mtu: u32, any_large: bool) -> Self {
        match mergeable {
            true => Self::Mergeable,
            false if mtu > 1500 || any_large => Self::Big,
            false => Self::Small,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Mergeable => "mergeable",
            Self::Big => "big",
        }
    }
}

/// Largest frame of a small buffer: 1500 bytes behind an Ethernet header with two VLAN tags.
pub const SMALL_FRAME: u32 = 1522;

/// A cache line. A frame begins with one, and its header is at the end of the line before: there
/// each header is as a rule what was there before, so that a device which looks first need not
/// write it. A line that neither side writes stays in both caches; where it has the frame's first
/// bytes too, it goes from one to the other and back for each frame. (DPDK's vhost: 38 % of its
/// time was the first look at such a line, 1 % where header and frame are apart.)
const LINE: u32 = 64;

/// Room in front of and behind a frame that whoever builds packets around buffers needs.
const PAD: u32 = LINE;
const TAIL: u32 = 320;

/// Room in front of a frame that an XDP program may grow into.
pub const XDP_HEADROOM: u32 = 256;

/// A small buffer with all that lies around its frame.
pub const fn small(xdp: bool) -> u32 {
    let headroom = if xdp { XDP_HEADROOM } else { 0 };
    align64(HDR_LEN + PAD + SMALL_FRAME + headroom) + TAIL
}

/// Room in front of what the device writes into a buffer: its header, and the frame in the next
/// line.
pub const fn headroom(xdp: bool) -> u32 {
    let lead = LINE - HDR_LEN;
    if xdp { lead + XDP_HEADROOM } else { lead }
}

/// What a mergeable buffer gives up to a program. (The kernel's number: the rest of the line in
/// front of the frame comes out of the room behind it, which nobody here needs.)
pub const MERGEABLE_XDP_ROOM: u32 = align64(XDP_HEADROOM + TAIL);

/// Shortest frame part of a mergeable buffer: a ring full of buffers must hold a frame.
pub fn mergeable_min(max_mtu: u32, ring: u16) -> u32 {
    let per_buffer = (HDR_LEN + 22 + max_mtu).div_ceil(ring.max(1).into());
    (per_buffer.max(HDR_LEN) - HDR_LEN).max(SMALL_FRAME)
}

/// A mergeable buffer for frames of `average` bytes.
pub fn mergeable(average: u32, min: u32, page: u32, xdp: bool) -> u32 {
    if xdp {
        return page - MERGEABLE_XDP_ROOM;
    }
    align64(LINE + average.clamp(min, (page - LINE).max(min))).min(page)
}

/// The average length of frames, of which each new one is 1/64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Average(u32);

impl Average {
    /// A frame came.
    #[inline]
    pub fn add(&mut self, len: u32) {
        self.0 = match self.0 {
            0 => len,
            now => ((u64::from(now) * 63 + u64::from(len)) / 64) as u32,
        };
    }

    /// The average now; 0 before the first.
    pub fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Goal: the kernel's sizes: two small buffers share a page, with a program none do.
    #[test]
    fn small_buffers() {
        assert_eq!((small(false), small(true)), (1920, 2176));
        assert!(2 * small(false) <= 4096 && 2 * small(true) > 4096);
    }

    // Goal: mergeable buffers begin at 1600 bytes, grow to a page with the average, and with a
    // program they have 3520.
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

    // Goal: at the bounds of the sizes: the header has a line, 64 bytes count, a page is the end.
    #[test]
    fn thresholds() {
        let of = |average| mergeable(average, mergeable_min(1500, 256), 4096, false);
        let lens = [1522, 1536, 1537, 1600, 1601, 1984, 1985, 3968, 3969, 4032, 65_535];
        let sizes = [1600, 1600, 1664, 1664, 1728, 2048, 2112, 4032, 4096, 4096, 4096];
        assert_eq!(lens.map(of), sizes);
        // 2048 bytes are the longest that share a page.
        assert_eq!([1984, 1985].map(|average| 4096 / of(average)), [2, 1]);
        // The largest frame in a ring full of buffers: ceil((12 + 22 + mtu) / ring) - 12.
        let min = |mtu, ring| mergeable_min(mtu, ring);
        assert_eq!([min(65_535, 32), min(65_535, 42), min(65_535, 43)], [2038, 1550, 1522]);
        assert_eq!(min(9000, 1), 9022);
        assert_eq!(mergeable(0, min(65_535, 16), 16_384, false), 4160);
        assert_eq!([headroom(false), headroom(true)], [52, 308]);
        assert_eq!([false, true].map(|xdp| (headroom(xdp) + HDR_LEN) % LINE), [0, 0]);
        assert!(headroom(true) + 3520 <= 4096, "what a program leaves of a page");
        assert_eq!(headroom(true) + HDR_LEN + SMALL_FRAME, 1842);
    }

    // Goal: merging comes first, then what does not fit a small buffer.
    #[test]
    fn modes() {
        assert_eq!(Mode::choose(true, 9000, true), Mode::Mergeable);
        assert_eq!(Mode::choose(false, 1501, false), Mode::Big);
        assert_eq!(Mode::choose(false, 1500, true), Mode::Big);
        assert_eq!(Mode::choose(false, 1500, false), Mode::Small);
    }

    // Goal: the average moves by 1/64, and starts with the first frame.
    #[test]
    fn averages() {
        let mut average = Average::default();
        average.add(6400);
        assert_eq!(average.get(), 6400);
        average.add(0);
        assert_eq!(average.get(), 6300);
    }

    proptest! {
        // Goal: whatever comes, a buffer holds its header and 1522 bytes and fits a page, and a
        // ring of them holds a frame of the MTU.
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
