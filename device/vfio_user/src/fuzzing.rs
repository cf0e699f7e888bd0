//! Target for fuzzing and property tests: a client sends any messages. The server must not panic,
//! return memory that is not mapped, or send a malformed reply.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mqnet_shmem::Region;
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::listen::Access;
use mqnet_sysio::memory::memory_file;
use mqnet_sysio::socket::StreamSocket;

use crate::protocol::{HEADER, Header, command};
use crate::{Bar, DeviceModel, DmaSegment, Identity, Model, MsixLocation, Status, VfioUserServer};

/// Maximum number of steps of one input.
const STEPS: usize = 60;
const PAGE: u64 = 4096;

/// Reader of a fuzzer's input that returns zeros after its end.
#[derive(Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// Reads the next byte.
    pub fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Reads a number that is often at or next to a boundary.
    pub fn edge(&mut self) -> u64 {
        let choice = self.u8();
        let near = match choice >> 4 {
            0..8 => u64::from(choice >> 4) * PAGE,
            8 => 1 << 16,
            9 => 1 << 20,
            10 => 1 << 32,
            11 => 1 << 40,
            12 => u64::MAX,
            13 => u64::from(self.u8()),
            14 => u64::from(self.u8()) * PAGE,
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.u8())),
        };
        // Return the exact boundary in most cases.
        match choice & 0xf {
            1 => near.wrapping_add(1),
            2 => near.wrapping_sub(1),
            _ => near,
        }
    }
}

/// Returns a socket path that no other run uses.
pub fn socket_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("mqnet-vfu-fuzz-{}-{number}", std::process::id()))
}

/// A client that reads and checks all replies.
#[derive(Debug)]
pub struct FuzzClient {
    socket: StreamSocket,
    received: Vec<u8>,
    /// Descriptors received with replies.
    pub fds: Vec<OwnedFd>,
    next_id: u16,
}

impl FuzzClient {
    /// Connects to a listening server.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = StreamSocket::connect(path)?;
        Ok(Self { socket, received: Vec::new(), fds: Vec::new(), next_id: 0 })
    }

    /// Sends a message; ignores a closed connection.
    pub fn send(&mut self, command: u16, flags: u32, body: &[u8], fds: &[BorrowedFd<'_>]) {
        self.next_id = self.next_id.wrapping_add(1);
        let mut bytes = self.next_id.to_le_bytes().to_vec();
        bytes.extend(command.to_le_bytes());
        bytes.extend(((HEADER + body.len()) as u32).to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        self.send_raw(&bytes, fds);
    }

    /// Sends bytes that need not form a message.
    pub fn send_raw(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let _ = self.socket.send(bytes, fds);
    }

    /// Reads the replies received so far. Panics at a malformed reply.
    pub fn read(&mut self) {
        let mut room = vec![0; 1 << 17];
        while let Ok(Some(received)) = self.socket.receive_here(&mut room) {
            if received.len == 0 {
                break;
            }
            self.received.extend(&room[..received.len]);
            self.fds.extend(received.fds);
        }
        while let Some(header) = self.received.first_chunk::<HEADER>() {
            let header = Header::decode(header);
            let size = header.size as usize;
            assert!(size >= HEADER, "a reply of {size} bytes");
            if self.received.len() < size {
                break;
            }
            let is_error = header.flags == 0x21;
            assert!(is_error || header.flags == 1, "flags {:#x}", header.flags);
            assert!(!is_error || size == HEADER, "an error with {size} bytes");
            self.received.drain(..size);
        }
    }
}

/// A device that keeps guest memory for some polls after the request to release it.
#[derive(Default)]
struct User {
    held: Vec<DmaSegment>,
    busy: u8,
}

impl User {
    fn is_done(&mut self) -> bool {
        if self.busy > 0 {
            self.busy -= 1;
            return false;
        }
        self.held.clear();
        true
    }
}

impl DeviceModel for User {
    fn read(&mut self, _bar: usize, _offset: u64, data: &mut [u8]) {
        data.fill(0xa5);
    }

    fn write(&mut self, _bar: usize, _offset: u64, _data: &[u8]) {}

    fn reset(&mut self) -> bool {
        self.is_done()
    }

    fn unmapped(&mut self, _iova: u64, _len: u64) -> bool {
        self.is_done()
    }
}

fn model() -> Option<Model> {
    let memory = || Region::shared("fuzz", 2 * PAGE as usize, false).ok().map(Arc::new);
    let mut bars: [Bar; 6] = std::array::from_fn(|_| Bar::default());
    bars[0] = Bar {
        len: 2 * PAGE,
        memory: memory(),
        mapped: std::iter::once(0..PAGE).collect(),
        is_prefetchable: false,
    };
    bars[2] = Bar::mapped(memory()?, 2 * PAGE);
    bars[5] = Bar::trapped(PAGE);
    Some(Model {
        identity: Identity { vendor: 0x1912, device: 0x0030, class: 0x05_0000, revision: 3 },
        bars,
        vectors: 8,
        msix: MsixLocation { bar: 0, table: 0x1000, pending: 0x1800 },
    })
}

fn fields(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|field| field.to_le_bytes()).collect()
}

/// Creates the body of a message that is close to a valid one.
fn body(number: u16, input: &mut Bytes<'_>) -> Vec<u8> {
    let mut bytes = match number {
        command::VERSION => vec![0, 0, input.u8() / 64, input.u8() / 250],
        command::DMA_MAP | command::DMA_UNMAP => {
            let mut bytes = fields(&[32, u32::from(input.u8() % 4)]);
            let count = if number == command::DMA_MAP { 3 } else { 2 };
            (0..count).for_each(|_| bytes.extend(input.edge().to_le_bytes()));
            bytes
        }
        command::REGION_READ | command::REGION_WRITE => {
            let mut bytes = input.edge().to_le_bytes().to_vec();
            let count = u32::from(input.u8() % 72);
            bytes.extend(fields(&[u32::from(input.u8() % 10), count]));
            if number == command::REGION_WRITE {
                bytes.extend((0..count).map(|_| input.u8()));
            }
            bytes
        }
        command::SET_IRQS => {
            let flags = 1 << (input.u8() % 3) | 8 << (input.u8() % 3);
            let [index, start, count] = [input.u8() % 6, input.u8() % 10, input.u8() % 10];
            let mut bytes = fields(&[20, flags, index.into(), start.into(), count.into()]);
            bytes.extend((0..input.u8() % 12).map(|n| n & 1));
            bytes
        }
        _ => fields(&[u32::from(input.u8()), 0, u32::from(input.u8() % 12), 0, 0, 0, 0, 0]),
    };
    match input.u8() {
        0 => bytes.truncate(bytes.len() / 2),
        1 => bytes.extend([0; 8]),
        choice @ 2..20 if !bytes.is_empty() => {
            let at = usize::from(choice) % bytes.len();
            bytes[at] ^= input.u8();
        }
        _ => {}
    }
    bytes
}

/// Interprets bytes as the messages of a client.
///
/// Panics if a reply is malformed, memory segments differ from the requested range, or ranges stay
/// mapped without a client.
pub fn messages(data: &[u8]) {
    // Ignore failures to create sockets or memory, without which nothing can be tested.
    let _ = run(data);
}

fn run(data: &[u8]) -> Option<()> {
    let mut input = Bytes(data);
    let path = socket_path();
    let mut server = VfioUserServer::new(&path, Access::default(), model()?).ok()?;
    let mut device = User::default();
    let mut now = Duration::from_secs(1);
    server.poll(now, &mut device);
    let mut client = FuzzClient::connect(&path).ok()?;
    if input.u8() < 0xc0 {
        client.send(command::VERSION, 0, &[0; 4], &[]);
    }
    let memory = memory_file("fuzz", 8 * PAGE as usize, false).ok()?;
    for _ in 0..STEPS {
        let step = input.u8();
        match step {
            0..4 => {
                let bytes: Vec<u8> = (0..input.u8() % 40).map(|_| input.u8()).collect();
                client.send_raw(&bytes, &[]);
            }
            4..12 => client = FuzzClient::connect(&path).ok()?,
            12..32 => device.busy = step % 4,
            32..56 => {
                let (at, len) = (input.edge(), input.edge());
                check_segments(&server, &mut device, at, len);
            }
            _ => send(&mut client, &mut input, step, &memory)?,
        }
        now += Duration::from_millis(match input.u8() {
            0 => 2100,
            other => u64::from(other % 8),
        });
        let status = server.poll(now, &mut device);
        client.read();
        if let Status::Waiting(why) = status {
            assert!(!why.is_empty() && !why.contains(char::is_control));
            let is_new = why == "a VMM is connecting";
            assert!(is_new || server.dma().ranges() == 0, "{why}");
        }
        if input.0.is_empty() {
            break;
        }
    }
    Some(())
}

fn check_segments(server: &VfioUserServer, device: &mut User, at: u64, len: u64) {
    let Ok(segments) = server.dma().segments(at, len) else { return };
    let all: usize = segments.iter().map(|segment| segment.len).sum();
    assert_eq!(all as u64, len);
    for segment in &segments {
        assert!(segment.offset + segment.len <= segment.region.len());
    }
    device.held = segments;
}

fn send(client: &mut FuzzClient, input: &mut Bytes<'_>, step: u8, memory: &OwnedFd) -> Option<()> {
    let number = u16::from(step % 16);
    let body = body(number, input);
    let mut fds: Vec<OwnedFd> = Vec::new();
    let wanted = match number {
        command::DMA_MAP => 1,
        command::SET_IRQS => input.u8() % 10,
        _ => u8::from(step > 240),
    };
    for _ in 0..wanted {
        fds.push(match (number, input.u8() % 16) {
            (command::DMA_MAP, 1) | (command::SET_IRQS, 2..) => {
                EventFd::new().ok()?.try_clone().ok()?
            }
            _ => memory.try_clone().ok()?,
        });
    }
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let flags = match input.u8() {
        0 => u32::from(input.u8()),
        1..16 => 0x10,
        _ => 0,
    };
    client.send(number, flags, &body, &fds);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule: no messages of a client make the server panic, return memory that is not mapped, or
    // send a malformed reply.
    #[test]
    fn messages_survive_anything() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..300 {
            let data: Vec<u8> = (0..1500)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 32) as u8
                })
                .collect();
            messages(&data);
        }
    }
}
