//! Receive-side scaling: selection of a queue by hash (virtio 1.3, 5.1.6.5.7).

pub use mqnet_wire::rss::{Hashed, Hasher, KEY_LEN, TYPES};

/// Maximum number of entries of an indirection table.
pub const TABLE_MAX: u16 = 128;

/// Indirection table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndirectionTable {
    /// Queue pairs, indexed by the lowest bits of the hash; the length is a power of two.
    pub table: Vec<u16>,
    /// Queue pair of a frame without a hash.
    pub unclassified: u16,
}

impl IndirectionTable {
    /// Queue pair of a frame with the hash `hashed`.
    pub fn pair(&self, hashed: Hashed) -> u16 {
        if hashed.report == 0 {
            return self.unclassified;
        }
        let at = hashed.value as usize & (self.table.len().wrapping_sub(1));
        self.table.get(at).copied().unwrap_or(self.unclassified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a frame without a hash goes to the unclassified queue; the lowest bits of the hash
    // select the queue of other frames.
    #[test]
    fn table_selects_by_lowest_bits() {
        let spread = IndirectionTable { table: vec![0, 1, 2, 3], unclassified: 7 };
        assert_eq!(spread.pair(Hashed::default()), 7);
        assert_eq!(spread.pair(Hashed { value: 0xabcd_0006, report: 1 }), 2);
    }
}
