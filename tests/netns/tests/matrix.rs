//! iperf3 over every shape of link.

use std::thread;

use mqnet_testkit::{EndTable, Host, LinkCounters, Need, World, has, iperf3};
use serde_json::Value;

/// Counters of a host that explain lost datagrams.
#[derive(Clone, Copy)]
struct Snapshot {
    device: LinkCounters,
    full_sockets: u64,
    corrupt: u64,
}

impl Snapshot {
    fn take(host: &Host, device: &str) -> Self {
        let sum = |names: &[&str]| names.iter().map(|name| host.protocol(name)).sum();
        Self {
            device: host.counters(device),
            full_sockets: sum(&["UdpRcvbufErrors", "Udp6RcvbufErrors"]),
            corrupt: sum(&["UdpInCsumErrors", "Udp6InCsumErrors", "TcpInCsumErrors"]),
        }
    }
}

/// Runs over one link.
struct Matrix<'a> {
    world: &'a World,
    mtu: u32,
    what: String,
    /// Datagrams lost according to iperf3.
    missed: u64,
}

impl Matrix<'_> {
    fn tcp(&self, address: &str, streams: &str) {
        let World { a, b, .. } = self.world;
        let report = iperf3(b, a, address, &["-t", "1", "-P", streams]);
        let bytes = report["end"]["sum_received"]["bytes"].as_u64().unwrap_or(0);
        assert!(bytes > 0, "{}: TCP to {address}, {streams} streams: nothing came", self.what);
    }

    fn udp(&mut self, address: &str, streams: &str) {
        let World { a, b, .. } = self.world;
        // Largest datagram that fits a frame with its IPv6 and UDP headers.
        let len = (self.mtu - 48).to_string();
        let report =
            iperf3(b, a, address, &["-u", "-b", "50M", "-l", &len, "-t", "1", "-P", streams]);
        let sum: &Value = &report["end"]["sum"];
        let number = |key: &str| sum[key].as_f64().unwrap_or(0.0) as i64;
        let (packets, lost) = (number("packets"), number("lost_packets"));
        let what = format!("{}: UDP to {address}, {streams} streams: {sum}", self.what);
        assert!(packets > 0 && lost < packets, "nothing came: {what}");
        // The number of losses may be negative, because iperf3 subtracts datagrams that arrive out
        // of order.
        self.missed += u64::try_from(lost).unwrap_or(0);
    }

    /// Asserts that a counter explains every missed datagram.
    fn account(&self, before: [Snapshot; 2], after: [Snapshot; 2], ends: &[EndTable; 2]) {
        let mut kernel = 0;
        let mut sockets = 0;
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.corrupt, after.corrupt, "{}: wrong checksums", self.what);
            let (old, new) = (before.device, after.device);
            kernel += new.rx_dropped - old.rx_dropped + new.tx_dropped - old.tx_dropped;
            kernel += new.qdisc_dropped - old.qdisc_dropped;
            sockets += after.full_sockets - before.full_sockets;
        }
        let ours: u64 = ends.iter().map(|end| end.out().drops + end.back().drops).sum();
        let known = kernel + sockets + ours;
        println!(
            "{}: {} datagrams missed; dropped: {kernel} by devices, {sockets} by full sockets, \
             {ours} by us",
            self.what, self.missed
        );
        assert!(self.missed <= known, "{}: {} missed, {known} counted", self.what, self.missed);
    }
}

/// All runs over one link.
fn run(channels: u16, mtu: u32) {
    let world = World::create();
    let mtu_option = format!("mtu={mtu}");
    let pair = world.pair(|end| end.tap(&mtu_option).channels(channels));
    let what = format!("{channels} channels, mtu {mtu}");
    let snapshots = || [Snapshot::take(&world.a, "a"), Snapshot::take(&world.b, "b")];
    let before = snapshots();
    let mut matrix = Matrix { world: &world, mtu, what, missed: 0 };
    for address in ["10.0.0.2", "fd00::2"] {
        for streams in ["1", "4"] {
            matrix.tcp(address, streams);
            matrix.udp(address, streams);
        }
    }
    let after = snapshots();
    pair.a.wait_quiet();
    let (a, b) = pair.stop();
    let used = a.channels().iter().filter(|(out, _)| out.tx_packets > 0).count();
    assert_eq!(a.channels().len(), usize::from(channels));
    // The runs have at least sixteen flows, so their hashes select more than one of four channels.
    assert!(used > 1 || channels < 4, "{}: one channel carried everything", matrix.what);
    matrix.account(before, after, &[a, b]);
}

/// Runs all MTUs in parallel, because each spends its time waiting for iperf3.
fn at_every_mtu(channels: u16) {
    thread::scope(|scope| {
        for mtu in [1500, 9000, 65_521] {
            scope.spawn(move || run(channels, mtu));
        }
    });
}

const NEEDS: [Need; 2] = [Need::Root, Need::Program("iperf3")];

// Goal: TCP and UDP over IPv4 and IPv6, with 1 and 4 streams, cross a link of 1 channel at every
// MTU. Every byte is correct and every frame is accounted for.
#[test]
fn iperf3_over_one_channel() {
    if has(&NEEDS) {
        at_every_mtu(1);
    }
}

// Goal: the runs of `iperf3_over_one_channel` pass over 2 channels.
#[test]
fn iperf3_over_two_channels() {
    if has(&NEEDS) {
        at_every_mtu(2);
    }
}

// Goal: the runs of `iperf3_over_one_channel` pass over 4 channels, and more than one channel
// carries traffic.
#[test]
fn iperf3_over_four_channels() {
    if has(&NEEDS) {
        at_every_mtu(4);
    }
}
