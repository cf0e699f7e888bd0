//! Packed rings (virtio 1.3, 2.8).

pub mod device;
pub mod driver;

pub use device::PackedDeviceQueue;

/// Marks a path as unlikely: a branch is cheaper than two conditional moves per descriptor.
#[cold]
#[inline(always)]
pub(crate) fn cold() {}
