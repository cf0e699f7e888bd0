//! Integrity of transferred bytes.

use std::fs::File;
use std::io::copy;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use mqnet_testkit::{Datagrams, Need, Stream, World, has, pattern};

/// Bytes of the file, many times the size of every ring.
const FILE_LEN: usize = 96 << 20;

// Goal: a file of random bytes crosses two channels unchanged, in both directions at the same time.
#[test]
fn a_file_crosses_unchanged() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end.channels(2));
    let content = pattern(FILE_LEN);
    let original = world.file("original");
    std::fs::write(&original, &content).expect("writing a file");
    let (host_a, host_b) = (&world.a, &world.b);
    std::thread::scope(|scope| {
        for (from, to, ip) in [(host_a, host_b, "10.0.0.2"), (host_b, host_a, "fd00::1")] {
            let listener = to.within(|| TcpListener::bind((ip, 7000))).expect("listening");
            let copied = world.file(ip);
            let (from_path, to_path) = (original.clone(), copied.clone());
            scope.spawn(move || {
                let mut socket =
                    from.within(|| TcpStream::connect((ip, 7000))).expect("connecting");
                let mut file = File::open(from_path).expect("opening the file");
                copy(&mut file, &mut socket).expect("sending the file");
            });
            let content = &content;
            scope.spawn(move || {
                let mut socket = listener.accept().expect("a connection").0;
                let mut file = File::create(to_path).expect("creating the copy");
                copy(&mut socket, &mut file).expect("receiving the file");
                let came = std::fs::read(copied).expect("reading the copy");
                let wrong = came.iter().zip(content).position(|(a, b)| a != b);
                assert_eq!((came.len(), wrong), (content.len(), None), "length, first wrong byte");
            });
        }
    });
    let (a, b) = pair.stop();
    assert!(a.out().rx_bytes > FILE_LEN as u64 && b.out().rx_bytes > FILE_LEN as u64);
}

// Goal: paced datagrams of every size cross unchanged; a counter explains every lost datagram.
#[test]
fn datagrams_cross_unchanged() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end.tap("mtu=9000").channels(2));
    let (mut sent, mut received) = (0, 0);
    // Address and length of the datagrams. The kernel fragments datagrams of 20,000 bytes.
    for (address, len) in
        [("10.0.0.2", 8), ("fd00::2", 64), ("10.0.0.2", 8972), ("fd00::2", 20_000)]
    {
        let pause = Duration::from_micros(100);
        let flow = Datagrams::start(&world.a, &world.b, address, len, pause);
        flow.wait_more(2000);
        let counts = flow.finish();
        (sent, received) = (sent + counts.0, received + counts.1);
    }
    let (there, here) = (world.b.counters("b"), world.a.counters("a"));
    let full = world.b.protocol("UdpRcvbufErrors") + world.b.protocol("Udp6RcvbufErrors");
    let (a, b) = pair.stop();
    let known = here.tx_dropped + here.qdisc_dropped + there.rx_dropped + full;
    let known = known + a.out().drops + b.back().drops;
    println!("{sent} datagrams sent, {received} received, {known} drops counted");
    assert!(sent - received <= known, "{sent} sent, {received} received, {known} counted");
}

// Goal: TCP crosses a link with a small window, because the kernel's large frames are limited to
// the size of a ring.
#[test]
fn a_small_window_carries_tcp() {
    if !has(&[Need::Root]) {
        return;
    }
    for (window, channels, mtu) in [(64 << 10, 1, 1500), (4 << 20, 64, 9000), (20 << 10, 2, 1500)] {
        let world = World::create();
        let (window_option, mtu_option) = (format!("window={window}"), format!("mtu={mtu}"));
        let pair = world.pair(|end| end.tap(&mtu_option).ntb(&window_option).channels(channels));
        let ring = window / 2 / u64::from(channels);
        for (host, device) in [(&world.a, "a"), (&world.b, "b")] {
            let info = host.device(device).expect("the TAP");
            let gso = info["gso_max_size"].as_u64().expect("gso_max_size");
            assert!(gso < ring, "large frames of {gso} bytes, rings of {ring}");
        }
        for address in ["10.0.0.2", "fd00::2"] {
            let stream = Stream::start(&world.a, &world.b, address);
            stream.wait_more(16 << 20);
            stream.finish();
        }
        pair.a.wait_quiet();
        let (a, b) = pair.stop();
        let out = a.out();
        assert_eq!((out.drops, b.back().drops), (0, 0), "{}", a.0);
        let mean = out.tx_bytes / out.tx_packets;
        println!("window {window}, {channels} channels: {mean} bytes a frame, ring {ring}");
        assert!(mean > mtu, "frames of {mean} bytes on average: no large ones");
    }
}

// Goal: the final table of an end that is stopped under traffic passes the conservation check.
#[test]
fn conservation_holds_under_traffic() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end.tap("persist").channels(2));
    let flows = ["10.0.0.2", "fd00::2"].map(|ip| Stream::start(&world.a, &world.b, ip));
    for flow in &flows {
        flow.wait_more(8 << 20);
    }
    pair.stop();
    // Drop the streams without a check: the end of the link interrupts them.
    drop(flows);
}
