//! Configuration space of a PCI function.

use crate::Model;

/// Bytes of the configuration space.
const LEN: usize = 256;
/// Offset of the MSI-X capability.
const MSIX: usize = 0x40;
/// Writable bits of the command register: memory space, bus master, interrupt disable.
const COMMAND_WRITABLE: u16 = 0x0406;

/// PCI configuration space, with a mask of the bits that a driver may write.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: [u8; LEN],
    initial: [u8; LEN],
    writable: [u8; LEN],
}

impl ConfigSpace {
    /// Creates the configuration space of a function after its reset.
    pub fn new(model: &Model) -> Self {
        let mut space = Self { bytes: [0; LEN], initial: [0; LEN], writable: [0; LEN] };
        let id = &model.identity;
        space.set(0x00, &id.vendor.to_le_bytes());
        space.set(0x02, &id.device.to_le_bytes());
        // Set the status bit "capabilities list".
        space.set(0x06, &0x10u16.to_le_bytes());
        space.set(0x08, &[id.revision]);
        space.set(0x09, &id.class.to_le_bytes()[..3]);
        space.set(0x2c, &id.vendor.to_le_bytes());
        space.set(0x2e, &id.device.to_le_bytes());
        space.set(0x34, &[MSIX as u8]);
        space.allow(0x04, &COMMAND_WRITABLE.to_le_bytes());
        // Make cache line size, latency timer and interrupt line writable; they have no function.
        for at in [0x0c, 0x0d, 0x3c] {
            space.allow(at, &[0xff]);
        }
        for (at, bar) in model.bars.iter().enumerate().filter(|(_, bar)| bar.len > 0) {
            let flags = u32::from(bar.is_prefetchable) << 3;
            let mask = !(bar.len as u32).wrapping_sub(1) & !0xf;
            space.set(0x10 + 4 * at, &flags.to_le_bytes());
            space.allow(0x10 + 4 * at, &mask.to_le_bytes());
        }
        let place = model.msix;
        space.set(MSIX, &[0x11, 0]);
        space.set(MSIX + 2, &(model.vectors.saturating_sub(1) & 0x7ff).to_le_bytes());
        space.allow(MSIX + 2, &0xc000u16.to_le_bytes());
        let bar = u32::from(place.bar);
        space.set(MSIX + 4, &(place.table & !7 | bar).to_le_bytes());
        space.set(MSIX + 8, &(place.pending & !7 | bar).to_le_bytes());
        space.initial = space.bytes;
        space
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..at + mask.len()].copy_from_slice(mask);
    }

    /// Length of the space in bytes.
    pub fn len(&self) -> usize {
        LEN
    }

    /// Returns false: the space has a fixed length.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Reads from `offset` on; bytes after the end of the space are zero.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        for (at, byte) in data.iter_mut().enumerate() {
            *byte = offset.checked_add(at).and_then(|at| self.bytes.get(at)).copied().unwrap_or(0);
        }
    }

    /// Writes from `offset` on; read-only bits keep their values, and bytes after the end are
    /// ignored.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        for (at, new) in data.iter().enumerate() {
            let Some(at) = offset.checked_add(at).filter(|&at| at < LEN) else { return };
            let mask = self.writable[at];
            self.bytes[at] = self.bytes[at] & !mask | new & mask;
        }
    }

    /// Restores the values that apply after a reset.
    pub fn reset(&mut self) {
        self.bytes = self.initial;
    }
}
