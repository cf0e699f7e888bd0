//! Tests with complete files, valid and invalid.

use proptest::prelude::*;

use super::*;
use crate::{Endpoint, check};

fn read(texts: &[&str]) -> Result<Config, Vec<String>> {
    let source =
        |(i, text): (usize, &&str)| Source { name: format!("f{i}"), text: (*text).to_owned() };
    let sources: Vec<Source> = texts.iter().enumerate().map(source).collect();
    Config::parse(&sources, check).map_err(|all| all.iter().map(Problem::to_string).collect())
}

// Goal: the documented example is parsed as documented.
#[test]
fn a_good_file_is_read() {
    let text = r#"
[daemon]
control-socket = "/run/mqnet/ctl.sock"
socket-mode = "0660"
socket-owner = "root:mqnet"
metrics = "[::1]:9101"

[link.vm0]
a = "tap:vm0,mtu=9000"
b = "ntb:/run/vm0.sock"
channels = 4
workers = 2
cpus = "0-3,8"
poll-window = 0
"#;
    let config = read(&[text, "[link.two]\na = 'tap:b'\nb = 'null:'\n", ""]).unwrap();
    let daemon = &config.daemon;
    assert_eq!(daemon.control_socket.as_deref(), Some("/run/mqnet/ctl.sock"));
    assert_eq!(daemon.socket_mode, Some(0o660));
    assert_eq!(daemon.socket_owner.as_deref(), Some("root:mqnet"));
    assert_eq!(daemon.metrics.unwrap().port(), 9101);
    assert_eq!(config.links.keys().collect::<Vec<_>>(), ["two", "vm0"]);
    let vm0 = &config.links["vm0"];
    assert_eq!((vm0.spec.channels, vm0.checked.poll_window), (Some(4), 0));
    assert!(matches!(&vm0.checked.a, Endpoint::Tap(tap) if tap.mtu == Some(9000)));
    assert_eq!(vm0.place.to_string(), "f0:8:7");
    assert_eq!(config.links["two"].place.file, "f1");
    assert_eq!(read(&[""]).unwrap(), Config::default());
}

const LINK: &str = "[link.x]\na = 'tap:x'\nb = 'null:'\n";

// Goal: each mistake is reported with its line and column, the key and the allowed values.
#[test]
fn mistakes_have_positions() {
    for (text, told) in [
        ("[demon]\n", "f0:1:2: unknown key \"demon\"; did you mean 'daemon'?"),
        ("speed = 3", "f0:1:1: unknown key \"speed\"; allowed: daemon, limits"),
        ("daemon = 3", "f0:1:10: daemon: must be a table, [daemon], not a whole number"),
        (
            "[daemon]\nmetric = '::'",
            "f0:2:1: [daemon] unknown key \"metric\"; did you mean 'metrics'?",
        ),
        ("[daemon]\nmetrics = 'x:1'", "f0:2:11: [daemon] metrics: \"x:1\" must be an address and"),
        ("[daemon]\nsocket-mode = '0888'", "f0:2:15: [daemon] socket-mode: \"0888\" must be octal"),
        ("[daemon]\nsocket-mode = '1777'", "from \"0000\" to \"0777\""),
        ("[daemon]\nsocket-mode = 0o660", "must be a string, not a whole number"),
        ("[daemon]\nsocket-owner = 'root:'", "must be \"USER\" or \"USER:GROUP\""),
        ("[daemon]\ncontrol-socket = 'x'", "must be an absolute path or '@name'"),
        (
            "[daemon]\nsocket-mode='0600'\ncontrol-socket='@x'",
            "f0:2:1: [daemon] socket-mode: an abstract control-socket has neither",
        ),
        (
            "[policy]\nkinds = ['tun']",
            "f0:2:9: [policy] kinds: no kind \"tun\"; allowed: tap, vduse",
        ),
        ("[policy]\nkinds = 'tap'", "[policy] kinds: must be a list of strings, not a string"),
        ("[policy]\npaths = ['run']", "[policy] paths: \"run\" must be an absolute path"),
        ("[limits]\nlinks = 0", "[limits] links: 0 is not a number from 1 to 1000000"),
        ("[limits]\nmemory = 'x'", "f0:2:10: [limits] memory: \"x\" must be a size, like"),
        ("[limits]\nmem = 'x'", "f0:2:1: [limits] unknown key \"mem\"; allowed: link-memory"),
        ("[link.'a b']\n", "f0:1:7: \"a b\" is not a valid link name"),
        ("[link]\na = 'tap:x'", "f0:2:5: link.a: must be a table; write [link.NAME]"),
        ("[[link]]\n", "link: must be a table for each link, [link.NAME], not a list"),
        ("[link.x]\na = 'tap:x'", "f0:1:7: [link.x] b is missing"),
        ("[link.x]\na = 3\nb = 'null:'", "f0:2:5: [link.x] a: must be a string, not a whole"),
        ("[link.x]\na = 'tun:x'\nb = 'null:'", "f0:2:5: [link.x] a: endpoint 'tun:x': unknown"),
        ("[link.x]\na = 'tap:x'\nb = 'tap:x'", "f0:3:5: [link.x] b: the device is also the other"),
        ("[link.x]\na = \"tap:\\n\"\nb = 'null:'", "'tap:\\n'"),
        ("[link.x]\na = \n", "f0:2:5: "),
        ("[link.x]\n[link.x]\n", "f0:2:"),
        ("\u{e9} = 1", "f0:1:1: "),
    ] {
        let problems = read(&[text]).unwrap_err();
        assert!(problems[0].contains(told), "{text}: {problems:?}");
        assert!(problems.iter().all(|problem| !problem.contains('\n')), "{problems:?}");
    }
    for (line, told) in [
        ("channels = 65", "f0:4:12: [link.x] channels: 65 is not a number from 1 to 64"),
        ("channels = -1", "-1 is not a number from 1 to 64"),
        ("channels = 4.5", "must be a whole number, not a number with a fraction"),
        ("channels = 99999999999999999999", "is not a number from 1 to 64"),
        ("workers = 0", "from 1 to 1024"),
        ("poll-window = 1000001", "from 0 to 1000000"),
        ("cpus = '3-1'", "auto or float"),
        ("chanels = 4", "f0:4:1: [link.x] unknown key \"chanels\"; did you mean 'channels'?"),
        ("colour = 4", "allowed: a, b, channels, workers, cpus, poll-window"),
    ] {
        let problems = read(&[&format!("{LINK}{line}\n")]).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(told), "{line}: {problems:?}");
    }
}

// Goal: all mistakes are reported in file order, and a syntax error hides no mistake of another
// file.
#[test]
fn all_mistakes_are_reported() {
    let first = "[link.x]\na = 'tun:x'\nb = 'null:'\nspeed = 1\n[link.y]\na = 1\n[demon]\n";
    let problems = read(&[first, "= = =", "[link.z]\na = 'null:'\nb = 'x'\n"]).unwrap_err();
    let places: Vec<_> = problems.iter().map(|p| p.split(": ").next().unwrap()).collect();
    let expected = ["f0:4:1", "f0:5:7", "f0:6:5", "f0:7:2"];
    assert_eq!(places[..4], expected, "{problems:?}");
    assert!(places[4].starts_with("f1:1:"), "{problems:?}");
    assert_eq!(*places.last().unwrap(), "f2:3:5", "{problems:?}");
}

// Goal: contradictions between two files are rejected with both positions, and [daemon] is allowed
// only in the first file.
#[test]
fn files_may_not_contradict_each_other() {
    let problems = read(&[LINK, "\n[link.x]\na = 'tap:y'\nb = 'null:'\n"]).unwrap_err();
    assert_eq!(problems, ["f1:2:7: [link.x] is defined twice, first at f0:1:7"]);
    let problems = read(&[LINK, "[link.y]\na = 'null:'\nb = 'tap:x,mtu=1500'\n"]).unwrap_err();
    assert_eq!(problems, ["f1:3:5: [link.y] b: the device belongs to [link.x] at f0:1:7"]);
    let problems = read(&[LINK, "[daemon]\n"]).unwrap_err();
    assert_eq!(problems, ["f1:1:2: [daemon] is possible in f0 only"]);
    // The two ends of a bridge do not conflict, and a name in two namespaces refers to two devices.
    read(&["[link.x]\na='tap:x'\nb='ntb:/s'\n[link.y]\na='tap:x,netns=b'\nb='ntb:/s'\n"]).unwrap();
}

// Goal: a reload recreates only links with different checked values, and modifies a link if only
// changeable settings differ.
#[test]
fn differences_become_a_plan() {
    let old = read(&["
        [link.same]\na='tap:s'\nb='null:'
        [link.live]\na='tap:l'\nb='null:'\nchannels=1
        [link.anew]\na='tap:n'\nb='null:'
        [link.gone]\na='tap:g'\nb='null:'
    "]);
    let new = read(&["
        [link.anew]\na='tap:n,mtu=9000'\nb='null:'
        [link.live]\na='tap:l'\nb='null:'\nchannels=8\npoll-window=5
        [link.here]\na='tap:h'\nb='null:'
        # written otherwise, meant the same
        [link.same]\nb=\"null:\"\na=\"tap:s\"\npoll-window=1000\ncpus='auto'
    "]);
    let (old, new) = (old.unwrap(), new.unwrap());
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let plan = diff(&old, &new);
    assert_eq!(plan.keep, names(&["same"]));
    assert_eq!(plan.change, names(&["live"]));
    assert_eq!(plan.add, names(&["anew", "here"]));
    assert_eq!(plan.remove, names(&["anew", "gone"]));
    let unchanged = diff(&new, &new);
    assert_eq!(
        (unchanged.keep.len(), unchanged),
        (4, LinkActions { keep: diff(&new, &new).keep, ..LinkActions::default() })
    );
}

fn specs() -> impl Strategy<Value = BTreeMap<String, LinkSpec>> {
    let far = prop::sample::select(vec!["null:", "ntb:/run/\"q\".sock", "ntb:rel\\path,window=4M"]);
    let cpus = prop::sample::select(vec!["auto", "float", "0-3,8"]);
    let spec = (
        (0u8..4, far),
        prop::option::of(1u16..=64),
        prop::option::of(1u16..=1024),
        prop::option::of(cpus),
        prop::option::of(0u32..=1_000_000),
    );
    let spec = spec.prop_map(|((kind, far), channels, workers, cpus, poll_window)| LinkSpec {
        a: ["null:", "tap:t%d", "tap:t%d,persist", "tap:t%d,address=fd00::1/64"][usize::from(kind)]
            .to_owned(),
        b: far.to_owned(),
        channels,
        workers,
        cpus: cpus.map(str::to_owned),
        poll_window,
    });
    // Generated names rarely use the same device, because names with '%d' never conflict.
    prop::collection::btree_map("[a-zA-Z0-9][a-zA-Z0-9._-]{0,20}", spec, 0..6)
        .prop_map(|links| links.into_iter().collect())
}

#[derive(serde::Serialize)]
struct File<'a> {
    link: &'a BTreeMap<String, LinkSpec>,
}

/// Fragments from which files are generated.
const PARTS: [&str; 32] = [
    "[daemon]\n",
    "[link.x]\n",
    "[[link]]\n",
    "[link]\n",
    "a = ",
    "b=",
    "'tap:x'\n",
    "\"null:\"\n",
    "channels=",
    "0x41\n",
    "-1\n",
    "1e9\n",
    "{a=1}\n",
    "metrics=",
    "\u{e9}",
    "\"\\n\"",
    "[",
    "]",
    "=",
    "\n",
    "x.y",
    "'",
    "\"\"\"",
    "#",
    "\r\n",
    "socket-owner=",
    "\u{0}",
    "link.x.a=",
    "1979-05-27\n",
    "link",
    "true\n",
    "'0660'\n",
];

proptest! {
    // Goal: links written by another TOML writer are read back unchanged. `diff` from an empty
    // configuration adds all links, `diff` to an empty configuration removes them, and `diff` to
    // the same configuration keeps them.
    #[test]
    fn links_survive_a_round_trip(specs in specs()) {
        let text = toml::to_string(&File { link: &specs }).unwrap();
        let config = read(&[&text]).unwrap();
        let read: BTreeMap<_, _> =
            config.links.iter().map(|(name, link)| (name.clone(), link.spec.clone())).collect();
        prop_assert_eq!(&read, &specs);
        let names: Vec<_> = specs.into_keys().collect();
        let nothing = Config::default();
        prop_assert_eq!(diff(&nothing, &config).add, names.clone());
        prop_assert_eq!(diff(&config, &nothing).remove, names.clone());
        prop_assert_eq!(diff(&config, &config).keep, names);
    }

    // Goal: no text makes the parser panic, and each problem is one line with a position in the
    // file.
    #[test]
    fn any_text_is_answered(
        parts in prop::collection::vec(prop::sample::select(PARTS.to_vec()), 0..24),
        noise: String,
    ) {
        for text in [parts.concat(), noise] {
            for problem in read(&[&text]).err().unwrap_or_default() {
                prop_assert_eq!(problem.lines().count(), 1);
                let mut parts = problem.splitn(4, ':');
                prop_assert_eq!(parts.next(), Some("f0"));
                let line: usize = parts.next().unwrap().parse().unwrap();
                prop_assert!(line >= 1 && line <= text.matches('\n').count() + 1);
                prop_assert!(parts.next().unwrap().parse::<usize>().unwrap() >= 1);
            }
        }
    }
}
