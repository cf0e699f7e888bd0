//! Fake member that follows the contract of `Function` and records violations by the caller.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mqnet_netdev::{
    Armed, Burst, Caps, Channel, Fault, Function, Indirection, KernelInterface, LinkStatus,
    Offloads, OpenChannelsError, Placement, Plan, Queue, QueuePairStats, Recv, Rx, Steering,
    SyscallRx, SyscallTx, Tx, WakeSource, limits,
};
use mqnet_shmem::Segments;
use mqnet_wire::Layer;

/// State of a member, shared with the test.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) up: bool,
    pub(super) session: u64,
    /// Number of open channels; `None` if the member is closed.
    pub(super) open: Option<u16>,
    /// Number of channels in a change that is prepared, and neither committed nor aborted.
    pub(super) prepared: Option<u16>,
    pub(super) steered: u16,
    pub(super) carrier: bool,
    /// Number of queues in use.
    pub(super) queues: i32,
    /// Contract violations of the caller.
    pub(super) wrong: Vec<String>,
    /// Channel on which the last frame was sent.
    pub(super) sent_on: Option<u16>,
    /// Indirection table of queue numbers, which are taken modulo the number of channels; `None` if
    /// the fake steers (`Steering::steers`).
    pub(super) table: Option<Vec<u16>>,
}

/// Number of calls that succeed before one fails; `None`: no call fails.
pub(super) type Countdown = Arc<Mutex<Option<u32>>>;

#[derive(Clone)]
pub(super) struct Handle(pub(super) Arc<Mutex<State>>);

impl Handle {
    pub(super) fn get(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

pub(super) struct Fake {
    pub(super) name: String,
    pub(super) identity: Option<String>,
    pub(super) caps: Caps,
    pub(super) state: Handle,
    pub(super) failures: Countdown,
    pub(super) stats: Vec<Arc<QueuePairStats>>,
}

pub(super) fn caps(channels: u16) -> Caps {
    Caps {
        layer: Layer::Ethernet,
        channels,
        wanted: None,
        mtu: None,
        mtu_found: None,
        mtu_max: limits::MTU_MAX,
        frame_max: limits::FRAME_MAX,
        rx_offloads: Offloads::ALL,
        tx_offloads: Offloads::ALL,
        rx_fixed: Offloads::NONE,
    }
}

impl Fake {
    pub(super) fn new(number: usize, channels: u16, failures: &Countdown) -> (Self, Handle) {
        let state = Handle(Arc::default());
        let fake = Self {
            name: format!("fake:{number}"),
            // Give the last member the smallest identity, so that order and identity differ.
            identity: Some(format!("id-{}", 9 - number)),
            caps: caps(channels),
            state: state.clone(),
            failures: failures.clone(),
            stats: (0..channels).map(|_| Arc::default()).collect(),
        };
        (fake, state)
    }

    fn may_fail(&self, what: &str) -> Result<(), OpenChannelsError> {
        let mut failures = self.failures.lock().unwrap();
        match *failures {
            Some(0) => {
                *failures = None;
                Err(OpenChannelsError {
                    function: self.name.clone(),
                    what: format!("{what} failed"),
                })
            }
            Some(n) => {
                *failures = Some(n - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn must(&self, rule: bool, what: &str) {
        if !rule {
            self.state.get().wrong.push(format!("{}: {what}", self.name));
        }
    }

    fn channels(&self, count: u16) -> Vec<Channel> {
        let queue = |channel: u16| {
            self.state.get().queues += 1;
            let stats = self.stats[usize::from(channel)].clone();
            FakeQueue { channel, state: self.state.clone(), stats }
        };
        let channel = |number| Channel {
            rx: Rx::Syscall(Box::new(queue(number))),
            tx: Tx::Syscall(Box::new(queue(number))),
        };
        (0..count).map(channel).collect()
    }
}

impl Function for Fake {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        self.caps.clone()
    }

    fn poll_link(&mut self, _now: Duration) -> LinkStatus {
        let state = self.state.get();
        match state.up {
            true => LinkStatus::Up { session: state.session },
            false => LinkStatus::Down("no carrier".to_owned()),
        }
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let is_open = self.state.get().open.is_some();
        self.must(!is_open, "opened twice");
        self.must((1..=self.caps.channels).contains(&plan.channels), "opened with odd channels");
        self.may_fail("open")?;
        let mut state = self.state.get();
        (state.open, state.steered) = (Some(plan.channels), plan.channels);
        drop(state);
        Ok(self.channels(plan.channels))
    }

    fn close(&mut self, _why: &str) {
        let queues = self.state.get().queues;
        self.must(queues == 0, "closed with queues in use");
        let mut state = self.state.get();
        (state.open, state.prepared) = (None, None);
    }

    fn prepare(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        let state = self.state.get();
        let may = state.open.is_some() && state.prepared.is_none();
        drop(state);
        self.must(may, "prepared when closed, or twice");
        self.must((1..=self.caps.channels).contains(&plan.channels), "prepared odd channels");
        self.may_fail("prepare")?;
        self.state.get().prepared = Some(plan.channels);
        Ok(self.channels(plan.channels))
    }

    fn commit(&mut self) -> Result<(), OpenChannelsError> {
        let mut state = self.state.get();
        if let Some(next) = state.prepared.take() {
            state.open = Some(next);
        }
        drop(state);
        self.may_fail("commit")
    }

    fn abort(&mut self) {
        let prepared = self.state.get().prepared.take();
        self.must(prepared.is_some(), "aborted what was not prepared");
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }

    mqnet_netdev::facets!(steering, kernel_interface, placement);
}

impl Steering for Fake {
    fn steer(&mut self, channels: u16) -> Result<(), OpenChannelsError> {
        self.may_fail("steer")?;
        self.state.get().steered = channels;
        Ok(())
    }

    fn steers(&self) -> bool {
        self.state.get().table.is_none()
    }

    fn indirection(&self) -> Option<Indirection> {
        let state = self.state.get();
        let channels = state.open.unwrap_or(1);
        let table = state.table.as_ref()?.iter().map(|queue| queue % channels).collect();
        Some(Indirection { table, user_set: false, hash: "toeplitz" })
    }

    fn set_indirection(&mut self, table: &[u16], _user_set: bool) -> Result<(), OpenChannelsError> {
        if self.steers() {
            let what = "has no such table".to_owned();
            return Err(OpenChannelsError { function: self.name.clone(), what });
        }
        self.state.get().table = Some(table.to_vec());
        Ok(())
    }
}

impl KernelInterface for Fake {
    fn set_carrier(&mut self, up: bool) {
        self.state.get().carrier = up;
    }
}

impl Placement for Fake {
    fn identity(&self) -> Option<String> {
        self.identity.clone()
    }
}

struct FakeQueue {
    channel: u16,
    state: Handle,
    stats: Arc<QueuePairStats>,
}

impl Drop for FakeQueue {
    fn drop(&mut self) {
        self.state.get().queues -= 1;
    }
}

impl Queue for FakeQueue {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallRx for FakeQueue {
    fn recv(&mut self, _room: &mut Segments<'_>) -> Result<Recv, Fault> {
        Ok(Recv::Empty)
    }
}

impl SyscallTx for FakeQueue {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let mut state = self.state.get();
        if !state.up {
            return Err(Fault { channel: self.channel, what: "the device was lost".to_owned() });
        }
        let frames = burst.frames().len() - from;
        self.stats.tx.packets.add(frames as u64);
        state.sent_on = Some(self.channel);
        Ok(frames)
    }
}
