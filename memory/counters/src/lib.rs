//! Counters with one writer and any number of readers.
//!
//! A [`Counter`] costs its writer a plain addition: a load and a store that are atomic only so
//! that readers never see a torn value. There is no read-modify-write and no lock. Readers may see
//! two counters at slightly different moments; sums that must agree are compared at rest.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`. Only the owning thread may call it: two writers would lose additions.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets the value of a gauge.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The current value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value on cache lines of its own (128 bytes: the adjacent-line prefetcher pairs lines).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a reader on another thread sees every value in order and the final one exactly.
    #[test]
    fn readers_see_a_monotone_value() {
        let counter = Counter::new();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut last = 0;
                while last < 100_000 {
                    let now = counter.get();
                    assert!(now >= last);
                    last = now;
                }
            });
            for _ in 0..100_000 {
                counter.add(1);
            }
            reader.join().unwrap();
        });
        assert_eq!(counter.get(), 100_000);
    }
}
