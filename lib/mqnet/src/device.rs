//! An open device.

use std::fmt;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use mqnet_control_api::{
    ApiError, Code, NetdevRequest, Outcome, Reply, SetChannels, SetMtu, Ticket,
};
use mqnet_engine::Link;
use mqnet_host::{HostedLink, verbs};
use mqnet_netdev::limits::{MTU_MAX, MTU_MIN};
use mqnet_port::{LinkDriver, Receiver, Sender, Stats, Steered};

/// Longest wait for a change, as at the control socket.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(15);

/// Side of the program's port in the link.
const PROGRAM_SIDE: usize = 1;

/// Link of a device, and the changes in progress.
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
            // `send` fails only if the caller has stopped waiting after its timeout.
            Some(outcome) => {
                let _ = waiter.send(outcome);
                false
            }
            None => true,
        });
    }
}

/// Reason why a queue is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Taken {
    /// The device was opened with fewer queues.
    #[error("queue {queue}: the device has {queues} (queues)")]
    NoSuch {
        /// Number of the requested queue, from 0.
        queue: u16,
        /// Number of queues.
        queues: u16,
    },
    /// The queue was taken before. A `Sender` can be cloned; there is only one `Receiver`.
    #[error("queue {0} was taken before")]
    Before(u16),
}

/// An open TUN, TAP or NIC. All methods may be called from any thread while the queues carry
/// traffic.
///
/// Dropping the device closes it, also during a change. Packets in the receivers' queues can still
/// be received; then receivers and senders report the end.
pub struct Device {
    name: String,
    queues: Mutex<Vec<Option<(Receiver, Sender)>>>,
    /// Number of queues at the start.
    queues_max: u16,
    driver: LinkDriver<Hosted>,
}

impl Device {
    pub(crate) fn new(
        name: String,
        ends: Vec<(Receiver, Sender)>,
        driver: LinkDriver<Hosted>,
    ) -> Self {
        let queues_max = ends.len() as u16;
        let queues = Mutex::new(ends.into_iter().map(Some).collect());
        Self { name, queues, queues_max, driver }
    }

    /// Name of the device in the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// MTU in force, in bytes: the largest IP packet. Frames of a TAP or NIC are up to 22 bytes
    /// longer, for the Ethernet header with two VLAN tags.
    pub fn mtu(&self) -> u32 {
        self.driver.plan().mtu
    }

    /// Number of queues with which the device was opened: the largest number that can be in use.
    pub fn queues(&self) -> u16 {
        self.queues_max
    }

    /// Number of queues in use, 1 to [`queues`](Self::queues): queues 0 to `channels() - 1`.
    pub fn channels(&self) -> u16 {
        self.driver.plan().channels
    }

    /// Receiver and sender of a queue. Each queue can be taken once, also while it is not in use.
    pub fn queue(&self, queue: u16) -> Result<(Receiver, Sender), Taken> {
        let mut all = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queues = self.queues_max;
        let ends = all.get_mut(usize::from(queue)).ok_or(Taken::NoSuch { queue, queues })?;
        ends.take().ok_or(Taken::Before(queue))
    }

    /// Sets the number of queues in use, 1 to [`queues`](Self::queues), while traffic continues
    /// (`ethtool -L`). Queues 0 to `channels - 1` are in use afterwards. No packet is lost or
    /// duplicated.
    ///
    /// On a queue that is not in use, packets that arrived before can still be received. Then
    /// [`Receiver::recv`] waits until the queue is in use again, and every send returns
    /// [`Error::NotInUse`](crate::Error::NotInUse). The kernel moves the flows of such a queue to
    /// other queues. To keep the order of these flows, receive from the retired queue first.
    ///
    /// Returns when the change is done. The change waits until packets for the program fit into its
    /// queues, so the receiving thread should not call this method under load.
    ///
    /// # Errors
    ///
    /// [`Code::Invalid`] if `channels` is out of range, [`Code::Changing`] while another change is
    /// in progress, [`Code::TimedOut`] if the program does not receive for 10 s, [`Code::Failed`]
    /// if the kernel refuses, [`Code::Down`] if the device is closed. After an error the device
    /// continues with its previous queues.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tun = mqnet::Tun::builder("vpn0").queues(4).open()?;
    /// tun.set_channels(1)?;
    /// assert_eq!((tun.channels(), tun.queues()), (1, 4));
    /// tun.set_channels(4)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_channels(&self, channels: u16) -> Result<(), ApiError> {
        self.request(NetdevRequest::SetChannels(SetChannels { combined: channels })).map(drop)
    }

    /// Sets the MTU in bytes, of the device and of its queues, while traffic continues
    /// (`ip link set mtu`): 68 to the value of [`Builder::mtu_max`](crate::Builder::mtu_max), which
    /// is the MTU at the start by default. [`Sender::max`] follows. A packet that became too long
    /// at the moment of the change is dropped, and counted as `too-long`.
    ///
    /// # Errors
    /// [`Code::Range`] with the allowed range, otherwise as [`set_channels`](Self::set_channels).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tun = mqnet::Tun::builder("vpn0").mtu(1400).mtu_max(9000).open()?;
    /// tun.set_mtu(8900)?;
    /// assert_eq!(tun.mtu(), 8900);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_mtu(&self, mtu: u32) -> Result<(), ApiError> {
        self.request(NetdevRequest::SetMtu(SetMtu { mtu })).map(drop)
    }

    /// Sends a request about the device to its link, such as
    /// [`NetdevRequest::SetFeatures`](mqnet_control_api::NetdevRequest::SetFeatures) or
    /// [`NetdevRequest::SetTc`](mqnet_control_api::NetdevRequest::SetTc). Requests, checks and
    /// errors are those of the control socket; an MTU above the builder's `mtu_max` is refused as
    /// well. Returns when a change is done, after 15 s at most.
    pub fn request(&self, request: NetdevRequest) -> Result<Reply, ApiError> {
        self.request_of(0, request)
    }

    /// Sends a request about the program's end of the link. A qdisc at this end holds packets for
    /// the program. Channels and MTU are those of the device. The rings have the `depth` of the
    /// builder and cannot be changed.
    pub fn request_of_program(&self, request: NetdevRequest) -> Result<Reply, ApiError> {
        self.request_of(PROGRAM_SIDE, request)
    }

    fn request_of(&self, side: usize, request: NetdevRequest) -> Result<Reply, ApiError> {
        let closed = || ApiError::new(Code::Down, format!("{}: the device is closed", self.name));
        let (waiter, outcome) = mpsc::channel();
        check_rings(side, &request)?;
        let reply = self.driver.call(move |hosted| {
            check_mtu(&mut hosted.link.link, &request)?;
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

    /// Counters since the start. In each direction, `taken + segments = sent + merged + drops +
    /// waiting`.
    pub fn stats(&self) -> Stats {
        self.driver.stats()
    }
}

/// Refuses requests about the rings of the program's end; their size is fixed.
fn check_rings(side: usize, request: &NetdevRequest) -> Result<(), ApiError> {
    let is_of_rings = matches!(request, NetdevRequest::Rings | NetdevRequest::SetRings(_));
    if side == PROGRAM_SIDE && is_of_rings {
        let why = "rings: fixed while the device is open: set depth when it is opened";
        return Err(ApiError::new(Code::NotSupported, why));
    }
    Ok(())
}

/// Refuses an MTU below 68 or above the limit of either function; the error states the range.
fn check_mtu(link: &mut Link, request: &NetdevRequest) -> Result<(), ApiError> {
    let NetdevRequest::SetMtu(SetMtu { mtu }) = request else { return Ok(()) };
    let most = link.functions().map(|function| function.caps().mtu_max);
    let most = most.into_iter().min().unwrap_or(MTU_MAX).min(MTU_MAX);
    if (MTU_MIN..=most).contains(mtu) {
        return Ok(());
    }
    let why = format!(
        "mtu: {mtu}: {MTU_MIN} to {most} are possible; set mtu_max when the device is opened"
    );
    Err(ApiError { field: Some("mtu".to_owned()), ..ApiError::new(Code::Range, why) })
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name).finish_non_exhaustive()
    }
}
