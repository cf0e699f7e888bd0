//! Description of a PCI function, and the interface of its device model.

use std::ops::Range;
use std::sync::Arc;

use mqnet_shmem::Region;

/// Identity of a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor ID; also of the subsystem.
    pub vendor: u16,
    /// Device ID; also of the subsystem.
    pub device: u16,
    /// Base class, subclass and programming interface, 8 bits each.
    pub class: u32,
    /// Revision ID.
    pub revision: u8,
}

/// A memory BAR.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// Bytes: a power of two, at least 4096; 0 for a BAR that does not exist.
    pub len: u64,
    /// Memory behind the BAR, from its first byte on.
    pub memory: Option<Arc<Region>>,
    /// Ranges of the BAR that the client maps: whole pages of `memory`. Other ranges are trapped.
    pub mapped: Vec<Range<u64>>,
    /// Reads have no side effects.
    pub is_prefetchable: bool,
}

impl Bar {
    /// A BAR without mapped memory.
    pub fn trapped(len: u64) -> Self {
        Self { len, ..Self::default() }
    }

    /// A BAR that is mapped as a whole.
    pub fn mapped(memory: Arc<Region>, len: u64) -> Self {
        Self {
            len,
            memory: Some(memory),
            mapped: std::iter::once(0..len).collect(),
            ..Self::default()
        }
    }

    /// True if an access of `len` bytes at `offset` is within one mapped range.
    pub(crate) fn is_mapped(&self, offset: u64, len: u64) -> bool {
        self.mapped.iter().any(|range| range.start <= offset && offset + len <= range.end)
    }
}

/// Place of the MSI-X table and of the pending bits. The client emulates both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixLocation {
    /// Index of the BAR.
    pub bar: u8,
    /// Offset of the table.
    pub table: u32,
    /// Offset of the pending bits.
    pub pending: u32,
}

/// Description of a PCI function.
#[derive(Clone, Debug)]
pub struct Model {
    /// Identity.
    pub identity: Identity,
    /// BARs, all of 32 bits.
    pub bars: [Bar; 6],
    /// MSI-X vectors, 1 to 2048.
    pub vectors: u16,
    /// Place of the MSI-X table.
    pub msix: MsixLocation,
}

/// Device model behind a server. Offsets and lengths are within the BAR.
pub trait DeviceModel {
    /// Reads a trapped range of a BAR. `data` is zeroed.
    fn read(&mut self, bar: usize, offset: u64, data: &mut [u8]);

    /// Writes a trapped range of a BAR.
    fn write(&mut self, bar: usize, offset: u64, data: &[u8]);

    /// Resets the function: on request of the client, and when the client is gone. False when the
    /// device still uses guest memory; then the server calls again at its next poll, and the client
    /// waits for its reply.
    fn reset(&mut self) -> bool;

    /// Guest memory in this range is about to be unmapped. False when the device still uses it, as
    /// with [`reset`](Self::reset).
    fn unmapped(&mut self, iova: u64, len: u64) -> bool;
}
