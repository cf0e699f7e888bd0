//! ivshmem server of mqnet: one memory, a number for each peer, and the events with which peers
//! interrupt each other. A peer is a guest's QEMU, or mqnet on the host.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::file_lock::FileLock;
use mqnet_sysio::listen::{Access, SocketFile, lock_listener};
use mqnet_sysio::memory;
use mqnet_sysio::socket::StreamSocket;

use super::card::DOORBELLS;
use super::check_size;
use super::protocol::{MEMORY, VERSION};

/// Allowed number of vectors of a peer. A link has [`DOORBELLS`] doorbells and uses no more
/// vectors.
pub const VECTORS: std::ops::RangeInclusive<u16> = 0..=DOORBELLS as u16;

/// Largest number of pending messages of a peer; a peer with more is removed.
const BACKLOG: usize = 1 << 16;
/// Time after which a peer that does not read its pending messages is removed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Delay before the next attempt to send pending messages.
const AGAIN: Duration = Duration::from_millis(20);

/// Time without accepting peers after an accept has failed, usually for lack of descriptors.
const REST: Duration = Duration::from_secs(1);

/// Error number `ETOOMANYREFS`: more descriptors are in flight than a user may have. The peer is
/// kept, because the error is temporary and not specific to a peer.
const TOO_MANY_ON_THE_WAY: i32 = 109;

/// Configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Path of the Unix socket.
    pub path: PathBuf,
    /// Bytes of the shared memory.
    pub size: u64,
    /// Number of events of each peer.
    pub vectors: u16,
}

/// Message for a peer: a number and the descriptor sent with it.
#[derive(Clone, Debug)]
enum Parcel {
    Number(i64),
    Memory,
    Event(u16, Arc<EventFd>),
}

struct Peer {
    socket: StreamSocket,
    events: Vec<Arc<EventFd>>,
    waiting: VecDeque<Parcel>,
    /// Last time at which the socket accepted a message, or no message was pending.
    moved: Duration,
}

/// ivshmem server with its peers.
pub struct IvshmemServer {
    config: ServerConfig,
    memory: OwnedFd,
    listener: Listener,
    /// Time before which no peer is accepted, after an accept has failed; `None` otherwise.
    resting: Option<Duration>,
    /// Last reason for which a peer was refused; a further refusal for the same reason is not
    /// reported.
    refused: Option<String>,
    peers: BTreeMap<u16, Peer>,
}

/// Socket, its file, and the lock that excludes a second server. The lock file is not removed at
/// the end: after a removal two processes could lock two different files.
type Listener = (StreamSocket, SocketFile, FileLock);

fn listen(path: &Path, access: Access) -> Result<Listener, String> {
    let lock = lock_listener(path).map_err(|e| e.to_string())?;
    let lock = lock.ok_or_else(|| format!("another server listens at {}", path.display()))?;
    // The bind fails if the server of another program, which does not use the lock, listens at
    // the path.
    let (socket, file) = StreamSocket::serve(path, access).map_err(|e| e.to_string())?;
    Ok((socket, file, lock))
}

impl IvshmemServer {
    /// Creates the memory and listens.
    pub fn new(config: ServerConfig) -> Result<Self, String> {
        Self::new_as(config, Access::default())
    }

    /// Creates the memory and listens at a socket with the permissions `access`.
    pub fn new_as(config: ServerConfig, access: Access) -> Result<Self, String> {
        check_size(config.size)?;
        let listener = listen(&config.path, access)?;
        let failed = |e| format!("shared memory of {} bytes: {e}", config.size);
        let memory = memory::memory_file("ivshmem", config.size as usize, false).map_err(failed)?;
        memory::seal_size(memory.as_fd()).map_err(failed)?;
        let (resting, refused, peers) = (None, None, BTreeMap::new());
        Ok(Self { config, memory, listener, resting, refused, peers })
    }

    /// Descriptors that are ready when [`turn`](Self::turn) should be called.
    pub fn events(&self) -> Vec<BorrowedFd<'_>> {
        let peers = self.peers.values().map(|peer| peer.socket.as_fd());
        let listener = self.resting.is_none().then(|| self.listener.0.as_fd());
        listener.into_iter().chain(peers).collect()
    }

    /// Longest time to wait for the descriptors before [`turn`](Self::turn) is called.
    pub fn patience(&self) -> Duration {
        let any = self.peers.values().any(|peer| !peer.waiting.is_empty());
        match self.resting {
            _ if any => AGAIN,
            Some(_) => REST,
            None => Duration::from_secs(3600),
        }
    }

    /// Number of connected peers.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Accepts peers, removes those that have left, and sends pending messages. Returns a text
    /// for each event.
    pub fn turn(&mut self, now: Duration) -> Vec<String> {
        let mut said = Vec::new();
        if self.resting.is_some_and(|until| now >= until) {
            self.resting = None;
        }
        while self.resting.is_none() {
            match self.listener.0.accept() {
                Ok(Some(socket)) => match self.join(socket, now) {
                    Ok(id) => {
                        self.refused = None;
                        said.push(format!("peer {id} joined"));
                    }
                    Err(why) => {
                        said.extend(self.note_refusal(format!("a peer was refused: {why}")))
                    }
                },
                Ok(None) => break,
                Err(e) => {
                    let path = self.config.path.display();
                    let what = format!("{path}: accept: {e} (ulimit -n); retrying in a second");
                    said.extend(self.note_refusal(what));
                    // Do not poll the listener: the waiting peer would keep it ready.
                    self.resting = Some(now + REST);
                }
            }
        }
        let ids: Vec<u16> = self.peers.keys().copied().collect();
        for id in ids {
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            let alive = peer.is_there().and_then(|()| peer.send(&self.memory, now));
            if let Err(why) = alive {
                self.peers.remove(&id);
                self.notify_others(id, &[Parcel::Number(i64::from(id))]);
                said.push(format!("peer {id} left: {why}"));
            }
        }
        said
    }

    /// Text to print for a refusal; `None` if the last refusal had the same text.
    fn note_refusal(&mut self, what: String) -> Option<String> {
        let is_news = self.refused.as_ref() != Some(&what);
        is_news.then(|| self.refused.insert(what).clone())
    }

    fn notify_others(&mut self, id: u16, parcels: &[Parcel]) {
        for (_, other) in self.peers.iter_mut().filter(|(other, _)| **other != id) {
            other.waiting.extend(parcels.iter().cloned());
        }
    }

    fn join(&mut self, socket: StreamSocket, now: Duration) -> Result<u16, String> {
        let id = (0..=u16::MAX).find(|id| !self.peers.contains_key(id));
        let id = id.ok_or("at most 65536 peers are possible")?;
        let events = (0..self.config.vectors).map(|_| EventFd::new().map(Arc::new));
        let events = events.collect::<std::io::Result<Vec<_>>>();
        let events = events.map_err(|e| format!("events: {e} (ulimit -n)"))?;
        let ours: Vec<Parcel> = events.iter().map(|one| Parcel::Event(id, one.clone())).collect();
        self.notify_others(id, &ours);
        let mut waiting = VecDeque::from([
            Parcel::Number(VERSION),
            Parcel::Number(i64::from(id)),
            Parcel::Memory,
        ]);
        for (other, peer) in &self.peers {
            waiting.extend(peer.events.iter().map(|one| Parcel::Event(*other, one.clone())));
        }
        // The new peer's own events come last, after those of all other peers.
        waiting.extend(ours);
        self.peers.insert(id, Peer { socket, events, waiting, moved: now });
        Ok(id)
    }
}

impl Peer {
    /// Checks that the peer is connected; `Err` with the reason if not. Peers send nothing:
    /// received bytes are discarded.
    fn is_there(&self) -> Result<(), String> {
        let mut bytes = [0; 64];
        // Limit the reads: a peer that sends without end must not delay the other peers.
        for _ in 0..16 {
            match self.socket.receive_bytes(&mut bytes) {
                Ok(None) => break,
                Ok(Some(0)) => return Err("it disconnected".to_owned()),
                Ok(Some(_)) => {}
                Err(e) => return Err(e.to_string()),
            }
        }
        Ok(())
    }

    /// Sends pending messages until none is left or the socket is full; `Err` if the peer is gone
    /// or does not read.
    fn send(&mut self, memory: &OwnedFd, now: Duration) -> Result<(), String> {
        if self.waiting.is_empty() {
            self.moved = now;
        }
        while let Some(parcel) = self.waiting.front() {
            let (number, with) = match parcel {
                Parcel::Number(number) => (*number, None),
                Parcel::Memory => (MEMORY, Some(memory.as_fd())),
                Parcel::Event(id, event) => (i64::from(*id), Some(event.as_fd())),
            };
            match self.socket.send(&number.to_le_bytes(), with.as_slice()) {
                Ok(8) => self.moved = now,
                Ok(n) => return Err(format!("its socket took {n} bytes of 8")),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(e) if e.raw_os_error() == Some(TOO_MANY_ON_THE_WAY) => break,
                Err(e) => return Err(e.to_string()),
            }
            self.waiting.pop_front();
        }
        if self.waiting.len() > BACKLOG || now > self.moved + PATIENCE {
            return Err("it does not read its messages".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
