//! UDP senders without rate control, except for full sockets and an optional pause, and a receiver
//! that counts datagrams.
//!
//! Each datagram contains its sender and its number, so that losses are known exactly.

#![forbid(unsafe_code)]

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use serde_json::json;

const USAGE: &str = "guest-flood send PEER:PORT SENDERS SECONDS [PAUSE-US] | \
                     guest-flood receive LOCAL:PORT [SILENCE-MS]";
const SIZE: usize = 200;
/// Bytes of the receive buffer, large enough that the receiver drops no datagram.
const ROOM: usize = 64 << 20;
/// Time without a datagram after which the receiver ends. Tests stop the link until they see a
/// backlog of the qdisc, which takes less, even on a busy machine.
const SILENCE: Duration = Duration::from_secs(8);
/// Longest wait for the first datagram.
const PATIENCE: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["send", peer, senders, seconds] => {
            send(peer, senders.parse()?, Duration::from_secs(seconds.parse()?), Duration::ZERO)
        }
        ["send", peer, senders, seconds, pause] => {
            let pause = Duration::from_micros(pause.parse()?);
            send(peer, senders.parse()?, Duration::from_secs(seconds.parse()?), pause)
        }
        ["receive", local] => receive(local, SILENCE),
        ["receive", local, silence] => receive(local, Duration::from_millis(silence.parse()?)),
        _ => Err(USAGE.into()),
    }
}

/// Sends from `senders` sockets, each with a pause after every datagram.
fn send(peer: &str, senders: u8, time: Duration, pause: Duration) -> Result<()> {
    let end = Instant::now() + time;
    let run = |sender: u8| {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(peer)?;
        let mut datagram = [sender; SIZE];
        let (mut sent, mut refused) = (0_u64, 0_u64);
        while Instant::now() < end {
            datagram[..8].copy_from_slice(&sent.to_le_bytes());
            // An error (ENOBUFS) comes from a full qdisc: the datagram was not sent.
            match socket.send(&datagram) {
                Ok(_) => sent += 1,
                Err(_) => refused += 1,
            }
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
        Ok::<_, std::io::Error>((sent, refused))
    };
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..senders).map(|n| scope.spawn(move || run(n))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a sender panicked")))
        };
        threads.into_iter().map(join).collect::<std::io::Result<Vec<(u64, u64)>>>()
    })?;
    let sum = |column: fn(&(u64, u64)) -> u64| counts.iter().map(column).sum::<u64>();
    println!("{}", json!({ "sent": sum(|c| c.0), "refused": sum(|c| c.1) }));
    Ok(())
}

fn receive(local: &str, silence: Duration) -> Result<()> {
    let socket = UdpSocket::bind(local)?;
    setsockopt(&socket, sockopt::RcvBufForce, &ROOM)?;
    socket.set_read_timeout(Some(silence))?;
    let mut datagram = [0; 2048];
    let (mut received, mut wrong) = (0_u64, 0_u64);
    let mut next = [0_u64; 256];
    let started = Instant::now();
    loop {
        match socket.recv(&mut datagram) {
            Ok(SIZE) => {
                received += 1;
                let mut number = [0; 8];
                number.copy_from_slice(&datagram[..8]);
                let number = u64::from_le_bytes(number);
                let sender = usize::from(datagram[8]);
                // A lower number is a late datagram or a duplicate, because a flow keeps its order
                // on one queue.
                wrong += u64::from(number < next[sender]);
                next[sender] = number + 1;
            }
            Ok(_) => wrong += 1,
            Err(_) if received == 0 && started.elapsed() < PATIENCE => {}
            Err(_) => break,
        }
    }
    println!("{}", json!({ "received": received, "wrong": wrong }));
    Ok(())
}
