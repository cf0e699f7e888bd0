//! Bursts that are written to a TAP with one system call per frame or with one per burst. Both
//! methods must have the same results.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Mutex;

use mqnet_conformance::{Rig, frame, number_of, rigs};
use mqnet_netdev::{Burst, DropReason, Tx};
use mqnet_shmem::Span;
use mqnet_sysio::tap as sys;
use mqnet_tap::{Io, TapConfig, TapFunction};
use mqnet_wire::VnetHdr;

/// Lock that serializes the tests, because their devices have the same names.
static ALONE: Mutex<()> = Mutex::new(());

fn each_way(test: impl Fn(Io)) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // The thread of a test gets a new namespace, which ends with the thread.
    let run = || {
        if rigs::own_network() {
            rigs::ways().into_iter().for_each(&test);
        }
    };
    run();
}

fn run(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let done = Command::new(words[0]).args(&words[1..]).status().expect(words[0]);
    assert!(done.success(), "{line}");
}

/// Numbered frames of one length.
fn frames(numbers: std::ops::Range<u32>, len: usize) -> Vec<Vec<u8>> {
    numbers.map(|number| frame(number, len)).collect()
}

/// Receives frames until the device has been idle for a while; returns their numbers.
fn arrived(rig: &mut Rig, least: usize) -> Vec<u32> {
    let (mut all, mut empty) = (Vec::new(), 0);
    // The idle time is 20 ms after `least` frames, and 3 s while frames are missing.
    while empty < if all.len() < least { 3000 } else { 20 } {
        let some = rig.drain();
        empty = if some.is_empty() { empty + 1 } else { 0 };
        if some.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        all.extend(some);
    }
    all
}

// Goal: 100,000 numbered frames in bursts of every size arrive once and in order, with the expected
// number of system calls per burst.
#[test]
fn bursts_keep_their_order() {
    each_way(|io| {
        let mut rig = rigs::taps_written(io);
        let (mut next, mut expected, mut calls) = (0u32, 0u32, 0);
        for size in (1..=64).cycle() {
            let burst = frames(next..next + size, 100);
            assert_eq!(rig.send(&burst), burst.len());
            next += size;
            calls += match io {
                Io::Uring if size >= 4 => 1,
                _ => u64::from(size),
            };
            for number in rig.drain() {
                assert_eq!(number, expected, "{io:?}: out of order");
                expected += 1;
            }
            if next >= 100_000 {
                break;
            }
        }
        for number in arrived(&mut rig, (next - expected) as usize) {
            assert_eq!(number, expected, "{io:?}: out of order");
            expected += 1;
        }
        assert_eq!(expected, next);
        let enabled = u64::from(io == Io::Uring);
        assert_eq!(rig.tx_stats.tx.syscalls.get(), calls + enabled, "{io:?}");
        assert_eq!(rig.tx_stats.tx.packets.get(), u64::from(next));
    });
}

// Goal: frames that the kernel rejects, at any position of a burst, are dropped and counted. The
// other frames arrive in order.
#[test]
fn refused_frames_are_dropped_alone() {
    each_way(|io| {
        let mut rig = rigs::taps_written(io);
        for refused in [&[0usize][..], &[63], &[5, 6, 40], &[0, 1, 2, 3, 4, 63], &[3, 9, 20, 33]] {
            let mut burst = frames(0..64, 200);
            // The kernel rejects these frames: 9 bytes are shorter than an Ethernet header.
            refused.iter().for_each(|&i| burst[i].truncate(9));
            let before = rig.tx_stats.tx.drops.get(DropReason::Refused);
            assert_eq!(rig.send(&burst), 64);
            let dropped = rig.tx_stats.tx.drops.get(DropReason::Refused) - before;
            assert_eq!(dropped, refused.len() as u64, "{io:?} {refused:?}");
            let wanted: Vec<u32> = (0..64).filter(|&i| !refused.contains(&(i as usize))).collect();
            assert_eq!(arrived(&mut rig, wanted.len()), wanted, "{io:?} {refused:?}");
        }
        let tx = &rig.tx_stats.tx;
        assert_eq!(tx.packets.get() + tx.drops.total(), 5 * 64);
        assert_eq!(tx.bytes.get(), tx.packets.get() * 200);
    });
}

// Goal: a device that is down drops every frame with the reason `DeviceDown`, and sends frames
// again when it is up.
#[test]
fn a_device_that_is_down_drops() {
    each_way(|io| {
        let mut rig = rigs::taps_written(io);
        run("ip link set ta down");
        assert_eq!(rig.send(&frames(0..64, 100)), 64);
        assert_eq!(rig.tx_stats.tx.drops.get(DropReason::DeviceDown), 64, "{io:?}");
        run("ip link set ta up");
        // Send probes until the kernel bridge forwards to the port, which takes some time after the
        // port is up.
        let mut probes = 0;
        while {
            rig.send(&frames(1000..1001, 100));
            rig.drain().is_empty()
        } {
            probes += 1;
            assert!(probes < 10_000, "{io:?}: nothing arrives");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        arrived(&mut rig, 0);
        assert_eq!(rig.send(&frames(64..128, 100)), 64);
        assert_eq!(arrived(&mut rig, 64), (64..128).collect::<Vec<u32>>(), "{io:?}");
    });
}

// Goal: sending to a removed device is a fault, and not an endless full queue.
#[test]
fn removed_device_is_a_fault() {
    each_way(|io| {
        let mut rig = rigs::taps_written(io);
        run("ip link del ta");
        let bytes = frames(0..64, 100);
        let mut burst = Burst::new();
        for frame in &bytes {
            burst.push(VnetHdr::default(), 100, Span::of(frame));
        }
        let Tx::Syscall(tx) = &mut rig.tx else { panic!("a TAP borrows") };
        let fault = tx.submit(&burst, 0).expect_err("a fault");
        assert!(fault.to_string().contains("was removed"), "{io:?}: {fault}");
    });
}

/// MAC address of no station: a bridge with two ports forwards frames to this address to the other
/// port.
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// TAP queue with a small send buffer.
fn small_queue() -> OwnedFd {
    let fd = sys::open_clone_device().expect("/dev/net/tun");
    let flags = sys::flag::TAP | sys::flag::NO_PI | sys::flag::VNET_HDR | sys::flag::MULTI_QUEUE;
    sys::attach(fd.as_fd(), "ta", flags).expect("attach");
    sys::set_send_buffer(fd.as_fd(), 60_000).expect("a send buffer");
    fd
}

// Goal: a full TAP queue reports full, also within a burst, and does not block. Frames are neither
// lost nor reordered.
#[test]
fn a_full_tap_loses_nothing() {
    each_way(|io| {
        let config =
            TapConfig { fds: vec![small_queue()], mtu: Some(9000), io, ..TapConfig::default() };
        let tap = TapFunction::open(config).expect("tap");
        let mut rig = rigs::bridged(rigs::ready(tap));
        // Limit the rate of `tb`: forwarded frames wait there and keep the send buffer of `ta`
        // full.
        run("tc qdisc add dev tb root tbf rate 8kbit burst 2000 limit 10000000");
        // Send unicast frames: the bridge forwards broadcast frames as copies, which do not occupy
        // the send buffer.
        let mut all = frames(0..1000, 1000);
        all.iter_mut().for_each(|frame| frame[..6].copy_from_slice(&STATION));
        let (mut sent, mut fulls) = (0, 0);
        for turn in 0..2000 {
            let burst = &all[sent..all.len().min(sent + 64)];
            let taken = rig.send(burst);
            fulls += usize::from(taken < burst.len());
            sent += taken;
            if turn == 40 {
                assert!(sent < 500 && fulls > 10, "{io:?}: {sent} sent, {fulls} times full");
                run("tc qdisc change dev tb root tbf rate 10gbit burst 1000000 limit 10000000");
            }
            if sent == all.len() {
                break;
            }
            if taken == 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        assert_eq!((sent, fulls > 10), (all.len(), true), "{io:?}");
        let (mut expected, mut empty) = (0, 0);
        while expected < 1000 {
            let some = rig.receive(64, 0);
            empty = if some.is_empty() { empty + 1 } else { 0 };
            assert!(empty < 3000, "{io:?}: only {expected} have arrived");
            std::thread::sleep(std::time::Duration::from_millis(u64::from(some.is_empty())));
            for mut bytes in some.into_iter().filter(|bytes| bytes[..6] == STATION) {
                bytes[..6].fill(0xff);
                assert_eq!(number_of(&bytes), Some(expected), "{io:?}");
                expected += 1;
            }
        }
        assert_eq!(rig.tx_stats.tx.drops.total(), 0);
    });
}
