//! Changes of a running link in special cases: a link that is down, a frozen or killed peer, no
//! privileges, inherited queues, two TAPs of one process.

use std::process::Command;

use mqnet_testkit::{
    EndTable, Folder, Host, LinkProcess, Need, Stream, World, has, program, until,
};

use crate::load::Load;
use crate::resize::{kernel_channels, stop_perfect, wait_channels};
use crate::unprivileged::{end_in_user_namespace, end_on_queues, public_program};

// Goal: two ends that request different numbers of channels use the smaller number. The end that
// requested more gets the reason; the larger number applies when the other end requests it, too.
#[test]
fn different_wishes_settle_on_the_smaller() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let a = world.end_a().argument("--interval-ms").argument("20").channels(2).spawn();
    let b = world.end_b().argument("--interval-ms").argument("20").spawn();
    a.wait_up(1);
    b.wait_up(1);
    wait_channels(&world, 2);
    let load = Load::start(&world.a, &world.b, false);
    let output = world.tell("ethtool -L b combined 8");
    assert_eq!(
        output,
        "netlink warning: 2 channels: the other end was set to 2 (mqnet ethtool -L there)\n"
    );
    wait_channels(&world, 2);
    assert_eq!(world.tell("ethtool -L a combined 8"), "");
    wait_channels(&world, 8);
    load.wait_more(500);
    load.finish_perfect("different requests");
    stop_perfect(mqnet_testkit::Pair { a, b });
}

// Goal: a request made while the link is down applies when the link comes up.
#[test]
fn request_applies_when_the_link_comes_up() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let a = world.end_a().spawn();
    a.wait_down("waiting for a peer");
    let output = world.tell("ethtool -L a combined 5");
    assert!(output.contains("the link is down: the setting applies when it starts"), "{output}");
    assert_eq!(world.channels("a"), 5);
    let b = world.end_b().spawn();
    assert!(a.wait_up(1).contains("5 channels"));
    assert!(b.wait_up(1).contains("5 channels"));
    wait_channels(&world, 5);
    a.wait_quiet();
    mqnet_testkit::assert_pair(&a.stop(), &b.stop());
}

// Goal: a change fails with a reason and no other effect if the peer does not answer, whether the
// peer listened or connected. The change works after the peer has resumed.
#[test]
fn frozen_peer_fails_a_change_without_effect() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end.argument("--interval-ms").argument("20").channels(2));
    wait_channels(&world, 2);
    world.tell("ethtool -L a combined 8");
    world.tell("ethtool -L b combined 2");
    for (asked, frozen, dev) in [(&pair.a, &pair.b, "a"), (&pair.b, &pair.a, "b")] {
        let failed = asked.events("change-failed").len();
        frozen.freeze();
        // Select the process by its socket: the frozen one cannot report its devices.
        let socket = world.file(&format!("link-{}.sock", asked.pid()));
        let at = format!("--control {} ethtool", socket.display());
        let output = world.ask(&format!("{at} -L {dev} combined 1"));
        println!("{dev}: {}", output.err);
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(
            output.err.contains("the peer did not answer within 8 s")
                || output.err.contains("not done within 10 s: the peer does not answer"),
            "{output:?}"
        );
        let shown = world.ask(&format!("{at} --json -l {dev}"));
        assert!(shown.out.contains("\"combined\": 2"), "{shown:?}");
        frozen.thaw();
        println!("{:?}", &asked.events("change-failed")[failed..]);
        let load = Load::start(&world.a, &world.b, false);
        wait_channels(&world, 2);
        world.tell(&format!("ethtool -L {dev} combined 1"));
        wait_channels(&world, 1);
        world.tell(&format!("ethtool -L {dev} combined 2"));
        wait_channels(&world, 2);
        load.finish_perfect("a peer that stood still");
    }
    stop_perfect(pair);
}

// Goal: an end is killed during a change, repeatedly and at different moments. Each time the link
// comes up again with equal channels at both ends, and TCP continues.
#[test]
fn end_killed_during_a_change_recovers() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end.tap("persist"));
    let mut ends = [pair.a, pair.b];
    let streams = [
        Stream::start(&world.a, &world.b, "10.0.0.2"),
        Stream::start(&world.b, &world.a, "fd00::1"),
    ];
    let mut ups = [1, 1];
    for round in 0..40u64 {
        streams.iter().for_each(|stream| stream.wait_more(1 << 18));
        let (dies, asked) = ((round / 2 % 2) as usize, (round % 2) as usize);
        let words = format!("ethtool -L {} combined {}", ["a", "b"][asked], 1 + round * 5 % 8);
        std::thread::scope(|scope| {
            // The command may succeed, fail, or find that its process was killed.
            scope.spawn(|| world.ask(&words));
            // The kill occurs at different moments between the start of the command and the end of
            // the change.
            std::thread::sleep(std::time::Duration::from_millis(4 + round));
            ends[dies].kill();
        });
        ends[dies].restart();
        ups = [ups[0] + 1, ups[1] + 1];
        ups[dies] = 1;
        ends[0].wait_up(ups[0]);
        ends[1].wait_up(ups[1]);
        until("both ends agree", || (world.channels("a") == world.channels("b")).then_some(()));
    }
    // A new request of both ends applies regardless of earlier ones.
    world.tell("ethtool -L a combined 3");
    world.tell("ethtool -L b combined 3");
    wait_channels(&world, 3);
    for stream in streams {
        stream.wait_more(1 << 18);
        stream.finish();
    }
    for end in ends {
        end.stop().assert_conserved();
    }
}

/// Number of frames reported as dropped while queues were detached.
fn counted_drops(end: &LinkProcess) -> u64 {
    let events = end.events("changed");
    let number = |text: &String| {
        let before = text.split_once(" frames were dropped while queues were detached")?.0;
        assert!(text.contains("CAP_BPF"), "{text}");
        before.rsplit(' ').next()?.parse::<u64>().ok()
    };
    events.iter().filter_map(number).sum()
}

// Goal: queues are added and removed without permission to load a BPF program. The device counts
// the frames dropped by a change and mqnet reports them; no other frame is missing or duplicated.
#[test]
fn without_privilege_losses_are_counted() {
    if !has(&[Need::Root, Need::OpenTun, Need::Program("unshare")]) {
        return;
    }
    let folder = Folder::create();
    let program = public_program(&folder);
    let a =
        end_in_user_namespace(&program, &folder, "tap:a,address=10.0.0.1/24,address=fd00::1/64");
    let b =
        end_in_user_namespace(&program, &folder, "tap:b,address=10.0.0.2/24,address=fd00::2/64");
    a.wait_up(1);
    b.wait_up(1);
    folder.tell("ethtool -L a combined 8");
    let hosts = [&a, &b].map(|end| Host::of_process(end.pid()));
    let before = [hosts[0].counters("a").tx_dropped, hosts[1].counters("b").tx_dropped];
    let mut load = Load::start(&hosts[0], &hosts[1], false);
    for channels in [1, 8, 2, 8, 3].into_iter().cycle().take(50) {
        load.during(200, || folder.tell(&format!("ethtool -L b combined {channels}")));
        for dev in ["a", "b"] {
            until("both agree", || (folder.channels(dev) == channels).then_some(()));
        }
    }
    let tallies = load.finish("50 resizes without privilege");
    let after = [hosts[0].counters("a").tx_dropped, hosts[1].counters("b").tx_dropped];
    for (side, end) in [&a, &b].into_iter().enumerate() {
        let (told, counted) = (counted_drops(end), after[side] - before[side]);
        let tally = &tallies[side];
        println!(
            "side {side}: {} lost, {counted} counted by the device, {told} told",
            tally.lost()
        );
        assert!(tally.lost() <= counted, "more was lost than counted: {tally:?}");
        // The device also counts drops at a full queue, which the reports after changes do not
        // include.
        assert!(told <= counted, "{told} told, {counted} counted");
        assert_eq!((tally.doubled, tally.wrong), (0, 0), "{tally:?}");
    }
    a.wait_quiet();
    mqnet_testkit::assert_pair(&a.stop(), &b.stop());
}

// Goal: any number of channels up to that of the inherited queues works; a larger number is refused
// with a reason.
#[test]
fn inherited_queues_are_the_limit() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let b = world.end_b().channels(2).argument("--interval-ms").argument("20").spawn();
    until("it listens", || world.socket().exists().then_some(()));
    let a = end_on_queues(&world, &program(), false);
    a.wait_up(1);
    b.wait_up(1);
    wait_channels(&world, 2);
    let load = Load::start(&world.a, &world.b, false);
    for channels in [1, 2, 1, 2] {
        assert_eq!(world.tell(&format!("ethtool -L a combined {channels}")), "");
        wait_channels(&world, channels);
        load.wait_more(200);
    }
    let refused = world.ask("ethtool -L a combined 3");
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("requested channel count exceeds maximum"), "{refused:?}");
    // The other end does not know this limit: its request for 3 channels gives 2 with a warning.
    let output = world.tell("ethtool -L b combined 3");
    println!("{output}");
    assert!(output.contains("warning: 2 channels: "), "{output}");
    load.finish_perfect("inherited queues");
    a.wait_quiet();
    mqnet_testkit::assert_pair(&a.stop(), &b.stop());
}

/// Starts a link of two TAPs in one process.
fn two_taps(world: &World) -> LinkProcess {
    let tap = |host: &Host, dev: &str, n: u8| {
        format!("tap:{dev},netns={},address=10.0.0.{n}/24,address=fd00::{n}/64", host.name())
    };
    let mut command: Command = world.folder().program();
    command.args(["link", "--json", &tap(&world.a, "a", 1), &tap(&world.b, "b", 2)]);
    command.args(["--interval-ms", "20"]);
    LinkProcess::spawn(command)
}

// Goal: resizes of a link between two TAPs of one process, with a page from a pool for every frame,
// lose nothing.
#[test]
fn two_taps_of_one_process() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let link = two_taps(&world);
    link.wait_up(1);
    let mut load = Load::start(&world.a, &world.b, false);
    for channels in [8, 2, 1, 64, 3, 1].into_iter().cycle().take(30) {
        let dev = if channels % 2 == 0 { "a" } else { "b" };
        let words = format!("ethtool -L {dev} combined {channels}");
        assert_eq!(load.during(200, || world.tell(&words)), "");
        wait_channels(&world, channels);
    }
    load.finish_perfect("two TAPs of one process");
    assert_eq!(kernel_channels(&world.a, "a"), 1);
    link.wait_quiet();
    crate::load::assert_monotonic(&link);
    let end: EndTable = link.stop();
    end.assert_conserved();
    assert_eq!((end.out().drops, end.back().drops), (0, 0), "{}", end.0);
}
