//! systemd integration of the daemon: notifications, socket activation, and the capabilities of its
//! unit.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use mqnet_sysio::process;
use mqnet_testkit::{Control, Datagrams, Need, World, captured, has, until};

use crate::control_daemon::tap_to_tap;

/// Waits for a notification to the service manager that contains `words`; returns its text.
#[track_caller]
fn told(manager: &UnixDatagram, words: &str) -> String {
    until(words, || {
        let mut buffer = [0; 4096];
        let n = manager.recv(&mut buffer).ok()?;
        let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
        text.contains(words).then_some(text)
    })
}

// Goal: READY is sent as soon as the links exist and the socket answers. The watchdog is notified,
// RELOADING and READY enclose a reload, and STOPPING is sent at the end.
#[test]
fn service_manager_is_notified() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let file = control.write("mqnet.toml", &tap_to_tap(&world, "one", 1)).display().to_string();
    let path = control.file("notify.sock");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let mut command = control.command(&["daemon", "-f", &file]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000");
    let daemon = control.spawn(command);
    let ready = told(&manager, "READY=1");
    assert!(ready.contains("STATUS=1 links") || ready.contains("STATUS=1 link"), "{ready}");
    let show = control.say(&["show"]);
    assert!(show.out.contains("link one: "), "{show:?}");
    for _ in 0..5 {
        told(&manager, "WATCHDOG=1");
    }
    process::hang_up(daemon.pid()).expect("SIGHUP");
    let reloading = told(&manager, "RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    told(&manager, "READY=1");
    daemon.stop();
    told(&manager, "STOPPING=1");
}

// Goal: the daemon serves a socket inherited from systemd; the first client starts the daemon and
// gets a response.
#[test]
fn socket_of_systemd_is_served() {
    if !has(&[Need::Root, Need::Program("systemd-socket-activate")]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let file = control.write("mqnet.toml", &tap_to_tap(&world, "one", 1)).display().to_string();
    let socket = control.runtime("ctl.sock").display().to_string();
    let program = mqnet_testkit::program().display().to_string();
    let runtime = format!("MQNET_RUNTIME_DIR={}", control.file("run").display());
    let mut command = std::process::Command::new("systemd-socket-activate");
    command.args(["-l", &socket, "-E", &runtime, &program, "daemon", "-f", &file]);
    let daemon = control.spawn(command);
    until("the socket", || control.runtime("ctl.sock").exists().then_some(()));
    until("an answer", || (control.links() == ["one"]).then_some(()));
    control.wait_up("one");
    daemon.stop();
}

// Goal: the two capabilities of the unit suffice for a TAP link and its resize.
#[test]
fn two_capabilities_are_enough() {
    if !has(&[Need::Root, Need::Program("setpriv")]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let text = "[link.cap]\na = 'tap:cap,address=10.0.0.1/24'\nb = 'null:'\nchannels = 2\n";
    let file = control.write("mqnet.toml", text).display().to_string();
    let daemon = control.command_at(&world.a, &["daemon", "-f", &file]);
    // The command enters the namespace with all capabilities, and setpriv then drops all but two.
    let words: Vec<String> =
        daemon.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let at = words.iter().position(|word| word.ends_with(world.a.name())).expect("the name") + 1;
    let mut command = std::process::Command::new(daemon.get_program());
    command.args(&words[..at]).args([
        "setpriv",
        "--bounding-set=-all,+net_admin,+bpf",
        "--inh-caps=-all",
        "--no-new-privs",
    ]);
    command.args(&words[at..]);
    daemon.get_envs().for_each(|(name, value)| {
        value.map(|value| command.env(name, value));
    });
    let daemon = control.spawn(command);
    control.wait_up("cap");
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()));
    let status = status.expect("a process");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t"));
    // Mask of CAP_NET_ADMIN (bit 12) and CAP_BPF (bit 39).
    assert_eq!(effective, Some("0000008000001000"));
    for channels in ["4", "1"] {
        control.ok(&["ethtool", "-L", "cap", "combined", channels]);
        let show = control.json(&["show", "--json", "cap"]);
        assert_eq!(show[0]["channels"].to_string(), channels);
    }
    assert!(control.ok(&["ethtool", "--show-priv-flags", "cap"]).contains("flow-steering: on"));
    let output = captured(&mut control.command_at(&world.a, &["ethtool", "-i", "cap"]));
    assert_eq!(output.code, Some(0), "{output:?}");
    let flow = Datagrams::start(&world.a, &world.a, "10.0.0.1", 100, Duration::from_millis(1));
    flow.wait_more(10);
    flow.finish();
    daemon.stop();
}
