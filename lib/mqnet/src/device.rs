//! An open device.

use std::fmt;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use mqnet_control_api::{ApiError, Code, NetdevRequest, Outcome, Reply, Ticket};
use mqnet_engine::Link;
use mqnet_host::{HostedLink, verbs};
use mqnet_port::{Driver, Receiver, Sender, Stats, Steered};

/// Longest wait for a change, as at the control socket of the program.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(15);

/// The link of a device, with the changes that are under way.
pub(crate) struct Hosted {
    link: HostedLink,
    changes: Vec<(Ticket, mpsc::Sender<Result<Outcome, ApiError>>)>,
}

impl Hosted {
    pub(crate) fn new(link: HostedLink) -> Self {
        Self { link, changes: Vec::new() }
    }
}

impl Steered for Hosted {
    fn link(&mut self) -> &mut Link {
        &mut self.link.link
    }

    fn stepped(&mut self) {
        self.link.answer();
        self.changes.retain(|(ticket, waiter)| match ticket.result() {
            // A caller that gave up needs no outcome.
            Some(outcome) => {
                let _ = waiter.send(outcome);
                false
            }
            None => true,
        });
    }
}

/// A queue was asked for that there is not, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Taken {
    /// There are fewer queues.
    #[error("queue {queue}: the device has {queues} (queues)")]
    NoSuch {
        /// The number that was asked for.
        queue: u16,
        /// How many there are.
        queues: u16,
    },
    /// Somebody has it already. A `Sender` can be cloned; a `Receiver` is the only one.
    #[error("queue {0} was taken before")]
    Before(u16),
}

/// An open TUN, TAP or NIC. Dropped, it is closed: what waits for receivers is still received, then
/// they and the senders hear of it.
pub struct Device {
    name: String,
    queues: Mutex<Vec<Option<(Receiver, Sender)>>>,
    driver: Driver<Hosted>,
}

impl Device {
    pub(crate) fn new(name: String, ends: Vec<(Receiver, Sender)>, driver: Driver<Hosted>) -> Self {
        Self { name, queues: Mutex::new(ends.into_iter().map(Some).collect()), driver }
    }

    /// The kernel's name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of its largest packet.
    pub fn mtu(&self) -> u32 {
        self.driver.plan().mtu
    }

    /// How many queues it has.
    pub fn queues(&self) -> u16 {
        self.driver.plan().channels
    }

    /// Both ends of a queue, once.
    pub fn queue(&self, queue: u16) -> Result<(Receiver, Sender), Taken> {
        let mut all = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queues = all.len() as u16;
        let place = all.get_mut(usize::from(queue)).ok_or(Taken::NoSuch { queue, queues })?;
        place.take().ok_or(Taken::Before(queue))
    }

    /// Sends a request about the device to its link, such as
    /// [`NetdevRequest::SetFeatures`](mqnet_control_api::NetdevRequest::SetFeatures) or
    /// [`NetdevRequest::SetTc`](mqnet_control_api::NetdevRequest::SetTc). They are those of the
    /// program's control socket, with the same checks. Returns when a change is done, after 15 s at
    /// most.
    pub fn request(&self, request: NetdevRequest) -> Result<Reply, ApiError> {
        self.request_of(0, request)
    }

    /// The same about the program's end of the link. A qdisc there holds the packets on their way
    /// to the program.
    pub fn request_of_program(&self, request: NetdevRequest) -> Result<Reply, ApiError> {
        self.request_of(1, request)
    }

    fn request_of(&self, side: usize, request: NetdevRequest) -> Result<Reply, ApiError> {
        let closed = || ApiError::new(Code::Down, format!("{}: the device is closed", self.name));
        let (waiter, outcome) = mpsc::channel();
        let reply = self.driver.ask(move |hosted| {
            let reply = verbs::execute(&mut hosted.link, side, request);
            if let Ok(Reply::Change(ticket)) = &reply {
                hosted.changes.push((ticket.clone(), waiter));
            }
            reply
        });
        let reply = reply.ok_or_else(closed)??;
        if matches!(reply, Reply::Change(_)) {
            let done = outcome.recv_timeout(CHANGE_TIMEOUT).map_err(|e| match e {
                mpsc::RecvTimeoutError::Timeout => {
                    let limit = CHANGE_TIMEOUT.as_secs();
                    let why = format!("the change is still under way after {limit} s");
                    ApiError::new(Code::TimedOut, why)
                }
                mpsc::RecvTimeoutError::Disconnected => closed(),
            })?;
            return Ok(Reply::Change(Ticket::done(done?)));
        }
        Ok(reply)
    }

    /// What was moved so far: `taken + segments = sent + merged + drops + waiting`, in
    /// each direction.
    pub fn stats(&self) -> Stats {
        self.driver.stats()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name).finish_non_exhaustive()
    }
}
