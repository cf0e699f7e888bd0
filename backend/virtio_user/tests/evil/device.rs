//! Scripted vhost-user device, with its rings.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqnet_shmem::{Area, MemoryMap, Region, Span, Window};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const START: u64 = 1 << 32;

/// Features VERSION_1, MRG_RXBUF, CSUM, GUEST_CSUM and PROTOCOL_FEATURES.
pub(crate) const FEATURES: u64 = 1 << 32 | 1 << 15 | 3 | 1 << 30;
/// Protocol features MQ and REPLY_ACK.
pub(crate) const PROTOCOL: u64 = 1 | 8;

/// State that the driver's messages set.
#[derive(Default)]
pub(crate) struct DriverState {
    pub(crate) memory: Option<Arc<Region>>,
    /// Size and addresses of each vring.
    pub(crate) vrings: Vec<(u32, [u64; 3])>,
    pub(crate) enabled: Vec<bool>,
    pub(crate) features: u64,
}

/// Behaviour of the device.
#[derive(Clone, Copy)]
pub(crate) struct Behaviour {
    pub(crate) features: u64,
    pub(crate) pairs: u64,
    /// Request at which the device disconnects without a reply; 0 for none.
    pub(crate) disconnects_at: u32,
    /// True if the device stays connected without replies instead of disconnecting.
    pub(crate) stays_silent: bool,
}

pub(crate) const CORRECT: Behaviour =
    Behaviour { features: FEATURES, pairs: 2, disconnects_at: 0, stays_silent: false };

/// Correct device that returns buffers in order.
pub(crate) const IN_ORDER: Behaviour = Behaviour { features: FEATURES | 1 << 35, ..CORRECT };

pub(crate) struct Device {
    pub(crate) state: Arc<Mutex<DriverState>>,
    pub(crate) path: PathBuf,
    pub(crate) stream: Arc<Mutex<Option<UnixStream>>>,
}

pub(crate) fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) fn double(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Answers messages until the driver disconnects.
pub(crate) fn serve(mut stream: UnixStream, behaviour: Behaviour, state: &Mutex<DriverState>) {
    loop {
        let mut head = [0; 12];
        let Ok((12, file)) = stream.recv_with_fd(&mut head) else { return };
        let (request, flags) = (number(&head, 0), number(&head, 4));
        let mut body = vec![0; number(&head, 8) as usize];
        if stream.read_exact(&mut body).is_err() || request == behaviour.disconnects_at {
            return;
        }
        let answer = match request {
            1 => Some(behaviour.features),
            15 => Some(PROTOCOL),
            17 => Some(behaviour.pairs),
            _ => {
                note(&mut state.lock().unwrap(), request, &body, file.map(OwnedFd::from));
                (flags & 8 != 0).then_some(0)
            }
        };
        if let Some(value) = answer {
            let mut reply = Vec::from(request.to_le_bytes());
            reply.extend(5u32.to_le_bytes());
            reply.extend(8u32.to_le_bytes());
            reply.extend(value.to_le_bytes());
            if stream.write_all(&reply).is_err() {
                return;
            }
        }
    }
}

pub(crate) fn note(state: &mut DriverState, request: u32, body: &[u8], file: Option<OwnedFd>) {
    let vring = || number(body, 0) as usize;
    let grow = |state: &mut DriverState, to: usize| {
        state.vrings.resize(state.vrings.len().max(to + 1), (0, [0; 3]));
        state.enabled.resize(state.vrings.len(), false);
    };
    match request {
        2 => state.features = double(body, 0),
        5 => {
            let len = double(body, 16) as usize;
            state.memory = Some(Arc::new(Region::of_peer(file.unwrap(), len).unwrap()));
        }
        8 => {
            grow(state, vring());
            state.vrings[vring()].0 = number(body, 4);
        }
        9 => {
            // Order of the message: desc, used, avail.
            let [desc, used, avail] = [8, 16, 24].map(|at| double(body, at));
            grow(state, vring());
            state.vrings[vring()].1 = [desc, avail, used];
        }
        18 => {
            grow(state, vring());
            state.enabled[vring()] = number(body, 4) == 1;
        }
        _ => {}
    }
}

impl Device {
    pub(crate) fn start(name: &str, behaviour: Behaviour) -> Self {
        let path = std::env::temp_dir().join(format!("mqnet-evil-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let (state, stream) = (Arc::<Mutex<DriverState>>::default(), Arc::default());
        let (theirs, last): (_, Arc<Mutex<Option<UnixStream>>>) =
            (state.clone(), Arc::clone(&stream));
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(connection) = connection else { return };
                *last.lock().unwrap() = connection.try_clone().ok();
                let close = connection.try_clone().unwrap();
                serve(connection, behaviour, &theirs);
                if !behaviour.stays_silent {
                    let _ = close.shutdown(std::net::Shutdown::Both);
                }
            }
        });
        Self { state, path, stream }
    }

    pub(crate) fn hang_up(&self) {
        let stream = self.stream.lock().unwrap().take().unwrap();
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    }

    pub(crate) fn vring(&self, number: usize) -> Vring {
        let state = self.state.lock().unwrap();
        let region = state.memory.clone().unwrap();
        let (size, addresses) = state.vrings[number];
        let len = region.len() as u64;
        let map = MemoryMap::new(vec![Area { start: START, len, region, offset: 0 }]).unwrap();
        Vring { map, size, addresses, taken: 0, given: 0 }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Device side of a split ring with chains of one descriptor.
pub(crate) struct Vring {
    pub(crate) map: MemoryMap,
    pub(crate) size: u32,
    pub(crate) addresses: [u64; 3],
    pub(crate) taken: u16,
    pub(crate) given: u16,
}

impl Vring {
    pub(crate) fn table(&self, area: usize) -> mqnet_shmem::AtomicTable {
        let lens = [16 * self.size, 6 + 2 * self.size, 6 + 8 * self.size];
        self.map.table(self.addresses[area], lens[area], 2).unwrap()
    }

    /// Takes the next available buffer: id, address, length. `None` if there is no such buffer.
    pub(crate) fn take(&mut self) -> Option<(u16, u64, u32)> {
        let (avail, desc) = (self.table(1), self.table(0));
        if avail.half(2).load(Acquire) == self.taken {
            return None;
        }
        let id = avail.half(4 + 2 * (u32::from(self.taken) % self.size)).load(Relaxed);
        self.taken = self.taken.wrapping_add(1);
        let place = u32::from(id) * 16;
        Some((id, desc.double(place).load(Relaxed), desc.word(place + 8).load(Relaxed)))
    }

    pub(crate) fn give(&mut self, id: u32, len: u32) {
        let used = self.table(2);
        let place = 4 + 8 * (u32::from(self.given) % self.size);
        used.word(place).store(id, Relaxed);
        used.word(place + 4).store(len, Relaxed);
        self.given = self.given.wrapping_add(1);
        used.half(2).store(self.given, Release);
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        let region = &self.map.areas()[0].region;
        let mut memory = Window::new(region.clone(), 0, region.len() as u32);
        memory.write((at - START) as u32, bytes.len() as u32).head.copy_from(Span::of(bytes));
    }

    /// Writes `frame` after a header with this number of buffers into one buffer, and returns the
    /// buffer.
    pub(crate) fn send(&mut self, buffers: u16, header: [u8; 10], frame: &[u8]) {
        let (id, at, _) = self.take().expect("the driver gives buffers");
        let mut bytes = Vec::from(header);
        bytes.extend(buffers.to_le_bytes());
        bytes.extend(frame);
        self.write(at, &bytes);
        self.give(id.into(), bytes.len() as u32);
    }
}
