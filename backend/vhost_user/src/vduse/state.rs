//! State of the VDUSE device and the rings of its one queue pair. The service thread and the
//! control thread share the state under one lock, which the data path never takes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mqnet_shmem::{Area, AtomicTable, MemoryMap, Region};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::vduse::{self, QueueSetup, Range};
use mqnet_sysio::{clock, poll};
use mqnet_virtio::Features;
use mqnet_virtio::layout::{self, ALIGN};

use crate::recover;
use crate::vring::{Vring, VringCell, VringSetup};

/// Number of rings: the driver's receive and transmit queue.
pub(super) const RINGS: usize = 2;

/// Device status bits of the driver (virtio 1.3, section 2.1).
const DRIVER_OK: u8 = 4;
const FAILED: u8 = 0x80;
/// Status of a running driver, assumed for a driver that started before this process.
const RUNNING: u8 = 0xf;

/// Largest number of address ranges. Drivers use one for buffers and one or two for each ring.
const RANGES_MAX: usize = 256;

/// Smallest length of a range that holds buffers; ranges of rings are shorter. The kernel's own
/// driver creates the buffer range with the first buffer, long after its start.
const BUFFERS_MIN: u64 = 1 << 20;

/// Time after which a request that waits for a ring also stops the link. Workers return a ring at
/// their next poll, but a worker that waits for a full sink does not poll.
const STOP_DELAY: Duration = Duration::from_millis(300);

/// Time limit of a kernel request that waits for a ring. The limit is between the 5 s that a
/// stopping link waits for a hung worker, and the 30 s that the kernel waits for the device.
const WAIT_MAX: Duration = Duration::from_secs(8);

/// Position of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Base {
    /// Position that the driver has set.
    #[default]
    Fresh,
    /// Position at which this process stopped.
    Left(u32),
    /// Unknown position of an earlier process, which is recovered from the ring.
    Forgotten,
}

/// Ring of the device.
#[derive(Debug)]
pub(super) struct Slot {
    /// Hand-over cell of the ring.
    pub(super) cell: Arc<VringCell>,
    base: Base,
    pub(super) size: u16,
    served: bool,
}

/// Device state.
#[derive(Debug)]
pub(super) struct State {
    pub(super) features: Option<Features>,
    status: u8,
    pub(super) slots: [Slot; RINGS],
    regions: Vec<Arc<Region>>,
    /// True while the driver runs and has provided no buffers yet.
    pub(super) idle: bool,
    /// True if the driver is a user-space program, which maps its memory in ranges of any size
    /// before it starts. A remap request identifies such a program: the kernel sends none for its
    /// own driver.
    mapped: bool,
    /// Session counter of the link; a new value closes and reopens the link.
    pub(super) session: u64,
    /// True while a request waits until the link has returned its rings.
    waiting: bool,
    /// True while the rings are briefly out of service; the link stays up.
    between: bool,
    /// Reason why the device is closed until the driver restarts: a violation, an invalid setup,
    /// lost memory, or rings that the link did not return.
    pub(super) broken: Option<String>,
    /// Reason why the mapped memory does not cover the rings; the driver may map more.
    unmapped: Option<String>,
}

/// Device state with its lock, the eventfd of the control thread, and the device.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Wakes the control thread.
    pub(super) wake: EventFd,
    pub(super) device: Arc<OwnedFd>,
}

impl State {
    /// Reason why the link is down; `None` if it can be up.
    pub(super) fn why_down(&self) -> Option<String> {
        if self.waiting {
            return Some("the kernel is changing queues or memory".to_owned());
        }
        if let Some(why) = &self.broken {
            return Some(format!("{why}: closed until the driver restarts (unbind and bind it)"));
        }
        if let Some(why) = &self.unmapped {
            return Some(format!("{why}: closed until the driver maps the missing memory"));
        }
        if self.status & FAILED != 0 {
            let status = self.status;
            return Some(format!("the driver refuses the device (status {status:#x}, see dmesg)"));
        }
        if self.idle {
            return Some("the netdev is not up (ip link set DEV up)".to_owned());
        }
        if self.between || self.are_served() {
            return None;
        }
        Some(match self.status {
            0 => "no driver is bound to the device (modprobe virtio_vdpa virtio_net)".to_owned(),
            _ => "the driver is starting".to_owned(),
        })
    }

    fn are_served(&self) -> bool {
        self.slots.iter().all(|slot| slot.served)
    }

    /// True if the kernel has removed memory with buffers.
    pub(super) fn is_memory_lost(&self) -> bool {
        self.regions.iter().any(|region| region.is_lost())
    }

    fn collect(&mut self) -> bool {
        let mut all = true;
        for slot in self.slots.iter_mut().filter(|slot| slot.served) {
            match slot.cell.take() {
                Some(vring) => (slot.base, slot.served) = (Base::Left(vring.base()), false),
                None => all = false,
            }
        }
        all
    }

    fn reset(&mut self) {
        (self.features, self.broken, self.status, self.idle) = (None, None, 0, false);
        (self.mapped, self.unmapped, self.between) = (false, None, false);
        self.regions.clear();
        self.slots.iter_mut().for_each(|slot| slot.base = Base::Fresh);
        self.session += 1;
    }
}

impl Shared {
    pub(super) fn new(device: OwnedFd) -> io::Result<Self> {
        let slot = || -> io::Result<Slot> {
            let cell = Arc::new(VringCell::new()?);
            Ok(Slot { cell, base: Base::Fresh, size: 0, served: false })
        };
        let state = State {
            features: None,
            status: 0,
            slots: [slot()?, slot()?],
            regions: Vec::new(),
            idle: false,
            mapped: false,
            session: 0,
            waiting: false,
            between: false,
            broken: None,
            unmapped: None,
        };
        Ok(Self { state: Mutex::new(state), wake: EventFd::new()?, device: Arc::new(device) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is usable: each change of the state is a few assignments, which do not
        // panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the control thread.
    fn wake_control(&self) {
        // An error is ignored: writing to this process's own eventfd does not fail.
        let _ = self.wake.ring();
    }

    /// Takes all rings out of service and returns the locked state. `Err` if a queue does not
    /// return its ring in time. The link goes down only if this wait takes longer than
    /// [`STOP_DELAY`].
    fn pause(&self) -> Result<MutexGuard<'_, State>, String> {
        let mut state = self.lock();
        // The caller takes the rings of a running driver into service again, so the link stays up.
        state.between = state.are_served() && state.status & DRIVER_OK != 0;
        // An error is ignored: writing to this process's own eventfd does not fail.
        state.slots.iter().filter(|slot| slot.served).for_each(|slot| drop(slot.cell.recall()));
        let since = clock::monotonic();
        while !state.collect() {
            let waited = clock::monotonic().saturating_sub(since);
            if waited > WAIT_MAX {
                let why = "the link did not return its queues in time";
                // A queue may still have a ring, so no ring is served before the driver starts
                // again.
                (state.waiting, state.broken) = (false, Some(why.to_owned()));
                self.wake_control();
                return Err(why.to_owned());
            }
            if waited > STOP_DELAY && !state.waiting {
                (state.waiting, state.session) = (true, state.session + 1);
                state.between = false;
                self.wake_control();
            }
            drop(state);
            poll::pause(Duration::from_micros(200));
            state = self.lock();
        }
        if std::mem::take(&mut state.waiting) {
            self.wake_control();
        }
        Ok(state)
    }

    /// Prepares for a new status. With status 0 the driver takes back its rings and its memory.
    pub(super) fn before_status(&self, status: u8) -> Result<(), String> {
        tracing::debug!("vduse: status {status:#x}");
        if status == 0 {
            self.pause()?.reset();
        }
        Ok(())
    }

    /// Records the new status after the reply, and takes the rings of a starting driver into
    /// service.
    pub(super) fn after_status(&self, status: u8) {
        let mut state = self.lock();
        let starts = status & DRIVER_OK != 0 && state.status & DRIVER_OK == 0;
        state.status = status;
        if starts {
            self.serve(&mut state);
        }
        drop(state);
        self.wake_control();
    }

    /// Prepares for changed mappings.
    pub(super) fn before_remap(&self) -> Result<(), String> {
        self.pause().map(drop)
    }

    /// Takes the rings into service with the changed mappings, after the reply.
    pub(super) fn after_remap(&self) {
        let mut state = self.lock();
        state.mapped = true;
        if state.status & DRIVER_OK != 0 {
            self.serve(&mut state);
        }
        drop(state);
        self.wake_control();
    }

    /// Position of a ring in VDUSE's format; `Err` if the ring does not exist, or is not returned
    /// in time.
    pub(super) fn queue_state(&self, index: u32) -> Result<[u16; 4], String> {
        let at = usize::try_from(index).ok().filter(|&at| at < RINGS);
        let at = at.ok_or(format!("queue {index} does not exist"))?;
        let mut state = self.pause()?;
        let packed = state.features.is_some_and(|features| features.has(Features::RING_PACKED));
        let base = match state.slots[at].base {
            Base::Left(base) => base as u16,
            Base::Fresh | Base::Forgotten => {
                if packed {
                    1 << 15
                } else {
                    0
                }
            }
        };
        if state.status & DRIVER_OK != 0 {
            self.serve(&mut state);
        }
        drop(state);
        self.wake_control();
        Ok(match packed {
            true => [base >> 15, base & 0x7fff, base >> 15, base & 0x7fff],
            false => [base, 0, 0, 0],
        })
    }

    /// Takes the rings of a device that an earlier process left into service, if its driver runs.
    pub(super) fn resume(&self) {
        // The kernel accepts an interrupt only for a running driver, and offers no other way to
        // read the status.
        let runs = vduse::interrupt(self.device.as_fd(), 0).unwrap_or(false);
        let mut state = self.lock();
        if runs && state.status == 0 {
            state.status = RUNNING;
            state.slots.iter_mut().for_each(|slot| slot.base = Base::Forgotten);
            self.serve(&mut state);
            tracing::info!("vduse: took over a device that was still running");
        }
        drop(state);
        self.wake_control();
    }

    /// Takes all rings into service; a driver without buffers is idle. An error closes the device,
    /// or waits for the next mapping of a user-space program.
    pub(super) fn serve(&self, state: &mut State) {
        (state.unmapped, state.between) = (None, false);
        match self.try_serve(state) {
            Ok(()) => {}
            // A program may map its memory in several steps, and this call may follow an early one.
            Err(why) if state.mapped => state.unmapped = Some(why),
            Err(why) => {
                tracing::warn!("vduse: {why}");
                state.broken = Some(why);
            }
        }
    }

    fn try_serve(&self, state: &mut State) -> Result<(), String> {
        let device = self.device.as_fd();
        let features = vduse::driver_features(device).map_err(|e| format!("features: {e}"))?;
        let features = Features(features);
        let (map, regions) = self.memory()?;
        (state.features, state.regions) = (Some(features), regions);
        state.idle = !state.mapped && !map.areas().iter().any(|area| area.len >= BUFFERS_MIN);
        if state.idle {
            return Ok(());
        }
        let map = Arc::new(map);
        for (at, slot) in state.slots.iter_mut().enumerate() {
            let vring = self.ring(at as u16, slot.base, features, &map)?;
            slot.size = vring.1;
            slot.cell.offer(vring.0).map_err(|e| e.to_string())?;
            slot.served = true;
            // Interrupt once: the last interrupt of an earlier process may have been lost.
            let _ = vduse::interrupt(device, at as u32);
        }
        Ok(())
    }

    /// Mappings of the driver's memory.
    fn memory(&self) -> Result<(MemoryMap, Vec<Arc<Region>>), String> {
        let bad = |e: &dyn std::fmt::Display| format!("the driver's memory: {e}");
        let areas = map_ranges(|from| vduse::range_from(self.device.as_fd(), from));
        let areas = areas.map_err(|e| bad(&e))?;
        let regions = areas.iter().map(|area| area.region.clone()).collect();
        Ok((MemoryMap::new(areas).map_err(|e| bad(&e))?, regions))
    }

    fn ring(
        &self,
        queue: u16,
        base: Base,
        features: Features,
        map: &Arc<MemoryMap>,
    ) -> Result<(Box<Vring>, u16), String> {
        let device = self.device.as_fd();
        let system = |e: io::Error| format!("queue {queue}: {e}");
        let info = vduse::queue(device, queue.into()).map_err(system)?;
        let (size, [desc, driver, area]) = check(queue, &info, features, map)?;
        let packed = features.has(Features::RING_PACKED);
        let start = u32::from(info.state[1] & 0x7fff | info.state[0] << 15);
        let base = match base {
            Base::Left(base) => base,
            Base::Forgotten if packed => recover::position(&desc, size).map_or(start, u32::from),
            Base::Fresh | Base::Forgotten => start,
        };
        let kick = EventFd::new().map_err(system)?;
        vduse::set_kick(device, queue.into(), Some(kick.as_fd())).map_err(system)?;
        let mut vring = Vring::new(VringSetup {
            queue,
            size,
            memory: map.clone(),
            desc,
            driver,
            device: area,
            features,
            base,
            kick: Some(kick.try_clone().map_err(system)?),
            call: None,
            inflight: None,
            log: None,
        })
        .map_err(|e| e.to_string())?;
        vring.interrupt_kernel(self.device.clone()).map_err(|e| e.to_string())?;
        Ok((vring, size))
    }
}

/// Maps the ranges of the driver's memory. `range_from` returns the first range that ends at an
/// address or after it; `None` if there is none.
fn map_ranges(
    mut range_from: impl FnMut(u64) -> io::Result<Option<Range>>,
) -> Result<Vec<Area>, Box<dyn std::error::Error>> {
    let (mut areas, mut from) = (Vec::new(), 0);
    while let Some(range) = range_from(from)? {
        let (start, last) = (range.start, range.last);
        // Skip read-only and write-only ranges: network buffers need both directions.
        if range.is_open && last >= start && last - start < u64::MAX {
            if areas.len() == RANGES_MAX {
                return Err(format!("more than {RANGES_MAX} address ranges").into());
            }
            let len = last - start + 1;
            let region = Arc::new(Region::of_kernel(range.file, range.offset, len)?);
            areas.push(Area { start, len, region, offset: 0 });
        }
        match last.checked_add(1) {
            Some(next) if next > from => from = next,
            _ => break,
        }
    }
    Ok(areas)
}

/// Checks the setup of a ring; returns its size and its three areas, or `Err` with the reason.
fn check(
    queue: u16,
    info: &QueueSetup,
    features: Features,
    map: &MemoryMap,
) -> Result<(u16, [AtomicTable; 3]), String> {
    if !info.ready {
        return Err(format!("queue {queue}: the driver has not set it up"));
    }
    let packed = features.has(Features::RING_PACKED);
    let size = layout::queue_size(info.size, packed).map_err(|e| format!("queue {queue}: {e}"))?;
    let lens = if packed { layout::packed::areas(size) } else { layout::split::areas(size) };
    let table = |i: usize| {
        let (at, len) = (info.areas[i], lens[i]);
        let table = map.table(at, len, ALIGN[i]);
        table.ok_or_else(|| format!("queue {queue}: {len} bytes at {at:#x}: not in mapped memory"))
    };
    Ok((size, [table(0)?, table(1)?, table(2)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> MemoryMap {
        let region = Arc::new(Region::private(1 << 16, false, None).unwrap());
        MemoryMap::new(vec![Area { start: 0, len: 1 << 16, region, offset: 0 }]).unwrap()
    }

    // Goal: an invalid queue is refused with a reason.
    #[test]
    fn queues_are_checked() {
        let good = QueueSetup { size: 256, areas: [0, 4096, 8192], state: [0; 4], ready: true };
        let split = Features::VERSION_1;
        let packed = split.or(Features::RING_PACKED);
        let with = |info, features| check(1, &info, features, &map()).map(|(size, _)| size);
        assert_eq!(with(good, split), Ok(256));
        assert_eq!(with(QueueSetup { size: 100, ..good }, packed), Ok(100));
        let why = |info| with(info, split).unwrap_err();
        assert!(why(QueueSetup { ready: false, ..good }).contains("has not set it up"));
        for size in [0, 100, 1 << 16, u32::MAX] {
            assert!(why(QueueSetup { size, ..good }).contains("power of two"), "{size}");
        }
        for size in [0, (1 << 15) + 1, 1 << 16, u32::MAX] {
            assert!(with(QueueSetup { size, ..good }, packed).unwrap_err().contains("1 to 32768"));
        }
        assert!(
            why(QueueSetup { areas: [0, 4096, 1 << 16], ..good }).contains("not in mapped memory")
        );
        assert!(
            why(QueueSetup { areas: [u64::MAX, 0, 0], ..good }).contains("not in mapped memory")
        );
    }

    /// Range number `number`: one page, followed by a gap of one page.
    fn range(number: u64) -> Range {
        let file = mqnet_sysio::memory::memory_file("test", 4096, false).unwrap();
        let start = number * 8192;
        Range { start, last: start + 4095, offset: 0, is_open: true, file }
    }

    // Goal: ranges are mapped up to the limit; one more is an error that names the limit.
    #[test]
    fn too_many_ranges_are_reported() {
        let with = |count: u64| {
            let ranges = map_ranges(|from| {
                let number = from.div_ceil(8192);
                Ok((number < count).then(|| range(number)))
            });
            ranges.map(|areas| areas.len()).map_err(|e| e.to_string())
        };
        assert_eq!(with(RANGES_MAX as u64), Ok(RANGES_MAX));
        assert_eq!(with(RANGES_MAX as u64 + 1), Err("more than 256 address ranges".to_owned()));
    }

    fn shared() -> Shared {
        let nothing = std::fs::File::open("/dev/null").unwrap();
        Shared::new(nothing.into()).unwrap()
    }

    // Goal: a change of rings keeps the link up, unless the kernel has to wait. Rings that are
    // out of service for other reasons take the link down.
    #[test]
    fn link_stays_up_while_rings_change() {
        let shared = shared();
        shared.lock().status = RUNNING;
        let why = |state: &State| state.why_down();
        assert!(why(&shared.lock()).unwrap().contains("the driver is starting"));
        shared.lock().between = true;
        assert_eq!(why(&shared.lock()), None);
        shared.lock().waiting = true;
        assert!(why(&shared.lock()).unwrap().contains("the kernel is changing"));
        drop(shared.pause().unwrap());
        let state = shared.lock();
        assert!(!state.waiting && !state.between, "none was served");
    }

    // Goal: a ring that cannot be served closes the device until the kernel's driver starts
    // again. For a program that maps its own memory, the next mapping or a reset suffices.
    #[test]
    fn a_program_may_map_in_steps() {
        let why = |shared: &Shared| shared.lock().why_down().unwrap();
        let kernel = shared();
        kernel.after_status(DRIVER_OK);
        assert!(why(&kernel).contains("until the driver restarts"));
        kernel.after_remap();
        assert!(why(&kernel).contains("until the driver restarts"));
        let program = shared();
        program.after_remap();
        program.after_status(DRIVER_OK);
        assert!(why(&program).contains("until the driver maps the missing memory"));
        program.before_status(0).unwrap();
        assert!(why(&program).contains("no driver is bound to the device"));
    }
}
