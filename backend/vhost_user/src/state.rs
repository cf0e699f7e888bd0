//! Device state that a peer's messages set.
//!
//! The connection thread and the control thread share the state under one lock. The data path
//! never takes this lock: queues get their rings through cells.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mqnet_netdev::Offloads;
use mqnet_netdev::limits::{CHANNELS_MAX, MTU_MAX, MTU_MIN};
use mqnet_shmem::{AtomicTable, Region};
use mqnet_sysio::clock;
use mqnet_sysio::eventfd::EventFd;
use mqnet_virtio::Features;
use mqnet_virtio::inflight::region_len;
use mqnet_virtio::log::Log;
use mqnet_virtio::net::{rx_queue, tx_queue};
use vhost::vhost_user::message::VhostUserProtocolFeatures as Protocol;

use crate::announce::Announcements;
use crate::commands::Commands;
use crate::memory::Memory;
use crate::offer::Offer;
use crate::receive::{ReceiveSettings, Receiving};
use crate::slot::Slot;

/// Largest number of rings: those of all pairs, and the control queue.
pub(crate) const RINGS_MAX: usize = 2 * CHANNELS_MAX as usize + 1;

/// Time from the last start of a ring until the link comes up. A driver starts its rings one by
/// one.
const STARTING: Duration = Duration::from_millis(20);

/// Shared memory in which rings record their in-flight chains.
#[derive(Debug)]
pub(crate) struct Inflight {
    pub(crate) region: Arc<Region>,
    pub(crate) offset: usize,
    /// End offset in the region.
    pub(crate) end: usize,
    pub(crate) queue_size: u16,
}

impl Inflight {
    /// Table of one ring; `None` if the region is too short for the table.
    pub(crate) fn of(&self, queue: usize, is_packed: bool) -> Option<AtomicTable> {
        let len = region_len(is_packed, self.queue_size);
        let at = self.offset + queue * len as usize;
        let fits = at + len as usize <= self.end;
        fits.then(|| AtomicTable::new(self.region.clone(), at, len)).flatten()
    }
}

/// Device state.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) offer: Offer,
    /// Reason why no peer is connected; `None` while a peer is connected.
    pub(crate) absent: Option<String>,
    /// Features that the driver accepted.
    pub(crate) features: Option<Features>,
    /// Protocol features that the frontend accepted.
    pub(crate) protocol: Protocol,
    /// Device status that the driver set.
    pub(crate) status: u8,
    /// MTU that the VMM requires.
    pub(crate) mtu: Option<u32>,
    /// Settings made over the control queue; `None` without a control queue.
    pub(crate) commands: Option<Commands>,
    /// Receive settings as the lanes read them.
    pub(crate) receiving: Arc<Receiving>,
    pub(crate) announcements: Arc<Announcements>,
    /// True after a driver has accepted features of this device.
    was_used: bool,
    pub(crate) memory: Memory,
    pub(crate) slots: Vec<Slot>,
    pub(crate) inflight: Option<Inflight>,
    pub(crate) log: Option<Arc<Log>>,
    /// Session counter of the link; a new value closes and reopens the link.
    pub(crate) session: u64,
    /// True while a request waits until the link has returned its queues.
    pub(crate) waiting: bool,
    /// Violation by the driver. The device stays closed until the driver starts its rings again.
    pub(crate) broken: Option<String>,
    /// Time at which a ring was last started.
    pub(crate) started: Option<Duration>,
    /// True while a thread signals the `err` eventfds of the peer.
    signalling: Arc<AtomicBool>,
}

impl State {
    fn new(offer: Offer) -> io::Result<Self> {
        Ok(Self {
            absent: Some("opening the socket".to_owned()),
            features: None,
            protocol: Protocol::empty(),
            status: 0,
            mtu: None,
            commands: None,
            receiving: Arc::default(),
            announcements: Arc::default(),
            was_used: false,
            memory: Memory::default(),
            slots: (0..offer.rings()).map(Slot::new).collect::<io::Result<_>>()?,
            inflight: None,
            log: None,
            session: 0,
            waiting: false,
            broken: None,
            started: None,
            signalling: Arc::default(),
            offer,
        })
    }

    /// Discards all state of a peer. All rings must be out of service.
    pub(crate) fn forget_peer(&mut self, why: String) {
        self.reset();
        self.slots.iter_mut().for_each(|slot| slot.error = None);
        (self.memory, self.inflight, self.log) = (Memory::default(), None, None);
        (self.protocol, self.mtu) = (Protocol::empty(), None);
        self.announcements.forget();
        self.absent = Some(why);
        self.session += 1;
    }

    /// Resets the device for its driver. The state of the connection persists.
    pub(crate) fn reset(&mut self) {
        (self.features, self.broken, self.started) = (None, None, None);
        (self.status, self.commands) = (0, None);
        self.receiving.set(ReceiveSettings::default());
        self.slots.iter_mut().for_each(Slot::reset);
    }

    /// Features that a driver may accept. `MTU` is also offered if the VMM can set an MTU.
    pub(crate) fn offered(&self) -> Features {
        let has_mtu = self.protocol.contains(Protocol::MTU);
        self.offer.features().or(if has_mtu { Features::MTU } else { Features::default() })
    }

    /// Accepts the driver's features. All rings must be out of service.
    pub(crate) fn accept(&mut self, features: Features) {
        // The VMM sets `LOG_ALL` during a migration. A change of this bit alone keeps the settings
        // made by commands.
        let of_driver = |all: Features| all.minus(Features::LOG_ALL);
        let before = self.features.replace(features);
        if before.map(of_driver) == Some(of_driver(features)) {
            return;
        }
        let had_queue = self.commands.is_some();
        let mac = self.offer.mac.unwrap_or_default();
        self.commands = Commands::begin(features, self.offer.pairs, mac);
        if let Some(commands) = &mut self.commands {
            // A later driver announces its address: switches may have learned it at another port.
            commands.settings.announce = self.was_used && features.has(Features::GUEST_ANNOUNCE);
        }
        self.was_used = true;
        if had_queue != self.commands.is_some() {
            // A device with a control queue needs another kind of TX queue, so reopen the link.
            self.session += 1;
        }
    }

    /// Offloads that the driver currently accepts.
    pub(crate) fn taken_by_driver(&self, features: Features) -> Offloads {
        let now = self.commands.as_ref().map_or(features, |commands| commands.settings.guest);
        now.taken_by_driver()
    }

    /// Closes the device until the driver starts its rings again, and signals the `err` eventfds.
    pub(crate) fn break_off(&mut self, why: String) {
        tracing::warn!("vhost-user: {why}");
        self.broken = Some(why);
        let listeners = self.slots.iter().filter_map(|slot| slot.error.as_ref());
        let listeners: Vec<EventFd> =
            listeners.filter_map(|e| EventFd::duplicate(&e.as_fd()).ok()).collect();
        if listeners.is_empty() || self.signalling.swap(true, Ordering::Relaxed) {
            return;
        }
        // Signalling a peer's descriptor may block, so at most one extra thread does so.
        let signalling = self.signalling.clone();
        let ring = move || {
            // An error is ignored: the VMM owns the other end of the eventfd.
            listeners.iter().for_each(|error| drop(error.ring()));
            signalling.store(false, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("vhost-err".to_owned()).spawn(ring).is_err() {
            self.signalling.store(false, Ordering::Relaxed);
        }
    }

    /// True if the driver accepted the feature.
    pub(crate) fn has(&self, feature: Features) -> bool {
        self.features.is_some_and(|features| features.has(feature))
    }

    fn leading_pairs(&self, is_on: impl Fn(&Slot) -> bool) -> u16 {
        let on = |queue: u16| is_on(&self.slots[usize::from(queue)]);
        let pair_on = |&pair: &u16| on(rx_queue(pair)) && on(tx_queue(pair));
        (0..self.offer.pairs).take_while(pair_on).count() as u16
    }

    /// Number of queue pairs in service, counted from the first without a gap.
    pub(crate) fn pairs_started(&self) -> u16 {
        self.leading_pairs(Slot::is_served)
    }

    /// Number of queue pairs that the driver uses, counted from the first without a gap. Rings
    /// count as enabled if the peer cannot enable them (without `PROTOCOL_FEATURES`). A number set
    /// by command limits the result.
    pub(crate) fn pairs_enabled(&self) -> u16 {
        let can_enable = self.has(Features::PROTOCOL_FEATURES);
        let on = self.leading_pairs(|slot| slot.is_served() && (slot.enabled || !can_enable));
        let commands = self.commands.as_ref().filter(|commands| commands.sets_pairs());
        commands.map_or(on, |commands| on.min(commands.settings.pairs))
    }

    /// Reason why the link is down; `None` if it can be up.
    pub(crate) fn why_down(&self) -> Option<String> {
        if let Some(why) = &self.absent {
            return Some(why.clone());
        }
        if self.waiting {
            return Some("the VMM is changing queues or memory".to_owned());
        }
        if let Some(why) = &self.broken {
            return Some(format!("{why}: closed until the driver starts its queues again"));
        }
        if self.features.is_none() {
            return Some("the VMM is connected; its driver has not started (booting?)".to_owned());
        }
        if self.pairs_enabled() == 0 {
            let why = self.slots.iter().find_map(|slot| slot.why.clone());
            let idle = || "the driver has not started its queues (device up?)".to_owned();
            return Some(why.unwrap_or_else(idle));
        }
        let now = clock::monotonic();
        let is_starting = self.started.is_some_and(|when| now.saturating_sub(when) < STARTING);
        is_starting.then(|| "the driver is starting its queues".to_owned())
    }
}

/// Device state with its lock, and the eventfd of the control thread.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Wakes the control thread.
    pub(crate) wake: EventFd,
}

impl Shared {
    pub(crate) fn new(offer: Offer) -> io::Result<Self> {
        Ok(Self { state: Mutex::new(State::new(offer)?), wake: EventFd::new()? })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is usable: each change of the state is a few assignments, which do not
        // panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the control thread.
    pub(crate) fn wake_control(&self) {
        // An error is ignored: writing to this process's own eventfd does not fail.
        let _ = self.wake.ring();
    }

    /// Sets the device status; 0 resets the device. `Err` if a ring cannot be taken out of service.
    pub(crate) fn set_status(&self, status: u8) -> Result<(), String> {
        if status == 0 {
            self.pause_all()?.reset();
            self.wake_control();
        }
        self.lock().status = status;
        Ok(())
    }

    /// Sets the MTU that the VMM requires; `Err` if it is out of range or not the configured MTU.
    pub(crate) fn set_mtu(&self, mtu: u64) -> Result<(), String> {
        let within = u32::try_from(mtu).ok().filter(|n| (MTU_MIN..=MTU_MAX).contains(n));
        let mtu = within.ok_or(format!("mtu {mtu}: allowed are {MTU_MIN} to {MTU_MAX}"))?;
        let mut state = self.lock();
        if let Some(ours) = state.offer.mtu.filter(|ours| *ours != mtu) {
            return Err(format!("mtu {mtu} of the VMM is not the mtu={ours} of this device"));
        }
        state.mtu = Some(mtu);
        drop(state);
        self.wake_control();
        Ok(())
    }

    /// Queues the announcement of a guest that was migrated to this host, and wakes the lane.
    pub(crate) fn announce(&self, mac: [u8; 6]) {
        let state = self.lock();
        state.announcements.add(mac);
        state.slots[usize::from(tx_queue(0))].cell.wake();
    }
}
