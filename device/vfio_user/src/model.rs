//! Description of a PCI function, and the trait of its device model.

use std::ops::Range;
use std::sync::Arc;

use mqnet_shmem::Region;

/// Identity of a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor ID, also used as the subsystem vendor ID.
    pub vendor: u16,
    /// Device ID, also used as the subsystem ID.
    pub device: u16,
    /// Base class, subclass and programming interface, 8 bits each.
    pub class: u32,
    /// Revision ID.
    pub revision: u8,
}

/// A memory BAR.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// Length in bytes: a power of two, at least 4096; 0 if the BAR does not exist.
    pub len: u64,
    /// Memory of the BAR, from its first byte on; `None` if all accesses are trapped.
    pub memory: Option<Arc<Region>>,
    /// Ranges of the BAR that the client may map: whole pages of `memory`. Accesses to other ranges
    /// are trapped.
    pub mapped: Vec<Range<u64>>,
    /// True if reads have no side effects.
    pub is_prefetchable: bool,
}

impl Bar {
    /// Creates a BAR without mapped memory.
    pub fn trapped(len: u64) -> Self {
        Self { len, ..Self::default() }
    }

    /// Creates a BAR that is mapped completely.
    pub fn mapped(memory: Arc<Region>, len: u64) -> Self {
        Self {
            len,
            memory: Some(memory),
            mapped: std::iter::once(0..len).collect(),
            ..Self::default()
        }
    }

    /// True if the range of `len` bytes at `offset` is within one mapped range.
    pub(crate) fn is_mapped(&self, offset: u64, len: u64) -> bool {
        self.mapped.iter().any(|range| range.start <= offset && offset + len <= range.end)
    }
}

/// Location of the MSI-X table and the pending bits, which the client emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixLocation {
    /// Index of the BAR.
    pub bar: u8,
    /// Offset of the table in the BAR.
    pub table: u32,
    /// Offset of the pending bits in the BAR.
    pub pending: u32,
}

/// Description of a PCI function.
#[derive(Clone, Debug)]
pub struct Model {
    /// Identity.
    pub identity: Identity,
    /// BARs, all of 32 bits.
    pub bars: [Bar; 6],
    /// Number of MSI-X vectors, 1 to 2048.
    pub vectors: u16,
    /// Location of the MSI-X table.
    pub msix: MsixLocation,
}

/// Device model of a server. The server checks that offsets and lengths are within the BAR.
pub trait DeviceModel {
    /// Reads a trapped range of a BAR into `data`, which is zeroed.
    fn read(&mut self, bar: usize, offset: u64, data: &mut [u8]);

    /// Writes a trapped range of a BAR.
    fn write(&mut self, bar: usize, offset: u64, data: &[u8]);

    /// Resets the function, on request of the client and after its disconnection. Returns false if
    /// the device still uses guest memory. The server then calls again at its next poll, and the
    /// client waits for its reply for a limited time.
    fn reset(&mut self) -> bool;

    /// Stops the use of guest memory in a range that is about to be unmapped. Returns false if the
    /// device still uses memory of the range; see [`reset`](Self::reset).
    fn unmapped(&mut self, iova: u64, len: u64) -> bool;
}
