//! `xdp:IFNAME` with AF_XDP sockets of the running kernel. One end of a veth pair is the NIC; the
//! namespace of the other end is the remote host.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mqnet_testkit::{
    Datagrams, EndTable, Flows, Host, LinkProcess, Need, World, has, iperf3, until,
};

const PACE: Duration = Duration::from_millis(2);

/// Creates a veth pair with four queues at each end: the NIC in the namespace `at`, its peer in
/// `behind`.
pub(crate) fn wire(at: &Host, nic: &str, behind: &Host, address: &str, mtu: u32) {
    let (queues, mtu) = ("4", mtu.to_string());
    at.run(&[
        "ip",
        "link",
        "add",
        nic,
        "numrxqueues",
        queues,
        "numtxqueues",
        queues,
        "type",
        "veth",
        "peer",
        "name",
        "peer",
        "numrxqueues",
        queues,
        "numtxqueues",
        queues,
        "netns",
        behind.name(),
    ]);
    // Disable IPv6 for existing and new devices (TAP): frames sent while a qdisc is being attached
    // would be dropped and counted.
    at.run(&["sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"]);
    for (host, device) in [(at, nic), (behind, "peer")] {
        host.run(&["sysctl", "-qw", &format!("net.ipv6.conf.{device}.disable_ipv6=1")]);
        host.run(&["ip", "link", "set", device, "mtu", &mtu, "up"]);
    }
    // A veth does not fill in offloaded checksums.
    behind.run(&["ethtool", "-K", "peer", "tx", "off"]);
    behind.run(&["ip", "address", "add", address, "dev", "peer"]);
}

/// TAP and NIC in the namespace `a`, joined by a link; the NIC's peer is in `b`.
struct Rig {
    world: World,
    link: LinkProcess,
}

fn cross(world: &World, [a, b]: [&str; 2], len: usize) {
    for (from, to, address) in [(&world.a, &world.b, b), (&world.b, &world.a, a)] {
        let datagrams = Datagrams::start(from, to, address, len, PACE);
        datagrams.wait_more(10);
        datagrams.finish();
    }
}

impl Rig {
    fn start(options: &str, mtu: u32, more: &[&str]) -> Self {
        let world = World::create();
        wire(&world.a, "nic", &world.b, "10.7.1.2/24", mtu);
        let link = Self::link(&world, options, more);
        link.wait_up(1);
        world.a.lengthen("t");
        let rig = Self { world, link };
        // Until the neighbour is resolved, the kernel drops all but a few datagrams.
        rig.crosses(100);
        rig
    }

    fn link(world: &World, options: &str, more: &[&str]) -> LinkProcess {
        let mut command = world.folder().program();
        let a = world.a.name();
        command.args(["link", "--json", &format!("tap:t,netns={a},address=10.7.1.1/24")]);
        command.arg(format!("xdp:nic,netns={a}{options}")).args(more);
        LinkProcess::spawn(command)
    }

    /// Asserts that datagrams of `len` bytes cross in both directions.
    fn crosses(&self, len: usize) {
        cross(&self.world, ["10.7.1.1", "10.7.1.2"], len);
    }

    /// Asserts that numbered datagrams of many flows cross in both directions without loss.
    fn flows_cross(&self, datagrams: u64) {
        let (a, b) = (&self.world.a, &self.world.b);
        let there = Flows::start(a, b, "10.7.1.2", 16, PACE);
        let back = Flows::start(b, a, "10.7.1.1", 16, PACE);
        there.wait_more(datagrams);
        back.wait_more(datagrams);
        there.finish().assert_perfect("to the NIC");
        back.finish().assert_perfect("from the NIC");
    }

    /// Stops the link and returns its final table; fails unless every frame is accounted for.
    fn stop(self) -> EndTable {
        self.link.wait_quiet();
        let table = self.link.stop();
        table.assert_conserved();
        table
    }
}

fn outside(table: &EndTable) -> u64 {
    table.0["dropped-outside-b"].as_u64().expect("drops at the sockets")
}

/// Mode of the XDP program at an interface; `None` without a program.
fn program(host: &Host, device: &str) -> Option<u64> {
    let found = host.run_json(&["ip", "-j", "-d", "link", "show", "dev", device]);
    found[0]["xdp"]["mode"].as_u64()
}

fn root() -> bool {
    has(&[Need::Root, Need::Program("ethtool")])
}

// Goal: in native and in generic mode, datagrams of every length and TCP cross a NIC with four
// queues. Each queue has its own channel. The XDP program is mqnet's and is removed with the link.
#[test]
fn traffic_crosses_a_nic() {
    if !root() || !has(&[Need::Program("iperf3")]) {
        return;
    }
    for (options, mode) in [("", 1), (",mode=generic", 2)] {
        let rig = Rig::start(options, 1500, &[]);
        assert_eq!(program(&rig.world.a, "nic"), Some(mode));
        rig.crosses(500);
        rig.flows_cross(400);
        for reverse in [&["-t", "1"][..], &["-t", "1", "-R"]] {
            let report = iperf3(&rig.world.b, &rig.world.a, "10.7.1.2", reverse);
            let bytes = report["end"]["sum_received"]["bytes"].as_f64().expect("bytes");
            assert!(bytes > 1e6, "{options} {reverse:?}: {bytes} bytes");
        }
        let Rig { world, link } = rig;
        link.wait_quiet();
        let table = link.stop();
        table.assert_conserved();
        let used = table.channels().iter().filter(|(_, back)| back.rx_packets > 0).count();
        assert!(used > 1, "{options}: one channel has it all: {}", table.0);
        assert_eq!(program(&world.a, "nic"), None);
    }
}

// Goal: a link between two NICs loses no datagram.
#[test]
fn two_nics_are_a_wire() {
    if !root() {
        return;
    }
    let (world, middle) = (World::create(), World::create());
    let middle = &middle.a;
    wire(middle, "one", &world.a, "10.7.2.1/24", 1500);
    wire(middle, "two", &world.b, "10.7.2.2/24", 1500);
    let mut command = world.folder().program();
    command.args(["link", "--json"]);
    command.args(["one", "two"].map(|nic| format!("xdp:{nic},netns={}", middle.name())));
    let link = LinkProcess::spawn(command);
    link.wait_up(1);
    cross(&world, ["10.7.2.1", "10.7.2.2"], 100);
    let flows = Flows::start(&world.a, &world.b, "10.7.2.2", 16, PACE);
    let back = Flows::start(&world.b, &world.a, "10.7.2.1", 16, PACE);
    flows.wait_more(500);
    back.wait_more(500);
    flows.finish().assert_perfect("there");
    back.finish().assert_perfect("back");
    link.wait_quiet();
    let table = link.stop();
    table.assert_conserved();
    assert_eq!((table.out().drops, table.back().drops, outside(&table)), (0, 0, 0), "{}", table.0);
}

// Goal: jumbo frames, which take several chunks, cross in both directions unchanged.
#[test]
fn jumbo_frames_cross() {
    if !root() {
        return;
    }
    let rig = Rig::start("", 9000, &[]);
    let (a, b) = (&rig.world.a, &rig.world.b);
    let unread = |host: &Host| host.protocol("UdpRcvbufErrors");
    let before = [b, a].map(unread);
    // Each datagram is one unfragmented frame of 9014 bytes.
    let there = Datagrams::start(a, b, "10.7.1.2", 8972, PACE);
    let back = Datagrams::start(b, a, "10.7.1.1", 8972, PACE);
    there.wait_more(300);
    back.wait_more(300);
    let finished = [(b, there.finish()), (a, back.finish())];
    for ((host, (sent, came)), before) in finished.into_iter().zip(before) {
        // Add the datagrams that a full socket buffer dropped, because the link did not lose them.
        assert_eq!(sent, came + unread(host) - before, "{host:?}");
    }
    let table = rig.stop();
    assert!(table.out().tx_bytes > 300 * 9000, "{}", table.0);
    assert_eq!((table.out().drops, table.back().drops, outside(&table)), (0, 0, 0), "{}", table.0);
}

// Goal: channels change under traffic. The current channels serve all queues of the NIC, and every
// missing datagram is counted.
#[test]
fn channels_change_under_traffic() {
    if !root() {
        return;
    }
    let rig = Rig::start("", 1500, &[]);
    let (a, b) = (&rig.world.a, &rig.world.b);
    let there = Flows::start(a, b, "10.7.1.2", 16, PACE);
    let back = Flows::start(b, a, "10.7.1.1", 16, PACE);
    for channels in [1, 3, 4, 2].into_iter().cycle().take(12) {
        let printed = rig.world.folder().ask(&format!("ethtool -L t combined {channels}"));
        assert_eq!(printed.code, Some(0), "to {channels}: {printed:?}");
        there.wait_more(100);
        back.wait_more(100);
    }
    let (there, back) = (there.finish(), back.finish());
    let table = rig.stop();
    let counted =
        table.out().drops + table.back().drops + outside(&table) + table.dropped_outside();
    assert!(there.lost() + back.lost() <= counted, "{there:?} {back:?} {}", table.0);
    assert_eq!((there.doubled, there.wrong, back.doubled, back.wrong), (0, 0, 0, 0));
}

// Goal: a killed process leaves no XDP program at the NIC, and the next process attaches to the
// NIC.
#[test]
fn killed_link_leaves_nothing_behind() {
    if !root() {
        return;
    }
    let mut rig = Rig::start("", 1500, &[]);
    rig.crosses(500);
    rig.link.kill();
    until("the program is gone", || program(&rig.world.a, "nic").is_none().then_some(()));
    rig.link.restart();
    rig.link.wait_up(1);
    rig.crosses(500);
    rig.stop();
}

// Goal: the loss of a NIC (down, no carrier, changed MTU, deleted) is reported, and the link
// attaches the NIC again when the NIC is available.
#[test]
fn nic_is_attached_again_after_loss() {
    if !root() {
        return;
    }
    let rig = Rig::start("", 1500, &[]);
    let (a, b) = (&rig.world.a, &rig.world.b);
    b.run(&["ip", "link", "set", "peer", "down"]);
    rig.link.wait_down("nic has no carrier");
    b.run(&["ip", "link", "set", "peer", "up"]);
    rig.link.wait_up(2);
    rig.crosses(500);
    a.run(&["ip", "link", "set", "nic", "down"]);
    rig.link.wait_down("ip link set dev nic up");
    a.run(&["ip", "link", "set", "nic", "up"]);
    rig.link.wait_up(3);
    rig.crosses(500);
    for device in [(a, "nic"), (b, "peer")] {
        device.0.run(&["ip", "link", "set", device.1, "mtu", "3000"]);
    }
    rig.link.wait_for("the new mtu", |_| (a.device("t")?["mtu"] == 3000).then_some(()));
    rig.crosses(2900);
    let before = rig.link.ups();
    a.run(&["ip", "link", "del", "nic"]);
    rig.link.wait_down("there is no interface nic");
    wire(a, "nic", b, "10.7.1.2/24", 1500);
    rig.link.wait_up(before + 1);
    // The new peer has another MAC address; the stale neighbour entry would last 40 s.
    a.run(&["ip", "neigh", "flush", "dev", "t"]);
    rig.crosses(500);
    rig.stop();
}

// Goal: the reason why an interface cannot be attached names the option to change. The interface is
// attached once the cause is gone.
#[test]
fn refusals_name_an_option() {
    if !root() {
        return;
    }
    let world = World::create();
    let link = Rig::link(&world, "", &[]);
    link.wait_down("there is no interface nic (yet)");
    wire(&world.a, "nic", &world.b, "10.7.1.2/24", 1500);
    link.wait_up(1);
    // The first link now uses the queues of the NIC.
    let mut command = world.folder().program();
    command.args(["link", "--json", "null:", &format!("xdp:nic,netns={}", world.a.name())]);
    let second = LinkProcess::spawn(command);
    second.wait_down("is in use by another AF_XDP socket");
    drop(second);
    link.stop();
    for (options, words) in [
        (",zerocopy=on", "use zerocopy=auto"),
        (",mtu=9000", "ip link set dev nic mtu 9000"),
        (",queues=64", "ethtool -l nic shows the most"),
    ] {
        Rig::link(&world, options, &[]).wait_down(words);
    }
}

// Goal: another program's XDP program stays attached and is reported.
#[test]
fn foreign_program_is_kept() {
    if !root() || !has(&[Need::Program("clang")]) {
        return;
    }
    let world = World::create();
    wire(&world.a, "nic", &world.b, "10.7.1.2/24", 1500);
    let object = crate::xdp::object(&world, "pass").display().to_string();
    world.a.run(&["ip", "link", "set", "dev", "nic", "xdpdrv", "obj", &object, "sec", "xdp"]);
    let link = Rig::link(&world, "", &[]);
    link.wait_down("nic has another XDP program");
    assert_eq!(program(&world.a, "nic"), Some(1));
    world.a.run(&["ip", "link", "set", "dev", "nic", "xdp", "off"]);
    link.wait_up(1);
    link.stop();
}

/// Number of RX and TX queues of the NIC.
fn queues(host: &Host) -> [u32; 2] {
    let text = host.run(&["ethtool", "-l", "nic"]);
    let (_, now) = text.split_once("Current").expect("current settings");
    let number = |key: &str| now.split_once(key)?.1.split_whitespace().next()?.parse().ok();
    [number("RX:"), number("TX:")].map(|n: Option<u32>| n.expect("a number"))
}

// Goal: `queues=` sets the number of queues, all of them are served, and the old number is
// restored.
#[test]
fn queues_are_set_and_restored() {
    if !root() {
        return;
    }
    let rig = Rig::start(",queues=2", 1500, &[]);
    assert_eq!(queues(&rig.world.a), [2, 2]);
    rig.flows_cross(100);
    let Rig { world, link } = rig;
    let table = link.stop();
    table.assert_conserved();
    assert_eq!(table.channels().len(), 2, "{}", table.0);
    assert_eq!(queues(&world.a), [4, 4]);
    // `ethtool -L` must succeed immediately after the link has closed the AF_XDP sockets of the
    // removed queues.
    world.a.run(&["ethtool", "-L", "nic", "rx", "2", "tx", "2"]);
    let link = Rig::link(&world, ",queues=4", &[]);
    link.wait_up(1);
    assert_eq!(queues(&world.a), [4, 4]);
    link.stop();
    assert_eq!(queues(&world.a), [2, 2]);
}

// Goal: while an interface cannot be attached, its number of queues is set once and not at each
// attempt, because many NICs reset on this change. The old number is restored at the end.
#[test]
fn queues_stay_set_while_attach_fails() {
    if !root() || !has(&[Need::Program("clang")]) {
        return;
    }
    let world = World::create();
    wire(&world.a, "nic", &world.b, "10.7.1.2/24", 1500);
    let object = crate::xdp::object(&world, "pass").display().to_string();
    let foreign = ["ip", "link", "set", "dev", "nic", "xdpgeneric", "obj", &object, "sec", "xdp"];
    world.a.run(&foreign);
    let link = Rig::link(&world, ",queues=2", &[]);
    link.wait_down("nic has another XDP program");
    for _ in 0..25 {
        assert_eq!(queues(&world.a), [2, 2]);
        std::thread::sleep(Duration::from_millis(100));
    }
    world.a.run(&["ip", "link", "set", "dev", "nic", "xdpgeneric", "off"]);
    link.wait_up(1);
    assert_eq!(queues(&world.a), [2, 2]);
    link.stop();
    assert_eq!(queues(&world.a), [4, 4]);
    world.a.run(&foreign);
    let link = Rig::link(&world, ",queues=2", &[]);
    link.wait_down("nic has another XDP program");
    link.stop();
    assert_eq!(queues(&world.a), [4, 4]);
}

// Goal: settings that a killed process left at a NIC are found and reported. The next process or
// the doctor restores them, except those that others have changed since.
#[test]
fn settings_of_a_killed_link_are_restored() {
    if !root() {
        return;
    }
    let Rig { world, mut link } = Rig::start(",queues=2", 1500, &[]);
    // Journals are accepted only from a folder that no other user can write.
    let private = Permissions::from_mode(0o755);
    std::fs::set_permissions(world.folder().file("."), private).expect("permissions");
    let left = || {
        let checks = world.folder().ask_json("doctor -j");
        let found = checks.as_array().expect("checks").iter();
        let mut found = found.filter(|check| check["what"] == "settings left behind");
        found.next().expect("the check")["found"].as_str().expect("words").to_owned()
    };
    assert_eq!(left(), "none", "of a link that runs");
    link.kill();
    until("the sockets are gone", || program(&world.a, "nic").is_none().then_some(()));
    assert_eq!(queues(&world.a), [2, 2]);
    assert!(left().contains("nic: its queues (ethtool -L) (was rx 4 tx 4)"), "{}", left());
    let mut second = Rig::link(&world, "", &[]);
    second.wait_up(1);
    assert_eq!(queues(&world.a), [4, 4]);
    second.kill();
    for changed in [false, true] {
        let mut third = Rig::link(&world, ",queues=2", &[]);
        third.wait_up(1);
        third.kill();
        if changed {
            world.a.run(&["ethtool", "-L", "nic", "rx", "3", "tx", "3"]);
        }
        let printed = world.folder().ask("doctor --put-back").err;
        let expected = if changed { "changed since" } else { "rx 4 tx 4 again" };
        assert!(printed.contains(expected), "{printed}");
        assert_eq!(queues(&world.a), if changed { [3, 3] } else { [4, 4] });
        assert_eq!(left(), "none");
    }
}

/// XPS mask of CPUs for each TX queue of an interface.
fn senders(host: &Host, nic: &str) -> Vec<u64> {
    let place = format!("/sys/class/net/{nic}/queues");
    let masks = host.run(&["sh", "-c", &format!("cat {place}/tx-*/xps_cpus")]);
    masks.lines().map(|mask| u64::from_str_radix(&mask.replace(',', ""), 16).unwrap()).collect()
}

// Goal: queues of an interface in another network namespace are assigned to CPUs as for a local
// one. Each CPU sends on its worker's queue, `show` and `plan` report this, and XPS is restored at
// the end.
#[test]
fn nic_in_another_namespace_is_placed() {
    if !root() {
        return;
    }
    let rig = Rig::start("", 1500, &["--channels", "2"]);
    let (world, a) = (&rig.world, &rig.world.a);
    until("every CPU to send by a queue of its own", || {
        let masks = senders(a, "nic");
        let (all, sum) = (masks.iter().fold(0, |all, mask| all | mask), masks.iter().sum::<u64>());
        (all > 0 && all == sum && all & (all + 1) == 0).then_some(())
    });
    let shown = world.folder().ask_json("show --json");
    let function = &shown[0]["placement"][1]["functions"][0];
    assert_eq!((&function["interface"], &function["queue"]), (&"nic".into(), &1.into()));
    let place = function["netns"].as_str().expect("a namespace");
    assert!(place.ends_with(a.name()), "{shown}");
    let plan = format!("plan --json xdp:nic,netns={}", a.name());
    let planned = world.folder().ask_json(&plan);
    assert_eq!(planned[0]["channels"].as_array().map(Vec::len), Some(4), "{planned}");
    let Rig { world, link } = rig;
    link.wait_quiet();
    link.stop().assert_conserved();
    assert_eq!(senders(&world.a, "nic"), [0; 4]);
}

/// Limits the rate of the device `low` without drops.
fn shape(host: &Host, verb: &str, rate: &str) {
    let words = ["tc", "qdisc", verb, "dev", "low", "root", "tbf", "rate", rate];
    host.run(&[&words[..], &["burst", "3000", "limit", "10mb"]].concat());
}

// Goal: if the network is slower than the sender, its frames occupy all memory of a queue. The lane
// then stops and frames wait in the TAP. When the rate is raised again, the lane wakes and every
// datagram arrives.
#[test]
fn a_slow_network_stops_the_lane() {
    if !root() || !has(&[Need::Program("tc")]) {
        return;
    }
    let world = World::create();
    let (a, b) = (&world.a, &world.b);
    // The NIC owns the frames in the qdisc of its lower device, like a hardware ring. A veth alone
    // completes frames immediately.
    wire(a, "low", b, "10.7.1.2/24", 1500);
    a.run(&["ip", "link", "add", "nic", "link", "low", "type", "macvlan", "mode", "passthru"]);
    a.run(&["sysctl", "-qw", "net.ipv6.conf.nic.disable_ipv6=1"]);
    a.run(&["ip", "link", "set", "nic", "up"]);
    shape(a, "add", "1gbit");
    let link = Rig::link(&world, ",ring=64", &[]);
    link.wait_up(1);
    a.run(&["ip", "link", "set", "dev", "t", "txqueuelen", "20000"]);
    let rig = Rig { world, link };
    rig.crosses(100);
    let (a, b) = (&rig.world.a, &rig.world.b);
    let before = rig.link.next_status().0.tx_stop;
    shape(a, "change", "64kbit");
    let datagrams = Datagrams::start(a, b, "10.7.1.2", 100, PACE);
    until("the lane stops", || (rig.link.next_status().0.tx_stop > before).then_some(()));
    // The lane wakes when half of the frames have left, or later on a busy machine; up to a whole
    // ring may therefore be queued.
    let held = a.run_json(&["tc", "-j", "-s", "qdisc", "show", "dev", "low"])[0]["qlen"].as_u64();
    assert!((1..=64).contains(&held.expect("a queue")), "{held:?} frames in the network");
    let sent = datagrams.sent();
    until("more wait", || (datagrams.sent() > sent + 200).then_some(()));
    shape(a, "change", "1gbit");
    datagrams.wait_more(400);
    let (sent, came) = datagrams.finish();
    let table = rig.stop();
    let out = table.out();
    assert_eq!(came, sent, "{}", table.0);
    assert!(out.tx_stop > before && out.tx_wake == out.tx_stop, "{}", table.0);
    let outside = outside(&table) + table.dropped_outside();
    assert_eq!((out.drops, out.tx_lost, table.back().drops, outside), (0, 0, 0, 0), "{}", table.0);
}

/// Script that prints the VLAN tag of the first received frame with the test's EtherType.
const SEE_TAG: &str = "import socket,struct
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(('t', 0))
s.setsockopt(263, 8, 1)
s.settimeout(30)
print('bound', flush=True)
while True:
    data, more, _, _ = s.recvmsg(2000, 200)
    if data[12:14] == b'\\x88\\xb5':
        print(struct.unpack('=IIIHHHH', more[0][2][:20])[5], flush=True)
        break
";
const SEND_TAGGED: &str = "import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('peer', 0))
for _ in range(5):
    s.send(b'\\2\\0\\0\\0\\0\\1\\2\\0\\0\\0\\0\\2\\x88\\xb5' + bytes(60))
";

// Goal: a VLAN tag that the veth peer keeps in skb metadata is part of the received frame.
#[test]
fn native_xdp_restores_vlan_tags() {
    use std::io::{BufRead, BufReader};
    let needs = [Need::Root, Need::Program("clang"), Need::Program("tc"), Need::Program("python3")];
    let types = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let name = b"bpf_xdp_metadata_rx_vlan_tag\0";
    if !has(&needs) || !types.windows(name.len()).any(|bytes| bytes == name) {
        return;
    }
    let rig = Rig::start(",mode=native", 1500, &[]);
    let (a, b) = (&rig.world.a, &rig.world.b);
    let object = crate::xdp::object(&rig.world, "tag").display().to_string();
    b.run(&["tc", "qdisc", "add", "dev", "peer", "clsact"]);
    let filter = ["tc", "filter", "add", "dev", "peer", "egress", "bpf", "da", "obj", &object];
    b.run(&[&filter[..], &["sec", "classifier"]].concat());
    let mut see = a.command(&["python3", "-c", SEE_TAG]);
    let mut see = see.stdout(std::process::Stdio::piped()).spawn().expect("the receiver");
    let mut lines = BufReader::new(see.stdout.take().expect("its output")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "bound");
    b.run(&["python3", "-c", SEND_TAGGED]);
    let tag = lines.next().map(|line| line.expect("text"));
    let _ = see.wait();
    assert_eq!(tag.as_deref(), Some("7"));
    b.run(&["tc", "qdisc", "del", "dev", "peer", "clsact"]);
    rig.stop();
}
