//! RX buffers of a driver: sizes, and placement in pages. The module does arithmetic only.
//!
//! The sizes are those of the kernel's drivers: [`sizes`] follows virtio_net; [`fixed`] follows
//! drivers with buffers that hold the largest frame. [`layout`] selects between fragments of pages
//! and whole pages, and reports the reason.

pub mod fixed;
pub mod layout;
pub mod mapping;
pub mod sizes;

/// Rounds up to a multiple of a cache line (64 bytes).
pub(crate) const fn align64(len: u32) -> u32 {
    (len + 63) & !63
}
