//! Split rings (virtio 1.3, 2.7).

pub mod device;
pub mod driver;

pub use device::SplitDeviceQueue;
