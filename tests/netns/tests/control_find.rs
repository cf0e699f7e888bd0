//! Selection of the process for a verb, and the errors if no process or several have the device.

use mqnet_testkit::{Control, Need, World, captured, has, run_command};

/// Verbs that need a running process, with the placeholder `DEV` for a device.
const VERBS: [&[&str]; 8] = [
    &["show", "DEV"],
    &["stats", "DEV"],
    &["top", "--once", "DEV"],
    &["why", "DEV"],
    &["capture", "DEV"],
    &["ethtool", "-i", "DEV"],
    &["set", "DEV", "channels", "2"],
    &["del", "DEV"],
];

fn verb<'a>(words: &[&'a str], dev: &'a str) -> Vec<&'a str> {
    words.iter().map(|word| if *word == "DEV" { dev } else { *word }).collect()
}

// Goal: when two processes have a device of the same name, every verb fails with an error that
// names both sockets; `--control` selects one process.
#[test]
fn two_claims_are_an_error() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let taps = [&world.a, &world.b].map(|host| format!("tap:same,netns={}", host.name()));
    let both = taps.each_ref().map(|tap| control.start(&["link", tap, "null:", "-c", "3"]));
    let sockets = both.each_ref().map(|link| {
        let socket = control.runtime(&format!("link-{}.sock", link.pid())).display().to_string();
        mqnet_testkit::until("its socket", || {
            (control.say(&["--control", &socket, "show"]).code == Some(0)).then_some(())
        });
        socket
    });
    for words in VERBS {
        // Retry if a read verb succeeds, because on a busy machine one process may answer too late.
        // `set` and `del` are not retried, because they would change settings.
        let output = mqnet_testkit::until("both claims", || {
            let output = control.say(&verb(words, "same"));
            (output.code != Some(0) || ["set", "del"].contains(&words[0])).then_some(output)
        });
        assert!(output.code.is_some_and(|code| code != 0 && code != 2), "{words:?}: {output:?}");
        assert_eq!(output.err.lines().count(), 1, "{words:?}: {output:?}");
        for (link, socket) in both.iter().zip(&sockets) {
            let who = format!("pid {} ({socket})", link.pid());
            assert!(output.err.contains(&who), "{words:?}: {output:?}");
        }
        assert!(output.err.contains("--control SOCKET"), "{words:?}: {output:?}");
    }
    assert_eq!(control.say(&["show", "same"]).code, Some(1));
    control.ok(&["--control", &sockets[1], "set", "same", "channels", "2"]);
    for (socket, channels) in sockets.iter().zip([3, 2]) {
        let show = control.json(&["--control", socket, "show", "same", "--json"]);
        assert_eq!(show[0]["channels"], channels, "{socket}");
    }
    // Without a device name, `stats` reports the links of both processes with their own counters.
    let stats = control.json(&["stats", "--json"]);
    let channels = |link: &serde_json::Value| link["channels"].as_array().map(Vec::len);
    let mut all: Vec<_> = stats.as_array().expect("links").iter().map(channels).collect();
    all.sort_unstable();
    // Counters of a channel remain after the channel is removed.
    assert_eq!(all, [Some(3), Some(3)], "{stats}");
    assert_eq!(stats[0]["link"], stats[1]["link"], "{stats}");
    let active = |link: &serde_json::Value| {
        let channels = link["channels"].as_array().expect("channels").iter();
        channels.filter(|channel| channel["active"] == true).count()
    };
    let sum: usize = stats.as_array().expect("links").iter().map(active).sum();
    assert_eq!(sum, 5, "{stats}");
    let top = control.ok(&["top", "--once"]);
    assert!(top.starts_with("mqnet top  10 lanes"), "five channels, two ways: {top}");
    // In a namespace with a device named `same`, both kinds of verb select this device.
    for (host, channels) in [(&world.a, "3"), (&world.b, "2")] {
        let output = captured(&mut control.command_at(host, &["show", "same", "--json"]));
        assert!(output.out.contains(&format!("\"channels\": {channels},")), "{output:?}");
        let output =
            mqnet_testkit::captured(&mut control.command_at(host, &["ethtool", "-l", "same"]));
        assert!(output.out.ends_with(&format!("Combined:\t{channels}\n")), "{output:?}");
    }
    for link in both {
        link.stop();
    }
}

/// Goal: when one daemon has two devices of the same name, a verb selects the one in the caller's
/// network namespace. In other namespaces the verb fails and names both.
#[test]
fn the_callers_namespace_decides_within_one_daemon() {
    if !has(&[Need::Root]) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let link = |name: &str, netns: &str, channels: u32| {
        format!("[link.{name}]\na = 'tap:same,netns={netns}'\nb = 'null:'\nchannels = {channels}\n")
    };
    let text = link("one", world.a.name(), 3) + &link("two", world.b.name(), 2);
    let file = control.write("mqnet.toml", &text).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("one");
    control.wait_up("two");
    for (host, channels) in [(&world.a, "3"), (&world.b, "2")] {
        let output = captured(&mut control.command_at(host, &["show", "same", "--json"]));
        assert!(output.out.contains(&format!("\"channels\": {channels},")), "{output:?}");
        let output =
            mqnet_testkit::captured(&mut control.command_at(host, &["ethtool", "-l", "same"]));
        assert!(output.out.ends_with(&format!("Combined:\t{channels}\n")), "{output:?}");
    }
    // A change affects only the caller's device.
    let words = ["ethtool", "-L", "same", "combined", "4"];
    let output = captured(&mut control.command_at(&world.b, &words));
    assert_eq!(output.code, Some(0), "{output:?}");
    for (name, channels) in [("one", 3), ("two", 4)] {
        assert_eq!(control.json(&["show", name, "--json"])[0]["channels"], channels, "{name}");
    }
    for words in [&["ethtool", "-l", "same"][..], &["show", "same"]] {
        let output = control.say(words);
        assert_ne!(output.code, Some(0), "{output:?}");
        for name in ["one", "two"] {
            assert!(output.err.contains(name), "{words:?}: {output:?}");
        }
    }
    daemon.stop();
}

// Goal: without a running mqnet each verb fails with one line and exit code 1; `mqnet ethtool` has
// the exit code and text of the original ethtool.
#[test]
fn missing_process_is_reported() {
    let control = Control::create();
    for words in VERBS {
        let output = control.say(&verb(words, "none"));
        let real = words[0] == "ethtool";
        assert_eq!(output.code, Some(if real { 71 } else { 1 }), "{words:?}: {output:?}");
        assert_eq!(
            (output.out.as_str(), output.err.lines().count()),
            ("", 1),
            "{words:?}: {output:?}"
        );
        assert!(output.err.contains("`none`") || real, "{words:?}: {output:?}");
    }
    for words in [&["show"][..], &["stats"], &["top", "--once"], &["monitor"], &["reload"]] {
        let output = control.say(words);
        assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "{words:?}: {output:?}");
        assert!(output.err.starts_with("mqnet: no mqnet "), "{words:?}: {output:?}");
        assert_eq!(output.err.lines().count(), 1, "{words:?}: {output:?}");
    }
    let path = control.file("no.sock").display().to_string();
    let output = control.say(&["--control", &path, "stats", "x"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("there is no such socket: is mqnet running?"), "{output:?}");
}

/// Goal: for an unknown device, text and exit code are those of the installed ethtool, except for
/// the suffix with the offset in its netlink request.
#[test]
fn unknown_device_is_reported_like_ethtool() {
    if !has(&[Need::Program("ethtool")]) {
        return;
    }
    let control = Control::create();
    for flag in ["-l", "-g", "-c", "-k", "-i", "-S", "-x", "--show-priv-flags"] {
        let real = run_command(std::process::Command::new("ethtool").args([flag, "mq-none"]));
        let output = control.say(&["ethtool", flag, "mq-none"]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(output.code, real.status.code(), "{flag}");
        let err = text(&real.stderr).replace(" (offset 24)", "");
        assert_eq!((output.out, output.err), (text(&real.stdout), err), "{flag}");
    }
}
