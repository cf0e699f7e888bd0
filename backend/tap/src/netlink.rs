//! Rtnetlink requests of a TAP. The socket stays bound to the network namespace in which it was
//! opened.

use std::io;

use mqnet_sysio::descriptors::explained;
use mqnet_undo::TunInfo;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::InterfaceAddress;

pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// Attributes of a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkInfo {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) mac: Option<[u8; 6]>,
    /// Administrative state (IFF_UP).
    pub(crate) is_up: bool,
    pub(crate) carrier: bool,
    pub(crate) mtu: u32,
    pub(crate) gso_max_size: u32,
    pub(crate) tx_dropped: u64,
    /// Capacity of each ring of the device in frames (`txqueuelen`).
    pub(crate) ring: u32,
    /// Flags and queues of a TUN or TAP.
    pub(crate) tun: Option<TunInfo>,
    /// True if the qdisc is `noop`: the device does not transmit yet.
    pub(crate) inactive: bool,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(explained)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends one request and returns the reply; `None` if that is an acknowledgement.
    fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let reply = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes)
                .map_err(|e| io::Error::other(format!("netlink: {e}")))?;
            if reply.header.sequence_number != self.sequence {
                continue;
            }
            match reply.payload {
                NetlinkPayload::Error(e) if e.code.is_none() => return Ok(None),
                NetlinkPayload::Error(e) => return Err(e.to_io()),
                NetlinkPayload::InnerMessage(inner) => return Ok(Some(inner)),
                _ => {}
            }
        }
    }

    /// Reads a link by name; `Err` if there is none.
    pub(crate) fn link(&mut self, name: &str) -> io::Result<LinkInfo> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.read(message)
    }

    /// Reads a link by index; `Err` if there is none.
    pub(crate) fn link_at(&mut self, index: u32) -> io::Result<LinkInfo> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.read(message)
    }

    fn read(&mut self, message: LinkMessage) -> io::Result<LinkInfo> {
        let reply = self.request(RouteNetlinkMessage::GetLink(message), 0)?;
        let Some(RouteNetlinkMessage::NewLink(link)) = reply else {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        };
        let (index, is_up) = (link.header.index, link.header.flags.contains(LinkFlags::Up));
        let mut info = LinkInfo { index, is_up, ..LinkInfo::default() };
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => info.name = name,
                LinkAttribute::Address(mac) => info.mac = mac.try_into().ok(),
                LinkAttribute::Carrier(carrier) => info.carrier = carrier > 0,
                LinkAttribute::Mtu(mtu) => info.mtu = mtu,
                LinkAttribute::GsoMaxSize(size) => info.gso_max_size = size,
                LinkAttribute::TxQueueLen(frames) => info.ring = frames,
                LinkAttribute::Stats64(stats) => info.tx_dropped = stats.tx_dropped,
                LinkAttribute::Qdisc(name) => info.inactive = name == "noop",
                LinkAttribute::LinkInfo(kind) => info.tun = TunInfo::find(&kind),
                _ => {}
            }
        }
        Ok(info)
    }

    pub(crate) fn set(&mut self, index: u32, attribute: LinkAttribute) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(attribute);
        self.request(RouteNetlinkMessage::SetLink(message), NLM_F_ACK).map(drop)
    }

    pub(crate) fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        self.set(index, LinkAttribute::Mtu(mtu))
    }

    pub(crate) fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> io::Result<()> {
        self.set(index, LinkAttribute::Address(mac.to_vec()))
    }

    /// Sets the GSO size limit, counted from the network header.
    pub(crate) fn set_gso_max(&mut self, index: u32, size: u32) -> io::Result<()> {
        self.set(index, LinkAttribute::GsoMaxSize(size))
    }

    pub(crate) fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), NLM_F_ACK).map(drop)
    }

    /// Adds an address without duplicate address detection, so that it is usable immediately.
    pub(crate) fn add_address(&mut self, index: u32, address: &InterfaceAddress) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.index = index;
        message.header.prefix_len = address.prefix;
        message.header.flags = AddressHeaderFlags::Nodad;
        message.header.family =
            if address.ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.attributes.push(AddressAttribute::Local(address.ip));
        message.attributes.push(AddressAttribute::Address(address.ip));
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        self.request(RouteNetlinkMessage::NewAddress(message), flags).map(drop)
    }
}
