//! Observation of running links: captures, why, top, monitor, metrics.

use std::time::Duration;

use mqnet_sysio::process;
use mqnet_testkit::{
    Control, Datagrams, Need, World, captured, has, run_command, until, until_still,
};
use serde_json::Value;

use crate::control_daemon::tap_to_tap;

/// Fields of the frames in a capture, decoded by tshark, one line per frame.
fn tshark(file: &str, fields: &[&str]) -> Vec<String> {
    let mut command = std::process::Command::new("tshark");
    command.args(["-r", file, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let printed = captured(&mut command);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    printed.out.lines().map(str::to_owned).collect()
}

// Goal: a capture of a running link continues across a resize, is readable by tshark, contains each
// datagram once, and causes no loss.
#[test]
fn a_capture_goes_on_across_a_resize() {
    if !has(&[Need::Root, Need::Program("tshark")]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let file = control.write("mqnet.toml", &tap_to_tap(&world, "one", 1)).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("one");
    world.a.lengthen("onea");
    let path = control.file("x.pcapng");
    let file = path.display().to_string();
    let capture = control.start(&["capture", "onea", "-w", &file]);
    until("the capture", || path.exists().then_some(()));
    let flow = Datagrams::start(&world.a, &world.b, "10.9.1.2", 333, Duration::from_micros(500));
    flow.wait_more(300);
    for channels in ["4", "1", "3"] {
        control.ok(&["ethtool", "-L", "onea", "combined", channels]);
        flow.wait_more(300);
    }
    let (sent, received) = flow.finish();
    assert_eq!(sent, received);
    until_still(&path);
    capture.stop();
    let lines = tshark(&file, &["udp.length", "frame.len"]);
    let ours = lines.iter().filter(|line| line.as_str() == "341\t375").count() as u64;
    println!("{sent} datagrams, {ours} in the capture");
    assert_eq!(ours, sent);
    daemon.stop();
}

// Goal: a capture of drops contains the dropped frames and the reasons.
#[test]
fn drops_are_captured_with_their_reason() {
    if !has(&[Need::Root, Need::Program("tshark")]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let file = control.write("mqnet.toml", &tap_to_tap(&world, "one", 1)).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("one");
    let flow = Datagrams::start(&world.a, &world.b, "10.9.1.2", 333, Duration::from_millis(1));
    flow.wait_more(100);
    let file = control.file("d.pcapng").display().to_string();
    let mut capture = control.start(&["capture", "oneb", "--drops", "-c", "50", "-w", &file]);
    until("the capture", || std::path::Path::new(&file).exists().then_some(()));
    world.b.run(&["ip", "link", "set", "oneb", "down"]);
    assert!(capture.wait().success(), "{}", capture.err());
    flow.finish();
    let comments = tshark(&file, &["frame.comment"]);
    assert_eq!(comments.len(), 50);
    assert!(comments.iter().all(|comment| comment.contains("device-down")), "{comments:?}");
    let stats = control.json(&["stats", "--json", "one"]);
    let drops = &stats[0]["a-to-b"]["drops"];
    assert_eq!(drops[0]["reason"], "device-down", "{stats}");
    assert!(drops[0]["frames"].as_u64() >= Some(50), "{drops}");
    daemon.stop();
}

// Goal: with a frozen peer under load, `why` reports the stopped queue, the time since the stop,
// the stall reason and the remedy. A process that does not answer does not delay the output for
// others.
#[test]
fn why_names_a_frozen_peer() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let end = |end: mqnet_testkit::EndSpec| {
        let words = end.ntb("window=256K").command();
        let words: Vec<_> = words.get_args().map(|w| w.to_string_lossy().into_owned()).collect();
        control.start(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (a, b) = (end(world.end_a()), end(world.end_b()));
    control.wait_up("a");
    control.wait_up("b");
    assert!(control.ok(&["why", "a"]).contains("nothing is stopped"));
    let flow = Datagrams::start(&world.a, &world.b, "10.0.0.2", 1400, Duration::from_micros(20));
    flow.wait_more(100);
    process::freeze(b.pid()).expect("SIGSTOP");
    let report = until("a stopped queue", || {
        let report = control.json(&["why", "--json", "a"]);
        let for_ns = report[0]["stopped"][0]["for-ns"].as_u64()?;
        (for_ns > 1_000_000_000).then_some(report)
    });
    let stopped = &report[0]["stopped"][0];
    assert_eq!((&stopped["from"], &stopped["to"]), (&"a".into(), &"x".into()), "{report}");
    assert!(stopped["by"].as_str().is_some_and(|by| by.contains("peer")), "{report}");
    let text = control.ok(&["why", "a"]);
    assert!(text.contains("kill -CONT"), "{text}");
    let all = control.say(&["show"]);
    assert!(all.err.contains("did not answer within 5 s"), "{all:?}");
    process::thaw(b.pid()).expect("SIGCONT");
    until("it goes on", || control.ok(&["why", "a"]).contains("nothing is stopped").then_some(()));
    flow.finish();
    b.stop();
    a.stop();
}

// Goal: `monitor` prints each event when it occurs, with its link and subject.
#[test]
fn events_come_as_they_happen() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let file = control.write("mqnet.toml", "").display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    until("the daemon", || control.runtime("ctl.sock").exists().then_some(()));
    let mut monitor = control.start(&["monitor", "--json"]);
    let event = |kind: &str, words: &str| -> Value {
        until(kind, || {
            let out = monitor.out();
            let all = out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut all = all.filter(|e| e["event"] == kind && e["link"] == "m");
            all.find(|event| event["text"].as_str().is_some_and(|text| text.contains(words)))
        })
    };
    let tap = format!("tap:m,netns={}", world.a.name());
    let ntb = format!("ntb:{}", world.socket().display());
    control.ok(&["add", "m", &tap, &ntb, "-c", "4"]);
    event("link-add", "tap:m");
    event("link-down", "waiting for a peer");
    let words = ["link", "null:", &ntb, "-c", "4"];
    let mut peer = control.start(&words);
    event("link-up", "4 channels");
    control.ok(&["ethtool", "-L", "m", "combined", "2"]);
    event("link-changed", "2 channels, mtu 1500, changed in ");
    peer.kill();
    event("link-down", "peer");
    control.ok(&["del", "m"]);
    event("link-del", "");
    monitor.kill();
    daemon.stop();
}

// Goal: Prometheus text is served on the socket and over TCP with the same counters, and TCP serves
// nothing else.
#[test]
fn metrics_are_served() {
    if !has(&[Need::Root, Need::Program("curl")]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        free.local_addr().expect("an address").port()
    };
    let text = format!("[daemon]\nmetrics = '127.0.0.1:{port}'\n{}", tap_to_tap(&world, "one", 1));
    let file = control.write("mqnet.toml", &text).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("one");
    let socket = control.runtime("ctl.sock").display().to_string();
    let curl = |words: &[&str]| {
        let output = run_command(std::process::Command::new("curl").args(["-sSf"]).args(words));
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned() + &err)
    };
    let local = curl(&["--unix-socket", &socket, "http://x/metrics"]);
    let url = format!("http://127.0.0.1:{port}");
    let remote = curl(&[&format!("{url}/metrics")]);
    for (ok, text) in [&local, &remote] {
        assert!(ok, "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            assert!(name.starts_with("mqnet_") && value.parse::<f64>().is_ok(), "{line}");
        }
    }
    let names = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
    };
    let samples = |text: &str| names(text).into_iter().filter(|name| !name.starts_with('#'));
    assert!(samples(&local.1).eq(samples(&remote.1)));
    let (ok, text) = curl(&[&format!("{url}/v1/links")]);
    assert!(!ok && text.contains("404"), "{text}");
    daemon.stop();
}

// Goal: verbs without a device argument succeed and print the expected text.
#[test]
fn views_without_a_device_work() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let file = control.write("mqnet.toml", &tap_to_tap(&world, "one", 1)).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("one");
    let top = control.ok(&["top", "--once"]);
    assert!(top.starts_with("mqnet top  2 lanes"), "{top}");
    assert!(top.lines().all(|line| line.chars().count() <= 80), "{top}");
    let stats = control.ok(&["stats"]);
    assert_eq!(stats.matches("[holds]").count(), 2, "{stats}");
    assert!(control.ok(&["doctor"]).contains("/dev/net/tun"));
    for (shell, check) in [("bash", true), ("zsh", false), ("fish", false)] {
        let script = control.ok(&["completions", shell]);
        assert!(script.contains("mqnet") && script.contains("poll-window"), "{shell}");
        let file = control.write(shell, &script).display().to_string();
        if check || has(&[Need::Program(shell)]) {
            let printed = captured(std::process::Command::new(shell).args(["-n", &file]));
            assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""), "{shell}");
        }
    }
    let folder = control.file("man").display().to_string();
    control.ok(&["man", "--out", &folder]);
    let pages = std::fs::read_dir(&folder).expect("a folder").count();
    assert!(pages > 15, "{pages} man pages");
    daemon.stop();
}
