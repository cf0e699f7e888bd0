//! `vhost-user:SOCKET[,connect][,queues=N][,packed=on|off][,ctrl=on|off][,mac=M][,mtu=N][,name=N]
//! [,fd=N][,mode=M][,owner=USER][,group=GROUP]`

use std::path::PathBuf;

use mqnet_netdev::limits::CHANNELS_MAX;

use super::options::{Options, on_off, parse_mac};
use super::{SocketAccess, access, device_name, egress, parse_mtu, socket_path, stem_of};

/// The network card of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUser {
    /// The socket; empty when it is inherited.
    pub path: PathBuf,
    /// The VMM listens there, and we connect; otherwise the other way round.
    pub connect: bool,
    /// Most queue pairs.
    pub queues: u16,
    /// Offer packed rings.
    pub packed: bool,
    /// Offer a control queue.
    pub ctrl: bool,
    /// Ethernet address to offer.
    pub mac: Option<[u8; 6]>,
    /// MTU to offer and to insist on.
    pub mtu: Option<u32>,
    /// Name of the netdev; otherwise that of the socket's file.
    pub name: Option<String>,
    /// A socket that the parent process left open.
    pub fd: Option<i32>,
    /// Permissions of the socket that we listen at.
    pub access: SocketAccess,
}

impl VhostUser {
    pub(super) fn netdev_name(&self) -> String {
        let named = self.name.clone().or_else(|| stem_of(&self.path));
        named.unwrap_or_else(|| "vhost-user".to_owned())
    }
}

pub(super) fn parse(path: &str, mut options: Options<'_>) -> Result<VhostUser, String> {
    let mut card = VhostUser {
        path: PathBuf::new(),
        connect: false,
        queues: CHANNELS_MAX,
        packed: true,
        ctrl: false,
        mac: None,
        mtu: None,
        name: None,
        fd: None,
        access: SocketAccess::default(),
    };
    while let Some((key, value)) = options.next() {
        match (key, value) {
            ("connect", None) => card.connect = true,
            ("queues", Some(v)) => {
                let pairs = v.parse().ok().filter(|n| (1..=CHANNELS_MAX).contains(n));
                let why = format!("queues={v}: must be a number of pairs from 1 to {CHANNELS_MAX}");
                card.queues = pairs.ok_or(why)?;
            }
            ("packed", Some(v)) => card.packed = on_off(key, v)?,
            ("ctrl", Some(v)) => card.ctrl = on_off(key, v)?,
            ("mac", Some(v)) => card.mac = Some(parse_mac(v)?),
            ("mtu", Some(v)) => card.mtu = Some(parse_mtu(v)?),
            ("name", Some(v)) => card.name = Some(device_name(v)?.to_owned()),
            ("fd", Some(v)) => {
                let fd = v.parse().ok().filter(|&fd| fd > 2);
                card.fd = Some(fd.ok_or(format!("fd={v}: must be a descriptor number above 2"))?);
            }
            _ => match card.access.take(key, value) {
                Some(taken) => taken?,
                None => {
                    let allowed = "connect queues= packed= ctrl= mac= mtu= name= fd=";
                    return Err(access::unknown(&options, allowed, egress::ALLOWED));
                }
            },
        }
    }
    card.access.is_ours(!card.connect, "not with connect")?;
    card.access.is_ours(card.fd.is_none(), "not with fd=")?;
    match card.fd {
        Some(_) if !path.is_empty() || card.connect => {
            Err("fd= is instead of a socket path: write vhost-user:,fd=N".to_owned())
        }
        Some(_) => Ok(card),
        None => Ok(VhostUser { path: socket_path(path)?, ..card }),
    }
}
