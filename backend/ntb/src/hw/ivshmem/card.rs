//! Layout of a half of the shared memory, up to its window. All numbers are little-endian, and
//! nothing depends on the page size, so any two hosts can share the memory.
//!
//! Half 0 is the first half of the memory and belongs to side 0; half 1 belongs to side 1. Each
//! half has a card with fields that its owner writes. The other side writes the scratchpads, the
//! doorbells and the window.
//!
//! | offset | written by | contents |
//! |---|---|---|
//! | 0 | other side | scratchpads, one 64-bit word each |
//! | 512 | owner | the card |
//! | 640 | owner | heartbeat: changes several times in five seconds |
//! | 1024 | other side | doorbells, one word each: every change of a word rings the doorbell |
//! | 4096 | other side | window, up to the end of the half |
//!
//! | card + | field |
//! |---|---|
//! | 0 | "mqnetivm" |
//! | 8 | version, 1; upper half: interrupt vectors that wake the owner, 0 if the owner polls |
//! | 16 | bytes of the whole memory |
//! | 24 | number of the owner at the device, `!0` for none; upper half: its page size |
//! | 32 | incarnation: a random number, new for each claim of the half; 0 without an owner |
//! | 40 | echo: the incarnation of the other side for which the owner has cleared this half |
//!
//! A side writes its incarnation after the card's preceding fields, and its echo after it has
//! cleared its half. A link is up when the echo of each side equals the incarnation of the other
//! side.
//!
//! With n > 1 vectors, doorbell 0 (the link) is vector 0, and doorbell 1 + q (queue pair q) is
//! vector 1 + q modulo (n - 1). With one vector, every doorbell is vector 0.

use std::sync::atomic::Ordering;

use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_shmem::Region;

use crate::layout::{CONTROL, MAILBOX, PADS};

const CARD: usize = 512;
const BEAT: usize = 640;
const BELLS: usize = 1024;
/// Offset of the window in a half.
pub(super) const WINDOW: usize = 4096;

/// Number of doorbells of a side.
pub(super) const DOORBELLS: usize = 1 + CHANNELS_MAX as usize;

const MAGIC: u64 = u64::from_le_bytes(*b"mqnetivm");
const VERSION: u32 = 1;
const NO_PEER: u32 = !0;

const VERSION_AT: usize = CARD + 8;
const SIZE_AT: usize = CARD + 16;
const ID_AT: usize = CARD + 24;
const INCARNATION_AT: usize = CARD + 32;
const ECHO_AT: usize = CARD + 40;

const _: () = assert!(PADS * 8 <= CARD && ECHO_AT + 8 <= BEAT);
const _: () = assert!(BEAT + 8 <= BELLS && BELLS + DOORBELLS * 8 <= WINDOW);

/// Fields that a side publishes in its half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) id: Option<u32>,
    pub(super) vectors: u32,
    pub(super) size: u64,
    pub(super) incarnation: u64,
    pub(super) echo: u64,
}

/// Offset of the word of doorbell `bit`.
pub(super) fn doorbell(bit: usize) -> usize {
    BELLS + bit * 8
}

/// Offset of the word of scratchpad `pad`.
pub(super) fn pad(pad: usize) -> usize {
    pad * 8
}

fn get(half: &Region, at: usize) -> u64 {
    u64::from_le(half.word(at).load(Ordering::Relaxed))
}

fn set(half: &Region, at: usize, value: u64) {
    half.word(at).store(value.to_le(), Ordering::Relaxed);
}

/// Incarnation of the owner of this half; 0 if there is none.
pub(super) fn incarnation(half: &Region) -> u64 {
    // Pairs with the Release store in set_incarnation: the card's fields written before it are
    // visible.
    u64::from_le(half.word(INCARNATION_AT).load(Ordering::Acquire))
}

/// Publishes the owner of this half. Called after all other fields of the card are written.
pub(super) fn set_incarnation(half: &Region, incarnation: u64) {
    // Pairs with the Acquire load in incarnation: makes the card's fields visible.
    half.word(INCARNATION_AT).store(incarnation.to_le(), Ordering::Release);
}

/// Reads the card of this half; `None` if the half has no owner. `Err` if it has an owner and the
/// magic number or the version is wrong.
pub(super) fn read(half: &Region) -> Result<Option<Card>, String> {
    let incarnation = incarnation(half);
    if incarnation == 0 {
        return Ok(None);
    }
    let magic = get(half, CARD);
    if magic != MAGIC {
        return Err(format!(
            "the shared memory is used by another program (its header begins with {magic:#x}): use \
             a device of its own"
        ));
    }
    let (version, id) = (get(half, VERSION_AT), get(half, ID_AT) as u32);
    if version as u32 != VERSION {
        let theirs = version as u32;
        return Err(format!(
            "shared memory: the peer uses layout version {theirs}, this end {VERSION}: update one \
             of them"
        ));
    }
    // Pairs with the Release store in set_echo: the cleared words are visible.
    let echo = u64::from_le(half.word(ECHO_AT).load(Ordering::Acquire));
    Ok(Some(Card {
        id: Some(id).filter(|&id| id != NO_PEER),
        vectors: (version >> 32) as u32,
        size: get(half, SIZE_AT),
        incarnation,
        echo,
    }))
}

/// Writes the fields of a card, except incarnation and echo.
pub(super) fn write(half: &Region, card: &Card) {
    set(half, CARD, MAGIC);
    set(half, VERSION_AT, u64::from(VERSION) | u64::from(card.vectors) << 32);
    set(half, SIZE_AT, card.size);
    let page = mqnet_sysio::memory::small_page() as u64;
    set(half, ID_AT, u64::from(card.id.unwrap_or(NO_PEER)) | page << 32);
}

/// Publishes the incarnation for which this half has been cleared.
pub(super) fn set_echo(half: &Region, incarnation: u64) {
    // Pairs with the Acquire load of the echo in read: makes the cleared words visible.
    half.word(ECHO_AT).store(incarnation.to_le(), Ordering::Release);
}

/// Heartbeat of the owner of this half.
pub(super) fn beat(half: &Region) -> u64 {
    get(half, BEAT)
}

/// Publishes a heartbeat.
pub(super) fn set_beat(half: &Region, beat: u64) {
    set(half, BEAT, beat);
}

/// Clears the words that a former peer has written: scratchpads, mailbox, and the control blocks of
/// bank 0. A later channel change clears those of its bank itself (`session::clear_bank`).
pub(super) fn clear(half: &Region) {
    let controls = CONTROL * usize::from(CHANNELS_MAX);
    let window = WINDOW..(WINDOW + MAILBOX + controls).min(half.len());
    for at in (0..PADS * 8).chain(window).step_by(8) {
        set(half, at, 0);
    }
}

/// Vector of doorbell `bit` of a side with `vectors` interrupt vectors.
pub(super) fn vector(bit: usize, vectors: u32) -> u32 {
    match (bit as u32, vectors) {
        (0, _) | (_, 0 | 1) => 0,
        (bit, n) => 1 + (bit - 1) % (n - 1),
    }
}

/// Vector of each queue pair, in order, of a side with `vectors` interrupt vectors.
pub(super) fn vectors_of_queues(vectors: u32) -> Vec<u16> {
    (1..DOORBELLS).map(|bit| vector(bit, vectors) as u16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half() -> Region {
        Region::shared("test", 512 << 10, false).unwrap()
    }

    // Rule: the card that one side writes is read unchanged. Fresh memory has no owner; foreign
    // memory and other versions are refused with a reason.
    #[test]
    fn cards_are_read_and_checked() {
        let half = half();
        assert_eq!(read(&half), Ok(None));
        for id in [None, Some(3)] {
            let card = Card { id, vectors: 5, size: 1 << 20, incarnation: 7, echo: 9 };
            write(&half, &card);
            set_echo(&half, 9);
            set_incarnation(&half, 7);
            assert_eq!(read(&half), Ok(Some(card)));
        }
        set(&half, VERSION_AT, 2);
        assert!(read(&half).unwrap_err().contains("layout version 2, this end 1"));
        set(&half, CARD, 5);
        assert!(read(&half).unwrap_err().contains("used by another program"));
    }

    // Goal: every byte of a card and of a heartbeat is at the offset in the tables above, least
    // significant first. The host's byte order makes no difference.
    #[test]
    fn card_matches_documented_layout() {
        let half = half();
        let card = Card { id: Some(3), vectors: 9, size: 1 << 24, incarnation: 0, echo: 0 };
        write(&half, &card);
        set_echo(&half, 0x1112_1314_1516_1718);
        set_incarnation(&half, 0x2122_2324_2526_2728);
        set_beat(&half, 0x0102);
        let bytes = |at: usize, len: usize| {
            let mut all = vec![0; len];
            assert_eq!(half.span(at, len).read_header(&mut all), len);
            all
        };
        let page = (mqnet_sysio::memory::small_page() as u32).to_le_bytes();
        assert_eq!(bytes(512, 16), [*b"mqnetivm", [1, 0, 0, 0, 9, 0, 0, 0]].concat());
        assert_eq!(bytes(528, 8), [0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(bytes(536, 8), [[3, 0, 0, 0], page].concat());
        assert_eq!(bytes(544, 8), [0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21]);
        assert_eq!(bytes(552, 8), [0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
        assert_eq!(bytes(640, 8), [2, 1, 0, 0, 0, 0, 0, 0]);
        let mut word = [0; 8];
        word.copy_from_slice(&bytes(544, 8));
        assert_eq!(u64::from_be_bytes(word).swap_bytes(), incarnation(&half));
    }

    // Goal: clearing removes the words that a peer writes before a link is up, and changes
    // neither the card nor the doorbells.
    #[test]
    fn clearing_leaves_the_card() {
        const STALE: u64 = 0xdead;
        let half = half();
        let card = Card { id: None, vectors: 0, size: 1 << 20, incarnation: 7, echo: 0 };
        write(&half, &card);
        set_incarnation(&half, 7);
        for at in [pad(0), pad(PADS - 1), doorbell(0), WINDOW, WINDOW + MAILBOX, WINDOW + 33_272] {
            set(&half, at, STALE);
        }
        clear(&half);
        assert_eq!(read(&half), Ok(Some(card)));
        let left: Vec<usize> =
            (0..half.len()).step_by(8).filter(|&at| get(&half, at) == STALE).collect();
        assert_eq!(left, [doorbell(0)]);
    }

    // Rule: each queue pair has its own vector if there are enough. A queue pair uses vector 0 only
    // if there is no other vector.
    #[test]
    fn vectors_are_spread() {
        let of = |n| (0..5).map(|bit| vector(bit, n)).collect::<Vec<_>>();
        assert_eq!(of(65), [0, 1, 2, 3, 4]);
        assert_eq!(of(3), [0, 1, 2, 1, 2]);
        assert_eq!(of(2), [0, 1, 1, 1, 1]);
        assert_eq!((of(1), of(0)), (vec![0; 5], vec![0; 5]));
        assert!((0..DOORBELLS).all(|bit| vector(bit, !0) as usize == bit));
        assert_eq!(vectors_of_queues(3)[..4], [1, 2, 1, 2]);
        assert_eq!(vectors_of_queues(1), vec![0; usize::from(CHANNELS_MAX)]);
    }
}
