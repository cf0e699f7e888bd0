//! Tests with devices and descriptors of other programs, with one network namespace per test.

use mqnet_netdev::Function;
use mqnet_sysio::tap::flag;
use mqnet_testkit::{Need, has};

use super::*;
use crate::{TapConfig, TapFunction};

const TAP: u32 = flag::TAP | flag::NO_PI;

/// Moves the test thread into a new network namespace; false without the privilege.
fn enter_own_netns() -> bool {
    has(&[Need::Root]) && namespace::enter_new_net().is_ok()
}

fn queue(name: &str, flags: u32) -> OwnedFd {
    let fd = sys::open_clone_device().unwrap();
    sys::attach(fd.as_fd(), name, flags).unwrap();
    fd
}

fn open(name: &str) -> Result<TapFunction, String> {
    let config = TapConfig { name: name.to_owned(), ..TapConfig::default() };
    TapFunction::open(config).map_err(|e| e.to_string())
}

fn open_with(fds: Vec<OwnedFd>) -> Result<TapFunction, String> {
    TapFunction::open(TapConfig { fds, ..TapConfig::default() }).map_err(|e| e.to_string())
}

// Rule: a single-queue device has one channel, with any header flags. A second opening is refused.
#[test]
fn single_queue_device_has_one_channel() {
    if !enter_own_netns() {
        return;
    }
    for (name, flags) in [("one", TAP), ("two", TAP | flag::VNET_HDR), ("pi", flag::TAP)] {
        sys::set_persist(queue(name, flags).as_fd(), true).unwrap();
        let tap = open(name).unwrap();
        assert_eq!(tap.caps().channels, 1);
        let why = open(name).map(drop).unwrap_err();
        assert!(why.contains("in use by another program"), "{why}");
    }
}

// Rule: an attached queue of another program prevents opening, because it receives frames. A
// detached queue does not.
#[test]
fn only_attached_queues_prevent_opening() {
    if !enter_own_netns() {
        return;
    }
    let others = queue("shared", TAP | flag::MULTI_QUEUE);
    let why = open("shared").map(drop).unwrap_err();
    assert!(why.contains("with 1 queues attached"), "{why}");
    sys::set_queue(others.as_fd(), false).unwrap();
    assert_eq!(open("shared").unwrap().caps().channels, 64);
}

// Rule: an interface that is no TAP is refused, and the reason names the difference.
#[test]
fn other_interfaces_are_refused_by_their_kind() {
    if !enter_own_netns() {
        return;
    }
    let _tun = queue("tun", flag::TUN | flag::NO_PI | flag::MULTI_QUEUE);
    for (name, words) in [("tun", "is a TUN"), ("lo", "exists and is not a TAP")] {
        let why = open(name).map(drop).unwrap_err();
        assert!(why.contains(words), "{why}");
    }
}

// Rule: an unusable descriptor is refused with its number and the reason. Packet information is
// detected too, although TUNGETIFF returns the same flags with and without it.
#[test]
fn descriptors_are_checked() {
    if !enter_own_netns() {
        return;
    }
    let (all, vnet) = (TAP | flag::MULTI_QUEUE | flag::VNET_HDR, flag::VNET_HDR);
    let (reader, _writer) = std::io::pipe().unwrap();
    for (fd, words) in [
        (queue("pi", flag::TAP | vnet), "pi: puts packet information"),
        (queue("plain", TAP), "plain has no virtio_net_hdr"),
        (queue("ip", flag::TUN | flag::NO_PI | vnet), "ip is a TUN, not a TAP"),
        (sys::open_clone_device().unwrap(), "is not an attached queue of a TUN or TAP"),
        (reader.into(), "is not an attached queue of a TUN or TAP"),
    ] {
        let why = open_with(vec![fd]).map(drop).unwrap_err();
        assert!(why.contains(words), "{why}");
    }
    let two = vec![queue("a", all), queue("b", all)];
    let why = open_with(two).map(drop).unwrap_err();
    assert!(why.contains("belongs to another device: b"), "{why}");
    let detached = queue("good", all);
    sys::set_queue(detached.as_fd(), false).unwrap();
    let tap = open_with(vec![detached, queue("good", all)]).unwrap();
    assert_eq!(tap.caps().channels, 2);
}
