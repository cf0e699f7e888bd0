//! Groups of NICs: two veths with AF_XDP sockets, a TAP at the other end of the link.

use std::time::Duration;

use mqnet_testkit::{Flows, Host, LinkProcess, Need, World, has, until};
use serde_json::Value;

/// MAC address of the TAP.
const MAC: &str = "02:00:00:00:00:01";

const PACE: Duration = Duration::from_millis(4);

/// Creates NIC number `n` in `a` and its peer in `b`; both peers have the same MAC address, like
/// the ports of one host.
fn wire(world: &World, n: u32) {
    let b = world.b.name();
    let queues = "numrxqueues 4 numtxqueues 4";
    let mac = "address 02:00:00:00:00:02";
    let run = |host: &Host, words: &str| {
        host.run(&words.split(' ').collect::<Vec<_>>());
    };
    let (nic, peer) = (format!("nic{n}"), format!("peer{n}"));
    let ends = format!("type veth peer name {peer} {mac} {queues} netns {b}");
    run(&world.a, &format!("ip link add {nic} {queues} {ends}"));
    for (host, device) in [(&world.a, &nic), (&world.b, &peer)] {
        run(host, &format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1"));
        run(host, &format!("ip link set {device} up"));
    }
    run(&world.b, &format!("ethtool -K {peer} tx off"));
    run(&world.b, &format!("ip address add 10.7.{n}.2/24 dev {peer}"));
    // Fixed neighbour entry: an ARP reply may arrive through the other NIC and update only that
    // NIC's entry.
    let neighbour = format!("10.7.{n}.1 lladdr {MAC} dev {peer}");
    run(&world.b, &format!("ip neighbour replace {neighbour}"));
}

fn link(world: &World, options: &str) -> LinkProcess {
    for name in ["all", "default"] {
        // Disable the reverse-path filter: replies may leave through another NIC than that of the
        // request.
        let filter = format!("net.ipv4.conf.{name}.rp_filter=0");
        world.b.run(&["sysctl", "-q", "-w", &filter]);
    }
    (0..2).for_each(|n| wire(world, n));
    let a = world.a.name();
    let mut command = world.folder().program();
    command.args(["link", "--json", "--channels", "4"]);
    command.arg(format!("tap:t,netns={a},mac={MAC},address=10.7.0.1/24,address=10.7.1.1/24"));
    command.arg(format!("xdp:nic0,netns={a}+xdp:nic1,netns={a}{options}"));
    let link = LinkProcess::spawn(command);
    link.wait_up(1);
    link
}

fn members(world: &World) -> Vec<Value> {
    let shown = world.folder().ask_json("show --json");
    shown[0]["netdevs"][1]["members"].as_array().cloned().unwrap_or_default()
}

/// Frames received by the peer of a NIC.
fn received(world: &World, device: &str) -> u64 {
    let info = world.b.device(device).expect("the device");
    info["stats64"]["rx"]["packets"].as_u64().expect("a counter")
}

/// Flows in both directions: from `a`, and from the peer of each NIC.
fn all_ways(world: &World) -> Vec<Flows> {
    let (a, b) = (&world.a, &world.b);
    vec![
        Flows::start(a, b, "10.7.0.2", 32, PACE),
        Flows::start(b, a, "10.7.0.1", 8, PACE),
        Flows::start(b, a, "10.7.1.1", 8, PACE),
    ]
}

fn xdp_program(host: &Host, device: &str) -> bool {
    let found = host.run_json(&["ip", "-j", "-d", "link", "show", "dev", device]);
    found[0]["xdp"]["mode"].as_u64().is_some()
}

// Goal: two NICs form one netdev with traffic through both. When one NIC goes down and up, a group
// with degrade continues, and the channels return to that NIC. A killed process leaves no XDP
// program on either NIC.
#[test]
fn two_nics_are_one_netdev() {
    if !has(&[Need::Root, Need::Program("ethtool")]) {
        return;
    }
    let world = World::create();
    let mut link = link(&world, ",on-member-loss=degrade");
    let begin = std::time::Instant::now();
    let flows = all_ways(&world);
    flows.iter().for_each(|flow| flow.wait_more(300));
    assert!(received(&world, "peer0") > 100 && received(&world, "peer1") > 100);
    println!("down at {:?}", begin.elapsed());
    world.a.run(&["ip", "link", "set", "nic1", "down"]);
    until("the other to take over", || {
        let there = members(&world);
        let stands = there[0]["standing-in"] == Value::from([1, 3].to_vec());
        (stands && there[1]["up"] == false).then_some(())
    });
    println!("takes over at {:?}", begin.elapsed());
    flows[..2].iter().for_each(|flow| flow.wait_more(300));
    println!("up at {:?}", begin.elapsed());
    world.a.run(&["ip", "link", "set", "nic1", "up"]);
    until("the NIC to be back", || {
        let there = members(&world);
        (there[1]["up"] == true && there[0].get("standing-in").is_none()).then_some(())
    });
    println!("back at {:?}", begin.elapsed());
    let before = received(&world, "peer1");
    flows.iter().for_each(|flow| flow.wait_more(300));
    assert!(received(&world, "peer1") > before + 50);
    for flow in flows {
        let tally = flow.finish();
        println!("{tally:?}");
        assert_eq!((tally.doubled, tally.wrong, tally.reordered), (0, 0, 0), "{tally:?}");
    }
    assert_eq!((link.ups(), link.downs()), (1, Vec::new()));
    assert!(["nic0", "nic1"].iter().all(|nic| xdp_program(&world.a, nic)));
    link.kill();
    until("no program to be left", || {
        (!["nic0", "nic1"].iter().any(|nic| xdp_program(&world.a, nic))).then_some(())
    });
    assert!(world.a.device("t").is_none());
}

// Goal: without degrade the loss of a NIC takes the link down with a reason that names the NIC. The
// link comes up with the next interface of the same name.
#[test]
fn a_group_of_nics_ends_with_one() {
    if !has(&[Need::Root, Need::Program("ethtool")]) {
        return;
    }
    let world = World::create();
    let link = link(&world, "");
    let cross = || {
        for flow in all_ways(&world) {
            flow.wait_more(50);
            flow.finish();
        }
    };
    cross();
    world.a.run(&["ip", "link", "del", "nic1"]);
    let why = link.wait_down("1 of 2 members up");
    assert!(why.contains("waiting for xdp:nic1"), "{why}");
    wire(&world, 1);
    link.wait_up(2);
    cross();
    link.wait_quiet();
    link.stop().assert_conserved();
}
