//! Tests with devices that other programs created, with one network namespace per test.

use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mqnet_netdev::{Function, KernelInterface, Plan};
use mqnet_sysio::namespace;
use mqnet_sysio::tap::{flag, offload};
use mqnet_testkit::{Need, has};

use super::*;
use crate::netlink::Netlink;
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

/// Creates a persistent device and closes it, like `ip tuntap add`.
fn make(name: &str, flags: u32) {
    sys::set_persist(queue(name, flags).as_fd(), true).unwrap();
}

/// State of a device as another program finds it: interface settings and driver settings.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    mtu: u32,
    gso_max_size: u32,
    mac: Option<[u8; 6]>,
    driver: TunState,
}

fn read_device(name: &str) -> Seen {
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

/// Opens a device like a link does, with all offloads and up to `channels` channels.
fn opened(config: TapConfig, channels: u16) -> TapFunction {
    let mut tap = TapFunction::open(config).unwrap();
    let mut caps = tap.caps();
    caps.wanted = Some(channels);
    // Use smaller frames than the kernel's default, so that the GSO size limit changes too.
    let plan = Plan { frame_max: 40_000, ..Plan::join(&caps, &caps).unwrap() };
    assert!(plan.rx_offloads.any_large());
    drop(tap.open(&plan).unwrap());
    tap.set_carrier(true);
    tap
}

// Goal: the settings of another program's device are restored, for any kind of device.
#[test]
fn foreign_device_is_restored() {
    if !enter_own_netns() {
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
        let before = read_device(name);
        let tap = opened(config(name), channels);
        let info = Netlink::open().unwrap().link(name).unwrap();
        assert_eq!((info.mtu, info.mac), (1400, Some([2, 0, 0, 0, 0, 9])), "{name}");
        assert!(info.gso_max_size < before.gso_max_size, "{name}");
        drop(tap);
        assert_eq!(read_device(name), before, "{name}");
    }
    assert_eq!(read_device("used").driver.offloads, offload::CSUM | offload::TSO4);
}

// Rule: a persistent device that was created here keeps the configured values. Its offloads and the
// size of its `virtio_net_hdr` are those of a new device.
#[test]
fn persistent_own_device_keeps_only_configured_values() {
    if !enter_own_netns() {
        return;
    }
    drop(opened(TapConfig { persist: true, ..config("own") }, 2));
    let seen = read_device("own");
    assert_eq!((seen.mtu, seen.mac), (1400, Some([2, 0, 0, 0, 0, 9])));
    assert_eq!((seen.driver.header, seen.driver.offloads), (10, 0));
    drop(opened(config("gone"), 2));
    assert!(Netlink::open().unwrap().link("gone").is_err(), "a device was left behind");
}

// Rule: if the carrier was on before, it is on again after the function is dropped, while another
// program holds a detached queue.
#[test]
fn carrier_held_by_another_program_stays_on() {
    if !enter_own_netns() {
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

// Rule: the journal of a killed process is reported, and then restored under the present name of
// the device. While another program uses the device, its driver state is left unchanged.
#[test]
fn journal_restores_settings_of_a_killed_process() {
    if !enter_own_netns() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("mqnet-tap-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let kept_in = folder.clone();
    mqnet_undo::keep_in(move || Ok(kept_in.clone()));
    make("left", TAP | flag::MULTI_QUEUE);
    let before = read_device("left");
    let tap = opened(config("left"), 2);
    let ours = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "changes");
    let journals = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    // Other tests of this process may have written further journals.
    let copies: Vec<_> = journals.filter(ours).map(|path| fs::read(path).unwrap()).collect();
    drop(tap);
    assert_eq!(read_device("left"), before);
    for (n, journal) in copies.iter().enumerate() {
        let copy = folder.join(format!("17-{n}.changes"));
        fs::write(&copy, journal).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o600)).unwrap();
    }
    // The state of the device while the killed process ran.
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
    let report: Vec<String> =
        mqnet_undo::left_behind(&folder).into_iter().flat_map(|left| left.what).collect();
    for words in ["left: its TUN driver state (was vnet_hdr off of 10 B", "left: its MTU (was 1500"]
    {
        assert!(report.iter().any(|what| what.starts_with(words)), "{report:?}");
    }
    let copy = folder.join("17-0.changes");
    let again = fs::read(&copy).unwrap();
    let logged = mqnet_undo::recover(&folder, Duration::ZERO).join("\n");
    assert!(logged.contains("left: its TUN driver state: changed since"), "{logged}");
    drop(user);
    fs::write(&copy, again).unwrap();
    let logged = mqnet_undo::recover(&folder, Duration::from_secs(1)).join("\n");
    assert!(logged.contains("its TUN driver state: vnet_hdr off of 10 B"), "{logged}");
    assert_eq!(read_device("other"), before);
    fs::remove_dir_all(&folder).unwrap();
}
