//! rtnetlink requests for settings without an ioctl.

use std::io;

use mqnet_sysio::descriptors::explained;
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::tun::TunInfo;

/// State of an interface.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) gso_max_size: u32,
    pub(crate) tun: Option<TunInfo>,
}

/// Sends a request from the calling thread's network namespace. Returns the answer, or `None` for
/// an acknowledgement.
fn request(message: RouteNetlinkMessage, flags: u16) -> io::Result<Option<RouteNetlinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE).map_err(explained)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | flags;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let reply = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes)
            .map_err(|e| io::Error::other(format!("netlink: {e}")))?;
        match reply.payload {
            NetlinkPayload::Error(e) if e.code.is_none() => return Ok(None),
            NetlinkPayload::Error(e) => return Err(e.to_io()),
            NetlinkPayload::InnerMessage(inner) => return Ok(Some(inner)),
            _ => {}
        }
    }
}

/// Reads an interface by name.
pub(crate) fn read_interface(name: &str) -> io::Result<Found> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    let reply = request(RouteNetlinkMessage::GetLink(message), 0)?;
    let Some(RouteNetlinkMessage::NewLink(link)) = reply else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let mut found = Found::default();
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::GsoMaxSize(size) => found.gso_max_size = size,
            LinkAttribute::LinkInfo(kind) => found.tun = TunInfo::find(&kind),
            _ => {}
        }
    }
    Ok(found)
}

/// Limits the size of GSO frames of an interface, in bytes from the network header on.
pub(crate) fn set_gso_max_size(index: u32, size: u32) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::GsoMaxSize(size));
    request(RouteNetlinkMessage::SetLink(message), NLM_F_ACK).map(drop)
}
