//! A tunnel of plain UDP datagrams between two TUNs: `vpn NAME ADDRESS LOCAL REMOTE [QDISC [US]]`.
//!
//! US is a pause in microseconds before each datagram, which simulates a slow path. A line on stdin
//! ends the program, which then prints its counters.

use std::net::UdpSocket;
use std::time::Duration;

type Anything = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Anything> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |i: usize| words.get(i).map(String::as_str).unwrap_or_default();
    let (qdisc, pause) = (word(4), Duration::from_micros(word(5).parse().unwrap_or(0)));

    let tun = mqnet::Tun::builder(word(0)).address(word(1)).mtu(1400).qdisc(qdisc).open()?;
    let (mut rx, mut tx) = tun.queue(0)?;
    let socket = UdpSocket::bind(word(2))?;
    socket.connect(word(3))?;
    let incoming = socket.try_clone()?;
    std::thread::spawn(move || -> Result<(), Anything> {
        loop {
            let mut room = tx.room()?;
            // Errors such as a refused connection are ignored, because the peer may not have
            // started yet.
            let Ok(len @ 1..) = incoming.recv(&mut room) else { continue };
            room.send(len)?;
        }
    });
    std::thread::spawn(move || -> Result<(), Anything> {
        while let Some(packet) = rx.recv()? {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            let _ = socket.send(&packet);
        }
        Ok(())
    });

    println!("{} is up", tun.name());
    std::io::stdin().read_line(&mut String::new())?;
    for (name, way) in [("out", tun.stats().to_program), ("in", tun.stats().to_device)] {
        println!(
            "{name}: taken {} segments {} sent {} merged {} dropped {} waiting {} stops {}",
            way.taken,
            way.segments,
            way.sent,
            way.merged,
            way.dropped(),
            way.waiting,
            way.stops
        );
    }
    println!("outside: dropped {}", tun.stats().dropped_outside.unwrap_or(0));
    Ok(())
}
