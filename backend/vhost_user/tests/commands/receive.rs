//! Tests of commands that affect frames to the guest.

use mqnet_netdev::{Channel, DropReason, Function};
use mqnet_virtio::net::ctrl::{CtrlCommand, OK, RxMode};
use mqnet_virtio::net::rss::{Hasher, IndirectionTable, KEY_LEN, TYPES};
use proptest::prelude::*;

use crate::peer::{MAC, PAIRS, Peer, all, frame, send};

const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const BROADCAST: [u8; 6] = [0xff; 6];

/// Sends one frame to each of four addresses; returns for each whether the frame arrived on pair 0.
fn arrivals(peer: &mut Peer, channels: &mut [Channel], in_place: bool) -> [bool; 4] {
    [MAC, OTHER, GROUP, BROADCAST].map(|to| {
        let bytes = frame(to, None, 1);
        assert!(send(&mut channels[0].tx, &bytes, in_place));
        let got = peer.received(0);
        assert!(got.iter().all(|frame| frame.bytes == bytes));
        got.len() == 1
    })
}

fn unwanted(peer: &Peer) -> u64 {
    peer.device.stats()[0].tx.drops.get(DropReason::NotWanted)
}

// Goal: all frames pass before the first command. Afterwards only frames that match the driver's
// addresses and modes pass; all others are dropped and counted. Tested with copied frames and with
// reservations.
#[test]
fn frames_are_filtered_by_address() {
    for (packed, in_place) in [(false, false), (true, true), (true, false), (false, true)] {
        let mut peer = Peer::new(packed, all());
        let mut channels = peer.open(1);
        assert_eq!(arrivals(&mut peer, &mut channels, in_place), [true; 4]);
        let mut drops = 0;
        let mut after = |command: CtrlCommand, expected: [bool; 4]| {
            assert_eq!(peer.command(&command), OK);
            assert_eq!(arrivals(&mut peer, &mut channels, in_place), expected, "{command:?}");
            drops += expected.iter().filter(|passes| !**passes).count() as u64;
            assert_eq!(unwanted(&peer), drops);
        };
        after(CtrlCommand::Rx(RxMode::Promisc, false), [true, false, false, true]);
        after(CtrlCommand::Rx(RxMode::AllMulti, true), [true, false, true, true]);
        after(CtrlCommand::Rx(RxMode::AllMulti, false), [true, false, false, true]);
        let table = CtrlCommand::MacTable { unicast: vec![OTHER], multicast: vec![GROUP] };
        after(table, [true, true, true, true]);
        after(CtrlCommand::MacAddr([2, 0, 0, 0, 0, 3]), [false, true, true, true]);
        after(CtrlCommand::Rx(RxMode::NoBcast, true), [false, true, true, false]);
        after(CtrlCommand::Rx(RxMode::NoUni, true), [false, false, true, false]);
        after(CtrlCommand::Rx(RxMode::NoMulti, true), [false, false, false, false]);
        after(CtrlCommand::Rx(RxMode::Promisc, true), [true, true, true, true]);
    }
}

// Goal: frames of a VLAN pass after the VLAN is added, and do not pass after it is deleted.
#[test]
fn frames_are_filtered_by_vlan() {
    let mut peer = Peer::new(false, all());
    let mut channels = peer.open(1);
    assert_eq!(peer.command(&CtrlCommand::Rx(RxMode::Promisc, false)), OK);
    let mut comes = |peer: &mut Peer, vlan| {
        assert!(send(&mut channels[0].tx, &frame(MAC, vlan, 1), false));
        peer.received(0).len() == 1
    };
    assert!(comes(&mut peer, None) && !comes(&mut peer, Some(5)));
    assert_eq!(peer.command(&CtrlCommand::VlanAdd(5)), OK);
    assert!(comes(&mut peer, Some(5)) && !comes(&mut peer, Some(6)));
    assert_eq!(peer.command(&CtrlCommand::VlanDel(5)), OK);
    assert!(!comes(&mut peer, Some(5)) && comes(&mut peer, None));
    assert_eq!(unwanted(&peer), 3);
}

/// Reference Toeplitz hash of `input`, computed bit by bit.
fn oracle(key: &[u8; KEY_LEN], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1 == 1;
    let ones = (0..input.len() * 8).filter(|&at| bit(input, at));
    ones.fold(0, |hash, at| hash ^ (0..32).fold(0, |w, i| w << 1 | u32::from(bit(key, at + i))))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    // Goal: a frame of any lane arrives on the queue that the driver's table selects for the
    // reference hash, with that hash in its header. Frames without a hash arrive on the queue for
    // unclassified frames.
    #[test]
    fn hashes_choose_queues(
        packed: bool,
        key in prop::collection::vec(any::<u8>(), KEY_LEN),
        bits in 0..=7u32,
        table in prop::collection::vec(0..PAIRS, 128),
        unclassified in 0..PAIRS,
        ports in prop::collection::vec((any::<u16>(), 0..PAIRS, any::<bool>()), 1..40),
    ) {
        let key: [u8; KEY_LEN] = key.try_into().unwrap();
        let table = table[..1 << bits].to_vec();
        let hasher = Hasher { types: TYPES, key_len: KEY_LEN as u8, key };
        let spread = IndirectionTable { table: table.clone(), unclassified };
        let mut peer = Peer::new(packed, all());
        prop_assert_eq!(peer.command(&CtrlCommand::Rss { spread, hasher, pairs: PAIRS }), OK);
        let mut channels = peer.open(PAIRS);
        for (port, lane, in_place) in ports {
            let bytes = frame(MAC, None, port);
            // Hash the addresses and the ports.
            let hash = oracle(&key, &bytes[26..38]);
            let to = table[hash as usize % table.len()];
            prop_assert!(send(&mut channels[usize::from(lane)].tx, &bytes, in_place));
            for pair in 0..PAIRS {
                let got = peer.received(pair);
                prop_assert_eq!(got.len(), usize::from(pair == to));
                for frame in got {
                    prop_assert_eq!((frame.hash, frame.report), (hash, 3));
                    prop_assert_eq!(frame.bytes, bytes.clone());
                }
            }
        }
        let mut arp = frame(MAC, None, 0);
        arp[12..14].copy_from_slice(&[8, 6]);
        prop_assert!(send(&mut channels[0].tx, &arp, false));
        let got = peer.received(unclassified);
        prop_assert_eq!((got.len(), got[0].hash, got[0].report), (1, 0, 0));
    }
}

// Goal: many flows spread over all queues. After a command that sets the number of pairs, each lane
// uses its own queue again. Hashes are also reported without a table.
#[test]
fn flows_spread() {
    let mut peer = Peer::new(false, all());
    let hasher = Hasher { types: TYPES, key_len: KEY_LEN as u8, key: [0x6d; KEY_LEN] };
    let hasher = Hasher { key: std::array::from_fn(|i| (i * 37 + 11) as u8), ..hasher };
    let table = (0..128).map(|i| i % PAIRS).collect();
    let spread = IndirectionTable { table, unclassified: 0 };
    assert_eq!(peer.command(&CtrlCommand::Rss { spread, hasher, pairs: PAIRS }), OK);
    let mut channels = peer.open(PAIRS);
    for port in 0..100 {
        assert!(send(&mut channels[2].tx, &frame(MAC, None, port * 7), port % 2 == 0));
    }
    let counts = peer.counts();
    assert_eq!(counts.iter().sum::<usize>(), 100);
    assert!(counts.iter().all(|&n| n > 5), "{counts:?}");
    assert_eq!(peer.command(&CtrlCommand::Pairs(PAIRS)), OK);
    for lane in 0..PAIRS {
        let bytes = frame(MAC, None, 7);
        assert!(send(&mut channels[usize::from(lane)].tx, &bytes, lane % 2 == 0));
        let got = peer.received(lane);
        let hash = oracle(&hasher.key, &bytes[26..38]);
        assert_eq!((got.len(), got[0].hash, got[0].report), (1, hash, 3));
    }
}

// Goal: a full queue stops any lane until the guest adds buffers, even if the queue is not the
// lane's own. No frame is lost, including a frame that the lane has accepted and keeps in its own
// page.
#[test]
fn a_full_queue_stops_any_lane() {
    use mqnet_netdev::Armed;
    use mqnet_sysio::epoll::{Epoll, Interest};
    use std::time::Duration;

    let mut peer = Peer::new(false, all());
    let hasher = Hasher { types: TYPES, key_len: KEY_LEN as u8, key: [1; KEY_LEN] };
    let spread = IndirectionTable { table: vec![3], unclassified: 3 };
    assert_eq!(peer.command(&CtrlCommand::Rss { spread, hasher, pairs: PAIRS }), OK);
    let mut channels = peer.open(PAIRS);
    let tx = &mut channels[1].tx;
    let mut sent = 0;
    while send(tx, &frame(MAC, None, sent), true) {
        sent += 1;
    }
    assert_eq!(sent, 65, "all buffers of the queue, and one frame that is kept");
    assert!(!send(tx, &frame(MAC, None, sent), false));
    let epoll = Epoll::new().unwrap();
    epoll.add(tx.queue().event().unwrap().fd, Interest::ReadableEdge, 0).unwrap();
    let wakes = || epoll.wait(Some(Duration::ZERO), |_| ()).unwrap() > 0;
    while wakes() {}
    assert_eq!(tx.queue().arm(60).unwrap(), Armed::Sleep);
    while wakes() {}
    let got = peer.received(3);
    assert_eq!(got.len(), 64);
    assert!(wakes(), "the guest has room again");
    assert!(send(tx, &frame(MAC, None, sent), false));
    let got = peer.received(3);
    assert_eq!(got[0].bytes, frame(MAC, None, 64));
    assert_eq!(got[1].bytes, frame(MAC, None, 65));
    assert_eq!(peer.counts(), [0, 0, 0, 0]);
}
