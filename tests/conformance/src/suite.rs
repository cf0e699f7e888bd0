//! Checks of the suite; each check takes a new rig.

pub mod memory;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqnet_netdev::{Armed, Burst, DetachedFrame, Queue, QueuePairStats, Rx, Tx};
use mqnet_pktbuf::Returner;
use mqnet_shmem::copies;

use crate::{Rig, frame, number_of};

/// Time after which an event is regarded as lost.
const PATIENCE: Duration = Duration::from_secs(10);

fn rx_queue(rig: &mut Rig) -> &mut dyn Queue {
    rig.rx.queue()
}

/// Runs every check. Returns true if the RX queue can detach frames with their memory.
pub fn whole(make: &mut dyn FnMut() -> Rig) -> bool {
    frames_arrive_in_order(&mut make());
    partial_bursts_lose_nothing(&mut make());
    full_is_an_outcome(&mut make());
    an_armed_queue_is_woken(&mut make());
    a_stopped_queue_is_woken(&mut make());
    all_is_enough(&mut make());
    counters_add_up(&mut make());
    memory::reservations_carry_frames(&mut make());
    memory::held_frames_wait(&mut make());
    memory::parked_queues_go_on(&mut make());
    let keeps = kept_frames_stay(&mut make());
    keeping_too_much_is_an_outcome(&mut make());
    closing_returns_everything(make);
    keeps
}

/// Checks that frames of every length arrive complete, once and in order.
pub fn frames_arrive_in_order(rig: &mut Rig) {
    let max = rig.frame_max as usize;
    let lens = [18, 60, 63, 64, 65, 127, 128, 1499, 1500, 1501, 4095, 4096, 9000, max - 1, max];
    let mut expected = 0;
    for (number, len) in (0u32..).zip(lens.into_iter().filter(|&len| len <= max).cycle().take(200))
    {
        let bytes = frame(number, len);
        while rig.send(std::slice::from_ref(&bytes)) == 0 {
            expect_next(rig, &mut expected);
        }
        if number % 7 == 0 {
            expect_next(rig, &mut expected);
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while expected < 200 {
        assert!(Instant::now() < deadline, "{}: {expected} of 200 frames arrived", rig.name);
        expect_next(rig, &mut expected);
    }
}

fn expect_next(rig: &mut Rig, expected: &mut u32) {
    let numbers = rig.drain();
    check_order(rig, numbers, expected);
}

/// Checks that the numbers of received frames are consecutive. The failure message distinguishes a
/// late frame from one that was not received.
fn check_order(rig: &mut Rig, mut numbers: VecDeque<u32>, expected: &mut u32) {
    while let Some(number) = numbers.pop_front() {
        if number != *expected {
            std::thread::sleep(Duration::from_millis(100));
            numbers.extend(rig.drain());
            let fate = if numbers.contains(expected) { "late" } else { "not received" };
            panic!(
                "{}: out of order: {number}, expected {expected} is {fate}; then {numbers:?}\n\
                 sent: {:?}\nreceived: {:?}\ninterfaces of the kernel:\n{}",
                rig.name,
                rig.tx_stats.tx,
                rig.rx_stats.rx,
                std::fs::read_to_string("/proc/net/dev").unwrap_or_default()
            );
        }
        *expected += 1;
    }
}

/// Checks that a queue accepts a prefix of a burst that does not fit, and that the remaining frames
/// can be sent later. The next peek returns frames again that were not released.
pub fn partial_bursts_lose_nothing(rig: &mut Rig) {
    let frames: Vec<_> = (0..2000u32).map(|n| frame(n, 100 + (n as usize * 37) % 1300)).collect();
    let (mut sent, mut expected, mut turn) = (0usize, 0u32, 0usize);
    let deadline = Instant::now() + PATIENCE;
    while expected < frames.len() as u32 {
        assert!(Instant::now() < deadline, "{}: stuck at {expected}", rig.name);
        turn += 1;
        let burst = &frames[sent..frames.len().min(sent + 1 + turn % 64)];
        // Limit the frames in flight if a kernel between the queues would drop frames at its full
        // ring.
        if rig.lossless || sent - (expected as usize) < 400 {
            sent += rig.send(burst);
        }
        let received = rig.receive(1 + turn % 50, turn % 3);
        let numbers = received.iter().filter_map(|bytes| crate::number_of(bytes)).collect();
        check_order(rig, numbers, &mut expected);
    }
    assert!(rig.drain().is_empty(), "{}: a frame came twice", rig.name);
}

/// Checks that a full queue accepts fewer frames than were sent, and accepts frames again after
/// frames were received.
pub fn full_is_an_outcome(rig: &mut Rig) {
    if !rig.lossless {
        return; // A TAP never reports full.
    }
    let bytes = frame(0, 1000);
    let mut sent = 0u64;
    while rig.send(std::slice::from_ref(&bytes)) == 1 {
        sent += 1;
        assert!(sent < 1 << 20, "{}: never full", rig.name);
    }
    assert_eq!(rig.drain().len() as u64, sent);
    assert_eq!(rig.send(&[bytes]), 1, "{}: no room after everything was taken", rig.name);
    assert_eq!(rig.drain().len(), 1);
}

/// Checks that the next frame wakes a consumer after `arm` has returned `Armed::Sleep`. If a frame
/// is pending, `arm` reports work, or an event follows.
pub fn an_armed_queue_is_woken(rig: &mut Rig) {
    rig.drain();
    let Some(event) = rx_queue(rig).event() else { return };
    let watched = event.fd.try_clone_to_owned().expect("dup");
    let epoll = mqnet_sysio::epoll::Epoll::new().expect("epoll");
    epoll.add(watched.as_fd(), mqnet_sysio::epoll::Interest::ReadableEdge, 1).expect("add");
    for number in 0..100 {
        // Discard events of earlier frames before the queue is armed.
        epoll.wait(Some(Duration::ZERO), |_| ()).expect("wait");
        assert!(rig.drain().is_empty());
        let armed = rx_queue(rig).arm(0).expect("arm");
        assert_eq!(rig.send(&[frame(number, 60)]), 1);
        if armed == Armed::Sleep {
            let n = epoll.wait(Some(PATIENCE), |_| ()).expect("wait");
            assert!(n > 0, "{}: the wake-up for frame {number} was lost", rig.name);
        }
        let deadline = Instant::now() + PATIENCE;
        while rig.drain().is_empty() {
            assert!(Instant::now() < deadline, "{}: frame {number} was lost", rig.name);
        }
    }
    // A frame that is pending before `arm` is reported as work or by an event.
    epoll.wait(Some(Duration::ZERO), |_| ()).expect("wait");
    assert_eq!(rig.send(&[frame(7, 60)]), 1);
    if rx_queue(rig).arm(0).expect("arm") == Armed::Sleep {
        assert!(epoll.wait(Some(PATIENCE), |_| ()).expect("wait") > 0, "{}", rig.name);
    }
}

/// Checks that a producer that stopped on a full queue is woken when frames have been received.
pub fn a_stopped_queue_is_woken(rig: &mut Rig) {
    if !rig.lossless {
        return; // The path behind the queue drops frames, so the queue is never full.
    }
    let Some(event) = rig.tx.queue().event() else { return };
    let watched = event.fd.try_clone_to_owned().expect("dup");
    let epoll = mqnet_sysio::epoll::Epoll::new().expect("epoll");
    epoll.add(watched.as_fd(), mqnet_sysio::epoll::Interest::ReadableEdge, 1).expect("add");
    for round in 0..20 {
        let bytes = frame(round, 1000);
        while rig.send(std::slice::from_ref(&bytes)) == 1 {}
        epoll.wait(Some(Duration::ZERO), |_| ()).expect("wait");
        assert_eq!(rig.tx.queue().arm(1000).expect("arm"), Armed::Sleep, "{}", rig.name);
        rig.drain();
        let n = epoll.wait(Some(PATIENCE), |_| ()).expect("wait");
        assert!(n > 0, "{}: the stopped queue was not notified of room", rig.name);
        assert_eq!(rig.tx.queue().arm(1000).expect("arm"), Armed::MoreWork, "{}", rig.name);
    }
}

/// Checks that a producer continues at an empty queue even if it waits for more space than the
/// queue has. If the queue became empty before `arm`, no event follows, so `arm` must report work.
pub fn all_is_enough(rig: &mut Rig) {
    if !rig.lossless || rig.tx.queue().event().is_none() {
        return;
    }
    for need in [1 << 20, u32::MAX] {
        rig.drain();
        let deadline = Instant::now() + PATIENCE;
        while rig.tx.queue().arm(need).expect("arm") != Armed::MoreWork {
            assert!(Instant::now() < deadline, "{}: asleep in front of an empty ring", rig.name);
            rig.drain();
        }
    }
}

/// Checks that sent frames and bytes are counted at both ends.
pub fn counters_add_up(rig: &mut Rig) {
    rig.drain();
    let before = (rig.rx_stats.rx.packets.get(), rig.rx_stats.rx.bytes.get());
    let (mut bytes, mut got) = (0, 0);
    for number in 0..100u32 {
        let one = frame(number, 60 + number as usize);
        bytes += one.len() as u64;
        assert_eq!(rig.send(&[one]), 1);
        got += rig.drain().len();
    }
    let deadline = Instant::now() + PATIENCE;
    while got < 100 {
        assert!(Instant::now() < deadline, "{}: {got} of 100", rig.name);
        got += rig.drain().len();
    }
    let (tx, rx) = (&rig.tx_stats.tx, &rig.rx_stats.rx);
    assert_eq!((tx.packets.get(), tx.bytes.get()), (100, bytes), "{}: tx", rig.name);
    let (packets, rx_bytes) = (rx.packets.get() - before.0, rx.bytes.get() - before.1);
    assert_eq!((packets, rx_bytes), (100, bytes), "{}: rx", rig.name);
    assert_eq!(tx.drops.total() + rx.drops.total(), 0, "{}: drops", rig.name);
    let copied = if matches!(rig.tx, Tx::Owning(_)) { 100 } else { 0 };
    assert_eq!(tx.copies.get(), copied, "{}: copies", rig.name);
}

/// Checks the payload of a detached frame and returns its number; `None` for a frame that is not a
/// test frame.
fn number_of_kept(kept: &DetachedFrame, returner: &Returner) -> Option<u32> {
    let mut bytes = vec![0; kept.len() as usize];
    let mut at = 0;
    for piece in kept.pieces() {
        at += piece.span(returner).read_header(&mut bytes[at..]);
    }
    assert_eq!(at, bytes.len(), "pieces do not add up");
    number_of(&bytes)
}

/// Starts a thread that checks detached frames again and releases them. Returns the channel to the
/// thread, and its handle.
fn verifier(returner: &Returner) -> (mpsc::Sender<(u32, DetachedFrame)>, JoinHandle<()>) {
    let (mut returner, (to, from)) = (returner.clone(), mpsc::channel::<(u32, DetachedFrame)>());
    let thread = std::thread::spawn(move || {
        for (number, kept) in from {
            assert_eq!(number_of_kept(&kept, &returner), Some(number), "it changed");
            kept.free(&mut returner);
            returner.flush();
        }
    });
    (to, thread)
}

/// Detaches all ready frames without a copy. Returns the test frames; other frames are released.
/// The flag is true if the queue has ready frames that cannot be detached.
fn keep_all(rig: &mut Rig, returner: &mut Returner) -> (Vec<(u32, DetachedFrame)>, bool) {
    let Rx::Owning(rx) = &mut rig.rx else { return (Vec::new(), false) };
    let mut all = Vec::new();
    loop {
        let before = copies::made();
        let shown = {
            let mut burst = Burst::new();
            rx.peek(&mut burst, 64).expect("peek");
            burst.frames().len()
        };
        let kept: Vec<DetachedFrame> = std::iter::from_fn(|| rx.detach().expect("keep")).collect();
        assert_eq!(copies::made(), before, "{}: keeping copies", rig.name);
        let left = shown > kept.len();
        for one in kept {
            match number_of_kept(&one, returner) {
                Some(number) => all.push((number, one)),
                None => one.free(returner),
            }
        }
        returner.flush();
        if left || shown == 0 {
            return (all, left);
        }
    }
}

/// Checks that detached frames are not copied, stay unchanged while many other frames are received,
/// and can be released by another thread. Returns false if the queue cannot detach frames.
pub fn kept_frames_stay(rig: &mut Rig) -> bool {
    let Rx::Owning(rx) = &mut rig.rx else { return false };
    let Some(mut returner) = rx.returner() else {
        assert_eq!(rig.send(&[frame(0, 60)]), 1);
        assert!(keep_nothing(rig), "{}: what is kept could not be given back", rig.name);
        return false;
    };
    let max = rig.frame_max as usize;
    let (to, thread) = verifier(&returner);
    let (mut held, mut sent, mut expected) = (VecDeque::new(), 0u32, 0u32);
    let deadline = Instant::now() + 6 * PATIENCE;
    while expected < 5000 {
        assert!(Instant::now() < deadline, "{}: {expected} frames kept", rig.name);
        if expected == sent {
            let len = |n: u32| [60, 64, 1500, 100, 4000, max][n as usize % 6];
            let frames: Vec<_> = (sent..sent + 16).map(|n| frame(n, len(n))).collect();
            sent += rig.send(&frames) as u32;
        }
        for (number, kept) in keep_all(rig, &mut returner).0 {
            assert_eq!(number, expected, "{}: out of order", rig.name);
            expected += 1;
            held.push_back((number, kept));
        }
        while held.len() > 200 {
            to.send(held.pop_front().expect("many")).expect("a receiver");
        }
    }
    held.into_iter().for_each(|one| to.send(one).expect("a receiver"));
    drop(to);
    thread.join().expect("every frame stayed as it was");
    true
}

/// Peeks ready frames; returns true if the queue is not an owning queue or `detach` returns no
/// frame.
fn keep_nothing(rig: &mut Rig) -> bool {
    let Rx::Owning(rx) = &mut rig.rx else { return true };
    rx.peek(&mut Burst::new(), 64).expect("peek");
    rx.detach().expect("keep").is_none()
}

/// Checks that a queue continues after too many frames were detached: further frames are released
/// without a detach, or the other end is full. After the detached frames are released, frames can
/// be detached again.
pub fn keeping_too_much_is_an_outcome(rig: &mut Rig) {
    let Rx::Owning(rx) = &mut rig.rx else { return };
    let Some(mut returner) = rx.returner() else { return };
    let (mut held, mut sent, mut expected) = (Vec::new(), 0u32, 0u32);
    let deadline = Instant::now() + 6 * PATIENCE;
    let mut send = |rig: &mut Rig| {
        assert!(Instant::now() < deadline, "{}: {sent} frames sent", rig.name);
        let taken = rig.send(&[frame(sent, 200)]) == 1;
        assert!(taken || rig.lossless, "{}: full", rig.name);
        sent += u32::from(taken);
        taken
    };
    for _ in 0..3 {
        loop {
            let taken = send(rig);
            let (kept, left) = keep_all(rig, &mut returner);
            let is_full = !taken && kept.is_empty();
            held.extend(kept);
            if left || is_full {
                break;
            }
        }
        assert!(held.len() > 30, "{}: only {} frames can be kept", rig.name, held.len());
        assert_eq!(rx_queue(rig).arm(1).expect("arm"), Armed::MoreWork, "{}", rig.name);
        for (number, _) in &held {
            assert_eq!(*number, expected, "{}: out of order", rig.name);
            expected += 1;
        }
        // Receive the pending frames and one more ring of frames while all detached frames are
        // held.
        for _ in 0..3000 {
            if !send(rig) {
                break;
            }
            expect_next(rig, &mut expected);
        }
        let (to, thread) = verifier(&returner);
        held.drain(..).for_each(|one| to.send(one).expect("a receiver"));
        drop(to);
        thread.join().expect("every frame stayed as it was");
        while !send(rig) {
            expect_next(rig, &mut expected);
        }
        while expected < sent_by(&rig.tx_stats) {
            assert!(Instant::now() < deadline, "{}: {expected} frames came", rig.name);
            expect_next(rig, &mut expected);
        }
    }
}

fn sent_by(stats: &QueuePairStats) -> u32 {
    stats.tx.packets.get() as u32
}

/// Checks that closing with frames in flight releases all resources: the rig can be created again,
/// and no descriptor or mapping remains. Threads that end after the close may hold descriptors and
/// mappings for a while.
pub fn closing_returns_everything(make: &mut dyn FnMut() -> Rig) {
    let open = || {
        let fds = std::fs::read_dir("/proc/self/fd").expect("fds").count();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        (fds, maps.matches("mqnet").count())
    };
    drop(make());
    let before = open();
    for round in 0..10u32 {
        let mut rig = make();
        for number in 0..50 {
            rig.send(&[frame(number, 200)]);
        }
        rig.receive(1 + round as usize, 1);
        let is_rx = matches!(rig.rx, Rx::Owning(_) | Rx::Syscall(_));
        assert!(is_rx);
        drop(rig);
    }
    // Wait: threads that end may still hold resources. A leak would never disappear.
    let deadline = Instant::now() + Duration::from_secs(10);
    let no_more = |(fds, maps): (usize, usize)| fds <= before.0 && maps <= before.1;
    while !no_more(open()) {
        assert!(
            Instant::now() < deadline,
            "descriptors, mappings: {:?}, before {before:?}",
            open()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
