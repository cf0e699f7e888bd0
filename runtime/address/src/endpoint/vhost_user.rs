//! `vhost-user:SOCKET`: virtio NIC of a guest.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::declaration::KindDecl;
use super::option::{OptionDecl, ValueType, option};
use super::values::{DESCRIPTOR, MAC, MTU, NAME, ON_OFF, QUEUES, name_of, socket_path};
use super::{EndpointConfig, SocketAccess, access};

/// Virtio NIC of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUser {
    /// Path of the socket; empty if the socket is inherited.
    pub path: PathBuf,
    /// True to connect to a listening VMM; false to listen.
    pub connect: bool,
    /// Largest number of queue pairs.
    pub queues: u16,
    /// True to offer packed rings; false for split rings only.
    pub packed: bool,
    /// True to offer a control queue.
    pub ctrl: bool,
    /// Ethernet address to offer.
    pub mac: Option<[u8; 6]>,
    /// MTU to offer, which the link must have.
    pub mtu: Option<u32>,
    /// Name of the netdev; `None`: name of the socket's file.
    pub name: Option<String>,
    /// Descriptor of a socket inherited from the parent process.
    pub fd: Option<i32>,
    /// Permissions of the socket, if mqnet creates it.
    pub access: SocketAccess,
}

const OPTIONS: &[OptionDecl] = &[
    option("connect", ValueType::Flag, "connect to the socket, at which the VMM listens"),
    option("queues", QUEUES, "largest number of queue pairs").or("64"),
    option("packed", ON_OFF, "offer packed rings; off: split rings only").or("on"),
    option("ctrl", ON_OFF, "offer a control queue, for peers that are the driver").or("off"),
    MAC.means("Ethernet address for a VMM that requests it; QEMU has its own mac="),
    MTU.means("MTU to offer and to insist on"),
    NAME,
    option(
        "fd",
        DESCRIPTOR,
        "inherited socket, listening or connected, instead of a path: vhost-user:,fd=N",
    ),
];

pub(super) static KIND: KindDecl = KindDecl {
    prefix: "vhost-user:",
    target: "SOCKET",
    summary: "virtio NIC of a virtual machine",
    notes: "mqnet listens at the socket and prints the options of QEMU and cloud-hypervisor.",
    document: "vhost-user.md",
    example: "vhost-user:/run/vm0.sock,queues=8,mode=0660",
    driver: "mqnet-vhost-user",
    rings: "its rings belong to the driver: set them in the VMM or the guest",
    is_interface: false,
    is_path: |_| true,
    options: &[OPTIONS, access::OPTIONS],
    parse: |path, options| {
        let (connect, fd) = (options.value("connect"), options.optional("fd"));
        let why = if connect { "not with connect" } else { "not with fd=" };
        let access = SocketAccess::read(options, !connect && fd.is_none(), why)?;
        let path = match fd {
            Some(_) if !path.is_empty() || connect => {
                return Err("fd= replaces the socket path: write vhost-user:,fd=N".to_owned());
            }
            Some(_) => PathBuf::new(),
            None => socket_path(path)?,
        };
        Ok(super::Endpoint::VhostUser(VhostUser {
            path,
            connect,
            queues: options.value("queues"),
            packed: options.value("packed"),
            ctrl: options.value("ctrl"),
            mac: options.optional("mac"),
            mtu: options.optional("mtu"),
            name: options.optional("name"),
            fd,
            access,
        }))
    },
};

impl EndpointConfig for VhostUser {
    fn netdev_name(&self) -> String {
        name_of(self.name.as_ref(), &self.path, "vhost-user")
    }

    fn path(&self) -> Option<Cow<'_, Path>> {
        Some((&self.path).into())
    }

    fn access(&self) -> Option<&SocketAccess> {
        Some(&self.access)
    }

    fn inherited(&self) -> &[i32] {
        self.fd.as_slice()
    }
}
