//! `virtio-user:SOCKET[,server][,queues=N][,mtu=N][,mac=M][,packed[=on|off]][,in-order=on|off]`
//! `[,csum=on|off][,mrg=on|off][,rx-buf-layout=auto|frag|full][,name=NAME]`
//! `[,mode=M][,owner=USER][,group=GROUP]`

use std::path::PathBuf;

use mqnet_netdev::limits::CHANNELS_MAX;

use super::options::{Options, on_off, parse_mac};
use super::{Endpoint, SocketAccess, access, device_name, egress, parse_mtu, socket_path};

/// How RX buffers lie in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxBufLayout {
    /// Several share a page where they fit.
    #[default]
    Frag,
    /// Each has a page.
    Full,
    /// By what is measured.
    Auto,
}

fn layout(value: &str) -> Result<RxBufLayout, String> {
    match value {
        "frag" => Ok(RxBufLayout::Frag),
        "full" => Ok(RxBufLayout::Full),
        "auto" => Ok(RxBufLayout::Auto),
        _ => Err(format!("rx-buf-layout={value}: must be auto, frag or full")),
    }
}

/// A virtio device over vhost-user, of which we are the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioUser {
    /// The socket.
    pub path: PathBuf,
    /// Listen at it.
    pub server: bool,
    /// Most queue pairs.
    pub queues: Option<u16>,
    /// MTU to insist on.
    pub mtu: Option<u32>,
    /// Take frames for this address and for groups only.
    pub mac: Option<[u8; 6]>,
    /// Packed rings.
    pub packed: bool,
    /// Buffers that come back in order, if the device keeps it.
    pub in_order: bool,
    /// Checksums and segmentation that the device finishes, if it does.
    pub csum: bool,
    /// Mergeable buffers, if the device has them.
    pub mergeable: bool,
    /// How RX buffers lie in pages.
    pub rx_buf_layout: RxBufLayout,
    /// Name of the netdev; otherwise that of the socket's file.
    pub name: Option<String>,
    /// Permissions of the socket that a server makes.
    pub access: SocketAccess,
}

pub(super) fn parse(path: &str, mut options: Options<'_>) -> Result<Endpoint, String> {
    let (mut server, mut queues, mut mtu, mut packed) = (false, None, None, false);
    let (mut in_order, mut csum, mut mergeable) = (true, true, true);
    let (mut name, mut mac) = (None, None);
    let mut access = SocketAccess::default();
    let mut rx_buf_layout = RxBufLayout::default();
    while let Some((key, value)) = options.next() {
        match (key, value) {
            ("server", None) => server = true,
            ("queues", Some(v)) => {
                let number = v.parse().ok().filter(|n| (1..=CHANNELS_MAX).contains(n));
                let why = format!("queues={v}: must be a number from 1 to {CHANNELS_MAX}");
                queues = Some(number.ok_or(why)?);
            }
            ("mtu", Some(v)) => mtu = Some(parse_mtu(v)?),
            ("mac", Some(v)) => mac = Some(parse_mac(v)?),
            ("packed", None) => packed = true,
            ("packed", Some(v)) => packed = on_off(key, v)?,
            ("in-order", Some(v)) => in_order = on_off(key, v)?,
            ("csum", Some(v)) => csum = on_off(key, v)?,
            ("mrg", Some(v)) => mergeable = on_off(key, v)?,
            ("rx-buf-layout", Some(v)) => rx_buf_layout = layout(v)?,
            ("name", Some(v)) => name = Some(device_name(v)?.to_owned()),
            _ => match access.take(key, value) {
                Some(taken) => taken?,
                None => {
                    let known = "server queues= mtu= mac= packed= in-order= csum= mrg= \
                                 rx-buf-layout= name=";
                    return Err(access::unknown(&options, known, egress::ALLOWED));
                }
            },
        }
    }
    access.is_ours(server, "with server")?;
    let path = socket_path(path)?;
    Ok(Endpoint::VirtioUser(VirtioUser {
        path,
        server,
        queues,
        mtu,
        mac,
        packed,
        in_order,
        csum,
        mergeable,
        rx_buf_layout,
        name,
        access,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    // Goal: every option means what it says, and what is left out has its default.
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
        assert_eq!(read("").netdev_name(), "v");
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
        assert_eq!(all.netdev_name(), "x");
    }

    // Goal: wrong values are refused with the allowed ones.
    #[test]
    fn wrong_options_are_refused() {
        for (text, words) in [
            ("virtio-user:", "1 to 107"),
            ("virtio-user:/x,queues=0", "from 1 to 64"),
            ("virtio-user:/x,queues=65", "from 1 to 64"),
            ("virtio-user:/x,mrg=maybe", "on or off"),
            ("virtio-user:/x,packed=1", "on or off"),
            ("virtio-user:/x,csum", "csum="),
            ("virtio-user:/x,mtu=67", "mtu=67"),
            ("virtio-user:/x,rx-buf-layout=half", "auto, frag or full"),
        ] {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
