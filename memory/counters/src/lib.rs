//! Counters with one writer and any number of readers.
//!
//! Adding to a [`Counter`] is a relaxed load and a relaxed store, which are atomic only so that
//! readers never see a torn value. There is no read-modify-write and no lock. Readers may read two
//! counters at slightly different times, so that sums are consistent only when writers are idle.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::sync::atomic::{AtomicU64, Ordering};

/// Counter with one writing thread and any number of reading threads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Creates a counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`. Only the owning thread may call this method: with two writers, additions are lost.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets the value, for gauges. Only the owning thread may call this method.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Current value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Value on separate cache lines. The alignment is 128 bytes, because the adjacent-line prefetcher
/// fetches pairs of lines.
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

    // Goal: a reader on another thread reads values that never decrease, and the exact final value.
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
