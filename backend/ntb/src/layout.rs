//! The whole shared ABI: every byte that the two ends of a bridge see. Nothing outside this file
//! defines one. All numbers are little-endian.
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
//! The queue pairs in use are in one bank. A change builds the next ones in the other, so that
//! traffic continues; the number of the change, modulo 2, is the number of its bank. Before
//! it announces a bank, its owner sets the control blocks in it to 0. Within a bank of Q queue
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
//! A ring is longer than its *depth* (the bytes that may wait, which the producer obeys): see
//! [`FOOTPRINT`].
//!
//! # Control block, one 128 B line pair per word so that no two writers' words share a line
//! | offset | written by the peer's | word |
//! |---|---|---|
//! | 0 | TX half | `tail`: index up to which its records are complete in our ring |
//! | 128 | RX half | `credit`: index up to which it has consumed our records |
//! | 136 | RX half | `taken`: frames that it has consumed, for our statistics |
//! | 256 | RX half | `rx-arm`: ring its doorbell when we publish a record |
//! | 384 | TX half | `tx-arm`: ring its doorbell when we have freed room |
//!
//! An index word is `generation << 32 | index`, with the generation of the change; the index runs
//! through `0..2R` (`mqnet_rings::cursor`). A word of another generation is stale; a word of 0 has
//! not been written yet. The arm words are `mqnet_rings::arm`'s.
//!
//! # Record
//! A ring holds records of 16 bytes of header and the frame, padded to 16. It wraps anywhere at a
//! multiple of 16. A 64-byte frame costs 80 bytes.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | the first eight bytes of the frame's `virtio_net_hdr`: flags to csum_start |
//! | 8..12 | length of the frame |
//! | 12..14 | csum_offset |
//! | 14..16 | number of the record, modulo 65,536 |
//!
//! # Mailbox
//! What the peer wants and where it stands in a change, see `crate::mailbox`.
//!
//! # Scratchpads
//! 16 of 32 bits, see [`pad`]; written by the peer, phase last.

use mqnet_netdev::GroupMembership;
use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX};
use mqnet_wire::VnetHdr;

/// Versions of this file that this program speaks.
pub const VERSION_MIN: u16 = 5;
/// See [`VERSION_MIN`].
pub const VERSION_MAX: u16 = 5;

/// First scratchpad: "mqnb".
pub const MAGIC: u32 = 0x626e_716d;

/// Scratchpads that a provider must offer.
pub const PADS: usize = 16;

/// What each scratchpad means.
pub mod pad {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// Lowest version in the lower half, highest in the upper.
    pub const VERSION: usize = 1;
    /// Random number of this life of the writer's link, not 0.
    pub const GENERATION: usize = 2;
    /// Most queue pairs.
    pub const QUEUE_PAIRS: usize = 3;
    /// Bytes of the writer's own window.
    pub const WINDOW: usize = 4;
    /// Wanted MTU, MTU of a found device << 16, 0 for none.
    pub const MTU: usize = 5;
    /// Largest possible MTU.
    pub const MTU_MAX: usize = 6;
    /// Largest possible frame.
    pub const FRAME_MAX: usize = 7;
    /// Offloads with which frames may come from the writer.
    pub const RX_OFFLOADS: usize = 8;
    /// Offloads with which frames may go to the writer.
    pub const TX_OFFLOADS: usize = 9;
    /// With [`super::Phase::Accept`]: generation of the link. With a refusal: its code.
    pub const CODE: usize = 10;
    /// First number of a refusal.
    pub const ARG0: usize = 11;
    /// Second number of a refusal.
    pub const ARG1: usize = 12;
    /// [`super::Phase`]; written last, with the doorbell of the link after it.
    pub const PHASE: usize = 13;
    /// Queue pairs that the user asked for, 0 for none in particular.
    pub const WANTED: usize = 14;
    /// Place in a group, see [`super::encode_membership`]; 0 for none.
    pub const MEMBERSHIP: usize = 15;
}

/// How far the writer of the scratchpads is.
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
    /// The writer leaves in good order.
    Bye = 4,
}

impl Phase {
    /// Reads what a peer wrote; `None` for a number that means nothing.
    pub fn decode(word: u32) -> Option<Self> {
        [Self::None, Self::Offer, Self::Accept, Self::Refuse, Self::Bye]
            .into_iter()
            .find(|phase| *phase as u32 == word)
    }
}

/// A place in a group: number, members << 4, number of the group << 8.
pub fn encode_membership(seat: Option<GroupMembership>) -> u32 {
    seat.map_or(0, |seat| u32::from(seat.number) | u32::from(seat.of) << 4 | seat.group << 8)
}

/// Reads a place that a peer wrote; `None` for one that cannot be.
pub fn decode_membership(word: u32) -> Option<Option<GroupMembership>> {
    let seat = GroupMembership { number: word as u8 & 15, of: word as u8 >> 4, group: word >> 8 };
    let good = (2..=8).contains(&seat.of) && seat.number < seat.of && seat.group > 0;
    if word == 0 { Some(None) } else { good.then_some(Some(seat)) }
}

/// Bytes of the mailbox.
pub const MAILBOX: usize = 512;

/// Default depth of a ring in bytes, unless the bank holds less: room for some large frames, and no
/// longer a queue than a slow sink drains in some milliseconds. See [`Geometry::depth_default`] for
/// many queue pairs.
pub const DEPTH_DEFAULT: u32 = 512 << 10;

/// The same however many queue pairs there are, if the bank holds as many: one of the largest
/// frames, and some small ones. (A receiver into the ring reserves room for the largest frame in
/// any case. The engine receives small frames elsewhere when there is less.)
pub const DEPTH_LEAST: u32 = 72 << 10;

/// Bytes of the ring of one or two queue pairs at least, if the bank holds as many. A line that is
/// written again while both CPUs still have it in their second-level caches has to be taken from
/// the reader's: with rings of 512 KiB that was 80 % of the sender's time, and a ring that is
/// longer than those caches (of 1 MiB here) moves three times the frames of 1514 B. Rejected:
/// prefetch for write ahead of the copy (`prefetchw`), which gained a few per cent.
/// book/src/measurements/findings.md has the figures. (Where the reader is far no ring is long
/// enough: what helps there is in `mqnet_shmem`, stores.)
pub const FOOTPRINT: u32 = 2 << 20;

/// Bytes of all rings of a direction together that are long enough for that, and not too long: with
/// 8 MiB, 16 and more queue pairs moved an eighth fewer small frames. (Their lines come from
/// farther away, and 2048 small pages are what a TLB holds.)
pub const FOOTPRINT_OF_ALL: u32 = 4 << 20;

/// Bytes of a control block.
pub const CONTROL: usize = 512;

/// Offsets in a control block.
pub mod control {
    /// Index up to which records are complete.
    pub const TAIL: usize = 0;
    /// Index up to which records are consumed.
    pub const CREDIT: usize = 128;
    /// Frames consumed.
    pub const TAKEN: usize = 136;
    /// Arming of the RX half.
    pub const RX_ARM: usize = 256;
    /// Arming of the TX half.
    pub const TX_ARM: usize = 384;
}

/// Bytes of a record's header, and the unit of a ring.
pub const UNIT: u32 = 16;

/// Bytes that a frame of `len` bytes takes in a ring.
#[inline]
pub const fn record_size(len: u32) -> u32 {
    // A length that a peer wrote may be anything: a sum that wraps is refused with its length.
    len.wrapping_add(2 * UNIT - 1) & !(UNIT - 1)
}

/// An index word.
#[inline]
pub const fn index_word(generation: u32, index: u32) -> u64 {
    (generation as u64) << 32 | index as u64
}

/// The index in a word that a peer wrote; `None` when it is of another life of the link.
#[inline]
pub const fn read_index(word: u64, generation: u32) -> Option<u32> {
    if (word >> 32) as u32 == generation || word == 0 { Some(word as u32) } else { None }
}

/// Header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Length of the frame.
    pub len: u32,
    /// What is unfinished about it.
    pub hdr: VnetHdr,
    /// Number of the record.
    pub number: u16,
}

impl Record {
    /// The two words of the header.
    #[inline]
    pub const fn encode(&self) -> [u64; 2] {
        let (hdr, csum_offset) = self.hdr.pack();
        [hdr, self.len as u64 | (csum_offset as u64) << 32 | (self.number as u64) << 48]
    }

    /// Reads the two words of a header; any value is some record.
    #[inline]
    pub const fn decode([a, b]: [u64; 2]) -> Self {
        let hdr = VnetHdr::unpack(a, (b >> 32) as u16);
        Self { len: b as u32, hdr, number: (b >> 48) as u16 }
    }
}

/// Places of the queue pairs in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Offset of the bank.
    pub base: u32,
    /// Queue pairs.
    pub queue_pairs: u16,
    /// Bytes of one ring.
    pub ring: u32,
    /// Bytes that may wait in it.
    pub depth: u32,
}

/// Bytes of a bank.
const fn bank(window: u32) -> u32 {
    (window.saturating_sub(MAILBOX as u32) / 2) & !63
}

impl Geometry {
    /// Divides the bank of change number `change` of a window of `window` bytes among
    /// `queue_pairs`, in rings with up to `depth` waiting bytes. Every share is the same; the rest
    /// is unused.
    pub fn divide(window: u32, queue_pairs: u16, change: u32, depth: u32) -> Self {
        let base = MAILBOX as u32 + (change & 1) * bank(window);
        let share = Self::ring_max(window, queue_pairs);
        let footprint = FOOTPRINT.min(FOOTPRINT_OF_ALL / u32::from(queue_pairs.max(1)));
        let ring = share.min(depth.max(footprint)) & !63;
        Self { base, queue_pairs, ring, depth: ring.min(depth) & !63 }
    }

    /// Default depth in bytes with this number of queue pairs: together little more than the caches
    /// hold, and a largest frame in each.
    pub fn depth_default(queue_pairs: u16) -> u32 {
        let share = FOOTPRINT_OF_ALL / u32::from(queue_pairs.max(1));
        share.clamp(DEPTH_LEAST, DEPTH_DEFAULT)
    }

    /// Largest ring that `queue_pairs` can have.
    pub fn ring_max(window: u32, queue_pairs: u16) -> u32 {
        let share = bank(window) / u32::from(queue_pairs.max(1));
        share.saturating_sub(CONTROL as u32) & !63
    }

    /// Largest frame that a ring can ever carry (0 for none). One unit is left over, so that a
    /// receiver can ask for room for one byte more than fits, and notice a frame that is too long.
    pub fn frame_max(&self) -> u32 {
        self.depth.saturating_sub(2 * UNIT)
    }

    /// Bytes of a bank that one queue pair takes for frames of `frame` bytes.
    fn share_for(frame: u32) -> u64 {
        CONTROL as u64 + u64::from(record_size(frame) + UNIT).next_multiple_of(64)
    }

    /// Smallest window in which `queue_pairs` rings carry frames of `frame` bytes.
    pub fn window_for(queue_pairs: u16, frame: u32) -> u64 {
        MAILBOX as u64 + 2 * (u64::from(queue_pairs) * Self::share_for(frame)).next_multiple_of(64)
    }

    /// Most queue pairs whose rings carry frames of `frame` bytes in a window (0 for none).
    pub fn queue_pairs_for(window: u32, frame: u32) -> u16 {
        (u64::from(bank(window)) / Self::share_for(frame)).min(u64::from(CHANNELS_MAX)) as u16
    }

    /// Offsets of the control blocks.
    pub fn controls(&self) -> std::ops::Range<usize> {
        let base = self.base as usize;
        base..base + CONTROL * usize::from(self.queue_pairs)
    }

    /// Offset of a word of queue pair `qp`.
    pub fn control(&self, qp: u16, word: usize) -> usize {
        self.base as usize + CONTROL * usize::from(qp) + word
    }

    /// Offset of the ring of queue pair `qp`.
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
        // Goal: for every window and number of queue pairs the shares lie within the window, do not
        // overlap, are aligned, and the "numbers that would work" do work.
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

        // Goal: a record survives its encoding, and every pair of words decodes to something.
        #[test]
        fn records_round_trip(a: u64, b: u64) {
            let record = Record::decode([a, b]);
            prop_assert_eq!(Record::decode(record.encode()), record);
        }

        // Goal: the bytes of a record's header lie as the table above says, the smallest first, so
        // that a host of the other byte order reads the same after swapping each word.
        #[test]
        fn records_lie_as_the_table_says(a: u64, b: u64) {
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

    // Goal: unless the user says otherwise, the rings of many go round in as little memory as those
    // of four, and each still carries the largest frame; those of few are long.
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

    // Goal: a small frame costs a small record (the kernel's transport takes 64 KiB for it).
    #[test]
    fn small_frames_are_small() {
        assert_eq!(record_size(64), 80);
        assert_eq!(record_size(1), 32);
        assert_eq!(record_size(0), 16);
    }

    // Goal: a word of another generation is not an index, an unwritten one is index 0.
    #[test]
    fn stale_words_are_told_apart() {
        assert_eq!(read_index(index_word(7, 5), 7), Some(5));
        assert_eq!(read_index(index_word(6, 5), 7), None);
        assert_eq!(read_index(0, 7), Some(0));
    }
}
