//! VPN without cryptography: packets of a TUN device are sent in UDP datagrams.
//!
//! Like most VPNs, the program reads one packet, sends it, and waits while its socket is full.
//! During that time the kernel queues or drops packets, as selected by `--backpressure`.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;

use mqnet_sysio::tap;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};

/// Flag for IP packets without an Ethernet header (`linux/if_tun.h`).
const TUN: u32 = 0x0001;
/// Size of the receive buffer.
const ROOM: usize = 32 << 20;
const USAGE: &str = "guest-tunnel DEVICE LOCAL:PORT PEER:PORT [--backpressure] [--sndbuf BYTES]";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or(USAGE);
    let (device, local, peer) = (next()?, next()?, next()?);
    let (mut flags, mut room) = (TUN | tap::flag::NO_PI, None);
    while let Ok(option) = next() {
        match option.as_str() {
            "--backpressure" => flags |= tap::flag::BACKPRESSURE,
            "--sndbuf" => room = Some(next()?.parse::<usize>()?),
            _ => return Err(USAGE.into()),
        }
    }
    let tun = tap::open_clone_device()?;
    if flags & !tap::features(tun.as_fd())? & tap::flag::BACKPRESSURE != 0 {
        return Err("this kernel has no IFF_BACKPRESSURE".into());
    }
    tap::attach(tun.as_fd(), &device, flags)?;
    let socket = UdpSocket::bind(local)?;
    socket.connect(peer)?;
    // The receive buffer is large, so that the receiver drops no datagram.
    setsockopt(&socket, sockopt::RcvBufForce, &ROOM)?;
    if let Some(room) = room {
        // The kernel doubles the value for its bookkeeping.
        setsockopt(&socket, sockopt::SndBuf, &(room / 2))?;
    }
    let tun = File::from(tun);
    let (inward, from_net) = (tun.try_clone()?, socket.try_clone()?);
    std::thread::spawn(move || deliver(&from_net, inward));
    send(tun, &socket)
}

/// Sends packets of the device to the peer, and waits while the socket is full.
fn send(mut tun: File, socket: &UdpSocket) -> Result<()> {
    let mut packet = [0; 1 << 16];
    loop {
        match tun.read(&mut packet) {
            Ok(length) => {
                // Errors are ignored: an absent peer loses packets, as on any network.
                let _ = socket.send(&packet[..length]);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(tun.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)?;
            }
            // EIO: the device is down.
            Err(e) if e.raw_os_error() == Some(5) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// Writes packets of the peer to the device.
fn deliver(socket: &UdpSocket, mut tun: File) {
    let mut packet = [0; 1 << 16];
    loop {
        if let Ok(length) = socket.recv(&mut packet) {
            // A device that is down rejects packets.
            let _ = tun.write(&packet[..length]);
        }
    }
}
