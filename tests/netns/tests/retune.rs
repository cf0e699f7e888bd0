//! Changes of ring sizes, MTU, offloads and the indirection table under traffic.

use mqnet_testkit::{Host, LinkProcess, Need, World, has, until};

use crate::load::Load;
use crate::resize::{often, stop_perfect, wait_channels};

/// Datagrams in each direction between two changes.
const BETWEEN: u64 = 200;

/// MTU of a kernel device.
fn kernel_mtu(host: &Host, device: &str) -> u64 {
    host.device(device).expect("the device")["mtu"].as_u64().expect("an mtu")
}

#[track_caller]
fn wait_mtu(world: &World, mtu: u64) {
    for (host, device) in [(&world.a, "a"), (&world.b, "b")] {
        until("the kernel's device has the mtu", || {
            (kernel_mtu(host, device) == mtu).then_some(())
        });
    }
}

/// `ethtool` command for the bridge of an end. Both bridges have the same name, so `--control`
/// selects the process.
fn bridge(world: &World, end: &LinkProcess, flag: &str, rest: &str) -> String {
    let socket = world.file(&format!("link-{}.sock", end.pid()));
    let socket = socket.display();
    let shown = world.folder().ask_json(&format!("--control {socket} show -j"));
    let netdevs = shown[0]["netdevs"].as_array().expect("netdevs").clone();
    let name = netdevs[1]["name"].as_str().expect("a name").to_owned();
    format!("--control {socket} ethtool {flag} {name}{rest}")
}

// Goal: rings shrink and grow, requested at either end, without loss; both ends report the new
// size.
#[test]
fn rings_change_under_traffic() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end).channels(4));
    let mut load = Load::start(&world.a, &world.b, true);
    let sizes = [128u32, 1024, 65, 512, 256, 700];
    for (round, kib) in sizes.into_iter().cycle().take(24).enumerate() {
        let (end, peer) = if round % 2 == 0 { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
        // Each end requests the size of its RX ring, which is the peer's TX ring; the smaller
        // request applies.
        let (ours, theirs) = ("rx", "tx");
        let words = bridge(&world, end, "-G", &format!(" {ours} {kib}"));
        load.during(BETWEEN, || world.tell(&words));
        for (end, which) in [(end, ours), (peer, theirs)] {
            let words = bridge(&world, end, "--json -g", "");
            until("both ends show the new ring", || {
                let shown = world.folder().ask_json(&words);
                (shown[0][which].as_u64() == Some(u64::from(kib))).then_some(())
            });
        }
    }
    load.finish_perfect("rings");
    stop_perfect(pair);
}

// Goal: the MTU is increased and decreased, with large frames and without them, where the largest
// frame changes, too. The devices of both kernels get the MTU.
#[test]
fn mtu_changes_under_traffic() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end).channels(2));
    let mut load = Load::start(&world.a, &world.b, true);
    for offloads in ["on", "off", "on"] {
        for dev in ["a", "b"] {
            let words = format!("ethtool -K {dev} tso {offloads} gro {offloads}");
            let output = load.during(BETWEEN, || world.ask(&words));
            println!("{words}: {output:?}");
        }
        for mtu in [9000u64, 1500, 4000, 1500] {
            let words = format!("set a mtu {mtu}");
            load.during(BETWEEN, || world.tell(&words));
            wait_mtu(&world, mtu);
        }
    }
    println!("{:?}", pair.a.events("changed"));
    load.finish_perfect("mtu");
    stop_perfect(pair);
}

// Goal: the indirection table changes under traffic without reordering. Channels in a table set by
// the user cannot be removed; the error is that of ethtool.
#[test]
fn indirection_table_changes_under_traffic() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(often);
    world.tell("ethtool -L a combined 4");
    wait_channels(&world, 4);
    let mut load = Load::start(&world.a, &world.b, true);
    let spreads = ["equal 1", "equal 4", "weight 1 0 3 1", "default", "equal 2", "weight 0 0 0 1"];
    for (round, spread) in spreads.into_iter().cycle().take(36).enumerate() {
        let words = format!("ethtool -X {} {spread}", ["a", "b"][round / 6 % 2]);
        assert_eq!(load.during(BETWEEN, || world.tell(&words)), "", "{words}");
    }
    world.tell("ethtool -X b default");
    world.tell("ethtool -X a equal 4");
    let refused = world.ask("ethtool -L a combined 3");
    let text = "netlink error: requested channel counts are too low for existing indirection table";
    assert!(refused.code == Some(1) && refused.err.starts_with(text), "{refused:?}");
    assert_eq!(world.tell("ethtool -L a combined 6"), "");
    wait_channels(&world, 6);
    load.wait_more(BETWEEN);
    world.tell("ethtool -X a default");
    assert_eq!(world.tell("ethtool -L a combined 2"), "");
    load.finish_perfect("another spread");
    stop_perfect(pair);
}
