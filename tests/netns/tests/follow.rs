//! Devices that other programs rename, move, change or delete while a link uses them.

use std::process::Command;
use std::time::Duration;

use mqnet_testkit::{Datagrams, Host, LinkProcess, Need, World, has, run_command, until};
use serde_json::Value;

use crate::af_xdp::wire;

/// Starts a link between two addresses.
fn link(world: &World, a: &str, b: &str, more: &[&str]) -> LinkProcess {
    let mut command = world.folder().program();
    command.args(["link", "--json", a, b]).args(more);
    LinkProcess::spawn(command)
}

/// Starts a link between a TAP `t` and a veth `nic`, both at host a, and waits until it is up.
fn tap_to_nic(world: &World) -> LinkProcess {
    wire(&world.a, "nic", &world.b, "10.7.1.2/24", 1500);
    let a = world.a.name();
    let tap = format!("tap:t,netns={a},address=10.7.1.1/24");
    let link = link(world, &tap, &format!("xdp:nic,netns={a}"), &[]);
    link.wait_up(1);
    link
}

#[track_caller]
fn wait_mtu(host: &Host, device: &str, mtu: u64) {
    until("the device has the mtu", || {
        let seen = host.device(device).map(|info| info["mtu"].as_u64());
        (seen == Some(Some(mtu))).then_some(())
    });
}

/// Entry of the netdev in `mqnet show`; `None` if it is not shown.
fn shown(world: &World, netdev: &str) -> Option<Value> {
    let printed = world.ask(&format!("show -j {netdev}"));
    let links: Value = serde_json::from_str(&printed.out).ok()?;
    let netdevs = links[0]["netdevs"].as_array()?.clone();
    netdevs.into_iter().find(|dev| dev["name"] == netdev)
}

fn inode(host: &Host) -> u64 {
    let text = host.run(&["readlink", "/proc/self/ns/net"]);
    let digits = text.trim().trim_start_matches("net:[").trim_end_matches(']').to_owned();
    digits.parse().expect("an inode")
}

fn queues(host: &Host, device: &str) -> usize {
    let path = format!("/sys/class/net/{device}/queues");
    // Only attached queues have a folder in sysfs.
    host.run(&["ls", &path]).lines().filter(|line| line.starts_with("rx-")).count()
}

// Goal: a TAP that is renamed and moved to another namespace, before and after the link comes up,
// gets the new queues of a resize. No device of the old name is created. `show` reports the new
// name, index and namespace, and an MTU is set in the new namespace.
#[test]
fn renamed_and_moved_taps_are_followed() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let a = world.end_a().channels(4).spawn();
    until("the TAP is there", || world.a.device("a"));
    world.a.run(&["ip", "link", "set", "dev", "a", "down"]);
    world.a.run(&["ip", "link", "set", "dev", "a", "name", "x0", "netns", world.b.name()]);
    let b = world.end_b().channels(4).spawn();
    a.wait_up(1);
    b.wait_up(1);
    assert!(world.a.device("a").is_none() && world.b.device("a").is_none());
    assert_eq!(queues(&world.b, "x0"), 4);
    let dev = until("show has the new name", || shown(&world, "x0"));
    let index = world.b.device("x0").expect("a TAP")["ifindex"].clone();
    assert_eq!((&dev["ifindex"], dev["netns"].as_u64()), (&index, Some(inode(&world.b))));

    world.b.run(&["ip", "link", "set", "dev", "x0", "name", "x1"]);
    until("show has the next name", || shown(&world, "x1"));
    world.tell("ethtool -L x1 combined 6");
    world.tell("ethtool -L b combined 6");
    until("the moved TAP has more queues", || (queues(&world.b, "x1") == 6).then_some(()));
    world.tell("set x1 mtu 1400");
    wait_mtu(&world.b, "x1", 1400);
    assert!(world.a.device("a").is_none() && world.b.device("x0").is_none());
    world.b.run(&["ip", "link", "del", "dev", "x1"]);
    a.wait_down("was removed");
}

// Goal: an MTU that another program sets on a TAP applies to both ends of the link; a later setting
// by the user has precedence.
#[test]
fn an_mtu_set_by_others_is_followed() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end);
    for (host, device, mtu) in [(&world.b, "b", 4000), (&world.b, "b", 1280)] {
        host.run(&["ip", "link", "set", "dev", device, "mtu", &mtu.to_string()]);
        wait_mtu(&world.a, "a", mtu);
        wait_mtu(&world.b, "b", mtu);
    }
    world.tell("set b mtu 1500");
    for (host, device) in [(&world.a, "a"), (&world.b, "b")] {
        wait_mtu(host, device, 1500);
    }
    pair.stop();
}

// Goal: an MTU above the limit of the other end is reset and reported with the limiting end,
// because frames would be lost. A smaller MTU is kept until the user sets the MTU of the link
// again.
#[test]
fn an_mtu_that_the_link_cannot_have_is_explained() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let link = tap_to_nic(&world);
    for (mtu, stays) in [("4000", 1500), ("1400", 1400)] {
        world.a.run(&["ip", "link", "set", "dev", "t", "mtu", mtu]);
        let words = format!("mtu {mtu}");
        for verb in ["show t", "why t"] {
            let text = until("the note is there", || {
                let out = world.ask(verb).out;
                out.contains(&words).then_some(out)
            });
            assert!(text.contains("xdp:nic has mtu 1500"), "{verb}: {text}");
        }
        wait_mtu(&world.a, "t", stays);
    }
    world.tell("set t mtu 1500");
    wait_mtu(&world.a, "t", 1500);
    assert!(!world.ask("show t").out.contains("note"), "the note stays");
    link.stop();
}

// Goal: options are applied again after another program has changed a new device. A device that is
// set down while its link runs is reported.
#[test]
fn options_are_set_again() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let options = "mac=02:00:00:00:00:01,mtu=1600,address=10.0.0.1/24";
    let link = link(&world, &format!("tap:t,netns={},{options}", world.a.name()), "null:", &[]);
    link.wait_up(1);
    world.a.run(&["ip", "link", "set", "dev", "t", "address", "02:aa:aa:aa:aa:01", "mtu", "1500"]);
    wait_mtu(&world.a, "t", 1600);
    until("the address is the option's", || {
        let device = world.a.device("t").expect("a TAP");
        (device["address"] == "02:00:00:00:00:01").then_some(())
    });
    world.a.run(&["ip", "link", "set", "dev", "t", "down"]);
    until("show reports that it is down", || {
        world.ask("show t").out.contains("t is down: ip link set dev t up").then_some(())
    });
    world.a.run(&["ip", "link", "set", "dev", "t", "up"]);
    until("show forgets it", || (!world.ask("show t").out.contains("note")).then_some(()));
    link.stop();
}

fn netns(verb: &str, host: &Host) {
    let output = run_command(Command::new("ip").args(["netns", verb, host.name()]));
    assert!(output.status.success(), "{output:?}");
}

// Goal: the deletion of a network namespace takes its link down, and the kernel frees the
// namespace, because the link keeps no reference. The device is created again in the next namespace
// of the same name.
#[test]
fn deleted_namespace_is_released() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    wire(&world.a, "nic", &world.b, "10.7.1.2/24", 1500);
    let tap = link(&world, &format!("tap:t,netns={}", world.b.name()), "null:", &[]);
    let nic = link(&world, &format!("xdp:peer,netns={}", world.b.name()), "null:", &[]);
    tap.wait_up(1);
    nic.wait_up(1);
    netns("del", &world.b);
    for link in [&tap, &nic] {
        link.wait_down("was deleted");
    }
    // The namespace is removed with its content, including its end of the veth.
    until("the namespace ends", || world.a.device("nic").is_none().then_some(()));
    netns("add", &world.b);
    tap.wait_up(2);
    assert!(world.b.device("t").is_some());
    let peer = ["ip", "link", "add", "peer", "type", "veth", "peer", "name", "far"];
    world.b.run(&peer);
    world.b.run(&["ip", "link", "set", "dev", "far", "up"]);
    world.b.run(&["ip", "link", "set", "dev", "peer", "up"]);
    nic.wait_up(2);
    tap.stop();
    nic.stop();
}

// Goal: an interface that is renamed while AF_XDP sockets use it continues under its new name. An
// interface that is moved to another namespace is reported, and a new interface of the configured
// name is attached.
#[test]
fn a_renamed_interface_is_followed() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let link = tap_to_nic(&world);
    world.a.run(&["ip", "link", "set", "dev", "nic", "name", "wan"]);
    until("show has the new name", || shown(&world, "wan"));
    let datagrams = Datagrams::start(&world.a, &world.b, "10.7.1.2", 500, Duration::from_millis(2));
    datagrams.wait_more(50);
    datagrams.finish();
    assert_eq!((link.ups(), link.downs().len()), (1, 0), "{}", link.text());
    world.a.run(&["ip", "link", "set", "dev", "wan", "netns", world.b.name()]);
    link.wait_down("moved to another network namespace");
    world.b.run(&["ip", "link", "set", "dev", "wan", "name", "nic", "netns", world.a.name()]);
    world.a.run(&["ip", "link", "set", "dev", "nic", "up"]);
    link.wait_up(2);
    link.stop();
}
