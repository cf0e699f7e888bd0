//! State of one channel that the queues of the port share with the program.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use mqnet_netdev::HandOver;
use mqnet_netdev::limits::{l2_header, room_for};
use mqnet_rings::mpsc::{self, Control, MpscConsumer, Waker};
use mqnet_rings::{Ringer, Waiter, spsc};
use mqnet_sysio::eventfd::EventFd;
use mqnet_wire::VnetHdr;

use crate::config::PortConfig;
use crate::error::{CloseReason, Error};

/// Generation of the arm words. Both sides of a port live equally long, so one is enough.
const GENERATION: u16 = 1;

/// Rings of a channel to the program. They exist once per channel and pass from queue to queue.
#[derive(Debug)]
pub(crate) struct TxRings {
    pub(crate) filled: spsc::SpscProducer<Slot>,
    pub(crate) empty: spsc::SpscConsumer<Slot>,
    /// Slot that was reserved and not committed.
    pub(crate) spare: Option<Slot>,
    pub(crate) waiter: Waiter,
    pub(crate) ringer: Ringer,
}

/// Rings of a channel from the program: the other ends of [`TxRings`].
#[derive(Debug)]
pub(crate) struct ReceiverRings {
    pub(crate) filled: spsc::SpscConsumer<Slot>,
    pub(crate) empty: spsc::SpscProducer<Slot>,
    pub(crate) waiter: Waiter,
    pub(crate) ringer: Ringer,
}

/// One frame and its memory.
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

/// Wake-up by an eventfd.
struct Wakeup(Arc<EventFd>);

impl Waker for Wakeup {
    fn ring(&self) {
        ring(&self.0);
    }
}

/// Signals an own eventfd. An error means that its counter is full, and a full counter wakes too.
fn ring(event: &EventFd) {
    let _ = event.ring();
}

/// Limits of a channel, which the control thread changes while the program sends.
///
/// Aligned to a pair of cache lines: senders read the limits for every frame, and must not share
/// their line with the byte counters.
#[derive(Debug)]
#[repr(align(128))]
struct Limits {
    is_in_use: AtomicBool,
    frame_max: AtomicU32,
}

/// One channel of a port.
pub(crate) struct PortChannel {
    /// Ring of the frames that the program sends.
    pub(crate) arrivals: Control<Slot>,
    /// Consumer of `arrivals`, between two RX queues of the channel.
    pub(crate) consumer: HandOver<MpscConsumer<Slot>>,
    /// Rings of the frames that the program receives, between two TX queues of the channel.
    pub(crate) tx_rings: HandOver<TxRings>,
    pub(crate) close_reason: Arc<CloseReason>,
    limits: Limits,
    /// Capacity of a queue in frames.
    pub(crate) depth: u32,
    /// Size of a slot for received frames in bytes.
    slot_bytes: u32,
    /// Wakes the worker.
    pub(crate) worker_event: Arc<EventFd>,
    /// Wakes the receiver.
    pub(crate) data_event: EventFd,
    /// Wakes senders that wait in a poll loop.
    pub(crate) room_event: Arc<EventFd>,
    /// Arm word of the receiver, which waits for data.
    pub(crate) data_word: AtomicU64,
    /// Arm word of the lane, which waits for room.
    pub(crate) room_word: AtomicU64,
    /// Bytes sent to the program so far.
    pub(crate) sent: AtomicU64,
    /// Bytes that the program has released so far.
    pub(crate) taken: AtomicU64,
}

impl fmt::Debug for PortChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PortChannel")
    }
}

impl PortChannel {
    pub(crate) fn new(
        config: &PortConfig,
        close_reason: &Arc<CloseReason>,
    ) -> io::Result<(Arc<Self>, ReceiverRings)> {
        let l2_header = l2_header(config.layer);
        let slot_max = config.mtu_max + l2_header;
        let slot_bytes = room_for(slot_max);
        let worker_event = Arc::new(EventFd::new()?);
        let room_event = Arc::new(EventFd::new()?);
        let wakeups = (Wakeup(worker_event.clone()), Wakeup(room_event.clone()));
        let arrivals = mpsc::ring(config.depth, || Slot::new(slot_max), wakeups.0, wakeups.1);
        let consumer = arrivals.attach().ok_or(io::ErrorKind::ResourceBusy)?;
        let (filled_tx, filled_rx) = spsc::ring(config.depth);
        let (mut empty_tx, empty_rx) = spsc::ring(config.depth);
        while empty_tx.push_one(Slot::new(slot_bytes)).is_ok() {}
        let tx_rings = TxRings {
            filled: filled_tx,
            empty: empty_rx,
            spare: None,
            waiter: Waiter::new(GENERATION),
            ringer: Ringer::new(GENERATION),
        };
        let limits = Limits {
            is_in_use: AtomicBool::new(true),
            frame_max: AtomicU32::new(config.mtu + l2_header),
        };
        let channel = Arc::new(Self {
            arrivals,
            consumer: HandOver::new(consumer),
            tx_rings: HandOver::new(tx_rings),
            close_reason: close_reason.clone(),
            limits,
            depth: config.depth,
            slot_bytes,
            worker_event,
            data_event: EventFd::new()?,
            room_event,
            data_word: AtomicU64::new(0),
            room_word: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        });
        let rings = ReceiverRings {
            filled: filled_rx,
            empty: empty_tx,
            waiter: Waiter::new(GENERATION),
            ringer: Ringer::new(GENERATION),
        };
        Ok((channel, rings))
    }

    /// True while no queue of the channel has its rings.
    pub(crate) fn is_parked(&self) -> bool {
        self.consumer.with(|_| ()).is_some() && self.tx_rings.with(|_| ()).is_some()
    }

    /// True while the channel is in use.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        // Pairs with the Release in set_in_use: a sender that was woken by the change sees it.
        self.limits.is_in_use.load(Ordering::Acquire)
    }

    /// Sets whether the channel is in use, and wakes the senders that wait.
    pub(crate) fn set_in_use(&self, on: bool) {
        // Pairs with the Acquire in is_in_use: the wake-up follows the change.
        if self.limits.is_in_use.swap(on, Ordering::Release) != on {
            self.arrivals.wake_senders();
        }
    }

    /// Length of the largest frame in bytes.
    #[inline]
    pub(crate) fn frame_max(&self) -> u32 {
        // A value of its own: no other data depends on it.
        self.limits.frame_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_frame_max(&self, bytes: u32) {
        self.limits.frame_max.store(bytes, Ordering::Relaxed);
    }

    /// Error of a sender on a channel that is not in use.
    #[cold]
    pub(crate) fn not_in_use(&self) -> Error {
        self.close_reason.get().unwrap_or(Error::NotInUse)
    }

    /// Bytes that wait for the program.
    pub(crate) fn used(&self) -> u32 {
        // `taken` is read first: no byte is taken before it was sent, so the difference cannot be
        // negative, on either side. Pairs with the Release in Receiver::release.
        let taken = self.taken.load(Ordering::Acquire);
        self.sent.load(Ordering::Acquire).saturating_sub(taken).min(u64::from(self.size())) as u32
    }

    /// Largest number of bytes that can wait.
    pub(crate) fn size(&self) -> u32 {
        self.depth * self.slot_bytes
    }

    pub(crate) fn wake_worker(&self) {
        ring(&self.worker_event);
    }

    pub(crate) fn wake_receiver(&self) {
        ring(&self.data_event);
    }
}
