//! Maps: memory that a program shares with the control thread.
//!
//! Values are words that both sides access without a lock. As in the kernel, a reader may observe a
//! partial update of a value of more than 8 bytes.

mod control;
mod table;

use std::sync::atomic::{AtomicU64, Ordering};

pub use control::MapError;
use table::Table;

use crate::error::LoadError;

/// Maximum number of bytes of one map.
const BYTES_MAX: u64 = 256 << 20;
/// Maximum number of bytes of all maps of a program.
const ALL_BYTES_MAX: u64 = 512 << 20;
const KEY_MAX: u32 = 512;
/// Maximum size of a value, which keeps every offset in a value small.
const VALUE_MAX: u32 = 1 << 20;

/// Flags of an update.
pub(crate) const NOEXIST: u64 = 1;
pub(crate) const EXIST: u64 = 2;

/// Kind of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Arbitrary keys.
    Hash,
    /// Keys are numbers below `max_entries`.
    Array,
    /// Arbitrary keys, with one value per channel.
    PercpuHash,
    /// Keys below `max_entries`, with one value per channel.
    PercpuArray,
    /// Arbitrary keys; an update of a full map evicts an entry that was not used recently.
    LruHash,
    /// Like [`LruHash`](Self::LruHash), with one value per channel.
    LruPercpuHash,
    /// Prefixes as keys; a lookup returns the longest match.
    LpmTrie,
    /// Numbers of netdevs, for redirects.
    Devmap,
}

impl MapKind {
    fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Hash,
            2 => Self::Array,
            5 => Self::PercpuHash,
            6 => Self::PercpuArray,
            9 => Self::LruHash,
            10 => Self::LruPercpuHash,
            11 => Self::LpmTrie,
            14 => Self::Devmap,
            _ => return None,
        })
    }

    /// Name of the kind in the kernel's tools.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Array => "array",
            Self::PercpuHash => "percpu_hash",
            Self::PercpuArray => "percpu_array",
            Self::LruHash => "lru_hash",
            Self::LruPercpuHash => "lru_percpu_hash",
            Self::LpmTrie => "lpm_trie",
            Self::Devmap => "devmap",
        }
    }

    /// True if each channel has its own value.
    pub fn is_per_channel(self) -> bool {
        matches!(self, Self::PercpuArray | Self::PercpuHash | Self::LruPercpuHash)
    }

    pub(crate) fn is_lru(self) -> bool {
        matches!(self, Self::LruHash | Self::LruPercpuHash)
    }

    pub(crate) fn is_array(self) -> bool {
        matches!(self, Self::Array | Self::PercpuArray | Self::Devmap)
    }
}

/// Definition of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDef {
    /// Name of the map.
    pub name: String,
    /// Kind of the map.
    pub kind: MapKind,
    /// Size of a key in bytes.
    pub key_size: u32,
    /// Size of a value in bytes.
    pub value_size: u32,
    /// Maximum number of entries.
    pub max_entries: u32,
    /// Initial bytes of the first value; all other bytes are zero.
    pub init: Vec<u8>,
    /// True if the program must not write to the map.
    pub readonly: bool,
}

impl MapDef {
    /// Creates a definition; fails if the kind, a size, the number of entries or a flag is not
    /// supported.
    pub(crate) fn checked(name: &str, kind: u32, numbers: [u32; 4]) -> Result<Self, LoadError> {
        let bad = |what: String| LoadError(format!("map '{name}': {what}"));
        let [key_size, value_size, max_entries, flags] = numbers;
        let Some(kind) = MapKind::from_number(kind) else {
            let known = "hash (1), array (2), percpu_hash (5), percpu_array (6), lru_hash (9), \
                         lru_percpu_hash (10), lpm_trie (11), devmap (14)";
            return Err(bad(format!("type {kind} is not supported; allowed: {known}")));
        };
        const RDONLY_PROG: u32 = 0x80;
        // Ignore flags of memory allocation (NO_PREALLOC, NO_COMMON_LRU, NUMA_NODE, ZERO_SEED,
        // MMAPABLE): they do not affect a program.
        const WITHOUT_EFFECT: u32 = 0x1 | 0x2 | 0x4 | 0x40 | 0x400;
        let readonly = flags & RDONLY_PROG != 0;
        if flags & !(WITHOUT_EFFECT | RDONLY_PROG) != 0 {
            let known = WITHOUT_EFFECT | RDONLY_PROG;
            return Err(bad(format!("flags {flags:#x}: only those of {known:#x} are supported")));
        }
        let keys = match kind {
            _ if kind.is_array() => 4..=4,
            MapKind::LpmTrie => 5..=20,
            _ => 1..=KEY_MAX,
        };
        if !keys.contains(&key_size) {
            let (from, to) = (keys.start(), keys.end());
            return Err(bad(format!("key_size {key_size}: must be {from} to {to}")));
        }
        let values = if kind == MapKind::Devmap { 4..=8 } else { 1..=VALUE_MAX };
        if !values.contains(&value_size) {
            let (from, to) = (values.start(), values.end());
            return Err(bad(format!("value_size {value_size}: must be {from} to {to}")));
        }
        let bytes = u64::from(value_size.div_ceil(8) * 8 + key_size) * u64::from(max_entries);
        if max_entries == 0 || bytes > BYTES_MAX {
            return Err(bad(format!(
                "max_entries {max_entries}: must be 1 or more, and at most {BYTES_MAX} bytes in all"
            )));
        }
        let name = name.to_owned();
        Ok(Self { name, kind, key_size, value_size, max_entries, init: Vec::new(), readonly })
    }
}

/// A map.
#[derive(Debug)]
pub struct Map {
    def: MapDef,
    values: Box<[AtomicU64]>,
    /// Number of words per value.
    words: usize,
    /// Number of values per entry.
    copies: usize,
    /// Table that finds the entry of a key; `None` for arrays, which are indexed by key.
    table: Option<Table>,
}

/// Error numbers of updates and deletions, as in the kernel.
pub(crate) mod errno {
    pub(crate) const NOENT: i64 = -2;
    pub(crate) const TOO_BIG: i64 = -7;
    pub(crate) const EXIST: i64 = -17;
    pub(crate) const INVAL: i64 = -22;
}

impl Map {
    /// Creates all maps of a program for `channels` channels. Fails if one map or all maps together
    /// exceed their limit of bytes.
    pub(crate) fn all(defs: Vec<MapDef>, channels: u16) -> Result<Box<[Self]>, LoadError> {
        let bytes = |def: &MapDef| {
            let copies = if def.kind.is_per_channel() { channels.max(1).into() } else { 1 };
            let value = u64::from(def.value_size.div_ceil(8)) * 8 * copies;
            (value + u64::from(def.key_size)).saturating_mul(def.max_entries.into())
        };
        let sum: u64 = defs.iter().map(bytes).fold(0, u64::saturating_add);
        if sum > ALL_BYTES_MAX {
            return Err(LoadError(format!(
                "the maps have {sum} bytes together, at most {ALL_BYTES_MAX} are possible"
            )));
        }
        defs.into_iter().map(|def| Self::new(def, channels)).collect()
    }

    /// Creates a map for `channels` channels. Fails if the values exceed the limit of bytes of one
    /// map.
    pub fn new(def: MapDef, channels: u16) -> Result<Self, LoadError> {
        let copies = if def.kind.is_per_channel() { usize::from(channels.max(1)) } else { 1 };
        let words = def.value_size.div_ceil(8) as usize;
        let all = words as u64 * copies as u64 * u64::from(def.max_entries);
        if all * 8 > BYTES_MAX {
            return Err(LoadError(format!(
                "map '{}': {} entries for {copies} channels are more than {BYTES_MAX} bytes",
                def.name, def.max_entries
            )));
        }
        let values = (0..all).map(|_| AtomicU64::new(0)).collect();
        let table = (!def.kind.is_array()).then(|| Table::new(&def));
        let map = Self { def, values, words, copies, table };
        if !map.def.init.is_empty() {
            map.write(0, &map.def.init);
        }
        Ok(map)
    }

    /// Definition of the map.
    pub fn def(&self) -> &MapDef {
        &self.def
    }

    /// Index of the first word of the value in entry `slot` for channel `copy`.
    fn first_word(&self, slot: u32, copy: usize) -> usize {
        (slot as usize * self.copies + copy.min(self.copies - 1)) * self.words
    }

    /// Entry of a key; `None` if the key does not exist.
    fn slot(&self, key: &[u8]) -> Option<u32> {
        match &self.table {
            Some(table) if self.def.kind == MapKind::LpmTrie => table.longest(key),
            Some(table) => table.find(key),
            None => self.array_slot(key),
        }
    }

    fn array_slot(&self, key: &[u8]) -> Option<u32> {
        let number = u32::from_le_bytes(key.try_into().ok()?);
        (number < self.def.max_entries).then_some(number)
    }

    /// Address of the value of a key for one channel, for the program; `None` if the key does not
    /// exist.
    pub(crate) fn lookup(&self, key: &[u8], channel: u16) -> Option<u64> {
        let slot = self.slot(key)?;
        if let Some(table) = &self.table {
            table.touch(slot);
        }
        let word = self.first_word(slot, channel.into());
        Some(self.values[word].as_ptr() as u64)
    }

    /// Address range of all values, which the program may access.
    pub(crate) fn memory(&self) -> std::ops::Range<u64> {
        let range = self.values.as_ptr_range();
        range.start as u64..range.end as u64
    }

    /// Writes the value of one channel for the program. Returns 0 or a negative error number.
    pub(crate) fn update(&self, key: &[u8], value: &[u8], flags: u64, channel: u16) -> i64 {
        self.put(key, flags, |first| {
            let copy = usize::from(channel).min(self.copies - 1);
            self.write(first + copy * self.words, value);
        })
    }

    fn put(&self, key: &[u8], flags: u64, write: impl FnOnce(usize)) -> i64 {
        if flags > EXIST {
            return errno::INVAL;
        }
        let Some(table) = &self.table else {
            return match self.array_slot(key) {
                None => errno::TOO_BIG,
                Some(_) if flags == NOEXIST => errno::EXIST,
                Some(slot) => {
                    write(self.first_word(slot, 0));
                    0
                }
            };
        };
        let or = if flags == EXIST { Err(errno::NOENT) } else { Ok(()) };
        let done = table.lock().entry(key, or, |slot, is_new| {
            let first = self.first_word(slot, 0);
            if is_new {
                for word in &self.values[first..first + self.words * self.copies] {
                    word.store(0, Ordering::Relaxed);
                }
            } else if flags == NOEXIST {
                return errno::EXIST;
            } else {
                table.touch(slot);
            }
            write(first);
            0
        });
        done.unwrap_or(errno::INVAL)
    }

    /// Deletes an entry. Returns 0 or a negative error number.
    pub(crate) fn delete(&self, key: &[u8]) -> i64 {
        match &self.table {
            None if self.def.kind == MapKind::Devmap => self.update(key, &[0; 8], 0, 0),
            None => errno::INVAL,
            Some(table) if table.lock().remove(key) => 0,
            Some(_) => errno::NOENT,
        }
    }

    fn write(&self, first: usize, value: &[u8]) {
        let size = self.def.value_size as usize;
        let value = &value[..value.len().min(size)];
        for (word, bytes) in self.values[first..].iter().zip(value.chunks(8)) {
            let mut eight = word.load(Ordering::Relaxed).to_ne_bytes();
            eight[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(eight), Ordering::Relaxed);
        }
    }

    fn read(&self, first: usize) -> Vec<u8> {
        let words = self.values[first..first + self.words].iter();
        let bytes = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        bytes.take(self.def.value_size as usize).collect()
    }

    /// Number of the netdev in a devmap entry, 0 if the entry is empty; `None` for an invalid key.
    pub(crate) fn device(&self, key: u32) -> Option<u32> {
        let slot = self.array_slot(&key.to_le_bytes())?;
        Some(self.values[self.first_word(slot, 0)].load(Ordering::Relaxed) as u32)
    }
}
