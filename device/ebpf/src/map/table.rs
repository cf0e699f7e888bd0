//! Key table of a hash, LRU or prefix map. All memory is allocated when the table is created.
//!
//! Lookups take no lock. The entries of a bucket form a list with a sequence number, which is odd
//! during a change. Writers exclude each other by a lock. A deleted entry is reused last, because a
//! program may still hold its address. As in the kernel, a program that holds the address too long
//! reads the value of the next key there.
//!
//! A full LRU table evicts by the clock algorithm. The clock hand skips entries that were used
//! since its last pass. It stops at the first unused entry, or after [`PASSES_MAX`] entries.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{KEY_MAX, MapDef, MapKind};

const NONE: u32 = u32::MAX;
/// Maximum number of words of a key.
const WORDS: usize = KEY_MAX as usize / 8;
/// Number of words that suffices for the keys of most maps.
const INLINE_WORDS: usize = 4;
/// Maximum key size of a prefix map in bytes.
const PREFIX_MAX: usize = 20;
/// Number of lookup attempts during changes of a bucket, before the reader takes the lock.
const TRIES: usize = 8;
/// Maximum number of entries that the hand skips, which bounds the time of an update.
const PASSES_MAX: u32 = 128;

#[derive(Debug)]
struct Bucket {
    first: AtomicU32,
    /// Sequence number; odd during a change.
    sequence: AtomicU32,
}

#[derive(Debug)]
pub(super) struct Table {
    buckets: Box<[Bucket]>,
    /// Next entry in the bucket, for each entry.
    next: Box<[AtomicU32]>,
    keys: Box<[AtomicU64]>,
    key_size: usize,
    words: usize,
    free: Mutex<VecDeque<u32>>,
    hasher: RandomState,
    /// Number of prefixes of each length; empty for other kinds.
    lengths: Box<[AtomicU32]>,
    /// True for each entry that was used since the last pass of the hand; empty if the map is not
    /// LRU.
    used: Box<[AtomicBool]>,
    /// Position of the hand, which only writers change.
    hand: AtomicU32,
}

/// Exclusive write access to a table.
pub(super) struct Writer<'a> {
    table: &'a Table,
    free: MutexGuard<'a, VecDeque<u32>>,
}

fn numbers(n: usize, value: u32) -> Box<[AtomicU32]> {
    (0..n).map(|_| AtomicU32::new(value)).collect()
}

/// Calls `f` with the words of a copy of the key, because the program may modify the key
/// concurrently. Returns the result of `f`.
fn in_words<T>(key: &[u8], f: impl FnOnce(&[u64]) -> T) -> T {
    fn fill<T>(words: &mut [u64], key: &[u8], f: impl FnOnce(&[u64]) -> T) -> T {
        for (word, bytes) in words.iter_mut().zip(key.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(eight);
        }
        f(words)
    }
    let n = key.len().div_ceil(8);
    if n <= INLINE_WORDS {
        fill(&mut [0; INLINE_WORDS][..n], key, f)
    } else {
        fill(&mut [0; WORDS][..n.min(WORDS)], key, f)
    }
}

impl Table {
    pub(super) fn new(def: &MapDef) -> Self {
        let (key_size, n) = (def.key_size as usize, def.max_entries as usize);
        let is_prefix = def.kind == MapKind::LpmTrie;
        let words = key_size.div_ceil(8);
        let bucket = |_| Bucket { first: AtomicU32::new(NONE), sequence: AtomicU32::new(0) };
        Self {
            buckets: (0..n.next_power_of_two()).map(bucket).collect(),
            next: numbers(n, NONE),
            keys: (0..words * n).map(|_| AtomicU64::new(0)).collect(),
            key_size,
            words,
            free: Mutex::new((0..def.max_entries).collect()),
            hasher: RandomState::new(),
            lengths: numbers(if is_prefix { 8 * (key_size - 4) + 1 } else { 0 }, 0),
            used: (0..if def.kind.is_lru() { n } else { 0 })
                .map(|_| AtomicBool::new(false))
                .collect(),
            hand: AtomicU32::new(0),
        }
    }

    /// Calls `f` with the words of a key and its prefix length (0 if the map has no prefixes). Bits
    /// beyond the prefix are cleared. Returns the result of `f`, or `None` for an invalid prefix.
    fn with<T>(&self, key: &[u8], f: impl FnOnce(&[u64], usize) -> T) -> Option<T> {
        if self.lengths.is_empty() {
            return Some(in_words(key, |words| f(words, 0)));
        }
        let mut room = [0; PREFIX_MAX];
        let own = room.get_mut(..key.len())?;
        own.copy_from_slice(key);
        let length = u32::from_ne_bytes(*own.first_chunk()?) as usize;
        self.masked(own, length).then(|| in_words(own, |words| f(words, length)))
    }

    /// Clears the bits beyond `length`. Returns false if the key has fewer bits.
    fn masked(&self, key: &mut [u8], length: usize) -> bool {
        if length >= self.lengths.len() {
            return false;
        }
        let (bits, rest) = key.split_at_mut(4);
        bits.copy_from_slice(&(length as u32).to_ne_bytes());
        for (i, byte) in rest.iter_mut().enumerate() {
            *byte &= !(0xffu16 >> length.saturating_sub(8 * i).min(8)) as u8;
        }
        true
    }

    /// Marks an entry as used.
    pub(super) fn touch(&self, slot: u32) {
        if let Some(used) = self.used.get(slot as usize)
            && !used.load(Ordering::Relaxed)
        {
            used.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        self.with(key, |words, _| self.find_words(words))?
    }

    fn bucket(&self, words: &[u64]) -> &Bucket {
        let hash = self.hasher.hash_one(words);
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    fn walk(&self, bucket: &Bucket, words: &[u64]) -> Option<u32> {
        let mut at = bucket.first.load(Ordering::Relaxed);
        // Limit the walk: during a change the list may be inconsistent.
        for _ in 0..self.next.len() {
            let slot = at as usize;
            let key = self.keys.get(slot * self.words..)?.get(..self.words)?;
            if key.iter().zip(words).all(|(a, b)| a.load(Ordering::Relaxed) == *b) {
                return Some(at);
            }
            at = self.next[slot].load(Ordering::Relaxed);
            if at == NONE {
                return None;
            }
        }
        None
    }

    fn find_words(&self, words: &[u64]) -> Option<u32> {
        let bucket = self.bucket(words);
        for _ in 0..TRIES {
            // Pairs with `Writer::change`: the list is at least as recent as this sequence number.
            let sequence = bucket.sequence.load(Ordering::Acquire);
            if sequence & 1 == 0 {
                let found = self.walk(bucket, words);
                // Pairs with `Writer::change`: orders the reads of the list before the second read
                // of the sequence number.
                fence(Ordering::Acquire);
                if bucket.sequence.load(Ordering::Relaxed) == sequence {
                    return found;
                }
            }
            std::hint::spin_loop();
        }
        let _lock = self.lock();
        self.walk(bucket, words)
    }

    /// Entry with the longest matching prefix, at most as long as the key's prefix length; `None`
    /// if there is no match.
    pub(super) fn longest(&self, key: &[u8]) -> Option<u32> {
        let mut room = [0; PREFIX_MAX];
        let own = room.get_mut(..key.len())?;
        own.copy_from_slice(key);
        let length = u32::from_ne_bytes(*own.first_chunk()?) as usize;
        let most = length.min(self.lengths.len().checked_sub(1)?);
        (0..=most).rev().find_map(|n| {
            let any = self.lengths[n].load(Ordering::Relaxed) > 0;
            // Mask the same copy again: the length decreases, so that only more bits are cleared.
            (any && self.masked(own, n)).then(|| in_words(own, |words| self.find_words(words)))?
        })
    }

    pub(super) fn lock(&self) -> Writer<'_> {
        Writer { table: self, free: self.free.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Writer<'_> {
    /// Calls `make` with the existing entry of a key, or with a new entry before readers can find
    /// it. Returns the result of `make`. If the key is new, the error in `or` is returned instead,
    /// or `TOO_BIG` if the table is full and not LRU. Returns `None` for an invalid key.
    pub(super) fn entry(
        &mut self,
        key: &[u8],
        or: Result<(), i64>,
        make: impl FnOnce(u32, bool) -> i64,
    ) -> Option<i64> {
        let table = self.table;
        table.with(key, |words, length| {
            if let Some(slot) = table.find_words(words) {
                return make(slot, false);
            }
            if let Err(why) = or {
                return why;
            }
            let Some(slot) = self.free.pop_front().or_else(|| self.evict()) else {
                return super::errno::TOO_BIG;
            };
            let done = make(slot, true);
            self.insert(words, slot);
            if let Some(count) = table.lengths.get(length) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            done
        })
    }

    fn change(&self, bucket: &Bucket, f: impl FnOnce()) {
        let sequence = bucket.sequence.load(Ordering::Relaxed);
        bucket.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        // Pairs with `Table::find_words`: a reader that observes the change also observes the odd
        // number.
        fence(Ordering::Release);
        f();
        // Pairs with `Table::find_words`: the list is consistent before the even number is visible.
        bucket.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    fn insert(&self, words: &[u64], slot: u32) {
        let table = self.table;
        let bucket = table.bucket(words);
        self.change(bucket, || {
            let keys = table.keys[slot as usize * table.words..].iter();
            keys.zip(words).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
            let first = bucket.first.load(Ordering::Relaxed);
            table.next[slot as usize].store(first, Ordering::Relaxed);
            bucket.first.store(slot, Ordering::Relaxed);
        });
    }

    /// Removes an entry from its bucket; `None` if the bucket does not contain the entry.
    fn unlink(&self, words: &[u64], slot: u32) -> Option<()> {
        let table = self.table;
        let bucket = table.bucket(words);
        let mut before = &bucket.first;
        loop {
            match before.load(Ordering::Relaxed) {
                at if at == slot => break,
                NONE => return None,
                at => before = &table.next[at as usize],
            }
        }
        let after = table.next[slot as usize].load(Ordering::Relaxed);
        self.change(bucket, || before.store(after, Ordering::Relaxed));
        Some(())
    }

    /// Removes an entry that was not used recently from a full LRU table, and returns it; `None` if
    /// the table is not LRU.
    fn evict(&self) -> Option<u32> {
        let table = self.table;
        let entries = table.used.len() as u32;
        if entries == 0 {
            return None;
        }
        let mut slot = table.hand.load(Ordering::Relaxed);
        for _ in 0..PASSES_MAX {
            if !table.used[slot as usize].swap(false, Ordering::Relaxed) {
                break;
            }
            slot = (slot + 1) % entries;
        }
        table.hand.store((slot + 1) % entries, Ordering::Relaxed);
        let key = &table.keys[slot as usize * table.words..][..table.words];
        let mut words = [0; WORDS];
        words.iter_mut().zip(key).for_each(|(to, word)| *to = word.load(Ordering::Relaxed));
        self.unlink(&words[..table.words], slot).map(|()| slot)
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let table = self.table;
        let removed = table.with(key, |words, length| {
            let slot = table.find_words(words)?;
            self.unlink(words, slot)?;
            if let Some(count) = table.lengths.get(length) {
                count.fetch_sub(1, Ordering::Relaxed);
            }
            Some(slot)
        });
        let slot = removed.flatten();
        self.free.extend(slot);
        slot.is_some()
    }

    /// Returns all keys with their entries.
    pub(super) fn all(&self) -> Vec<(Vec<u8>, u32)> {
        let table = self.table;
        let mut all = Vec::new();
        for bucket in &table.buckets {
            let mut at = bucket.first.load(Ordering::Relaxed);
            while at != NONE {
                let words = &table.keys[at as usize * table.words..][..table.words];
                let bytes =
                    words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
                all.push((bytes.take(table.key_size).collect(), at));
                at = table.next[at as usize].load(Ordering::Relaxed);
            }
        }
        all
    }
}
