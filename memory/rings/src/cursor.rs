//! Index arithmetic of all rings.
//!
//! A ring of `size` units has a producer index and a consumer index. Each counts through `0..2 *
//! size` and wraps there. *Full* (difference `size`) and *empty* (difference 0) are therefore
//! distinct, and no unit is wasted. `size` need not be a power of two: a memory window divided by
//! the number of queue pairs may have any size.
//!
//! A [`Cursor`] is one side of a ring: its index, and the last value read of the other side's
//! index. The other side may be a hostile peer. [`Cursor::refresh`] therefore checks, in release
//! builds too, that the index is in range and advanced by a possible number.

/// Maximum ring size: index arithmetic uses `u32`, up to `4 * size`.
pub const SIZE_MAX: u32 = 1 << 30;

/// Violation: the other side published an index that a correct ring cannot produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring index {index} is not between {from} and {to} (modulo {modulus})")]
pub struct IndexViolation {
    /// Published index.
    pub index: u32,
    /// Last accepted index.
    pub from: u32,
    /// Furthest valid index.
    pub to: u32,
    /// Modulus of indices.
    pub modulus: u32,
}

/// One side of a ring. *Available* units are free space for the producer, and published data for
/// the consumer.
#[derive(Clone, Debug)]
pub struct Cursor {
    size: u32,
    local: u32,
    /// Last index read from the other side; for a producer, shifted by `size`. So `limit - local`
    /// (modulo `2 * size`) is the number of available units on both sides.
    limit: u32,
    /// Distance from the other side's index to `limit`: `size` for a producer, 0 for a consumer.
    shift: u32,
}

impl Cursor {
    /// Creates the producer side of an empty ring.
    ///
    /// # Panics
    /// If `size` is 0 or above [`SIZE_MAX`].
    pub fn producer(size: u32) -> Self {
        assert!((1..=SIZE_MAX).contains(&size), "ring of {size} units");
        Self { size, local: 0, limit: size, shift: size }
    }

    /// Creates the consumer side of an empty ring.
    ///
    /// # Panics
    /// If `size` is 0 or above [`SIZE_MAX`].
    pub fn consumer(size: u32) -> Self {
        assert!((1..=SIZE_MAX).contains(&size), "ring of {size} units");
        Self { size, local: 0, limit: 0, shift: 0 }
    }

    #[inline]
    fn wrap(&self, index: u32) -> u32 {
        let modulus = 2 * self.size;
        if index >= modulus { index - modulus } else { index }
    }

    /// Sets a consumer's cursor to `index` of an empty ring.
    pub(crate) fn jump(&mut self, index: u32) {
        debug_assert!(self.shift == 0 && index < 2 * self.size);
        (self.local, self.limit) = (index, index);
    }

    /// Size of the ring in units.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Index of this side, as published to the other side.
    #[inline]
    pub fn index(&self) -> u32 {
        self.local
    }

    /// Position of this side in the ring, in `0..size`.
    #[inline]
    pub fn position(&self) -> u32 {
        if self.local >= self.size { self.local - self.size } else { self.local }
    }

    /// Position after `n` more units; `n` is at most [`size`](Self::size).
    #[inline]
    pub(crate) fn position_after(&self, n: u32) -> u32 {
        debug_assert!(n <= self.size);
        let at = self.position() + n;
        if at >= self.size { at - self.size } else { at }
    }

    /// Number of available units at the last [`refresh`](Self::refresh), less those consumed since.
    #[inline]
    pub fn available(&self) -> u32 {
        let modulus = 2 * self.size;
        if self.limit >= self.local {
            self.limit - self.local
        } else {
            self.limit + modulus - self.local
        }
    }

    /// Accepts the index that the other side published. Returns the number of available units.
    ///
    /// Fails without a change if the index is out of range, moves backwards, or exceeds the ring.
    #[inline]
    pub fn refresh(&mut self, remote: u32) -> Result<u32, IndexViolation> {
        let modulus = 2 * self.size;
        if remote < modulus {
            let limit = self.wrap(remote + self.shift);
            let before = self.available();
            let now =
                if limit >= self.local { limit - self.local } else { limit + modulus - self.local };
            if now <= self.size && now >= before {
                self.limit = limit;
                return Ok(now);
            }
        }
        Err(self.violation(remote))
    }

    #[cold]
    fn violation(&self, index: u32) -> IndexViolation {
        let unshift = |limit: u32| self.wrap(limit + self.shift);
        let to = unshift(self.wrap(self.local + self.size));
        IndexViolation { index, from: unshift(self.limit), to, modulus: 2 * self.size }
    }

    /// Consumes `n` of the available units.
    #[inline]
    pub fn advance(&mut self, n: u32) {
        debug_assert!(n <= self.available());
        self.local = self.wrap(self.local + n);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Produce(u32),
        Consume(u32),
        Publish,
        Credit,
        Forge { producer: bool, index: u32 },
    }

    fn forge((producer, index): (bool, u32)) -> Op {
        Op::Forge { producer, index }
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0u32..40).prop_map(Op::Produce),
            (0u32..40).prop_map(Op::Consume),
            Just(Op::Publish),
            Just(Op::Credit),
            (any::<bool>(), any::<u32>()).prop_map(forge),
            (any::<bool>(), 0u32..80).prop_map(forge),
        ]
    }

    proptest! {
        // Goal: `position_after(n)` equals the position after an advance by `n`.
        #[test]
        fn position_after_equals_position_after_advance(
            size in 1u32..40,
            steps in prop::collection::vec(0u32..40, 1..20),
        ) {
            let mut cursor = Cursor::producer(size);
            for step in steps {
                let step = step % (size + 1);
                let after = cursor.position_after(step);
                cursor.advance(step);
                prop_assert_eq!(after, cursor.position());
                let consumer = cursor.index();
                cursor.refresh(consumer).unwrap();
            }
        }

        // Goal: for every size, two cursors agree with unwrapped counting (the oracle: two u64). A
        // forged index is rejected unless a correct peer could have published it.
        #[test]
        fn cursors_match_plain_counting(
            size in 1u32..38,
            ops in prop::collection::vec(op(), 1..200),
        ) {
            let (mut p, mut c) = (Cursor::producer(size), Cursor::consumer(size));
            let (mut produced, mut consumed) = (0u64, 0u64);
            let (mut published, mut credited) = (0u64, 0u64);
            let modulus = u64::from(2 * size);
            for op in ops {
                match op {
                    Op::Produce(n) => {
                        let n = n.min(p.available());
                        p.advance(n);
                        produced += u64::from(n);
                    }
                    Op::Consume(n) => {
                        let n = n.min(c.available());
                        c.advance(n);
                        consumed += u64::from(n);
                    }
                    Op::Publish => {
                        published = produced;
                        let n = c.refresh(p.index()).unwrap();
                        prop_assert_eq!(u64::from(n), published - consumed);
                    }
                    Op::Credit => {
                        credited = consumed;
                        let n = p.refresh(c.index()).unwrap();
                        prop_assert_eq!(u64::from(n), u64::from(size) - (produced - credited));
                    }
                    Op::Forge { producer: true, index } => {
                        // Accept exactly the indexes that a correct producer could publish: from
                        // the last accepted value to a full ring.
                        let honest = (published..=consumed + u64::from(size))
                            .any(|x| x % modulus == u64::from(index));
                        prop_assert_eq!(c.clone().refresh(index).is_ok(), honest);
                    }
                    Op::Forge { producer: false, index } => {
                        let honest = (credited..=produced).any(|x| x % modulus == u64::from(index));
                        prop_assert_eq!(p.clone().refresh(index).is_ok(), honest);
                    }
                }
                prop_assert_eq!(u64::from(p.index()), produced % modulus);
                prop_assert_eq!(u64::from(c.position()), consumed % u64::from(size));
                prop_assert!(produced - consumed <= u64::from(size));
            }
        }
    }
}
