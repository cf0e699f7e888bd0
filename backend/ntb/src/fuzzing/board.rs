//! Hardware in memory, for tests: windows, scratchpads and doorbells of both ends.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use mqnet_shmem::{Area, MemoryMap, Region};
use mqnet_sysio::eventfd::EventFd;

use crate::hw::{
    Doorbell, Doorbells, Hw, HwLink, MemoryWindow, MemoryWindows, Outbound, TransportHw,
};

/// Number of doorbells. Doorbell 0 is for the link, 1 is unused, 2 and above are for the queue
/// pairs.
pub(crate) const VECTORS: usize = 32;
/// Number of scratchpads of each end.
pub(crate) const SPADS: usize = 64;
/// Offset of the windows in their regions.
const AT: usize = 4096;

/// State of the bridge that both ends use.
pub(crate) struct Board {
    /// Windows of mqnet's end.
    pub(crate) inbound: Vec<Arc<Region>>,
    pub(crate) size: u32,
    /// Memory of the peer behind each window; `None` until the peer sets it up.
    pub(crate) outbound: Mutex<Vec<Option<Outbound>>>,
    /// Scratchpads that the peer writes, followed by those that mqnet writes.
    pub(crate) spads: [Vec<AtomicU32>; 2],
    /// Number of times that mqnet rang each doorbell of the peer.
    pub(crate) rung: Vec<AtomicU64>,
    pub(crate) events: Vec<Arc<EventFd>>,
    /// Session of the hardware link; 0 while it is down.
    pub(crate) link: AtomicU64,
    pub(crate) resets: AtomicU64,
    /// Delay of the last reset, in milliseconds.
    pub(crate) rested: AtomicU64,
    /// True from a reset of the link until `link_up`.
    pub(crate) rests: AtomicBool,
    /// Board of the far end if that end is mqnet too. A doorbell signals the events of that board.
    far: OnceLock<Weak<Self>>,
}

fn memory(len: usize) -> Region {
    Region::private(len, false, None).unwrap_or_else(|e| panic!("memory of a test: {e}"))
}

fn event() -> EventFd {
    EventFd::new().unwrap_or_else(|e| panic!("an eventfd of a test: {e}"))
}

impl Board {
    pub(crate) fn new(windows: usize, size: u32) -> Arc<Self> {
        let region = |_| Arc::new(memory(AT + size as usize));
        let pads = || (0..SPADS).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self {
            inbound: (0..windows).map(region).collect(),
            size,
            outbound: Mutex::new(vec![None; windows]),
            spads: [pads(), pads()],
            rung: (0..VECTORS).map(|_| AtomicU64::new(0)).collect(),
            events: (0..VECTORS).map(|_| Arc::new(event())).collect(),
            link: AtomicU64::new(0),
            resets: AtomicU64::new(0),
            rested: AtomicU64::new(0),
            rests: AtomicBool::new(false),
            far: OnceLock::new(),
        })
    }

    /// Offset in a region of byte `at` of its window.
    pub(crate) fn place(at: u64) -> usize {
        AT + at as usize
    }

    /// Sets up memory behind a window: regions of the lengths `lens`, one after another. Returns
    /// the regions.
    pub(crate) fn map(&self, window: usize, lens: &[u64]) -> Vec<Arc<Region>> {
        let mut start = 0;
        let mut areas = Vec::new();
        for &len in lens {
            let region = Arc::new(memory(len as usize));
            areas.push(Area { start, len, region, offset: 0 });
            start += len;
        }
        let regions = areas.iter().map(|area| area.region.clone()).collect();
        let map = Arc::new(MemoryMap::new(areas).unwrap_or_default());
        self.outbound.lock().unwrap_or_else(PoisonError::into_inner)[window] =
            Some(Outbound { map, len: start as u32 });
        regions
    }

    /// Uses the windows of another board as the peer's memory, and its events as the peer's
    /// doorbells.
    pub(crate) fn join(&self, other: &Arc<Self>) {
        let out = |region: &Arc<Region>| {
            let region = region.clone();
            let area = Area { start: 0, len: other.size.into(), region, offset: AT };
            let map = MemoryMap::new(vec![area]).map(Arc::new).unwrap_or_default();
            Some(Outbound { map, len: other.size })
        };
        *self.outbound.lock().unwrap_or_else(PoisonError::into_inner) =
            other.inbound.iter().map(out).collect();
        let _ = self.far.set(Arc::downgrade(other));
    }

    pub(crate) fn link_up(&self) {
        self.spads.iter().flatten().for_each(|pad| pad.store(0, Release));
        self.outbound.lock().unwrap_or_else(PoisonError::into_inner).fill(None);
        self.rests.store(false, Release);
        self.link.fetch_add(1, AcqRel);
    }
}

struct FakeDoorbell(Arc<Board>, usize);

impl Doorbell for FakeDoorbell {
    fn ring(&self) -> std::io::Result<()> {
        self.0.rung[self.1].fetch_add(1, AcqRel);
        match self.0.far.get().and_then(Weak::upgrade) {
            Some(far) => far.events[self.1].ring(),
            None => Ok(()),
        }
    }
}

/// mqnet's end of the bridge.
pub(crate) struct Port(pub(crate) Arc<Board>);

impl Hw for Port {
    fn poll_link(&mut self, _now: Duration) -> HwLink {
        match self.0.link.load(Acquire) {
            _ if self.0.rests.load(Acquire) => HwLink::Down("at rest".to_owned()),
            0 => HwLink::Down("no guest".to_owned()),
            n => HwLink::Up(n),
        }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.0.events[0].as_fd()]
    }

    fn windows(&self) -> Option<MemoryWindows> {
        None
    }

    fn spad_read(&self, pad: usize) -> u32 {
        self.0.spads[0][pad].load(Acquire)
    }

    fn peer_spad_write(&self, pad: usize, value: u32) {
        self.0.spads[1][pad].store(value, Release);
    }

    fn peer_doorbell(&self, bit: usize) -> Option<Arc<dyn Doorbell>> {
        (bit < VECTORS).then(|| Arc::new(FakeDoorbell(self.0.clone(), bit)) as Arc<dyn Doorbell>)
    }

    fn doorbell_event(&self, bit: usize) -> Option<Arc<EventFd>> {
        self.0.events.get(bit).cloned()
    }

    fn reset(&mut self, _now: Duration, retry_after: Duration) {
        self.0.rested.store(retry_after.as_millis() as u64, Release);
        self.0.resets.fetch_add(1, AcqRel);
        self.0.rests.store(true, Release);
    }

    fn window_len(&self) -> u32 {
        self.0.size
    }

    fn is_second(&self) -> bool {
        false
    }

    fn transport(&self) -> Option<&dyn TransportHw> {
        Some(self)
    }
}

impl TransportHw for Port {
    fn window_count(&self) -> usize {
        self.0.inbound.len()
    }

    fn window_size(&self, _index: usize) -> u32 {
        self.0.size
    }

    fn window(&self, index: usize) -> Option<MemoryWindow> {
        Some(MemoryWindow {
            inbound: self.0.inbound.get(index)?.clone(),
            inbound_at: AT,
            inbound_len: self.0.size,
            outbound: self.0.outbound.lock().unwrap_or_else(PoisonError::into_inner)[index].clone(),
        })
    }

    fn spad_count(&self) -> usize {
        SPADS
    }

    fn spad_swap(&self, pad: usize, value: u32) -> u32 {
        self.0.spads[0][pad].swap(value, AcqRel)
    }

    fn peer_spad_read(&self, pad: usize) -> u32 {
        self.0.spads[1][pad].load(Acquire)
    }

    fn doorbells(&self) -> Doorbells {
        Doorbells { link: None, first_pair: 2, count: VECTORS }
    }

    fn doorbell_trap(&self, _bit: usize) -> Option<Arc<dyn crate::hw::DoorbellTrap>> {
        None
    }
}
