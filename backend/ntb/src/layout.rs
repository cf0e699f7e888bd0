//! Shared ABI of a bridge with mqnet at both ends: every byte that both ends access is defined in
//! this file. All numbers are little-endian.
//!
//! # Window
//! Each end owns one window; its peer writes it and never reads it.
//!
//! ```text
//! 0                       mailbox                              512 B
//! 512                     bank 0                               B bytes
//! 512 + B                 bank 1                               B = (window - 512) / 2, down to 64
//! ```
//!
//! The queue pairs in use are in one bank. A channel change creates the next queue pairs in the
//! other bank, so that traffic continues. Change number n uses bank n modulo 2. The owner of the
//! window sets the control blocks in a bank to 0 before it announces the bank. A bank of Q queue
//! pairs with rings of R bytes:
//!
//! ```text
//! 0                       control block of queue pair 0        512 B
//! 512                     control block of queue pair 1
//! ...
//! 512 * Q                 ring of queue pair 0                 R bytes
//! 512 * Q + R             ring of queue pair 1
//! ...                     R <= (B - 512 * Q) / Q, a multiple of 64
//! ```
//!
//! The *depth* of a ring is the largest number of unconsumed bytes; the producer enforces it. The
//! ring itself may be longer: see [`FOOTPRINT`].
//!
//! # Control block: words of different writers are in different 128-byte line pairs
//! | offset | written by the peer's | word |
//! |---|---|---|
//! | 0 | TX half | `tail`: end index of the peer's complete records in the owner's ring |
//! | 128 | RX half | `credit`: end index of the owner's records that the peer has consumed |
//! | 136 | RX half | `taken`: number of frames that the peer has consumed, for statistics |
//! | 256 | RX half | `rx-arm`: request for a doorbell when the owner publishes a record |
//! | 384 | TX half | `tx-arm`: request for a doorbell when the owner has freed space |
//!
//! An index word is `generation << 32 | index`, with the generation of the change. The index runs
//! through `0..2R` (`mqnet_rings::cursor`). A word of another generation is stale; a word of 0 is
//! not written yet. `mqnet_rings::arm` defines the arm words.
//!
//! # Record
//! A ring holds records: a header of 16 bytes and the frame, padded to a multiple of 16. Records
//! wrap at the ring's end, at any multiple of 16. A 64-byte frame takes 80 bytes.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | the first eight bytes of the frame's `virtio_net_hdr`: flags to csum_start |
//! | 8..12 | length of the frame |
//! | 12..14 | csum_offset |
//! | 14..16 | number of the record, modulo 65,536 |
//!
//! # Mailbox
//! Capabilities that the peer requests, and its step of a channel change, see `crate::mailbox`.
//!
//! # Scratchpads
//! 16 words of 32 bits, see [`pad`]. The peer writes them, the phase last.

use mqnet_netdev::GroupMembership;
use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX};
use mqnet_wire::VnetHdr;

/// Lowest version of this layout that the program supports.
pub const VERSION_MIN: u16 = 5;
/// Highest version of this layout that the program supports.
pub const VERSION_MAX: u16 = 5;

/// Value of the first scratchpad: "mqnb".
pub const MAGIC: u32 = 0x626e_716d;

/// Number of scratchpads that a provider must have.
pub const PADS: usize = 16;

/// Numbers of the scratchpads.
pub mod pad {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// Lowest version in the lower half, highest version in the upper half.
    pub const VERSION: usize = 1;
    /// Random number of the writer's session; not 0.
    pub const GENERATION: usize = 2;
    /// Largest number of queue pairs.
    pub const QUEUE_PAIRS: usize = 3;
    /// Bytes of the writer's window.
    pub const WINDOW: usize = 4;
    /// Requested MTU in the lower half, MTU of the writer's device in the upper half; 0 for none.
    pub const MTU: usize = 5;
    /// Largest possible MTU.
    pub const MTU_MAX: usize = 6;
    /// Largest possible frame.
    pub const FRAME_MAX: usize = 7;
    /// Offloads that frames from the writer may need.
    pub const RX_OFFLOADS: usize = 8;
    /// Offloads that the writer accepts in frames to it.
    pub const TX_OFFLOADS: usize = 9;
    /// Generation of the link with [`super::Phase::Accept`]; error code with
    /// [`super::Phase::Refuse`].
    pub const CODE: usize = 10;
    /// First value of an [`OfferError`](crate::link::OfferError), with [`super::Phase::Refuse`].
    pub const ARG0: usize = 11;
    /// Second value of that error.
    pub const ARG1: usize = 12;
    /// [`super::Phase`]; written last, before the doorbell of the link.
    pub const PHASE: usize = 13;
    /// Number of queue pairs that the user requested; 0 for none.
    pub const WANTED: usize = 14;
    /// Membership in a group, see [`super::encode_membership`]; 0 for none.
    pub const MEMBERSHIP: usize = 15;
}

/// Phase of the handshake, as the writer of the scratchpads sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// Nothing is written yet.
    None = 0,
    /// The offer is complete.
    Offer = 1,
    /// The peer's offer was accepted.
    Accept = 2,
    /// The peer's offer was refused.
    Refuse = 3,
    /// The writer closes the link.
    Bye = 4,
}

impl Phase {
    /// Phase for a number that a peer wrote; `None` for an unknown number.
    pub fn decode(word: u32) -> Option<Self> {
        [Self::None, Self::Offer, Self::Accept, Self::Refuse, Self::Bye]
            .into_iter()
            .find(|phase| *phase as u32 == word)
    }
}

/// Encodes a group membership: number, members << 4, group << 8; 0 for none.
pub fn encode_membership(membership: Option<GroupMembership>) -> u32 {
    membership.map_or(0, |membership| {
        u32::from(membership.number) | u32::from(membership.of) << 4 | membership.group << 8
    })
}

/// Decodes a group membership that a peer wrote; `Some(None)` for no membership, `None` for
/// invalid values.
pub fn decode_membership(word: u32) -> Option<Option<GroupMembership>> {
    let membership =
        GroupMembership { number: word as u8 & 15, of: word as u8 >> 4, group: word >> 8 };
    let good = (2..=8).contains(&membership.of)
        && membership.number < membership.of
        && membership.group > 0;
    if word == 0 { Some(None) } else { good.then_some(Some(membership)) }
}

/// Bytes of the mailbox.
pub const MAILBOX: usize = 512;

/// Default depth of a ring in bytes, unless the bank holds less or there are many queue pairs: see
/// [`Geometry::depth_default`]. The depth holds several large frames, and a slow sink drains them
/// within milliseconds.
pub const DEPTH_DEFAULT: u32 = 512 << 10;

/// Smallest default depth for any number of queue pairs, if the bank holds as much: one frame of
/// the largest size and some small ones. A source that receives directly into the ring reserves
/// space for the largest frame. With less free space, the engine receives even small frames in
/// private memory first.
pub const DEPTH_LEAST: u32 = 72 << 10;

/// Smallest length of the ring of one or two queue pairs in bytes, if the bank holds as much. The
/// ring is longer than the second-level caches of both CPUs. A line that is written while both
/// caches still hold it must be fetched from the reader's cache, which takes most of a sender's
/// time. Rejected: prefetch for write before the copy (`prefetchw`), with little gain. A reader
/// in another cache domain gains nothing from a long ring; see `mqnet_shmem`, stores.
/// book/src/measurements/findings.md has the figures.
pub const FOOTPRINT: u32 = 2 << 20;

/// Largest length of all rings of a direction together, in bytes, unless their depths need more.
/// Longer rings are slower with many queue pairs: their lines come from a farther cache, and their
/// small pages exceed the TLB.
pub const FOOTPRINT_OF_ALL: u32 = 4 << 20;

/// Bytes of a control block.
pub const CONTROL: usize = 512;

/// Offsets in a control block.
pub mod control {
    /// End index of the complete records.
    pub const TAIL: usize = 0;
    /// End index of the consumed records.
    pub const CREDIT: usize = 128;
    /// Number of frames consumed.
    pub const TAKEN: usize = 136;
    /// Arm word of the RX half.
    pub const RX_ARM: usize = 256;
    /// Arm word of the TX half.
    pub const TX_ARM: usize = 384;
}

/// Bytes of a record's header. The size of every record is a multiple of this number.
pub const UNIT: u32 = 16;

/// Bytes of the record of a frame of `len` bytes.
#[inline]
pub const fn record_size(len: u32) -> u32 {
    // A length written by a peer may be any number. A wrapped sum is harmless, because the caller
    // refuses such a length.
    len.wrapping_add(2 * UNIT - 1) & !(UNIT - 1)
}

/// Encodes an index word.
#[inline]
pub const fn index_word(generation: u32, index: u32) -> u64 {
    (generation as u64) << 32 | index as u64
}

/// Index in a word that a peer wrote; `None` if the word has another generation and is not 0.
#[inline]
pub const fn read_index(word: u64, generation: u32) -> Option<u32> {
    if (word >> 32) as u32 == generation || word == 0 { Some(word as u32) } else { None }
}

/// Header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Length of the frame.
    pub len: u32,
    /// Offloads that the frame needs.
    pub hdr: VnetHdr,
    /// Number of the record.
    pub number: u16,
}

impl Record {
    /// Encodes the two words of the header.
    #[inline]
    pub const fn encode(&self) -> [u64; 2] {
        let (hdr, csum_offset) = self.hdr.pack();
        [hdr, self.len as u64 | (csum_offset as u64) << 32 | (self.number as u64) << 48]
    }

    /// Decodes the two words of a header; every value is a record.
    #[inline]
    pub const fn decode([a, b]: [u64; 2]) -> Self {
        let hdr = VnetHdr::unpack(a, (b >> 32) as u16);
        Self { len: b as u32, hdr, number: (b >> 48) as u16 }
    }
}

/// Layout of a bank: offsets of the queue pairs in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Offset of the bank.
    pub base: u32,
    /// Number of queue pairs.
    pub queue_pairs: u16,
    /// Bytes of one ring.
    pub ring: u32,
    /// Largest number of unconsumed bytes in a ring.
    pub depth: u32,
}

/// Bytes of a bank.
const fn bank(window: u32) -> u32 {
    (window.saturating_sub(MAILBOX as u32) / 2) & !63
}

impl Geometry {
    /// Divides the bank of change `change` in a window of `window` bytes among `queue_pairs`
    /// queue pairs. All shares are equal; the remainder is unused. `depth` limits the unconsumed
    /// bytes of each ring.
    pub fn divide(window: u32, queue_pairs: u16, change: u32, depth: u32) -> Self {
        let base = MAILBOX as u32 + (change & 1) * bank(window);
        let share = Self::ring_max(window, queue_pairs);
        let footprint = FOOTPRINT.min(FOOTPRINT_OF_ALL / u32::from(queue_pairs.max(1)));
        let ring = share.min(depth.max(footprint)) & !63;
        Self { base, queue_pairs, ring, depth: ring.min(depth) & !63 }
    }

    /// Default depth in bytes for `queue_pairs` queue pairs: an equal part of [`FOOTPRINT_OF_ALL`],
    /// within [`DEPTH_LEAST`] and [`DEPTH_DEFAULT`]. Each ring then holds a frame of the largest
    /// size.
    pub fn depth_default(queue_pairs: u16) -> u32 {
        let share = FOOTPRINT_OF_ALL / u32::from(queue_pairs.max(1));
        share.clamp(DEPTH_LEAST, DEPTH_DEFAULT)
    }

    /// Bytes of the largest ring that each of `queue_pairs` queue pairs can have.
    pub fn ring_max(window: u32, queue_pairs: u16) -> u32 {
        let share = bank(window) / u32::from(queue_pairs.max(1));
        share.saturating_sub(CONTROL as u32) & !63
    }

    /// Largest frame that a ring can carry; 0 for none. Two units of the depth carry no frame: the
    /// record header, and a unit for the detection of longer frames. For that, the writer reserves
    /// space for `frame_max + 1` bytes.
    pub fn frame_max(&self) -> u32 {
        self.depth.saturating_sub(2 * UNIT)
    }

    /// Bytes of a bank that one queue pair needs for frames of `frame` bytes.
    fn share_for(frame: u32) -> u64 {
        CONTROL as u64 + u64::from(record_size(frame) + UNIT).next_multiple_of(64)
    }

    /// Bytes of the smallest window in which `queue_pairs` rings carry frames of `frame` bytes.
    pub fn window_for(queue_pairs: u16, frame: u32) -> u64 {
        MAILBOX as u64 + 2 * (u64::from(queue_pairs) * Self::share_for(frame)).next_multiple_of(64)
    }

    /// Largest number of queue pairs with rings that carry frames of `frame` bytes, in a window of
    /// `window` bytes; 0 for none.
    pub fn queue_pairs_for(window: u32, frame: u32) -> u16 {
        (u64::from(bank(window)) / Self::share_for(frame)).min(u64::from(CHANNELS_MAX)) as u16
    }

    /// Offsets of all control blocks in the window.
    pub fn controls(&self) -> std::ops::Range<usize> {
        let base = self.base as usize;
        base..base + CONTROL * usize::from(self.queue_pairs)
    }

    /// Offset in the window of a word of queue pair `qp`.
    pub fn control(&self, qp: u16, word: usize) -> usize {
        self.base as usize + CONTROL * usize::from(qp) + word
    }

    /// Offset in the window of the ring of queue pair `qp`.
    pub fn ring_at(&self, qp: u16) -> usize {
        self.controls().end + self.ring as usize * usize::from(qp)
    }
}

const _: () = assert!(UNIT as usize == size_of::<[u64; 2]>());
const _: () = assert!(control::TX_ARM + 8 <= CONTROL);
const _: () = assert!(pad::MEMBERSHIP < PADS);
const _: () = assert!(record_size(FRAME_MAX) + UNIT <= DEPTH_LEAST);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Goal: for every window and number of queue pairs, the shares are inside the window,
        // aligned and do not overlap. The window and the number of queue pairs that a refusal
        // recommends are sufficient.
        #[test]
        fn shares_never_overlap(
            (window, qps, frame) in (0u32..16 << 20, 1u16..=64, 60u32..70_000),
            (change, limit) in (0u32..5, 0u32..4 << 20),
        ) {
            let g = Geometry::divide(window, qps, change, limit);
            prop_assert_eq!(g.ring % 64, 0);
            prop_assert!(g.depth <= limit && g.depth <= g.ring);
            prop_assert_eq!(g.depth % 64, 0);
            let mut end = g.base as usize + CONTROL * usize::from(qps);
            for qp in 0..qps {
                prop_assert!(g.control(qp, control::TX_ARM) + 8 <= g.ring_at(0));
                prop_assert_eq!(g.ring_at(qp), end);
                end += g.ring as usize;
            }
            let next = Geometry::divide(window, qps, change + 1, limit);
            if g.ring > 0 {
                prop_assert!(end <= window as usize);
                let apart = end <= next.base as usize || (next.base as usize) < g.base as usize;
                prop_assert!(apart, "the banks overlap");
            }
            let carries = |window, qps| Geometry::divide(window, qps, change, u32::MAX).frame_max();
            let enough = Geometry::window_for(qps, frame);
            prop_assert!(carries(enough as u32, qps) >= frame);
            let most = Geometry::queue_pairs_for(window, frame);
            if most > 0 {
                prop_assert!(carries(window, most) >= frame);
            }
        }

        // Goal: a record is unchanged by encoding and decoding, and every pair of words can be
        // decoded.
        #[test]
        fn records_round_trip(a: u64, b: u64) {
            let record = Record::decode([a, b]);
            prop_assert_eq!(Record::decode(record.encode()), record);
        }

        // Rule: the bytes of a record's header have the order of the table above, least significant
        // first. A big-endian host decodes the same record from the words that it has swapped.
        #[test]
        fn records_match_documented_layout(a: u64, b: u64) {
            let record = Record::decode([a, b]);
            let bytes = record.encode().map(u64::to_le_bytes).concat();
            prop_assert_eq!(&bytes[8..12], &record.len.to_le_bytes());
            let (_, csum_offset) = record.hdr.pack();
            prop_assert_eq!(&bytes[12..14], &csum_offset.to_le_bytes());
            prop_assert_eq!(&bytes[14..], &record.number.to_le_bytes());
            let swapped = [0, 8].map(|at| {
                let word = bytes[at..at + 8].iter().fold(0, |word, &b| word << 8 | u64::from(b));
                word.swap_bytes()
            });
            prop_assert_eq!(Record::decode(swapped), record);
        }
    }

    // Rule: by default, the rings of all queue pairs together have at most 4 MiB, unless each needs
    // more for the largest frame. Each carries the largest frame. Only the rings of few queue pairs
    // are longer than their depth.
    #[test]
    fn many_rings_are_short() {
        let of = |qps| {
            let g = Geometry::divide(16 << 20, qps, 0, Geometry::depth_default(qps));
            (g.ring >> 10, g.depth >> 10)
        };
        for (qps, expected) in [
            (1, (2048, 512)),
            (2, (2048, 512)),
            (4, (1024, 512)),
            (8, (512, 512)),
            (16, (256, 256)),
            (32, (128, 128)),
            (64, (72, 72)),
        ] {
            assert_eq!(of(qps), expected, "{qps}");
        }
        let least = Geometry::divide(16 << 20, 64, 0, Geometry::depth_default(64));
        assert!(least.frame_max() >= FRAME_MAX);
    }

    // Rule: a record takes the bytes of its header and its frame, rounded up to 16. (A slot of the
    // kernel's transport takes 64 KiB.)
    #[test]
    fn small_frames_are_small() {
        assert_eq!(record_size(64), 80);
        assert_eq!(record_size(1), 32);
        assert_eq!(record_size(0), 16);
    }

    // Rule: a word of another generation gives no index; a word of 0 gives index 0.
    #[test]
    fn stale_words_are_detected() {
        assert_eq!(read_index(index_word(7, 5), 7), Some(5));
        assert_eq!(read_index(index_word(6, 5), 7), None);
        assert_eq!(read_index(0, 7), Some(0));
    }
}
