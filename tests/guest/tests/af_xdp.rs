//! `xdp:` in a guest, with NICs that access mqnet's memory by DMA: virtio-net, and QEMU's Intel
//! 82576 with the driver `igb`. The NIC's peer on the host is a network namespace.

use std::time::Duration;

use mqnet_guest::{Guest, Kernel, Outcome};
use mqnet_testkit::{EndTable, World};

use crate::virtio::peer::{file, give_file, iperf_server, sum, take_file};
use crate::virtio::possible;

/// Bytes of the fetched file.
const FILE: usize = 2 << 20;
const FETCHES: usize = 3;

/// Maximum number of segments or datagrams that arrive out of order while flows move: a NIC may
/// keep frames in its ring for longer than the millisecond of the drain.
const LATE_MOST: u64 = 16;

/// NIC with two queues and with DMA access to all memory of the guest.
const VIRTIO: &str =
    "virtio-net-pci,netdev=n0,mq=on,vectors=6,rss=on,iommu_platform=on,disable-legacy=on";

/// Guest with two CPUs and the NIC `device` of `driver`. A TAP of the host with the address
/// 10.7.1.2 is connected to the NIC. With `plain`, the guest has a second NIC without a connection
/// and without DMA access to all memory.
fn guest(
    world: &World,
    kernel: Kernel,
    (driver, device): (&str, &str),
    plain: bool,
    options: &str,
) -> Guest {
    let host = &world.b;
    host.run(&["ip", "tuntap", "add", "wire", "mode", "tap", "multi_queue", "vnet_hdr"]);
    host.run(&["sysctl", "-qw", "net.ipv6.conf.wire.disable_ipv6=1"]);
    host.run(&["ip", "address", "add", "10.7.1.2/24", "dev", "wire"]);
    host.run(&["ip", "link", "set", "wire", "up"]);
    let netdev = "tap,id=n0,ifname=wire,script=no,downscript=no,vhost=off,queues=2";
    let words = if plain { "PLAIN=1\n" } else { "" };
    let words = format!("OPTIONS={options}\nDRIVER={driver}\n{words}");
    let script = format!("{words}{}", include_str!("../scripts/af_xdp.sh"));
    let guest = Guest::new(kernel, &format!("test-xdp-{driver}-{kernel}"))
        .netns(host.name())
        .limit(Duration::from_secs(400))
        .qemu(&["-netdev", netdev, "-device", device])
        .script("xdp", &script);
    if !plain {
        return guest;
    }
    guest.qemu(&["-netdev", "hubport,id=n1,hubid=0", "-device", "virtio-net-pci,netdev=n1"])
}

/// Asserts that mqnet set the NIC's indirection table, that the kernel's tools show it, that flows
/// follow it, and that it is restored.
fn check_table(printed: &str) {
    let own = printed.lines().find_map(|line| line.strip_prefix("own ")).expect("the card's own");
    assert!(own.contains('0') && own.contains('1'), "{printed}");
    for (queue, other) in [(0, 1), (1, 0)] {
        let all = vec![queue.to_string(); 8].join(" ");
        for line in [
            format!("kernel {queue} {all}\nmqnet {queue} {all}\n"),
            format!("to {queue}: by {queue} more\n"),
            format!("to {queue}: by {other} none\n"),
        ] {
            assert!(printed.contains(&line), "no '{line}' in: {printed}");
        }
    }
    assert!(printed.contains(&format!("table again {own}\n")), "{printed}");
}

/// Runs the guest with traffic in both directions.
fn run(guest: Guest, world: &World, manner: &str, late_most: u64) -> Outcome {
    mqnet_guest::build().unwrap();
    let (host, bytes) = (&world.b, file(FILE));
    give_file(host, bytes.clone(), Duration::ZERO);
    let back = take_file(host);
    let _server = iperf_server(host);
    let mut running = guest.start().unwrap();
    running.says("guest: serves").unwrap();
    let printed = host.run(&["iperf3", "-c", "10.7.1.1", "-t", "1"]);
    assert!(printed.contains("receiver"), "{printed}");
    let outcome = running.wait().unwrap();
    let printed = &outcome.passed("xdp").unwrap().output;
    println!("{:.1} s\n{printed}", outcome.wall.as_secs_f64());
    assert!(printed.contains(&format!("2 queues, native XDP, {manner}\n")), "{printed}");
    assert!(printed.contains("30 packets transmitted, 30 received"), "{printed}");
    assert!(printed.contains("5 packets transmitted, 5 received"), "not given back: {printed}");
    assert_eq!(printed.matches("receiver").count(), 3, "a stream is missing: {printed}");
    check_table(printed);
    let follows: Vec<&str> =
        printed.lines().filter_map(|line| line.strip_prefix("follow to ")).collect();
    assert_eq!(follows, ["1: all", "0: all", "1: all"], "{printed}");
    let number = |of: &str| -> u64 {
        let rest = printed.split_once(of).map(|(_, rest)| rest).unwrap_or_default();
        let word = rest.split([',', '\n']).next().unwrap_or_default();
        word.parse().unwrap_or_else(|_| panic!("no number after '{of}': {printed}"))
    };
    let (late, moves) = (number("segments behind others: "), number(", moves "));
    assert!(moves >= 2 && number("moves with datagrams ") >= 1, "nothing moved: {printed}");
    // The counter also includes retransmitted segments.
    assert!(late <= late_most, "segments of flows that follow are reordered: {printed}");
    let word =
        printed.lines().find_map(|line| line.strip_suffix(" datagrams received out-of-order"));
    let late = word.map_or("0", |word| word.rsplit(' ').next().unwrap_or_default());
    let late: u64 = late.parse().unwrap_or_else(|_| panic!("no number: {printed}"));
    assert!(late <= LATE_MOST, "datagrams of flows that follow are reordered: {printed}");
    assert!(printed.contains("another's table stays\nand becomes the default\n"), "{printed}");
    assert!(
        !printed.contains("arrived on other queues"),
        "its hash is not what the driver says: {printed}"
    );
    let whole = sum(&bytes);
    assert_eq!(printed.matches(&format!("file {whole}\n")).count(), FETCHES, "damaged: {printed}");
    assert_eq!(back.join().unwrap(), whole, "damaged on the way out");
    assert!(printed.ends_with("== done\n"), "{printed}");
    let end = EndTable(serde_json::from_str(&outcome.text("end.json").unwrap()).unwrap());
    end.assert_conserved();
    assert_eq!((end.out().tx_lost, end.back().tx_lost), (0, 0), "{end:?}");
    let channels = end.channels();
    assert_eq!(channels.len(), 2, "{end:?}");
    for (out, back) in channels {
        assert!(out.tx_packets > 0 && back.rx_packets > 0, "an idle queue: {end:?}");
    }
    outcome
}

// Goal: on the newest kernel a NIC with two queues works with zero copy. Pings, files and streams
// are transferred in both directions, and channels change under traffic. The NIC returns to the
// kernel after a normal end and after a kill. An unsupported NIC is refused with a reason.
#[test]
fn virtio_net_is_zero_copy() {
    if !possible(Kernel::V7_3) {
        return;
    }
    let world = World::create();
    let guest = guest(&world, Kernel::V7_3, ("virtio_net", VIRTIO), true, ",zerocopy=on");
    let outcome = run(guest, &world, "zero-copy", LATE_MOST);
    let printed = &outcome.passed("xdp").unwrap().output;
    assert!(printed.contains("does not support zero copy here"), "no refusal: {printed}");
}

// Goal: the virtio-net test passes on kernel 6.1, which copies frames. This kernel maps the rings
// of an AF_XDP socket only before `bind`.
#[test]
fn old_kernel_copies() {
    if !possible(Kernel::V6_1) {
        return;
    }
    let world = World::create();
    let guest = guest(&world, Kernel::V6_1, ("virtio_net", VIRTIO), false, "");
    run(guest, &world, "copying", LATE_MOST);
}

// Goal: the test passes with the driver `igb` of common hardware. The NIC's queues, indirection
// table, ring sizes and interrupt settings are changed and then restored.
#[test]
fn igb_is_zero_copy() {
    if !possible(Kernel::V7_3) {
        return;
    }
    let world = World::create();
    let card = ("igb", "igb,netdev=n0");
    let guest = guest(&world, Kernel::V7_3, card, false, ",zerocopy=on");
    let outcome = run(guest, &world, "zero-copy", u64::MAX);
    // Attaching resets the NIC, which must not cause a second attach.
    let printed = &outcome.passed("xdp").unwrap().output;
    assert_eq!(printed.matches("native XDP").count(), 1, "{printed}");
}

// Goal: with two NICs as one netdev, mqnet adapts the indirection table of each NIC to that NIC's
// traffic, without reordering of streams. Both tables are restored.
#[test]
fn tables_of_two_cards_follow() {
    if !possible(Kernel::V7_3) {
        return;
    }
    let (cards, inner, outer) =
        (["02:00:00:00:07:00", "02:00:00:00:07:01"], "02:00:00:00:00:01", "02:00:00:00:00:02");
    let world = World::create();
    let host = &world.b;
    for name in ["all", "default"] {
        // Replies may be sent by another NIC than the one that received the request.
        host.run(&["sysctl", "-qw", &format!("net.ipv4.conf.{name}.rp_filter=0")]);
    }
    let words = format!("CARD0={} CARD1={} INNER={inner} HOST={outer}", cards[0], cards[1]);
    let script = format!("{words}\n{}", include_str!("../scripts/af_xdp_group.sh"));
    let mut guest = Guest::new(Kernel::V7_3, "test-xdp-group")
        .netns(host.name())
        .limit(Duration::from_secs(300))
        .script("group", &script);
    for (n, card) in cards.iter().enumerate() {
        let wire = format!("wire{n}");
        let run = |words: &str| {
            host.run(&words.split(' ').collect::<Vec<_>>());
        };
        run(&format!("ip tuntap add {wire} mode tap multi_queue vnet_hdr"));
        run(&format!("sysctl -qw net.ipv6.conf.{wire}.disable_ipv6=1"));
        run(&format!("ip link set {wire} address {outer} up"));
        run(&format!("ip address add 10.7.{n}.2/24 dev {wire}"));
        run(&format!("ip neighbour replace 10.7.{n}.1 lladdr {inner} dev {wire} nud permanent"));
        let netdev =
            format!("tap,id=n{n},ifname={wire},script=no,downscript=no,vhost=off,queues=2");
        let device = format!("{},mac={card}", VIRTIO.replace("n0", &format!("n{n}")));
        guest = guest.qemu(&["-netdev", &netdev, "-device", &device]);
    }
    mqnet_guest::build().unwrap();
    let _server = iperf_server(host);
    let outcome = guest.run().unwrap();
    let printed = &outcome.passed("group").unwrap().output;
    println!("{:.1} s\n{printed}", outcome.wall.as_secs_f64());
    let follows: Vec<&str> =
        printed.lines().filter_map(|line| line.strip_prefix("follow to ")).collect();
    assert_eq!(follows, ["3: all", "0: all", "1: all", "2: all"], "{printed}");
    let moves = printed.lines().filter_map(|line| line.strip_prefix("moves ")?.parse::<u64>().ok());
    let moves: Vec<u64> = moves.collect();
    assert!(moves.len() == 2 && moves.iter().all(|moves| *moves >= 1), "{printed}");
    let late = printed.lines().find_map(|line| line.strip_prefix("segments behind others: "));
    let late: u64 = late.and_then(|late| late.parse().ok()).expect("a number");
    assert!(late <= LATE_MOST, "segments of flows that follow are reordered: {printed}");
    assert!(
        !printed.contains("arrived on other queues") && !printed.contains("flows stay"),
        "{printed}"
    );
    assert!(printed.contains("tables again\n") && printed.ends_with("== done\n"), "{printed}");
    let end = EndTable(serde_json::from_str(&outcome.text("end.json").unwrap()).unwrap());
    end.assert_conserved();
}
