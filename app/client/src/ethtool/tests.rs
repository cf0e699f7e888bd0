//! Comparison with recordings of the real ethtool 6.1 (see `tests/golden/ethtool/README.md`).

mod fake;
pub(crate) mod golden;

use std::path::PathBuf;

use mqnet_control_api::{ApiError, Code};
use proptest::prelude::*;

use super::{EthtoolArgs, VERBS, run};
use crate::api::Api;
use fake::World;
use golden::Case;

pub(super) fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/ethtool"))
}

fn cases(name: &str) -> Vec<Case> {
    golden::read(&std::fs::read_to_string(folder().join(name)).unwrap())
}

/// Output of mqnet for one command line.
fn ours(world: &World, args: &[String]) -> Case {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let find = |dev: &str| -> Result<Box<dyn Api>, ApiError> { world.find(dev) };
    let args = EthtoolArgs { args: args.to_vec() };
    let exit = run(&args, &find, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Case { args: args.args, out: text(out), err: text(err), exit }
}

/// Recording without the offsets of rejected netlink attributes, which mqnet does not print.
fn without_offsets(case: &Case) -> Case {
    let line = |line: &str| match line.split_once(" (offset ") {
        Some((message, _)) if line.starts_with("netlink error: ") => format!("{message}\n"),
        _ => line.to_owned(),
    };
    Case { err: case.err.split_inclusive('\n').map(line).collect(), ..case.clone() }
}

fn compare(name: &str) {
    let world = World::new();
    let cases: Vec<Case> = cases(name).iter().map(without_offsets).collect();
    assert!(cases.len() > 10, "{name} has only {} commands", cases.len());
    let wrong: Vec<String> = cases
        .iter()
        .map(|want| (want, ours(&world, &want.args)))
        .filter(|(want, got)| *want != got)
        .map(|(want, got)| format!("want {want:#?}\ngot {got:#?}"))
        .collect();
    assert!(wrong.is_empty(), "{name}: {} differ\n{}", wrong.len(), wrong.join("\n"));
}

// Goal: every malformed command line, and every verb on a device that does not exist, has the
// output of the real ethtool, byte for byte.
#[test]
fn command_lines_as_the_real_one() {
    compare("parse.txt");
}

// Goal: for a veth device, the output of features, counters, driver and unsupported verbs equals
// the recording byte for byte.
#[test]
fn veth_as_the_real_one() {
    compare("veth.txt");
}

// Goal: for a TAP and the loopback device, which have fixed or unavailable features, the output of
// the same verbs equals the recording byte for byte.
#[test]
fn tap_and_loopback_as_the_real_one() {
    compare("tap.txt");
}

// Goal: for a device with combined channels, the output of channels, rings and coalescing equals
// the recording byte for byte.
#[test]
fn virtio_as_the_real_one() {
    compare("virtio.txt");
}

// Goal: for a device with 4 rings and 16 buckets, the output of the RSS verbs equals the recording
// byte for byte.
#[test]
fn rss_as_the_real_one() {
    compare("rss.txt");
}

// Goal: for a device with 4 rings and 64 rule locations, adding, printing and deleting rules has
// the recorded output and errors, byte for byte.
#[test]
fn rules_as_the_real_one() {
    compare("nfc.txt");
}

// Goal: output that no available device can show (coalescing of mqnet, private flags, warnings,
// JSON of later versions) matches the handwritten recording.
#[test]
fn the_rest_as_written_down() {
    compare("own.txt");
}

/// Compares a recording with the current output of the real ethtool.
fn repeat(name: &str, setup: &str) {
    let cases = cases(name);
    let real = golden::record(setup, &cases);
    assert_eq!(real.len(), cases.len(), "{name}: the script broke off");
    for (want, got) in cases.iter().zip(&real) {
        assert_eq!(want, got, "{name}: the recording differs from the output of ethtool");
    }
}

// Goal: the recordings match the output of ethtool 6.1, if ethtool 6.1 and a network namespace are
// available. Features depend on the kernel and are compared on the recorded kernel only.
#[test]
fn recordings_are_true() {
    if !golden::real_one_is_here() {
        return;
    }
    repeat("parse.txt", "");
    if golden::kernel().starts_with("6.18.") {
        let setup = "ip link set lo up
            ip link add v0 numtxqueues 4 numrxqueues 4 type veth \
                peer name v1 numtxqueues 4 numrxqueues 4
            ip tuntap add t0 mode tap multi_queue
            ip link add longername123 type veth peer name v2";
        repeat("veth.txt", setup);
        repeat("tap.txt", setup);
    }
}

// Goal: for hundreds of arbitrary argument lists after a verb and an unknown device, output and
// exit code equal those of the real ethtool.
#[test]
fn arbitrary_lines_as_the_real_one() {
    use proptest::strategy::ValueTree;
    if !golden::real_one_is_here() {
        return;
    }
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let names: Vec<&'static str> =
        VERBS.iter().flat_map(|verb| verb.names.iter().copied()).collect();
    let line = (proptest::sample::select(names), proptest::collection::vec(word(), 0..6));
    let mut cases = Vec::new();
    while cases.len() < 300 {
        let (verb, mut args) = line.new_tree(&mut runner).unwrap().current();
        args.splice(0..0, [verb.to_owned(), "nope".to_owned()]);
        if !args.iter().any(|arg| arg.contains(char::is_control)) {
            cases.push(ours(&World::new(), &args));
        }
    }
    // Chunks keep the script within the maximum length of a command line.
    let real = cases.chunks(200).flat_map(|some| golden::record("", some));
    let real: Vec<Case> = real.map(|case| without_offsets(&case)).collect();
    assert_eq!(real.len(), cases.len(), "the script broke off");
    let wrong: Vec<_> = cases
        .iter()
        .zip(&real)
        // The real ethtool crashes on `context` without a number.
        .filter(|(ours, real)| ours != real && real.exit != 139)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// Goal: a command that the client rejects sends no request; an accepted command sends exactly one
// request, with the expected path and body.
#[test]
fn requests_reach_the_device() {
    let world = World::new();
    let sent = |line: &str| {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        ours(&world, &args);
        world.take_sent()
    };
    let none: Vec<(String, serde_json::Value)> = Vec::new();
    for refused in [
        "-L ntb0 combined 65",
        "-L ntb0 combined 0",
        "-L ntb0 rx 1",
        "-G ntb0 rx 4096",
        "-C ntb0 rx-frames 1",
        "-X ntb0 equal 9",
        "-X ntb0 weight 0 0",
        "-X ntb0 hfunc toeplitz equal 2",
        "-K ntb0 nonsense on gro off",
        "--set-priv-flags ntb0 nonsense on",
        "-L ntb0 combined 2 nonsense 1",
    ] {
        assert_eq!(sent(refused), none, "{refused}");
    }
    for (line, what, body) in [
        ("-L ntb0 combined 8", "channels", r#"{"combined":8}"#),
        ("-L ntb0 combined 8 rx 0", "channels", r#"{"combined":8}"#),
        ("-G ntb0 rx 64", "rings", r#"{"rx":64,"tx":null}"#),
        ("-C ntb0 rx-usecs 0x10 tx-frames 3", "coalesce", r#"{"rx-usecs":16,"tx-frames":3}"#),
        ("-X ntb0 default", "rss", r#"{"default":true}"#),
        ("-X ntb0 equal 2", "rss", r#"{"equal":2}"#),
        ("-X ntb0 weight 3 1 0", "rss", r#"{"weights":[3,1]}"#),
        ("-X ntb0 start 1 equal 2", "rss", r#"{"indirection-table":[1,2,1,2,1,2,1,2]}"#),
        ("--set-priv-flags ntb0 full on", "priv-flags", r#"{"flags":{"full":true}}"#),
    ] {
        let sent = sent(line);
        let [(path, got)] = sent.as_slice() else { panic!("{line}: {sent:?}") };
        assert_eq!(path, &format!("/v1/netdevs/ntb0/{what}"), "{line}");
        let want: serde_json::Value = serde_json::from_str(body).unwrap();
        let got = fake::without_nulls(got.clone());
        assert_eq!(got, fake::without_nulls(want), "{line}");
    }
}

// Goal: an error that no kernel returns is printed with mqnet's message, by netlink verbs and by
// ioctl verbs.
#[test]
fn own_reasons_are_printed() {
    let busy = |_: &str| -> Result<Box<dyn Api>, ApiError> {
        Err(ApiError::new(Code::Busy, "two processes have a device 'x': 12 and 34"))
    };
    for line in ["-l x", "-x x", "-S x", "-i x", "-K x gro on", "-X x default"] {
        let args = EthtoolArgs { args: line.split(' ').map(str::to_owned).collect() };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        assert_ne!(run(&args, &busy, &mut out, &mut err), 0, "{line}");
        let err = String::from_utf8(err).unwrap();
        assert!(err.contains("two processes have a device 'x': 12 and 34"), "{line}: {err}");
    }
}

fn word() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> =
        VERBS.iter().flat_map(|verb| verb.names.iter().copied()).collect();
    let words = [
        "--json",
        "v0",
        "eth0",
        "ntb0",
        "sim0",
        "nope",
        "rx",
        "tx",
        "combined",
        "on",
        "off",
        "0",
        "1",
        "64",
        "4294967295",
        "-1",
        "equal",
        "weight",
        "start",
        "default",
        "hkey",
        "hfunc",
        "xor",
        "context",
        "delete",
        "tso",
        "gro",
        "rx-usecs",
        "tx-frames",
        "full",
        "--groups",
        "--sides",
        "",
    ];
    prop_oneof![
        proptest::sample::select(names).prop_map(str::to_owned),
        proptest::sample::select(words.to_vec()).prop_map(str::to_owned),
        ".{0,6}",
    ]
}

proptest! {
    // Goal: no argument vector causes a panic; a command that fails prints an error.
    #[test]
    fn arbitrary_arguments(args in proptest::collection::vec(word(), 0..7)) {
        let case = ours(&World::new(), &args);
        prop_assert!(case.exit == 0 || !case.err.is_empty(), "{case:?}");
    }
}
