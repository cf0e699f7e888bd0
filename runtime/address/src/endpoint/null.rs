//! `null:`: endpoint that discards all frames.

use super::declaration::KindDecl;
use super::{Endpoint, EndpointConfig};

/// Endpoint that discards all frames.
pub(super) struct Null;

pub(super) static KIND: KindDecl = KindDecl {
    prefix: "null:",
    target: "",
    summary: "discards all frames",
    notes: "",
    document: "",
    example: "null:",
    driver: "mqnet-null",
    rings: "has no rings",
    is_interface: false,
    is_path: |_| false,
    options: &[],
    parse: |_, _| Ok(Endpoint::Null),
};

impl EndpointConfig for Null {
    fn netdev_name(&self) -> String {
        "null".to_owned()
    }
}
