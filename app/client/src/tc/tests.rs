//! Comparison with recordings of the real tc, and arbitrary command lines.

mod numbers;
mod world;

use std::process::{Command, Stdio};

use proptest::prelude::*;
use serde_json::{Value, json};

use mqnet_control_api::Code;

use super::*;
use crate::ethtool::tests::golden::{Case, read};
use world::World;

fn cases(file: &str) -> Vec<Case> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tc/");
    read(&std::fs::read_to_string(format!("{folder}{file}")).unwrap())
}

/// Runs a command line against the netdevs of `world` and returns its output and exit code.
fn play(world: &World, args: &[String]) -> Case {
    let find = |dev: &str| world.device(dev);
    let every = || Ok(vec![world.process()]);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let line = TcArgs { args: args.to_vec() };
    let exit = run(&line, &find, &every, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Case { args: args.to_vec(), out: text(out), err: text(err), exit }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn replay(file: &str, world: &World) {
    let cases = cases(file);
    assert!(cases.len() > 15, "{file}");
    for case in cases {
        assert_eq!(play(world, &case.args), case, "{file}: {:?}", case.args);
    }
}

// Goal: lines that tc rejects fail with the error text and exit code of tc.
#[test]
fn malformed_lines_are_refused_as_by_tc() {
    replay("parse.txt", &World::of_numbers());
}

// Goal: the engine's fq_codel, prio, mqprio, drr, flower, matchall, fw, skbedit, police and gact
// are printed as by tc for a kernel, as text and as JSON.
#[test]
fn our_numbers_are_printed_as_by_tc() {
    replay("simulated.txt", &World::of_numbers());
}

// Goal: if the API returns the JSON that `tc -j` recorded for a kernel's qdiscs, mqnet prints the
// recorded text and the recorded JSON.
#[test]
fn numbers_of_a_kernel_are_printed_as_by_tc() {
    let mut world = World::default();
    for dev in ["v0", "v2", "v3"] {
        let args = words(&format!("-s -j qdisc show dev {dev}"));
        let recorded = cases("kernel.txt").into_iter().find(|case| case.args == args).unwrap();
        world.add_json(dev, &recorded.out);
    }
    let recorded = words("-j qdisc show dev v4");
    let recorded = cases("kernel.txt").into_iter().find(|case| case.args == recorded).unwrap();
    world.add_json("v4", &recorded.out);
    replay("kernel.txt", &world);
}

// Goal: the recording of rejected lines matches the installed tc.
#[test]
fn the_recording_of_refusals_is_true() {
    let version = Command::new("tc").arg("-V").stderr(Stdio::null()).output();
    let version = version.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let netns = Command::new("unshare").args(["-Urn", "true"]).stderr(Stdio::null()).status();
    if !version.is_ok_and(|text| text.contains("iproute2-6.1.0"))
        || !netns.is_ok_and(|status| status.success())
    {
        return;
    }
    let setup = "ip tuntap add t1 mode tap || exit";
    for case in cases("parse.txt") {
        let quoted: String = case.args.iter().map(|arg| format!(" '{arg}'")).collect();
        let script = format!("{setup}; exec tc{quoted} </dev/null");
        let real = Command::new("unshare").args(["-Urn", "sh", "-c", &script]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&real.stdout), text(&real.stderr));
        assert_eq!((out, err), (case.out, case.err), "{:?}", case.args);
        assert_eq!(real.status.code(), Some(case.exit.into()), "{:?}", case.args);
    }
}

// Goal: without a device, the qdiscs of every netdev are listed, with the netdev's name at tc's
// position.
#[test]
fn all_netdevs_are_listed() {
    let world = World::of_numbers();
    for line in ["q", "qdisc", "qdisc show", "q ls", "qdisc list", "qdisc lst"] {
        let shown = play(&world, &words(line));
        assert_eq!(shown.exit, 0, "{line}");
        assert!(shown.out.contains("qdisc fq_codel 8001: dev fq root refcnt 2 limit"), "{line}");
        assert!(shown.out.contains("qdisc mqprio 1: dev mqprio root tc 2 map"), "{line}");
    }
    let json = play(&world, &words("-j qdisc")).out;
    assert!(json.contains(r#""handle":"8001:","dev":"fq","root":true"#), "{json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json.as_array().unwrap().len() > 6);
}

/// Body of a request without its `null` fields.
fn body(mut body: Value) -> String {
    let fields = body.as_object_mut().unwrap();
    fields.retain(|_, value| !value.is_null());
    body.to_string()
}

/// Command line; object and command, parent, handle, kind, priority and protocol; options.
type Meant = (&'static str, [Option<&'static str>; 5], &'static [&'static str]);

const REQUESTS: [Meant; 6] = [
    (
        "qdisc add dev fq root handle 1: fq_codel limit 100 ecn",
        [Some("qdisc add"), Some("root"), Some("1:"), Some("fq_codel"), None],
        &["limit", "100", "ecn"],
    ),
    (
        "q r parent 1:a handle 1f dev fq pfifo",
        [Some("qdisc replace"), Some("1:a"), Some("1f:"), Some("pfifo"), None],
        &[],
    ),
    ("qdisc del dev fq root", [Some("qdisc delete"), Some("root"), None, None, None], &[]),
    (
        "qdisc change dev fq handle 1: tbf rate 1mbit",
        [Some("qdisc change"), None, Some("1:"), Some("tbf"), None],
        &["rate", "1mbit"],
    ),
    ("q add dev fq clsact", [Some("qdisc add"), Some("egress"), None, Some("clsact"), None], &[]),
    (
        "cl add dev fq parent 1: classid 1:10 drr quantum 1500",
        [Some("class add"), Some("1:0"), Some("1:10"), Some("drr"), None],
        &["quantum", "1500"],
    ),
];

const FILTERS: [Meant; 3] = [
    (
        "f add dev fq egress p 3 pro ip handle 0x1 flower ip_proto tcp action drop",
        [Some("filter add"), Some("egress"), Some("0x1"), Some("flower"), Some("3 ip")],
        &["ip_proto", "tcp", "action", "drop"],
    ),
    (
        "filter del dev fq parent ffff:fff3 pref 4",
        [Some("filter delete"), Some("egress"), None, None, Some("4")],
        &[],
    ),
    (
        "filter replace dev fq fw",
        [Some("filter replace"), Some("root"), None, Some("fw"), None],
        &[],
    ),
];

// Goal: the server receives each field and option of the command line; tc's abbreviations are
// accepted.
#[test]
fn requests_match_arguments() {
    for (line, [what, parent, handle, kind, rank], options) in REQUESTS.into_iter().chain(FILTERS) {
        let world = World::of_numbers();
        let done = play(&world, &words(line));
        assert_eq!((done.out.as_str(), done.err.as_str(), done.exit), ("", "", 0), "{line}");
        let (object, command) = what.unwrap().split_once(' ').unwrap();
        let mut rank = rank.unwrap_or_default().split_whitespace();
        let prio = rank.next().map(|prio| prio.parse::<u16>().unwrap());
        let wanted = body(json!({
            "object": object, "command": command, "parent": parent, "handle": handle,
            "kind": kind, "prio": prio, "protocol": rank.next(), "options": options,
        }));
        assert_eq!(world.sent(), [("/v1/netdevs/fq/tc".to_owned(), wanted)], "{line}");
    }
}

// Goal: a refusal is printed with the text and exit code of tc for the same refusal by a kernel.
// Errors that no kernel returns have the prefix `mqnet`.
#[test]
fn refusals_are_printed_as_by_tc() {
    let usage = |message: &str| ApiError::field("options", message);
    for (error, text, exit) in [
        (ApiError::new(Code::Exists, ""), "RTNETLINK answers: File exists\n", 2),
        (
            ApiError::new(Code::NoEntry, "No such file or directory"),
            "RTNETLINK answers: No such file or directory\n",
            2,
        ),
        (
            ApiError::new(Code::Exists, "Exclusivity flag on, cannot modify"),
            "Error: Exclusivity flag on, cannot modify.\n",
            2,
        ),
        (
            ApiError::new(Code::NotSupported, "Operation not supported"),
            "RTNETLINK answers: Operation not supported\n",
            2,
        ),
        (ApiError::new(Code::NoDevice, "gone"), "Cannot find device \"fq\"\n", 1),
        (usage("Illegal \"limit\""), "Illegal \"limit\"\n", 1),
        (ApiError::new(Code::TimedOut, "too slow"), "mqnet: too slow\n", 1),
    ] {
        let world = World::of_numbers();
        world.refuse(error);
        let done = play(&world, &words("qdisc add dev fq root pfifo"));
        assert_eq!((done.out.as_str(), done.err.as_str(), done.exit), ("", text, exit));
    }
}

// Goal: JSON is complete for objects that tc 6.1 prints only as text: classes, fw and police.
#[test]
fn json_is_json_for_everything() {
    let world = World::of_numbers();
    for (line, part) in [
        (
            "-j -s class show dev drrc",
            r#"{"class":"drr","handle":"1:1","root":true,"leaf":"8005:""#,
        ),
        (
            "-j filter show dev f4",
            r#""options":{"handle":8,"classid":"1:3","keys":{"mask":"0xff"}"#,
        ),
        ("-j filter show dev f3s egress", r#""kind":"police","index":1,"control_action":{"type":"#),
    ] {
        let shown = play(&world, &words(line));
        assert!(shown.out.contains(part), "{line}: {}", shown.out);
        serde_json::from_str::<Value>(&shown.out).unwrap();
    }
}

fn any_word() -> impl Strategy<Value = String> {
    let known = [
        "qdisc",
        "class",
        "filter",
        "add",
        "del",
        "replace",
        "change",
        "link",
        "show",
        "ls",
        "dev",
        "fq",
        "f2",
        "root",
        "parent",
        "handle",
        "classid",
        "1:",
        "1:1",
        ":",
        "none",
        "prio",
        "pref",
        "protocol",
        "ip",
        "all",
        "egress",
        "clsact",
        "flower",
        "pfifo",
        "limit",
        "5",
        "help",
        "-s",
        "-d",
        "-j",
        "-p",
        "-",
        "",
        "ffff:fff3",
        "0x",
        "invisible",
        "chain",
        "0",
        "65536",
    ];
    prop_oneof![
        9 => prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        1 => "\\PC{0,8}",
    ]
}

proptest! {
    // Goal: no command line causes a panic; the exit code is one of tc's, and a failed command
    // prints an error and nothing on stdout.
    #[test]
    fn any_line_is_answered(line in prop::collection::vec(any_word(), 0..9)) {
        let done = play(&World::of_numbers(), &line);
        prop_assert!([0, 1, 2, 255].contains(&done.exit), "{done:?}");
        if done.exit != 0 {
            prop_assert!(done.out.is_empty(), "{done:?}");
            prop_assert!(!done.err.trim().is_empty(), "{done:?}");
        }
    }
}
