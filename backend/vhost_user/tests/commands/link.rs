//! Tests of commands and messages that affect the link.

use mqnet_netdev::{Burst, Function, Offloads, Rx};
use mqnet_virtio::Features;
use mqnet_virtio::net::ctrl::{CtrlCommand, ERR, OK};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;

use crate::peer::{MAC, PAIRS, Peer, all};

const SET_STATUS: u32 = 39;
const GET_STATUS: u32 = 40;
const SEND_RARP: u32 = 19;
const NET_SET_MTU: u32 = 20;

// Goal: while the link runs, the last valid command determines the number of wanted channels. An
// invalid number is refused. Tested with split and packed rings, and with a command in one or
// several buffers.
#[test]
fn pairs_are_commanded() {
    for packed in [false, true] {
        let mut peer = Peer::new(packed, all());
        peer.up(1);
        for (pairs, lens) in [(PAIRS, &[][..]), (2, &[1, 1, 1][..]), (3, &[2][..]), (1, &[4][..])] {
            let bytes = CtrlCommand::Pairs(pairs).to_bytes();
            assert_eq!(peer.command_in(&bytes, lens), OK);
            assert_eq!(peer.up(pairs).channels, PAIRS);
        }
        assert_eq!(peer.command(&CtrlCommand::Pairs(PAIRS + 1)), ERR);
        assert_eq!(peer.command(&CtrlCommand::Pairs(0)), ERR);
        peer.up(1);
    }
}

// Goal: no command is lost when messages of the VMM stop and start rings between commands.
#[test]
fn commands_and_messages_alternate() {
    let mut peer = Peer::new(true, all());
    for pairs in [4, 3, 2, 4] {
        assert_eq!(peer.command(&CtrlCommand::Pairs(pairs)), OK);
        peer.frontend.set_vring_enable(7, pairs == 4).unwrap();
        peer.up(pairs);
    }
    // GET_VRING_BASE takes ring 2 out of service between two commands.
    let features = peer.frontend.get_features().unwrap();
    assert!(Features(features).has(Features::CTRL_VQ));
    let base = peer.frontend.get_vring_base(2).unwrap();
    assert_eq!(base & 0xffff, 0x8000, "nothing was sent on it");
    assert_eq!(peer.command(&CtrlCommand::Pairs(1)), OK);
    peer.up(1);
}

// Goal: the offloads of the driver change by command while the link runs. Offloads outside of the
// negotiated set are refused.
#[test]
fn offloads_are_commanded() {
    let mut peer = Peer::new(false, all());
    let taken = |peer: &mut Peer| peer.up(1).tx_offloads;
    assert_eq!(taken(&mut peer), Offloads::CSUM.or(Offloads::TSO4));
    assert_eq!(peer.command(&CtrlCommand::GuestOffloads(Features::GUEST_CSUM)), OK);
    assert_eq!(taken(&mut peer), Offloads::CSUM);
    assert_eq!(peer.command(&CtrlCommand::GuestOffloads(Features::GUEST_USO4)), ERR);
    assert_eq!(peer.command(&CtrlCommand::GuestOffloads(Features::default())), OK);
    assert_eq!(taken(&mut peer), Offloads::NONE);
    let both = Features::GUEST_CSUM.or(Features::GUEST_TSO4);
    assert_eq!(peer.command(&CtrlCommand::GuestOffloads(both)), OK);
    assert_eq!(taken(&mut peer), Offloads::CSUM.or(Offloads::TSO4));
}

// Goal: the device status is stored, and status 0 resets the device. A later driver must announce
// itself if it accepts `GUEST_ANNOUNCE`.
#[test]
fn status_is_kept() {
    let mut peer = Peer::new(false, all());
    assert_eq!(peer.message(GET_STATUS, None, true), Some(0));
    assert_eq!(peer.message(SET_STATUS, Some(15), true), Some(0));
    assert_eq!(peer.message(GET_STATUS, None, true), Some(15));
    peer.up(1);
    peer.message(SET_STATUS, Some(0), false);
    assert_eq!(peer.message(GET_STATUS, None, true), Some(0));
    assert_eq!(peer.device.caps().channels, PAIRS, "no rings are started");
    assert_eq!(peer.device.caps().wanted, None);
    // Since an earlier driver has used the device, the status has VIRTIO_NET_S_ANNOUNCE if
    // GUEST_ANNOUNCE is negotiated.
    let flags = VhostUserConfigFlags::empty();
    for (features, status) in [(all(), 3), (all().minus(Features::GUEST_ANNOUNCE), 1)] {
        peer.frontend.set_features(features.0).unwrap();
        let config = peer.frontend.get_config(6, 2, flags, &[0; 2]).unwrap().1;
        assert_eq!(config, [status, 0]);
    }
}

// Goal: the VMM's MTU becomes the MTU of the link, and an invalid MTU is refused.
#[test]
fn vmm_mtu_is_link_mtu() {
    let mut peer = Peer::new(false, all());
    assert_eq!(peer.up(1).mtu, None);
    assert_eq!(peer.message(NET_SET_MTU, Some(9000), true), Some(0));
    assert_eq!(peer.up(1).mtu, Some(9000));
    for odd in [0, 67, 65_522, u64::MAX] {
        assert_eq!(peer.message(NET_SET_MTU, Some(odd), true), Some(1));
    }
    assert_eq!(peer.up(1).mtu, Some(9000));
}

// Goal: after `SEND_RARP`, one frame from the first queue announces the guest.
#[test]
fn migrated_guest_is_announced() {
    let mut peer = Peer::new(false, all());
    let mut channels = peer.open(1);
    let mac = u64::from_ne_bytes([2, 0, 0, 0, 0, 7, 0, 0]);
    assert_eq!(peer.message(SEND_RARP, Some(mac), true), Some(0));
    let Rx::Owning(rx) = &mut channels[0].rx else { panic!("it owns its memory") };
    let mut seen = [0; 64];
    let len = {
        let mut burst = Burst::new();
        rx.peek(&mut burst, 64).unwrap();
        assert_eq!(burst.frames().len(), 1);
        burst.frames()[0].head.read_header(&mut seen)
    };
    rx.release(1).unwrap();
    assert_eq!((len, &seen[..6], &seen[6..12]), (60, &[0xff; 6][..], &[2, 0, 0, 0, 0, 7][..]));
    assert_eq!(seen[12..22], [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    let mut burst = Burst::new();
    rx.peek(&mut burst, 64).unwrap();
    assert!(burst.frames().is_empty());
}

// Goal: the config space shows a changed address and the supported hash types.
#[test]
fn config_space_shows_address_and_hash_types() {
    let mut peer = Peer::new(false, all());
    let config = |peer: &mut Peer| {
        let flags = VhostUserConfigFlags::empty();
        peer.frontend.get_config(0, 24, flags, &[0; 24]).unwrap().1
    };
    let mut expected = MAC.to_vec();
    expected.extend([1, 0, 4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 40, 128, 0, 0x3f, 0, 0, 0]);
    assert_eq!(config(&mut peer), expected);
    assert_eq!(peer.command(&CtrlCommand::MacAddr([2, 0, 0, 0, 0, 8])), OK);
    assert_eq!(config(&mut peer)[..6], [2, 0, 0, 0, 0, 8]);
    assert_eq!(peer.command(&CtrlCommand::MacAddr([1, 0, 0, 0, 0, 8])), ERR);
    assert_eq!(peer.command(&CtrlCommand::AnnounceAck), OK);
}
