//! Device side of a ring of either layout.

use crate::packed::PackedDeviceQueue;
use crate::split::SplitDeviceQueue;

/// A ring of either layout. Operations on many chains select the layout once.
#[derive(Debug)]
pub enum Ring {
    /// Split ring (virtio 1.3, 2.7).
    Split(SplitDeviceQueue),
    /// Packed ring (virtio 1.3, 2.8).
    Packed(PackedDeviceQueue),
}

/// Evaluates `$what` with `$name` bound to the ring of either layout.
#[macro_export]
macro_rules! on_ring {
    ($ring:expr, $name:ident => $what:expr) => {
        match $ring {
            $crate::Ring::Split($name) => $what,
            $crate::Ring::Packed($name) => $what,
        }
    };
}
