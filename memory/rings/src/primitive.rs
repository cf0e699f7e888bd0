//! Atomics and cells of `std`, or of loom if the crate is built with `--cfg loom`.

/// Synchronisation primitives.
pub mod sync {
    #[cfg(loom)]
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    #[cfg(not(loom))]
    pub use std::sync::{Arc, Condvar, Mutex, MutexGuard};

    /// Atomic types.
    pub mod atomic {
        #[cfg(loom)]
        pub use loom::sync::atomic::{
            AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
        };
        #[cfg(not(loom))]
        pub use std::sync::atomic::{
            AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
        };
    }
}

/// Atomics that count the read-modify-writes of the current thread. A read-modify-write locks a
/// cache line, which the owner of a ring must never do. Counting requires the feature `count-rmw`,
/// which tests enable; without it, these are the plain types.
pub mod counted {
    #[cfg(any(loom, not(feature = "count-rmw")))]
    pub use super::sync::atomic::{AtomicU32, AtomicU64};

    #[cfg(all(not(loom), feature = "count-rmw"))]
    pub use on::{AtomicU32, AtomicU64};

    /// Number of read-modify-writes that this thread has executed; 0 without the feature.
    pub fn executed() -> u64 {
        #[cfg(all(not(loom), feature = "count-rmw"))]
        return on::COUNT.with(std::cell::Cell::get);
        #[cfg(any(loom, not(feature = "count-rmw")))]
        0
    }

    /// Counts a read-modify-write inside another primitive, such as a lock.
    #[inline(always)]
    pub fn count() {
        #[cfg(all(not(loom), feature = "count-rmw"))]
        on::COUNT.with(|count| count.set(count.get() + 1));
    }

    #[cfg(all(not(loom), feature = "count-rmw"))]
    mod on {
        use std::sync::atomic::{self, Ordering};

        thread_local! {
            pub(super) static COUNT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
        }

        macro_rules! counted {
            ($name:ident $int:ty) => {
                /// Counting variant of the `std` type, with the operations that the rings use.
                #[derive(Debug, Default)]
                pub struct $name(atomic::$name);

                impl $name {
                    /// See `std`.
                    pub const fn new(value: $int) -> Self {
                        Self(atomic::$name::new(value))
                    }

                    /// See `std`.
                    pub fn load(&self, order: Ordering) -> $int {
                        self.0.load(order)
                    }

                    /// See `std`.
                    pub fn store(&self, value: $int, order: Ordering) {
                        // Count a sequentially consistent store: on x86 it is an exchange.
                        // Pairs with nothing: the ordering is that of the caller.
                        if order == Ordering::SeqCst {
                            super::count();
                        }
                        self.0.store(value, order);
                    }

                    /// See `std`. A read-modify-write.
                    pub fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                        super::count();
                        self.0.fetch_add(value, order)
                    }

                    /// See `std`. A read-modify-write.
                    pub fn compare_exchange_weak(
                        &self,
                        current: $int,
                        new: $int,
                        success: Ordering,
                        failure: Ordering,
                    ) -> Result<$int, $int> {
                        super::count();
                        self.0.compare_exchange_weak(current, new, success, failure)
                    }
                }
            };
        }

        counted!(AtomicU32 u32);
        counted!(AtomicU64 u64);
    }
}

/// Interior mutability that loom can check.
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
        /// Creates a cell with `value`.
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
