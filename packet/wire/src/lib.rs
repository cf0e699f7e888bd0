//! Header views and checksums. Knows no pool and no device.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod vnet_hdr;

pub use vnet_hdr::{GsoKind, Invalid, VNET_HDR_LEN, VnetFields, VnetHdr};
