//! Netlink requests: attach and detach a vDPA device, rename a netdev.

use std::convert::Infallible;
use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable, NlasIterator,
};
use netlink_sys::constants::{NETLINK_GENERIC, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};

/// Name of the kernel's management device for VDUSE.
const MANAGER: &str = "vduse";

/// Generic netlink controller, which resolves family ids.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Commands and attributes of the family "vdpa" (`linux/vdpa.h`).
const DEV_NEW: u8 = 3;
const DEV_DEL: u8 = 4;
const MANAGER_NAME: u16 = 2;
const DEVICE_NAME: u16 = 4;

/// `RTM_NEWLINK` and `IFLA_IFNAME`.
const SET_LINK: u16 = 16;
const LINK_NAME: u16 = 3;

/// Netlink message with a byte payload.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Raw {
    kind: u16,
    bytes: Vec<u8>,
}

impl NetlinkSerializable for Raw {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.bytes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..self.bytes.len()].copy_from_slice(&self.bytes);
    }
}

impl NetlinkDeserializable for Raw {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self { kind: header.message_type, bytes: payload.to_vec() })
    }
}

/// Netlink attribute with a NUL-terminated string.
fn text(kind: u16, value: &str) -> Vec<u8> {
    let len = 4 + value.len() + 1;
    let mut bytes = Vec::from((len as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value.as_bytes());
    bytes.resize(len.next_multiple_of(4), 0);
    bytes
}

/// Sends one request and waits for its acknowledgement. Returns the payload of the reply, if any.
fn transact(protocol: isize, kind: u16, bytes: Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let content = NetlinkPayload::InnerMessage(Raw { kind, bytes });
    let mut request = NetlinkMessage::new(NetlinkHeader::default(), content);
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    request.header.sequence_number = 1;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut answer = None;
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = &datagram[..];
        while !rest.is_empty() {
            let reply = NetlinkMessage::<Raw>::deserialize(rest)
                .map_err(|e| io::Error::other(format!("netlink: {e}")))?;
            rest = rest.get((reply.header.length as usize).next_multiple_of(4)..).unwrap_or(&[]);
            match reply.payload {
                NetlinkPayload::Error(e) if e.code.is_none() => return Ok(answer),
                NetlinkPayload::Error(e) => return Err(e.to_io()),
                NetlinkPayload::InnerMessage(inner) => answer = Some(inner.bytes),
                _ => {}
            }
        }
    }
}

/// Sends a generic netlink request.
fn generic(family: u16, command: u8, attributes: &[Vec<u8>]) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![command, 1, 0, 0];
    attributes.iter().for_each(|attribute| bytes.extend(attribute));
    transact(NETLINK_GENERIC, family, bytes)
}

/// Id of the family "vdpa". The error is `NotFound` without the module, and outside of the
/// initial network namespace.
fn family() -> io::Result<u16> {
    let answer = generic(CONTROLLER, GET_FAMILY, &[text(FAMILY_NAME, "vdpa")])?;
    family_in(&answer.unwrap_or_default()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn family_in(answer: &[u8]) -> Option<u16> {
    let attributes = NlasIterator::new(answer.get(4..)?).flatten();
    let value = attributes.filter(|nla| nla.kind() == FAMILY_ID).map(|nla| nla.value().to_vec());
    value.into_iter().flatten().collect::<Vec<u8>>().try_into().ok().map(u16::from_ne_bytes)
}

/// Attaches a device to the bus. A loaded driver has probed the device when this function
/// returns.
pub(super) fn add(name: &str) -> io::Result<()> {
    let attributes = [text(DEVICE_NAME, name), text(MANAGER_NAME, MANAGER)];
    generic(family()?, DEV_NEW, &attributes).map(drop)
}

/// Detaches a device from the bus. Its driver has reset the device when this function returns.
pub(super) fn remove(name: &str) -> io::Result<()> {
    generic(family()?, DEV_DEL, &[text(DEVICE_NAME, name)]).map(drop)
}

/// Renames a netdev that is not up.
pub(super) fn rename(index: u32, name: &str) -> io::Result<()> {
    // Fields of `ifinfomsg`: family, type, index, flags, and an empty mask of changed flags.
    let mut bytes = vec![0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes.extend(text(LINK_NAME, name));
    transact(NETLINK_ROUTE, SET_LINK, bytes).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: an attribute has the length, the terminated string and the padding that netlink
    // requires.
    #[test]
    fn texts_are_padded() {
        assert_eq!(text(4, "abc"), [8, 0, 4, 0, b'a', b'b', b'c', 0]);
        assert_eq!(text(4, "abcd").len(), 12);
        assert_eq!(text(4, "abcd")[..2], [9, 0]);
    }

    // Goal: the family id is found among other attributes; a short reply has no id.
    #[test]
    fn the_family_is_found() {
        let mut answer = vec![1, 2, 0, 0];
        answer.extend(text(FAMILY_NAME, "vdpa"));
        answer.extend([6, 0, 1, 0, 0x22, 0, 0, 0]);
        assert_eq!(family_in(&answer), Some(0x22));
        assert_eq!(family_in(&answer[..12]), None);
        assert_eq!(family_in(&[]), None);
    }

    // Goal: the kernel accepts the requests: an existing family is found, and an invalid request
    // returns an error.
    #[test]
    fn the_kernel_answers() {
        let answer = generic(CONTROLLER, GET_FAMILY, &[text(FAMILY_NAME, "nlctrl")]).unwrap();
        assert_eq!(family_in(&answer.unwrap()), Some(CONTROLLER));
        assert!(generic(CONTROLLER, GET_FAMILY, &[text(FAMILY_NAME, "no-such")]).is_err());
        assert!(rename(u32::MAX >> 1, "x").is_err());
    }
}
