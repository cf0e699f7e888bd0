//! `virtio-user:SOCKET`: virtio device in another process, driven by mqnet.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::declaration::KindDecl;
use super::option::{OptionDecl, ValueType, option};
use super::values::{MAC, MTU, NAME, ON_OFF, QUEUES, name_of, socket_path};
use super::{EndpointConfig, SocketAccess, access};

/// Layout of RX buffers in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxBufLayout {
    /// Several buffers share a page if they fit.
    #[default]
    Frag,
    /// Each buffer has its own page.
    Full,
    /// Layout selected by measurement.
    Auto,
}

/// Virtio device in another process, driven by mqnet over vhost-user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioUser {
    /// Path of the socket.
    pub path: PathBuf,
    /// True to listen at the socket; false to connect.
    pub server: bool,
    /// Largest number of queue pairs; `None`: as many as the device has.
    pub queues: Option<u16>,
    /// MTU that the link must have; `None`: any.
    pub mtu: Option<u32>,
    /// Destination address of frames to receive, in addition to group addresses; `None`: all frames
    /// are received.
    pub mac: Option<[u8; 6]>,
    /// True to use packed rings.
    pub packed: bool,
    /// True to use in-order buffers if the device offers them.
    pub in_order: bool,
    /// True to use checksum and segmentation offloads if the device offers them.
    pub csum: bool,
    /// True to use mergeable buffers if the device offers them.
    pub mergeable: bool,
    /// Layout of RX buffers in pages.
    pub rx_buf_layout: RxBufLayout,
    /// Name of the netdev; `None`: name of the socket's file.
    pub name: Option<String>,
    /// Permissions of the socket, if mqnet listens.
    pub access: SocketAccess,
}

const OPTIONS: &[OptionDecl] = &[
    option("server", ValueType::Flag, "listen at the socket; the device connects"),
    option("queues", QUEUES, "largest number of queue pairs"),
    MTU.means("MTU to insist on"),
    MAC.means("receive frames for this address and for groups only"),
    option("packed", ValueType::Switch { bare: true }, "use packed rings").or("off"),
    option("in-order", ON_OFF, "use VIRTIO_F_IN_ORDER if the device offers it").or("on"),
    option("csum", ON_OFF, "leave checksums and segmentation to a device that completes them")
        .or("on"),
    option("mrg", ON_OFF, "mergeable RX buffers, if the device has them").or("on"),
    option(
        "rx-buf-layout",
        ValueType::Choice(&["auto", "frag", "full"]),
        "frag: several RX buffers share a page where they fit; full: each has a page; \
                 auto: by measurement",
    )
    .or("frag"),
    NAME,
];

pub(super) static KIND: KindDecl = KindDecl {
    prefix: "virtio-user:",
    target: "SOCKET",
    summary: "virtio device in another process, driven by mqnet (DPDK's vhost port)",
    notes: "",
    document: "rx-buffers.md",
    example: "virtio-user:/run/vm0.sock,server,queues=2",
    driver: "mqnet-virtio-user",
    rings: "has no rings",
    is_interface: false,
    is_path: |_| true,
    options: &[OPTIONS, access::OPTIONS],
    parse: |path, options| {
        let server = options.value("server");
        let layouts = [RxBufLayout::Auto, RxBufLayout::Frag, RxBufLayout::Full];
        Ok(super::Endpoint::VirtioUser(VirtioUser {
            access: SocketAccess::read(options, server, "with server")?,
            path: socket_path(path)?,
            server,
            queues: options.optional("queues"),
            mtu: options.optional("mtu"),
            mac: options.optional("mac"),
            packed: options.value("packed"),
            in_order: options.value("in-order"),
            csum: options.value("csum"),
            mergeable: options.value("mrg"),
            rx_buf_layout: options.pick("rx-buf-layout", layouts).unwrap_or_default(),
            name: options.optional("name"),
        }))
    },
};

impl EndpointConfig for VirtioUser {
    fn netdev_name(&self) -> String {
        name_of(self.name.as_ref(), &self.path, "virtio-user")
    }

    fn path(&self) -> Option<Cow<'_, Path>> {
        Some((&self.path).into())
    }

    fn access(&self) -> Option<&SocketAccess> {
        Some(&self.access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, parse};

    // Goal: every option is read, and absent options have their defaults.
    #[test]
    fn options_are_read() {
        let plain = VirtioUser {
            path: "/run/v.sock".into(),
            server: false,
            queues: None,
            mtu: None,
            mac: None,
            packed: false,
            in_order: true,
            csum: true,
            mergeable: true,
            rx_buf_layout: RxBufLayout::Frag,
            name: None,
            access: SocketAccess::default(),
        };
        let read = |text: &str| parse(&format!("virtio-user:/run/v.sock{text}")).unwrap();
        assert_eq!(read(""), Endpoint::VirtioUser(plain.clone()));
        assert_eq!(read("").config().netdev_name(), "v");
        let all = read(
            ",server,queues=8,mtu=9000,mac=02:00:00:00:00:01,packed,in-order=off,csum=off,\
             mrg=off,rx-buf-layout=auto,name=x",
        );
        let want = VirtioUser {
            server: true,
            queues: Some(8),
            mtu: Some(9000),
            mac: Some([2, 0, 0, 0, 0, 1]),
            packed: true,
            in_order: false,
            csum: false,
            mergeable: false,
            rx_buf_layout: RxBufLayout::Auto,
            name: Some("x".to_owned()),
            ..plain
        };
        assert_eq!(all, Endpoint::VirtioUser(want));
        assert_eq!(all.config().netdev_name(), "x");
    }
}
