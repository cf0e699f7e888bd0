//! Devices and descriptors of other programs, in a network namespace of each test.

use mqnet_netdev::Function;
use mqnet_sysio::tap::flag;
use mqnet_testkit::{Need, has};

use super::*;
use crate::{TapConfig, TapFunction};

const TAP: u32 = flag::TAP | flag::NO_PI;

/// Moves the thread of a test into a network namespace of its own; false without the privilege.
fn is_alone() -> bool {
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

// Goal: a device with one queue has one channel, whatever its header was, and one user.
#[test]
fn single_queue_device_has_one_channel() {
    if !is_alone() {
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

// Goal: a queue that is detached is in nobody's way; one that is attached would take frames.
#[test]
fn only_attached_queues_are_in_the_way() {
    if !is_alone() {
        return;
    }
    let others = queue("shared", TAP | flag::MULTI_QUEUE);
    let why = open("shared").map(drop).unwrap_err();
    assert!(why.contains("has 1 of its queues attached"), "{why}");
    sys::set_queue(others.as_fd(), false).unwrap();
    assert_eq!(open("shared").unwrap().caps().channels, 64);
}

// Goal: an interface of another kind is told from a TAP that is in use.
#[test]
fn other_interfaces_are_refused_by_their_kind() {
    if !is_alone() {
        return;
    }
    let _tun = queue("tun", flag::TUN | flag::NO_PI | flag::MULTI_QUEUE);
    for (name, words) in [("tun", "is a TUN"), ("lo", "exists and is no TAP")] {
        let why = open(name).map(drop).unwrap_err();
        assert!(why.contains(words), "{why}");
    }
}

// Goal: a descriptor that cannot be served is refused with its number and the reason. The flags
// that TUNGETIFF shows are the same with and without packet information.
#[test]
fn descriptors_are_checked() {
    if !is_alone() {
        return;
    }
    let (all, vnet) = (TAP | flag::MULTI_QUEUE | flag::VNET_HDR, flag::VNET_HDR);
    let (reader, _writer) = std::io::pipe().unwrap();
    for (fd, words) in [
        (queue("pi", flag::TAP | vnet), "pi: puts packet information"),
        (queue("plain", TAP), "plain has no virtio_net_hdr"),
        (queue("ip", flag::TUN | flag::NO_PI | vnet), "ip is a TUN, and not a TAP"),
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
