//! All maximum values, with their relations checked at compile time.

use mqnet_wire::Layer;

/// Maximum number of channels of a netdev (the limit of the kernel's NTB netdev).
pub const CHANNELS_MAX: u16 = 64;

/// Maximum frames of one poll of a lane (a NAPI budget); see [`TURN`] for small frames.
pub const BUDGET: usize = 64;

/// Maximum frames of one poll while frames are [`SMALL`] and copied. A larger budget amortizes the
/// cache misses at the switch to the next lane, which cost as much as several small frames.
pub const TURN: usize = 4 * BUDGET;

/// Maximum average length of small frames in a burst: [`TURN`] of them are 64 KiB.
pub const SMALL: u32 = 256;

/// Maximum frames of one burst between two queues.
pub const BURST_FRAMES: usize = 64;

/// Maximum pieces of memory in one burst beyond the first of each frame: room for some frames in
/// many pages. A ring needs one, where it wraps.
pub const BURST_MORE_PIECES: usize = 64;

/// Bytes after which a queue ends a burst early, so that its memory is returned (and its frames are
/// published) before the next burst: about two large frames.
pub const BURST_BYTES: usize = 128 << 10;

/// Maximum pieces of one frame (64 KiB in 4 KiB pages, unaligned, plus a header piece).
pub const FRAME_PIECES_MAX: usize = 18;

/// Smallest MTU (RFC 791: every IPv4 host forwards 68 bytes).
pub const MTU_MIN: u32 = 68;

/// Largest MTU: a TAP accepts frames of 65,535 bytes with their Ethernet header of 14.
pub const MTU_MAX: u32 = 65_521;

/// Largest MTU of a device with frames of this layer.
pub const fn mtu_max(layer: Layer) -> u32 {
    match layer {
        Layer::Ethernet => MTU_MAX,
        Layer::Ip => 65_535,
    }
}

/// Default MTU.
pub const MTU_DEFAULT: u32 = 1500;

/// Ethernet header with two VLAN tags (QinQ). The MTU includes neither.
pub const L2_HEADER: u32 = 22;

/// Maximum length of the headers in front of the network header.
pub const fn l2_header(layer: Layer) -> u32 {
    match layer {
        Layer::Ethernet => L2_HEADER,
        Layer::Ip => 0,
    }
}

/// Largest frame of any queue: a 64 KiB segmentation frame (65,536 bytes from the IP header on,
/// `GSO_MAX_SIZE` of the kernel) with its L2 header.
pub const FRAME_MAX: u32 = 65_536 + L2_HEADER;

/// Largest Ethernet frame of a link without segmentation offloads.
pub const fn frame_of_mtu(mtu: u32) -> u32 {
    mtu + L2_HEADER
}

/// Room that a receiver reserves for frames of up to `frame_max` bytes: one byte more, to detect
/// longer frames.
pub const fn room_for(frame_max: u32) -> u32 {
    frame_max + 1
}

const _: () = assert!(frame_of_mtu(MTU_MAX) <= FRAME_MAX);
const _: () = assert!(mtu_max(Layer::Ip) <= FRAME_MAX);
const _: () = assert!(BURST_FRAMES >= BUDGET);
const _: () = assert!(BURST_MORE_PIECES >= FRAME_PIECES_MAX);
const _: () = assert!(BURST_BYTES >= FRAME_MAX as usize);
