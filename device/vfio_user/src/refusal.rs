//! Reasons for which a message is answered with an error.

/// Reason for which a message was answered with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The body is shorter than its fields.
    #[error("{command}: body of {len} bytes is too short")]
    Short {
        /// Name of the command.
        command: &'static str,
        /// Bytes of the body.
        len: usize,
    },
    /// The command is unknown or not supported.
    #[error("command {0}: not supported")]
    Unsupported(u16),
    /// The message is not a command.
    #[error("message type {0}: allowed are 0 (command)")]
    Type(u32),
    /// A command was received before the version negotiation.
    #[error("command {0}: version not negotiated yet")]
    NoVersion(u16),
    /// The version was negotiated already, or its major number is not 0.
    #[error("version {major}.{minor}: allowed is 0.0 and above, once per connection")]
    Version {
        /// Major number of the client.
        major: u16,
        /// Minor number of the client.
        minor: u16,
    },
    /// The device lacks the region, the range in the region, or the interrupt.
    #[error("{what} {index}: range {start}+{count} is outside of 0+{len}")]
    Range {
        /// Kind of object.
        what: &'static str,
        /// Index of the object.
        index: u32,
        /// First element of the range.
        start: u64,
        /// Number of elements in the range.
        count: u64,
        /// Number of elements of the object.
        len: u64,
    },
    /// Flags that are unknown, contradictory or not supported by the object.
    #[error("{what}: flags {flags:#x} are not supported")]
    Flags {
        /// Kind of object.
        what: &'static str,
        /// Flags of the message.
        flags: u32,
    },
    /// The message has a wrong number of descriptors.
    #[error("{what}: {have} descriptors, allowed are {allowed}")]
    Descriptors {
        /// Kind of message.
        what: &'static str,
        /// Number of descriptors.
        have: usize,
        /// Allowed numbers.
        allowed: &'static str,
    },
    /// The descriptor for an interrupt is no eventfd.
    #[error("vector {0}: the descriptor is not an eventfd")]
    NotAnEvent(u32),
    /// The eventfd of an interrupt could not be replaced.
    #[error("vector {0}: {1}")]
    Event(u32, String),
    /// A DMA range is empty or exceeds the address space.
    #[error("DMA range {iova:#x}+{len:#x}: empty or beyond the address space")]
    DmaEmpty {
        /// First address.
        iova: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A DMA range overlaps a mapped one.
    #[error("DMA range {iova:#x}+{len:#x}: overlaps the mapped range at {with:#x}")]
    DmaOverlap {
        /// First address.
        iova: u64,
        /// Length in bytes.
        len: u64,
        /// First address of the mapped range.
        with: u64,
    },
    /// No mapped range is in the range to unmap.
    #[error("DMA range {iova:#x}+{len:#x}: nothing is mapped there")]
    DmaNotMapped {
        /// First address.
        iova: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A range to unmap contains only a part of a mapped one.
    #[error("DMA range {iova:#x}+{len:#x}: divides the mapped range at {with:#x}")]
    DmaDivides {
        /// First address.
        iova: u64,
        /// Length in bytes.
        len: u64,
        /// First address of the mapped range.
        with: u64,
    },
    /// A client may not map so many ranges or bytes.
    #[error(
        "DMA map: {ranges} ranges with {bytes} bytes, allowed are {most_ranges} and {most_bytes}"
    )]
    DmaLimit {
        /// Number of ranges, including the new one.
        ranges: usize,
        /// Number of bytes, including the new range.
        bytes: u64,
        /// Maximum number of ranges.
        most_ranges: usize,
        /// Maximum number of bytes.
        most_bytes: u64,
    },
    /// The memory of a DMA range cannot be mapped.
    #[error("DMA range {iova:#x}: {reason}")]
    DmaMemory {
        /// First address.
        iova: u64,
        /// Reason that the mapping failed.
        reason: String,
    },
}

impl MessageError {
    /// Error number for the reply.
    pub fn errno(&self) -> u32 {
        const ENOENT: u32 = 2;
        const EEXIST: u32 = 17;
        const EINVAL: u32 = 22;
        const ENOSPC: u32 = 28;
        const ENOSYS: u32 = 38;
        match self {
            Self::Unsupported(_) => ENOSYS,
            Self::DmaOverlap { .. } => EEXIST,
            Self::DmaNotMapped { .. } => ENOENT,
            Self::DmaLimit { .. } => ENOSPC,
            _ => EINVAL,
        }
    }
}
