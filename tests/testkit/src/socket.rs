//! Sockets with a receive buffer that loses no datagrams while the reader waits for a CPU.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use crate::host::Host;

/// Size of a receive buffer in bytes. The kernel's default of 208 KiB holds fewer than 280 small
/// datagrams. A lane that wakes delivers its backlog in one burst. With the default size, a
/// receiver without a CPU would lose datagrams, and the test would attribute the loss to mqnet.
const ROOM: usize = 32 << 20;

/// Socket at `ip` of `host`, at a port chosen by the kernel.
#[track_caller]
pub(crate) fn roomy(host: &Host, ip: IpAddr) -> UdpSocket {
    let socket = host.within(|| UdpSocket::bind(SocketAddr::new(ip, 0)));
    let socket = socket.unwrap_or_else(|e| panic!("binding {ip}: {e}"));
    if setsockopt(&socket, sockopt::RcvBufForce, &ROOM).is_err() {
        setsockopt(&socket, sockopt::RcvBuf, &ROOM).expect("room for datagrams");
    }
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    socket
}
