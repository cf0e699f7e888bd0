//! Function of a port for the engine.

use std::sync::Arc;

use mqnet_netdev::limits::{CHANNELS_MAX, MTU_MIN, l2_header, mtu_max};
use mqnet_netdev::{
    Caps, Channel, Function, Offloads, OpenChannelsError, Plan, QueuePairStats, Rx, Steering, Tx,
};

use crate::channel::PortChannel;
use crate::config::PortConfig;
use crate::error::{CloseReason, Error};
use crate::receiver::Receiver;
use crate::rx::PortRx;
use crate::sender::Sender;
use crate::tx::PortTx;

/// Handle that closes a port.
#[derive(Clone, Debug)]
pub(crate) struct Closer {
    channels: Vec<Arc<PortChannel>>,
    reason: Arc<CloseReason>,
}

impl Closer {
    /// Returns the event that wakes the worker of a channel.
    #[cfg(test)]
    pub(crate) fn worker_event(&self, channel: usize) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&*self.channels[channel].worker_event)
    }

    /// Closes the rings of the senders. The lanes may still run.
    pub(crate) fn close_senders(&self) {
        self.channels.iter().for_each(|channel| channel.arrivals.close());
    }

    /// Closes the port. Senders get the reason; receivers get the reason after the last frame. The
    /// lanes must have stopped: otherwise a receiver could get a frame after the reason.
    pub(crate) fn close(&self, error: Error) {
        self.reason.set(error);
        for channel in &self.channels {
            channel.arrivals.close();
            channel.wake_receiver();
        }
    }
}

/// Values of a plan that apply to the program.
#[derive(Clone, Copy, Debug)]
struct InForce {
    channels: u16,
    frame_max: u32,
}

impl InForce {
    fn of(plan: &Plan) -> Self {
        Self { channels: plan.channels, frame_max: plan.frame_max }
    }
}

/// Port as a function of a link.
#[derive(Debug)]
pub struct PortFunction {
    config: PortConfig,
    channels: Vec<Arc<PortChannel>>,
    reason: Arc<CloseReason>,
    stats: Vec<Arc<QueuePairStats>>,
    in_force: InForce,
    /// Values of the prepared change, which the commit applies; `None`: no change is prepared.
    next: Option<InForce>,
}

impl PortFunction {
    /// Opens a port. Returns the function, and receiver and sender of each channel. Returns an
    /// error for an option out of range, or if a descriptor cannot be created.
    pub fn open(config: PortConfig) -> Result<(Self, Vec<(Receiver, Sender)>), OpenChannelsError> {
        let fail = |what: String| OpenChannelsError { function: config.name.clone(), what };
        let check = |what: &str, value: u32, min: u32, max: u32| {
            let fits = (min..=max).contains(&value);
            if fits { Ok(()) } else { Err(fail(format!("{what}: {value}: {min} to {max}"))) }
        };
        check("queues", config.channels.into(), 1, CHANNELS_MAX.into())?;
        check("mtu", config.mtu, MTU_MIN, mtu_max(config.layer))?;
        check("mtu_max", config.mtu_max, config.mtu, mtu_max(config.layer))?;
        check("depth", config.depth, 2, 1 << 14)?;
        let reason = Arc::new(CloseReason::default());
        let (mut channels, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..config.channels {
            let made = PortChannel::new(&config, &reason);
            let (channel, rings) = made.map_err(|e| fail(format!("descriptors: {e}")))?;
            let receiver = Receiver::new(channel.clone(), rings);
            ends.push((receiver, Sender::new(&channel)));
            channels.push(channel);
        }
        let stats = channels.iter().map(|_| Arc::default()).collect();
        let frame_max = config.mtu + l2_header(config.layer);
        let in_force = InForce { channels: config.channels, frame_max };
        Ok((Self { config, channels, reason, stats, in_force, next: None }, ends))
    }

    pub(crate) fn closer(&self) -> Closer {
        Closer { channels: self.channels.clone(), reason: self.reason.clone() }
    }

    /// Creates the queues of a plan. Each queue takes the rings of its channel at its first poll.
    /// Returns an error if the plan exceeds the port's limits.
    fn queues(&self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        plan.check_channels(&self.config.name, self.config.channels)?;
        let most = self.config.mtu_max + l2_header(self.config.layer);
        if plan.frame_max > most {
            let what = format!("frames of {} bytes: at most {most} (mtu_max)", plan.frame_max);
            return Err(OpenChannelsError { function: self.config.name.clone(), what });
        }
        let channels = self.channels.iter().zip(&self.stats).take(plan.channels.into());
        let queues = channels.map(|(channel, stats)| {
            let rx = PortRx::new(channel.clone(), plan.frame_max, stats.clone());
            let tx = PortTx::new(channel.clone(), stats.clone());
            Channel { rx: Rx::Owning(Box::new(rx)), tx: Tx::Owning(Box::new(tx)) }
        });
        Ok(queues.collect())
    }

    fn set_channels(&self, in_use: u16) {
        for (number, channel) in (0..).zip(&self.channels) {
            channel.set_in_use(number < in_use);
        }
    }

    fn set_frame_max(&self, bytes: u32) {
        self.channels.iter().for_each(|channel| channel.set_frame_max(bytes));
    }

    fn apply(&mut self, in_force: InForce) {
        self.in_force = in_force;
        self.set_frame_max(in_force.frame_max);
        self.set_channels(in_force.channels);
    }
}

impl Function for PortFunction {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn caps(&self) -> Caps {
        Caps {
            layer: self.config.layer,
            channels: self.config.channels,
            wanted: Some(self.config.channels),
            // The configured MTU is only an initial value: the MTU may change later.
            mtu: None,
            mtu_found: Some(self.config.mtu),
            mtu_max: self.config.mtu_max,
            frame_max: self.config.mtu_max + l2_header(self.config.layer),
            // The program receives and sends complete frames; the engine emulates all offloads.
            rx_offloads: Offloads::NONE,
            tx_offloads: Offloads::NONE,
            rx_fixed: Offloads::NONE,
        }
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let queues = self.queues(plan)?;
        if !self.channels.iter().all(|channel| channel.is_parked()) {
            let what = "a queue of an earlier session is still in use".to_owned();
            return Err(OpenChannelsError { function: self.config.name.clone(), what });
        }
        self.next = None;
        self.apply(InForce::of(plan));
        Ok(queues)
    }

    fn close(&mut self, _why: &str) {
        self.abort();
    }

    fn prepare(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let queues = self.queues(plan)?;
        let next = InForce::of(plan);
        // Reduce the limit for senders before the lanes change; a larger limit applies at the
        // commit.
        self.set_frame_max(next.frame_max.min(self.in_force.frame_max));
        self.next = Some(next);
        Ok(queues)
    }

    fn commit(&mut self) -> Result<(), OpenChannelsError> {
        if let Some(next) = self.next.take() {
            self.apply(next);
        }
        Ok(())
    }

    fn abort(&mut self) {
        if self.next.take().is_some() {
            self.apply(self.in_force);
        }
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }

    fn full_means(&self) -> &'static str {
        "the program does not receive"
    }

    mqnet_netdev::facets!(steering);
}

impl Steering for PortFunction {
    fn waiting_most(&mut self) -> u32 {
        self.config.depth
    }

    /// Allows the program to send only on the first `channels` channels.
    fn steer(&mut self, channels: u16) -> Result<(), OpenChannelsError> {
        self.set_channels(channels);
        Ok(())
    }
}
