//! Queues that wrap queues. A wrapper can be added and removed while a lane runs; without a wrapper
//! there is no cost.

/// Implements `Queue` for a wrapper by forwarding to its field `inner`.
macro_rules! forward_queue {
    ($outer:ty) => {
        impl $crate::Queue for $outer {
            fn arm(&mut self, need: u32) -> Result<$crate::Armed, $crate::Fault> {
                self.inner.arm(need)
            }

            fn event(&self) -> Option<$crate::WakeSource<'_>> {
                self.inner.event()
            }

            fn park(&mut self) {
                self.inner.park();
            }

            fn prefetch(&self) {
                self.inner.prefetch();
            }

            fn hold_off(&self) -> std::time::Duration {
                self.inner.hold_off()
            }
        }
    };
}

pub mod capture;
pub mod flow_samples;
pub mod insert;
pub mod merge;
pub mod offload;
pub(crate) mod pieces;

#[cfg(test)]
mod tests;
