//! RX buffers of a driver: how large they are, and how they lie in pages. Arithmetic only.
//!
//! The sizes are those of the kernel's drivers: [`sizes`] those of virtio_net, [`fixed`] those of
//! a device whose buffers all have the size of the largest frame. [`layout`] decides between
//! parts of pages and whole ones, and says why.

pub mod fixed;
pub mod layout;
pub mod mapping;
pub mod sizes;

/// Everything is rounded up to a cache line.
pub(crate) const fn align64(len: u32) -> u32 {
    (len + 63) & !63
}
