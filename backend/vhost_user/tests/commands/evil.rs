//! Tests with invalid commands of a driver.

use mqnet_netdev::{Burst, Function, LinkStatus, Rx};
use mqnet_testkit::until;
use mqnet_virtio::Features;
use mqnet_virtio::net::ctrl::{CtrlCommand, ERR, OK};
use proptest::prelude::*;
use vhost::VhostBackend;

use crate::peer::{Peer, all};

fn why_down(peer: &mut Peer) -> String {
    until("the card is closed", || match peer.device.poll_link(mqnet_sysio::clock::monotonic()) {
        LinkStatus::Down(why) => Some(why),
        LinkStatus::Up { .. } => None,
    })
}

// Goal: an invalid command is answered with an error, and the queue continues. Cases: empty, too
// short, too long, an unknown class, invalid values.
#[test]
fn invalid_commands_are_refused() {
    for packed in [false, true] {
        let mut peer = Peer::new(packed, all());
        for bytes in [
            &[][..],
            &[4],
            &[4, 0],
            &[4, 0, 1],
            &[4, 0, 1, 0, 0],
            &[6, 0, 1],
            &[255; 100],
            &[1, 0, 255, 255, 255, 255],
            &[4, 1, 0, 0, 0, 0, 255, 255, 0, 0],
        ] {
            assert_eq!(peer.command_in(bytes, &[]), ERR, "{bytes:?}");
        }
        let long = vec![0; 70_000];
        assert_eq!(peer.command_in(&long, &[2, 30_000]), ERR);
        assert_eq!(peer.command(&CtrlCommand::Pairs(2)), OK);
        peer.up(2);
    }
}

// Goal: a command of a feature that was not negotiated is refused.
#[test]
fn unnegotiated_commands_are_refused() {
    let without = Features::RSS.or(Features::CTRL_VLAN).or(Features::CTRL_MAC_ADDR);
    let mut peer = Peer::new(false, all().minus(without));
    assert_eq!(peer.command(&CtrlCommand::VlanAdd(1)), ERR);
    assert_eq!(peer.command(&CtrlCommand::MacAddr([2; 6])), ERR);
    assert_eq!(peer.command_in(&[4, 1, 0, 0], &[]), ERR);
    assert_eq!(peer.command(&CtrlCommand::Pairs(2)), OK);
}

// Goal: a chain that breaks the ring rules closes the function with a reason, and keeps the
// connection. Cases: no status byte, a status byte or command outside of the memory, an invalid
// length, an invalid order.
#[test]
fn chains_that_break_the_rules_close_the_card() {
    let good = mqnet_testkit::virtq::START;
    for (chain, words) in [
        (&[(good, 4, 0)][..], "without room for its status"),
        (&[(good, 4, 0), (1, 1, 2)], "not in guest memory"),
        (&[(1, 4, 0), (good, 1, 2)], "not in guest memory"),
        (&[(good, 4, 0), (good, 0, 2)], "length 0"),
        (&[(good, 4, 2), (good, 4, 0)], "device-readable after"),
    ] {
        let mut peer = Peer::new(false, all());
        peer.up(1);
        peer.post_raw(chain);
        let why = why_down(&mut peer);
        assert!(why.contains("queue 8") && why.contains(words), "{why}");
        assert!(peer.message(40, None, true).is_some(), "the connection lives");
    }
}

// Goal: after a violation in another ring has closed the card, GET_VRING_BASE returns the position
// of the control queue. After a restart of the control queue, the card executes commands again.
#[test]
fn closed_card_returns_control_queue() {
    let mut peer = Peer::new(true, all());
    peer.up(1);
    assert_eq!(peer.command(&CtrlCommand::Pairs(2)), OK);
    let mut channels = peer.open(2);
    peer.send_nothing();
    let Rx::Owning(rx) = &mut channels[0].rx else { panic!("it owns its memory") };
    let fault = rx.peek(&mut Burst::new(), 1).unwrap_err();
    drop(channels);
    peer.device.close(&fault.to_string());
    assert!(why_down(&mut peer).contains("length 0"), "{fault}");
    // The connection thread checks for the closed state when a message arrives.
    assert_eq!(peer.frontend.get_vring_base(8).unwrap() & 0xffff, 0x8003);
    peer.restart_commands(0x8003);
    assert_eq!(peer.command(&CtrlCommand::Pairs(3)), OK);
    peer.up(3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    // Goal: any bytes sent as a command are answered with one status byte, and the card stays
    // open.
    #[test]
    fn arbitrary_commands_are_answered(
        packed: bool,
        all_bytes in prop::collection::vec(
            (0..7u8, 0..4u8, prop::collection::vec(any::<u8>(), 0..60)), 1..30),
    ) {
        let mut peer = Peer::new(packed, all());
        for (class, number, data) in all_bytes {
            let answer = peer.command_in(&[vec![class, number], data].concat(), &[1, 2, 9]);
            prop_assert!(answer == OK || answer == ERR);
        }
        prop_assert_eq!(peer.command(&CtrlCommand::Pairs(1)), OK);
        peer.up(1);
    }
}
