//! A VPN without the cryptography: packets of a TUN device travel in UDP datagrams.
//!
//! Like most VPNs it reads one packet, sends it, and waits while its socket is full. What happens
//! to packets meanwhile is the kernel's choice, and `--backpressure` tells it.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;

use mqnet_sysio::tap;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};

/// An IP packet without an Ethernet header (`linux/if_tun.h`).
const TUN: u32 = 0x0001;
/// Room of the receiving socket.
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
    // The far end must not be the one that loses.
    setsockopt(&socket, sockopt::RcvBufForce, &ROOM)?;
    if let Some(room) = room {
        // The kernel doubles it for its own needs.
        setsockopt(&socket, sockopt::SndBuf, &(room / 2))?;
    }
    let tun = File::from(tun);
    let (inward, from_net) = (tun.try_clone()?, socket.try_clone()?);
    std::thread::spawn(move || deliver(&from_net, inward));
    send(tun, &socket)
}

/// Packets of the device go out; a full socket makes them wait.
fn send(mut tun: File, socket: &UdpSocket) -> Result<()> {
    let mut packet = [0; 1 << 16];
    loop {
        match tun.read(&mut packet) {
            Ok(length) => {
                // A peer that is not there yet, or no more, is a lost packet as on any network.
                let _ = socket.send(&packet[..length]);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(tun.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)?;
            }
            // The device is not up yet.
            Err(e) if e.raw_os_error() == Some(5) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// Packets of the peer go to the device.
fn deliver(socket: &UdpSocket, mut tun: File) {
    let mut packet = [0; 1 << 16];
    loop {
        if let Ok(length) = socket.recv(&mut packet) {
            // A device that is down takes nothing.
            let _ = tun.write(&packet[..length]);
        }
    }
}
