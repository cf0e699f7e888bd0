//! One cursor under every ring.
//!
//! A ring of `size` units has two indices, the producer's and the consumer's. Each runs through
//! `0..2 * size` and wraps there, so that *full* (difference `size`) and *empty* (difference 0)
//! differ, no unit is wasted, and `size` need not be a power of two: a memory window is divided
//! among queue pairs as it comes.
//!
//! A [`Cursor`] is one side: its own index, and the last value that it read of the other side's.
//! The other side may be a hostile peer: [`Cursor::refresh`] checks in release builds that the
//! index is in range and that it moved forwards by no more than there was to move.

/// Largest ring: index arithmetic is done in `u32` and runs to `2 * size`.
pub const SIZE_MAX: u32 = 1 << 30;

/// The other side published an index that no honest ring produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring index {index} is not between {from} and {to} (modulo {modulus})")]
pub struct IndexViolation {
    /// What was published.
    pub index: u32,
    /// The last value accepted before it.
    pub from: u32,
    /// The furthest that it could have moved.
    pub to: u32,
    /// Indices run below this.
    pub modulus: u32,
}

/// One side of a ring: the producer (what is *available* is free room) or the consumer
/// (what is available is published data).
#[derive(Clone, Debug)]
pub struct Cursor {
    size: u32,
    local: u32,
    /// The other side's index as last read, shifted for a producer by `size`, so that for both
    /// sides `remote - local` (modulo `2 * size`) is what is available.
    limit: u32,
    shift: u32,
}

impl Cursor {
    /// The producer of an empty ring.
    ///
    /// # Panics
    /// When `size` is 0 or above [`SIZE_MAX`].
    pub fn producer(size: u32) -> Self {
        assert!((1..=SIZE_MAX).contains(&size), "ring of {size} units");
        Self { size, local: 0, limit: size, shift: size }
    }

    /// The consumer of an empty ring.
    ///
    /// # Panics
    /// When `size` is 0 or above [`SIZE_MAX`].
    pub fn consumer(size: u32) -> Self {
        assert!((1..=SIZE_MAX).contains(&size), "ring of {size} units");
        Self { size, local: 0, limit: 0, shift: 0 }
    }

    #[inline]
    fn wrap(&self, index: u32) -> u32 {
        let modulus = 2 * self.size;
        if index >= modulus { index - modulus } else { index }
    }

    /// Makes this the cursor of a consumer that stands at `index` of an empty ring.
    pub(crate) fn jump(&mut self, index: u32) {
        debug_assert!(self.shift == 0 && index < 2 * self.size);
        (self.local, self.limit) = (index, index);
    }

    /// Units of the ring.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// This side's index, as it is published.
    #[inline]
    pub fn index(&self) -> u32 {
        self.local
    }

    /// Position of this side in the ring, `0..size`.
    #[inline]
    pub fn position(&self) -> u32 {
        if self.local >= self.size { self.local - self.size } else { self.local }
    }

    /// Position `n` units further on, `n` at most [`size`](Self::size).
    #[inline]
    pub(crate) fn position_after(&self, n: u32) -> u32 {
        debug_assert!(n <= self.size);
        let at = self.position() + n;
        if at >= self.size { at - self.size } else { at }
    }

    /// Units that this side may use, by the last [`refresh`](Self::refresh).
    #[inline]
    pub fn available(&self) -> u32 {
        let modulus = 2 * self.size;
        if self.limit >= self.local {
            self.limit - self.local
        } else {
            self.limit + modulus - self.local
        }
    }

    /// Takes note of the other side's published index; returns what is available now.
    ///
    /// Fails, and changes nothing, when the index is out of range, moves backwards or claims more
    /// than the ring holds.
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

    /// Uses `n` of the available units.
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
        // Goal: a position further on is where the cursor stands when it has moved as far.
        #[test]
        fn a_position_is_told_before_it_is_reached(
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

        // Goal: two cursors agree with plain counting (the oracle: two u64 that never wrap),
        // whatever the size; a forged index is refused unless an honest peer could have sent it.
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
                        // What a producer could have published: anything from the last value the
                        // consumer accepted up to a full ring.
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
