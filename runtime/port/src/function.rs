//! The port as the engine sees it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mqnet_netdev::limits::{CHANNELS_MAX, MTU_MIN, l2_header, room_for};
use mqnet_netdev::{
    Caps, Channel, ChannelStats, Function, Offloads, OpenError, Plan, Rx, Steering, Tx,
};
use mqnet_rings::mpsc::{self, Bell, Control};
use mqnet_rings::{Ringer, Waiter, spsc};
use mqnet_sysio::eventfd::EventFd;
use mqnet_wire::{Layer, VnetHdr};

use crate::end::{End, Error};
use crate::receiver::Receiver;
use crate::rx::PortRx;
use crate::sender::Sender;
use crate::tx::{PortTx, TxEnd};

/// Arm words of a port are of one life: its two sides never restart.
const GENERATION: u16 = 1;

/// How to open a port.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// What messages call it.
    pub name: String,
    /// Channels, 1..=64.
    pub channels: u16,
    /// What its frames begin with.
    pub layer: Layer,
    /// MTU of the link.
    pub mtu: u32,
    /// Frames that a queue holds, in each direction.
    pub depth: u32,
}

/// A frame and its memory.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) len: u32,
    pub(crate) hdr: VnetHdr,
}

impl Slot {
    fn new(bytes: u32) -> Self {
        let bytes = vec![0; bytes as usize].into_boxed_slice();
        Self { bytes, len: 0, hdr: VnetHdr::default() }
    }
}

/// A doorbell of a descriptor.
struct Ring(Arc<EventFd>);

impl Bell for Ring {
    fn ring(&self) {
        ring(&self.0);
    }
}

/// A doorbell of ours can always be rung: a full counter wakes as well.
fn ring(door: &EventFd) {
    let _ = door.ring();
}

/// What the two sides of one channel share.
pub(crate) struct Dock {
    pub(crate) arrivals: Control<Slot>,
    tx_end: Mutex<Option<TxEnd>>,
    pub(crate) end: Arc<End>,
    pub(crate) frame_max: u32,
    /// Frames of a queue.
    pub(crate) depth: u32,
    /// Bytes of a buffer to the program.
    room_bytes: u32,
    /// Wakes the worker.
    pub(crate) door: Arc<EventFd>,
    /// Wakes the receiver, and senders that wait in a poll loop.
    pub(crate) data: EventFd,
    pub(crate) room: Arc<EventFd>,
    /// The receiver waits for data, the lane for room.
    pub(crate) data_word: AtomicU64,
    pub(crate) room_word: AtomicU64,
    /// Bytes to the program, in all, and of those what it has dealt with.
    pub(crate) sent: AtomicU64,
    pub(crate) taken: AtomicU64,
}

impl fmt::Debug for Dock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dock")
    }
}

impl Dock {
    fn new(config: &PortConfig, end: &Arc<End>) -> io::Result<(Arc<Self>, Receiver)> {
        let frame_max = config.mtu + l2_header(config.layer);
        let room_bytes = room_for(frame_max);
        let (door, room) = (Arc::new(EventFd::new()?), Arc::new(EventFd::new()?));
        let bells = (Ring(door.clone()), Ring(room.clone()));
        let arrivals = mpsc::ring(config.depth, || Slot::new(frame_max), bells.0, bells.1);
        let (filled_tx, filled_rx) = spsc::ring(config.depth);
        let (mut empty_tx, empty_rx) = spsc::ring(config.depth);
        while empty_tx.push_one(Slot::new(room_bytes)).is_ok() {}
        let tx_end = TxEnd {
            filled: filled_tx,
            empty: empty_rx,
            spare: None,
            waiter: Waiter::new(GENERATION),
            ringer: Ringer::new(GENERATION),
        };
        let dock = Arc::new(Self {
            arrivals,
            tx_end: Mutex::new(Some(tx_end)),
            end: end.clone(),
            frame_max,
            depth: config.depth,
            room_bytes,
            door,
            data: EventFd::new()?,
            room,
            data_word: AtomicU64::new(0),
            room_word: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        });
        let receiver = Receiver {
            filled: filled_rx,
            empty: empty_tx,
            waiter: Waiter::new(GENERATION),
            ringer: Ringer::new(GENERATION),
            dock: dock.clone(),
        };
        Ok((dock, receiver))
    }

    pub(crate) fn tx_end(&self) -> MutexGuard<'_, Option<TxEnd>> {
        self.tx_end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that wait for the program.
    pub(crate) fn used(&self) -> u32 {
        // First what was taken: nothing is taken before it was sent, so the difference cannot be
        // negative, whichever side asks.
        let taken = self.taken.load(Ordering::Acquire);
        self.sent.load(Ordering::Acquire).saturating_sub(taken).min(u64::from(self.size())) as u32
    }

    /// Most bytes that can wait.
    pub(crate) fn size(&self) -> u32 {
        self.depth * self.room_bytes
    }

    pub(crate) fn ring_worker(&self) {
        ring(&self.door);
    }

    pub(crate) fn ring_receiver(&self) {
        ring(&self.data);
    }
}

/// Ends a port from outside.
#[derive(Clone, Debug)]
pub(crate) struct Closer {
    docks: Vec<Arc<Dock>>,
    end: Arc<End>,
}

impl Closer {
    /// The worker's doorbell of a channel.
    #[cfg(test)]
    pub(crate) fn door(&self, channel: usize) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&*self.docks[channel].door)
    }

    /// Senders and receivers hear it.
    pub(crate) fn close(&self, error: Error) {
        self.end.set(error);
        for dock in &self.docks {
            dock.arrivals.close();
            dock.ring_receiver();
        }
    }
}

/// The port as a function.
#[derive(Debug)]
pub struct PortFunction {
    config: PortConfig,
    docks: Vec<Arc<Dock>>,
    end: Arc<End>,
    stats: Vec<Arc<ChannelStats>>,
}

impl PortFunction {
    /// Opens a port: the function, and the program's ends of its channels.
    pub fn open(config: PortConfig) -> Result<(Self, Vec<(Receiver, Sender)>), OpenError> {
        let fail = |what: String| OpenError { function: config.name.clone(), what };
        let check = |what: &str, value: u32, min: u32, max: u32| {
            let fits = (min..=max).contains(&value);
            if fits { Ok(()) } else { Err(fail(format!("{what}: {value}: {min} to {max}"))) }
        };
        check("queues", config.channels.into(), 1, CHANNELS_MAX.into())?;
        let mtu_max = mqnet_netdev::limits::mtu_max(config.layer);
        check("mtu", config.mtu, MTU_MIN, mtu_max)?;
        check("depth", config.depth, 2, 1 << 14)?;
        let end = Arc::new(End::default());
        let (mut docks, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..config.channels {
            let made = Dock::new(&config, &end);
            let (dock, receiver) = made.map_err(|e| fail(format!("descriptors: {e}")))?;
            ends.push((receiver, Sender::new(&dock)));
            docks.push(dock);
        }
        let stats = docks.iter().map(|_| Arc::default()).collect();
        Ok((Self { config, docks, end, stats }, ends))
    }

    pub(crate) fn closer(&self) -> Closer {
        Closer { docks: self.docks.clone(), end: self.end.clone() }
    }

    fn error(&self, what: &str) -> OpenError {
        OpenError { function: self.config.name.clone(), what: what.to_owned() }
    }
}

impl Function for PortFunction {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn caps(&self) -> Caps {
        let frame_max = self.config.mtu + l2_header(self.config.layer);
        Caps {
            layer: self.config.layer,
            channels: self.config.channels,
            wanted: Some(self.config.channels),
            mtu: Some(self.config.mtu),
            mtu_found: None,
            mtu_max: self.config.mtu,
            frame_max,
            // The program sees finished frames only: the other side cuts them.
            rx_offloads: Offloads::NONE,
            tx_offloads: Offloads::NONE,
            rx_fixed: Offloads::NONE,
        }
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenError> {
        plan.check_channels(&self.config.name, self.config.channels)?;
        let mut channels = Vec::new();
        for (dock, stats) in self.docks.iter().zip(&self.stats).take(plan.channels.into()) {
            let taken = || self.error("a queue is still in use by an older life of the link");
            let ring = dock.arrivals.attach().ok_or_else(taken)?;
            let end = dock.tx_end().take().ok_or_else(taken)?;
            let rx = PortRx { ring, door: dock.door.clone(), stats: stats.clone() };
            let (dock, stats) = (dock.clone(), stats.clone());
            let tx = PortTx { end: Some(end), dock, held: None, unseen: 0, stats };
            channels.push(Channel { rx: Rx::Brings(Box::new(rx)), tx: Tx::Brings(Box::new(tx)) });
        }
        Ok(channels)
    }

    fn prepare(&mut self, _plan: &Plan) -> Result<Vec<Channel>, OpenError> {
        Err(self.error("the channels of a port inside a program are fixed: open it anew"))
    }

    fn stats(&self) -> &[Arc<ChannelStats>] {
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
}
