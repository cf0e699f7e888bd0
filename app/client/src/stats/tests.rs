use serde_json::{Value, json};

use super::fixture::{FakeApi, link, stats};
use super::*;

fn args(name: Option<&str>) -> StatsArgs {
    StatsArgs { name: name.map(str::to_owned), json: false, interval: None, count: None }
}

fn shown(args: &StatsArgs, api: &FakeApi) -> String {
    let mut out = Vec::new();
    run_with(args, api, &mut out, &|_| {}).unwrap();
    String::from_utf8(out).unwrap()
}

// Goal: totals of a link: one aligned line per lane, drops by reason, the conservation check of
// each direction.
#[test]
fn totals() {
    let api = FakeApi::default().on("/v1/links/vm0/stats", stats(2));
    let text = shown(&args(Some("vm0")), &api);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "link vm0: vm0 <-> ntb0");
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        columns(lines[2]),
        columns("0 vm0 -> ntb0 0 200000 200000000 199980 0 0 0 0 2 20 too-long")
    );
    assert_eq!(
        columns(lines[4]),
        columns("1 vm0 -> ntb0 1 400001 400001000 400000 1 8 7 1.50 s 2 0 stopped")
    );
    let end = |line: &str, word: &str| line.find(word).unwrap() + word.len();
    assert_eq!(end(lines[1], "rx-packets"), end(lines[2], " 200000"));
    assert!(lines[6].starts_with("vm0 -> ntb0: rx 600001 = tx 599980 + 20 too-long + 1 in flight"));
    assert!(lines[6].ends_with("[holds: they wait for a full sink]"), "{}", lines[6]);
    assert!(lines[7].ends_with("0 in flight  [holds]"));
    assert!(lines[8].starts_with("vm0: its system dropped 7 frames"));
}

// Goal: text and JSON report a frame that is missing while no counter changes. A frame that is in
// flight while counters change is not reported.
#[test]
fn a_broken_law_is_flagged() {
    let mut lost = stats(2);
    lost.b_to_a.tx_packets -= 1;
    lost.b_to_a.in_flight = 1;
    let broken = FakeApi::default().on("/v1/links/vm0/stats", &lost);
    assert!(shown(&args(Some("vm0")), &broken).contains("BROKEN: nothing moves"));
    let json = StatsArgs { json: true, ..args(Some("vm0")) };
    let value: Value = serde_json::from_str(&shown(&json, &broken)).unwrap();
    assert_eq!(value[0]["conservation"]["holds"], false);
    assert_eq!(value[0]["conservation"]["b-to-a"], "missing");
    let path = "/v1/links/vm0/stats";
    let moving = FakeApi::default().on(path, stats(1)).on(path, &lost);
    assert!(!shown(&args(Some("vm0")), &moving).contains("BROKEN"));
}

// Goal: without a name, every link is printed, or "no links"; link names are escaped in paths.
#[test]
fn every_link() {
    let mut odd = link("up");
    odd.name = "ntb:/run/x.sock".into();
    let api = FakeApi::default()
        .on("/v1/links", vec![link("up"), odd])
        .on("/v1/links/vm0/stats", stats(1))
        .on("/v1/links/ntb%3A%2Frun%2Fx.sock%2Fvm0/stats", stats(1));
    assert_eq!(shown(&args(None), &api).matches("link vm0:").count(), 2);
    let none = FakeApi::default().on("/v1/links", json!([]));
    assert_eq!(shown(&args(None), &none), "no links\n");
}

// Goal: with an interval, rates are printed the requested number of times; JSON output has one line
// per reading, each a list of links.
#[test]
fn intervals() {
    let path = "/v1/links/vm0/stats";
    let api = || (1..5).fold(FakeApi::default(), |api, t| api.on(path, stats(t)));
    let mut args = args(Some("vm0"));
    (args.interval, args.count) = (Some(Duration::from_secs(1)), Some(3));
    let text = shown(&args, &api());
    assert_eq!(text.matches("200.0 k  1.600").count(), 3, "{text}");
    args.json = true;
    let text = shown(&args, &api());
    let times: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()[0]["time-ns"].clone())
        .collect();
    assert_eq!(times, [2_000_000_000u64, 3_000_000_000, 4_000_000_000]);
}

// Goal: an unknown name fails without output; a closed pipe ends the command with exit code 0; an
// interval outside 0.1 to 3600 seconds is rejected.
#[test]
fn failures() {
    let mut out = Vec::new();
    let Err(Failure::Broken(what)) = run(&args(Some("x")), &FakeApi::default(), &mut out) else {
        panic!("must fail")
    };
    assert!(what.contains("/v1/links/x/stats") && out.is_empty());
    let (reader, mut writer) = std::io::pipe().unwrap();
    drop(reader);
    assert!(matches!(put(&mut writer, "text"), Err(Failure::Exit(0))));
    for (text, fine) in [("0.1", true), ("3600", true), ("0", false), ("nan", false), ("x", false)]
    {
        assert_eq!(seconds(text).is_ok(), fine, "{text}");
    }
}
