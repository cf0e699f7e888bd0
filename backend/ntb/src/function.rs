//! Network function of the bridge: handshake with the peer, and opening and closing of queue
//! pairs.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX, MTU_MAX};
use mqnet_netdev::{
    Caps, Channel, FullCause, Function, GroupMembership, HardwareDevice, LinkStatus, Offloads,
    OpenChannelsError, Peer, Placement, Plan, QueuePairStats, RequestedRings, Steering,
};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::listen::Access;
use mqnet_wire::Layer;

use crate::hw::ivshmem::{IvshmemConfig, IvshmemProvider};
use crate::hw::memfd::Memfd;
use crate::hw::{Hw, HwLink};
use crate::layout::{PADS, Phase, VERSION_MAX, VERSION_MIN, pad};
use crate::link::{self, Agreement, Happening, Offer, OfferError, State};
use crate::mailbox::{self, ControlMessage};
use crate::mix;
use crate::session;
use crate::transport::{self, Status, Transport};

mod kernel;
mod peer;

/// Time limit for each of the states `Offered` and `Accepted`; after it, the handshake fails.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in the state `Refused`, in which the user can read the reason, and the delay before the
/// next handshake. Also the first delay after a protocol violation by a kernel's `ntb_transport`.
const REFUSED_REST: Duration = Duration::from_secs(1);
/// Longest delay after repeated protocol violations by a kernel's `ntb_transport`.
const VIOLATION_REST_MAX: Duration = Duration::from_secs(16);
/// Time without a violation, counted from the end of the last delay, after which the next delay is
/// `REFUSED_REST` again.
const VIOLATION_FORGOTTEN: Duration = Duration::from_secs(60);
/// Delay before the next session after a fault of the link, or after this end closes the link.
const FAULT_REST: Duration = Duration::from_millis(100);

/// Configuration of a bridge between two processes.
#[derive(Clone, Debug)]
pub struct NtbConfig {
    /// Path of the Unix socket.
    pub path: PathBuf,
    /// Bytes of this end's window.
    pub window: u32,
    /// Requested MTU; `None` for no request.
    pub mtu: Option<u32>,
}

/// A bridge with one peer.
pub struct NtbFunction {
    name: String,
    hw: Box<dyn Hw>,
    mtu: Option<u32>,
    partner: Option<Caps>,
    /// Reason why the partner function carries no traffic; `None` while it does.
    partner_down: Option<String>,
    rings: RequestedRings,
    /// Membership in a group, which then decides on channel changes; `None` outside a group.
    membership: Option<GroupMembership>,
    stats: Vec<Arc<QueuePairStats>>,
    state: State,
    session: u64,
    since: Duration,
    /// Offer of this end; set from the start of a handshake until the link is dropped.
    our_offer: Option<Offer>,
    /// Offer of the peer; set when this end accepts the offer. Every control message of the peer
    /// updates its capabilities and ring sizes.
    their_offer: Option<Offer>,
    agreement: Option<Agreement>,
    /// Agreement of a channel change that is prepared and neither committed nor aborted.
    prepared: Option<Agreement>,
    /// Last control message of this end; `sent_messages` is the number of messages sent.
    ours: ControlMessage,
    sent_messages: u64,
    /// Last control message of the peer; `their_mark` is its number.
    theirs: ControlMessage,
    their_mark: u64,
    why_down: String,
    /// True if the last handshake ended with a refusal, or the last session with a protocol
    /// violation. `why_down` then keeps that reason until the next handshake.
    was_refused: bool,
    seed: u64,
    now: Duration,
    /// Bytes of a slot if the peer is a kernel's `ntb_transport`.
    transport_mtu: u32,
    /// Link with an `ntb_transport`; `None` if the peer is mqnet or absent.
    transport: Option<Transport>,
    /// Event with which `transport` wakes the control thread; created before the first handshake.
    control: Option<Arc<EventFd>>,
    /// Last delay after a violation by a kernel's `ntb_transport`, and the end of that delay;
    /// `None` before the first violation.
    violation_rest: Option<(Duration, Duration)>,
}

impl NtbFunction {
    /// Bridge between two processes that connect through a Unix socket. `seed` is a random number,
    /// different in each process; the generations of handshakes are derived from it.
    pub fn memfd(config: &NtbConfig, seed: u64) -> Self {
        Self::memfd_as(config, Access::default(), seed)
    }

    /// Bridge between two processes, like [`memfd`](Self::memfd). `access` has the permissions of
    /// the socket, used if this end listens.
    pub fn memfd_as(config: &NtbConfig, access: Access, seed: u64) -> Self {
        let hw = Memfd::new(&config.path, config.window, CHANNELS_MAX).with_access(access);
        let name = format!("ntb:{}", config.path.display());
        Self::with_hw(name, Box::new(hw), config.mtu, seed)
    }

    /// Bridge in the shared memory of an ivshmem device.
    pub fn ivshmem(config: IvshmemConfig, mtu: Option<u32>, mut seed: u64) -> Self {
        let name = format!("ntb:ivshmem={}", config.place);
        let hw = IvshmemProvider::new(config, mix::next(&mut seed));
        Self::with_hw(name, Box::new(hw), mtu, seed)
    }

    /// Bridge over any hardware.
    pub fn with_hw(name: String, hw: Box<dyn Hw>, mtu: Option<u32>, seed: u64) -> Self {
        let blank = ControlMessage::blank(&own_caps(mtu));
        Self {
            name,
            hw,
            mtu,
            partner: None,
            partner_down: None,
            rings: RequestedRings::default(),
            membership: None,
            stats: (0..CHANNELS_MAX).map(|_| Arc::default()).collect(),
            state: State::Down,
            session: 0,
            since: Duration::ZERO,
            our_offer: None,
            their_offer: None,
            agreement: None,
            prepared: None,
            ours: blank.clone(),
            sent_messages: 0,
            theirs: blank,
            their_mark: 0,
            why_down: "waiting for a peer".to_owned(),
            was_refused: false,
            seed,
            now: Duration::ZERO,
            transport_mtu: transport::TRANSPORT_MTU,
            transport: None,
            control: None,
            violation_rest: None,
        }
    }

    /// Agreement of the running link; `None` unless the state is `Up`.
    pub fn agreement(&self) -> Option<&Agreement> {
        self.agreement.as_ref().filter(|_| self.state == State::Up)
    }

    /// Sets the bytes of a slot for a peer that is an `ntb_transport` (its `transport_mtu=`).
    #[must_use]
    pub fn with_transport_mtu(mut self, bytes: u32) -> Self {
        self.transport_mtu = bytes;
        self
    }

    /// State of the link with a peer that is mqnet.
    pub fn state(&self) -> State {
        self.state
    }

    /// Capabilities offered to the peer: those of the partner function, within the limits of the
    /// bridge.
    fn offered_caps(&self) -> Caps {
        let own = self.caps();
        match &self.partner {
            None => own,
            Some(partner) => Caps {
                layer: own.layer,
                channels: own.channels.min(partner.channels),
                wanted: partner.wanted,
                mtu: partner.mtu.or(self.mtu),
                mtu_found: partner.mtu_found,
                mtu_max: own.mtu_max.min(partner.mtu_max),
                frame_max: own.frame_max.min(partner.frame_max),
                rx_offloads: partner.rx_offloads,
                tx_offloads: partner.tx_offloads,
                // Offload emulation completes the partner's unfinished frames before they reach the
                // bridge.
                rx_fixed: Offloads::NONE,
            },
        }
    }

    /// Changes the state on an event; `Err` with the reason if the event is forbidden in this
    /// state.
    fn step(&mut self, happening: Happening, now: Duration) -> Result<(), String> {
        self.state = link::next(self.state, happening).map_err(str::to_owned)?;
        self.since = now;
        Ok(())
    }

    /// Returns to the state `Down` and resets the negotiated state. If `rest` is given, also resets
    /// the hardware link, with `rest` as the delay before the next session.
    fn drop_link(&mut self, why: String, now: Duration, rest: Option<Duration>) {
        let happening = if rest.is_some() { Happening::Fault } else { Happening::HwDown };
        self.state = link::next(self.state, happening).unwrap_or(State::Down);
        self.since = now;
        (self.agreement, self.prepared) = (None, None);
        (self.our_offer, self.their_offer) = (None, None);
        let blank = ControlMessage::blank(&self.caps());
        (self.ours, self.theirs) = (blank.clone(), blank);
        (self.sent_messages, self.their_mark) = (0, 0);
        self.why_down = why;
        if let Some(rest) = rest {
            self.hw.reset(now, rest);
        }
    }

    fn announce(&self, phase: Phase) {
        self.hw.peer_spad_write(pad::PHASE, phase as u32);
        if let Some(bell) = self.hw.peer_doorbell(0) {
            // Ignore a doorbell that fails: the hardware link reports a lost peer.
            let _ = bell.ring();
        }
    }

    fn make_offer(&mut self) {
        let offer = Offer {
            versions: (VERSION_MIN, VERSION_MAX),
            // A new random number for every handshake, never 0.
            generation: (mix::next(&mut self.seed) as u32).max(1),
            window: self.hw.window_len(),
            caps: self.offered_caps(),
            rings: RequestedRings::default(),
            membership: self.membership,
        };
        for (at, value) in offer.encode().into_iter().enumerate() {
            self.hw.peer_spad_write(at, value);
        }
        self.our_offer = Some(offer);
        self.announce(Phase::Offer);
    }

    /// Reads the peer's scratchpads, each once.
    fn read_pads(&self) -> [u32; PADS] {
        // Read the phase first (the peer writes it last), then the words before it.
        let phase = self.hw.spad_read(pad::PHASE);
        let mut pads: [u32; PADS] = std::array::from_fn(|at| self.hw.spad_read(at));
        pads[pad::PHASE] = phase;
        pads
    }

    /// Handles the peer's scratchpads, and its mailbox while the link is up; `Err` for a
    /// violation.
    fn listen(&mut self, now: Duration) -> Result<(), String> {
        let pads = self.read_pads();
        let phase = Phase::decode(pads[pad::PHASE]).ok_or_else(|| {
            format!("the peer is in phase {}, which does not exist", pads[pad::PHASE])
        })?;
        if self.state == State::Up {
            self.read_mailbox()?;
        }
        match (phase, self.state) {
            (Phase::None, State::Up) => Err("the peer cleared its scratchpads".to_owned()),
            (Phase::None, _) => Ok(()),
            (Phase::Bye, _) => Err("the peer closed the link".to_owned()),
            (Phase::Refuse, _) => self.was_refused(&pads, now),
            (Phase::Offer, State::Offered) => self.answer(&pads, now),
            (Phase::Offer, State::Accepted | State::Refused) => Ok(()),
            (Phase::Offer, _) => self.step(Happening::GoodOffer, now),
            // The peer may have accepted our offer before this end has read the peer's offer.
            // Answer that offer first.
            (Phase::Accept, State::Offered) => {
                self.answer(&pads, now)?;
                if self.state == State::Accepted { self.was_accepted(&pads, now) } else { Ok(()) }
            }
            (Phase::Accept, State::Accepted) => self.was_accepted(&pads, now),
            (Phase::Accept, State::Up | State::Refused) => Ok(()),
            (Phase::Accept, State::Down) => self.step(Happening::PeerAccepts, now),
        }
    }

    /// Answers the peer's offer with an acceptance or a refusal.
    fn answer(&mut self, pads: &[u32; PADS], now: Duration) -> Result<(), String> {
        let window = self.hw.windows().map_or(0, |w| w.outbound_len);
        let Some(ours) = self.our_offer.clone() else { return Err("no offer was sent".to_owned()) };
        let theirs = Offer::decode(pads, window);
        let result = theirs.and_then(|t| link::agree(&ours, &t, 0).map(|agreement| (t, agreement)));
        match result {
            Ok((theirs, agreement)) => {
                self.step(Happening::GoodOffer, now)?;
                self.ours.caps = ours.caps.clone();
                self.theirs.caps = theirs.caps.clone();
                self.their_offer = Some(theirs);
                self.hw.peer_spad_write(pad::CODE, agreement.generation);
                self.agreement = Some(agreement);
                self.announce(Phase::Accept);
                Ok(())
            }
            Err(refusal) => {
                self.step(Happening::BadOffer, now)?;
                let (code, a, b) = refusal.encode();
                self.hw.peer_spad_write(pad::CODE, code);
                self.hw.peer_spad_write(pad::ARG0, a);
                self.hw.peer_spad_write(pad::ARG1, b);
                self.announce(Phase::Refuse);
                self.why_down = format!("refused: {}", OfferError::text(code, a, b, true));
                self.was_refused = true;
                Ok(())
            }
        }
    }

    fn was_accepted(&mut self, pads: &[u32; PADS], now: Duration) -> Result<(), String> {
        let ours = self.agreement.as_ref().map(|a| a.generation);
        if ours != Some(pads[pad::CODE]) {
            let theirs = pads[pad::CODE];
            return Err(format!(
                "the peer accepted generation {theirs:#x}, the offer has {ours:x?}"
            ));
        }
        self.step(Happening::PeerAccepts, now)?;
        // Send capabilities that have changed since the offer.
        self.publish_request();
        if self.sent_messages == 0 {
            self.post();
        }
        Ok(())
    }

    /// Reads a new control message of the peer from the mailbox, if there is one; `Err` for an
    /// invalid one.
    fn read_mailbox(&mut self) -> Result<(), String> {
        let Some(windows) = self.hw.windows() else { return Ok(()) };
        if let Some(letter) = mailbox::read(&windows, &mut self.their_mark) {
            self.theirs = letter?;
            if let Some(offer) = &mut self.their_offer {
                offer.caps = self.theirs.caps.clone();
                offer.rings = self.theirs.rings;
            }
        }
        Ok(())
    }

    fn was_refused(&mut self, pads: &[u32; PADS], now: Duration) -> Result<(), String> {
        if self.state == State::Refused {
            return Ok(()); // Both refused, or we were told already.
        }
        self.step(Happening::PeerRefuses, now)?;
        let text = OfferError::text(pads[pad::CODE], pads[pad::ARG0], pads[pad::ARG1], false);
        self.why_down = format!("refused by the peer: {text}");
        self.was_refused = true;
        Ok(())
    }

    fn error(&self, what: impl Into<String>) -> OpenChannelsError {
        OpenChannelsError { function: self.name.clone(), what: what.into() }
    }

    fn open_queue_pairs(
        &self,
        agreement: &Agreement,
        plan: &Plan,
    ) -> Result<Vec<Channel>, OpenChannelsError> {
        if plan.channels != agreement.plan.channels {
            let (want, have) = (plan.channels, agreement.plan.channels);
            return Err(self.error(format!("{want} channels: {have} were negotiated")));
        }
        let mut agreement = agreement.clone();
        // The plan of a group has the lowest frame limit of all members.
        agreement.plan.frame_max = agreement.plan.frame_max.min(plan.frame_max);
        let opened = session::open_queue_pairs(&*self.hw, &agreement, &self.stats);
        opened.map_err(|what| self.error(what))
    }

    /// Polls the handshake with a peer that is mqnet, while the hardware link is up.
    fn negotiate(&mut self, now: Duration) {
        if self.state == State::Down {
            if let Err(why) = self.step(Happening::HwUp, now) {
                return self.drop_link(why, now, Some(FAULT_REST));
            }
            self.make_offer();
            self.why_down = "negotiating with the peer".to_owned();
            self.was_refused = false;
        }
        if let Err(why) = self.listen(now) {
            return self.drop_link(why, now, Some(FAULT_REST));
        }
        let waited = now.saturating_sub(self.since);
        match self.state {
            State::Offered | State::Accepted if waited > HANDSHAKE_TIMEOUT => {
                let limit = HANDSHAKE_TIMEOUT.as_secs();
                let why = format!("the peer did not finish the handshake within {limit} s");
                self.drop_link(why, now, Some(FAULT_REST));
            }
            State::Refused if waited > REFUSED_REST => {
                let why = std::mem::take(&mut self.why_down);
                self.drop_link(why, now, Some(REFUSED_REST));
            }
            _ => {}
        }
    }
}

/// Capabilities of the bridge, without those of the partner function.
fn own_caps(mtu: Option<u32>) -> Caps {
    Caps {
        layer: Layer::Ethernet,
        channels: CHANNELS_MAX,
        wanted: None,
        mtu,
        mtu_found: None,
        mtu_max: MTU_MAX,
        frame_max: FRAME_MAX,
        rx_offloads: Offloads::ALL,
        tx_offloads: Offloads::ALL,
        rx_fixed: Offloads::NONE,
    }
}

fn refusal_text(refusal: OfferError) -> String {
    let (code, a, b) = refusal.encode();
    OfferError::text(code, a, b, true)
}

impl Function for NtbFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        self.transport_caps().unwrap_or_else(|| own_caps(self.mtu))
    }

    fn set_partner(&mut self, partner: &Caps) {
        self.partner = Some(partner.clone());
    }

    fn poll_link(&mut self, now: Duration) -> LinkStatus {
        self.now = now;
        if self.partner.as_ref().is_some_and(|partner| partner.layer != Layer::Ethernet) {
            self.transport = None;
            return LinkStatus::Down(
                "the bridge carries Ethernet frames, not IP packets: use a TAP".to_owned(),
            );
        }
        match self.hw.poll_link(now) {
            HwLink::Down(why) if self.transport.is_some() => {
                (self.transport, self.why_down) = (None, why);
            }
            HwLink::Down(why) => {
                if self.state != State::Down {
                    let refused = self.state == State::Refused;
                    let keep = std::mem::take(&mut self.why_down);
                    self.drop_link(if refused { keep } else { why }, now, None);
                } else if !self.was_refused {
                    self.why_down = why;
                }
            }
            HwLink::Up(session) => {
                if session != self.session {
                    self.session = session;
                    self.transport = None;
                    if self.state != State::Down {
                        self.drop_link("a new peer".to_owned(), now, None);
                    }
                }
                match self.poll_transport(now) {
                    Some(status) => return status,
                    None => self.negotiate(now),
                }
            }
        }
        match self.state {
            State::Up => LinkStatus::Up { session: self.session },
            _ => LinkStatus::Down(self.why_down.clone()),
        }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = self.hw.events();
        fds.extend(self.transport.iter().flat_map(Transport::events));
        fds
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        if let Some(opened) = self.open_transport(plan) {
            return opened;
        }
        let agreement = self.agreement().ok_or_else(|| self.error("the link is down"))?;
        self.open_queue_pairs(agreement, plan)
    }

    fn close(&mut self, why: &str) {
        self.close_transport();
        if self.state == State::Up {
            // The hardware link is reset too, because the memory of a session is never reused: a
            // peer that reconnects gets new memory.
            self.announce(Phase::Bye);
            self.drop_link(why.to_owned(), self.now, Some(FAULT_REST));
        }
    }

    fn prepare(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        if let Some(opened) = self.open_transport(plan) {
            return opened;
        }
        let next = match self.next_agreement() {
            None => return Err(self.error("the link is down")),
            Some(Err(refusal)) => return Err(self.error(refusal_text(refusal))),
            Some(Ok(next)) => next,
        };
        session::clear_bank(&*self.hw, &next);
        let channels = self.open_queue_pairs(&next, plan)?;
        self.prepared = Some(next);
        Ok(channels)
    }

    fn commit(&mut self) -> Result<(), OpenChannelsError> {
        if let Some(next) = self.prepared.take() {
            self.agreement = Some(next);
        }
        Ok(())
    }

    fn abort(&mut self) {
        self.prepared = None;
    }

    /// `None` if the peer is a kernel, which changes its queue pairs without an agreement.
    fn peer(&mut self) -> Option<&mut dyn Peer> {
        if self.transport.is_some() { None } else { Some(self) }
    }

    fn steering(&self) -> Option<&dyn Steering> {
        self.transport.as_ref().map(|_| self as &dyn Steering)
    }

    fn steering_mut(&mut self) -> Option<&mut dyn Steering> {
        if self.transport.is_some() { Some(self) } else { None }
    }

    fn share_stats(&mut self, stats: &[Arc<QueuePairStats>]) {
        self.stats = stats.to_vec();
    }

    fn full_cause(&self) -> FullCause {
        FullCause::Peer
    }

    fn full_means(&self) -> &'static str {
        if self.transport.is_some() {
            return "all slots of the queue pair are in use: the guest's kernel does not consume \
                    them (mqnet show has the slots of each pair)";
        }
        "the peer's ring is full: the peer does not take frames (mqnet why at the peer names the \
         cause)"
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }

    mqnet_netdev::facets!(placement, bridge);
}

impl Placement for NtbFunction {
    fn devices(&self) -> Vec<HardwareDevice> {
        self.hw.device().into_iter().collect()
    }

    fn takes_high_cpus(&self) -> bool {
        self.hw.is_second()
    }
}
