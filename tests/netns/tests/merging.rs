//! Coalescing of small frames for a kernel that accepts large ones (GRO).

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use mqnet_testkit::{EndTable, Host, Lane, LinkProcess, Need, Stream, World, has, until};

use crate::offload::{corrupt, datagrams};

const NEEDS: [Need; 3] = [Need::Root, Need::Program("ethtool"), Need::Program("python3")];

/// Largest payload of a frame of 1500 bytes.
const MSS: u64 = 1448;

/// Starts a link of two TAPs.
fn two_taps(world: &World) -> LinkProcess {
    let tap = |host: &Host, dev: &str, n: u8| {
        format!("tap:{dev},netns={},address=10.0.0.{n}/24,address=fd00::{n}/64", host.name())
    };
    let mut command: Command = world.folder().program();
    command.args(["link", "--json", &tap(&world.a, "a", 1), &tap(&world.b, "b", 2)]);
    command.args(["--interval-ms", "20"]);
    let link = LinkProcess::spawn(command);
    link.wait_up(1);
    link
}

/// Disables segmentation offload of a device, so that the kernel of the host segments in software.
fn disable_segmentation(host: &Host, dev: &str) {
    host.run(&["ethtool", "-K", dev, "tso", "off", "gso", "off", "tx-udp-segmentation", "off"]);
}

/// Streams over both address families.
fn streams(world: &World, bytes: u64) {
    for address in ["10.0.0.2", "fd00::2"] {
        let stream = Stream::start(&world.a, &world.b, address);
        stream.wait_more(bytes);
        stream.finish();
    }
}

fn assert_coalesced(lane: &Lane) {
    let (came, left) = (lane.rx_bytes / lane.rx_packets, lane.tx_bytes / lane.tx_packets);
    println!("frames of {came} bytes came, frames of {left} left: {lane:?}");
    assert!(came <= 1600, "{came}: the source was to bring small frames");
    assert!(left > 5 * MSS, "{left}: they were to be merged");
    assert_eq!(lane.drops, 0);
}

fn end(world: &World, link: LinkProcess) -> EndTable {
    let end = link.stop();
    end.assert_conserved();
    assert_eq!((corrupt(&world.a), corrupt(&world.b)), (0, 0), "wrong checksums");
    end
}

// Goal: small frames of one kernel arrive as large frames at the other kernel, with complete or
// offloaded checksums. Every byte of the streams is correct.
#[test]
fn small_frames_of_a_kernel_are_coalesced() {
    if !has(&NEEDS) {
        return;
    }
    for checksums in ["on", "off"] {
        let world = World::create();
        let link = two_taps(&world);
        disable_segmentation(&world.a, "a");
        world.a.run(&["ethtool", "-K", "a", "tx", checksums]);
        disable_segmentation(&world.a, "a");
        streams(&world, 24 << 20);
        let end = end(&world, link);
        assert_coalesced(&end.out());
        assert!(end.out().merged > 4 * end.out().tx_packets, "{}", end.0);
    }
}

// Goal: frames that cross a bridge are coalesced at the receiving end.
#[test]
fn small_frames_of_a_bridge_are_coalesced() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end.channels(2));
    disable_segmentation(&world.a, "a");
    streams(&world, 24 << 20);
    let (a, b) = pair.stop();
    assert_coalesced(&b.back());
    assert_eq!((a.out().merged, b.out().merged), (0, 0), "a bridge is no stack");
    assert_eq!((corrupt(&world.a), corrupt(&world.b)), (0, 0), "wrong checksums");
}

// Goal: coalesced datagrams arrive separately, each once and in order.
#[test]
fn coalesced_datagrams_arrive_separately() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let link = two_taps(&world);
    disable_segmentation(&world.a, "a");
    // UDP has no flow control, so the ring of the TAP must hold all datagrams.
    world.a.run(&["ip", "link", "set", "dev", "a", "txqueuelen", "5000"]);
    for address in ["10.0.0.2", "fd00::2"] {
        // Resolve the neighbour first: until then the kernel queues only a few datagrams.
        round_trips(&world, address, 3);
        datagrams(&world, address);
    }
    let end = end(&world, link);
    println!("{:?}", end.out());
    assert!(end.out().merged > 0, "{}", end.0);
}

/// Exchanges requests and responses of one byte. No other frame is in flight that could flush a
/// frame held for coalescing.
fn round_trips(world: &World, address: &str, number: u32) {
    let listener = world.b.within(|| TcpListener::bind((address, 0))).expect("a listener");
    let meeting = listener.local_addr().expect("its address");
    let mut ours = world.a.within(|| TcpStream::connect(meeting)).expect("a connection");
    let mut theirs = listener.accept().expect("a connection").0;
    for socket in [&ours, &theirs] {
        socket.set_nodelay(true).expect("no delay");
    }
    let mut byte = [0];
    for number in 0..number {
        ours.write_all(&[number as u8]).expect("a question");
        theirs.read_exact(&mut byte).expect("a question");
        theirs.write_all(&byte).expect("an answer");
        ours.read_exact(&mut byte).expect("an answer");
        assert_eq!(byte, [number as u8]);
    }
}

// Goal: a single frame is not delayed: requests and responses of one byte are never retransmitted,
// and none is coalesced.
#[test]
fn a_lone_frame_is_not_held_back() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let link = two_taps(&world);
    disable_segmentation(&world.a, "a");
    let again = |host: &Host| host.protocol("TcpRetransSegs");
    let before = [again(&world.a), again(&world.b)];
    round_trips(&world, "10.0.0.2", 2000);
    assert_eq!([again(&world.a), again(&world.b)], before, "segments sent again");
    let end = end(&world, link);
    assert_eq!((end.out().merged, end.back().merged), (0, 0), "{}", end.0);
}

/// Line `generic-receive-offload` of `ethtool -k`.
fn shown(world: &World, dev: &str) -> String {
    let output = world.ask(&format!("ethtool -k {dev}"));
    let line = output.out.lines().find(|line| line.starts_with("generic-receive-offload:"));
    line.unwrap_or_else(|| panic!("no such line: {}{}", output.out, output.err)).to_owned()
}

// Goal: while coalescing is switched off under traffic, frames pass unchanged; after it is switched
// on, frames are coalesced again. No byte is lost or wrong while channels come and go.
#[test]
fn coalescing_is_switched_under_traffic() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let link = two_taps(&world);
    disable_segmentation(&world.a, "a");
    assert_eq!(shown(&world, "a"), "generic-receive-offload: on");
    let load = ["10.0.0.2", "fd00::2"].map(|ip| Stream::start(&world.a, &world.b, ip));
    for turn in 0..8u32 {
        world.tell("ethtool -K a gro off");
        assert_eq!(shown(&world, "a"), "generic-receive-offload: off");
        let merged = || link.next_status().0.merged;
        // Wait until the counter is stable: workers apply the setting only between two bursts.
        until("nothing is merged any more", || (merged() == merged()).then_some(()));
        let before = merged();
        load.iter().for_each(|stream| stream.wait_more(1 << 20));
        assert_eq!(merged(), before);
        world.tell(&format!("ethtool -L a combined {}", 1 + turn % 3));
        // The change of channels sets the offloads of the TAP again, so segmentation must be
        // disabled again.
        disable_segmentation(&world.a, "a");
        world.tell("ethtool -K a gro on");
        assert_eq!(shown(&world, "a"), "generic-receive-offload: on");
        until("frames are merged again", || (merged() > before).then_some(()));
    }
    for stream in load {
        stream.finish();
    }
    let end = end(&world, link);
    assert!(end.out().merged > 0 && end.out().drops == 0, "{}", end.0);
}
