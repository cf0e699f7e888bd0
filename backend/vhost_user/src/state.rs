//! What the messages of a peer have left behind.
//!
//! The thread that takes messages and the control thread share it behind one lock, which the data
//! path never takes: queues get their rings through cells.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mqnet_netdev::Offloads;
use mqnet_netdev::limits::{CHANNELS_MAX, MTU_MAX, MTU_MIN};
use mqnet_shmem::{Region, Table};
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
use crate::receive::{How, Receiving};
use crate::slot::Slot;

/// Rings of all pairs that there can be, and one for commands.
pub(crate) const RINGS_MAX: usize = 2 * CHANNELS_MAX as usize + 1;

/// A driver starts one ring after the other; the link comes up when it has paused for so long.
const STARTING: Duration = Duration::from_millis(20);

/// Memory in which rings note what they are at.
#[derive(Debug)]
pub(crate) struct Inflight {
    pub(crate) region: Arc<Region>,
    pub(crate) offset: usize,
    /// Where in the region it ends.
    pub(crate) end: usize,
    pub(crate) queue_size: u16,
}

impl Inflight {
    /// The part of one ring; `None` when the peer made no room for it.
    pub(crate) fn of(&self, queue: usize, is_packed: bool) -> Option<Table> {
        let len = region_len(is_packed, self.queue_size);
        let at = self.offset + queue * len as usize;
        let fits = at + len as usize <= self.end;
        fits.then(|| Table::new(self.region.clone(), at, len)).flatten()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) offer: Offer,
    /// Why there is no peer, while there is none.
    pub(crate) absent: Option<String>,
    /// What the driver accepted.
    pub(crate) features: Option<Features>,
    /// What the frontend accepted.
    pub(crate) protocol: Protocol,
    /// Of the device, as the driver sets it.
    pub(crate) status: u8,
    /// The MTU that the VMM insists on.
    pub(crate) mtu: Option<u32>,
    /// What the driver commands; `None` without a control queue.
    pub(crate) commands: Option<Commands>,
    /// The same for the lanes.
    pub(crate) receiving: Arc<Receiving>,
    pub(crate) announcements: Arc<Announcements>,
    /// There was a driver before the one that comes next.
    was_used: bool,
    pub(crate) memory: Memory,
    pub(crate) slots: Vec<Slot>,
    pub(crate) inflight: Option<Inflight>,
    pub(crate) log: Option<Arc<Log>>,
    /// Number of the life of the link.
    pub(crate) session: u64,
    /// A request waits until the link has given its queues back.
    pub(crate) waiting: bool,
    /// The driver broke the rules: nothing goes on before it starts its rings again.
    pub(crate) broken: Option<String>,
    /// When a ring was started last.
    pub(crate) started: Option<Duration>,
    /// A thread tells the peer of an error.
    ringing: Arc<AtomicBool>,
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
            ringing: Arc::default(),
            offer,
        })
    }

    /// Everything that a peer said is forgotten. No ring is in use.
    pub(crate) fn forget_peer(&mut self, why: String) {
        self.reset();
        self.slots.iter_mut().for_each(|slot| slot.error = None);
        (self.memory, self.inflight, self.log) = (Memory::default(), None, None);
        (self.protocol, self.mtu) = (Protocol::empty(), None);
        self.announcements.forget();
        self.absent = Some(why);
        self.session += 1;
    }

    /// The device as it was before the driver touched it. What belongs to the connection stays.
    pub(crate) fn reset(&mut self) {
        (self.features, self.broken, self.started) = (None, None, None);
        (self.status, self.commands) = (0, None);
        self.receiving.set(How::default());
        self.slots.iter_mut().for_each(Slot::reset);
    }

    /// What a driver may accept. The MTU of a VMM is offered to whom it can be told by.
    pub(crate) fn offered(&self) -> Features {
        let told = self.protocol.contains(Protocol::MTU);
        self.offer.features().or(if told { Features::MTU } else { Features::default() })
    }

    /// The driver has accepted these. No ring is in use.
    pub(crate) fn accept(&mut self, features: Features) {
        // The log is the VMM's: what the driver commanded stays when a migration begins or ends.
        let of_driver = |all: Features| all.minus(Features::LOG_ALL);
        let before = self.features.replace(features);
        if before.map(of_driver) == Some(of_driver(features)) {
            return;
        }
        let had_queue = self.commands.is_some();
        let mac = self.offer.mac.unwrap_or_default();
        self.commands = Commands::begin(features, self.offer.pairs, mac);
        if let Some(commands) = &mut self.commands {
            // Switches know the driver by another port, or do not know it any more.
            commands.settings.announce = self.was_used && features.has(Features::GUEST_ANNOUNCE);
        }
        self.was_used = true;
        if had_queue != self.commands.is_some() {
            // Other queues serve it.
            self.session += 1;
        }
    }

    /// What the driver takes now.
    pub(crate) fn taken_by_driver(&self, features: Features) -> Offloads {
        let now = self.commands.as_ref().map_or(features, |commands| commands.settings.guest);
        now.taken_by_driver()
    }

    /// Nothing goes on before the driver starts its rings again; who waits for errors is told.
    pub(crate) fn break_off(&mut self, why: String) {
        tracing::warn!("vhost-user: {why}");
        self.broken = Some(why);
        let listeners = self.slots.iter().filter_map(|slot| slot.error.as_ref());
        let listeners: Vec<EventFd> =
            listeners.filter_map(|e| EventFd::duplicate(&e.as_fd()).ok()).collect();
        if listeners.is_empty() || self.ringing.swap(true, Ordering::Relaxed) {
            return;
        }
        // A peer can make us wait, but not this thread, and not for more than one of them.
        let ringing = self.ringing.clone();
        let ring = move || {
            // Whether somebody listens is the VMM's business.
            listeners.iter().for_each(|error| drop(error.ring()));
            ringing.store(false, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("vhost-err".to_owned()).spawn(ring).is_err() {
            self.ringing.store(false, Ordering::Relaxed);
        }
    }

    /// True when the driver accepted this.
    pub(crate) fn has(&self, feature: Features) -> bool {
        self.features.is_some_and(|features| features.has(feature))
    }

    fn leading_pairs(&self, is_on: impl Fn(&Slot) -> bool) -> u16 {
        let on = |queue: u16| is_on(&self.slots[usize::from(queue)]);
        let pair_on = |&pair: &u16| on(rx_queue(pair)) && on(tx_queue(pair));
        (0..self.offer.pairs).take_while(pair_on).count() as u16
    }

    /// Queue pairs that can be served, from the first on.
    pub(crate) fn pairs_started(&self) -> u16 {
        self.leading_pairs(Slot::is_served)
    }

    /// Queue pairs that the driver uses. Rings begin disabled only for peers that can enable them.
    pub(crate) fn pairs_enabled(&self) -> u16 {
        let can_enable = self.has(Features::PROTOCOL_FEATURES);
        let on = self.leading_pairs(|slot| slot.is_served() && (slot.enabled || !can_enable));
        let commands = self.commands.as_ref().filter(|commands| commands.sets_pairs());
        commands.map_or(on, |commands| on.min(commands.settings.pairs))
    }

    /// Why the link cannot be up; `None` when it can.
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
            return Some("the VMM is there; its driver has not begun (booting?)".to_owned());
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

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Rung for the control thread.
    pub(crate) wake: EventFd,
}

impl Shared {
    pub(crate) fn new(offer: Offer) -> io::Result<Self> {
        Ok(Self { state: Mutex::new(State::new(offer)?), wake: EventFd::new()? })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is one assignment: a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the control thread to look.
    pub(crate) fn tell(&self) {
        // An eventfd of our own cannot fail to be rung.
        let _ = self.wake.ring();
    }

    /// Takes the status that the driver set; 0 resets the device.
    pub(crate) fn set_status(&self, status: u8) -> Result<(), String> {
        if status == 0 {
            self.pause_all()?.reset();
            self.tell();
        }
        self.lock().status = status;
        Ok(())
    }

    /// Takes the MTU that the VMM insists on.
    pub(crate) fn set_mtu(&self, mtu: u64) -> Result<(), String> {
        let within = u32::try_from(mtu).ok().filter(|n| (MTU_MIN..=MTU_MAX).contains(n));
        let mtu = within.ok_or(format!("mtu {mtu}: allowed are {MTU_MIN} to {MTU_MAX}"))?;
        let mut state = self.lock();
        if let Some(ours) = state.offer.mtu.filter(|ours| *ours != mtu) {
            return Err(format!("mtu {mtu} of the VMM is not the mtu={ours} of this device"));
        }
        state.mtu = Some(mtu);
        drop(state);
        self.tell();
        Ok(())
    }

    /// Sends a frame in the name of a guest that was moved here.
    pub(crate) fn announce(&self, mac: [u8; 6]) {
        let state = self.lock();
        state.announcements.add(mac);
        state.slots[usize::from(tx_queue(0))].cell.wake();
    }
}
