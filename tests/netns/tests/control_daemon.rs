//! `mqnet daemon`: links from files, one daemon per socket, and detached links.

use std::time::Duration;

use mqnet_testkit::{Control, Datagrams, IdleCost, Need, World, has, resident_kib, until};

const WATCHED: Duration = Duration::from_secs(5);
const SLEEPS_MAX: u64 = 50;
const RESIDENT_MAX_KIB: u64 = 64 << 10;

/// Configuration of the link `name` between a TAP at host a and a TAP at host b, in the network
/// 10.9.`net`.0. The names of the TAPs are `name` with the suffix `a` or `b`.
pub(crate) fn tap_to_tap(world: &World, name: &str, net: u8) -> String {
    let (a, b) = (world.a.name(), world.b.name());
    format!(
        "[link.{name}]\na = 'tap:{name}a,netns={a},address=10.9.{net}.1/24'\n\
         b = 'tap:{name}b,netns={b},address=10.9.{net}.2/24'\n"
    )
}

/// Configuration of both ends of a bridge, as two links.
fn bridge(world: &World) -> String {
    let (a, b, socket) = (world.a.name(), world.b.name(), world.socket().display().to_string());
    format!(
        "[link.left]\na = 'tap:a,netns={a},address=10.8.0.1/24'\nb = 'ntb:{socket},name=nl'\n\
         [link.right]\na = 'tap:b,netns={b},address=10.8.0.2/24'\nb = 'ntb:{socket},name=nr'\n\
         channels = 2\n"
    )
}

// Goal: the links of the file and of conf.d/ come up and carry traffic. A link that cannot be
// opened waits and is reported with the reason; the other links are not affected.
#[test]
fn the_links_of_the_files_come_up() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let bad = "[link.bad]\na = 'tap:x,netns=no-such-netns'\nb = 'null:'\n";
    let file = control.write("mqnet.toml", &(tap_to_tap(&world, "one", 1) + bad));
    control.write("conf.d/bridge.toml", &bridge(&world));
    let daemon = control.start(&["daemon", "-f", &file.display().to_string()]);
    for link in ["one", "left", "right"] {
        control.wait_up(link);
    }
    assert_eq!(control.links(), ["bad", "left", "one", "right"]);
    let err = daemon.err();
    assert!(err.contains("bad: down: tap:x: network namespace /run/netns/no-such-netns"), "{err}");
    assert!(!err.contains('\x1b'), "colours in a file: {err}");
    ["onea", "a"].iter().for_each(|device| world.a.lengthen(device));
    for address in ["10.9.1.2", "10.8.0.2"] {
        let flow = Datagrams::start(&world.a, &world.b, address, 900, Duration::from_micros(100));
        flow.wait_more(1000);
        let (sent, received) = flow.finish();
        assert_eq!(sent, received, "{address}");
    }
    daemon.stop();
    assert_eq!(control.runtime_files(), [""; 0], "left behind in the runtime directory");
    assert!(world.a.device("onea").is_none(), "a TAP stays after its daemon");
}

// Goal: a second daemon is refused with the pid of the first and changes nothing. After a crash the
// next daemon replaces the stale socket.
#[test]
fn one_daemon_at_a_socket() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let file = control.write("mqnet.toml", &tap_to_tap(&world, "one", 1)).display().to_string();
    let mut first = control.start(&["daemon", "-f", &file]);
    let before = control.wait_up("one");
    let second = control.say(&["daemon", "-f", &file]);
    assert_eq!(second.code, Some(1), "{second:?}");
    let who = format!("in use by mqnet process {}", first.pid());
    assert!(second.err.contains(&who) && second.err.lines().count() == 1, "{second:?}");
    let after = control.wait_up("one");
    assert_eq!(before["netdevs"], after["netdevs"], "the first daemon's link was touched");
    first.kill();
    assert!(control.runtime("ctl.sock").exists(), "a killed process cannot clean up");
    let output = control.say(&["show"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(!control.runtime("ctl.sock").exists(), "a stale socket is left");
    let third = control.start(&["daemon", "-f", &file]);
    control.wait_up("one");
    third.stop();
}

// Goal: a TAP of a running link is refused, in the same process and in another, because a second
// link would receive frames in place of the first.
#[test]
fn a_tap_has_one_owner() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let file = control.write("mqnet.toml", &tap_to_tap(&world, "one", 1)).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("one");
    world.a.lengthen("onea");
    let flow = Datagrams::start(&world.a, &world.b, "10.9.1.2", 400, Duration::from_micros(200));
    flow.wait_more(100);
    let tap = format!("tap:onea,netns={}", world.a.name());
    let (add, foreground) = (["add", "two", &tap, "null:"], ["link", &tap, "null:"]);
    for (words, reason) in [
        (&add[..], "link 'one' has a netdev 'onea' already"),
        (&foreground[..], "tap:onea: the device is in use by another program"),
    ] {
        let output = control.say(words);
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.err.contains(reason) && output.err.lines().count() == 1, "{output:?}");
    }
    assert_eq!(control.links(), ["one"]);
    flow.wait_more(100);
    let (sent, received) = flow.finish();
    assert_eq!(sent, received, "the refused took frames");
    daemon.stop();
}

// Goal: `add` and `del` create and delete links. Any number of links may end in `null:`.
#[test]
fn links_are_added_and_deleted() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let file = control.write("mqnet.toml", "").display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    until("the daemon", || control.runtime("ctl.sock").exists().then_some(()));
    for name in ["p", "q"] {
        let tap = format!("tap:{name},netns={}", world.a.name());
        control.ok(&["add", name, &tap, "null:", "--channels", "2"]);
        assert_eq!(control.wait_up(name)["channels"], 2);
    }
    let show = control.json(&["show", "--json"]);
    let nulls: Vec<&str> = [0, 1].map(|i| show[i]["netdevs"][1]["name"].as_str().unwrap()).into();
    assert_eq!(nulls, ["null", "null1"]);
    control.ok(&["del", "p"]);
    assert_eq!(control.links(), ["q"]);
    assert!(world.a.device("p").is_none() && world.a.device("q").is_some());
    let output = control.say(&["del", "p"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_eq!(output.err, "mqnet: no running mqnet has a link or device `p`\n");
    daemon.stop();
}

// Goal: `--detach` without a daemon leaves a process in its own session, which answers requests and
// has a log file. If the link cannot be opened, the reason is reported. With a daemon, the daemon
// owns the link.
#[test]
fn a_detached_link_lives_on() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let netns = world.a.name();
    let (tap, bad) = (format!("tap:d,netns={netns}"), "tap:d,netns=no-such-netns");
    let output = control.say(&["link", bad, "null:", "--detach"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.starts_with("mqnet: tap:d: network namespace /run/netns/no"), "{output:?}");
    assert_eq!(control.runtime_files(), [""; 0]);
    let out = control.ok(&["link", &tap, "null:", "--detach"]);
    let words: Vec<&str> = out.split_whitespace().collect();
    let pid: u32 = words[2].trim_end_matches(',').parse().expect("a pid");
    assert_eq!((words[0], words[1], words[3]), ("d:", "pid", "log"), "{out}");
    assert!(std::path::Path::new(words[4]).is_file(), "{out}");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields: Vec<&str> = stat.split_whitespace().collect();
    assert_eq!(fields[5], pid.to_string(), "no session of its own: {stat}");
    assert_ne!(fields[3], std::process::id().to_string(), "still our child: {stat}");
    control.wait_up("d");
    control.ok(&["del", "d"]);
    until("its end", || (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(()));

    let file = control.write("mqnet.toml", "").display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    until("the daemon", || control.runtime("ctl.sock").exists().then_some(()));
    let out = control.ok(&["link", &tap, "null:", "--detach"]);
    assert_eq!(out, format!("d: handed to the daemon, pid {}\n", daemon.pid()));
    control.wait_up("d");
    daemon.stop();
}

// Goal: a foreground link answers requests, and deleting it ends the process after the response.
#[test]
fn a_foreground_link_can_be_deleted() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let tap = format!("tap:f,netns={}", world.a.name());
    for _ in 0..10 {
        let mut link = control.start(&["link", &tap, "null:"]);
        control.wait_up("f");
        control.ok(&["del", "f"]);
        let status = link.wait();
        assert!(status.success(), "{status}: {}", link.err());
        assert_eq!(control.runtime_files(), [""; 0]);
    }
    let link = control.start(&["link", &tap, "null:"]);
    control.wait_up("f");
    let output = control.say(&["add", "g", "tap:g", "null:"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("start 'mqnet daemon'"), "{output:?}");
    link.stop();
}

// Goal: an idle daemon with two links uses little CPU time; the amount is printed.
#[test]
fn an_idle_daemon_is_cheap() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let text = tap_to_tap(&world, "one", 1) + &tap_to_tap(&world, "two", 2);
    let file = control.write("mqnet.toml", &text).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("one");
    control.wait_up("two");
    // Wait for the end of neighbour discovery on the new devices.
    std::thread::sleep(Duration::from_secs(3));
    let cost = IdleCost::measure(daemon.pid(), WATCHED);
    let resident = resident_kib(daemon.pid());
    println!("idle daemon: {cost:?}, {resident} KiB resident");
    cost.assert_below(SLEEPS_MAX);
    assert!(resident < RESIDENT_MAX_KIB, "{resident} KiB resident");
    daemon.stop();
}
