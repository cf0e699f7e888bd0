//! Minimal vhost-user front end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use mqnet_sysio::memory::memory_file;
use mqnet_sysio::poll;
use mqnet_sysio::socket::StreamSocket;
use nix::sys::uio::{pread, pwrite};

const VERSION_1: u64 = 1 << 32;
const PROTOCOL_FEATURES: u64 = 1 << 30;
/// REPLY_ACK, INFLIGHT_SHMFD, CONFIGURE_MEM_SLOTS, LOG_SHMFD.
const PROTOCOL: u64 = 1 << 3 | 1 << 12 | 1 << 15 | 1 << 1;
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
const SIZE: u64 = 4 << 20;
const RING: u32 = 256;
/// Offsets of available ring and used ring from the descriptor table, and offset of the buffers in
/// the memory.
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x4000;
const BUFFERS: u64 = 1 << 20;

/// Message that carries an arbitrary descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    Memory,
    MoreMemory,
    Kick,
    Call,
    Error,
    Inflight,
    Log,
}

pub(crate) const DESCRIPTORS: [Descriptor; 7] = [
    Descriptor::Memory,
    Descriptor::MoreMemory,
    Descriptor::Kick,
    Descriptor::Call,
    Descriptor::Error,
    Descriptor::Inflight,
    Descriptor::Log,
];

pub(crate) struct Vmm {
    socket: StreamSocket,
    /// Memory and eventfds of the rings.
    kept: Vec<OwnedFd>,
}

fn words(all: &[u64]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn pair(one: u32, two: u32) -> Vec<u8> {
    [one.to_le_bytes(), two.to_le_bytes()].concat()
}

impl Vmm {
    /// Connects, with retries while the device has another client, and negotiates features.
    pub(crate) fn connect(path: &Path) -> Self {
        let begin = Instant::now();
        let socket = loop {
            match StreamSocket::connect(path) {
                Ok(socket) => break socket,
                Err(e) => assert!(begin.elapsed() < Duration::from_secs(30), "{e}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut vmm = Self { socket, kept: Vec::new() };
        vmm.request(1, &[], &[], 1);
        vmm.request(3, &[], &[], 0);
        vmm.request(2, &words(&[VERSION_1 | PROTOCOL_FEATURES]), &[], 0);
        vmm.request(16, &words(&[PROTOCOL]), &[], 0);
        vmm
    }

    /// Sends a request and waits a short time for each of its `answers`.
    fn request(&mut self, number: u32, body: &[u8], fds: &[BorrowedFd<'_>], answers: u32) {
        let head = [number, 1, body.len() as u32].map(u32::to_le_bytes).concat();
        // Sending may fail, because the daemon may refuse a message by closing the connection.
        let _ = self.socket.send(&[&head, body].concat(), fds);
        for _ in 0..answers {
            let _ = poll::wait_readable(&[self.socket.as_fd()], Duration::from_millis(100));
            let _ = self.socket.receive(&mut [0; 4096]);
        }
    }

    /// Shares memory of a sparse file of `len` bytes.
    pub(crate) fn share_memory(&mut self, len: u64) {
        let memory = memory_file("guest", len as usize, false).expect("a memory file");
        self.table(len, memory.as_fd());
        // The daemon serves messages in order: the reply to GET_FEATURES proves that the previous
        // message has been served.
        self.request(1, &[], &[], 1);
        self.kept.push(memory);
    }

    fn table(&mut self, len: u64, memory: BorrowedFd<'_>) {
        let body = [pair(1, 0), words(&[GUEST, len, USER, 0])].concat();
        self.request(5, &body, &[memory], 0);
    }

    /// Offers all buffers of the RX ring: descriptors, then the available ring.
    fn offer_buffers(&self) {
        let buffer = |i: u32| {
            let address = GUEST + BUFFERS + u64::from(i) * 4096;
            // 4096 bytes, device-writable.
            [address.to_le_bytes(), (4096_u64 | 2 << 32).to_le_bytes()].concat()
        };
        let descriptors: Vec<u8> = (0..RING).flat_map(buffer).collect();
        let available = [0, RING as u16]
            .into_iter()
            .chain(0..RING as u16)
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<u8>>();
        for (bytes, at) in [(descriptors, 0), (available, AVAILABLE)] {
            pwrite(&self.kept[0], &bytes, at as i64).expect("guest memory");
        }
    }

    /// Used index of the RX ring.
    pub(crate) fn received(&self) -> u16 {
        let mut index = [0; 2];
        pread(&self.kept[0], &mut index, USED as i64 + 2).expect("guest memory");
        u16::from_le_bytes(index)
    }

    /// Starts a queue pair with eventfds of `event` and with RX buffers.
    pub(crate) fn start_rings(&mut self, event: impl Fn() -> OwnedFd) {
        self.share_memory(SIZE);
        self.offer_buffers();
        for ring in [0_u32, 1] {
            let at = USER + u64::from(ring) * 0x8000;
            self.request(8, &pair(ring, RING), &[], 0);
            self.request(10, &pair(ring, 0), &[], 0);
            let areas = words(&[at, at + USED, at + AVAILABLE, 0]);
            self.request(9, &[pair(ring, 0), areas].concat(), &[], 0);
            for request in [13, 12] {
                let event = event();
                self.request(request, &words(&[ring.into()]), &[event.as_fd()], 0);
                self.kept.push(event);
            }
            self.request(18, &pair(ring, 1), &[], 0);
        }
        self.request(1, &[], &[], 1);
    }

    /// Sends `fd` in the message `what`, in place of memory or an eventfd.
    pub(crate) fn send_descriptor(&mut self, what: Descriptor, fd: BorrowedFd<'_>) {
        match what {
            Descriptor::Memory => self.table(SIZE, fd),
            Descriptor::MoreMemory => {
                self.request(37, &words(&[0, GUEST, SIZE, USER, 0]), &[fd], 0);
            }
            Descriptor::Kick => self.request(12, &words(&[0]), &[fd], 0),
            Descriptor::Call => self.request(13, &words(&[0]), &[fd], 0),
            Descriptor::Error => self.request(14, &words(&[0]), &[fd], 0),
            Descriptor::Inflight => {
                let queues = [2_u16, RING as u16].map(u16::to_le_bytes).concat();
                let body = [words(&[SIZE, 0]), queues, vec![0; 4]].concat();
                self.request(32, &body, &[fd], 0);
            }
            Descriptor::Log => self.request(6, &words(&[SIZE, 0]), &[fd], 0),
        }
    }
}
