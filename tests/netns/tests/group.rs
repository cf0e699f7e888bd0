//! Groups of TAPs: distribution of frames, status, and removal of a member.

use std::time::Duration;

use mqnet_testkit::{
    EndTable, Figures, Flows, LinkProcess, Need, World, Worst, has, until, until_within,
};
use serde_json::Value;

use crate::near::table;

/// One MAC address for members that feed one stack, as for the ports of a NIC.
const MAC: &str = "mac=02:00:00:00:00:02";

/// Time limit for the indirection table to follow the flows. On a busy machine a move may be
/// refused more than once, with 10 s between attempts.
const FOLLOWING: Duration = Duration::from_secs(120);

/// Starts a link between `tap:a` at host a and a group of two TAPs at host b.
fn fan(world: &World, options: &str) -> LinkProcess {
    fan_of(world, &[], "", options)
}

fn fan_of(world: &World, words: &[&str], options_a: &str, options: &str) -> LinkProcess {
    for name in ["all", "default"] {
        // Disable the reverse-path filter: replies may leave through another member than that of
        // the request.
        let file = format!("net.ipv4.conf.{name}.rp_filter=0");
        world.b.run(&["sysctl", "-q", "-w", &file]);
    }
    let (a, b) = (world.a.name(), world.b.name());
    let mut command = world.folder().program();
    command.args(words).args(["link", "--json", "--channels", "4"]);
    command.arg(format!("tap:a,netns={a},address=10.0.0.1/24{options_a}"));
    command.arg(format!(
        "tap:b0,netns={b},{MAC},address=10.0.0.2/24+\
         tap:b1,netns={b},{MAC},address=10.9.0.1/24{options}"
    ));
    let link = LinkProcess::spawn(command);
    link.wait_up(1);
    world.a.lengthen("a");
    ["b0", "b1"].iter().for_each(|member| world.b.lengthen(member));
    link
}

/// Members of the second netdev in `show`.
fn members(world: &World) -> Vec<Value> {
    let shown = world.folder().ask_json("show --json");
    shown[0]["netdevs"][1]["members"].as_array().cloned().unwrap_or_default()
}

fn received(world: &World, device: &str) -> u64 {
    let info = world.b.device(device).expect("the device");
    info["stats64"]["rx"]["packets"].as_u64().expect("a counter")
}

/// Asserts conservation over the sum of all channels, because a replacement queue counts in its own
/// channel.
fn assert_conserved(table: &EndTable) {
    for lane in [table.out(), table.back()] {
        assert_eq!(lane.in_flight, 0, "{lane:?}");
        assert_eq!(lane.in_flight(lane.drops.into()), 0, "{lane:?}");
    }
}

// Goal: channel i is on member i mod 2, and stays there during resizes under traffic, without loss
// or reordering. `show` and queue-get report the mapping and the primary.
#[test]
fn channels_stay_on_their_members() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let link = fan(&world, "");
    let flows = Flows::start(&world.a, &world.b, "10.0.0.2", 64, Duration::from_millis(4));
    for channels in [4u16, 6, 2, 4] {
        world.tell(&format!("ethtool -L a combined {channels}"));
        flows.wait_more(500);
        let there = members(&world);
        for (at, member) in there.iter().enumerate() {
            let own: Vec<u16> = (0..channels).filter(|i| usize::from(i % 2) == at).collect();
            assert_eq!(member["channels"], Value::from(own), "{member}");
            assert_eq!((&member["up"], member.get("standing-in")), (&Value::from(true), None));
        }
        assert_eq!((&there[0]["primary"], &there[1]["primary"]), (&true.into(), &false.into()));
        assert_eq!(there[0]["why"], "smallest id tap:b0");
    }
    let refused = world.ask("ethtool -L a combined 1");
    assert_eq!(world.channels("a"), 2, "{refused:?}");
    world.tell("ethtool -L a combined 4");
    let shown = world.ask("show").out;
    assert!(shown.contains("b0 is a group:"), "{shown}");
    let secondary = "    tap:b1  secondary                     up  channels 1,3\n";
    assert!(shown.contains(secondary), "{shown}");
    let before = ["b0", "b1"].map(|device| received(&world, device));
    flows.wait_more(1000);
    let after = ["b0", "b1"].map(|device| received(&world, device));
    assert!(before.iter().zip(after).all(|(before, after)| after > before + 100), "{after:?}");
    flows.finish().assert_perfect("a to the group");
    link.stop().assert_conserved();
}

/// Promised maximum of the pause when a member is lost, in ms.
const SILENCE_MAX: f64 = 100.0;

/// Stores the longest silence around the loss of a member.
pub(crate) fn keep_silence(loss: &str, worst: Worst) {
    let silence = worst.silence.as_secs_f64() * 1e3;
    let words = format!("a lost member: {loss}: {silence:.1} ms");
    let figures = Figures::of("loss", loss).verdict(silence <= SILENCE_MAX, &words);
    figures.case(loss, "ms", &[("silence", &[silence])], &[]).keep();
}

// Goal: with on-member-loss=degrade the removal of a member under traffic does not stop the link:
// the other member takes over its channels. When a device with the removed member's name exists
// again, the channels return to this member.
#[test]
fn a_group_goes_on_without_a_member() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let link = fan(&world, ",on-member-loss=degrade");
    let flows = Flows::start(&world.a, &world.b, "10.0.0.2", 64, Duration::from_millis(4));
    flows.wait_more(2000);
    let before_loss = received(&world, "b0");
    flows.take_worst();
    world.b.run(&["ip", "link", "del", "b1"]);
    flows.wait_more(2000);
    let worst = flows.take_worst();
    until("the other to take over", || {
        let there = members(&world);
        let stands = there[0]["standing-in"] == Value::from([1, 3].to_vec());
        (stands && there[1]["up"] == false).then_some(())
    });
    let reason = members(&world)[1]["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains("removed: waiting for 'ip tuntap add dev b1"), "{reason}");
    assert!(received(&world, "b0") > before_loss + 1500);
    // Resize while a member is missing: the map covers all channels, including parked ones.
    world.tell("ethtool -L a combined 6");
    flows.wait_more(500);
    assert_eq!(members(&world)[0]["standing-in"], Value::from([1, 3, 5].to_vec()));
    world.tell("ethtool -L a combined 4");
    world.b.run(&["ip", "tuntap", "add", "dev", "b1", "mode", "tap", "multi_queue"]);
    until("the member to be back", || {
        let there = members(&world);
        (there[1]["up"] == true && there[0].get("standing-in").is_none()).then_some(())
    });
    assert_eq!(members(&world)[1]["channels"], Value::from([1, 3].to_vec()));
    let back = received(&world, "b1");
    flows.wait_more(2000);
    assert!(received(&world, "b1") > back + 500);
    let tally = flows.finish();
    println!("{tally:?}; nothing for {:?}, slowest {:?}", worst.silence, worst.delay);
    assert_eq!((tally.doubled, tally.wrong, tally.reordered), (0, 0, 0), "{tally:?}");
    assert_eq!((link.ups(), link.downs()), (1, Vec::new()));
    let table = link.stop();
    assert_conserved(&table);
    // Add the frames that the kernel dropped in front of the link, as it does on a busy machine.
    let elsewhere = table.dropped_outside() + table.out().drops;
    assert!(tally.lost() <= 64 + elsewhere, "more than was on its way: {tally:?}, {elsewhere}");
    keep_silence("one of two TAPs deleted", worst);
}

// Goal: a link joins two groups member by member. Without on-member-loss=degrade the link is down
// until every member exists, and reports the missing member.
#[test]
fn a_group_ends_with_a_member() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let mut command = world.folder().program();
    command.args(["link", "--json"]);
    for (host, side, last) in [(&world.a, "a", 1), (&world.b, "b", 2)] {
        let member = |n: u32| {
            let netns = host.name();
            format!("tap:{side}{n},netns={netns},address=10.0.{n}.{last}/24")
        };
        command.arg((0..3).map(member).collect::<Vec<_>>().join("+"));
    }
    let link = LinkProcess::spawn(command);
    // Default number of channels: one for each member.
    assert!(link.wait_up(1).contains("3 channels"));
    let cross = |n: u32| {
        let (there, here) = (format!("10.0.{n}.2"), format!("10.0.{n}.1"));
        for (from, to, address) in [(&world.a, &world.b, there), (&world.b, &world.a, here)] {
            let flows = Flows::start(from, to, &address, 4, Duration::from_millis(4));
            flows.wait_more(20);
            flows.finish();
        }
    };
    (0..3).for_each(cross);
    world.b.run(&["ip", "link", "del", "b1"]);
    let why = link.wait_down("2 of 3 members up");
    assert!(why.contains("waiting for tap:b1 (the TAP device was removed"), "{why}");
    until("no carrier", || (!world.b.has_carrier("b0")).then_some(()));
    world.b.run(&["ip", "tuntap", "add", "dev", "b1", "mode", "tap", "multi_queue"]);
    link.wait_up(2);
    (0..3).for_each(cross);
    link.stop().assert_conserved();
}

// Goal: with rx-locality=learn the indirection table of each member, also of the secondary, follows
// the traffic sent to that member, without loss, duplicates or reordering. No table changes while a
// member is lost; all tables follow again after its return.
#[test]
fn tables_of_members_follow() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let learn = ",mac=02:00:00:00:00:01,address=10.9.0.2/24,rx-locality=learn";
    let link = fan_of(&world, &["-vv"], learn, ",on-member-loss=degrade");
    let (a, b, pace) = (&world.a, &world.b, Duration::from_millis(16));
    // Fixed neighbour entries: an ARP reply may arrive at the other member and update only that
    // member's entry.
    for (address, device) in [("10.0.0.1", "b0"), ("10.9.0.2", "b1")] {
        let words = ["lladdr", "02:00:00:00:00:01", "dev", device, "nud", "permanent"];
        b.run(&[&["ip", "neighbour", "replace", address][..], &words].concat());
    }
    let out = ["10.0.0.2", "10.9.0.1"].map(|to| Flows::start(a, b, to, 64, pace));
    // Through the primary, and through the secondary.
    let back = ["10.0.0.1", "10.9.0.2"].map(|to| Flows::start(b, a, to, 64, pace));
    let send_by = |channel: usize| {
        let weights = ["1 0 0 0", "0 1 0 0", "0 0 1 0", "0 0 0 1"];
        world.tell(&format!("ethtool -X a weight {}", weights[channel]));
    };
    // Two of three buckets have a flow of `a` and must match. Of the other buckets, half match by
    // chance.
    let primary_follows = |channel: usize| {
        until_within(FOLLOWING, "the primary's table to follow", || {
            let table = table(&world, "b0");
            (table.iter().filter(|at| usize::from(**at) == channel).count() >= 84).then_some(())
        });
    };
    // The secondary's table is not reported, since the group's table is the primary's. Its queues
    // are the channels 1 and 3.
    let secondary_follows = |channel: usize, queue: usize| {
        let words = format!("buckets of flows move to queue {queue}");
        let before = link.text().lines().count();
        send_by(channel);
        until_within(FOLLOWING, "the secondary's table to follow", || {
            let text = link.text();
            let follows = |line: &str| line.contains("tap:b1: ") && line.contains(&words);
            text.lines().skip(before).any(follows).then_some(())
        });
    };
    send_by(2);
    primary_follows(2);
    secondary_follows(3, 1);
    secondary_follows(1, 0);
    send_by(0);
    primary_follows(0);
    for (flows, which) in out.into_iter().chain(back).zip(["out", "out", "back", "back"]) {
        flows.finish().assert_perfect(which);
    }
    let flows = Flows::start(a, b, "10.0.0.2", 64, pace);
    b.run(&["ip", "link", "del", "b1"]);
    until("the other to take over", || members(&world)[0].get("standing-in").map(drop));
    send_by(2);
    let before = table(&world, "b0");
    flows.wait_more(4000);
    assert_eq!(table(&world, "b0"), before, "it moved while a member is lost");
    b.run(&["ip", "tuntap", "add", "dev", "b1", "mode", "tap", "multi_queue"]);
    until("the member to be back", || (members(&world)[1]["up"] == true).then_some(()));
    let count = |table: &[u16]| table.iter().filter(|at| **at == 2).count();
    until_within(FOLLOWING, "the primary's table to follow", || {
        (count(&table(&world, "b0")) >= count(&before) + 8).then_some(())
    });
    let tally = flows.finish();
    assert_eq!((tally.doubled, tally.wrong, tally.reordered), (0, 0, 0), "{tally:?}");
    assert_conserved(&link.stop());
}
