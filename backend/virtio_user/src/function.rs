//! Network function over a virtio-user driver.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX, MTU_MAX};
use mqnet_netdev::{
    Caps, Channel, Function, LinkStatus, Offloads, OpenChannelsError, Plan, PrivateFlags,
    QueuePairStats, Rx, RxBuffers, RxMemory, Steering,
};
use mqnet_sysio::clock;
use mqnet_sysio::listen::{Kind, SocketFile, listen_at};
use mqnet_virtio::net::{rx_queue, tx_queue};
use mqnet_virtio::rxbuf::layout::{Cause, RequestedLayout};
use mqnet_wire::Layer;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::attempt::{Attempt, Outcome};
use crate::buffers::{RxBufferStats, SettingCell};
use crate::config::VirtioUserConfig;
use crate::fold::Fold;
use crate::memory::RX_RING;
use crate::session::{Persistent, Session};

/// Backlog of the listening socket.
const BACKLOG: u16 = 8;

/// Private flag: every RX buffer has its own page.
const FULL_PAGE: &str = "full-page-rx";
/// Private flag: each RX queue selects its layout by measurement.
const AUTO: &str = "rx-buf-layout-auto";

/// Delay after a failed handshake, in which users can read the reason.
const FAILED_DELAY: Duration = Duration::from_secs(2);
/// Delay after the loss of a device, because a device may disconnect after each handshake.
const LOST_DELAY: Duration = Duration::from_millis(100);

/// Network function over a virtio-net device that is reached by vhost-user.
pub struct VirtioUserFunction {
    address: String,
    config: VirtioUserConfig,
    /// Listening socket of a server, with its file.
    listener: Option<(UnixListener, SocketFile)>,
    partner: Option<Caps>,
    persistent: Persistent,
    session: Option<Session>,
    attempt: Option<Attempt>,
    /// Number of sessions so far, which identifies the current session.
    number: u64,
    why: String,
    /// Reason of the last failed handshake; `None` after a success.
    failed: Option<String>,
    /// Time before which no handshake is started.
    not_before: Duration,
    full_page: bool,
    auto: bool,
    /// True if an XDP program processes received frames.
    xdp: bool,
    /// Number of channels in use, and of a prepared channel change.
    channels: u16,
    prepared: Option<u16>,
    /// Offloads that the partner function accepts after the prepared change.
    next_taken: Offloads,
}

impl VirtioUserFunction {
    /// Creates the driver of the device at a socket. A server listens immediately, a client
    /// connects at its first poll.
    pub fn new(config: VirtioUserConfig) -> io::Result<Self> {
        let listener = if config.server { Some(listen(&config)?) } else { None };
        let most = usize::from(CHANNELS_MAX);
        let stats = (0..most).map(|_| Arc::default()).collect();
        let own = (0..most).map(|_| Arc::default()).collect();
        let (requested, layout) = (SettingCell::default(), config.rx_buf_layout);
        requested.set(layout, false);
        Ok(Self {
            address: format!("virtio-user:{}", config.path.display()),
            config,
            listener,
            partner: None,
            persistent: Persistent {
                stats,
                own,
                requested: Arc::new(requested),
                counts_rings: Arc::default(),
            },
            session: None,
            attempt: None,
            number: 0,
            why: "waiting for a device".to_owned(),
            failed: None,
            not_before: Duration::ZERO,
            full_page: layout == RequestedLayout::Full,
            auto: layout == RequestedLayout::Auto,
            xdp: false,
            channels: 0,
            prepared: None,
            next_taken: Offloads::NONE,
        })
    }

    /// Buffer statistics and layout of each RX queue.
    pub fn rx_buffers(&self) -> &[Arc<RxBufferStats>] {
        &self.persistent.own
    }

    fn error(&self, what: impl Into<String>) -> OpenChannelsError {
        OpenChannelsError { function: self.address.clone(), what: what.into() }
    }

    /// Makes or accepts a connection; `None` if no connection is pending.
    fn connection(&self) -> io::Result<Option<UnixStream>> {
        if let Some((listener, _)) = &self.listener {
            return match listener.accept() {
                Ok((stream, _)) => stream.set_nonblocking(false).map(|()| Some(stream)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(e) => Err(e),
            };
        }
        // Connect without blocking: a blocking connect waits for a listener with a full backlog.
        let socket = Socket::new(Domain::UNIX, Type::STREAM.cloexec().nonblocking(), None)?;
        socket.connect(&SockAddr::unix(&self.config.path)?)?;
        socket.set_nonblocking(false)?;
        Ok(Some(UnixStream::from(OwnedFd::from(socket))))
    }

    fn connect(&mut self, now: Duration) {
        let stream = match self.connection() {
            Ok(Some(stream)) => stream,
            Ok(None) => return,
            Err(e) => {
                self.why = format!("no device at {}: {e}", self.config.path.display());
                return;
            }
        };
        let takes = self.partner.as_ref().map_or(Offloads::NONE, |partner| partner.tx_offloads);
        // Request no more pairs than the other end of the link can use. DPDK's device touches all
        // memory of a pair before it replies, which takes seconds for many pairs.
        let most = self.partner.as_ref().map_or(CHANNELS_MAX, |partner| partner.channels.max(1));
        let queues = Some(self.config.queues.unwrap_or(most).min(most));
        let config = VirtioUserConfig { queues, ..self.config.clone() };
        match Attempt::begin(stream, config, takes, self.persistent.clone()) {
            Ok(attempt) => {
                self.attempt = Some(attempt);
                // Keep the reason of a failure until a handshake succeeds.
                let shaking = || "handshake with the device".to_owned();
                self.why = self.failed.clone().unwrap_or_else(shaking);
            }
            Err(why) => self.fail(&why, now),
        }
    }

    fn fail(&mut self, why: &str, now: Duration) {
        self.why = format!("the handshake with the device failed: {why}");
        self.failed = Some(self.why.clone());
        // If the reported number may be that of rings, try the corrected number after the short
        // delay.
        let again = self.persistent.counts_rings.load(Ordering::Relaxed);
        self.not_before = now + if again { LOST_DELAY } else { FAILED_DELAY };
    }

    /// Takes the result of the handshake, if there is one.
    fn finish(&mut self, now: Duration) {
        let Some(Outcome::Done(result)) = self.attempt.as_ref().map(Attempt::poll) else { return };
        if let Some(attempt) = self.attempt.take() {
            attempt.finish();
        }
        match *result {
            Ok(session) => {
                self.session = Some(session);
                self.failed = None;
                self.number += 1;
            }
            Err(why) => self.fail(&why, now),
        }
    }

    fn lose(&mut self, why: String) {
        self.session = None;
        (self.channels, self.prepared) = (0, None);
        self.why = why;
    }

    /// Enables or disables one vring of each pair in a range; `vring` returns the index of that
    /// vring.
    fn enable(
        &mut self,
        pairs: std::ops::Range<u16>,
        vring: fn(u16) -> u16,
        on: bool,
    ) -> Result<(), OpenChannelsError> {
        let Some(session) = &mut self.session else {
            return Err(self.error("the device disconnected"));
        };
        let done = session.enable(pairs.map(vring), on);
        done.map_err(|what| self.error(what))
    }

    /// Sets the number of pairs by command; false if each ring must be enabled separately.
    fn command_pairs(&mut self, channels: u16) -> Result<bool, OpenChannelsError> {
        let Some(session) = self.session.as_mut().filter(|session| session.commands_pairs()) else {
            return Ok(false);
        };
        let done = session.set_pairs(channels);
        done.map(|()| true).map_err(|what| self.error(what))
    }

    /// Sets the offloads that the partner function accepts, by command if the device has
    /// commands.
    fn command_taken(&mut self, taken: Offloads) -> Result<(), OpenChannelsError> {
        let done = self.session.as_mut().map_or(Ok(()), |session| session.set_taken(taken));
        done.map_err(|what| self.error(what))
    }

    /// Creates the channels of a plan, with filled receive rings. `Err` if the device is gone or
    /// has fewer pairs.
    fn channels_of(&self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let Some(session) = &self.session else {
            return Err(self.error("the device disconnected"));
        };
        let (most, every) = (session.agreed.pairs, usize::from(plan.channels.max(1)));
        if plan.channels > most {
            let wanted = plan.channels;
            return Err(self.error(format!("{wanted} channels: the device has {most}")));
        }
        let channel = |number: u16| {
            let pair = &session.pairs[usize::from(number)];
            pair.refill().map_err(|what| self.error(what))?;
            let mut channel = pair.channel(number, plan);
            let stats = &self.persistent.stats[usize::from(number)];
            let rings = session.pairs.iter().skip(usize::from(number)).step_by(every);
            let rings: Vec<_> =
                rings.map(|pair| pair.read_by(number, plan, stats.clone())).collect();
            if rings.len() > 1 {
                let fold = Fold::new(rings).map_err(|e| self.error(e.to_string()))?;
                channel.rx = Rx::Owning(Box::new(fold));
            }
            Ok(channel)
        };
        (0..plan.channels).map(channel).collect()
    }

    /// Number of pairs of the session, at least that of all enabled pairs; 0 without a session.
    fn most(&self) -> u16 {
        self.session.as_ref().map_or(0, |session| session.agreed.pairs)
    }

    fn requested(&self) -> RequestedLayout {
        RequestedLayout::of_flags(self.full_page, self.auto)
    }

    /// True if a queue lacked memory for the requested whole pages.
    fn is_rolled_back(&self) -> bool {
        let pairs = self.session.as_ref().map_or(0, |session| session.pairs.len());
        self.persistent.own.iter().take(pairs).any(|queue| {
            queue.reason().is_some_and(|layout| matches!(layout.cause, Cause::RolledBack { .. }))
        })
    }

    /// Refuses whole pages if a pool has fewer pages than a ring has buffers.
    fn check_full_page(&self) -> Result<(), OpenChannelsError> {
        let Some(session) = &self.session else { return Ok(()) };
        let (pages, ring) = (session.pool_pages, u32::from(RX_RING));
        if pages >= ring {
            return Ok(());
        }
        Err(self.error(format!(
            "{FULL_PAGE}: each RX queue has {pages} pages for its ring of {ring} buffers: give it \
             more memory"
        )))
    }

    fn rx_memory_of(&self, queue: usize) -> Option<RxMemory> {
        let (session, stats) = (self.session.as_ref()?, &self.persistent.own[queue]);
        let layout = stats.reason()?;
        let mut reason = layout.cause.to_string();
        if stats.applied.get() != u64::from(self.persistent.requested.get().number) {
            reason += "; the layout that is requested now applies to the next buffers";
        }
        Some(RxMemory {
            queue: queue as u16,
            mode: session.agreed.mode.name(),
            requested: self.requested().name(),
            full: layout.full,
            reason,
            forced: layout.cause.is_forced(),
            buffers: stats.counters.totals(),
            mapping: stats.mapping(),
            provided: self.config.rx_memory.is_some(),
            pool: stats.pool(),
        })
    }

    fn set_requested(&mut self) {
        self.persistent.requested.set(self.requested(), self.xdp);
    }
}

/// Offloads of received frames that the partner function accepts.
fn taken(plan: &Plan) -> Offloads {
    plan.rx_offloads.minus(plan.rx_emulation.offloads)
}

fn listen(config: &VirtioUserConfig) -> io::Result<(UnixListener, SocketFile)> {
    let (fd, file) = listen_at(&config.path, Kind::Stream, config.access, BACKLOG)?;
    Ok((fd.into(), file))
}

impl Function for VirtioUserFunction {
    fn name(&self) -> &str {
        &self.address
    }

    fn caps(&self) -> Caps {
        let agreed = self.session.as_ref().map(|session| &session.agreed);
        let most = self.config.queues.unwrap_or(CHANNELS_MAX);
        Caps {
            layer: Layer::Ethernet,
            channels: agreed.map_or(most, |a| a.pairs),
            wanted: None,
            mtu: self.config.mtu,
            mtu_found: None,
            mtu_max: agreed.map_or(MTU_MAX, |a| a.mtu_max),
            frame_max: FRAME_MAX,
            rx_offloads: agreed.map_or(Offloads::ALL, |a| a.features.taken_by_driver()),
            rx_fixed: agreed.map_or(Offloads::NONE, |a| a.features.taken_by_driver()),
            tx_offloads: agreed.map_or(Offloads::ALL, |a| a.features.sent_by_driver()),
        }
    }

    fn set_partner(&mut self, partner: &Caps) {
        self.partner = Some(partner.clone());
    }

    fn poll_link(&mut self, now: Duration) -> LinkStatus {
        if self.session.as_ref().is_some_and(|session| !session.is_alive()) {
            self.lose("the device disconnected".to_owned());
            self.not_before = now + LOST_DELAY;
        }
        if self.session.is_none() && self.attempt.is_none() && now >= self.not_before {
            self.connect(now);
        }
        self.finish(now);
        match &self.session {
            Some(_) => LinkStatus::Up { session: self.number },
            None => LinkStatus::Down(self.why.clone()),
        }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        let attempt = self.attempt.as_ref().map(Attempt::fd);
        let session = self.session.as_ref().map(Session::fd);
        let listener = self.listener.as_ref().map(|(listener, _)| listener.as_fd());
        session.or(attempt).or(listener).into_iter().collect()
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let channels = self.channels_of(plan)?;
        self.command_taken(taken(plan))?;
        let by_command = self.command_pairs(plan.channels)?;
        let enabled = if by_command { self.most() } else { plan.channels };
        self.enable(0..enabled, tx_queue, true)?;
        self.enable(0..enabled, rx_queue, true)?;
        (self.channels, self.prepared) = (plan.channels, None);
        Ok(channels)
    }

    fn close(&mut self, why: &str) {
        if self.session.as_ref().is_some_and(Session::is_broken) {
            // Delay the next attempt: an attempt with the same rings would fail in the same way.
            self.lose(why.to_owned());
            self.not_before = clock::monotonic() + FAILED_DELAY;
            return;
        }
        let all = 0..self.most();
        let stopped = self
            .enable(all.clone(), rx_queue, false)
            .and_then(|()| self.enable(all, tx_queue, false));
        if stopped.is_err() {
            self.lose(why.to_owned());
        }
        (self.channels, self.prepared) = (0, None);
    }

    fn prepare(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let fixed = self.caps().rx_fixed;
        let missing = fixed.minus(plan.rx_offloads);
        if missing != Offloads::NONE {
            return Err(self.error(format!(
                "offloads that the driver completes ({missing}) are negotiated when the device \
                 connects"
            )));
        }
        let channels = self.channels_of(plan)?;
        let old = self.channels;
        self.prepared = Some(plan.channels);
        self.next_taken = taken(plan);
        if let Err(e) = self.enable(old..plan.channels, tx_queue, true) {
            self.abort();
            return Err(e);
        }
        Ok(channels)
    }

    fn commit(&mut self) -> Result<(), OpenChannelsError> {
        let Some(channels) = self.prepared.take() else { return Ok(()) };
        let before = std::mem::replace(&mut self.channels, channels);
        self.command_taken(self.next_taken)?;
        if self.command_pairs(channels)? {
            return Ok(());
        }
        let retired = channels..before.max(channels);
        self.enable(retired.clone(), rx_queue, false)?;
        self.enable(retired, tx_queue, false)
    }

    fn abort(&mut self) {
        let Some(channels) = self.prepared.take() else { return };
        let new = self.channels..channels.max(self.channels);
        // Errors are ignored: the socket reports a lost device.
        if self.command_pairs(self.channels).unwrap_or(true) {
            return;
        }
        let _ = self.enable(new.clone(), rx_queue, false);
        let _ = self.enable(new, tx_queue, false);
        let _ = self.enable(0..self.channels, rx_queue, true);
    }

    fn full_means(&self) -> &'static str {
        "the ring is full: the device does not take frames"
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.persistent.stats
    }

    mqnet_netdev::facets!(steering, private_flags, rx_buffers);
}

impl Steering for VirtioUserFunction {
    fn steers(&self) -> bool {
        // False: the device selects queues, among those that are enabled.
        false
    }

    fn waiting_most(&mut self) -> u32 {
        u32::from(RX_RING) + 1
    }

    fn steer(&mut self, channels: u16) -> Result<(), OpenChannelsError> {
        if self.command_pairs(channels)? {
            return Ok(());
        }
        let most = self.channels.max(self.prepared.unwrap_or(0)).max(channels);
        self.enable(0..channels, rx_queue, true)?;
        self.enable(channels..most, rx_queue, false)
    }
}

impl PrivateFlags for VirtioUserFunction {
    fn flags(&self) -> Vec<(&'static str, bool)> {
        vec![(FULL_PAGE, self.full_page && !self.is_rolled_back()), (AUTO, self.auto)]
    }

    fn set_flag(&mut self, flag: &str, on: bool) -> Result<(), OpenChannelsError> {
        match flag {
            FULL_PAGE => {
                if on {
                    self.check_full_page()?;
                }
                self.full_page = on;
            }
            AUTO => self.auto = on,
            _ => return Err(self.error(format!("has no flag '{flag}'"))),
        }
        self.set_requested();
        Ok(())
    }
}

impl RxBuffers for VirtioUserFunction {
    fn rx_memory(&self) -> Vec<RxMemory> {
        let pairs = self.session.as_ref().map_or(0, |session| session.pairs.len());
        (0..pairs).filter_map(|queue| self.rx_memory_of(queue)).collect()
    }

    fn set_xdp(&mut self, attached: bool) {
        self.xdp = attached;
        self.set_requested();
    }
}
