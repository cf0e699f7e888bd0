//! Tests of kicks and interrupts: every requested notification is sent, and no other.

use std::time::Duration;

use mqnet_netdev::{Armed, OwningRx, Queue};
use mqnet_sysio::epoll::{Epoll, Interest};
use mqnet_sysio::eventfd::EventFd;
use mqnet_testkit::virtq::{Buf, Shape};
use mqnet_vhost_user::{GuestTx, Vring};
use mqnet_wire::VnetHdr;

use crate::bench::{Guest, header, is_rung, shapes, take};

/// Makes a frame of 64 bytes available; true if the guest kicks.
fn post(guest: &mut Guest) -> bool {
    let at = guest.memory.alloc(76, 64);
    guest.memory.write(at, &header(VnetHdr::default()));
    guest.driver.add(&[Buf { at, len: 76, write: false }]).unwrap();
    let wanted = guest.driver.publish();
    if wanted {
        guest.kick.ring().unwrap();
    }
    wanted
}

fn wakes(epoll: &Epoll) -> bool {
    epoll.wait(Some(Duration::ZERO), |_| ()).unwrap() > 0
}

// Goal: a guest kicks an armed half, and does not kick one that polls. Each kick wakes the worker
// that watches the half's event set, although nothing reads the set.
#[test]
fn kicks_wake_a_sleeping_half() {
    for (shape, _) in shapes(8) {
        let mut guest = Guest::new(shape, false);
        let mut half = guest.tx_half();
        let epoll = Epoll::new().unwrap();
        epoll.add(half.event().unwrap().fd, Interest::ReadableEdge, 0).unwrap();
        while wakes(&epoll) {}
        for round in 0..3 {
            assert_eq!(half.arm(0).unwrap(), Armed::Sleep);
            assert!(!wakes(&epoll), "round {round}");
            assert!(post(&mut guest), "a sleeping half is kicked");
            assert!(wakes(&epoll), "round {round}");
            assert!(!wakes(&epoll), "once");
            assert_eq!(take(&mut half).unwrap().len(), 1);
            assert!(!post(&mut guest), "one that works is not");
            assert_eq!(half.arm(0).unwrap(), Armed::MoreWork, "it checks again after arming");
            assert_eq!(take(&mut half).unwrap().len(), 1);
            while guest.driver.used().is_some() {}
        }
        assert_eq!(guest.stats.rx.arms.get(), 6);
    }
}

// Goal: a guest is interrupted once per burst if it has requested interrupts, and not otherwise. A
// new call descriptor is signalled once, and receives all further interrupts.
#[test]
fn guests_are_interrupted_on_request() {
    for (shape, _) in shapes(8) {
        let mut guest = Guest::new(shape, false);
        let call = {
            let vring = guest.cell.take().unwrap();
            let call = vring.call();
            guest.cell.offer(vring).unwrap();
            call
        };
        assert!(!guest.was_interrupted(), "each end that offers EVENT_IDX does that at first");
        let mut half = guest.tx_half();
        assert!(!guest.driver.arm());
        post(&mut guest);
        post(&mut guest);
        assert_eq!(take(&mut half).unwrap().len(), 2);
        assert!(guest.was_interrupted());
        while guest.driver.used().is_some() {}
        guest.driver.disarm();
        let quiet = |guest: &mut Guest, half: &mut GuestTx| {
            post(guest);
            take(half).unwrap();
            !guest.was_interrupted()
        };
        assert!(quiet(&mut guest, &mut half), "{shape:?}");
        while guest.driver.used().is_some() {}
        let other = EventFd::new().unwrap();
        call.replace(Some(other.try_clone().unwrap())).unwrap();
        assert!(is_rung(&other), "once, in case the old one was lost");
        assert!(!guest.driver.arm());
        assert!(quiet(&mut guest, &mut half), "the old one is silent");
        assert!(is_rung(&other));
        call.replace(None).unwrap();
        while guest.driver.used().is_some() {}
        assert!(!guest.driver.arm());
        assert!(quiet(&mut guest, &mut half) && !is_rung(&other), "no listener");
    }
}

// Goal: one half serves all rings of a guest with more queues than the link has channels, and no
// ring starves another.
#[test]
fn one_half_serves_several_rings() {
    let shape = Shape { packed: false, size: 128, event_idx: true };
    let mut guests: Vec<Guest> = (0..3).map(|_| Guest::new(shape, false)).collect();
    let cells: Vec<_> = guests.iter().map(|guest| guest.cell.clone()).collect();
    let stats = guests[0].stats.clone();
    let mut half = GuestTx::new(0, cells, 1518, stats.clone()).unwrap();
    let epoll = Epoll::new().unwrap();
    epoll.add(half.event().unwrap().fd, Interest::ReadableEdge, 0).unwrap();
    for guest in &mut guests {
        (0..100).for_each(|_| {
            post(guest);
        });
    }
    let mut seen = Vec::new();
    while let n = take(&mut half).unwrap().len()
        && n > 0
    {
        seen.push(n);
    }
    assert_eq!(seen, [64, 64, 64, 36, 36, 36]);
    while wakes(&epoll) {}
    for guest in &mut guests {
        assert_eq!(half.arm(0).unwrap(), Armed::Sleep);
        while guest.driver.used().is_some() {}
        assert!(post(guest) && wakes(&epoll), "each of them wakes the half");
        // A frame that was peeked and not released is peeked again, from the same ring.
        for _ in 0..3 {
            let mut burst = mqnet_netdev::Burst::new();
            half.peek(&mut burst, 64).unwrap();
            assert_eq!(burst.frames().len(), 1);
        }
        half.release(1).unwrap();
    }
    assert_eq!((stats.rx.packets.get(), stats.rx.bytes.get()), (303, 303 * 64));
}

// Goal: a half with a ring that has no kick descriptor never sleeps.
#[test]
fn rings_without_kicks_are_polled() {
    let guest = Guest::new(Shape { packed: true, size: 8, event_idx: false }, true);
    let mut setup = guest.setup();
    setup.kick = None;
    guest.cell.take();
    guest.cell.offer(Vring::new(setup).unwrap()).unwrap();
    assert_eq!(guest.tx_half().arm(0).unwrap(), Armed::MoreWork);
    assert_eq!(guest.rx_half().arm(1518).unwrap(), Armed::MoreWork);
}

// Goal: a kick or call descriptor that is no eventfd is refused, because a pipe could block.
#[test]
fn non_eventfds_are_refused() {
    let guest = Guest::new(Shape { packed: false, size: 8, event_idx: false }, true);
    for which in 0..2 {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut setup = guest.setup();
        match which {
            0 => setup.kick = Some(reader.into()),
            _ => setup.call = Some(writer.into()),
        }
        let error = Vring::new(setup).unwrap_err().to_string();
        let what = ["kick", "call"][which];
        assert_eq!(error, format!("queue 1: the {what} descriptor is no eventfd"));
    }
}

// Goal: a guest thread and a device thread, which sleep when idle, never both sleep. Each thread
// arms, checks again, and only then sleeps. The test fails if a wait takes 10 s. With few CPUs the
// test may not find a missing barrier.
#[test]
fn two_threads_never_both_sleep() {
    let long = Duration::from_secs(10);
    for (shape, _) in shapes(4).take(4) {
        let mut guest = Guest::new(shape, false);
        let mut half = guest.tx_half();
        let at = guest.memory.alloc(76, 64);
        guest.memory.write(at, &header(VnetHdr::default()));
        let frames = 4000;
        let device = std::thread::spawn(move || {
            let epoll = Epoll::new().unwrap();
            epoll.add(half.event().unwrap().fd, Interest::ReadableEdge, 0).unwrap();
            let mut seen = 0;
            while seen < frames {
                let n = take(&mut half).unwrap().len();
                seen += n;
                if n == 0 && half.arm(0).unwrap() == Armed::Sleep {
                    assert!(epoll.wait(Some(long), |_| ()).unwrap() > 0, "missed after {seen}");
                }
            }
        });
        let (mut made, mut back) = (0, 0);
        while back < frames {
            while made < frames && guest.driver.add(&[Buf { at, len: 76, write: false }]).is_some()
            {
                made += 1;
                // Publish one by one and in pairs.
                if made % 3 != 0 && guest.driver.publish() {
                    guest.kick.ring().unwrap();
                }
            }
            if guest.driver.publish() {
                guest.kick.ring().unwrap();
            }
            let before = back;
            while guest.driver.used().is_some() {
                back += 1;
            }
            if before == back && !guest.driver.arm() {
                let call = std::os::fd::AsFd::as_fd(&guest.call);
                mqnet_sysio::poll::wait_readable(&[call], long).unwrap();
                assert!(is_rung(&guest.call), "missed after {back}");
            }
        }
        device.join().unwrap();
    }
}
