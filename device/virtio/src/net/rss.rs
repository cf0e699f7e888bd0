//! The queue that a hash chooses (virtio 1.3, 5.1.6.5.7).

pub use mqnet_wire::rss::{Hashed, Hasher, KEY_LEN, TYPES};

/// Most entries of a table.
pub const TABLE_MAX: u16 = 128;

/// Which queue a frame comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The queue pair of each value of the hash's lowest bits; a power of two of them.
    pub table: Vec<u16>,
    /// For a frame without a hash.
    pub unclassified: u16,
}

impl Spread {
    /// The queue pair of a frame.
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

    // Goal: a frame without a hash goes to its own queue, others by their lowest bits.
    #[test]
    fn a_table_chooses() {
        let spread = Spread { table: vec![0, 1, 2, 3], unclassified: 7 };
        assert_eq!(spread.pair(Hashed::default()), 7);
        assert_eq!(spread.pair(Hashed { value: 0xabcd_0006, report: 1 }), 2);
    }
}
