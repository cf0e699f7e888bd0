//! Bus on the host: a client of an ivshmem server. Every QEMU process is such a client for its
//! guest.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mqnet_sysio::descriptors::{REFUSED_MAX, refused_text};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::memory;
use mqnet_sysio::socket::StreamSocket;

use super::protocol::Roster;
use super::wake::Via;
use super::{Attachment, Bus, check_size, half_of};

/// Delay between two attempts to connect to the server.
const RETRY: Duration = Duration::from_millis(250);
/// Longest delay between connections that end before the server has sent the memory.
const RETRY_LONGEST: Duration = Duration::from_secs(10);
/// Time without a message after which the events of this client count as complete: the server does
/// not send their number.
const QUIET: Duration = Duration::from_millis(20);
/// Time within which a server must send the memory.
const GREETING: Duration = Duration::from_secs(5);

/// Largest number of reads per poll: a server that sends without end must not block the control
/// thread.
const READS_MAX: usize = 8192;

struct Connection {
    socket: StreamSocket,
    roster: Roster<OwnedFd, Arc<EventFd>>,
    since: Duration,
    heard: Duration,
    attachment: Option<Attachment>,
    /// Number of descriptors that this connection refused and that stay open.
    refused: usize,
}

/// Client of an ivshmem server, with the path of its socket.
pub(super) struct Client {
    path: PathBuf,
    connection: Option<Connection>,
    /// Number of new or changed attachments so far.
    number: u64,
    retry_at: Duration,
    why: String,
    /// Number of descriptors that all connections so far refused and that stay open.
    refused_fds: usize,
    /// Delay after the last connection, if that connection ended before it provided the memory;
    /// `None` otherwise.
    refused: Option<Duration>,
}

impl Client {
    pub(super) fn new(path: PathBuf) -> Self {
        let why = "waiting for the ivshmem server".to_owned();
        Self {
            path,
            connection: None,
            number: 0,
            retry_at: Duration::ZERO,
            why,
            refused_fds: 0,
            refused: None,
        }
    }

    fn connect(&mut self, now: Duration) -> Result<(), String> {
        if self.connection.is_some() || now < self.retry_at {
            return Ok(());
        }
        self.retry_at = now + RETRY;
        let socket = StreamSocket::connect(&self.path).map_err(|e| {
            let path = self.path.display();
            format!("no ivshmem server at {path}: {e} (mqnet ivshmem-server {path})")
        })?;
        let roster = Roster::new();
        self.connection = Some(Connection {
            socket,
            roster,
            since: now,
            heard: now,
            attachment: None,
            refused: 0,
        });
        Ok(())
    }

    fn step(&mut self, now: Duration) -> Result<(), String> {
        if self.refused_fds > REFUSED_MAX {
            return Err(refused_text(self.refused_fds));
        }
        self.connect(now)?;
        let Some(connection) = &mut self.connection else { return Err(self.why.clone()) };
        let heard = connection.listen(now);
        self.refused_fds += std::mem::take(&mut connection.refused);
        heard?;
        if connection.attach(now)? {
            self.number += 1;
        }
        Ok(())
    }
}

impl Connection {
    /// Receives the pending messages, up to [`READS_MAX`] reads.
    fn listen(&mut self, now: Duration) -> Result<(), String> {
        let gone = |why: String| format!("the ivshmem server disconnected: {why}");
        for _ in 0..READS_MAX {
            let mut bytes = [0; 8];
            let room = &mut bytes[..self.roster.missing()];
            let Some(received) = self.socket.receive(room).map_err(|e| gone(e.to_string()))? else {
                return Ok(());
            };
            self.refused += received.refused.count();
            if self.refused > 0 {
                return Err("the ivshmem server sent a descriptor that is neither a memory file \
                            nor an eventfd"
                    .to_owned());
            }
            if received.truncated {
                return Err(
                    "descriptors of the ivshmem server were lost: raise the limit of open files \
                     (ulimit -n)"
                        .to_owned(),
                );
            }
            if received.len == 0 {
                return Err(gone("it closed the connection".to_owned()));
            }
            let event = |fd| EventFd::from_peer(fd).map(Arc::new);
            self.roster.take(&bytes[..received.len], received.fds, event)?;
            self.heard = now;
        }
        Ok(())
    }

    /// Maps the memory once no message has arrived for [`QUIET`], or updates the own vectors later.
    /// Returns true if the attachment is new or changed; `Err` ends the connection.
    fn attach(&mut self, now: Duration) -> Result<bool, String> {
        if let Some(attachment) = &mut self.attachment {
            let vectors = self.roster.own();
            let more = vectors.len() != attachment.vectors.len();
            if more {
                attachment.vectors = vectors.to_vec();
            }
            return Ok(more);
        }
        if self.roster.memory.is_none() {
            return match now > self.since + GREETING {
                true => {
                    let limit = GREETING.as_secs();
                    Err(format!("the ivshmem server did not send the memory within {limit} s"))
                }
                false => Ok(false),
            };
        }
        if now < self.heard + QUIET {
            return Ok(false);
        }
        let Some(file) = self.roster.memory.take() else { return Ok(false) };
        let size = memory::file_len(file.as_fd()).map_err(|e| format!("shared memory: {e}"))?;
        let half = check_size(size as u64)?;
        let copy = file.try_clone().map_err(|e| format!("shared memory: {e}"))?;
        self.attachment = Some(Attachment {
            halves: [half_of(copy, 0, half)?, half_of(file, 1, half)?],
            size: size as u64,
            id: self.roster.id.map(u32::from),
            vectors: self.roster.own().to_vec(),
        });
        Ok(true)
    }
}

impl Bus for Client {
    fn poll(&mut self, now: Duration) -> Result<(u64, &Attachment), String> {
        if let Err(why) = self.step(now) {
            if let Some(ended) = self.connection.take() {
                self.refused = ended
                    .attachment
                    .is_none()
                    .then(|| self.refused.map_or(RETRY, |delay| (delay * 2).min(RETRY_LONGEST)));
                self.retry_at = now + self.refused.unwrap_or(RETRY);
            }
            self.why.clone_from(&why);
            return Err(why);
        }
        let attachment = self.connection.as_ref().and_then(|c| c.attachment.as_ref());
        attachment.map(|found| (self.number, found)).ok_or_else(|| match self.refused {
            // Keep the reason of the last failure until a connection provides the memory.
            Some(_) => self.why.clone(),
            None => "waiting for the handshake of the ivshmem server".to_owned(),
        })
    }

    fn has(&self, id: u32) -> Option<bool> {
        self.connection.as_ref()?.roster.has(id)
    }

    fn via(&self, id: Option<u32>, vector: u32, of: u32) -> Result<Via, String> {
        if of == 0 {
            return Ok(Via::Nothing);
        }
        let Some(id) = id else {
            return Err("the peer requests interrupts but has no id at the device".to_owned());
        };
        let peers = self.connection.as_ref().map(|c| &c.roster.peers);
        let events = u16::try_from(id).ok().and_then(|id| peers?.get(&id));
        let have = events.map_or(0, Vec::len);
        let event = events.and_then(|events| events.get(vector as usize)).cloned();
        event.map(Via::Event).ok_or_else(|| {
            format!(
                "peer {id}: {of} vectors, {have} from the ivshmem server: set the same number of \
                 vectors at the server and the device"
            )
        })
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        self.connection.iter().map(|connection| connection.socket.as_fd()).collect()
    }
}
