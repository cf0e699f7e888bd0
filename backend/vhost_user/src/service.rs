//! Transitions of rings into and out of service.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use mqnet_shmem::AtomicTable;
use mqnet_sysio::{clock, poll};
use mqnet_virtio::Features;
use mqnet_virtio::layout::{self, ALIGN};
use mqnet_virtio::log::RingLog;

use crate::recover;
use crate::slot::Slot;
use crate::state::{Shared, State};
use crate::vring::{Call, Vring, VringSetup};

/// Time after which a request that waits for a ring also stops the link. Workers return a ring at
/// their next poll, but a worker that waits for a full sink does not poll.
const STOP_DELAY: Duration = Duration::from_millis(300);

/// Time limit of a request that waits for a ring. The limit exceeds the 5 s that a stopping link
/// waits for a hung worker.
const WAIT_MAX: Duration = Duration::from_secs(8);

impl State {
    /// Takes every started ring into service. Returns the interrupts, which the caller signals
    /// once without the lock, because signalling a peer's descriptor may block.
    #[must_use]
    pub(crate) fn serve(&mut self) -> Vec<Arc<Call>> {
        let mut calls = Vec::new();
        for at in 0..self.slots.len() {
            if !self.slots[at].started || self.slots[at].is_served() {
                continue;
            }
            let served = self.make(at).and_then(|vring| {
                let call = vring.call();
                self.slots[at].cell.offer(vring).map_err(|e| e.to_string())?;
                Ok(call)
            });
            let slot = &mut self.slots[at];
            (slot.interrupt, slot.why) = match served {
                Ok(call) => {
                    calls.push(call.clone());
                    (Some(call), None)
                }
                Err(why) => (None, Some(why)),
            };
            self.started = Some(clock::monotonic());
        }
        calls
    }

    fn make(&self, at: usize) -> Result<Box<Vring>, String> {
        let slot = &self.slots[at];
        let (queue, size) = (slot.queue, slot.size);
        let features = self.features.ok_or("no features were accepted")?;
        if !features.has(Features::VERSION_1) && !features.has(Features::MRG_RXBUF) {
            // Without both features the header has 10 bytes (virtio 1.3, section 5.1.6.1, legacy
            // interface).
            return Err("a legacy driver without mergeable buffers is not supported: use another \
                        driver, or disable-legacy=on"
                .to_owned());
        }
        let is_packed = features.has(Features::RING_PACKED);
        layout::queue_size(size.into(), is_packed).map_err(|e| format!("queue {queue}: {e}"))?;
        let lens = if is_packed { layout::packed::areas(size) } else { layout::split::areas(size) };
        let [desc, driver, device] = self.tables(slot, lens)?;
        let inflight = self.inflight.as_ref().and_then(|all| all.of(at, is_packed));
        // An `IN_ORDER` driver accepts one used descriptor for several chains. The descriptors of
        // the other chains look available, so the position cannot be recovered from the ring.
        let is_recoverable = is_packed && !features.has(Features::IN_ORDER);
        let needs_recovery = is_recoverable && inflight.is_none() && !slot.exact;
        let found = if needs_recovery { recover::position(&desc, size) } else { None };
        let clone = |fd: &Option<OwnedFd>| fd.as_ref().map(OwnedFd::try_clone).transpose();
        let system = |e: io::Error| format!("queue {queue}: {e}");
        let setup = VringSetup {
            queue,
            size,
            memory: self.memory.by_guest().clone(),
            desc,
            driver,
            device,
            features,
            base: found.map_or(slot.base, |at| u32::from(at) << 16 | u32::from(at)),
            kick: clone(&slot.kick).map_err(system)?,
            call: clone(&slot.call).map_err(system)?,
            inflight,
            log: self.ring_log(slot),
        };
        Vring::new(setup).map_err(|e| e.to_string())
    }

    fn tables(&self, slot: &Slot, lens: [u32; 3]) -> Result<[AtomicTable; 3], String> {
        let table = |i: usize| {
            let (at, len) = (slot.areas[i], lens[i]);
            let table = self.memory.table(at, len, ALIGN[i]);
            let queue = slot.queue;
            table.ok_or_else(|| {
                format!("queue {queue}: {len} bytes at {at:#x}: not in guest memory")
            })
        };
        Ok([table(0)?, table(1)?, table(2)?])
    }

    fn ring_log(&self, slot: &Slot) -> Option<RingLog> {
        let log = self.log.clone().filter(|_| self.has(Features::LOG_ALL))?;
        let [desc, _, device] = slot.areas.map(|at| self.memory.guest_address(at));
        Some(RingLog { log, desc: desc?, device: device? })
    }

    /// Recalls the rings in `which` that are in service.
    fn recall(&self, which: &[usize]) {
        let served = which.iter().map(|&at| &self.slots[at]).filter(|slot| slot.is_served());
        // An error is ignored: writing to this process's own eventfd does not fail.
        served.for_each(|slot| drop(slot.cell.recall()));
    }

    /// Takes the rings in `which` that the queues have returned out of service. True if no ring in
    /// `which` is in service any more.
    fn collect(&mut self, which: &[usize]) -> bool {
        let mut all = true;
        for &at in which {
            let slot = &mut self.slots[at];
            if !slot.is_served() {
                continue;
            }
            if let Some(receiver) = &slot.receiver {
                receiver.return_ring();
            }
            match slot.cell.take() {
                Some(vring) => {
                    (slot.base, slot.exact, slot.interrupt) = (vring.base(), true, None);
                }
                None => all = false,
            }
        }
        all
    }
}

impl Shared {
    /// Takes these rings out of service, records their positions, and returns the locked state.
    /// `Err` if a queue does not return its ring in time. The caller returns started rings to
    /// service with [`State::serve`].
    pub(crate) fn pause(&self, which: &[usize]) -> Result<MutexGuard<'_, State>, String> {
        let mut state = self.lock();
        state.recall(which);
        let since = clock::monotonic();
        while !state.collect(which) {
            let waited = clock::monotonic().saturating_sub(since);
            if waited > WAIT_MAX {
                state.waiting = false;
                return Err("the link did not return its queues in time".to_owned());
            }
            if waited > STOP_DELAY && !state.waiting {
                (state.waiting, state.session) = (true, state.session + 1);
                self.wake_control();
            }
            drop(state);
            poll::pause(Duration::from_micros(200));
            state = self.lock();
        }
        if state.waiting {
            state.waiting = false;
            self.wake_control();
        }
        Ok(state)
    }

    /// Takes started rings into service; see [`State::serve`].
    pub(crate) fn serve(&self, mut state: MutexGuard<'_, State>) {
        let calls = state.serve();
        drop(state);
        self.wake_control();
        // An error is ignored: the VMM owns the other end of the eventfd.
        calls.iter().for_each(|call| drop(call.ring()));
    }

    /// Takes all rings out of service; see [`pause`](Self::pause).
    pub(crate) fn pause_all(&self) -> Result<MutexGuard<'_, State>, String> {
        let all: Vec<usize> = (0..self.lock().slots.len()).collect();
        self.pause(&all)
    }
}
