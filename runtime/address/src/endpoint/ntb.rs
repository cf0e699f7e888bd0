//! `ntb:SOCKET`: end of a bridge between two processes.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::declaration::KindDecl;
use super::option::{OptionDecl, ValueType, option};
use super::values::{MTU, NAME, name_of, socket_path};
use super::{EndpointConfig, SocketAccess, access};

/// End of a bridge between two processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ntb {
    /// Socket that connects the two ends.
    pub path: PathBuf,
    /// Size in bytes of this end's memory window.
    pub window: u32,
    /// MTU that the link must have; `None`: any.
    pub mtu: Option<u32>,
    /// Name of the netdev; `None`: name of the socket's file.
    pub name: Option<String>,
    /// Permissions of the socket; used by the end that creates it.
    pub access: SocketAccess,
}

const OPTIONS: &[OptionDecl] = &[
    option("window", ValueType::Size(4 << 10, 1 << 30), "memory window of this end").or("16M"),
    MTU.means("MTU to insist on"),
    NAME,
];

pub(super) static KIND: KindDecl = KindDecl {
    prefix: "ntb:",
    target: "SOCKET",
    summary: "bridge to the mqnet process that uses the same socket",
    notes: "The end that starts first creates the socket. Two ends on one machine need two names.",
    document: "",
    example: "ntb:/run/x.sock,name=y",
    driver: "mqnet-ntb",
    rings: "has no rings",
    is_interface: false,
    is_path: |_| true,
    options: &[OPTIONS, access::OPTIONS],
    parse: |path, options| {
        Ok(super::Endpoint::Ntb(Ntb {
            path: socket_path(path)?,
            window: options.value("window"),
            mtu: options.optional("mtu"),
            name: options.optional("name"),
            access: SocketAccess::read(options, true, "")?,
        }))
    },
};

impl EndpointConfig for Ntb {
    fn netdev_name(&self) -> String {
        name_of(self.name.as_ref(), &self.path, "ntb")
    }

    fn path(&self) -> Option<Cow<'_, Path>> {
        Some((&self.path).into())
    }

    fn access(&self) -> Option<&SocketAccess> {
        Some(&self.access)
    }
}
