//! Server with a listening socket and at most one client.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mqnet_sysio::descriptors::{REFUSED_MAX, refused_text};
use mqnet_sysio::listen::{Access, SocketFile};
use mqnet_sysio::rate::{self, Bucket};
use mqnet_sysio::socket::StreamSocket;

use crate::config::ConfigSpace;
use crate::connection::Connection;
use crate::requests::{Answer, Target};
use crate::{DeviceModel, DmaMap, Interrupts, MessageError, Model};

/// Maximum number of messages per poll; the next poll handles the others.
const MESSAGES_MAX: usize = 256;
/// Time limit for a device to finish a reset or to release unmapped memory.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Delay between attempts to listen.
const RETRY: Duration = Duration::from_secs(1);
/// Delay of further connections once the rate limit is reached.
const PAUSE: Duration = Duration::from_millis(10);

/// State of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// No client has negotiated the version, for this reason.
    Waiting(String),
    /// A client has negotiated the version. The number differs for every client.
    Connected(u64),
}

/// Server of one device.
pub struct VfioUserServer {
    path: PathBuf,
    access: Access,
    model: Model,
    config: ConfigSpace,
    dma: DmaMap,
    interrupts: Arc<Interrupts>,
    listener: Option<(StreamSocket, SocketFile)>,
    connection: Option<Connection>,
    number: u64,
    accepted: Bucket,
    retry_at: Duration,
    accept_at: Duration,
    why: String,
    pending_since: Option<Duration>,
    refused_fds: usize,
    last_refusal: Option<MessageError>,
    refusals: u64,
}

impl fmt::Debug for VfioUserServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("path", &self.path).field("why", &self.why).finish()
    }
}

impl VfioUserServer {
    /// Creates a server that listens at `path` from its first poll on.
    pub fn new(path: &Path, access: Access, model: Model) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            access,
            config: ConfigSpace::new(&model),
            interrupts: Interrupts::new(model.vectors)?,
            model,
            dma: DmaMap::default(),
            listener: None,
            connection: None,
            number: 0,
            accepted: Bucket::full(rate::connections()[0], Duration::ZERO),
            retry_at: Duration::ZERO,
            accept_at: Duration::ZERO,
            why: "waiting for a VMM".to_owned(),
            pending_since: None,
            refused_fds: 0,
            last_refusal: None,
            refusals: 0,
        })
    }

    /// Description of the function.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// DMA map of the client.
    pub fn dma(&self) -> &DmaMap {
        &self.dma
    }

    /// MSI-X vectors of the device.
    pub fn interrupts(&self) -> &Arc<Interrupts> {
        &self.interrupts
    }

    /// Reason of the last message that was answered with an error.
    pub fn last_refusal(&self) -> Option<&MessageError> {
        self.last_refusal.as_ref()
    }

    /// Number of messages that were answered with an error.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Descriptors that require a [`poll`](Self::poll) when they are readable.
    pub fn events(&self) -> Vec<BorrowedFd<'_>> {
        let listener = self.listener.iter().map(|(socket, _)| socket.as_fd());
        listener.chain(self.connection.iter().map(AsFd::as_fd)).collect()
    }

    /// True if a message waits for the device, so that [`poll`](Self::poll) must be called soon.
    pub fn is_pending(&self) -> bool {
        self.pending_since.is_some()
    }

    /// Accepts a client and handles its messages, without blocking. Returns the state of the
    /// connection.
    pub fn poll(&mut self, now: Duration, device: &mut dyn DeviceModel) -> Status {
        if let Err(why) = self.step(now, device) {
            self.disconnect(why, device);
        }
        match &self.connection {
            Some(connection) if connection.is_negotiated => Status::Connected(self.number),
            Some(_) => Status::Waiting("a VMM is connecting".to_owned()),
            None => Status::Waiting(self.why.clone()),
        }
    }

    /// Closes the connection and resets the device; QEMU does not reconnect.
    pub fn disconnect(&mut self, why: String, device: &mut dyn DeviceModel) {
        if let Some(connection) = self.connection.take() {
            self.refused_fds += connection.refused;
            // Ignore an unfinished device: no client waits for it any more.
            let _ = device.unmapped(0, u64::MAX);
            let _ = device.reset();
            self.dma.clear();
            self.interrupts.clear();
            self.config.reset();
            self.pending_since = None;
        }
        self.why = why;
    }

    fn step(&mut self, now: Duration, device: &mut dyn DeviceModel) -> Result<(), String> {
        if self.refused_fds > REFUSED_MAX {
            return Err(refused_text(self.refused_fds));
        }
        self.listen(now)?;
        // Detect a disconnected client before the next one is accepted.
        self.serve(now, device)?;
        if self.accept(now)? { self.serve(now, device) } else { Ok(()) }
    }

    fn listen(&mut self, now: Duration) -> Result<(), String> {
        if self.listener.is_some() || now < self.retry_at {
            return Ok(());
        }
        self.retry_at = now + RETRY;
        let served = StreamSocket::serve(&self.path, self.access).map_err(|e| e.to_string())?;
        self.listener = Some(served);
        self.why = "waiting for a VMM".to_owned();
        Ok(())
    }

    /// Accepts a connection. Returns true if the connection becomes the client; false without a
    /// connection, or if there is a client already.
    fn accept(&mut self, now: Duration) -> Result<bool, String> {
        let Some((listener, _)) = self.listener.as_ref().filter(|_| now >= self.accept_at) else {
            return Ok(false);
        };
        let accepted = match listener.accept() {
            Ok(accepted) => accepted,
            // Ignore a failed accept: the connected client is unaffected.
            Err(_) if self.connection.is_some() => return Ok(false),
            Err(e) => return Err(format!("{}: accept: {e}", self.path.display())),
        };
        let Some(socket) = accepted else { return Ok(false) };
        if !self.accepted.take(rate::connections(), now) {
            // Leave further connections in the backlog.
            self.accept_at = now + PAUSE;
        }
        // Close the connection of a second client.
        if self.connection.is_some() {
            return Ok(false);
        }
        self.number += 1;
        self.connection = Some(Connection::new(socket, now));
        Ok(true)
    }

    fn serve(&mut self, now: Duration, device: &mut dyn DeviceModel) -> Result<(), String> {
        for _ in 0..MESSAGES_MAX {
            let Some(connection) = &mut self.connection else { return Ok(()) };
            let next = match connection.pending.take() {
                Some(message) => Some(message),
                None => connection.next(now)?,
            };
            let Some(mut message) = next else { return Ok(()) };
            let waited = self.pending_since.map(|since| now.saturating_sub(since));
            let mut target = Target {
                model: &self.model,
                config: &mut self.config,
                dma: &mut self.dma,
                interrupts: &self.interrupts,
                device,
                may_wait: waited.is_none_or(|waited| waited < WAIT_MAX),
            };
            let answer = target.handle(&mut message, &mut connection.is_negotiated);
            let header = message.header;
            let (bytes, bar) = match answer {
                Ok(Answer::Wait) => {
                    self.pending_since.get_or_insert(now);
                    connection.pending = Some(message);
                    return Ok(());
                }
                Ok(Answer::Reply(body, bar)) => (header.reply(&body), bar),
                Err(refusal) => {
                    let errno = refusal.errno();
                    self.last_refusal = Some(refusal);
                    self.refusals += 1;
                    (header.error(errno), None)
                }
            };
            self.pending_since = None;
            if header.wants_reply() {
                let memory = bar.and_then(|bar| self.model.bars[bar].memory.as_ref());
                connection.send(&bytes, memory.and_then(|memory| memory.file()))?;
            }
        }
        Ok(())
    }
}
