//! Hostile peer after a valid handshake. Every word that the peer can write is set to every kind of
//! invalid value while frames flow. The victim at most loses the link. It neither panics nor leaks
//! descriptors, reads nothing outside the window (such an index would panic), and accepts the next
//! peer.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqnet_conformance::rigs::Folder;
use mqnet_conformance::{Rig, frame, rigs};
use mqnet_engine::{Direction, Lane, LaneId};
use mqnet_netdev::loopback::Loopback;
use mqnet_netdev::{Caps, Channel, Function, LinkStatus};
use mqnet_ntb::hw::memfd::Memfd;
use mqnet_ntb::hw::{Doorbell, Hw, HwLink, MemoryWindows};
use mqnet_ntb::layout::{Geometry, MAILBOX, PADS, control};
use mqnet_ntb::{NtbConfig, NtbFunction};
use mqnet_sysio::eventfd::EventFd;

const WINDOW: u32 = 512 << 10;
const CHANNELS: u16 = 2;

/// Geometry of the rings in the first session.
fn geometry() -> Geometry {
    Geometry::divide(WINDOW, CHANNELS, 0, Geometry::depth_default(CHANNELS))
}

/// Hardware that gives the test access to the victim's memory.
struct Spy {
    inner: Memfd,
    seen: Arc<Mutex<Option<MemoryWindows>>>,
}

impl Hw for Spy {
    fn poll_link(&mut self, now: Duration) -> HwLink {
        let link = self.inner.poll_link(now);
        *self.seen.lock().unwrap() = self.inner.windows();
        link
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        self.inner.events()
    }

    fn windows(&self) -> Option<MemoryWindows> {
        self.inner.windows()
    }

    fn spad_read(&self, pad: usize) -> u32 {
        self.inner.spad_read(pad)
    }

    fn peer_spad_write(&self, pad: usize, value: u32) {
        self.inner.peer_spad_write(pad, value);
    }

    fn peer_doorbell(&self, bit: usize) -> Option<Arc<dyn Doorbell>> {
        self.inner.peer_doorbell(bit)
    }

    fn doorbell_event(&self, bit: usize) -> Option<Arc<EventFd>> {
        self.inner.doorbell_event(bit)
    }

    fn reset(&mut self, now: Duration, retry_after: Duration) {
        self.inner.reset(now, retry_after);
    }

    fn window_len(&self) -> u32 {
        self.inner.window_len()
    }

    fn is_second(&self) -> bool {
        self.inner.is_second()
    }
}

/// Victim that returns all frames, and attacker that can write the victim's memory.
struct Arena {
    victim: NtbFunction,
    attacker: NtbFunction,
    seen: Arc<Mutex<Option<MemoryWindows>>>,
    echo: Loopback,
    now: Duration,
    seed: u64,
    faults: u32,
    _folder: Folder,
}

/// Lanes of the victim and channels of the peer in one session.
struct Life {
    lanes: Vec<(Lane, Lane)>,
    peer: Vec<Channel>,
}

impl Arena {
    fn new(seed: u64) -> Self {
        let folder = Folder::new();
        let path = folder.0.join("x.sock");
        let config = NtbConfig { path: path.clone(), window: WINDOW, mtu: None };
        let seen = Arc::new(Mutex::new(None));
        let spy = Spy { inner: Memfd::new(&path, WINDOW, CHANNELS), seen: seen.clone() };
        let mut victim = NtbFunction::memfd(&config, seed);
        let mut attacker = NtbFunction::with_hw("liar".into(), Box::new(spy), None, seed ^ 0xffff);
        let echo = Loopback::new(CHANNELS);
        let caps = Caps { wanted: Some(CHANNELS), ..echo.caps() };
        victim.set_partner(&caps);
        attacker.set_partner(&caps);
        let now = Duration::from_secs(1);
        Self { victim, attacker, seen, echo, now, seed, faults: 0, _folder: folder }
    }

    /// Next value of a xorshift generator; the seed reproduces a failing run.
    fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    /// Polls both ends and advances the simulated time.
    fn poll(&mut self) -> (LinkStatus, LinkStatus) {
        self.now += Duration::from_millis(20);
        let victim = self.victim.poll_link(self.now);
        (victim, self.attacker.poll_link(self.now))
    }

    fn bring_up(&mut self) -> Life {
        for _ in 0..1000 {
            let (LinkStatus::Up { .. }, LinkStatus::Up { .. }) = self.poll() else {
                continue;
            };
            let plan = self.victim.agreement().expect("up").plan.mirrored();
            let channels = self.victim.open(&plan).expect("open");
            let echo = self.echo.open(&plan.mirrored()).expect("echo");
            let stats = |f: &dyn Function, i: usize| f.stats()[i].clone();
            let lanes = channels.into_iter().zip(echo).enumerate().map(|(i, (c, e))| {
                let lane = |way, rx, tx, s| {
                    let id = LaneId { set: 0, channel: i as u16, way };
                    Lane::new(id, rx, tx, plan.frame_max, None, s).expect("lane")
                };
                (
                    lane(Direction::AToB, c.rx, e.tx, stats(&self.echo, i)),
                    lane(Direction::BToA, e.rx, c.tx, stats(&self.victim, i)),
                )
            });
            let lanes = lanes.collect();
            return Life { lanes, peer: self.attacker.open(&plan).expect("open") };
        }
        panic!("the victim does not take another peer");
    }

    /// Sends valid frames from the peer, and receives the frames that the victim returns.
    fn traffic(&mut self, life: &mut Life, rounds: u32) -> Result<(), String> {
        for round in 0..rounds {
            for peer in &mut life.peer {
                let mut rig = borrow(peer);
                rig.send(&[frame(round, 60), frame(round + 1, 1500)]);
                give_back(peer, rig);
            }
            poll_victim(life)?;
        }
        Ok(())
    }

    /// Writes one invalid value into the victim's memory, polls the victim, counts a fault if there
    /// is one, and ends the session.
    fn inject(&mut self, offset: usize, value: u64) {
        let mut life = self.bring_up();
        self.traffic(&mut life, 3).expect("honest traffic");
        let windows = self.seen.lock().unwrap().clone().expect("windows");
        windows.outbound.word(offset).store(value, Ordering::SeqCst);
        if self.poll_after_injection(&mut life).is_err() {
            self.faults += 1;
        }
        // The poll of the link detects an invalid scratchpad, unless the value has no effect.
        self.poll();
        drop(life.peer);
        for (forth, back) in life.lanes {
            forth.into_queues(Duration::ZERO);
            back.into_queues(Duration::ZERO);
        }
        self.victim.close("the test is over");
        self.attacker.close("the test is over");
    }

    /// Polls only the victim, because the invalid value may also break the attacker's queues.
    fn poll_after_injection(&mut self, life: &mut Life) -> Result<(), String> {
        for _ in 0..3 {
            poll_victim(life)?;
        }
        Ok(())
    }
}

/// Polls and arms every lane of the victim once, as its worker does; returns the first fault.
fn poll_victim(life: &mut Life) -> Result<(), String> {
    for (forth, back) in &mut life.lanes {
        for lane in [forth, back] {
            lane.poll(|| Duration::ZERO).map_err(|f| f.to_string())?;
            let _ = lane.arm().map_err(|f| f.to_string())?;
        }
    }
    Ok(())
}

/// Moves the queues of the peer's channel into a rig; `give_back` moves them back.
fn borrow(channel: &mut Channel) -> Rig {
    let spare = rigs::loopback();
    Rig {
        tx: std::mem::replace(&mut channel.tx, spare.tx),
        rx: std::mem::replace(&mut channel.rx, spare.rx),
        keep: Box::new(()),
        ..rigs::loopback()
    }
}

fn give_back(channel: &mut Channel, rig: Rig) {
    channel.tx = rig.tx;
    channel.rx = rig.rx;
}

/// Offset of the window, which follows the scratchpads.
const WINDOW_AT: usize = 4096;

/// Lock that serializes the tests, because the first test counts descriptors of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("fds").count()
}

// Goal: setting any shared word to limits of its range or to random values costs at most the link.
#[test]
fn invalid_shared_words_cost_at_most_the_link() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut arena = Arena::new(0x5eed_0001);
    arena.inject(0, 0);
    let before = descriptors();
    let ring = geometry().ring;
    let words = [control::TAIL, control::CREDIT, control::TAKEN, control::RX_ARM, control::TX_ARM];
    let generation = arena.random() & 0xffff_ffff;
    for word in words {
        for qp in 0..CHANNELS {
            let mut values = vec![0, 1, 15, 16, u64::MAX, 1 << 63, u64::from(u32::MAX)];
            for index in [0, 1, 8, 16, ring - 16, ring, ring + 16, 2 * ring - 16, 2 * ring] {
                values.push(u64::from(index));
                values.push(generation << 32 | u64::from(index));
            }
            values.push(arena.random());
            for value in values {
                arena.inject(WINDOW_AT + geometry().control(qp, word), value);
            }
        }
    }
    for pad in 0..PADS {
        for value in [0, 1, 2, 3, 4, 5, u64::from(u32::MAX), arena.random()] {
            arena.inject(pad * 8, value);
        }
    }
    for word in (0..MAILBOX / 2).step_by(8) {
        for value in [0, 2, 4, u64::MAX, arena.random()] {
            arena.inject(WINDOW_AT + word, value);
        }
    }
    arena.inject(0, 0);
    assert_eq!(descriptors(), before, "descriptors left behind");
    assert!(
        arena.faults > 50,
        "only {} violations were detected: is the test correct?",
        arena.faults
    );
}

// Goal: invalid ring indices with the current generation are detected as faults.
#[test]
fn invalid_indices_of_the_current_generation_are_detected() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut arena = Arena::new(0x5eed_0002);
    let ring = u64::from(geometry().ring);
    let mut noticed = 0;
    for word in [control::TAIL, control::CREDIT] {
        // Indices: backwards, beyond the frames in flight, unaligned, out of range.
        for index in [2 * ring, u64::from(u32::MAX), 2 * ring - 16, ring + 8, 3] {
            let mut life = arena.bring_up();
            arena.traffic(&mut life, 3).expect("honest traffic");
            let windows = arena.seen.lock().unwrap().clone().expect("windows");
            let control = |word| WINDOW_AT + geometry().control(0, word);
            let at = |word| windows.outbound.word(control(word));
            let generation = at(control::TAIL).load(Ordering::SeqCst) >> 32;
            at(word).store(generation << 32 | index, Ordering::SeqCst);
            let mut fault = arena.poll_after_injection(&mut life).err();
            // The victim reads the credit only when its ring lacks space, so frames are sent until
            // then.
            for _ in 0..if word == control::CREDIT { 200 } else { 0 } {
                fault = fault.or(arena.traffic(&mut life, 20).err());
            }
            noticed += u32::from(fault.is_some());
            drop(life);
            arena.victim.close("over");
            arena.attacker.close("over");
        }
    }
    assert_eq!(noticed, 10, "wrong indices that were noticed");
}

// Goal: arbitrary ring content costs at most the link, from a few changed words to random values in
// the whole ring.
#[test]
fn arbitrary_ring_content_costs_at_most_the_link() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut arena = Arena::new(0x5eed_0003);
    let geometry = geometry();
    for round in 0..300 {
        let mut life = arena.bring_up();
        arena.traffic(&mut life, 1 + round % 5).expect("honest traffic");
        let windows = arena.seen.lock().unwrap().clone().expect("windows");
        // Send valid frames, which the victim has not read yet, and overwrite them.
        for peer in &mut life.peer {
            let mut rig = borrow(peer);
            rig.send(&(0..20).map(|n| frame(n, 60 + 50 * n as usize)).collect::<Vec<_>>());
            give_back(peer, rig);
        }
        let places = if round % 3 == 0 { 20_000 } else { 1 + arena.random() as usize % 50 };
        for _ in 0..places {
            let at = geometry.ring_at(0) + arena.random() as usize % (32 << 10) / 8 * 8;
            let word = windows.outbound.word(WINDOW_AT + at);
            let value = match arena.random() % 4 {
                0 => arena.random(),
                1 => word.load(Ordering::SeqCst) ^ (1 << (arena.random() % 64)),
                2 => 0,
                _ => u64::MAX,
            };
            word.store(value, Ordering::SeqCst);
        }
        if arena.poll_after_injection(&mut life).is_err() {
            arena.faults += 1;
        }
        drop(life);
        arena.victim.close("over");
        arena.attacker.close("over");
    }
    assert!(arena.faults > 100, "only {} of 300 were noticed", arena.faults);
}
