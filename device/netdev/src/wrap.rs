//! Queues around queues: put on while they are wanted, taken off again, and free when off.

/// What every queue can be asked is asked of the one inside.
macro_rules! forward_queue {
    ($outer:ty) => {
        impl $crate::Queue for $outer {
            fn arm(&mut self, need: u32) -> Result<$crate::Armed, $crate::Fault> {
                self.inner.arm(need)
            }

            fn event(&self) -> Option<$crate::Event<'_>> {
                self.inner.event()
            }

            fn park(&mut self) {
                self.inner.park();
            }

            fn gather(&self) -> std::time::Duration {
                self.inner.gather()
            }
        }
    };
}

pub mod capture;
pub mod insert;
pub mod merge;
pub mod offload;
pub(crate) mod pieces;
pub mod sights;
