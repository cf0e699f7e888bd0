//! Refused arguments and peers, with the reasons.

use mqnet_testkit::{Folder, Need, Stream, World, has, run_command, until};

/// Runs a command that must refuse its input with exit code 2. Returns its stderr.
fn refuse(arguments: &[&str]) -> String {
    let folder = Folder::create();
    let output = run_command(folder.program().arg("link").args(arguments));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
    assert!(!text.contains("panicked"), "{arguments:?}: {text}");
    text
}

// Goal: two ends with different MTUs both report both values and the option to change. The link
// comes up when one value is corrected.
#[test]
fn different_mtus_are_refused_on_both_sides() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let a = world.end_a().tap("mtu=9000").spawn();
    let mut b = world.end_b().tap("mtu=1500").spawn();
    for end in [&a, &b] {
        let text = end.wait_down("refused");
        for word in ["9000", "1500", "mtu="] {
            assert!(text.contains(word), "no {word} in: {text}");
        }
    }
    assert_eq!((a.ups(), b.ups()), (0, 0));
    assert!(!world.a.has_carrier("a") && !world.b.has_carrier("b"));
    b.kill();
    let b = world.end_b().tap("mtu=9000").spawn();
    a.wait_up(1);
    b.wait_up(1);
    a.stop().assert_conserved();
    b.stop().assert_conserved();
}

// Goal: an end without a configured MTU uses the peer's MTU.
#[test]
fn an_open_mtu_follows_the_peer() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let a = world.end_a().tap("mtu=9000").spawn();
    let b = world.end_b().spawn();
    a.wait_up(1);
    b.wait_up(1);
    let mtu =
        |host: &mqnet_testkit::Host, device| host.device(device).expect("a TAP")["mtu"].clone();
    assert_eq!((mtu(&world.a, "a"), mtu(&world.b, "b")), (9000.into(), 9000.into()));
    a.stop().assert_conserved();
    b.stop().assert_conserved();
}

// Goal: a window too small for any frame is refused before anything is opened. The error gives a
// size and a number of channels that work.
#[test]
fn an_impossible_window_is_refused_with_numbers() {
    let folder = Folder::create();
    let socket = folder.file("x.sock");
    let bridge = format!("ntb:{},window=64K", socket.display());
    let text = refuse(&["null:", &bridge, "--channels", "64"]);
    assert!(text.contains("window=") && text.contains("--channels"), "{text}");
    assert!(!socket.exists(), "something was opened");
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_digit()).collect();
    assert!(words.iter().any(|n| n.parse::<u32>().is_ok_and(|n| n > 65_536)), "{text}");
}

// Goal: both ends refuse a window that is too small for the peer's MTU, after the handshake.
#[test]
fn a_window_too_small_for_the_peer_is_refused() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let a = world.end_a().tap("mtu=9000").spawn();
    let b = world.end_b().ntb("window=8K").spawn();
    for end in [&a, &b] {
        let text = end.wait_down("refused");
        assert!(text.contains("window=") && text.contains("9000"), "{text}");
    }
    assert_eq!((a.ups(), b.ups()), (0, 0));
}

// Goal: a third process at a socket in use gets a reason, and the two connected processes are not
// affected.
#[test]
fn third_process_is_refused() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end);
    let flow = Stream::start(&world.a, &world.b, "10.0.0.2");
    flow.wait_more(1 << 20);
    let bridge = format!("ntb:{}", world.socket().display());
    let mut third = world.folder().program();
    third.args(["link", "--json", "null:", &bridge]);
    let third = mqnet_testkit::LinkProcess::spawn(third);
    let text = third.wait_down("both ends of this bridge are in use");
    println!("{text}");
    flow.wait_more(1 << 20);
    assert_eq!((pair.a.ups(), pair.b.ups()), (1, 1), "the third process cut the link");
    assert_eq!(third.ups(), 0);
    // The third process retries, and becomes the peer when one of the two processes ends.
    flow.finish();
    pair.b.stop();
    pair.a.wait_up(2);
    third.wait_up(1);
    third.stop().assert_conserved();
    pair.a.stop().assert_conserved();
}

// Goal: the stale socket of a killed process is replaced.
#[test]
fn a_stale_socket_is_replaced() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let mut first = world.end_a().spawn();
    until("it listens", || world.socket().exists().then_some(()));
    first.kill();
    assert!(world.socket().exists(), "a killed process cannot remove its socket");
    world.pair(|end| end).stop();
    until("the socket is removed", || (!world.socket().exists()).then_some(()));
}

// Goal: a file that is not a socket is reported and kept.
#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    std::fs::write(world.socket(), "precious").expect("writing a file");
    let a = world.end_a().spawn();
    let text = a.wait_down("not a socket");
    assert!(text.contains("x.sock"), "{text}");
    a.stop();
    let content = std::fs::read_to_string(world.socket()).expect("the file is still there");
    assert_eq!(content, "precious");
}

// Goal: a missing folder is reported; the link continues as soon as the folder exists.
#[test]
fn a_missing_folder_is_named() {
    let folder = Folder::create();
    let inner = folder.file("inner");
    let bridge = format!("ntb:{}", inner.join("x.sock").display());
    let spawn = || {
        let mut command = folder.program();
        command.args(["link", "--json", "null:", &bridge]);
        mqnet_testkit::LinkProcess::spawn(command)
    };
    let (a, b) = (spawn(), spawn());
    a.wait_down("inner");
    std::fs::create_dir(&inner).expect("a folder");
    a.wait_up(1);
    b.wait_up(1);
    a.stop().assert_conserved();
    b.stop().assert_conserved();
}

// Goal: each invalid argument is refused with exit code 2 and an error that names the cause.
#[test]
fn bad_addresses_are_refused() {
    for (address, word) in [
        ("tap", "no kind"),
        ("tun:a", "unknown kind 'tun'"),
        ("tap:", "interface name"),
        ("tap:a/b", "interface name"),
        ("tap:averylongdevicename", "interface name"),
        ("tap:a,mtu=67", "mtu=67"),
        ("tap:a,mtu=65522", "65521"),
        ("tap:a,mac=01:00:00:00:00:00", "mac="),
        ("tap:a,address=10.0.0.1", "10.0.0.1/24"),
        ("tap:a,address=10.0.0.1/33", "address="),
        ("tap:a,colour=red", "colour=red"),
        ("tap:a,fd=2", "fd=2"),
        ("tap:a,fd=77", "fd=77"),
        ("ntb:", "socket path"),
        ("ntb:x,window=1K", "window=1K"),
        ("ntb:x,window=2Q", "window=2Q"),
        ("ntb:x,mtu=0", "mtu=0"),
        ("null:,x", "'x'"),
    ] {
        let text = refuse(&[address, "null:"]);
        assert!(text.contains(word), "{address}: no {word} in: {text}");
    }
    for arguments in [
        &["null:"][..],
        &["null:", "null:", "--channels", "65"],
        &["null:", "null:", "--channels", "0"],
        &["null:", "null:", "--cpus", "first"],
        &["null:", "null:", "--no-such-option"],
    ] {
        refuse(arguments);
    }
}

// Goal: a failed system call ends the program with exit code 1 and an error that names the object.
#[test]
fn system_errors_name_the_object() {
    if !has(&[Need::Root]) {
        return;
    }
    let folder = Folder::create();
    for (address, word) in [("tap:a,netns=mqt-no-such", "mqt-no-such"), ("tap:lo", "tap:lo")] {
        let output = run_command(folder.program().args(["link", address, "null:"]));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{address}: {text}");
        assert!(text.contains(word) && !text.contains("panicked"), "{address}: {text}");
    }
}
