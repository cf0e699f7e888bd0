//! Groups of bridges: two processes with two windows between them, a TAP at each end.

use std::process::Command;
use std::time::Duration;

use mqnet_testkit::{EndSpec, Flows, Need, World, has, until};
use serde_json::Value;

use crate::group::keep_silence;

const PACE: Duration = Duration::from_millis(4);

/// Script that closes the connection of two processes at the window's socket and renames the
/// socket. Both processes see the end of their peer and cannot reconnect.
const CUT: &str = "
import ctypes, os, socket, sys
path, pids = sys.argv[1], sys.argv[2:]
lines = [line.split() for line in open('/proc/net/unix')]
inodes = {'socket:[%s]' % w[6] for w in lines if w[7:] == [path] and w[5] == '03'}
os.rename(path, path + '.away')
for pid in pids:
    for fd in os.listdir('/proc/%s/fd' % pid):
        try:
            name = os.readlink('/proc/%s/fd/%s' % (pid, fd))
        except OSError:
            continue
        if name in inodes:
            libc = ctypes.CDLL(None, use_errno=True)
            pidfd = os.pidfd_open(int(pid))
            copy = libc.syscall(438, pidfd, int(fd), 0)
            assert copy >= 0, ctypes.get_errno()
            socket.socket(fileno=copy).shutdown(socket.SHUT_RDWR)
            sys.exit(0)
sys.exit('no such connection')
";

fn cut(world: &World, window: &str, pids: [u32; 2]) {
    let mut command = Command::new("python3");
    command.args(["-c", CUT]).arg(world.file(window)).args(pids.map(|pid| pid.to_string()));
    let done = command.output().expect("python3");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn mend(world: &World, window: &str) {
    let path = world.file(window);
    let away = path.with_extension("sock.away");
    std::fs::rename(away, path).expect("the socket's name");
}

/// End of a bridge over the group of these windows.
fn grouped(world: &World, end: EndSpec, windows: &[&str], options: &str) -> EndSpec {
    let member = |window: &&str| format!("ntb:{}", world.file(window).display());
    let members: Vec<String> = windows.iter().map(member).collect();
    end.meeting_at(&format!("{}{options}", members.join("+")))
}

const BOTH: [&str; 2] = ["w0.sock", "w1.sock"];
const DEGRADE: &str = ",on-member-loss=degrade";

/// Members of the groups of both ends in `show`.
fn members(world: &World) -> Vec<Value> {
    let shown = world.folder().ask_json("show --json");
    let links = shown.as_array().cloned().unwrap_or_default();
    let of = |link: &Value| link["netdevs"][1]["members"].as_array().cloned().unwrap_or_default();
    links.iter().flat_map(of).collect()
}

/// Waits until both ends report the expected channels for member 0 and member 1: its own channels,
/// and those that it took over.
fn wait_for_channels(world: &World, what: &str, expected: [(&[u16], &[u16]); 2]) {
    until(what, || {
        let all = members(world);
        let good = all.iter().enumerate().all(|(at, member)| {
            let (own, others) = expected[at % 2];
            let standing_in =
                member.get("standing-in").cloned().unwrap_or(Value::from([0u16; 0].to_vec()));
            member["channels"] == Value::from(own) && standing_in == Value::from(others)
        });
        (good && all.len() == 4).then_some(())
    });
}

fn both_ways(world: &World) -> [Flows; 2] {
    let there = Flows::start(&world.a, &world.b, "10.0.0.2", 32, PACE);
    [there, Flows::start(&world.b, &world.a, "10.0.0.1", 32, PACE)]
}

fn wait_more(flows: &[Flows; 2], datagrams: u64) {
    flows.iter().for_each(|flow| flow.wait_more(datagrams));
}

// Goal: two windows to one peer form one link. Resizes from either end under traffic cause no loss
// or reordering, each channel stays on its window, and both windows carry traffic. The link goes
// down when one window is lost and comes up when it returns.
#[test]
fn two_windows_are_one_link() {
    if !has(&[Need::Root, Need::Program("python3")]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| grouped(&world, end, &BOTH, "").channels(4));
    let flows = both_ways(&world);
    for (order, channels) in [("ab", 6u16), ("ba", 2), ("ab", 5), ("ba", 4)] {
        // The smaller number of both ends applies, so the number is set at each end.
        for device in order.chars() {
            world.tell(&format!("ethtool -L {device} combined {channels}"));
        }
        wait_more(&flows, 300);
        let own = |at: u16| (0..channels).filter(|i| i % 2 == at).collect::<Vec<u16>>();
        wait_for_channels(&world, "the map", [(&own(0), &[]), (&own(1), &[])]);
        assert_eq!((world.channels("a"), world.channels("b")), (channels, channels));
    }
    for (flow, which) in flows.into_iter().zip(["a to b", "b to a"]) {
        flow.finish().assert_perfect(which);
    }
    cut(&world, "w1.sock", [pair.a.pid(), pair.b.pid()]);
    for end in [&pair.a, &pair.b] {
        let why = end.wait_down("of 2 members up");
        assert!(why.contains("w1.sock"), "{why}");
    }
    mend(&world, "w1.sock");
    for end in [&pair.a, &pair.b] {
        end.wait_up(2);
    }
    let flows = both_ways(&world);
    wait_more(&flows, 100);
    for flow in flows {
        flow.finish();
    }
    let (a, b) = pair.stop();
    for table in [a, b] {
        let all = table.channels();
        assert!(all.iter().take(4).all(|(out, _)| out.tx_packets > 0), "{all:?}");
    }
}

// Goal: with degrade the loss of a window under traffic does not stop the link: the other window
// carries all channels, and only frames in flight are lost. Resizes work in this state. The return
// of the window loses nothing, and a killed peer that restarts is connected again.
#[test]
fn a_window_is_lost_and_comes_back() {
    if !has(&[Need::Root, Need::Program("python3")]) {
        return;
    }
    let world = World::create();
    let end = |end: EndSpec| grouped(&world, end, &BOTH, DEGRADE).channels(4);
    let a = end(world.end_a()).spawn();
    let mut b = end(world.end_b().tap("persist")).spawn();
    for end in [&a, &b] {
        end.wait_up(1);
    }
    world.a.lengthen("a");
    world.b.lengthen("b");
    let whole: [(&[u16], &[u16]); 2] = [(&[0, 2], &[]), (&[1, 3], &[])];
    let flows = both_ways(&world);
    wait_more(&flows, 1000);
    for flow in &flows {
        flow.take_worst();
    }
    cut(&world, "w1.sock", [a.pid(), b.pid()]);
    wait_for_channels(&world, "member 0 to take over", [(&[0, 2], &[1, 3]), (&[1, 3], &[])]);
    wait_more(&flows, 1000);
    let ways = ["one of two windows cut, a to b", "one of two windows cut, b to a"];
    for (flow, loss) in flows.iter().zip(ways) {
        let worst = flow.take_worst();
        println!("{loss}: nothing for {:?}, slowest {:?}", worst.silence, worst.delay);
        keep_silence(loss, worst);
    }
    world.tell("ethtool -L b combined 3");
    wait_for_channels(&world, "the map of 3", [(&[0, 2], &[1]), (&[1], &[])]);
    world.tell("ethtool -L b combined 4");
    wait_more(&flows, 300);
    let tallies = flows.map(Flows::finish);
    for tally in &tallies {
        println!("with the loss: {tally:?}");
        assert_eq!((tally.doubled, tally.wrong, tally.reordered), (0, 0, 0), "{tally:?}");
    }
    // New flows, because the return of a window must lose nothing.
    let flows = both_ways(&world);
    wait_more(&flows, 300);
    mend(&world, "w1.sock");
    wait_for_channels(&world, "the window to be back", whole);
    wait_more(&flows, 1000);
    for (flow, which) in flows.into_iter().zip(["a to b", "b to a"]) {
        flow.finish().assert_perfect(which);
    }
    assert_eq!((a.ups(), b.ups()), (1, 1), "the link has ended");
    b.kill();
    b.restart();
    b.wait_up(1);
    a.wait_up(2);
    wait_for_channels(&world, "both windows of the new peer", whole);
    let flows = both_ways(&world);
    wait_more(&flows, 300);
    for flow in flows {
        flow.finish();
    }
    let a = a.stop();
    a.assert_conserved();
    b.stop().assert_conserved();
    // Frames that the kernel drops in front of the link on a busy machine are counted too.
    let counted = a.out().tx_lost + a.dropped_outside() + a.out().drops;
    assert!(tallies[0].lost() <= counted, "lost, but not counted: {:?}, {counted}", tallies[0]);
}

// Goal: both ends refuse, with a reason, windows listed in different orders, and a window that is
// in a group at one end only.
#[test]
fn crossed_windows_are_refused() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let a = grouped(&world, world.end_a(), &BOTH, "").spawn();
    let b = grouped(&world, world.end_b(), &["w1.sock", "w0.sock"], "").spawn();
    for end in [&a, &b] {
        let why = end.wait_down("refused");
        assert!(why.contains("list the same windows in the same order at both ends"), "{why}");
    }
    b.stop();
    let b = world.end_b().meeting_at(&format!("ntb:{}", world.file("w0.sock").display())).spawn();
    b.wait_down("not a member of a group here, member 0 of a group of 2 at the peer");
    a.wait_down("member 0 of a group of 2 here, not a member of a group at the peer");
    for end in [a, b] {
        end.stop();
    }
}
