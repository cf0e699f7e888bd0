//! Limits of the project, with their relations checked at compile time.

use mqnet_wire::Layer;

/// Maximum number of channels of a netdev, as in the kernel's NTB netdev.
pub const CHANNELS_MAX: u16 = 64;

/// Maximum number of frames of one poll of a lane (a NAPI budget); [`TURN`] applies to small
/// frames.
pub const BUDGET: usize = 64;

/// Maximum number of frames of one poll if the frames are [`SMALL`] and copied. A larger budget
/// amortizes the cache misses at the switch to the next lane, which cost as much as several small
/// frames.
pub const TURN: usize = 4 * BUDGET;

/// Maximum average length in bytes of the small frames of a burst; [`TURN`] of them are 64 KiB.
pub const SMALL: u32 = 256;

/// Maximum number of frames of one burst between two queues.
pub const BURST_FRAMES: usize = 64;

/// Maximum number of memory segments of a burst, not counting the first segment of each frame. The
/// number suffices for some frames in many pages. A queue with a ring buffer needs one such
/// segment, for the frame that wraps around.
pub const BURST_MORE_PIECES: usize = 64;

/// Bytes after which a queue ends a burst early: about two large frames. The memory of the burst is
/// then returned, and its frames are published, before the next burst.
pub const BURST_BYTES: usize = 128 << 10;

/// Maximum number of memory segments of a frame: 17 for 64 KiB that are not aligned to 4 KiB pages,
/// and one for a header.
pub const FRAME_PIECES_MAX: usize = 18;

/// Smallest MTU: every IPv4 host forwards 68 bytes (RFC 791).
pub const MTU_MIN: u32 = 68;

/// Largest MTU: a TAP accepts frames of 65,535 bytes, with an Ethernet header of 14 bytes.
pub const MTU_MAX: u32 = 65_521;

/// Largest MTU of a device with frames of the layer `layer`.
pub const fn mtu_max(layer: Layer) -> u32 {
    match layer {
        Layer::Ethernet => MTU_MAX,
        Layer::Ip => 65_535,
    }
}

/// Default MTU.
pub const MTU_DEFAULT: u32 = 1500;

/// Length of an Ethernet header with two VLAN tags (QinQ), which the MTU does not include.
pub const L2_HEADER: u32 = 22;

/// Maximum length of the headers before the network header.
pub const fn l2_header(layer: Layer) -> u32 {
    match layer {
        Layer::Ethernet => L2_HEADER,
        Layer::Ip => 0,
    }
}

/// Largest frame of any queue: 65,536 bytes from the IP header on (the kernel's `GSO_MAX_SIZE`),
/// and the Ethernet header.
pub const FRAME_MAX: u32 = 65_536 + L2_HEADER;

/// Largest Ethernet frame of a link without segmentation offloads.
pub const fn frame_of_mtu(mtu: u32) -> u32 {
    mtu + L2_HEADER
}

/// Space in bytes that a receiver reserves for frames of up to `frame_max` bytes: one byte more, to
/// detect longer frames.
pub const fn room_for(frame_max: u32) -> u32 {
    frame_max + 1
}

const _: () = assert!(frame_of_mtu(MTU_MAX) <= FRAME_MAX);
const _: () = assert!(mtu_max(Layer::Ip) <= FRAME_MAX);
const _: () = assert!(BURST_FRAMES >= BUDGET);
const _: () = assert!(BURST_MORE_PIECES >= FRAME_PIECES_MAX);
const _: () = assert!(BURST_BYTES >= FRAME_MAX as usize);
