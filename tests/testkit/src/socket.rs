//! Sockets that no wait for a CPU makes lose datagrams.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use crate::host::Host;

/// Room of a receiving socket, in bytes. The kernel's own 208 KiB are less than 280 small
/// datagrams: what waits behind a stopped lane comes at once when it wakes, and a receiver that has
/// no CPU just then would look like a loss of ours.
const ROOM: usize = 32 << 20;

/// A socket at `ip` of `host`, at a port of the kernel's choice.
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
