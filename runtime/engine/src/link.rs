//! Link: two joined functions, run by the control thread.

mod capture;
mod deliver;
mod devices;
mod disciplines;
mod ends;
mod learning;
mod merging;
mod refit;
mod request;
mod resteer;
mod xdp;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use mqnet_netdev::wrap::offload::Finish;
use mqnet_netdev::{
    Caps, Channel, Function, HardwareDevice, LinkStatus, Peer, Plan, QueuePairStats,
};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::{affinity, clock};
use mqnet_topology::{CpuListEnd, FunctionLocation, Topology};

use crate::change::state::{Change, IdleState};
use crate::config::LinkConfig;
use crate::error::LinkError;
use crate::idle::IdlePolicy;
use crate::lane::{Direction, Lane, LaneError, LaneId, ShownPool};
use crate::locality::SAMPLE_INTERVAL;
use crate::settings::{LinkSettings, RequestError};
use crate::worker::{FaultLine, LaneFault};
use crate::worker_pool::{WorkerPool, WorkerView};

pub use capture::{CaptureRequest, Captures};
use devices::DeviceMtu;
use disciplines::Attached;
use learning::Learning;
use merging::Merger;
use request::Pending;
use xdp::Programs;
pub use xdp::XdpError;

/// Time after a new down reason during which the control step runs more often.
const SOON: Duration = Duration::from_secs(2);

/// Event of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The link is up.
    Up(Plan),
    /// The link is down; the string is the reason.
    Down(String),
    /// The channels were replaced while traffic continued.
    Changed {
        /// Plan in force, as seen from the first function.
        plan: Plan,
        /// Duration of the change.
        took: Duration,
        /// Cleanup steps that failed.
        untidy: Vec<String>,
    },
    /// The channel change failed and the old channels are kept; the string is the reason.
    ChangeFailed(String),
}

/// State of a link that is up.
#[derive(Debug)]
pub struct Running {
    /// Negotiated plan, as seen from the first function.
    pub plan: Plan,
    /// Number of the set of lanes.
    pub(crate) set: u32,
    sessions: (u64, u64),
}

/// Returns `plan` as seen from the function with the sources of the lanes of direction `way`.
pub(crate) fn from_source_side(plan: &Plan, way: Direction) -> Plan {
    if way == Direction::AToB { plan.clone() } else { plan.mirrored() }
}

/// Link between two functions.
pub struct Link {
    pub(crate) ends: [Box<dyn Function>; 2],
    /// Index of the function with a peer that takes part in channel changes; `None`: no such
    /// function.
    pub(crate) peer_side: Option<usize>,
    pub(crate) workers: WorkerPool,
    pub(crate) running: Option<Running>,
    pub(crate) change: Option<Change>,
    pub(crate) idle_state: IdleState,
    pub(crate) sets: u32,
    /// Largest number of channels used so far.
    pub(crate) widest: u16,
    pub(crate) now: Duration,
    attached: [Attached; 2],
    /// True if the behaviour for full sinks was set during a channel change.
    full_changed: bool,
    /// True if a change has just ended, so that the next may be due.
    check_again: bool,
    settings: LinkSettings,
    /// Capabilities of both functions when the request was last published.
    seen_caps: [Option<Caps>; 2],
    wake_frames: u32,
    captures: Vec<capture::Active>,
    programs: Programs,
    merger: Merger,
    learning: Learning,
    /// Gauges of the lanes' page pools, for the running set and the next one.
    shown_pools: Vec<(LaneId, ShownPool)>,
    pending: Option<Pending>,
    answer: Option<Result<Option<String>, RequestError>>,
    device_mtu: DeviceMtu,
    faults: Receiver<LaneFault>,
    line: FaultLine,
    /// Down reason that was reported last; `None` if the link has come up since.
    reported_down: Option<String>,
    reported_at: Duration,
    /// Reason why the link cannot start although both functions are up.
    start_failed: Option<String>,
}

impl Link {
    /// Creates a link between two functions. No frame moves before the first [`turn`](Self::turn).
    /// At most one function may have a peer that takes part in changes. Fails for an invalid egress
    /// configuration, or if a system resource is missing.
    pub fn new(
        a: Box<dyn Function>,
        b: Box<dyn Function>,
        config: LinkConfig,
    ) -> Result<Self, LinkError> {
        let mut ends = [a, b];
        let peer_side = (0..2).find(|&side| ends[side].peer().is_some());
        let (sender, faults) = channel();
        let line = FaultLine { sender, wake: Arc::new(EventFd::new()?) };
        let topology = Topology::discover(&affinity::allowed_cpus()?);
        let learning = Learning::new(&config.egress, &ends)?;
        let settings = LinkSettings { channels: config.channels, ..LinkSettings::default() };
        let attached = {
            let [a, b] = ends.each_ref().map(|end| end.caps().layer);
            [Attached::new(&config.egress[0], a)?, Attached::new(&config.egress[1], b)?]
        };
        let mut link = Self {
            attached,
            full_changed: false,
            ends,
            peer_side,
            workers: WorkerPool::new(topology, CpuListEnd::Low, config, line.clone()),
            running: None,
            change: None,
            idle_state: IdleState::default(),
            sets: 0,
            widest: 0,
            now: clock::monotonic(),
            check_again: false,
            settings,
            seen_caps: [None, None],
            wake_frames: 0,
            captures: Vec::new(),
            programs: Programs::default(),
            merger: Merger::default(),
            learning,
            shown_pools: Vec::new(),
            pending: None,
            device_mtu: DeviceMtu::default(),
            answer: None,
            faults,
            line,
            reported_down: None,
            reported_at: Duration::ZERO,
            start_failed: None,
        };
        link.publish_request();
        Ok(link)
    }

    /// Descriptors that become readable when a [`turn`](Self::turn) is due.
    pub fn events(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = vec![self.line.wake.as_fd()];
        self.ends.iter().for_each(|end| fds.extend(end.events()));
        fds
    }

    /// Longest time to wait for an event before the next [`turn`](Self::turn).
    pub fn patience(&self) -> Duration {
        match (&self.running, &self.change) {
            // A request may have arrived while a change was ending. Its event has already been
            // consumed, so the next step runs immediately.
            (Some(_), None) if self.check_again => Duration::ZERO,
            // The draining of queues during a change has no event.
            (Some(_), Some(_)) => Duration::from_micros(300),
            (Some(_), None) if self.programs.any_leaving() => Duration::from_millis(20),
            (Some(_), None) if self.pending.is_some() => Duration::from_millis(100),
            // Polling detects when a lost member returns.
            (Some(_), None) if self.misses_a_member() => Duration::from_millis(25),
            (Some(_), None) if self.learning.is_on() => SAMPLE_INTERVAL,
            // All other changes of a running link have an event.
            (Some(_), None) => Duration::from_secs(1),
            // A waiting peer is detected by polling. After `SOON` the interval is longer, so that a
            // link that waits for a long time needs little CPU time.
            (None, _) if self.now.saturating_sub(self.reported_at) > SOON => {
                Duration::from_millis(100)
            }
            (None, _) => Duration::from_millis(25),
        }
    }

    /// Performs one control step: handles faults and lost peers, starts the link when both
    /// functions are up, and advances changes. Must be called after every event and after
    /// [`patience`](Self::patience). Returns an event of the link, if any. An error ends the link.
    pub fn turn(&mut self, now: Duration) -> Result<Option<Notice>, LinkError> {
        self.now = now;
        self.line.wake.drain();
        let mut faults: Vec<LaneFault> = self.faults.try_iter().collect();
        let survives = self.survives(&faults);
        if let Some(end) = self.end_by_faults(&faults, !survives)? {
            return Ok(Some(end));
        }
        let status = self.poll_ends(now);
        self.check_caps();
        self.follow_devices(now);
        let refitted = self.refit_ends(&mut faults)?;
        if let Some(end) = self.end_by_faults(&faults, true)? {
            return Ok(Some(end));
        }
        let notice = match status {
            (LinkStatus::Up { session: sa }, LinkStatus::Up { session: sb }) => match &self.running
            {
                Some(running) if running.sessions == (sa, sb) => {
                    let notice = self.advance(now)?;
                    self.check_again = notice.is_some() || refitted;
                    notice
                }
                Some(_) => {
                    self.take_down("the peer started a new session")?;
                    self.bring_up((sa, sb))?
                }
                None => self.bring_up((sa, sb))?,
            },
            (LinkStatus::Down(why), _) | (_, LinkStatus::Down(why)) => {
                if self.running.is_some() {
                    self.take_down(&why)?;
                }
                self.report_down(why)
            }
        };
        if matches!(notice, Some(Notice::Changed { .. })) {
            self.forget_device_notes();
        }
        self.time_out_request(now);
        self.remove_abandoned_taps();
        self.retry_hook_removal();
        self.free_unused_disciplines();
        self.fit_merging();
        self.learn()?;
        Ok(notice)
    }

    /// Returns the notice for a down reason; `None` if the reason has already been reported.
    pub(crate) fn report_down(&mut self, why: String) -> Option<Notice> {
        if self.reported_down.as_ref() == Some(&why) {
            return None;
        }
        (self.reported_down, self.reported_at) = (Some(why.clone()), self.now);
        Some(Notice::Down(why))
    }

    /// Reason why the link is down; `None` while the link is up.
    pub fn down_reason(&self) -> Option<&str> {
        self.reported_down.as_deref().filter(|_| self.running.is_none())
    }

    /// Converts a plan of the peer, which is seen from the function opposite the peer's, to the
    /// view of the first function. Adds the receive offloads that are fixed at this end, because
    /// the peer does not know them.
    pub(crate) fn as_first_side(&self, plan: Plan) -> Plan {
        let plan = if self.peer_side == Some(0) { plan.mirrored() } else { plan };
        let [here, there] = self.ends.each_ref().map(|end| end.caps().rx_fixed);
        plan.with_fixed(here, there)
    }

    /// Peer that takes part in changes; `None` without one.
    pub(crate) fn peer(&mut self) -> Option<&mut dyn Peer> {
        self.ends[self.peer_side?].peer()
    }

    pub(crate) fn side(&self) -> CpuListEnd {
        let high = self.ends.iter().any(|end| end.takes_high_cpus());
        if high { CpuListEnd::High } else { CpuListEnd::Low }
    }

    /// NUMA nodes of the devices of the first function that knows a node; empty if none does.
    pub(crate) fn locations(&self) -> Vec<FunctionLocation> {
        let mut ends = self.ends.iter().map(|end| end.devices());
        let known = ends.find(|devices| devices.iter().any(|device| device.node.is_some()));
        let home = |device: HardwareDevice| FunctionLocation { node: device.node, vectors: None };
        known.unwrap_or_default().into_iter().map(home).collect()
    }

    /// Plan of the two functions at the start of the link, or the reason why none exists.
    fn first_plan(&mut self) -> Result<Plan, String> {
        match self.peer().map(|peer| peer.plan()) {
            // The two ends of the bridge have already negotiated the plan.
            Some(Some(plan)) => Ok(self.as_first_side(plan)),
            Some(None) => Err("nothing is negotiated with the peer".to_owned()),
            None => Plan::join(&self.requested_caps_of(0), &self.requested_caps_of(1))
                .map_err(|e| e.to_string()),
        }
    }

    fn bring_up(&mut self, sessions: (u64, u64)) -> Result<Option<Notice>, LinkError> {
        // The handshake of a bridge determines if its peer negotiates changes, so find the peer's
        // side again.
        self.peer_side = (0..2).find(|&side| self.ends[side].peer().is_some());
        let plan = match self.first_plan() {
            Ok(plan) => plan,
            Err(why) => {
                // `cannot_start` tells the peer, so that it does not consider the link up.
                return Ok(self.cannot_start(why, "the two functions are not compatible"));
            }
        };
        if let Err(e) = self.workers.grow(plan.channels, self.side(), self.locations()) {
            return Ok(self.cannot_start(format!("workers: {e}"), "workers could not be started"));
        }
        let opened = self.open(&plan);
        let lanes = opened.and_then(|(a, b)| self.make_lanes(self.sets, a, b, &plan));
        match lanes {
            Ok(lanes) => {
                // Set the carrier before the first frame moves: a kernel without carrier drops its
                // replies.
                self.ends.iter_mut().for_each(|end| end.set_carrier(true));
                lanes.into_iter().flatten().for_each(|lane| self.workers.attach(lane));
            }
            Err(why) => {
                return Ok(self.cannot_start(why, "a function could not be opened"));
            }
        }
        self.reported_down = None;
        self.has_started();
        self.idle_state = IdleState::default();
        self.widest = self.widest.max(plan.channels);
        self.note_counted();
        self.forget_device_notes();
        self.running = Some(Running { plan: plan.clone(), set: self.sets, sessions });
        Ok(Some(Notice::Up(plan)))
    }

    fn open(&mut self, plan: &Plan) -> Result<(Vec<Channel>, Vec<Channel>), String> {
        let a = self.ends[0].open(plan).map_err(|e| e.to_string())?;
        let b = self.ends[1].open(&plan.mirrored()).map_err(|e| e.to_string())?;
        self.learning.begin(&mut self.ends);
        Ok((a, b))
    }

    /// Creates the lanes between channels. Returns the lanes of each direction in channel order, or
    /// the reason of a failure.
    pub(crate) fn make_lanes(
        &mut self,
        set: u32,
        a: Vec<Channel>,
        b: Vec<Channel>,
        plan: &Plan,
    ) -> Result<[Vec<Lane>; 2], String> {
        let mut lanes = [Vec::with_capacity(a.len()), Vec::with_capacity(b.len())];
        let at_work = self.running.as_ref().map(|running| running.set);
        self.shown_pools.retain(|(id, _)| Some(id.set) == at_work);
        for (channel, (a, b)) in (0u16..).zip(a.into_iter().zip(b)) {
            let node = self.workers.memory_of(channel);
            for (way, rx, tx) in [(Direction::AToB, a.rx, b.tx), (Direction::BToA, b.rx, a.tx)] {
                let sink = usize::from(way == Direction::AToB);
                let stats = self.ends[sink].stats()[usize::from(channel)].clone();
                let id = LaneId { set, channel, way };
                let rx = self.learning.watch(1 - sink, channel, rx);
                let lane = Lane::new(id, rx, tx, plan.frame_max, node, stats);
                let lane = lane.and_then(|lane| self.emulate(lane, plan));
                let mut lane = lane.map_err(|e| e.to_string())?;
                lane.set_wake_frames(self.wake_frames);
                self.shown_pools.push((id, lane.shown_pool()));
                self.captures.iter().for_each(|capture| capture.put_on(&mut lane));
                lanes[1 - sink].push(lane);
            }
        }
        self.hook_lanes(&mut lanes, plan)?;
        self.attach_disciplines(&mut lanes, set, plan)?;
        Ok(lanes)
    }

    /// Adds the offload emulation that the plan requires to a lane.
    fn emulate(&self, lane: Lane, plan: &Plan) -> Result<Lane, LaneError> {
        let plan = from_source_side(plan, lane.id().way);
        if plan.rx_emulation.is_none() {
            return Ok(lane);
        }
        let how = Finish {
            layer: self.ends[0].caps().layer,
            takes: plan.rx_offloads.minus(plan.rx_emulation.offloads),
            frame_max: plan.frame_max,
        };
        lane.finishing(plan.rx_frame_max(), how)
    }

    /// Closes detached lanes. Frames that programs reinjected there move to the running lanes,
    /// which are the new lanes at the end of a change.
    pub(crate) fn drop_lanes(&self, lanes: impl IntoIterator<Item = Lane>) {
        for mut lane in lanes {
            if let Some(running) = &self.running
                && let Some(returned) = lane.take_returned()
            {
                let LaneId { channel, way, .. } = lane.id();
                let channel = channel % running.plan.channels;
                let give = |lane: &mut Lane| {
                    lane.give_returned(returned);
                    Ok(())
                };
                self.workers.edit(LaneId { set: running.set, channel, way }, Box::new(give));
            }
            lane.into_queues(self.now);
        }
    }

    /// Stops the traffic, closes all lanes and closes both functions. Fails if a worker does not
    /// reply in time.
    pub(crate) fn take_down(&mut self, why: &str) -> Result<(), LinkError> {
        self.ends.iter_mut().for_each(|end| end.set_carrier(false));
        self.running = None;
        let running = self.workers.take_all()?;
        self.drop_lanes(running);
        if let Some(change) = self.change.take() {
            self.drop_lanes(change.into_lanes());
        }
        self.ends.iter_mut().for_each(|end| end.close(why));
        // Discard further faults: they are of lanes that are closed now.
        while self.faults.try_recv().is_ok() {}
        self.sets = self.sets.wrapping_add(1);
        self.link_is_down(why);
        Ok(())
    }

    /// State of the link while it is up; `None` while it is down.
    pub fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    /// True while a channel change is under way.
    pub fn is_changing(&self) -> bool {
        self.change.is_some()
    }

    /// Both functions of the link.
    pub fn functions(&mut self) -> [&mut dyn Function; 2] {
        let [a, b] = &mut self.ends;
        [&mut **a, &mut **b]
    }

    /// Statistics of both functions' channels, including channels that are no longer in use.
    pub fn stats(&self) -> [&[Arc<QueuePairStats>]; 2] {
        let used = usize::from(self.widest);
        self.ends.each_ref().map(|end| &end.stats()[..used.min(end.stats().len())])
    }

    /// Description of all workers.
    pub fn workers(&self) -> impl Iterator<Item = WorkerView<'_>> {
        self.workers.views()
    }

    /// Number of the worker that polls a channel; `None` without workers.
    pub fn worker_of(&self, channel: u16) -> Option<usize> {
        self.workers.worker_of(channel)
    }

    /// Idle policy of the workers.
    pub fn idle_policy(&self) -> IdlePolicy {
        self.workers.policy()
    }

    /// Changes the idle policy of the workers.
    pub fn set_idle_policy(&mut self, policy: IdlePolicy) {
        self.workers.set_policy(policy);
    }

    /// Wake threshold of a stopped lane, as a number of largest frames; 0: half of the ring.
    pub fn wake_frames(&self) -> u32 {
        self.wake_frames
    }

    /// Sets the wake threshold of [`wake_frames`](Self::wake_frames).
    pub fn set_wake_frames(&mut self, frames: u32) {
        self.wake_frames = frames;
        let Some(running) = &self.running else { return };
        for channel in 0..running.plan.channels {
            for way in [Direction::AToB, Direction::BToA] {
                let id = LaneId { set: running.set, channel, way };
                self.workers.edit(
                    id,
                    Box::new(move |lane| {
                        lane.set_wake_frames(frames);
                        Ok(())
                    }),
                );
            }
        }
    }

    /// Shuts the link down in order: received frames are delivered if that is possible within
    /// `patience`, then the functions are closed and the peer is notified. Statistics remain
    /// available. Fails if a worker does not reply in time.
    pub fn shut_down(&mut self, why: &str, patience: Duration) -> Result<(), LinkError> {
        if self.running.is_none() {
            return Ok(());
        }
        self.ends.iter_mut().for_each(|end| end.set_carrier(false));
        // Close the functions and notify the peer even if the delivery failed.
        let delivered = self.deliver(patience);
        self.take_down(why)?;
        delivered
    }
}
