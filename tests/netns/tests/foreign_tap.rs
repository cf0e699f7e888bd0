//! TAP devices created by other programs, and interfaces without Ethernet frames.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use mqnet_testkit::{LinkProcess, Need, World, has};

/// Starts a link with a restore journal that is trusted, because no other user can write its
/// folder.
fn link(world: &World, ends: [&str; 2]) -> LinkProcess {
    let private = Permissions::from_mode(0o755);
    std::fs::set_permissions(world.folder().file("."), private).expect("permissions");
    let mut command = world.folder().program();
    command.args(["link", "--json"]).args(ends);
    LinkProcess::spawn(command)
}

/// Attributes of a device that other programs see, without its state, as text.
fn seen(world: &World, device: &str) -> String {
    let link = world.a.run(&["ip", "-d", "link", "show", device]);
    // The state is not compared: attaching a queue changes the carrier.
    let words: Vec<&str> = link.split_whitespace().collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name);
        format!("{name} {}", at.map_or("", |at| words[at + 1]))
    };
    let names = ["mtu", "link/ether", "pi", "vnet_hdr", "multi_queue", "gso_max_size"];
    // Compare only active features: the next TUNSETOFFLOAD changes the requested ones.
    let features = world.a.run(&["ethtool", "-k", device]).replace(" [requested on]", "");
    let is_ours = |line: &&str| line.starts_with("tx-") || line.starts_with("tcp-");
    let features: Vec<&str> = features.lines().filter(is_ours).collect();
    format!("{} {}", names.map(after).join(" "), features.join(" "))
}

// Goal: a device of another program is unchanged when the link ends, and also when its process is
// killed and the journal is restored.
#[test]
fn tap_of_another_program_is_left_as_found() {
    if !has(&[Need::Root, Need::Program("ethtool")]) {
        return;
    }
    let world = World::create();
    for (name, kind, option, mtu) in
        [("many", Some("multi_queue"), "", "mtu 9000"), ("one", None, ",mtu=2000", "mtu 2000")]
    {
        let words = ["ip", "tuntap", "add", "dev", name, "mode", "tap"];
        world.a.run(&words.into_iter().chain(kind).collect::<Vec<_>>());
        world.a.run(&["ip", "link", "set", name, "mtu", "9000"]);
        let before = seen(&world, name);
        let tap = format!("tap:{name},netns={},mac=02:00:00:00:00:09{option}", world.a.name());
        let mut process = link(&world, [&tap, "null:"]);
        process.wait_up(1);
        assert_ne!(seen(&world, name), before);
        assert!(seen(&world, name).starts_with(mtu), "{}", seen(&world, name));
        process.kill();
        let told = world.folder().ask("doctor").out;
        assert!(
            told.contains(&format!("{name}: its TUN driver state (was vnet_hdr off")),
            "{told}"
        );
        let told = world.folder().ask("doctor --put-back").err;
        assert_eq!(told.contains("MTU: 9000 again"), !option.is_empty(), "{told}");
        assert_eq!(seen(&world, name), before, "{name} after a kill");
        process.restart();
        process.wait_up(1);
        process.stop();
        assert_eq!(seen(&world, name), before, "{name} after a stop");
    }
}

// Goal: an interface without Ethernet header and a loopback are refused with the reason.
#[test]
fn interfaces_without_ethernet_header_are_refused() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    world.a.run(&["ip", "tuntap", "add", "dev", "tun7", "mode", "tun"]);
    world.a.run(&["ip", "link", "set", "tun7", "up"]);
    for (interface, words) in
        [("tun7", "tun7 has no Ethernet header (link type 65534"), ("lo", "lo is a loopback")]
    {
        let xdp = format!("xdp:{interface},netns={}", world.a.name());
        let process = link(&world, ["null:", &xdp]);
        process.wait_down(words);
        assert_eq!(process.ups(), 0);
    }
}
