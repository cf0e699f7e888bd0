//! Host side of a guest's traffic: iperf3 server, file transfers over TCP, numbered UDP datagrams.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use mqnet_testkit::{Host, until};

/// Server process; killed on drop.
pub(crate) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an iperf3 server, which serves one client after the other.
pub(crate) fn iperf_server(host: &Host) -> Server {
    let mut command = host.command(&["iperf3", "-s"]);
    Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("iperf3"))
}

/// Pseudo-random bytes.
pub(crate) fn file(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(i) >> 3) as u8).collect()
}

/// SHA-256 of the bytes, in the format of `sha256sum`.
pub(crate) fn sum(file: &[u8]) -> String {
    let mut command = Command::new("sha256sum");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sum");
    child.stdin.take().expect("a pipe").write_all(file).expect("a pipe");
    let output = child.wait_with_output().expect("sha256sum").stdout;
    String::from_utf8_lossy(&output).split_whitespace().next().expect("a sum").to_owned()
}

/// Serves the file to every client on port 7000 until the test ends, with a pause of `pause` after
/// each 64 KiB.
pub(crate) fn give_file(host: &Host, file: Vec<u8>, pause: Duration) {
    let listener = host.within(|| TcpListener::bind("0.0.0.0:7000")).expect("a port");
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            for part in file.chunks(1 << 16) {
                // The checksum of the receiver detects an aborted transfer.
                if client.write_all(part).is_err() {
                    break;
                }
                sleep(pause);
            }
            let _ = client.shutdown(Shutdown::Write);
            let _ = client.read(&mut [0]);
        }
    });
}

/// Receives one file on port 7001; the thread returns its checksum.
pub(crate) fn take_file(host: &Host) -> JoinHandle<String> {
    let listener = host.within(|| TcpListener::bind("0.0.0.0:7001")).expect("a port");
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let (mut client, _) = listener.accept().expect("a client");
        client.read_to_end(&mut bytes).expect("a file");
        sum(&bytes)
    })
}

/// Numbered datagrams from and to a guest. The guest sends to port 9001; datagrams to the guest go
/// to the source address of its datagrams.
pub(crate) struct Numbers {
    seen: Arc<Mutex<HashMap<u64, u32>>>,
    count: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Numbers {
    /// Starts the sender and the receiver, with `pause` between two sent datagrams.
    pub(crate) fn start(host: &Host, pause: Duration) -> Self {
        let socket = host.within(|| UdpSocket::bind("0.0.0.0:9001")).expect("a port");
        let back = socket.try_clone().expect("a socket");
        let numbers = Self { seen: Arc::default(), count: Arc::default(), over: Arc::default() };
        let (seen, count) = (numbers.seen.clone(), numbers.count.clone());
        let guest = Arc::<Mutex<Option<SocketAddr>>>::default();
        let found = guest.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 64];
            while let Ok((len, from)) = socket.recv_from(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..len]);
                let number = text.trim().parse().expect("a number in a datagram");
                *seen.lock().unwrap().entry(number).or_insert(0) += 1;
                count.fetch_add(1, Ordering::Relaxed);
                *found.lock().unwrap() = Some(from);
            }
        });
        let over = numbers.over.clone();
        std::thread::spawn(move || {
            let mut number = 0u64;
            while !over.load(Ordering::Relaxed) {
                if let Some(to) = *guest.lock().unwrap() {
                    // Errors are ignored: the guest is unreachable while its link is down.
                    let _ = back.send_to(format!("{number}\n").as_bytes(), to);
                    number += 1;
                }
                sleep(pause);
            }
        });
        numbers
    }

    /// Waits until `numbers` more datagrams have arrived.
    #[track_caller]
    pub(crate) fn more(&self, numbers: u64) {
        let from = self.count.load(Ordering::Relaxed);
        until("datagrams of the guest", || {
            (self.count.load(Ordering::Relaxed) >= from + numbers).then_some(())
        });
    }

    /// Number of distinct datagrams, and number of datagrams that were duplicated.
    pub(crate) fn tally(&self) -> (usize, usize) {
        let seen = self.seen.lock().unwrap();
        (seen.len(), seen.values().filter(|&&times| times > 1).count())
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Datagrams to a closed port of the guest, at a rate above the guest's capacity, until the flood
/// is dropped.
pub(crate) struct Flood {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    pub(crate) fn start(host: &Host) -> Self {
        let socket = host.within(|| UdpSocket::bind("0.0.0.0:0")).expect("a port");
        let over = Arc::<AtomicBool>::default();
        let ends = over.clone();
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    // Errors are ignored: the guest is unreachable half of the time.
                    let _ = socket.send_to(&[7; 1000], "10.9.0.2:9");
                }
                sleep(Duration::from_millis(2));
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
