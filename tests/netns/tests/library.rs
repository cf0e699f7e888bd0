//! Programs that use the library: one with its own TUN, TAP or NIC, and two as the ends of a
//! tunnel.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mqnet::control::{
    ApiError, Code, NetdevRequest, Reply, SetChannels, SetCoalesce, TcObject, TcRequest, TcVerb,
};
use mqnet::{Builder, Device, Error, Nic, Receiver, Sender, Tap, Tun};
use mqnet_tap::steering;
use mqnet_testkit::{Datagrams, Host, Need, Stream, World, has, until};
use mqnet_wire::Layer;

use crate::af_xdp;

/// Qdiscs of mqnet in front of the tunnel's slow path; empty for none, so that frames wait in the
/// TUN's ring.
const SLOW_QDISCS: [&str; 2] = ["", "fq_codel"];

fn tun(host: &Host, name: &str) -> Builder {
    Tun::builder(name).netns(format!("/run/netns/{}", host.name()))
}

/// Builds the example in the build folder of this test; returns its path.
pub(crate) fn example() -> PathBuf {
    let folder = env!("CARGO_MANIFEST_DIR");
    let words = ["build", "--quiet", "--workspace", "--example", "vpn"];
    // No time limit, because a build may take minutes.
    let mut build = Command::new(env!("CARGO"));
    let output = build.args(words).current_dir(folder).output().expect("cargo");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "building the example: {err}");
    let exe = std::env::current_exe().expect("the path of this test");
    let target = exe.ancestors().nth(3).expect("a build folder");
    target.join("debug/examples/vpn")
}

/// Counters of one direction reported by an end of the tunnel.
#[derive(Clone, Copy, Debug)]
struct Way {
    taken: u64,
    segments: u64,
    sent: u64,
    merged: u64,
    dropped: u64,
    waiting: u64,
    stops: u64,
}

/// Running end of the tunnel.
struct End {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl End {
    fn start(host: &Host, number: u8, qdisc: &str, pause_us: u32) -> Self {
        let address = |port: u16, host: u8| format!("192.0.2.{host}:{port}");
        let [near, far] = [address(7000, number), address(7000, 3 - number)];
        let inside = format!("10.8.0.{number}/24");
        let mut command = host.command(&[example().to_str().expect("a path in UTF-8")]);
        command.args(["vpn", &inside, &near, &far, qdisc, &pause_us.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starting an end");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("its first line");
        assert_eq!(line, "vpn is up\n");
        Self { child, out }
    }

    /// Ends the process; returns the counters of both directions and the number of packets that the
    /// kernel dropped in front of the process.
    fn stop(mut self) -> (Way, Way, u64) {
        writeln!(self.child.stdin.take().expect("its input")).expect("telling it to end");
        let status = until("an end of the tunnel ends", || self.child.try_wait().expect("a child"));
        assert!(status.success(), "{status}");
        let lines: Vec<String> = self.out.by_ref().lines().map(|l| l.expect("a line")).collect();
        let number = |line: &str, key: &str| {
            let mut words = line.split_whitespace().skip_while(|word| *word != key);
            let value = words.nth(1).and_then(|word| word.parse().ok());
            value.unwrap_or_else(|| panic!("no {key} in {line}"))
        };
        let way = |line: &str| Way {
            taken: number(line, "taken"),
            segments: number(line, "segments"),
            sent: number(line, "sent"),
            merged: number(line, "merged"),
            dropped: number(line, "dropped"),
            waiting: number(line, "waiting"),
            stops: number(line, "stops"),
        };
        (way(&lines[0]), way(&lines[1]), number(&lines[2], "dropped"))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Both calls fail only if the child has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates a veth between the two hosts for the tunnel's datagrams.
fn wire(world: &World) {
    let (a, b) = (&world.a, &world.b);
    a.run(&["ip", "link", "add", "w", "type", "veth", "peer", "name", "w", "netns", b.name()]);
    for (host, address) in [(a, "192.0.2.1/24"), (b, "192.0.2.2/24")] {
        host.run(&["ip", "addr", "add", address, "dev", "w"]);
        host.run(&["ip", "link", "set", "dev", "w", "up"]);
    }
}

/// Asserts `taken + segments = sent + merged + drops + waiting` (the public form of the
/// conservation check).
fn assert_conserved(way: Way) {
    let left = way.sent + way.merged + way.dropped + way.waiting;
    assert_eq!(way.taken + way.segments, left, "{way:?}");
}

// Goal: two programs that use the library form a tunnel. Paced datagrams in both directions and a
// TCP stream cross unchanged, and every packet of the kernel is accounted for.
#[test]
fn a_tunnel_of_two_programs() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    wire(&world);
    let (a, b) = (End::start(&world.a, 1, "", 0), End::start(&world.b, 2, "", 0));
    [&world.a, &world.b].iter().for_each(|host| host.lengthen("vpn"));
    let unread = || world.a.protocol("UdpRcvbufErrors") + world.b.protocol("UdpRcvbufErrors");
    for (from, to, address) in [(&world.a, &world.b, "10.8.0.2"), (&world.b, &world.a, "10.8.0.1")]
    {
        let (pause, before) = (Duration::from_micros(500), unread());
        let datagrams = Datagrams::start(from, to, address, 1000, pause);
        datagrams.wait_more(500);
        let (sent, received) = datagrams.finish();
        // The kernel drops datagrams at the full socket of a program that gets no CPU time.
        let full = unread() - before;
        assert!(sent - received <= full, "{sent} sent, {received} received, {full} unread");
    }
    let stream = Stream::start(&world.a, &world.b, "10.8.0.2");
    stream.wait_more(20 << 20);
    stream.finish();
    std::thread::sleep(Duration::from_millis(100));
    let ((a_out, a_in, _), (b_out, b_in, _)) = (a.stop(), b.stop());
    for way in [a_out, a_in, b_out, b_in] {
        assert_conserved(way);
        assert_eq!((way.dropped, way.waiting), (0, 0), "{way:?}");
    }
    assert!(a_out.sent > (20 << 20) / 1400 && b_in.taken <= a_out.sent, "{a_out:?} {b_in:?}");
}

/// Floods a path that takes a thousand packets per second with datagrams.
fn flood_a_slow_path(qdisc: &str) {
    let world = World::create();
    wire(&world);
    let a = End::start(&world.a, 1, qdisc, 1000);
    let b = End::start(&world.b, 2, "", 0);
    let datagrams = Datagrams::start(&world.a, &world.b, "10.8.0.2", 1000, Duration::ZERO);
    datagrams.wait_more(1000);
    if !qdisc.is_empty() {
        // With a qdisc, a TCP stream still gets its share of the flooded path.
        let stream = Stream::start(&world.a, &world.b, "10.8.0.2");
        stream.wait_more(256 << 10);
        stream.finish();
    }
    let (sent, _) = datagrams.finish();
    let (out, _, outside) = a.stop();
    let (_, came, _) = b.stop();
    assert_conserved(out);
    assert!(out.stops > 0, "the path was never full: {out:?}");
    assert!(came.taken <= out.sent && came.dropped == 0, "{out:?} {came:?}");
    if qdisc.is_empty() {
        assert_eq!(out.dropped, 0, "{out:?}");
        assert!(outside > 0 && out.taken + outside >= sent, "{sent} sent, {out:?}, {outside}");
    }
}

// Goal: a path slower than its senders stops the tunnel, and only its qdisc drops packets. Without
// a qdisc the TUN's ring drops and counts packets.
#[test]
fn a_slow_path_stops_its_senders() {
    if has(&[Need::Root]) {
        // Run in parallel: each run spends its time waiting for the slow path.
        std::thread::scope(|scope| {
            SLOW_QDISCS.iter().for_each(|qdisc| {
                scope.spawn(|| flood_a_slow_path(qdisc));
            });
        });
    }
}

/// Swaps source and destination of a UDP datagram; `None` for other packets. The checksums do not
/// change.
fn turned(packet: &[u8]) -> Option<Vec<u8>> {
    let is_udp = packet.len() > 28 && packet[0] == 0x45 && packet[9] == 17;
    is_udp.then(|| {
        let mut back = packet.to_vec();
        for (at, n) in [(12, 4), (20, 2)] {
            back[at..at + n].copy_from_slice(&packet[at + n..at + 2 * n]);
            back[at + n..at + 2 * n].copy_from_slice(&packet[at..at + n]);
        }
        back
    })
}

// Goal: a program in this process receives and answers large and small packets on its own TUN.
// Closing the device ends the receiver without an error.
#[test]
fn a_program_answers() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let device = tun(&world.a, "t0").address("10.8.0.1/24").mtu(9000).open().expect("a TUN");
    assert_eq!((device.name(), device.mtu()), ("t0", 9000));
    let (mut rx, mut tx) = device.queue(0).expect("its queue");
    assert!(device.queue(0).unwrap_err().to_string().contains("taken before"));
    assert!(device.queue(1).unwrap_err().to_string().contains("has 1 (queues)"));
    let answering = std::thread::spawn(move || {
        let mut answers = 0;
        while let Some(packet) = rx.recv().expect("a packet") {
            if let Some(reply) = turned(&packet) {
                tx.send(&reply).expect("sending");
                answers += 1;
            }
        }
        answers
    });
    let socket = world.a.within(|| UdpSocket::bind("10.8.0.1:0")).expect("a socket");
    socket.connect("10.8.0.77:7").expect("an address");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    for i in 0..100u8 {
        let sent = vec![i; if i % 2 == 0 { 8972 } else { 1 + usize::from(i) }];
        let mut came = [0; 9000];
        socket.send(&sent).expect("sending");
        let n = socket
            .recv(&mut came)
            .unwrap_or_else(|e| panic!("answer {i}: {e}: {:?}", device.stats()));
        assert!(came[..n] == sent, "another answer");
    }
    drop(device);
    assert_eq!(answering.join().expect("the answering thread"), 100);
    assert!(world.a.device("t0").is_none(), "the device outlived its program");
}

// Goal: a program opens a NIC with four queues and answers on each of them. The errors of
// unsupported options name them, and the interface can be opened again immediately after closing.
#[test]
fn a_program_has_a_nic() {
    if !has(&[Need::Root, Need::Program("ethtool")]) {
        return;
    }
    let world = World::create();
    af_xdp::wire(&world.a, "nic", &world.b, "10.7.1.2/24", 1500);
    // Add a neighbour entry, because the program answers no neighbour requests.
    let neighbour = ["ip", "neigh", "add", "10.7.1.1", "lladdr", "02:00:00:00:00:09", "dev"];
    world.b.run(&[&neighbour[..], &["peer"]].concat());
    let builder = |name: &str| Nic::builder(name).netns(format!("/run/netns/{}", world.a.name()));
    for (builder, knob) in [
        (builder("none"), "none: No such device"),
        (builder("nic").ring(100), "ring: 100: a power of two"),
        (builder("nic").queues(65), "queues: 65: 1 to 64"),
        (builder("nic").zero_copy(), "zero"),
    ] {
        let error = builder.open().expect_err(knob).to_string();
        assert!(error.starts_with("xdp:") && error.contains(knob), "{error}");
    }
    let device = builder("nic").open().expect("the NIC");
    assert_eq!((device.name(), device.mtu(), device.queues()), ("nic", 1500, 4));
    let answering: Vec<_> = (0..4).map(|q| device.queue(q).expect("a queue")).collect();
    let answering = answering.into_iter().map(|(mut rx, mut tx)| {
        std::thread::spawn(move || {
            let mut answers = 0;
            while let Some(frame) = rx.recv().expect("a frame") {
                let Some(packet) = turned(&frame[14..]) else { continue };
                let reply = [&frame[6..12], &frame[..6], &frame[12..14], &packet].concat();
                tx.send(&reply).expect("sending");
                answers += 1;
            }
            answers
        })
    });
    let answering: Vec<_> = answering.collect();
    for i in 0..200u8 {
        if i % 20 == 10 {
            let channels = 1 + u16::from(i / 20) % 4;
            device.set_channels(channels).unwrap_or_else(|e| panic!("{channels} channels: {e}"));
        }
        // Each socket has another source port, and so another RX queue.
        let socket = world.b.within(|| UdpSocket::bind("10.7.1.2:0")).expect("a socket");
        socket.connect("10.7.1.1:7").expect("an address");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let sent = vec![i; 1 + 7 * usize::from(i)];
        let mut came = [0; 1500];
        socket.send(&sent).expect("sending");
        let n = socket.recv(&mut came).unwrap_or_else(|e| panic!("{i}: {e}: {:?}", device.stats()));
        assert!(came[..n] == sent, "another answer");
    }
    drop(device);
    let answers: Vec<u32> =
        answering.into_iter().map(|thread| thread.join().expect("a thread")).collect();
    assert_eq!(answers.iter().sum::<u32>(), 200, "{answers:?}");
    assert!(answers.iter().all(|&n| n > 0), "{answers:?}");
    // The kernel releases queues asynchronously after a close; `open` must wait for this.
    for i in 0..20 {
        drop(builder("nic").open().unwrap_or_else(|e| panic!("the NIC, again, {i}: {e}")));
    }
}

/// Receives at least `packets` packets from all queues; returns (source port, packet) by queue.
fn gather(device: &Device, queues: u16, packets: usize) -> HashMap<u16, Vec<(u16, Vec<u8>)>> {
    let mut receivers: Vec<_> = (0..queues).map(|q| device.queue(q).expect("a queue").0).collect();
    let (mut all, mut n, begin): (HashMap<u16, Vec<_>>, _, _) = (HashMap::new(), 0, Instant::now());
    while n < packets {
        assert!(begin.elapsed() < Duration::from_secs(60), "{n} of {packets} packets came");
        for (queue, receiver) in (0..).zip(&mut receivers) {
            while let Some(packet) = receiver.try_recv().expect("receiving") {
                if packet.len() > 28 && packet[0] == 0x45 && packet[9] == 17 {
                    let port = u16::from_be_bytes([packet[20], packet[21]]);
                    all.entry(port).or_default().push((queue, packet.to_vec()));
                    n += 1;
                }
            }
        }
    }
    all
}

// Goal: mqnet's steering program parses IP packets of a TUN. Each flow arrives in order on the
// queue of its bucket, and the flows use all four queues.
#[test]
fn flows_of_a_tun_are_steered() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let device = tun(&world.a, "t0").queues(4).address("10.8.0.1/24").open().expect("a TUN");
    let sockets: Vec<UdpSocket> = (0..64)
        .map(|_| world.a.within(|| UdpSocket::bind("10.8.0.1:0")).expect("a socket"))
        .collect();
    for i in 0..5u8 {
        for socket in &sockets {
            socket.send_to(&[i; 10], "10.8.0.9:9").expect("sending");
        }
    }
    let flows = gather(&device, 4, 5 * 64);
    let spread = steering::spread(4);
    let mut used = [0; 4];
    for packets in flows.values() {
        let bucket = steering::bucket(&packets[0].1, Layer::Ip).expect("a whole header");
        let expected = spread[bucket];
        used[usize::from(expected)] += 1;
        let order: Vec<u8> = packets.iter().map(|(_, packet)| packet[28]).collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
        assert!(packets.iter().all(|(queue, _)| *queue == expected), "{packets:?}");
    }
    assert!(used.iter().all(|&flows| flows > 3), "{used:?}");
}

// Goal: a receiver gets an error with the reason if its device is removed.
#[test]
fn a_device_that_is_removed_is_a_failure() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let device = tun(&world.a, "t0").address("10.8.0.1/24").open().expect("a TUN");
    let (mut rx, mut tx) = device.queue(0).expect("its queue");
    world.a.run(&["ip", "link", "del", "t0"]);
    let begin = Instant::now();
    while tx.try_send(&[0x45; 40]).is_ok() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the device is still in use");
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = loop {
        match rx.recv() {
            Ok(packet) => assert!(packet.is_some(), "ended as if it had been closed"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("removed"), "{error}");
}

// Goal: the error for an invalid option names the option, and no device remains.
#[test]
fn invalid_options_are_refused_by_name() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let (here, tap) = (|| tun(&world.a, "t0"), Tap::builder("t0"));
    let refused = |builder: Builder| builder.open().expect_err("it was opened").to_string();
    for (builder, expected) in [
        (here().queues(0), "tun:t0: queues: 0: 1 to 64"),
        (here().queues(65), "tun:t0: queues: 65: 1 to 64"),
        (here().address("10.8.0.1"), "tun:t0: address: '10.8.0.1' is not an address with a prefix"),
        (here().mtu(60), "tun:t0: mtu: 60: 68 to 65535"),
        (here().depth(1), "tun:t0: depth: 1: 2 to 16384"),
        (here().qdisc("fq_codle"), "tun:t0: qdisc: "),
        (here().workers(0), "tun:t0: workers: 0: at least 1"),
        (here().mac([2; 6]), "tun:t0: mac: a TUN has no Ethernet address (use a TAP)"),
        (tap.mtu(65_522), "tap:t0: mtu: 65522: 68 to 65521"),
        (Tun::builder("t0").netns("/nowhere"), "tun:t0: network namespace /nowhere: "),
    ] {
        let text = refused(builder);
        assert!(text.starts_with(expected), "{text}");
    }
    assert!(world.a.device("t0").is_none(), "it left something behind");
}

/// Request for a change of the root qdisc.
fn root_qdisc(command: TcVerb, kind: &str) -> NetdevRequest {
    let kind = Some(kind.to_owned()).filter(|kind| !kind.is_empty());
    NetdevRequest::SetTc(TcRequest {
        object: TcObject::Qdisc,
        command,
        parent: Some("root".to_owned()),
        handle: None,
        kind,
        options: Vec::new(),
        prio: None,
        protocol: None,
    })
}

// Goal: a program applies requests of the control API to its own device; invalid ones are refused
// as at the control socket. A refused change leaves the device unchanged.
#[test]
fn requests_change_the_own_device() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let host = &world.a;
    let tun = tun(host, "t0").address("10.0.0.1/24").queues(4).open().expect("a device");
    let channels = |tun: &Device| match tun.request(NetdevRequest::Channels) {
        Ok(Reply::Channels(channels)) => channels.combined,
        other => panic!("{:?}", other.err()),
    };
    assert_eq!(channels(&tun), 4);
    let two = NetdevRequest::SetChannels(SetChannels { combined: 2 });
    assert!(matches!(tun.request(two), Ok(Reply::Change(_))));
    assert_eq!((channels(&tun), tun.channels(), tun.queues()), (2, 2, 4));
    let refused = tun.request(NetdevRequest::SetChannels(SetChannels { combined: 5 }));
    let error = refused.err().expect("only 4 queues");
    assert_eq!((error.code, error.field.as_deref()), (Code::Invalid, Some("combined")));
    let error = tun.set_mtu(1501).expect_err("1500 is reserved");
    assert_eq!((error.code, error.field.as_deref()), (Code::Range, Some("mtu")));
    assert!(error.message.contains("68 to 1500"), "{error}");
    let error = tun.request_of_program(NetdevRequest::Rings).err().expect("fixed rings");
    assert!(error.code == Code::NotSupported && error.message.contains("depth"), "{error}");
    let usecs = SetCoalesce { rx_usecs: Some(77), tx_frames: None };
    tun.request(NetdevRequest::SetCoalesce(usecs)).unwrap_or_else(|e| panic!("{e}"));
    let Ok(Reply::Coalesce(coalesce)) = tun.request(NetdevRequest::Coalesce) else {
        panic!("no coalescing parameters");
    };
    assert_eq!(coalesce.rx_usecs, 77);
    let done = tun.request_of_program(root_qdisc(TcVerb::Replace, "fq_codel"));
    done.unwrap_or_else(|e| panic!("{e}"));
    let Ok(Reply::Qdiscs(qdiscs)) = tun.request_of_program(NetdevRequest::Qdiscs) else {
        panic!("no qdiscs");
    };
    assert_eq!(qdiscs[0].kind, "fq_codel");
    let error = tun.request_of_program(root_qdisc(TcVerb::Replace, "foo")).err();
    assert_eq!(error.expect("no such kind").code, Code::NoEntry);
}

/// Sends numbered datagrams until `stop` and waits for the answer to each; returns the number of
/// answers. Fails on a loss (timeout) or a duplicate (wrong number).
fn ask_and_wait(socket: &UdpSocket, stop: &AtomicBool) -> u32 {
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    let (mut number, mut answer) = (0u32, [0; 600]);
    while !stop.load(Ordering::Relaxed) {
        let mut sent = number.to_le_bytes().to_vec();
        sent.resize(4 + number as usize * 13 % 500, number as u8);
        socket.send(&sent).expect("sending");
        let n = socket.recv(&mut answer).unwrap_or_else(|e| panic!("answer {number}: {e}"));
        assert!(answer[..n] == sent, "another answer than {number}");
        number += 1;
    }
    number
}

/// Answers the packets of a queue until the device is closed; returns the number of answers. If the
/// queue is no longer in use, answers leave through `first`.
fn answer_queue((mut rx, mut tx): (Receiver, Sender), mut first: Sender) -> u32 {
    let mut answers = 0;
    while let Some(packet) = rx.recv().expect("a packet") {
        let Some(answer) = turned(&packet) else { continue };
        match tx.send(&answer) {
            Err(Error::NotInUse) => first.send(&answer).expect("queue 0 is always in use"),
            sent => sent.expect("sending"),
        }
        answers += 1;
    }
    answers
}

/// Asserts that a change is done; after `TimedOut`, waits until the kernel completes it.
fn completed(answer: Result<(), ApiError>, what: &str, is_done: impl Fn() -> bool) {
    match answer {
        Ok(()) => assert!(is_done(), "{what}"),
        Err(e) if e.code == Code::TimedOut => until(what, || is_done().then_some(())),
        Err(e) => panic!("{what}: {e}"),
    }
}

// Goal: a program changes channels and MTU of its TUN under traffic of many flows. No packet is
// lost or duplicated, and the kernel's device gets the MTU.
#[test]
fn channels_and_mtu_change_under_traffic() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let host = &world.a;
    let builder = tun(host, "t0").address("10.8.0.1/24").queues(4).mtu(1400).mtu_max(9000);
    let (device, begin) = (builder.open().expect("a TUN"), Instant::now());
    let queues: Vec<_> = (0..4).map(|queue| device.queue(queue).expect("a queue")).collect();
    let first = queues[0].1.clone();
    let answering: Vec<_> = queues
        .into_iter()
        .map(|queue| {
            let first = first.clone();
            std::thread::spawn(move || answer_queue(queue, first))
        })
        .collect();
    let stop = Arc::new(AtomicBool::new(false));
    let asking: Vec<_> = (0..16)
        .map(|_| {
            let socket = host.within(|| UdpSocket::bind("10.8.0.1:0")).expect("a socket");
            socket.connect("10.8.0.2:7").expect("an address");
            let stop = stop.clone();
            std::thread::spawn(move || ask_and_wait(&socket, &stop))
        })
        .collect();
    for round in 0..4 {
        for channels in [1, 2, 3, 4, 3, 2, 1, 4] {
            let asked = || device.set_channels(channels);
            // Send the request from another thread: any thread may send requests.
            let answer = std::thread::scope(|scope| scope.spawn(asked).join().expect("a request"));
            completed(answer, "channels", || device.channels() == channels);
        }
        for mtu in [600, 9000, 1400] {
            completed(device.set_mtu(mtu), "MTU", || device.mtu() == mtu);
            assert_eq!(first.max(), mtu as usize, "round {round}");
            let link = host.run(&["ip", "link", "show", "dev", "t0"]);
            assert!(link.contains(&format!("mtu {mtu} ")), "{link}");
        }
    }
    // Changes by other programs are undone during 10 s after the creation, and followed after that.
    std::thread::sleep(Duration::from_secs(11).saturating_sub(begin.elapsed()));
    host.run(&["ip", "link", "set", "dev", "t0", "mtu", "1300"]);
    until("the library has the MTU of the kernel", || (device.mtu() == 1300).then_some(()));
    assert_eq!(first.max(), 1300);
    stop.store(true, Ordering::Relaxed);
    let asked: u32 = asking.into_iter().map(|thread| thread.join().expect("a flow")).sum();
    let stats = device.stats();
    assert_eq!((stats.to_program.dropped(), stats.to_device.dropped()), (0, 0), "{stats:?}");
    drop(device);
    let answered: u32 = answering.into_iter().map(|t| t.join().expect("a queue")).sum();
    assert_eq!(asked, answered);
    assert!(asked > 1000, "{asked} answers");
}
