//! Access to maps by the control thread.

use super::{Map, MapKind, errno};

/// Error of a map operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The key or the value has a wrong size.
    #[error("{what}: {got} bytes, map '{map}' needs {want}")]
    Size {
        /// `key` or `value`.
        what: &'static str,
        /// Name of the map.
        map: String,
        /// Expected size in bytes.
        want: u32,
        /// Actual size in bytes.
        got: usize,
    },
    /// The key does not exist.
    #[error("map '{0}' has no such key")]
    NoKey(String),
    /// The map is full.
    #[error("map '{0}' is full: max_entries are in use")]
    Full(String),
    /// The key is invalid.
    #[error("map '{0}' cannot have this key")]
    BadKey(String),
    /// Entries of an array cannot be deleted.
    #[error("map '{0}' is an array: its entries cannot be deleted")]
    Array(String),
}

impl Map {
    fn check(&self, what: &'static str, want: u32, got: usize) -> Result<(), MapError> {
        let map = || self.def.name.clone();
        if got == want as usize {
            Ok(())
        } else {
            Err(MapError::Size { what, map: map(), want, got })
        }
    }

    fn values(&self, slot: u32) -> Vec<Vec<u8>> {
        (0..self.copies).map(|copy| self.read(self.first_word(slot, copy))).collect()
    }

    /// Values of a key: one, or one for each channel. Fails if the key does not exist.
    pub fn get(&self, key: &[u8]) -> Result<Vec<Vec<u8>>, MapError> {
        self.check("key", self.def.key_size, key.len())?;
        let slot = self.slot(key).ok_or_else(|| MapError::NoKey(self.def.name.clone()))?;
        Ok(self.values(slot))
    }

    /// Sets the value of a key in every channel, and adds the key if it does not exist. Fails if a
    /// size is wrong, the map is full, or the key is invalid.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<(), MapError> {
        self.check("key", self.def.key_size, key.len())?;
        self.check("value", self.def.value_size, value.len())?;
        let name = || self.def.name.clone();
        let done = self.put(key, 0, |first| {
            (0..self.copies).for_each(|copy| self.write(first + copy * self.words, value));
        });
        match done {
            0 => Ok(()),
            errno::TOO_BIG if self.table.is_none() => Err(MapError::NoKey(name())),
            errno::TOO_BIG => Err(MapError::Full(name())),
            _ => Err(MapError::BadKey(name())),
        }
    }

    /// Deletes an entry; an entry of a devmap is cleared. Fails if the key has a wrong size or does
    /// not exist, and for every other array.
    pub fn unset(&self, key: &[u8]) -> Result<(), MapError> {
        self.check("key", self.def.key_size, key.len())?;
        let name = || self.def.name.clone();
        if self.table.is_none() && self.def.kind != MapKind::Devmap {
            return Err(MapError::Array(name()));
        }
        if self.delete(key) == 0 { Ok(()) } else { Err(MapError::NoKey(name())) }
    }

    /// Returns up to `most` keys with their values, in the order of the keys.
    pub fn dump(&self, most: usize) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
        let keys = match &self.table {
            Some(table) => {
                let mut all = table.lock().all();
                all.sort();
                all
            }
            None => (0..self.def.max_entries)
                .map(|number| (number.to_le_bytes().to_vec(), number))
                .take(most)
                .collect(),
        };
        keys.into_iter().take(most).map(|(key, slot)| (key, self.values(slot))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    // Goal: lookups during insertions and deletions find all permanent keys and never the entry of
    // another key, although entries of the same buckets are reused.
    #[test]
    fn lookups_take_no_lock_and_miss_nothing() {
        let def = crate::map::MapDef::checked("keys", 1, [12, 8, 16, 0]).unwrap();
        let map = Map::new(def, 1).unwrap();
        let key = |n: u64| [&n.to_le_bytes()[..], &[7; 4]].concat();
        let put = |n: u64| map.set(&key(n), &n.to_le_bytes());
        (0..8).for_each(|n| put(n).unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        for n in 0..8 {
                            assert_eq!(map.get(&key(n)).unwrap(), [n.to_le_bytes()], "{n}");
                        }
                    }
                });
            }
            for round in 0..20_000u64 {
                let n = 8 + round % 50;
                put(n).unwrap();
                assert_eq!(map.get(&key(n)).unwrap(), [n.to_le_bytes()]);
                map.unset(&key(n)).unwrap();
                assert_eq!(map.get(&key(n)), Err(MapError::NoKey("keys".into())));
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(map.dump(100).len(), 8);
        (100..108).for_each(|n| put(n).unwrap());
        assert_eq!(put(108), Err(MapError::Full("keys".into())));
    }

    // Goal: a deleted entry is reused last.
    #[test]
    fn deleted_entries_are_reused_last() {
        let def = crate::map::MapDef::checked("keys", 1, [4, 8, 4, 0]).unwrap();
        let map = Map::new(def, 1).unwrap();
        let place = |n: u32| {
            map.set(&n.to_le_bytes(), &[1; 8]).unwrap();
            let place = map.lookup(&n.to_le_bytes(), 0).unwrap();
            map.unset(&n.to_le_bytes()).unwrap();
            place
        };
        let mut places: Vec<u64> = (0..4).map(place).collect();
        assert_eq!(place(9), places[0]);
        places.dedup();
        assert_eq!(places.len(), 4);
    }
}
