//! Every maximum, in one place, with the relations between them proved at compile time.

use mqnet_wire::Layer;

/// Most channels of a netdev (the limit of the kernel's NTB netdev).
pub const CHANNELS_MAX: u16 = 64;

/// Frames that a lane moves before the worker turns to the next one (a NAPI budget); see [`TURN`].
pub const BUDGET: usize = 64;

/// The same while they are [`SMALL`] and copied: from one lane to the next a worker loses the time
/// of five to fifteen of them, on cache lines that come from other CPUs. (Frames of 64 B through 64
/// lanes, against one of the program that moved 64: 0.92 with 64 of them, with 128, 256, 512 0.99,
/// 1.05, 1.02.)
pub const TURN: usize = 4 * BUDGET;

/// Bytes of a small frame, on average over a burst: a turn of them is 64 KiB.
pub const SMALL: u32 = 256;

/// Frames in one burst between two queues.
pub const BURST_FRAMES: usize = 64;

/// Pieces of memory in one burst beyond the first of each frame: room for some frames that lie in
/// many pages. A ring needs one, where it wraps.
pub const BURST_MORE_PIECES: usize = 64;

/// Bytes after which a queue ends a burst early, so that what it used is returned (and what it
/// carries is seen) before the next one: about two large frames.
pub const BURST_BYTES: usize = 128 << 10;

/// Pieces of one frame (64 KiB in 4 KiB pages, unaligned, plus a header piece).
pub const FRAME_PIECES_MAX: usize = 18;

/// Smallest MTU (RFC 791: every IPv4 host forwards 68 bytes).
pub const MTU_MIN: u32 = 68;

/// Largest MTU: a TAP takes frames of 65,535 bytes with their Ethernet header of 14.
pub const MTU_MAX: u32 = 65_521;

/// Largest MTU of a device whose frames begin so.
pub const fn mtu_max(layer: Layer) -> u32 {
    match layer {
        Layer::Ethernet => MTU_MAX,
        Layer::Ip => 65_535,
    }
}

/// Default MTU.
pub const MTU_DEFAULT: u32 = 1500;

/// Ethernet header with two VLAN tags (QinQ): the MTU says nothing of either.
pub const L2_HEADER: u32 = 22;

/// Room for headers in front of the network header.
pub const fn l2_header(layer: Layer) -> u32 {
    match layer {
        Layer::Ethernet => L2_HEADER,
        Layer::Ip => 0,
    }
}

/// Largest frame that any queue carries: a 64 KiB segmentation frame (65,536 bytes from the IP
/// header on, `GSO_MAX_SIZE` of the kernel) with its L2 header.
pub const FRAME_MAX: u32 = 65_536 + L2_HEADER;

/// Largest Ethernet frame of a link without segmentation offloads.
pub const fn frame_of_mtu(mtu: u32) -> u32 {
    mtu + L2_HEADER
}

/// Room that a receiver asks for when frames have up to `frame_max` bytes: one byte more, so that
/// a longer frame shows.
pub const fn room_for(frame_max: u32) -> u32 {
    frame_max + 1
}

const _: () = assert!(frame_of_mtu(MTU_MAX) <= FRAME_MAX);
const _: () = assert!(mtu_max(Layer::Ip) <= FRAME_MAX);
const _: () = assert!(BURST_FRAMES >= BUDGET);
const _: () = assert!(BURST_MORE_PIECES >= FRAME_PIECES_MAX);
const _: () = assert!(BURST_BYTES >= FRAME_MAX as usize);
