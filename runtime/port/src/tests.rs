//! Tests of a port that is joined with a loopback: frames that the program sends return to it.

mod changes;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mqnet_engine::{Cpus, LinkConfig};
use mqnet_netdev::loopback::Loopback;
use mqnet_netdev::{
    Armed, Burst, Channel, Fault, FrameMeta, Function, OwningRx, OwningTx, Plan, Rx, Tx,
};
use mqnet_shmem::Span;
use mqnet_sysio::poll;
use mqnet_wire::{Layer, VnetHdr};

use super::*;

fn config(channels: u16, depth: u32) -> PortConfig {
    PortConfig {
        name: "port:test".into(),
        channels,
        layer: Layer::Ip,
        mtu: 1400,
        mtu_max: 1400,
        depth,
    }
}

fn start(channels: u16, depth: u32) -> (LinkDriver, Vec<(Receiver, Sender)>) {
    let (port, ends) = PortFunction::open(config(channels, depth)).unwrap();
    let link = LinkConfig { cpus: Cpus::Float, ..LinkConfig::default() };
    let driver = LinkDriver::start(Box::new(Loopback::new(channels)), port, link).unwrap();
    (driver, ends)
}

/// Asserts the conservation check for an idle link. Waits first: a lane counts taken frames after
/// the sink has accepted them, and a wake when it runs again.
fn assert_conserved(driver: &LinkDriver, frames: u64) {
    let begin = Instant::now();
    let mut stats = driver.stats();
    let is_late = |stats: &Stats| {
        let way = &stats.to_program;
        way.taken < frames || way.stops > way.wakes
    };
    while begin.elapsed() < Duration::from_secs(30) && is_late(&stats) {
        stats = driver.stats();
    }
    for way in [&stats.to_program, &stats.to_device] {
        assert_eq!((way.taken, way.sent, way.dropped(), way.waiting), (frames, frames, 0, 0));
        assert!(way.stops == way.wakes, "{way:?}");
    }
}

// Goal: frames of several senders on two channels return complete and in the order of each sender,
// although the rings are much smaller than the traffic.
#[test]
fn frames_return_in_order() {
    const EACH: u32 = 5000;
    let (driver, ends) = start(2, 16);
    let mut threads = Vec::new();
    for (mut rx, tx) in ends {
        for sender in 0..2u32 {
            let mut tx = tx.clone();
            threads.push(std::thread::spawn(move || {
                for i in 0..EACH {
                    let mut frame = [sender.to_le_bytes(), i.to_le_bytes()].concat();
                    frame.resize(8 + (i as usize * 7) % 1392, i as u8);
                    tx.send(&frame).unwrap();
                }
            }));
        }
        threads.push(std::thread::spawn(move || {
            let mut next = [0u32; 2];
            while next != [EACH; 2] {
                let frame = rx.recv().unwrap().unwrap();
                let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
                let (sender, i) = (word(0) as usize, word(4));
                assert_eq!(i, next[sender]);
                assert_eq!(frame.len(), 8 + (i as usize * 7) % 1392);
                assert!(frame[8..].iter().all(|&b| b == i as u8));
                next[sender] += 1;
            }
        }));
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_conserved(&driver, 4 * u64::from(EACH));
}

// Goal: a program that does not receive stops the senders, with bounded memory. When the program
// receives again, every sent frame arrives.
#[test]
fn program_that_does_not_receive_stops_its_senders() {
    let (driver, mut ends) = start(1, 8);
    let (mut rx, mut tx) = ends.remove(0);
    let begin = Instant::now();
    let (mut sent, mut last) = (0u32, begin);
    while last.elapsed() < Duration::from_millis(200) {
        match tx.try_send(&sent.to_le_bytes()) {
            Ok(()) => (sent, last) = (sent + 1, Instant::now()),
            Err(error) => assert_eq!(error, Error::Full),
        }
        assert!(sent < 2000, "the sender is not stopped");
    }
    assert!(tx.arm().unwrap());
    for i in 0..sent {
        assert_eq!(&*rx.recv().unwrap().unwrap(), i.to_le_bytes());
    }
    poll::wait_readable(&[tx.as_fd()], Duration::from_secs(5)).unwrap();
    assert!(!tx.arm().unwrap(), "the descriptor reported room");
    assert!(rx.try_recv().unwrap().is_none());
    assert_conserved(&driver, sent.into());
    assert!(driver.stats().to_program.stops > 0);
}

// Goal: the receiver's descriptor becomes readable for each next frame.
#[test]
fn poll_loop_gets_every_frame() {
    let (_driver, mut ends) = start(1, 8);
    let (mut rx, mut tx) = ends.remove(0);
    for i in 0..200u32 {
        assert!(rx.try_recv().unwrap().is_none());
        tx.send(&i.to_le_bytes()).unwrap();
        let begin = Instant::now();
        let frame = loop {
            poll::wait_readable(&[rx.as_fd()], Duration::from_secs(5)).unwrap();
            assert!(begin.elapsed() < Duration::from_secs(5), "frame {i} was not announced");
            if let Some(frame) = rx.try_recv().unwrap() {
                break frame.to_vec();
            }
        };
        assert_eq!(frame, i.to_le_bytes());
    }
}

// Goal: a frame of invalid length is rejected with the limits, and a dropped reservation sends
// nothing.
#[test]
fn lengths_are_checked() {
    let (_driver, mut ends) = start(1, 8);
    let (mut rx, mut tx) = ends.remove(0);
    assert_eq!(tx.max(), 1400);
    for len in [0, 1401, 1 << 20] {
        let error = tx.send(&vec![0; len]).unwrap_err();
        assert_eq!(error, Error::Length { len, max: 1400 });
        assert!(error.to_string().contains("1 to 1400"));
    }
    assert!(tx.room().unwrap().send(1401).is_err());
    drop(tx.room().unwrap());
    tx.send(&[7; 1400]).unwrap();
    assert_eq!(&*rx.recv().unwrap().unwrap(), [7; 1400]);
}

// Goal: dropping the driver ends all waits of senders and receivers with a close, not with a
// failure.
#[test]
fn close_ends_all_waits() {
    let (driver, mut ends) = start(2, 2);
    let ((mut idle, _), (_unread, mut tx)) = (ends.remove(0), ends.remove(0));
    let receiver = std::thread::spawn(move || idle.recv().unwrap().is_none());
    let sender = std::thread::spawn(move || {
        loop {
            if let Err(error) = tx.send(&[1; 100]) {
                return error;
            }
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    drop(driver);
    assert!(receiver.join().unwrap());
    assert_eq!(sender.join().unwrap(), Error::Closed);
}

// Goal: an invalid option is rejected with its name and range, and functions of different layers
// cannot be joined.
#[test]
fn invalid_options_are_refused() {
    let refused = |config: PortConfig| PortFunction::open(config).unwrap_err().to_string();
    assert_eq!(refused(config(0, 8)), "port:test: queues: 0: 1 to 64");
    assert_eq!(refused(config(65, 8)), "port:test: queues: 65: 1 to 64");
    assert_eq!(refused(config(1, 1)), "port:test: depth: 1: 2 to 16384");
    let large = PortConfig { mtu_max: 1399, ..config(1, 8) };
    assert_eq!(refused(large), "port:test: mtu_max: 1399: 1400 to 65535");
    let small = PortConfig { mtu: 67, ..config(1, 8) };
    assert_eq!(refused(small), "port:test: mtu: 67: 68 to 65535");
    let ethernet = PortConfig { layer: Layer::Ethernet, ..config(1, 8) };
    let (a, _) = PortFunction::open(ethernet).unwrap();
    let (b, _) = PortFunction::open(config(1, 8)).unwrap();
    let error = LinkDriver::start(Box::new(a), b, LinkConfig::default()).unwrap_err();
    assert!(error.to_string().contains("IP packets, the other Ethernet"), "{error}");
    let (port, _ends) = PortFunction::open(config(1, 8)).unwrap();
    let link = LinkConfig { channels: Some(1), ..LinkConfig::default() };
    let driver = LinkDriver::start(Box::new(Loopback::new(2)), port, link).unwrap();
    assert_eq!(driver.plan().channels, 1);
}

fn queues(port: &mut PortFunction) -> (Box<dyn OwningRx>, Box<dyn OwningTx>) {
    let caps = port.caps();
    let plan = Plan::join(&caps, &caps).unwrap();
    let Channel { rx: Rx::Owning(rx), tx: Tx::Owning(tx) } = port.open(&plan).unwrap().remove(0)
    else {
        panic!("a queue of another kind")
    };
    (rx, tx)
}

fn submit(tx: &mut dyn OwningTx, frame: &[u8]) -> Result<usize, Fault> {
    let mut burst = Burst::new();
    burst.push(VnetHdr::default(), frame.len() as u32, Span::of(frame));
    let n = tx.submit(&burst, 0)?;
    tx.flush()?;
    Ok(n)
}

// Goal: the occupancy is the number of bytes that the program has not released. A stopped lane is
// woken when enough of the queue is free.
#[test]
fn occupancy_is_in_bytes() {
    let (mut port, mut ends) = PortFunction::open(config(1, 4)).unwrap();
    let (_rx, mut tx) = queues(&mut port);
    let fill = |tx: &mut Box<dyn OwningTx>| tx.fill(0).unwrap().unwrap();
    assert_eq!((fill(&mut tx).used, fill(&mut tx).size), (0, 4 * 1401));
    for len in [100, 200, 300, 400] {
        assert_eq!(submit(&mut *tx, &vec![1; len]).unwrap(), 1);
    }
    assert_eq!(fill(&mut tx).used, 1000);
    assert_eq!(submit(&mut *tx, &[1; 100]).unwrap(), 0);
    assert!(tx.reserve(1401).unwrap().is_none());
    assert_eq!(tx.arm(1401).unwrap(), Armed::Sleep);
    let closer = port.closer();
    let woken = || poll::is_readable(closer.worker_event(0)).unwrap();
    let receiver = &mut ends[0].0;
    let first = receiver.recv().unwrap().unwrap();
    assert!(!woken() && fill(&mut tx).used == 1000, "the frame is not released");
    drop(first);
    assert!(!woken() && fill(&mut tx).used == 900);
    drop(receiver.recv().unwrap());
    assert!(woken() && fill(&mut tx).used == 700, "half is free");
    assert_eq!(tx.arm(1401).unwrap(), Armed::MoreWork);
}

// Goal: a held queue accepts no frame, and a reservation without a commit is discarded. Frames of
// one session that were not released are the first of the next session.
#[test]
fn frames_stay_between_sessions() {
    let (mut port, mut ends) = PortFunction::open(config(1, 4)).unwrap();
    let (mut receiver, mut sender) = ends.remove(0);
    sender.send(&[1; 10]).unwrap();
    sender.send(&[2; 10]).unwrap();
    let (mut rx, mut tx) = queues(&mut port);
    tx.hold(true).unwrap();
    assert_eq!(submit(&mut *tx, &[3; 30]).unwrap(), 0);
    assert!(tx.reserve(50).unwrap().is_none());
    tx.hold(false).unwrap();
    assert_eq!(submit(&mut *tx, &[3; 30]).unwrap(), 1);
    assert!(tx.reserve(50).unwrap().is_some());
    assert_eq!(&*receiver.recv().unwrap().unwrap(), [3; 30]);
    assert_eq!(tx.reserve(50).unwrap().unwrap().len(), 50);
    tx.commit(&FrameMeta { len: 40, hdr: VnetHdr::default() });
    let mut burst = Burst::new();
    rx.peek(&mut burst, 64).unwrap();
    assert_eq!(burst.frames().len(), 2);
    drop(burst);
    rx.release(1).unwrap();
    let caps = port.caps();
    let plan = Plan::join(&caps, &caps).unwrap();
    assert!(port.open(&plan).is_err(), "the queues are in use");
    drop((rx, tx));
    let (mut rx, mut tx) = queues(&mut port);
    let mut burst = Burst::new();
    rx.peek(&mut burst, 64).unwrap();
    let (first, mut bytes) = (burst.frames()[0], [0; 10]);
    assert_eq!(first.head.read_header(&mut bytes), 10);
    assert_eq!((burst.frames().len(), bytes), (1, [2; 10]));
    assert_eq!(receiver.recv().unwrap().unwrap().len(), 40);
    assert_eq!(submit(&mut *tx, &[4; 4]).unwrap(), 1);
    assert_eq!(&*receiver.recv().unwrap().unwrap(), [4; 4]);
}
