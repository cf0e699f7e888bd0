//! Atomics and cells from `std`, or from loom when the crate is built with `--cfg loom`.

/// Synchronisation primitives.
pub mod sync {
    #[cfg(loom)]
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    #[cfg(not(loom))]
    pub use std::sync::{Arc, Condvar, Mutex, MutexGuard};

    /// Atomic types.
    pub mod atomic {
        #[cfg(loom)]
        pub use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
        #[cfg(not(loom))]
        pub use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    }
}

/// Interior mutability that loom can watch.
pub mod cell {
    #[cfg(loom)]
    pub use loom::cell::UnsafeCell;

    /// `std::cell::UnsafeCell` with loom's interface.
    #[cfg(not(loom))]
    #[derive(Debug)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    #[cfg(not(loom))]
    impl<T> UnsafeCell<T> {
        /// A cell that holds `value`.
        pub fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Calls `f` with a pointer for reading.
        #[inline(always)]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Calls `f` with a pointer for writing.
        #[inline(always)]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}
