//! Devices that other programs made, in a network namespace of each test.

use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mqnet_netdev::{Function, KernelInterface, Plan};
use mqnet_sysio::tap::{flag, offload};
use mqnet_testkit::{Need, has};

use super::*;
use crate::netlink::Netlink;
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

/// Makes a persistent device and leaves it, as `ip tuntap add` does.
fn make(name: &str, flags: u32) {
    sys::set_persist(queue(name, flags).as_fd(), true).unwrap();
}

/// What another program finds: the interface, and what the driver was told.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    mtu: u32,
    gso_max_size: u32,
    mac: Option<[u8; 6]>,
    driver: TunState,
}

fn look(name: &str) -> Seen {
    let info = Netlink::open().unwrap().link(name).unwrap();
    let flags = info.tun.unwrap().flags;
    let fd = queue(name, flags);
    let driver = TunState::read(fd.as_fd(), name, flags, info.carrier).unwrap();
    Seen { mtu: info.mtu, gso_max_size: info.gso_max_size, mac: info.mac, driver }
}

fn config(name: &str) -> TapConfig {
    TapConfig {
        name: name.to_owned(),
        mac: Some([2, 0, 0, 0, 0, 9]),
        mtu: Some(1400),
        ..TapConfig::default()
    }
}

/// Opens a device as a link does, with everything on and up to `channels` channels.
fn opened(config: TapConfig, channels: u16) -> TapFunction {
    let mut tap = TapFunction::open(config).unwrap();
    let mut caps = tap.caps();
    caps.wanted = Some(channels);
    // Less than the kernel's default, so that its limit of large frames is changed as well.
    let plan = Plan { frame_max: 40_000, ..Plan::join(&caps, &caps).unwrap() };
    assert!(plan.rx_offloads.any_large());
    drop(tap.open(&plan).unwrap());
    tap.set_carrier(true);
    tap
}

// Goal: a device that others made is as before, whatever it was and whatever was done with it.
#[test]
fn foreign_device_is_left_as_found() {
    if !is_alone() {
        return;
    }
    make("plain", TAP | flag::MULTI_QUEUE);
    make("single", TAP);
    make("used", TAP | flag::MULTI_QUEUE | flag::VNET_HDR);
    let used = queue("used", TAP | flag::MULTI_QUEUE | flag::VNET_HDR);
    sys::restore_vnet_header(used.as_fd(), (20, false)).unwrap();
    sys::set_offload(used.as_fd(), offload::CSUM | offload::TSO4).unwrap();
    drop(used);
    for (name, channels) in [("plain", 4), ("single", 1), ("used", 2)] {
        let before = look(name);
        let tap = opened(config(name), channels);
        let info = Netlink::open().unwrap().link(name).unwrap();
        assert_eq!((info.mtu, info.mac), (1400, Some([2, 0, 0, 0, 0, 9])), "{name}");
        assert!(info.gso_max_size < before.gso_max_size, "{name}");
        drop(tap);
        assert_eq!(look(name), before, "{name}");
    }
    assert_eq!(look("used").driver.offloads, offload::CSUM | offload::TSO4);
}

// Goal: a device that was made here and stays keeps what was asked for, and promises the next
// program nothing that it does not know of.
#[test]
fn own_device_that_stays_keeps_only_what_was_asked_for() {
    if !is_alone() {
        return;
    }
    drop(opened(TapConfig { persist: true, ..config("own") }, 2));
    let seen = look("own");
    assert_eq!((seen.mtu, seen.mac), (1400, Some([2, 0, 0, 0, 0, 9])));
    assert_eq!((seen.driver.header, seen.driver.offloads), (10, 0));
    drop(opened(config("gone"), 2));
    assert!(Netlink::open().unwrap().link("gone").is_err(), "a device was left behind");
}

// Goal: the carrier stays on where a program keeps it by a detached queue.
#[test]
fn carrier_that_is_kept_stays_on() {
    if !is_alone() {
        return;
    }
    let keeper = queue("kept", TAP | flag::MULTI_QUEUE);
    sys::set_queue(keeper.as_fd(), false).unwrap();
    let carrier = || Netlink::open().unwrap().link("kept").unwrap().carrier;
    assert!(carrier());
    let mut tap = opened(config("kept"), 1);
    tap.set_carrier(false);
    assert!(!carrier());
    drop(tap);
    assert!(carrier());
}

// Goal: what a process that was killed has left is told, and is put back under the name that the
// device has by then, but not under the hands of a program that uses it.
#[test]
fn journal_restores_what_a_killed_process_left() {
    if !is_alone() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("mqnet-tap-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let kept_in = folder.clone();
    mqnet_undo::keep_in(move || Ok(kept_in.clone()));
    make("left", TAP | flag::MULTI_QUEUE);
    let before = look("left");
    let tap = opened(config("left"), 2);
    let ours = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "changes");
    let journals = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    // Other tests of this process may have written others.
    let copies: Vec<_> = journals.filter(ours).map(|path| fs::read(path).unwrap()).collect();
    drop(tap);
    assert_eq!(look("left"), before);
    for (n, journal) in copies.iter().enumerate() {
        let copy = folder.join(format!("17-{n}.changes"));
        fs::write(&copy, journal).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o600)).unwrap();
    }
    // As it was while it ran.
    let flags = TAP | flag::MULTI_QUEUE | flag::VNET_HDR;
    let user = queue("left", flags);
    sys::set_vnet_header(user.as_fd()).unwrap();
    sys::set_offload(user.as_fd(), offload::CSUM | offload::TSO4 | offload::TSO6).unwrap();
    let mut netlink = Netlink::open().unwrap();
    let index = netlink.link("left").unwrap().index;
    netlink.set_mtu(index, 1400).unwrap();
    netlink.set_mac(index, [2, 0, 0, 0, 0, 9]).unwrap();
    let rename = ["link", "set", "left", "name", "other"];
    assert!(std::process::Command::new("ip").args(rename).status().unwrap().success());
    let told: Vec<String> =
        mqnet_undo::left_behind(&folder).into_iter().flat_map(|left| left.what).collect();
    for words in ["left: its TUN driver state (was vnet_hdr off of 10 B", "left: its MTU (was 1500"]
    {
        assert!(told.iter().any(|what| what.starts_with(words)), "{told:?}");
    }
    let copy = folder.join("17-0.changes");
    let again = fs::read(&copy).unwrap();
    let said = mqnet_undo::recover(&folder, Duration::ZERO).join("\n");
    assert!(said.contains("left: its TUN driver state: changed since"), "{said}");
    drop(user);
    fs::write(&copy, again).unwrap();
    let said = mqnet_undo::recover(&folder, Duration::from_secs(1)).join("\n");
    assert!(said.contains("its TUN driver state: vnet_hdr off of 10 B"), "{said}");
    assert_eq!(look("other"), before);
    fs::remove_dir_all(&folder).unwrap();
}
