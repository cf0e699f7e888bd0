//! Simulated host. The host sends numbered frames of many flows; an indirection table distributes
//! the flows to queues as in a NIC. The host checks that each received flow is complete and in
//! order.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mqnet_netdev::limits::{CHANNELS_MAX, FRAME_MAX, MTU_MAX};
use mqnet_netdev::{
    Armed, Burst, Caps, Channel, Fault, Function, Offloads, OpenChannelsError, OwningRx, Plan,
    Queue, QueuePairStats, Rx, Steering, SyscallTx, Trigger, Tx, WakeSource,
};
use mqnet_shmem::{Span, SpanMut};
use mqnet_sysio::eventfd::EventFd;
use mqnet_wire::{Layer, VnetHdr};

/// Number of buckets of the indirection table.
const BUCKETS: usize = 128;
/// Capacity of a queue in frames.
const DEPTH: usize = 500;
const FRAME: usize = 64;
/// Bytes of Ethernet, IPv4 and UDP headers, used by qdiscs to classify flows.
const HEADERS: usize = 42;

/// Frame `number` of a flow.
fn frame(flow: u32, number: u64) -> [u8; FRAME] {
    let mut frame = [0x5a; FRAME];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    // 50 bytes of UDP over IPv4 from 10.0.0.1 to 10.0.0.2, ECN-capable.
    frame[14..24].copy_from_slice(&[0x45, 2, 0, 50, 0, 0, 0x40, 0, 64, 17]);
    frame[24..34].copy_from_slice(&[0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&(1000 + flow as u16).to_be_bytes());
    frame[36..42].copy_from_slice(&[0, 9, 0, 30, 0, 0]);
    frame[HEADERS..HEADERS + 4].copy_from_slice(&flow.to_le_bytes());
    frame[HEADERS + 4..HEADERS + 12].copy_from_slice(&number.to_le_bytes());
    frame
}

/// Call that fails the next time it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Creation of the new queues.
    Prepare,
    /// Steering of the flows.
    Steer,
}

/// State of the host's kernel.
#[derive(Debug, Default)]
pub struct State {
    queues: Vec<VecDeque<[u8; FRAME]>>,
    table: Vec<u16>,
    next: HashMap<u32, u64>,
    /// Number of frames put into queues.
    pub sent: u64,
    /// Number of frames received.
    pub received: u64,
    expected: HashMap<u32, u64>,
    /// Descriptions of the first frames that were out of order, duplicated or missing.
    pub wrong: Vec<String>,
    /// Duration of the creation of queues.
    pub prepare_takes: Duration,
    /// Call that fails next.
    pub fail: Option<Failure>,
    /// Number of queues in the indirection table.
    pub steered_to: u16,
    /// Bit mask of queues that accept no frames.
    pub stalled: u64,
}

/// Simulated host with one function.
#[derive(Clone, Debug)]
pub struct Flows {
    state: Arc<Mutex<State>>,
    stats: Vec<Arc<QueuePairStats>>,
    /// Events of the queues, signalled when a queue gets a frame.
    events: Vec<Arc<EventFd>>,
}

impl Default for Flows {
    fn default() -> Self {
        Self::new()
    }
}

impl Flows {
    /// Creates a host.
    pub fn new() -> Self {
        let state = State {
            queues: vec![VecDeque::new(); usize::from(CHANNELS_MAX)],
            table: vec![0; BUCKETS],
            steered_to: 1,
            ..State::default()
        };
        let stats = (0..CHANNELS_MAX).map(|_| Arc::default()).collect();
        let events =
            (0..CHANNELS_MAX).map(|_| Arc::new(EventFd::new().expect("eventfd"))).collect();
        Self { state: Arc::new(Mutex::new(state)), stats, events }
    }

    /// Returns the locked state of the host.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }

    /// Sends the next frame of a flow, unless the queue of the flow is full.
    pub fn send(&self, flow: u32) {
        let mut state = self.state();
        let queue = usize::from(state.table[flow as usize % BUCKETS]);
        if state.queues[queue].len() >= DEPTH {
            return;
        }
        let number = state.next.entry(flow).or_default();
        let frame = frame(flow, *number);
        *number += 1;
        state.queues[queue].push_back(frame);
        state.sent += 1;
        self.events[queue].ring().expect("an eventfd");
    }
}

impl State {
    /// Sets the number of queues in the table. Moves buckets away from removed queues, or to new
    /// queues; other buckets keep their queues.
    fn steer(&mut self, queues: u16) {
        let mut load = vec![0usize; usize::from(CHANNELS_MAX)];
        self.table.iter().for_each(|&queue| load[usize::from(queue)] += 1);
        let (before, fair) = (self.steered_to, BUCKETS.div_ceil(usize::from(queues)));
        for bucket in 0..BUCKETS {
            let now = usize::from(self.table[bucket]);
            let must = now >= usize::from(queues) || (queues > before && load[now] > fair);
            let places = if queues > before { before..queues } else { 0..queues };
            let best = places.map(usize::from).min_by_key(|&queue| load[queue]);
            if let (true, Some(best)) = (must, best) {
                load[now] -= 1;
                load[best] += 1;
                self.table[bucket] = best as u16;
            }
        }
        self.steered_to = queues;
    }

    /// Number of received frames of a flow.
    pub fn arrived(&self, flow: u32) -> u64 {
        self.expected.get(&flow).copied().unwrap_or(0)
    }

    /// Queue of a flow in the indirection table.
    pub fn queue_of(&self, flow: u32) -> u16 {
        self.table[flow as usize % BUCKETS]
    }

    fn arrive(&mut self, bytes: &[u8]) {
        let bytes = &bytes[HEADERS..];
        let flow = u32::from_le_bytes(bytes[..4].try_into().expect("four"));
        let number = u64::from_le_bytes(bytes[4..12].try_into().expect("eight"));
        let expected = self.expected.entry(flow).or_default();
        if number != *expected && self.wrong.len() < 5 {
            self.wrong.push(format!("flow {flow}: {number} where {expected} was due"));
        }
        *expected = number + 1;
        self.received += 1;
    }
}

impl Function for Flows {
    fn name(&self) -> &str {
        "flows"
    }

    fn caps(&self) -> Caps {
        Caps {
            layer: Layer::Ethernet,
            channels: CHANNELS_MAX,
            wanted: None,
            mtu: None,
            mtu_found: None,
            mtu_max: MTU_MAX,
            frame_max: FRAME_MAX,
            rx_offloads: Offloads::ALL,
            tx_offloads: Offloads::ALL,
            rx_fixed: Offloads::NONE,
        }
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        self.state().steer(plan.channels);
        self.prepare(plan)
    }

    fn prepare(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        self.fails(Failure::Prepare)?;
        // A long duration lets idle lanes fall asleep during the call.
        let takes = self.state().prepare_takes;
        std::thread::sleep(takes);
        let channel = |queue: u16| {
            let stats = self.stats[usize::from(queue)].clone();
            let state = self.state.clone();
            let event = self.events[usize::from(queue)].clone();
            let shown = Vec::new();
            let rx = FlowsRx { queue, state: state.clone(), event, shown, stats: stats.clone() };
            Channel {
                rx: Rx::Owning(Box::new(rx)),
                tx: Tx::Syscall(Box::new(FlowsTx { queue, state, stats })),
            }
        };
        Ok((0..plan.channels).map(channel).collect())
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }

    mqnet_netdev::facets!(steering);
}

impl Steering for Flows {
    fn steer(&mut self, channels: u16) -> Result<(), OpenChannelsError> {
        self.fails(Failure::Steer)?;
        self.state().steer(channels);
        Ok(())
    }
}

impl Flows {
    fn fails(&self, here: Failure) -> Result<(), OpenChannelsError> {
        let mut state = self.state();
        if state.fail != Some(here) {
            return Ok(());
        }
        state.fail = None;
        Err(OpenChannelsError { function: "flows".into(), what: format!("injected: {here:?}") })
    }
}

struct FlowsRx {
    queue: u16,
    state: Arc<Mutex<State>>,
    event: Arc<EventFd>,
    shown: Vec<[u8; FRAME]>,
    stats: Arc<QueuePairStats>,
}

impl Queue for FlowsRx {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        let empty = self.state.lock().expect("state").queues[usize::from(self.queue)].is_empty();
        Ok(if empty { Armed::Sleep } else { Armed::MoreWork })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(WakeSource { fd: self.event.as_fd(), trigger: Trigger::Edge })
    }
}

impl OwningRx for FlowsRx {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let state = self.state.lock().expect("state");
        self.shown.clear();
        self.shown.extend(state.queues[usize::from(self.queue)].iter().take(budget));
        for frame in &self.shown {
            burst.push(VnetHdr::default(), FRAME as u32, Span::of(frame));
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        let mut state = self.state.lock().expect("state");
        state.queues[usize::from(self.queue)].drain(..frames);
        self.stats.rx.packets.add(frames as u64);
        self.stats.rx.bytes.add((frames * FRAME) as u64);
        Ok(())
    }
}

struct FlowsTx {
    queue: u16,
    state: Arc<Mutex<State>>,
    stats: Arc<QueuePairStats>,
}

impl Queue for FlowsTx {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallTx for FlowsTx {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let frames = &burst.frames()[from..];
        if self.state.lock().expect("state").stalled >> self.queue & 1 == 1 {
            return Ok(0);
        }
        for frame in frames {
            let mut bytes = [0u8; FRAME];
            let n = SpanMut::of(&mut bytes).copy_from(frame.head);
            if let Some(piece) = burst.more(frame).first() {
                SpanMut::of(&mut bytes[n..]).copy_from(*piece);
            }
            self.state.lock().expect("state").arrive(&bytes);
        }
        self.stats.tx.packets.add(frames.len() as u64);
        self.stats.tx.bytes.add((frames.len() * FRAME) as u64);
        Ok(frames.len())
    }
}
