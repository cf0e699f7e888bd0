//! Messages of the vfio-user protocol, version 0.0. All numbers are little-endian.

use crate::MessageError;

/// Length of a header in bytes.
pub(crate) const HEADER: usize = 16;
/// Maximum number of data bytes in one region access.
pub(crate) const DATA_MAX: usize = 64 << 10;
/// Maximum length of a message with its header, in bytes.
pub(crate) const MESSAGE_MAX: usize = HEADER + 16 + DATA_MAX;
/// Maximum number of descriptors in one message.
pub(crate) const FDS_MAX: usize = 16;

/// Commands that a client sends.
pub(crate) mod command {
    pub(crate) const VERSION: u16 = 1;
    pub(crate) const DMA_MAP: u16 = 2;
    pub(crate) const DMA_UNMAP: u16 = 3;
    pub(crate) const GET_INFO: u16 = 4;
    pub(crate) const GET_REGION_INFO: u16 = 5;
    pub(crate) const GET_REGION_IO_FDS: u16 = 6;
    pub(crate) const GET_IRQ_INFO: u16 = 7;
    pub(crate) const SET_IRQS: u16 = 8;
    pub(crate) const REGION_READ: u16 = 9;
    pub(crate) const REGION_WRITE: u16 = 10;
    pub(crate) const RESET: u16 = 13;
}

/// Flags of a header.
mod flag {
    pub(super) const TYPE: u32 = 0xf;
    pub(super) const REPLY: u32 = 1;
    pub(super) const NO_REPLY: u32 = 1 << 4;
    pub(super) const ERROR: u32 = 1 << 5;
}

/// Number of regions of a PCI device, including the BARs.
pub(crate) const REGIONS: u32 = 9;
/// Index of the configuration space region.
pub(crate) const CONFIG: u32 = 7;
/// Number of interrupt kinds of a PCI device.
pub(crate) const IRQ_KINDS: u32 = 5;
/// Index of the interrupt kind MSI-X.
pub(crate) const MSIX: u32 = 2;

/// Flags of a device.
pub(crate) const DEVICE_RESET: u32 = 1;
pub(crate) const DEVICE_PCI: u32 = 2;

/// Flags of a region.
pub(crate) const REGION_READ: u32 = 1;
pub(crate) const REGION_WRITE: u32 = 2;
pub(crate) const REGION_MMAP: u32 = 4;
pub(crate) const REGION_CAPS: u32 = 8;
/// Capability "sparse mmap" of a region.
pub(crate) const CAP_SPARSE: u16 = 1;

/// Flags of an interrupt kind.
pub(crate) const IRQ_EVENTFD: u32 = 1;
pub(crate) const IRQ_NORESIZE: u32 = 8;

/// Flags of `SET_IRQS`.
pub(crate) const SET_NONE: u32 = 1;
pub(crate) const SET_BOOL: u32 = 2;
pub(crate) const SET_EVENTFD: u32 = 4;
pub(crate) const SET_TRIGGER: u32 = 0x20;

/// Flags of DMA ranges.
pub(crate) const DMA_READ: u32 = 1;
pub(crate) const DMA_WRITE: u32 = 2;
pub(crate) const UNMAP_ALL: u32 = 2;

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: u16,
    pub(crate) command: u16,
    /// Length of the message with its header, in bytes.
    pub(crate) size: u32,
    pub(crate) flags: u32,
}

impl Header {
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Self {
        let [i0, i1, c0, c1, s0, s1, s2, s3, f0, f1, f2, f3, ..] = *bytes;
        Self {
            id: u16::from_le_bytes([i0, i1]),
            command: u16::from_le_bytes([c0, c1]),
            size: u32::from_le_bytes([s0, s1, s2, s3]),
            flags: u32::from_le_bytes([f0, f1, f2, f3]),
        }
    }

    /// Message type; 0 is a command.
    pub(crate) fn kind(&self) -> u32 {
        self.flags & flag::TYPE
    }

    pub(crate) fn wants_reply(&self) -> bool {
        self.flags & flag::NO_REPLY == 0
    }

    /// Creates the reply to this message.
    pub(crate) fn reply(&self, body: &[u8]) -> Vec<u8> {
        self.answer(flag::REPLY, 0, body)
    }

    /// Creates the error reply to this message.
    pub(crate) fn error(&self, errno: u32) -> Vec<u8> {
        self.answer(flag::REPLY | flag::ERROR, errno, &[])
    }

    fn answer(&self, flags: u32, errno: u32, body: &[u8]) -> Vec<u8> {
        let size = (HEADER + body.len()) as u32;
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend(self.id.to_le_bytes());
        message.extend(self.command.to_le_bytes());
        for field in [size, flags, errno] {
            message.extend(field.to_le_bytes());
        }
        message.extend(body);
        message
    }
}

/// Reader of the fields of a message body, in order.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    command: &'static str,
    len: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(command: &'static str, body: &'a [u8]) -> Self {
        Self { command, len: body.len(), rest: body }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let short = MessageError::Short { command: self.command, len: self.len };
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(short)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, MessageError> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MessageError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, MessageError> {
        self.take().map(u64::from_le_bytes)
    }

    /// Bytes after the fields that were read.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }
}

/// Writer of a message body.
#[derive(Debug, Default)]
pub(crate) struct Body(pub(crate) Vec<u8>);

impl Body {
    pub(crate) fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

/// Capabilities of the server in the version message.
pub(crate) fn capabilities() -> String {
    format!(
        "{{\"capabilities\":{{\"max_msg_fds\":{FDS_MAX},\"max_data_xfer_size\":{DATA_MAX},\
         \"pgsizes\":4096}}}}"
    )
}
