//! Traffic that is verified byte by byte: a TCP stream and UDP datagrams.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::host::Host;
use crate::numbered::meet;
use crate::socket::roomy;
use crate::wait::{DEADLINE, until};

/// Period of the pattern in bytes. A prime, so that a displaced piece is detected for every size of
/// ring and segment.
const PERIOD: usize = 1_000_003;

/// Bytes of one read or write of a stream.
const CHUNK: usize = 128 << 10;

/// Pseudo-random bytes, the same in every run.
pub fn pattern(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// One period plus one chunk, so that each piece is one slice.
fn stream_pattern() -> Vec<u8> {
    let mut bytes = pattern(PERIOD);
    bytes.extend_from_within(..CHUNK);
    bytes
}

/// TCP connection that sends continuously until [`Stream::finish`] is called.
pub struct Stream {
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    sockets: [TcpStream; 2],
    sender: Option<JoinHandle<Result<u64, String>>>,
    receiver: Option<JoinHandle<Result<u64, String>>>,
}

impl Stream {
    /// Connects host `from` to `address` (an IP address) of host `to`, and sends.
    #[track_caller]
    pub fn start(from: &Host, to: &Host, address: &str) -> Self {
        Self::start_paced(from, to, address, Duration::ZERO)
    }

    /// Starts a stream like [`Stream::start`], with `pause` after every 128 KiB.
    #[track_caller]
    pub fn start_paced(from: &Host, to: &Host, address: &str, pause: Duration) -> Self {
        let ip = address.parse().expect("an IP address");
        let listener = to.within(|| TcpListener::bind(SocketAddr::new(ip, 0)));
        let listener = listener.unwrap_or_else(|e| panic!("listening at {address}: {e}"));
        let meeting = listener.local_addr().expect("the address of a listener");
        let connect = || TcpStream::connect_timeout(&meeting, DEADLINE);
        let outbound = from.within(connect).unwrap_or_else(|e| panic!("connecting {meeting}: {e}"));
        let inbound = listener.accept().expect("a connection").0;
        let clone = |socket: &TcpStream| socket.try_clone().expect("a second handle of a socket");
        let sockets = [clone(&outbound), clone(&inbound)];
        let (received, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, halt) = (received.clone(), stop.clone());
        Self {
            received,
            stop,
            sockets,
            sender: Some(std::thread::spawn(move || send(outbound, pause, &halt))),
            receiver: Some(std::thread::spawn(move || receive(inbound, &count))),
        }
    }

    /// Bytes received and verified.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Waits until `bytes` more bytes are received.
    #[track_caller]
    pub fn wait_more(&self, bytes: u64) {
        let goal = self.received() + bytes;
        until("a TCP stream goes on", || {
            let ended = self.receiver.as_ref().is_some_and(JoinHandle::is_finished);
            assert!(!ended, "the TCP stream ended, or a byte of it is wrong");
            (self.received() >= goal).then_some(())
        });
    }

    /// Ends the stream and returns its bytes. Every sent byte must be received.
    #[track_caller]
    pub fn finish(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let sent = join(&mut self.sender).expect("sending");
        let received = join(&mut self.receiver).expect("receiving");
        assert_eq!(sent, received, "bytes sent and received");
        received
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for socket in &self.sockets {
            // Fails when the connection has already ended.
            let _ = socket.shutdown(Shutdown::Both);
        }
        for thread in [self.sender.take(), self.receiver.take()].into_iter().flatten() {
            let _ = thread.join();
        }
    }
}

#[track_caller]
fn join<T>(thread: &mut Option<JoinHandle<T>>) -> T {
    until("the end of a stream", || thread.as_ref()?.is_finished().then_some(()));
    thread.take().expect("a thread").join().expect("a thread that did not panic")
}

fn send(mut socket: TcpStream, pause: Duration, stop: &AtomicBool) -> Result<u64, String> {
    let (bytes, mut sent) = (stream_pattern(), 0u64);
    while !stop.load(Ordering::Relaxed) {
        let at = (sent % PERIOD as u64) as usize;
        socket.write_all(&bytes[at..at + CHUNK]).map_err(|e| format!("at byte {sent}: {e}"))?;
        sent += CHUNK as u64;
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    socket.shutdown(Shutdown::Write).map_err(|e| e.to_string())?;
    Ok(sent)
}

fn receive(mut socket: TcpStream, count: &AtomicU64) -> Result<u64, String> {
    let (bytes, mut buffer) = (stream_pattern(), vec![0; CHUNK]);
    let mut received = 0u64;
    loop {
        let n = match socket.read(&mut buffer) {
            Ok(0) => return Ok(received),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(format!("at byte {received}: {e}")),
        };
        let at = (received % PERIOD as u64) as usize;
        if buffer[..n] != bytes[at..at + n] {
            return Err(format!("a wrong byte in the {n} after byte {received}"));
        }
        received += n as u64;
        count.store(received, Ordering::Relaxed);
    }
}

/// UDP datagrams; each carries its number and the matching part of the pattern.
pub struct Datagrams {
    sent: Arc<AtomicU64>,
    right: Arc<AtomicU64>,
    wrong: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    deaf: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
    receiver: Option<JoinHandle<()>>,
}

impl Datagrams {
    /// Sends datagrams of `len` bytes from host `from` to `address` of host `to`, `pause` apart.
    #[track_caller]
    pub fn start(from: &Host, to: &Host, address: &str, len: usize, pause: Duration) -> Self {
        let ip = address.parse().expect("an IP address");
        let inbound = roomy(to, ip);
        let meeting = inbound.local_addr().expect("the address of a socket");
        let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let outbound = from.within(|| UdpSocket::bind(any)).expect("a UDP socket");
        outbound.connect(meeting).expect("a UDP destination");
        let counter = || Arc::new(AtomicU64::new(0));
        let (sent, right, wrong) = (counter(), counter(), counter());
        let (stop, deaf) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let sender = {
            let (sent, right, stop) = (sent.clone(), right.clone(), stop.clone());
            move || send_datagrams(&outbound, len, pause, &sent, &right, &stop)
        };
        let receiver = {
            let (right, wrong, deaf) = (right.clone(), wrong.clone(), deaf.clone());
            move || receive_datagrams(&inbound, len, &right, &wrong, &deaf)
        };
        let (sender, receiver) = (std::thread::spawn(sender), std::thread::spawn(receiver));
        Self { sent, right, wrong, stop, deaf, sender: Some(sender), receiver: Some(receiver) }
    }

    /// Number of datagrams sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Number of datagrams received unchanged so far.
    pub fn received(&self) -> u64 {
        self.right.load(Ordering::Relaxed)
    }

    /// Waits until `datagrams` more datagrams are received.
    #[track_caller]
    pub fn wait_more(&self, datagrams: u64) {
        let goal = self.received() + datagrams;
        until("datagrams come", || (self.received() >= goal).then_some(()));
    }

    /// Stops sending and waits until no more datagrams arrive. Returns how many were sent and
    /// received. A changed datagram fails the test.
    #[track_caller]
    pub fn finish(mut self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        join(&mut self.sender);
        let mut last = self.received();
        let mut quiet = 0;
        until("no datagrams come any more", || {
            let now = self.received();
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
            (now == self.sent() || quiet > 300).then_some(())
        });
        let wrong = self.wrong.load(Ordering::Relaxed);
        assert_eq!(wrong, 0, "datagrams came changed, or twice");
        (self.sent(), self.received())
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.deaf.store(true, Ordering::Relaxed);
        for thread in [self.sender.take(), self.receiver.take()].into_iter().flatten() {
            let _ = thread.join();
        }
    }
}

/// Maximum number of datagrams; the receiver keeps one entry for each.
const DATAGRAMS_MAX: usize = 1 << 22;

/// Payload of datagram `number`: the number, and the part of the pattern that it selects.
fn datagram(number: u64, len: usize, bytes: &[u8]) -> Vec<u8> {
    let at = (number % 251) as usize;
    let mut out = number.to_le_bytes().to_vec();
    out.extend_from_slice(&bytes[at..at + len - 8]);
    out
}

fn send_datagrams(
    socket: &UdpSocket,
    len: usize,
    pause: Duration,
    sent: &AtomicU64,
    received: &AtomicU64,
    stop: &AtomicBool,
) {
    let bytes = pattern(len + 256);
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) && (number as usize) < DATAGRAMS_MAX {
        // A full device queue rejects the datagram, which is then neither sent nor counted.
        if socket.send(&datagram(number, len, &bytes)).is_ok() {
            number += 1;
            sent.store(number, Ordering::Relaxed);
            if number == 1 {
                meet(received);
            }
        }
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
}

fn receive_datagrams(
    socket: &UdpSocket,
    len: usize,
    right: &AtomicU64,
    wrong: &AtomicU64,
    deaf: &AtomicBool,
) {
    let (bytes, mut buffer) = (pattern(len + 256), vec![0; 1 << 16]);
    let mut seen = vec![false; DATAGRAMS_MAX];
    while !deaf.load(Ordering::Relaxed) {
        let Ok(n) = socket.recv(&mut buffer) else { continue };
        let got = &buffer[..n];
        let number = got.first_chunk().map_or(u64::MAX, |n| u64::from_le_bytes(*n));
        let fresh =
            seen.get_mut(number as usize).is_some_and(|seen| !std::mem::replace(seen, true));
        let good = fresh && n == len && got == datagram(number, len, &bytes);
        let counter = if good { right } else { wrong };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: displaced parts of a stream are detected for all sizes of rings and segments, and
    // datagrams differ.
    #[test]
    fn the_pattern_has_no_short_period() {
        let bytes = stream_pattern();
        for shift in [1, 16, 64, 1448, 1500, 4096, 8948, 65_024, 65_536, 522_752] {
            assert_ne!(bytes[..1000], bytes[shift..shift + 1000], "{shift}");
        }
        assert_ne!(datagram(0, 100, &bytes), datagram(251, 100, &bytes));
    }
}
