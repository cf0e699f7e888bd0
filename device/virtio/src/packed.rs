//! Packed rings (virtio 1.3, 2.8).

pub mod device;
pub mod driver;

pub use device::Device;

/// Says that the way here is seldom taken: a branch is cheaper than two choices a descriptor.
#[cold]
#[inline(always)]
pub(crate) fn cold() {}
