//! Links that cannot be opened yet, bridges without a far end, and a third end at a bridge's
//! socket.

use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use mqnet_testkit::{Control, LinkProcess, Need, World, has, until};
use serde_json::Value;

fn shown(control: &Control, link: &str) -> Option<Value> {
    // The daemon may not answer yet.
    let links: Vec<Value> = serde_json::from_str(&control.say(&["show", "--json"]).out).ok()?;
    links.into_iter().find(|one| one["name"] == link)
}

/// Starts a process with one link.
fn link(world: &World, words: &[&str]) -> LinkProcess {
    let mut program = world.folder().program();
    program.args(["link", "--json"]).args(words);
    LinkProcess::spawn(program)
}

// Goal: a link with a missing namespace is in `show` and in the metrics from the start, down with
// the reason and the time of the next attempt. The link comes up without a command, follows a new
// namespace of that name, and can be deleted while it waits.
#[test]
fn link_waits_for_its_namespace() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let late = control.file("late");
    let text = |name: &str, path: &str| {
        format!("[link.{name}]\na = 'tap:{name},netns={path}'\nb = 'null:'\nchannels = 2\n")
    };
    let text = text("l", &late.display().to_string()) + &text("m", "/nonexistent/mqnet");
    let file = control.write("mqnet.toml", &text).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    let waiting = until("the link", || shown(&control, "l"));
    assert_eq!(waiting["state"], "down", "{waiting}");
    assert!(waiting["reason"].as_str().is_some_and(|why| why.contains("network namespace")));
    assert!(waiting["next-attempt-ms"].as_u64().is_some(), "{waiting}");
    let text = control.ok(&["show", "l"]);
    assert!(text.contains("link l: down (tap:l: network namespace"), "{text}");
    assert!(text.contains("; next attempt in "), "{text}");
    // Settings made while the link waits apply as soon as it is up.
    control.ok(&["ethtool", "-L", "l", "combined", "3"]);
    symlink(format!("/run/netns/{}", world.a.name()), &late).expect("a link");
    assert_eq!(control.wait_up("l")["channels"], 3);
    assert!(world.a.device("l").is_some());
    daemon.wait_err("l: up, 3 channels");
    std::fs::remove_file(&late).expect("the link");
    symlink(format!("/run/netns/{}", world.b.name()), &late).expect("a link");
    until("the device in the other namespace", || world.b.device("l"));
    assert!(world.a.device("l").is_none(), "the device in the first namespace stays");
    let up = control.wait_up("l");
    assert_eq!(up["channels"], 3);
    assert!(up["next-attempt-ms"].is_null(), "{up}");
    control.ok(&["del", "m"]);
    assert_eq!(control.links(), ["l"]);
    // The namespace no longer exists, so the reload makes the link wait again.
    control.ok(&["reload"]);
    let begin = Instant::now();
    daemon.stop();
    assert!(begin.elapsed() < Duration::from_secs(8), "the end waited for an attempt");
}

// Goal: `add` of a link that cannot be opened fails with the reason and leaves no link.
#[test]
fn link_added_by_hand_does_not_wait() {
    if !has(&[Need::Root]) {
        return;
    }
    let control = Control::create();
    let file = control.write("mqnet.toml", "").display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    until("the daemon", || control.runtime("ctl.sock").exists().then_some(()));
    let printed = control.say(&["add", "x", "tap:x,netns=/nonexistent/mqnet", "null:"]);
    assert_eq!(printed.code, Some(1), "{printed:?}");
    assert!(printed.err.contains("network namespace /nonexistent/mqnet"), "{printed:?}");
    assert!(control.links().is_empty());
    daemon.stop();
}

// Goal: a TAP that is linked to a bridge has a carrier only while the far end's other netdev is up.
// The link reports the missing netdev as its reason. Frames sent without carrier do not arrive
// later.
#[test]
fn carrier_follows_the_far_side() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let bridge = format!("ntb:{}", world.socket().display());
    let (a, b) = (world.a.name().to_owned(), world.b.name().to_owned());
    let far = link(&world, &[&format!("xdp:far,netns={b}"), &bridge]);
    let tap = format!("tap:near,netns={a},address=10.7.0.1/24");
    let near = link(&world, &[&tap, &bridge]);
    let why = near.wait_down("the partner of the other end is down: ");
    assert!(why.contains("there is no interface far"), "{why}");
    std::thread::sleep(Duration::from_millis(300));
    assert!(!world.a.has_carrier("near"), "a carrier with nothing behind the far end");
    assert_eq!(near.ups(), 0);
    world.b.run(&["ip", "link", "add", "far", "type", "veth", "peer", "name", "peer"]);
    world.b.run(&["ip", "link", "set", "peer", "up"]);
    world.b.run(&["ip", "link", "set", "far", "up"]);
    near.wait_up(1);
    far.wait_up(1);
    until("the carrier", || world.a.has_carrier("near").then_some(()));
    world.b.run(&["ip", "link", "set", "peer", "down"]);
    until("no carrier", || (!world.a.has_carrier("near")).then_some(()));
    near.wait_down("far has no carrier");
    world.b.run(&["ip", "link", "set", "peer", "up"]);
    near.wait_up(2);
    far.stop().assert_conserved();
    near.stop().assert_conserved();
}

// Goal: a third end is notified once that both ends are in use, and becomes the peer when one of
// them ends.
#[test]
fn third_end_is_notified_once() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let bridge = format!("ntb:{}", world.socket().display());
    let (first, second) = (link(&world, &["null:", &bridge]), link(&world, &["null:", &bridge]));
    first.wait_up(1);
    second.wait_up(1);
    let third = link(&world, &["null:", &bridge]);
    third.wait_down("both ends of this bridge are in use");
    std::thread::sleep(Duration::from_secs(2));
    let downs = third.downs();
    assert!(downs.len() <= 3, "{downs:?}");
    second.stop();
    third.wait_up(1);
    third.stop();
    first.stop();
}

// Goal: each listening socket has the permissions given in its address.
#[test]
fn sockets_have_the_permissions_of_their_address() {
    use std::os::unix::fs::MetadataExt;
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    for (kind, option) in [("vhost-user", ""), ("virtio-user", ",server"), ("ntb", "")] {
        let path = world.file(&format!("{kind}.sock"));
        let address = format!("{kind}:{}{option},mode=0606,group=65533", path.display());
        let link = link(&world, &["null:", &address]);
        until("the socket has its permissions", || {
            let data = std::fs::metadata(&path).ok()?;
            ((data.mode() & 0o777, data.gid()) == (0o606, 65_533)).then_some(())
        });
        link.stop();
    }
}

// Goal: a relative path in `add` is resolved in the working directory of the user, not of the
// daemon.
#[test]
fn relative_paths_are_the_users() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let file = control.write("mqnet.toml", "").display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    until("the daemon", || control.runtime("ctl.sock").exists().then_some(()));
    let mut add = control.command(&["add", "x", "vhost-user:relative.sock", "null:"]);
    let printed = mqnet_testkit::captured(add.current_dir(world.folder().file(".")));
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(world.folder().file("relative.sock").exists(), "it is elsewhere");
    daemon.stop();
}

// Goal: `why` and `show` report recent drops with the option to change.
#[test]
fn recent_drops_are_reported() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end);
    world.b.run(&["ip", "link", "set", "dev", "b", "down"]);
    world.a.run(&["ip", "neigh", "replace", "10.0.0.2", "lladdr", "02:00:00:00:00:02", "dev", "a"]);
    for verb in ["why b", "show b"] {
        until("the drops are reported", || {
            let _ =
                world.a.command(&["ping", "-c", "2", "-i", "0.1", "-W", "1", "10.0.0.2"]).output();
            let out = world.ask(verb).out;
            out.contains("dropped: device-down (ip link set b up)").then_some(())
        });
    }
    pair.stop();
}
