//! Bridge between two processes on one host. Each end owns a window (a sealed memory file) and
//! doorbells (eventfds: one for the link, one per queue pair). The ends exchange the descriptors
//! over a Unix socket.
//!
//! Both ends have the same path. An end that finds no listener there listens. The kernel releases
//! the lock file of a process that ends, so a socket with a free lock is stale and is removed. When
//! the listener ends, the connecting end finds no listener and listens itself.

mod hello;

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mqnet_shmem::Region;
use mqnet_sysio::descriptors::{REFUSED_MAX, refused_text};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::file_lock::FileLock;
use mqnet_sysio::listen::{Access, SocketFile, lock_listener};
use mqnet_sysio::rate::{self, Bucket};
use mqnet_sysio::socket::{Received, SeqSocket};

use super::{Doorbell, Hw, HwLink, MemoryWindows};
use crate::layout::PADS;
use hello::{HELLO, Hello};

/// Offset of the window in the memory file. The scratchpads precede the window, one 64-bit word
/// each.
const WINDOW_AT: usize = 4096;

/// Time within which a connected peer must send its hello message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// Delay before the next attempt to connect, to listen, or to accept beyond the rate limit.
const RETRY: Duration = Duration::from_millis(10);

/// Delay after the first connection that fails before the peer's hello message was accepted. Each
/// further failure doubles the delay.
const REFUSED: Duration = Duration::from_millis(100);
/// Longest delay after a connection that fails before a valid hello message.
const REFUSED_LONGEST: Duration = Duration::from_secs(10);

const _: () = assert!(PADS * 8 <= WINDOW_AT);

/// State of one connection.
#[derive(Debug)]
struct Port {
    socket: SeqSocket,
    ours: Arc<Region>,
    our_bells: Vec<Arc<EventFd>>,
    peer: Option<Peer>,
    deadline: Duration,
    /// Number of descriptors of the peer that this end refused and that stay open.
    refused: usize,
}

/// Memory and doorbells received from the peer.
#[derive(Debug)]
struct Peer {
    window: Arc<Region>,
    window_len: u32,
    bells: Vec<Arc<EventFd>>,
}

/// Provider of a bridge between two processes.
#[derive(Debug)]
pub struct Memfd {
    path: PathBuf,
    window: u32,
    bells: usize,
    access: Access,
    /// Socket, its file, and the lock, while this end listens.
    listener: Option<(SeqSocket, SocketFile, FileLock)>,
    port: Option<Port>,
    session: u64,
    second: bool,
    retry_at: Duration,
    resting: bool,
    why_down: String,
    /// True if `why_down` is an error of `find_peer`, which no peer caused.
    has_failed: bool,
    accepted: Bucket,
    /// Number of descriptors that former connections refused and that stay open.
    refused_fds: usize,
    /// Delay after the last connection, if that failed before a valid hello message; then
    /// `why_down` is kept until a connection succeeds. `None` otherwise.
    refused: Option<Duration>,
}

impl Memfd {
    /// Port at `path` with a window of `window` bytes and doorbells for `queue_pairs` queue
    /// pairs.
    pub fn new(path: &Path, window: u32, queue_pairs: u16) -> Self {
        Self {
            path: path.to_owned(),
            window,
            bells: 1 + usize::from(queue_pairs),
            access: Access::default(),
            listener: None,
            port: None,
            session: 0,
            second: false,
            retry_at: Duration::ZERO,
            resting: false,
            why_down: "waiting for a peer".to_owned(),
            has_failed: false,
            accepted: Bucket::full(rate::connections()[0], Duration::ZERO),
            refused_fds: 0,
            refused: None,
        }
    }

    /// Sets the permissions of the socket, used if this end listens.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    fn down(&mut self, why: impl Into<String>) -> HwLink {
        self.why_down = why.into();
        HwLink::Down(self.why_down.clone())
    }

    /// Doubles the delay after a failed connection. A listener accepts without this delay: the next
    /// connection may be from the right peer.
    fn note_refusal(&mut self, now: Duration) {
        let delay = self.refused.map_or(REFUSED, |delay| (delay * 2).min(REFUSED_LONGEST));
        self.refused = Some(delay);
        if self.listener.is_none() {
            self.retry_at = now + delay;
        }
    }

    /// Tries once to accept a peer, or to connect, or to listen. `None` if no peer is connected
    /// yet.
    fn find_peer(&mut self, now: Duration) -> Result<Option<SeqSocket>, String> {
        self.resting = now < self.retry_at;
        if self.resting {
            return Ok(None);
        }
        if let Some((listener, ..)) = &self.listener {
            let accepted = listener.accept();
            if accepted.as_ref().is_ok_and(Option::is_some)
                && !self.accepted.take(rate::connections(), now)
            {
                // The rate limit is reached: leave further connections in the backlog.
                self.retry_at = now + RETRY;
            }
            self.resting = accepted.is_err();
            return accepted.map_err(|e| format!("{}: accept: {e}", self.path.display()));
        }
        self.retry_at = now + RETRY;
        match SeqSocket::connect(&self.path) {
            Ok(socket) => {
                self.second = true;
                return Ok(Some(socket));
            }
            Err(e) => match e.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {}
                ErrorKind::WouldBlock => return Ok(None),
                _ => return Err(format!("cannot connect to {}: {e}", self.path.display())),
            },
        }
        self.listen()?;
        Ok(None)
    }

    fn listen(&mut self) -> Result<(), String> {
        let Some(lock) = lock_listener(&self.path).map_err(|e| e.to_string())? else {
            return Ok(()); // Another process is about to listen: connect next time.
        };
        let (socket, file) =
            SeqSocket::serve(&self.path, self.access).map_err(|e| e.to_string())?;
        self.second = false;
        if std::mem::take(&mut self.has_failed) {
            "waiting for a peer".clone_into(&mut self.why_down);
        }
        self.listener = Some((socket, file, lock));
        if self.refused.take().is_some() {
            // The end that refused the last connection no longer listens.
            self.why_down = "waiting for a peer".to_owned();
        }
        Ok(())
    }

    /// Creates the memory and the doorbells of a new connection and sends the hello message. New
    /// memory keeps a former peer, which may still write, out of this session.
    fn introduce(&self, socket: SeqSocket, now: Duration) -> Result<Port, String> {
        let ours = Region::shared("mqnet-ntb", WINDOW_AT + self.window as usize, false)
            .map_err(|e| format!("window: {e}"))?;
        ours.prefer_huge_pages();
        let mut our_bells = Vec::with_capacity(self.bells);
        for _ in 0..self.bells {
            our_bells.push(Arc::new(EventFd::new().map_err(|e| format!("doorbell: {e}"))?));
        }
        let hello = Hello { window: self.window, doorbells: self.bells as u32 };
        let mut fds: Vec<BorrowedFd<'_>> = ours.file().into_iter().collect();
        fds.extend(our_bells.iter().map(|bell| bell.as_fd()));
        socket.send(&hello.encode(), &fds).map_err(|e| refusal(&socket, &e))?;
        let deadline = now + HELLO_TIMEOUT;
        Ok(Port { socket, ours: Arc::new(ours), our_bells, peer: None, deadline, refused: 0 })
    }

    fn turn_away_third(&self) {
        if let Some((listener, ..)) = &self.listener
            && let Ok(Some(third)) = listener.accept()
        {
            let _ = third.send(&hello::busy(), &[]);
            // Read the third process's hello before the close: a close with unread bytes resets the
            // connection, and the message would be lost.
            let _ = third.receive_bytes(&mut [0; HELLO + 1]);
        }
    }
}

/// Receives a message; `None` if there is none. The kernel reports a reset before messages sent
/// earlier, so a reset is followed by a second read.
fn receive(socket: &SeqSocket, bytes: &mut [u8]) -> std::io::Result<Option<Received>> {
    match socket.receive(bytes) {
        Err(e) if e.kind() == ErrorKind::ConnectionReset => socket.receive(bytes),
        received => received,
    }
}

/// Reason why the hello message could not be sent: the peer's own message if it sent a refusal,
/// otherwise `error`.
fn refusal(socket: &SeqSocket, error: &std::io::Error) -> String {
    let mut bytes = [0u8; HELLO + 1];
    let mut told = socket.receive_bytes(&mut bytes);
    if told.as_ref().is_err_and(|e| e.kind() == ErrorKind::ConnectionReset) {
        told = socket.receive_bytes(&mut bytes);
    }
    let told = told.ok().flatten().filter(|&len| len > 0);
    let why = told.and_then(|len| Hello::decode(&bytes[..len.min(HELLO + 1)]).err());
    why.unwrap_or_else(|| format!("peer: {error}"))
}

impl Port {
    /// Receives the peer's hello message, if it has arrived. `Err` if the peer is gone, or its
    /// message is invalid, late or a second one.
    fn receive_message(&mut self, now: Duration) -> Result<(), String> {
        let mut bytes = [0u8; HELLO + 1];
        let message = match receive(&self.socket, &mut bytes) {
            Ok(None) if self.peer.is_none() && now > self.deadline => {
                return Err("the peer connected and sent no handshake within 2 s".to_owned());
            }
            Ok(None) => return Ok(()),
            Ok(Some(message)) => message,
            Err(e) => return Err(format!("the peer disconnected: {e}")),
        };
        self.refused += message.refused.count();
        if message.len == 0 {
            return Err("the other end was closed".to_owned());
        }
        if self.peer.is_some() {
            return Err("the peer sent its handshake twice".to_owned());
        }
        let hello = Hello::decode(&bytes[..message.len.min(bytes.len())])?;
        let want = 1 + hello.doorbells as usize;
        if self.refused > 0 {
            return Err("the peer sent a descriptor that is neither a memory file nor an eventfd"
                .to_owned());
        }
        if message.truncated || message.fds.len() != want {
            let got = message.fds.len();
            return Err(format!("the peer sent {got} descriptors, but {want} were announced"));
        }
        let mut fds = message.fds.into_iter();
        let file = fds.next().ok_or("the peer sent no memory")?;
        let window =
            Region::of_peer(file, WINDOW_AT + hello.window as usize).map_err(|e| e.to_string())?;
        let bells = fds.map(|fd| EventFd::from_peer(fd).map(Arc::new));
        let bells = bells.collect::<Option<Vec<_>>>().ok_or("a doorbell that is not an eventfd")?;
        self.peer = Some(Peer { window: Arc::new(window), window_len: hello.window, bells });
        Ok(())
    }
}

impl Hw for Memfd {
    fn poll_link(&mut self, now: Duration) -> HwLink {
        if self.refused_fds > REFUSED_MAX {
            self.listener = None;
            return self.down(refused_text(self.refused_fds));
        }
        if self.port.is_none() {
            match self.find_peer(now) {
                Ok(None) => {}
                Ok(Some(socket)) => match self.introduce(socket, now) {
                    Ok(port) => self.port = Some(port),
                    Err(why) => {
                        self.note_refusal(now);
                        return self.down(why);
                    }
                },
                Err(why) => {
                    self.has_failed = true;
                    return self.down(why);
                }
            }
        }
        let Some(port) = &mut self.port else { return HwLink::Down(self.why_down.clone()) };
        // Drain the event before the scratchpads are read: a write after the drain signals the
        // event again.
        port.our_bells[0].drain();
        let had_peer = port.peer.is_some();
        if let Err(why) = port.receive_message(now) {
            self.refused_fds += port.refused;
            self.port = None;
            if !had_peer {
                self.note_refusal(now);
            }
            return self.down(why);
        }
        let introduced = port.peer.is_some();
        // The port has a connection, so a further one is that of a third process.
        self.turn_away_third();
        if !introduced {
            return HwLink::Down(match self.refused {
                Some(_) => self.why_down.clone(),
                None => "waiting for the peer's handshake".to_owned(),
            });
        }
        self.refused = None;
        if !had_peer {
            self.session += 1;
        }
        HwLink::Up(self.session)
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = Vec::new();
        // Do not poll the listener during a delay: a pending connection would keep its socket
        // ready.
        if let Some((listener, ..)) = self.listener.as_ref().filter(|_| !self.resting) {
            fds.push(listener.as_fd());
        }
        if let Some(port) = &self.port {
            fds.push(port.socket.as_fd());
            fds.push(port.our_bells[0].as_fd());
        }
        fds
    }

    fn windows(&self) -> Option<MemoryWindows> {
        let port = self.port.as_ref()?;
        let peer = port.peer.as_ref()?;
        Some(MemoryWindows {
            inbound: port.ours.clone(),
            inbound_len: self.window,
            outbound: peer.window.clone(),
            outbound_len: peer.window_len,
            offset: WINDOW_AT,
        })
    }

    fn spad_read(&self, pad: usize) -> u32 {
        let Some(port) = &self.port else { return 0 };
        // Pairs with the Release store in peer_spad_write: scratchpads written earlier are visible.
        u64::from_le(port.ours.word(pad * 8).load(Ordering::Acquire)) as u32
    }

    fn peer_spad_write(&self, pad: usize, value: u32) {
        let peer = self.port.as_ref().and_then(|port| port.peer.as_ref());
        if let Some(peer) = peer {
            // Pairs with the Acquire load in spad_read: scratchpads written earlier are visible.
            peer.window.word(pad * 8).store(u64::from(value).to_le(), Ordering::Release);
        }
    }

    fn peer_doorbell(&self, bit: usize) -> Option<Arc<dyn Doorbell>> {
        let bell = self.port.as_ref()?.peer.as_ref()?.bells.get(bit)?;
        Some(bell.clone())
    }

    fn doorbell_event(&self, bit: usize) -> Option<Arc<EventFd>> {
        self.port.as_ref()?.our_bells.get(bit).cloned()
    }

    fn reset(&mut self, now: Duration, retry_after: Duration) {
        self.port = None;
        self.resting = true;
        self.retry_at = now + retry_after;
    }

    fn window_len(&self) -> u32 {
        self.window
    }

    fn is_second(&self) -> bool {
        self.second
    }
}

/// Decodes a peer's hello message, for fuzzing; `Err` if the message is invalid.
pub(crate) fn check_hello(bytes: &[u8]) -> Result<(), String> {
    Hello::decode(bytes).map(drop)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    // Rule: a path in a missing folder is refused; the reason names the folder and the remedy, as
    // for all endpoints with sockets.
    #[test]
    fn missing_folder_is_named() {
        let mut port = Memfd::new(Path::new("/nonexistent/x.sock"), 1 << 20, 1);
        let why = "/nonexistent/x.sock: no folder /nonexistent: create it, or choose another path";
        match port.poll_link(Duration::from_secs(1)) {
            HwLink::Down(text) => assert_eq!(text, why),
            HwLink::Up(_) => panic!("no peer is there"),
        }
    }

    // Rule: a third end reports the same reason at every attempt and limits its attempts. After one
    // of the two ends leaves, the third end connects.
    #[test]
    fn third_end_backs_off() {
        let path = std::env::temp_dir().join(format!("mqnet-third-{}", std::process::id()));
        let port = || Memfd::new(&path, 1 << 20, 1);
        let (mut first, mut second, mut third) = (port(), port(), port());
        let mut now = Duration::from_secs(1);
        let mut step = || {
            now += Duration::from_millis(5);
            now
        };
        loop {
            let states = [first.poll_link(step()), second.poll_link(step())];
            if states.iter().all(|state| matches!(state, HwLink::Up(_))) {
                break;
            }
        }
        let (mut reasons, mut attempts, mut last) = (BTreeSet::new(), 0, Duration::ZERO);
        for _ in 0..500 {
            if let HwLink::Down(why) = third.poll_link(step()) {
                reasons.insert(why);
            }
            attempts += u32::from(third.retry_at != last);
            last = third.retry_at;
            assert!(matches!(first.poll_link(step()), HwLink::Up(_)));
        }
        reasons.retain(|why| !why.contains("the peer's handshake") && !why.contains("waiting"));
        assert_eq!(
            reasons.into_iter().collect::<Vec<_>>(),
            ["both ends of this bridge are in use: use another path"]
        );
        assert!((2..=14).contains(&attempts), "{attempts}");
        drop(second);
        for _ in 0..5000 {
            let states = [first.poll_link(step()), third.poll_link(step())];
            if states.iter().all(|state| matches!(state, HwLink::Up(_))) {
                return;
            }
        }
        panic!("the third end was never let in: {:?}", third.poll_link(step()));
    }
}
