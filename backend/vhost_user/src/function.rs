//! Network function over a vhost-user device.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX, MTU_MAX};
use mqnet_netdev::{
    Caps, Channel, Function, KernelInterface, LinkStatus, Offloads, OpenChannelsError, Plan,
    QueuePairStats, Rx, Steering, Tx,
};
use mqnet_virtio::Features;
use mqnet_virtio::net::{rx_queue, tx_queue};
use mqnet_wire::Layer;

use crate::announce::Announcing;
use crate::config::{Meet, VhostUserConfig};
use crate::listener::Listener;
use crate::offer::Offer;
use crate::state::{Shared, State};
use crate::steer::Steered;
use crate::{GuestRx, GuestTx};

/// Reason why the link is down after the file of the guest's memory was truncated, or a page could
/// not be allocated.
const MEMORY_LOST: &str = "the VMM removed memory of the guest";

/// Largest time for which the link may have more channels than the driver has enabled. After that
/// time the function starts a new session.
const LAGGING: Duration = Duration::from_secs(3);

/// Network function over the network card of a guest.
pub struct VhostUserFunction {
    name: String,
    mtu: Option<u32>,
    pub(crate) shared: Arc<Shared>,
    /// Handle of the socket and its thread.
    _listener: Listener,
    partner: Option<Caps>,
    stats: Vec<Arc<QueuePairStats>>,
    /// Channels of the open link, and the queue pairs that they serve. `next` has both numbers of a
    /// prepared channel change.
    open: Option<Open>,
    next: Option<Open>,
    lagging: Option<Duration>,
}

#[derive(Clone, Copy)]
struct Open {
    channels: u16,
    pairs: u16,
}

impl VhostUserFunction {
    /// Opens the socket. The peer may connect later.
    pub fn open(config: VhostUserConfig) -> Result<Self, OpenChannelsError> {
        let VhostUserConfig { name, meet, mac, mtu, queues, packed, ctrl } = config;
        // A device with a control queue filters by address, so it needs an address.
        let mac = mac.or_else(|| ctrl.then(random_mac));
        let pairs = queues.clamp(1, CHANNELS_MAX);
        let error =
            |e: std::io::Error| OpenChannelsError { function: name.clone(), what: e.to_string() };
        let shared = Arc::new(Shared::new(Offer { mac, mtu, pairs, packed, ctrl }).map_err(error)?);
        let place = match &meet {
            Meet::Connect(path) => format!("{}: ", path.display()),
            Meet::Listen(_) | Meet::ListenAs(..) | Meet::Inherited(_) => String::new(),
        };
        let listener = Listener::open(meet, shared.clone()).map_err(|e| OpenChannelsError {
            function: name.clone(),
            what: format!("{place}{e}"),
        })?;
        let stats = (0..CHANNELS_MAX).map(|_| Arc::default()).collect();
        let (partner, open, next, lagging) = (None, None, None, None);
        Ok(Self { name, mtu, shared, _listener: listener, partner, stats, open, next, lagging })
    }

    /// Capabilities of the driver. Until features are negotiated, all offloads are included.
    fn caps_in(&self, state: &State) -> Caps {
        let (rx, tx) = state.features.map_or((Offloads::ALL, Offloads::ALL), |features| {
            (features.sent_by_driver(), state.taken_by_driver(features))
        });
        let (started, enabled) = (state.pairs_started(), state.pairs_enabled());
        let is_there = state.absent.is_none() && enabled > 0;
        Caps {
            layer: Layer::Ethernet,
            channels: if is_there { started } else { state.offer.pairs },
            wanted: is_there.then_some(enabled),
            mtu: self.mtu.or(state.mtu),
            mtu_found: None,
            mtu_max: MTU_MAX,
            frame_max: FRAME_MAX,
            rx_offloads: rx,
            // The driver's features are final once it has accepted them, so the partner cannot
            // restrict them.
            rx_fixed: state.features.map_or(Offloads::NONE, Features::sent_by_driver),
            tx_offloads: tx,
        }
    }

    /// Starts a new session if the link no longer matches the queues of the driver.
    fn check_channels(&mut self, state: &mut State, now: Duration) {
        let Some(open) = self.open.filter(|_| self.next.is_none()) else { return };
        let caps = self.caps_in(state);
        let due = self.partner.as_ref().map_or(open.channels, |there| caps.channels_with(there));
        // True if some started pairs have no channel, and no channel change is due.
        let unserved = state.pairs_started() > open.pairs && due == open.channels;
        let lags = state.pairs_enabled() < open.channels;
        self.lagging = if lags { self.lagging.or(Some(now)) } else { None };
        let too_long = self.lagging.is_some_and(|since| now.saturating_sub(since) > LAGGING);
        if unserved || too_long {
            state.session += 1;
            self.lagging = None;
        }
    }

    fn channel(
        &self,
        state: &mut State,
        open: Open,
        frame_max: u32,
        at: u16,
    ) -> std::io::Result<Channel> {
        let cell = |queue: u16| state.slots[usize::from(queue)].cell.clone();
        let sent = (at..open.pairs).step_by(open.channels.into()).map(|pair| cell(tx_queue(pair)));
        let stats = &self.stats[usize::from(at)];
        let sent = GuestTx::new(at, sent, frame_max, stats.clone())?;
        let due = state.announcements.clone();
        Ok(Channel {
            rx: Rx::Owning(match at {
                0 => Box::new(Announcing::new(sent, due, stats.clone())),
                _ => Box::new(sent),
            }),
            tx: Tx::Owning(match state.commands {
                Some(_) => Box::new(Steered::new(at, state, &self.stats)?),
                None => Box::new(GuestRx::new(at, cell(rx_queue(at)), stats.clone())?),
            }),
        })
    }

    fn channels(&self, plan: &Plan) -> Result<(Open, Vec<Channel>), OpenChannelsError> {
        let mut state = self.shared.lock();
        let error = |what: String| OpenChannelsError { function: self.name.clone(), what };
        if let Some(why) = state.why_down() {
            return Err(error(why));
        }
        let pairs = state.pairs_started();
        if plan.channels > pairs {
            return Err(error(format!("{} channels, the driver has {pairs}", plan.channels)));
        }
        let open = Open { channels: plan.channels, pairs };
        let make = |at| self.channel(&mut state, open, plan.rx_frame_max(), at);
        let channels = (0..plan.channels).map(make).collect::<Result<_, _>>();
        Ok((open, channels.map_err(|e| error(e.to_string()))?))
    }
}

/// Random address for a device without a configured address: locally administered, unicast.
fn random_mac() -> [u8; 6] {
    let [a, b, c, d, e, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    [2, a, b, c, d, e]
}

impl Function for VhostUserFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        self.caps_in(&self.shared.lock())
    }

    fn set_partner(&mut self, partner: &Caps) {
        self.partner = Some(partner.clone());
    }

    fn poll_link(&mut self, now: Duration) -> LinkStatus {
        self.shared.wake.drain();
        let shared = self.shared.clone();
        let mut state = shared.lock();
        if state.broken.is_none() && state.memory.is_lost() {
            state.break_off(MEMORY_LOST.to_owned());
        }
        self.check_channels(&mut state, now);
        match state.why_down() {
            Some(why) => LinkStatus::Down(why),
            None => LinkStatus::Up { session: state.session },
        }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.shared.wake.as_fd()]
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let (open, channels) = self.channels(plan)?;
        self.open = Some(open);
        Ok(channels)
    }

    fn close(&mut self, _why: &str) {
        (self.open, self.next, self.lagging) = (None, None, None);
        let mut state = self.shared.lock();
        // The caller's reason is not used: it may be a violation by a guest at the other end.
        let violations = state.slots.iter().filter_map(|slot| slot.cell.take_violation());
        let violations: Vec<String> = violations.collect();
        if let Some(what) = violations.first() {
            // Lost memory reads as zeroes, which violate the protocol. Report the loss instead.
            let is_lost = state.memory.is_lost();
            state.break_off(match is_lost {
                true => MEMORY_LOST.to_owned(),
                false => format!("the guest violated the protocol: {what}"),
            });
        }
    }

    fn prepare(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let (next, channels) = self.channels(plan)?;
        self.next = Some(next);
        Ok(channels)
    }

    fn commit(&mut self) -> Result<(), OpenChannelsError> {
        self.open = self.next.take().or(self.open);
        Ok(())
    }

    fn abort(&mut self) {
        self.next = None;
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }

    fn full_means(&self) -> &'static str {
        "the guest has no free receive buffers: it does not take frames (is it busy or stopped?)"
    }

    mqnet_netdev::facets!(steering, kernel_interface);
}

impl Steering for VhostUserFunction {
    /// False: the guest selects the queue of each frame.
    fn steers(&self) -> bool {
        false
    }

    fn waiting_most(&mut self) -> u32 {
        let state = self.shared.lock();
        let sizes = state.slots.iter().filter(|slot| slot.is_served()).map(|slot| slot.size);
        sizes.map(u32::from).sum::<u32>().max(1)
    }
}

impl KernelInterface for VhostUserFunction {
    fn feeds_a_stack(&self) -> bool {
        true
    }
}
