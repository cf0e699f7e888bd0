//! Tests of channel and MTU changes under numbered traffic. Two ports are joined, so the test has
//! both ends and can account for every frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};

use mqnet_engine::{Link, LinkSettings, Notice, RequestError};
use mqnet_netdev::QueuePairStats;
use mqnet_sysio::clock;

use super::*;
use crate::function::Closer;

const QUEUES: u16 = 4;
const MTU_MAX: u32 = 1400;
/// Length of the header of a test frame, which contains the frame's number.
const NUMBER: usize = 4;
/// Time limit of a step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

type Ends = Vec<(Receiver, Sender)>;

/// Two joined ports with their statistics.
struct Pair {
    driver: LinkDriver,
    /// Handle that closes the first port; the driver closes the second.
    closer: Closer,
    ends: [Ends; 2],
    stats: [Vec<Arc<QueuePairStats>>; 2],
}

fn pair(mtu: u32, depth: u32) -> Pair {
    let config = || PortConfig { mtu, mtu_max: MTU_MAX, ..config(QUEUES, depth) };
    let (a, near) = PortFunction::open(config()).unwrap();
    let (b, far) = PortFunction::open(config()).unwrap();
    let (closer, stats) = (a.closer(), [a.stats().to_vec(), b.stats().to_vec()]);
    let link = LinkConfig { cpus: Cpus::Float, ..LinkConfig::default() };
    let driver = LinkDriver::start(Box::new(a), b, link).unwrap();
    Pair { driver, closer, ends: [near, far], stats }
}

fn request(link: &mut Link, edit: impl FnOnce(&mut LinkSettings)) {
    let mut settings = link.settings().clone();
    edit(&mut settings);
    link.request(settings, clock::monotonic()).unwrap();
}

/// Requests a change and waits for its completion. Returns the error of a failed change.
fn change(
    driver: &LinkDriver,
    edit: impl FnOnce(&mut LinkSettings) + Send + 'static,
) -> Result<(), RequestError> {
    driver.call(|link| request(link, edit)).unwrap();
    let begin = Instant::now();
    loop {
        if let Some(answer) = driver.call(Link::answer).unwrap() {
            return answer.map(|_| ());
        }
        assert!(begin.elapsed() < PATIENCE, "the change is not done");
        sleep(Duration::from_micros(100));
    }
}

fn set_channels(driver: &LinkDriver, channels: u16) {
    change(driver, move |settings| settings.channels = Some(channels)).unwrap();
    assert_eq!(driver.plan().channels, channels);
}

fn set_mtu(driver: &LinkDriver, mtu: u32) {
    change(driver, move |settings| settings.mtu = Some(mtu)).unwrap();
    assert_eq!(driver.plan().mtu, mtu);
}

fn random(seed: &mut u64, below: u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed >> 8) % below
}

/// Sends numbered frames until `stop` is true or the port is closed. Returns the number of accepted
/// frames. The lengths cover the whole range of the MTU in force.
fn send_numbered(mut tx: Sender, stop: Arc<AtomicBool>) -> JoinHandle<u32> {
    spawn(move || {
        let mut next = 0u32;
        while !stop.load(Ordering::Relaxed) {
            let mut frame = next.to_le_bytes().to_vec();
            frame.resize(NUMBER + (next as usize * 97) % (tx.max() - NUMBER + 1), next as u8);
            match tx.send(&frame) {
                Ok(()) => next += 1,
                // The MTU has decreased: send the same number in a shorter frame.
                Err(Error::Length { .. }) => {}
                Err(Error::NotInUse) => sleep(Duration::from_micros(50)),
                Err(Error::Closed) => break,
                Err(e) => panic!("{e}"),
            }
        }
        next
    })
}

/// Receives frames until the port is closed. Returns their numbers.
fn receive_numbered(mut rx: Receiver) -> JoinHandle<Vec<u32>> {
    spawn(move || {
        let mut numbers = Vec::new();
        while let Some(frame) = rx.recv().unwrap() {
            let number = u32::from_le_bytes(frame[..NUMBER].try_into().unwrap());
            assert!(frame[NUMBER..].iter().all(|&byte| byte == number as u8));
            numbers.push(number);
        }
        numbers
    })
}

/// Traffic on every channel of a pair, in both directions.
struct Traffic {
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<u32>>,
    receivers: Vec<JoinHandle<Vec<u32>>>,
}

impl Traffic {
    fn start(ends: [Ends; 2]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        let [near, far] = ends;
        // Frames of a sender arrive at the receiver of the same channel of the other port.
        for ((near_rx, near_tx), (far_rx, far_tx)) in near.into_iter().zip(far) {
            senders.extend([near_tx, far_tx].map(|tx| send_numbered(tx, stop.clone())));
            receivers.extend([far_rx, near_rx].map(receive_numbered));
        }
        Self { stop, senders, receivers }
    }

    /// Stops the senders. Returns the number of frames that each sender's channel accepted.
    fn stop(&mut self) -> Vec<u32> {
        self.stop.store(true, Ordering::Relaxed);
        self.senders.drain(..).map(|sender| sender.join().unwrap()).collect()
    }

    fn received(self) -> Vec<Vec<u32>> {
        self.receivers.into_iter().map(|receiver| receiver.join().unwrap()).collect()
    }
}

/// Ends the traffic with all channels in use. Asserts that every accepted frame arrived once and in
/// order, except frames dropped as too long. Returns the number of dropped frames.
fn account(driver: LinkDriver, closer: &Closer, mut traffic: Traffic) -> u64 {
    set_channels(&driver, QUEUES);
    let sent = traffic.stop();
    let total = sent.iter().map(|&n| u64::from(n)).sum::<u64>();
    let begin = Instant::now();
    let moved = |stats: &Stats| stats.to_program.taken + stats.to_device.taken;
    let mut stats = driver.stats();
    while moved(&stats) < total {
        assert!(begin.elapsed() < PATIENCE, "{} of {total} frames moved: {stats:?}", moved(&stats));
        sleep(Duration::from_millis(1));
        stats = driver.stats();
    }
    drop(driver);
    closer.close(Error::Closed);
    assert_eq!(moved(&stats), total);
    let received = traffic.received();
    let mut missing = 0;
    for (numbers, sent) in received.iter().zip(sent) {
        assert!(numbers.is_sorted_by(|a, b| a < b), "a frame is duplicated or out of order");
        assert!(numbers.iter().all(|&number| number < sent));
        assert!(sent > 0);
        missing += u64::from(sent) - numbers.len() as u64;
    }
    assert_eq!(missing, stats.to_program.dropped() + stats.to_device.dropped(), "{stats:?}");
    missing
}

// Goal: while the number of channels changes repeatedly between 1 and the maximum, every accepted
// frame arrives once, in the order of its channel.
#[test]
fn resizes_lose_and_duplicate_nothing() {
    let Pair { driver, closer, ends, .. } = pair(MTU_MAX, 16);
    let traffic = Traffic::start(ends);
    for _ in 0..10 {
        for channels in (1..=QUEUES).chain((1..QUEUES).rev()) {
            set_channels(&driver, channels);
        }
    }
    assert_eq!(account(driver, &closer, traffic), 0);
}

// Goal: every frame is accounted for in random sequences of channel and MTU changes, with rings of
// random size.
#[test]
fn random_changes_account_for_every_frame() {
    for seed in 1..=6u64 {
        let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let depth = 2 + random(&mut dice, 40) as u32;
        let Pair { driver, closer, ends, .. } = pair(1000, depth);
        let traffic = Traffic::start(ends);
        for _ in 0..20 {
            let channels = 1 + random(&mut dice, QUEUES.into()) as u16;
            let mtu = 100 + random(&mut dice, u64::from(MTU_MAX) - 99) as u32;
            let both = random(&mut dice, 3);
            change(&driver, move |settings| {
                settings.channels = if both != 1 { Some(channels) } else { settings.channels };
                settings.mtu = if both != 2 { Some(mtu) } else { settings.mtu };
            })
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        println!("seed {seed}: {} frames too long", account(driver, &closer, traffic));
    }
}

// Goal: senders follow an MTU that decreases and increases on a running link. An MTU above
// `mtu_max` is rejected and changes nothing.
#[test]
fn mtu_changes_both_ways() {
    let Pair { driver, ends: [mut near, mut far], .. } = pair(1000, 8);
    let (tx, rx) = (&mut near[3].1, &mut far[3].0);
    for mtu in [600, 68, MTU_MAX, 1000] {
        set_mtu(&driver, mtu);
        let max = mtu as usize;
        assert_eq!(tx.max(), max);
        assert_eq!(tx.send(&vec![1; max + 1]), Err(Error::Length { len: max + 1, max }));
        assert_eq!(tx.room().unwrap().len(), max);
        tx.send(&vec![1; max]).unwrap();
        assert_eq!(rx.recv().unwrap().unwrap().len(), max);
    }
    let error = change(&driver, |settings| settings.mtu = Some(MTU_MAX + 1)).unwrap_err();
    assert!(error.to_string().contains("1400"), "{error}");
    assert_eq!((driver.plan().mtu, tx.max()), (1000, 1000));
}

// Goal: space that was reserved before a change can neither exceed the new MTU nor be sent on a
// channel that is not in use.
#[test]
fn rooms_follow_changes() {
    let Pair { driver, ends: [mut near, mut far], .. } = pair(MTU_MAX, 8);
    let (mut first, mut second) = (near[0].1.clone(), near[1].1.clone());
    let (large, retired) = (first.room().unwrap(), second.room().unwrap());
    set_channels(&driver, 1);
    set_mtu(&driver, 500);
    assert_eq!(large.send(501), Err(Error::Length { len: 501, max: 500 }));
    assert_eq!(retired.send(1), Err(Error::NotInUse));
    near[0].1.send(&[1; 500]).unwrap();
    assert_eq!(far[0].0.recv().unwrap().unwrap().len(), 500);
    set_channels(&driver, 2);
    near[1].1.send(&[2; 5]).unwrap();
    assert_eq!(&*far[1].0.recv().unwrap().unwrap(), [2; 5]);
}

// Goal: frames that wait for the program when their channel is retired can be received later. The
// retired channel delivers no other frames and rejects sends. The channel works normally when it is
// in use again.
#[test]
fn retired_queue_keeps_its_frames() {
    let Pair { driver, ends: [mut near, mut far], .. } = pair(MTU_MAX, 8);
    for number in 0..5u8 {
        near[2].1.send(&[number; 9]).unwrap();
    }
    set_channels(&driver, 1);
    for ends in [&mut near, &mut far] {
        let (rx, tx) = &mut ends[2];
        assert!(!rx.is_in_use() && !tx.is_in_use());
        assert_eq!(tx.send(&[1; 9]), Err(Error::NotInUse));
        assert_eq!(tx.try_send(&[1; 9]), Err(Error::NotInUse));
    }
    for number in 0..5u8 {
        assert_eq!(&*far[2].0.try_recv().unwrap().unwrap(), [number; 9]);
    }
    assert!(far[2].0.try_recv().unwrap().is_none());
    assert!(near[2].1.arm().unwrap(), "the descriptor reports when the queue is in use again");
    assert!(!poll::is_readable(near[2].1.as_fd()).unwrap());
    set_channels(&driver, 3);
    assert!(poll::is_readable(near[2].1.as_fd()).unwrap());
    near[2].1.send(&[9; 9]).unwrap();
    assert_eq!(&*far[2].0.recv().unwrap().unwrap(), [9; 9]);
}

// Goal: all senders that wait for space on a full channel return when the channel is retired.
#[test]
fn waiting_senders_return_when_the_queue_is_retired() {
    let Pair { driver, ends: [near, _unread], .. } = pair(MTU_MAX, 2);
    let senders: Vec<_> = (0..12)
        .map(|_| {
            let mut tx = near[1].1.clone();
            spawn(move || {
                loop {
                    if let Err(e) = tx.send(&[1; 100]) {
                        return e;
                    }
                }
            })
        })
        .collect();
    sleep(Duration::from_millis(50));
    // The lane cannot drain, because the program does not receive, so the change does not complete.
    driver.call(|link| request(link, |settings| settings.channels = Some(1))).unwrap();
    for sender in senders {
        assert_eq!(sender.join().unwrap(), Error::NotInUse);
    }
}

// Goal: the driver can be dropped at any time of a change. The drop returns, every sender and
// receiver ends, and all frames that the far port accepted are received in order without a gap.
#[test]
fn driver_is_dropped_during_changes() {
    let mut dice = 7;
    for round in 0..30u64 {
        let Pair { driver, closer, ends, stats } = pair(MTU_MAX, 8);
        let mut traffic = Traffic::start(ends);
        let channels = 1 + random(&mut dice, u64::from(QUEUES) - 1) as u16;
        sleep(Duration::from_micros(random(&mut dice, 3000)));
        driver
            .call(move |link| request(link, |settings| settings.channels = Some(channels)))
            .unwrap();
        sleep(Duration::from_micros(random(&mut dice, 100 << (round % 6))));
        let begin = Instant::now();
        drop(driver);
        assert!(begin.elapsed() < PATIENCE);
        closer.close(Error::Closed);
        let sent = traffic.stop();
        let received = traffic.received();
        for (numbers, sent) in received.iter().zip(sent) {
            assert!(numbers.iter().copied().eq(0..numbers.len() as u32));
            assert!(numbers.len() <= sent as usize);
        }
        let accepted: u64 = stats.iter().flatten().map(|stats| stats.tx.packets.get()).sum();
        assert_eq!(received.iter().map(Vec::len).sum::<usize>() as u64, accepted);
    }
}

/// Runs control steps of a link until a change to this number of channels is complete.
fn turn_until(link: &mut Link, channels: u16) {
    let begin = Instant::now();
    loop {
        match link.turn(clock::monotonic()).unwrap() {
            Some(Notice::Up(plan) | Notice::Changed { plan, .. }) if plan.channels == channels => {
                return;
            }
            Some(Notice::Down(why) | Notice::ChangeFailed(why)) => panic!("{why}"),
            _ => {}
        }
        assert!(begin.elapsed() < PATIENCE, "the change is not done");
        poll::wait_readable(&link.events(), link.patience()).unwrap();
    }
}

// Goal: every frame returns once and in order when a port with a loopback is resized under traffic.
#[test]
fn loopback_follows_resizes() {
    let (port, ends) = PortFunction::open(config(QUEUES, 16)).unwrap();
    let closer = port.closer();
    let stats = port.stats().to_vec();
    let loopback = Box::new(Loopback::new(QUEUES));
    let link = LinkConfig { cpus: Cpus::Float, ..LinkConfig::default() };
    let mut link = Link::new(Box::new(port), loopback, link).unwrap();
    turn_until(&mut link, QUEUES);
    let stop = Arc::new(AtomicBool::new(false));
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for (rx, tx) in ends {
        senders.push(send_numbered(tx, stop.clone()));
        receivers.push(receive_numbered(rx));
    }
    let mut traffic = Traffic { stop, senders, receivers };
    for _ in 0..10 {
        for channels in (1..QUEUES).rev().chain(2..=QUEUES) {
            request(&mut link, |settings| settings.channels = Some(channels));
            turn_until(&mut link, channels);
            link.answer().unwrap().unwrap();
        }
    }
    let sent = traffic.stop();
    let total: u64 = sent.iter().map(|&n| u64::from(n)).sum();
    let begin = Instant::now();
    let returned = || stats.iter().map(|stats| stats.tx.packets.get()).sum::<u64>();
    while returned() < total {
        assert!(begin.elapsed() < PATIENCE, "{} of {total} frames returned", returned());
        sleep(Duration::from_millis(1));
    }
    link.shut_down("the test ends", Duration::ZERO).unwrap();
    closer.close(Error::Closed);
    for (numbers, sent) in traffic.received().iter().zip(sent) {
        assert!(numbers.iter().copied().eq(0..sent));
    }
}
