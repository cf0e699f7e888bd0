//! Channels that change in mid-flow: two engines over a bridge, hosts that number every frame,
//! requests from both sides at random, and failures injected at every step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqnet_conformance::flows::{Failure, Flows};
use mqnet_conformance::rigs::Folder;
use mqnet_engine::{Link, LinkConfig, Notice, Wish};
use mqnet_netdev::RingWish;
use mqnet_ntb::{NtbConfig, NtbFunction};
use mqnet_sysio::{clock, poll};

/// One engine, its host, and what was asked of it.
struct End {
    link: Link,
    flows: Flows,
    log: Vec<String>,
}

impl End {
    fn new(folder: &Folder, seed: u64, swap: bool, kernel_steers: bool) -> Self {
        let flows = Flows::new(kernel_steers);
        let path = folder.0.join("x.sock");
        let config = NtbConfig { path, window: 4 << 20, mtu: None };
        let ntb = Box::new(NtbFunction::memfd(&config, seed));
        let host = Box::new(flows.clone());
        let config = LinkConfig { workers: Some(1), ..LinkConfig::default() };
        // The side on which the peer is must not matter.
        let link = match swap {
            false => Link::new(host, ntb, config),
            true => Link::new(ntb, host, config),
        };
        Self { link: link.expect("a link"), flows, log: Vec::new() }
    }

    fn turn(&mut self) {
        match self.link.turn(clock::monotonic()).expect("workers answer") {
            Some(Notice::Down(why)) => self.log.push(format!("down: {why}")),
            Some(notice) => self.log.push(format!("{notice:?}")),
            None => {}
        }
    }

    fn channels(&self) -> u16 {
        self.link.running().map_or(0, |r| r.plan.channels)
    }
}

/// Two ends and what turns them and sends.
struct World {
    ends: [End; 2],
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<()>>,
    _folder: Folder,
}

impl World {
    fn new(seed: u64, kernel_steers: bool) -> Self {
        let mut world = Self::quiet(seed, kernel_steers);
        let stop = world.stop.clone();
        let senders = world.ends.each_ref().map(|end| sender(end.flows.clone(), stop.clone()));
        world.senders = senders.into();
        world
    }

    /// Nobody sends.
    fn quiet(seed: u64, kernel_steers: bool) -> Self {
        let folder = Folder::new();
        let a = End::new(&folder, seed, false, kernel_steers);
        let b = End::new(&folder, seed ^ 0xabcd, seed % 2 == 1, kernel_steers);
        let stop = Arc::new(AtomicBool::new(false));
        let mut world = Self { ends: [a, b], stop, senders: Vec::new(), _folder: folder };
        world.until("both ends are up", |w| w.ends.iter().all(|e| e.channels() > 0));
        world
    }

    fn turn(&mut self) {
        let timeout = self.ends.iter().map(|e| e.link.patience()).min().expect("two");
        let fds: Vec<_> = self.ends.iter().flat_map(|e| e.link.events()).collect();
        poll::wait_readable(&fds, timeout).expect("poll");
        self.ends.iter_mut().for_each(End::turn);
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < Duration::from_secs(20), "{what}: {:?}", self.logs());
            self.turn();
        }
    }

    fn logs(&self) -> [&[String]; 2] {
        [&self.ends[0].log, &self.ends[1].log]
    }

    /// Asks end `side` and waits for its answer.
    fn ask(&mut self, side: usize, wish: Wish) -> Result<Option<String>, String> {
        if let Err(e) = self.ends[side].link.ask(wish, clock::monotonic()) {
            return Err(e.to_string());
        }
        let begin = Instant::now();
        loop {
            if let Some(answer) = self.ends[side].link.answer() {
                return answer;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "no answer: {:?}", self.logs());
            self.turn();
        }
    }

    fn resize(&mut self, side: usize, channels: u16) -> Result<Option<String>, String> {
        let wish = Wish { channels: Some(channels), ..self.ends[side].link.wish().clone() };
        self.ask(side, wish)
    }

    /// Both ends show the same, and neither is in a change.
    fn settle(&mut self) {
        self.until("both ends agree", |w| {
            let [a, b] = &w.ends;
            a.channels() == b.channels() && !a.link.is_changing() && !b.link.is_changing()
        });
    }

    /// Stops the senders and checks that every frame has arrived, once and in order.
    fn finish(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for sender in self.senders.drain(..) {
            sender.join().expect("a sender");
        }
        self.until("everything has arrived", |w| {
            let [a, b] = [w.ends[0].flows.state(), w.ends[1].flows.state()];
            a.sent == b.received && b.sent == a.received
        });
        let states = [self.ends[0].flows.state(), self.ends[1].flows.state()];
        for state in &states {
            assert!(state.wrong.is_empty(), "{:?}: {:?}", state.wrong, self.logs());
        }
        for log in self.logs() {
            // Down while they looked for each other, never after.
            let up = log.iter().position(|line| line.starts_with("Up"));
            let after = &log[up.expect("it was up")..];
            assert!(!after.iter().any(|line| line.starts_with("down:")), "{log:?}");
        }
        states.iter().map(|s| s.received).sum()
    }
}

/// Sends frames of 40 flows, in no particular order.
fn sender(flows: Flows, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut x = 88172645463325252u64;
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..20 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                flows.send((x >> 40) as u32 % 40);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    })
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed >> 8
}

// Goal: any sequence of resizes from either side, with failures injected on either side at every
// step, loses, doubles and reorders nothing; a failed one says why and leaves what was; afterwards
// both ends show the same number of channels: the smaller wish.
#[test]
fn resizes_with_failures_lose_nothing() {
    for seed in 1..=4u64 {
        let mut world = World::new(seed, false);
        let mut dice = seed * 7919;
        let (mut failures, mut changes) = (0, 0);
        for _ in 0..40 {
            let side = (random(&mut dice) % 2) as usize;
            let wanted = [1, 2, 3, 4, 8, 13][(random(&mut dice) % 6) as usize];
            let fail = match random(&mut dice) % 6 {
                0 => Some(Failure::Prepare),
                1 => Some(Failure::Steer),
                _ => None,
            };
            let victim = (random(&mut dice) % 2) as usize;
            world.ends[victim].flows.state().fail = fail;
            let before = [world.ends[0].channels(), world.ends[0].channels()];
            let steered = world.ends.each_ref().map(|e| e.flows.state().steered_to);
            match world.resize(side, wanted) {
                Ok(_) => {
                    changes += 1;
                    world.settle();
                    let wishes = world.ends.each_ref().map(|e| e.link.wish().channels);
                    let smaller = wishes.into_iter().flatten().min().unwrap_or(1);
                    assert_eq!(world.ends[0].channels(), smaller, "{:?}", world.logs());
                }
                Err(why) => {
                    failures += 1;
                    assert!(why.contains("injected"), "{why}");
                    world.settle();
                    assert_eq!([world.ends[0].channels(), world.ends[1].channels()], before);
                    let now = world.ends.each_ref().map(|e| e.flows.state().steered_to);
                    assert_eq!(now, steered, "a failed change left flows elsewhere");
                }
            }
            world.ends[victim].flows.state().fail = None;
        }
        assert!(failures > 2 && changes > 5, "{failures} failures, {changes} changes");
        assert!(world.finish() > 1000);
    }
}

// Goal: after a change of a link on which nothing moves, with lanes asleep at both ends, the first
// frames of every flow arrive in both directions: nobody sleeps through its doorbell.
#[test]
fn an_idle_link_wakes_after_a_change() {
    let mut world = World::quiet(31, false);
    for end in &world.ends {
        end.flows.state().prepare_takes = Duration::from_millis(20);
    }
    for (round, channels) in [8, 2, 16, 1].into_iter().enumerate() {
        for side in [0, 1] {
            // The smaller wish wins, so both ask; each is the leader in one half of the cases.
            world.resize((round + side) % 2, channels).expect("resized");
        }
        world.settle();
        std::thread::sleep(Duration::from_millis(20));
        for end in &world.ends {
            (0..40).for_each(|flow| end.flows.send(flow));
        }
        let due = 40 * (round as u64 + 1);
        world.until("every flow arrives", |w| {
            w.ends.iter().all(|end| end.flows.state().received == due)
        });
    }
    world.finish();
}

// Goal: two users who want different things at the same time both get an answer, and both ends
// settle on the smaller wish.
#[test]
fn both_ends_ask_at_once() {
    for seed in 41..46 {
        let mut world = World::new(seed, false);
        let now = clock::monotonic();
        for (side, channels) in [(0, 8), (1, 4)] {
            let link = &mut world.ends[side].link;
            let wish = Wish { channels: Some(channels), ..link.wish().clone() };
            link.ask(wish, now).expect("asked");
            // One of them gets a head start of a step or two.
            (0..seed % 3).for_each(|_| world.turn());
        }
        let mut answers = [None, None];
        world.until("both are answered", |w| {
            for (end, answer) in w.ends.iter_mut().zip(&mut answers) {
                *answer = answer.take().or(end.link.answer());
            }
            answers.iter().all(Option::is_some)
        });
        assert!(answers.iter().flatten().all(Result::is_ok), "{answers:?}: {:?}", world.logs());
        world.until("the smaller wish wins", |w| w.ends.iter().all(|e| e.channels() == 4));
        world.finish();
    }
}

// Goal: ring sizes and MTU change as the channels do, alone and together with them.
#[test]
fn rings_and_mtu_change_in_mid_flow() {
    let mut world = World::new(11, false);
    for (round, kib) in [16u32, 256, 32, 1024].into_iter().enumerate() {
        let rings = RingWish { rx: Some(kib << 10), tx: None };
        let mtu = if round % 2 == 0 { 9000 } else { 1500 };
        let channels = Some(1 + round as u16);
        let wish = Wish { rings, channels, mtu: Some(mtu), ..Wish::default() };
        world.ask(0, wish).expect("changed");
        world.settle();
        for end in &world.ends {
            assert_eq!(end.link.running().expect("up").plan.mtu, mtu);
        }
        let [near, far] = world.ends.each_mut().map(|end| {
            let sizes =
                end.link.functions().into_iter().filter_map(|f| f.peer().map(|p| p.rings()));
            sizes.collect::<Vec<_>>()[0]
        });
        let largest = near.rx_max.min(kib << 10);
        assert_eq!((near.rx, far.tx), (largest, largest));
    }
    assert!(world.finish() > 100);
}

// Goal: what cannot be is refused at once, with the numbers, and changes nothing.
#[test]
fn the_impossible_is_refused() {
    let mut world = World::new(21, false);
    let tiny = RingWish { rx: Some(512), tx: None };
    let why = world.ask(1, Wish { rings: tiny, ..Wish::default() }).unwrap_err();
    assert!(why.contains("rings too small for a frame of mtu 1500"), "{why}");
    world.resize(0, 4).expect("still alive");
    world.finish();
}

// Goal: a follower that looks late finds a leader whose new lanes have long gone to sleep, or
// would have; what it sends there arrives nevertheless.
#[test]
fn a_late_follower_wakes_its_leader() {
    let mut world = World::new(31, false);
    let leads = |end: &mut End| {
        end.link.functions().into_iter().any(|f| f.peer().is_some_and(|peer| peer.leads()))
    };
    let leader = world.ends.iter_mut().position(leads).expect("one of them leads");
    for channels in [4, 1, 8, 2] {
        let wish = Wish { channels: Some(channels), ..Wish::default() };
        world.ends[leader].link.ask(wish, clock::monotonic()).expect("asked");
        while !world.ends[leader].link.is_changing() {
            world.ends[leader].turn();
        }
        // An idle lane of a busy worker sleeps after 64 poll windows of a millisecond.
        std::thread::sleep(Duration::from_millis(200));
        world.until("the change is made", |w| w.ends.iter().all(|e| e.channels() == channels));
        world.settle();
    }
    assert!(world.finish() > 1000);
}
