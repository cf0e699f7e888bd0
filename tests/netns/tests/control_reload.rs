//! Reload of the configuration: only differences are applied.

use std::time::Duration;

use mqnet_sysio::process;
use mqnet_testkit::{Control, Datagrams, Need, World, has, until};

use crate::control_daemon::tap_to_tap;

fn combined(control: &Control, dev: &str) -> u64 {
    control.json(&["ethtool", "--json", "-l", dev])[0]["combined"].as_u64().expect("a count")
}

// Goal: 20 reloads, by verb and by SIGHUP, change the channels of one link and add and remove
// another. All changes are applied, and an unchanged link loses no datagram.
#[test]
fn a_reload_touches_only_the_difference() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let netns = world.a.name();
    let text = |channels: u32, third: bool| {
        let other = format!("[link.other]\na = 'tap:o,netns={netns}'\nb = 'null:'\n");
        let third = if third {
            other.replace("other", "third").replace("tap:o", "tap:t")
        } else {
            String::new()
        };
        format!("{}{other}channels = {channels}\n{third}", tap_to_tap(&world, "keep", 1))
    };
    let file = control.write("mqnet.toml", &text(1, false)).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    let before = control.wait_up("keep");
    control.wait_up("other");
    world.a.lengthen("keepa");
    let flow = Datagrams::start(&world.a, &world.b, "10.9.1.2", 700, Duration::from_micros(50));
    flow.wait_more(100);
    for round in 0..20u32 {
        let (channels, third) = (1 + round % 4, round % 3 == 1);
        control.write("mqnet.toml", &text(channels, third));
        if round % 2 == 0 {
            control.ok(&["reload"]);
        } else {
            process::hang_up(daemon.pid()).expect("SIGHUP");
        }
        let links = if third { vec!["keep", "other", "third"] } else { vec!["keep", "other"] };
        until("the links of the file", || (control.links() == links).then_some(()));
        let wanted = u64::from(channels);
        until("the channels", || (combined(&control, "o") == wanted).then_some(()));
        assert_eq!(world.a.device("t").is_some(), third);
        flow.wait_more(50);
    }
    let (sent, received) = flow.finish();
    println!("20 reloads: {sent} datagrams sent, {received} received");
    assert_eq!(sent, received, "lost in a link that did not change");
    let after = control.wait_up("keep");
    assert_eq!(before["netdevs"], after["netdevs"]);
    daemon.stop();
}

// Goal: an invalid file changes nothing, is reported with its position and exit code 2, and does
// not end a daemon that receives SIGHUP.
#[test]
fn a_broken_file_changes_nothing() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let good = tap_to_tap(&world, "one", 1);
    let file = control.write("mqnet.toml", &good).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    let before = control.wait_up("one");
    for (line, place, what) in [
        ("[link.two\n", "4:10", "unclosed table"),
        ("channels = 65\n", "4:12", "[link.one] channels: 65 is not a number from 1 to 64"),
        ("[link.two]\na = 'tap:onea'\nb = 'ntb:'\n", "6:5", "the socket path has 0 bytes"),
        ("colour = 1\n", "4:1", "unknown key"),
    ] {
        control.write("mqnet.toml", &format!("{good}{line}"));
        let output = control.say(&["reload"]);
        assert_eq!(output.code, Some(2), "{line}: {output:?}");
        let words = format!("{file}:{place}: ");
        assert!(output.err.contains(&words) && output.err.contains(what), "{line}: {output:?}");
        process::hang_up(daemon.pid()).expect("SIGHUP");
        daemon.wait_err(&words);
        assert_eq!(control.wait_up("one")["netdevs"], before["netdevs"], "{line}");
        assert_eq!(control.links(), ["one"]);
    }
    daemon.stop();
    let output = control.say(&["daemon", "-f", &file]);
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.err.contains(":4:1: "), "{output:?}");
}

// Goal: a reload retries waiting links immediately and restores a deleted link. Settings by verbs
// are kept until the file changes the same setting.
#[test]
fn a_reload_tries_again() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let (late, netns) = (control.file("late"), world.b.name());
    let bad = format!("[link.late]\na = 'tap:l,netns={}'\nb = 'null:'\n", late.display());
    let file = control.write("mqnet.toml", &(tap_to_tap(&world, "one", 1) + &bad));
    let daemon = control.start(&["daemon", "-f", &file.display().to_string()]);
    control.wait_up("one");
    let output = control.say(&["reload"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.out.contains("link late waits: tap:l: network namespace"), "{output:?}");
    std::os::unix::fs::symlink(format!("/run/netns/{netns}"), &late).expect("a link");
    control.ok(&["reload"]);
    control.wait_up("late");
    control.ok(&["ethtool", "-L", "onea", "combined", "3"]);
    control.ok(&["del", "late"]);
    control.ok(&["reload"]);
    control.wait_up("late");
    assert_eq!(combined(&control, "onea"), 3);
    daemon.stop();
}
