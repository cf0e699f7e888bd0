//! Channel state shared by the queues of the port and the program.

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

/// Generation of the arm words. Both sides of a port have the same lifetime, so one generation is
/// enough.
const GENERATION: u16 = 1;

/// Rings of a channel for frames to the program. The rings exist once per channel and pass from one
/// TX queue to the next.
#[derive(Debug)]
pub(crate) struct TxRings {
    pub(crate) filled: spsc::SpscProducer<Slot>,
    pub(crate) empty: spsc::SpscConsumer<Slot>,
    /// Slot that was reserved and not committed.
    pub(crate) spare: Option<Slot>,
    pub(crate) waiter: Waiter,
    pub(crate) ringer: Ringer,
}

/// Receiver's ends of the rings in [`TxRings`].
#[derive(Debug)]
pub(crate) struct ReceiverRings {
    pub(crate) filled: spsc::SpscConsumer<Slot>,
    pub(crate) empty: spsc::SpscProducer<Slot>,
    pub(crate) waiter: Waiter,
    pub(crate) ringer: Ringer,
}

/// Frame buffer with the length and the header of its frame.
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

/// Waker that signals an eventfd.
struct Wakeup(Arc<EventFd>);

impl Waker for Wakeup {
    fn ring(&self) {
        ring(&self.0);
    }
}

/// Signals an eventfd of this process. Errors are ignored: they mean that the counter is full, and
/// a full counter wakes as well.
fn ring(event: &EventFd) {
    let _ = event.ring();
}

/// Limits of a channel. The control thread changes the limits while the program sends.
///
/// The alignment is two cache lines: senders read the limits for every frame, and must not share a
/// line with the byte counters.
#[derive(Debug)]
#[repr(align(128))]
struct Limits {
    is_in_use: AtomicBool,
    frame_max: AtomicU32,
}

/// Channel of a port.
pub(crate) struct PortChannel {
    /// Ring of the frames that the program sends.
    pub(crate) arrivals: Control<Slot>,
    /// Consumer of `arrivals` while no RX queue of the channel has it.
    pub(crate) consumer: HandOver<MpscConsumer<Slot>>,
    /// Rings for frames to the program while no TX queue of the channel has them.
    pub(crate) tx_rings: HandOver<TxRings>,
    pub(crate) close_reason: Arc<CloseReason>,
    limits: Limits,
    /// Capacity of a queue in frames.
    pub(crate) depth: u32,
    /// Size of a slot for received frames in bytes.
    slot_bytes: u32,
    /// Event that wakes the worker.
    pub(crate) worker_event: Arc<EventFd>,
    /// Event that wakes the receiver.
    pub(crate) data_event: EventFd,
    /// Event that wakes senders in a poll loop.
    pub(crate) room_event: Arc<EventFd>,
    /// Arm word of the receiver, which waits for frames.
    pub(crate) data_word: AtomicU64,
    /// Arm word of the lane, which waits for free slots.
    pub(crate) room_word: AtomicU64,
    /// Total number of bytes sent to the program.
    pub(crate) sent: AtomicU64,
    /// Total number of bytes that the program has released.
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

    /// True if no queue has the consumer or the rings of the channel.
    pub(crate) fn is_parked(&self) -> bool {
        self.consumer.with(|_| ()).is_some() && self.tx_rings.with(|_| ()).is_some()
    }

    /// True if the channel is in use.
    #[inline]
    pub(crate) fn is_in_use(&self) -> bool {
        // Pairs with the Release in set_in_use: a sender that the change woke reads the new value.
        self.limits.is_in_use.load(Ordering::Acquire)
    }

    /// Sets the use of the channel. Wakes waiting senders if the value changes.
    pub(crate) fn set_in_use(&self, on: bool) {
        // Pairs with the Acquire in is_in_use: woken senders read the new value.
        if self.limits.is_in_use.swap(on, Ordering::Release) != on {
            self.arrivals.wake_senders();
        }
    }

    /// Length of the longest allowed frame in bytes.
    #[inline]
    pub(crate) fn frame_max(&self) -> u32 {
        // Relaxed: no other data depends on this value.
        self.limits.frame_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_frame_max(&self, bytes: u32) {
        self.limits.frame_max.store(bytes, Ordering::Relaxed);
    }

    /// Returns the error for a sender on a channel that is not in use: the reason if the port was
    /// closed.
    #[cold]
    pub(crate) fn not_in_use(&self) -> Error {
        self.close_reason.get().unwrap_or(Error::NotInUse)
    }

    /// Number of bytes sent to the program and not released.
    pub(crate) fn used(&self) -> u32 {
        // Load `taken` first: bytes are counted in `sent` before they can be taken, so the
        // difference is never negative. Pairs with the Release in Receiver::release.
        let taken = self.taken.load(Ordering::Acquire);
        self.sent.load(Ordering::Acquire).saturating_sub(taken).min(u64::from(self.size())) as u32
    }

    /// Capacity of the slots for the program in bytes.
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
