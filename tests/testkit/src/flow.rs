//! Traffic that is verified byte by byte: a TCP stream and UDP datagrams.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use mqnet_traffic::{BLOCK, Pattern, SendOrder, Tracker};

use crate::host::Host;
use crate::numbered::meet;
use crate::socket::roomy;
use crate::wait::{DEADLINE, until};

/// Blocks between two pauses of a paced stream: 128 KiB in total.
const PACED_BLOCKS: u32 = 2;

/// Seeds of the patterns of streams, datagrams and files.
const SEEDS: [u64; 3] = [1, 2, 3];

/// Pseudo-random bytes, the same in every run.
pub fn pattern(len: usize) -> Vec<u8> {
    let (pattern, mut bytes) = (Pattern::new(SEEDS[2]), vec![0; len]);
    for (block, out) in bytes.chunks_mut(BLOCK).enumerate() {
        pattern.fill(block as u64, out);
    }
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
    /// Connects from host `from` to the IP address `address` of host `to`, and starts to send.
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
            sender: Some(std::thread::spawn(move || send(&outbound, pause, &halt))),
            receiver: Some(std::thread::spawn(move || receive(&inbound, &count))),
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

    /// Ends the stream and returns its number of bytes. Panics unless every sent byte was received.
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
            // The call fails if the connection has already ended.
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

fn send(socket: &TcpStream, pause: Duration, stop: &AtomicBool) -> Result<u64, String> {
    let mut blocks = 0;
    let sent = mqnet_traffic::send(socket, &Pattern::new(SEEDS[0]), || {
        if blocks == PACED_BLOCKS && !pause.is_zero() {
            std::thread::sleep(pause);
            blocks = 0;
        }
        blocks += 1;
        if stop.load(Ordering::Relaxed) { SendOrder::End } else { SendOrder::Send }
    });
    sent.error.map_or(Ok(sent.bytes), Err)
}

fn receive(socket: &TcpStream, count: &AtomicU64) -> Result<u64, String> {
    let got = mqnet_traffic::receive(socket, &Pattern::new(SEEDS[0]), |got| {
        count.store(got.verified, Ordering::Relaxed);
        if got.wrong_at.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let wrong = got.wrong_at.map(|at| format!("byte {at} is wrong"));
    got.error.or(wrong).map_or(Ok(got.verified), Err)
}

/// UDP datagrams. Each contains its number and the block of this number in a pattern.
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
    /// Sends datagrams of `len` bytes from host `from` to `address` of host `to`, with `pause`
    /// after each.
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

    /// Stops sending and waits until no more datagrams arrive. Returns the numbers of sent and
    /// received datagrams. Panics if a datagram was changed.
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

/// Bytes of a datagram's number.
const NUMBER: usize = 8;

fn send_datagrams(
    socket: &UdpSocket,
    len: usize,
    pause: Duration,
    sent: &AtomicU64,
    received: &AtomicU64,
    stop: &AtomicBool,
) {
    let (pattern, mut datagram) = (Pattern::new(SEEDS[1]), vec![0; len]);
    let mut number = 0u64;
    while !stop.load(Ordering::Relaxed) {
        datagram[..NUMBER].copy_from_slice(&number.to_le_bytes());
        pattern.fill(number, &mut datagram[NUMBER..]);
        // A full device queue rejects the datagram, which is then not counted as sent.
        if socket.send(&datagram).is_ok() {
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
    let (pattern, mut buffer) = (Pattern::new(SEEDS[1]), vec![0; 1 << 16]);
    let mut tracker = Tracker::default();
    while !deaf.load(Ordering::Relaxed) {
        let Ok(n) = socket.recv(&mut buffer) else { continue };
        let got = &buffer[..n];
        let number = got.first_chunk().map_or(u64::MAX, |n| u64::from_le_bytes(*n));
        let is_right = n == len && pattern.check(number, &got[NUMBER..]).is_none();
        tracker.note(number, n as u64, is_right);
        let tally = tracker.tally();
        right.store(tally.received, Ordering::Relaxed);
        wrong.store(tally.corrupt + tally.duplicated, Ordering::Relaxed);
    }
}
