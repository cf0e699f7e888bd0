//! Frame formats: header views, checksums, segmentation and flow hashing. Independent of pools and
//! devices.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod flow;
pub mod offload;
pub mod rss;
mod vnet_hdr;

pub use flow::{FlowKeys, HEADERS_MAX, Layer};
pub use vnet_hdr::{GsoKind, Invalid, VNET_HDR_LEN, VnetFields, VnetHdr};
