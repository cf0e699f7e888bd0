//! XDP programs combined with other features: resizes, captures, qdiscs, large frames.

use std::path::Path;
use std::time::Duration;

use mqnet_testkit::{
    Control, Datagrams, Flows, Host, LinkProcess, Need, Stream, World, captured, has, until,
    until_still,
};

use crate::control_daemon::tap_to_tap;
use crate::resize::{often, wait_channels};
use crate::xdp::{NEEDS, attach, discard, number, object, program};

const PACE: Duration = Duration::from_millis(2);

/// Value of a line of `ethtool -S`.
fn counter(list: &str, name: &str) -> u64 {
    let lines = list.lines().filter_map(|line| line.trim().split_once(": "));
    let value = lines.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse().ok());
    value.unwrap_or_else(|| panic!("{name} of {list}"))
}

// Goal: a program stays attached through changes of the number of channels, and new queues run it
// from their first frame. The program drops its frames on every channel, and no other frame is
// lost.
#[test]
fn resizes_keep_the_program() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end.channels(1)));
    attach(&world, "drop");
    let before = world.b.protocol("UdpNoPorts");
    let flows = Flows::start(&world.a, &world.b, "10.0.0.2", 16, PACE);
    let mut sent = 0;
    for channels in [4, 2, 8, 1, 3, 8] {
        world.tell(&format!("ethtool -L b combined {channels}"));
        world.tell(&format!("ethtool -L a combined {channels}"));
        flows.wait_more(200);
        (0..5).for_each(|_| discard(&world));
        sent += 5;
        wait_channels(&world, channels);
        until("all are dropped", || (number(&program(&world), "drops") == sent).then_some(()));
    }
    // The channel depends on the kernel's hash of a random port: use new ports until every channel
    // has received a frame.
    let list = || world.folder().ask("ethtool -S a").out;
    let took = |list: &str, queue: usize| counter(list, &format!("rx_queue_{queue}_packets"));
    until("a frame on each channel", || {
        let list = list();
        let bare = (1..8).any(|queue| took(&list, queue) == 0);
        if bare {
            discard(&world);
            sent += 1;
        }
        (!bare).then_some(())
    });
    flows.finish().assert_perfect("a to b");
    pair.a.wait_quiet();
    until("all are dropped", || (number(&program(&world), "drops") == sent).then_some(()));
    assert_eq!(world.b.protocol("UdpNoPorts"), before);
    let list = list();
    for queue in 1..8 {
        let seen = counter(&list, &format!("rx{queue}_xdp_packets"));
        assert_eq!(took(&list, queue), seen, "{queue}: {list}");
    }
    let (a, b) = pair.stop();
    assert_eq!((a.out().drops, a.out().tx_lost), (sent, 0), "{}", a.0);
    a.assert_conserved();
    b.assert_conserved();
}

// Goal: resizes drop no XDP_TX frame at a closed lane. One direction changes its lanes first, while
// the program of the other direction still reinjects into the old ones.
#[test]
fn resizes_keep_reinjected_frames() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let mut command = world.folder().program();
    let tap = |host: &Host, name: &str, n: u8| {
        format!("tap:{name},netns={},address=10.0.0.{n}/24", host.name())
    };
    command.args(["link", "--json", "--channels", "4", "--interval-ms", "20"]);
    command.args([tap(&world.a, "a", 1), tap(&world.b, "b", 2)]);
    let link = LinkProcess::spawn(command);
    link.wait_up(1);
    let object = object(&world, "reflect");
    for (from, to, address, dev) in
        [(&world.a, &world.b, "10.0.0.2", "a"), (&world.b, &world.a, "10.0.0.1", "b")]
    {
        let mut flows = Flows::start(from, to, address, 16, PACE);
        flows.wait_more(200);
        world.tell(&format!("xdp attach {dev} {}", object.display()));
        let sent = || {
            let shown = world.folder().ask_json(&format!("xdp show -j {dev}"));
            number(&shown["program"], "tx")
        };
        for channels in [8, 1, 4, 2, 8, 3].repeat(5) {
            let before = sent();
            world.tell(&format!("ethtool -L {dev} combined {channels}"));
            until("frames go back", || (sent() > before + 200).then_some(()));
        }
        flows.stop_sending();
        link.wait_quiet();
        world.tell(&format!("xdp detach {dev}"));
    }
    let end = link.stop();
    end.assert_conserved();
    // Drops at a full reinjection queue (`xdp-unsent`) are allowed, as in Linux; drops at a closed
    // lane are not.
    for way in ["a-to-b", "b-to-a"] {
        assert!(end.0[way]["drops"]["link-closed"].is_null(), "{}", end.0);
    }
}

// Goal: while a program reinjects more frames than the reinjection queue holds, resizes complete at
// both ends of a bridge, and every frame is accounted for.
#[test]
fn resizes_complete_under_a_reinjection_flood() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end.channels(4)));
    let mut flows = Flows::start(&world.a, &world.b, "10.0.0.2", 64, Duration::from_micros(200));
    flows.wait_more(200);
    attach(&world, "reflect");
    for channels in [8, 1, 4, 2, 8, 3].repeat(2) {
        let before = number(&program(&world), "tx");
        world.tell(&format!("ethtool -L a combined {channels}"));
        until("frames go back", || (number(&program(&world), "tx") > before + 2000).then_some(()));
    }
    flows.stop_sending();
    pair.a.wait_quiet();
    world.tell("xdp detach a");
    let (a, b) = pair.stop();
    a.assert_conserved();
    b.assert_conserved();
    assert!(a.0["b-to-a"]["drops"]["link-closed"].is_null(), "{}", a.0);
}

// Goal: a change of the indirection table is refused while frames passed by a program wait for a
// frozen peer. Every channel continues when the peer resumes.
#[test]
fn refused_table_keeps_every_lane() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end.channels(2)));
    attach(&world, "pass");
    // One flow uses one channel. The other channel, which would lose its buckets, is empty and not
    // stopped.
    let one = Datagrams::start(&world.a, &world.b, "10.0.0.2", 1400, PACE / 10);
    one.wait_more(50);
    let list = world.folder().ask("ethtool -S a").out;
    let took = |queue| counter(&list, &format!("rx_queue_{queue}_packets"));
    let weights = if took(0) > took(1) { "1 0" } else { "0 1" };
    let before = pair.a.next_status().0.tx_stop;
    pair.b.freeze();
    until("the lane stops", || (pair.a.next_status().0.tx_stop > before).then_some(()));
    let refused = world.ask(&format!("ethtool -X a weight {weights}"));
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.err.contains("try again"), "{refused:?}");
    pair.b.thaw();
    one.finish();
    let flows = Flows::start(&world.a, &world.b, "10.0.0.2", 16, PACE);
    flows.wait_more(1000);
    flows.finish().assert_perfect("of both channels");
    world.tell(&format!("ethtool -X a weight {weights}"));
    pair.a.wait_quiet();
    let (a, b) = pair.stop();
    a.assert_conserved();
    b.assert_conserved();
}

// Goal: a capture of drops contains the frames dropped by a program, with the reason, in either
// order of attaching. A full capture contains only the passed frames.
#[test]
fn captures_contain_drops_of_programs() {
    if !has(&[Need::Root, Need::Program("clang"), Need::Program("tshark")]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let file = control.write("mqnet.toml", &tap_to_tap(&world, "one", 1)).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("one");
    world.a.lengthen("onea");
    let flows = Flows::start(&world.a, &world.b, "10.9.1.2", 4, PACE);
    flows.wait_more(50);
    let capture = |name: &str, more: &str| {
        let file = control.file(name);
        let path = file.display().to_string();
        let mut words = vec!["capture", "onea", "-w", &path];
        words.extend(more.split_whitespace());
        let running = control.start(&words);
        until("the capture", || file.exists().then_some(()));
        (running, path)
    };
    let tshark = |file: &str, filter: &str, field: &str| -> Vec<String> {
        let mut command = std::process::Command::new("tshark");
        let output =
            captured(command.args(["-r", file, "-Y", filter, "-T", "fields", "-e", field]));
        assert_eq!(output.code, Some(0), "{output:?}");
        output.out.lines().map(str::to_owned).collect()
    };
    let (early, early_file) = capture("early.pcapng", "--drops");
    let object = object(&world, "drop").display().to_string();
    control.ok(&["xdp", "attach", "onea", &object]);
    let (late, late_file) = capture("late.pcapng", "--drops");
    let (whole, whole_file) = capture("whole.pcapng", "");
    flows.wait_more(50);
    (0..7).for_each(|_| {
        world.a.run(&["bash", "-c", "echo x > /dev/udp/10.9.1.2/9"]);
    });
    let drops = || number(&control.json(&["xdp", "show", "-j", "onea"])["program"], "drops");
    until("all are dropped", || (drops() == 7).then_some(()));
    // Wait only for the captures of drops: the full capture grows as long as the flows run.
    [&early_file, &late_file].iter().for_each(|file| until_still(Path::new(file)));
    [early, late, whole].into_iter().for_each(|capture| capture.stop());
    for file in [&early_file, &late_file] {
        let reasons = tshark(file, "udp.dstport == 9", "frame.comment");
        assert_eq!(reasons.len(), 7, "{reasons:?}");
        assert!(reasons.iter().all(|reason| reason.contains("xdp-drop")), "{reasons:?}");
    }
    assert!(tshark(&whole_file, "udp.dstport == 9", "frame.len").is_empty());
    assert!(tshark(&whole_file, "udp", "frame.len").len() > 20);
    control.ok(&["xdp", "detach", "onea"]);
    flows.wait_more(50);
    flows.finish().assert_perfect("a to b");
    let stats = control.json(&["stats", "--json", "one"]);
    let drops = stats[0]["a-to-b"]["drops"].as_array().expect("drops");
    assert!(drops.iter().any(|d| d["reason"] == "xdp-drop" && d["frames"] == 7), "{stats}");
    daemon.stop();
}

// Goal: a qdisc behind a program counts only the frames that the program passes. Both are added and
// removed under traffic.
#[test]
fn qdiscs_get_passed_frames() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end.channels(2)));
    let out = Flows::start(&world.a, &world.b, "10.0.0.2", 8, PACE);
    let back = Flows::start(&world.b, &world.a, "10.0.0.1", 8, PACE);
    for round in 1..=5 {
        attach(&world, "drop");
        world.tell("tc qdisc add dev a root handle 1: fq_codel");
        out.wait_more(100);
        discard(&world);
        back.wait_more(50);
        until("it is dropped", || (number(&program(&world), "drops") == round).then_some(()));
        world.tell("xdp detach a");
        world.tell("tc qdisc del dev a root");
    }
    out.finish().assert_perfect("a to b");
    back.finish().assert_perfect("b to a");
    pair.a.wait_quiet();
    let (a, b) = pair.stop();
    assert_eq!((a.out().drops, a.back().drops), (5, 0), "{}", a.0);
    a.assert_conserved();
    b.assert_conserved();
}

// Goal: unsegmented frames of up to 64 KiB pass a program that reads and writes the first and last
// bytes of each frame, and arrive unchanged.
#[test]
fn large_frames_pass_a_program() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end.channels(1)));
    attach(&world, "large");
    let flow = Stream::start(&world.a, &world.b, "10.0.0.2");
    flow.wait_more(20 << 20);
    flow.finish();
    let dump = world.folder().ask_json("xdp map dump -j a counts");
    let longest = dump[0]["values"][0].as_str().expect("a number");
    let longest = u64::from_str_radix(longest, 16).expect("hexadecimal").swap_bytes();
    println!("longest frame: {longest} bytes");
    assert!(longest > 10_000, "{dump}");
    assert_eq!(dump[1]["values"][0], "0000000000000000", "a helper failed: {dump}");
    pair.a.wait_quiet();
    let (a, b) = pair.stop();
    assert_eq!((a.out().drops, a.out().tx_lost), (0, 0), "{}", a.0);
    a.assert_conserved();
    b.assert_conserved();
}
