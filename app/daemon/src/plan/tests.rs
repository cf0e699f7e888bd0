use std::fs;

use clap::Parser;
use mqnet_control_api::{ChannelPlace, FunctionPlace};
use serde_json::{Value, json};

use super::*;

/// Returns a link of two channels on two workers.
fn link(state: &str) -> LinkInfo {
    serde_json::from_value(json!({
        "name": "vm0", "state": state, "channels": if state == "up" { 2 } else { 0 },
        "spec": { "a": "tap:vm0", "b": "ntb:/run/x.sock", "channels": 2 },
        "netdevs": [],
        "workers": [{ "id": 0, "cpu": 2, "node": 0, "passes": 9, "sleeps": 1 },
                    { "id": 1, "cpu": 3, "node": 0, "passes": 9, "sleeps": 1 }],
    }))
    .unwrap()
}

#[derive(Parser)]
struct Words {
    #[command(flatten)]
    plan: PlanArgs,
}

fn args(words: &[&str]) -> PlanArgs {
    Words::try_parse_from(["plan"].iter().chain(words)).unwrap().plan
}

fn planned(words: &[&str]) -> Result<String, Failure> {
    let mut out = Vec::new();
    run(&args(words), &Vec::new, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn refused(words: &[&str]) -> String {
    match Words::try_parse_from(["plan"].iter().chain(words)) {
        Err(e) => e.to_string(),
        Ok(words) => match run(&words.plan, &Vec::new, &mut Vec::new()) {
            Err(Failure::BadInput(what)) => what,
            other => panic!("{other:?}"),
        },
    }
}

// Goal: the output for two functions on two nodes with hyperthreads is complete: table, verdict,
// picture.
#[test]
fn a_plan_is_shown_whole() {
    assert_eq!(
        planned(&["--synthetic", "2x1x2", "--functions", "0,1", "-c", "2"]).unwrap(),
        "\
4 CPUs, 2 cores, 2 nodes

function  node  queues  channels  name
       0     0     any         1  function 0
       1     1     any         1  function 1

channel  function  queue  worker  cpu  node  irq-cpu  memory  bytes  sent-to-by-cpus
      0         0      0       0    0     0        0       0  local  0,2
      1         1      0       1    1     1        1       1  local  1,3
2 workers; 2 of 2 channels local

┌ node 0: function 0 ──────────────────────────────────────────────────────────┐
│ cpu 0 *0  cpu 2 >0                                                           │
└──────────────────────────────────────────────────────────────────────────────┘
┌ node 1: function 1 ──────────────────────────────────────────────────────────┐
│ cpu 1 *1  cpu 3 >1                                                           │
└──────────────────────────────────────────────────────────────────────────────┘
*N serves channel N   >N sends through channel N   ! of a function on another node
"
    );
}

// Goal: the plan of one function for two nodes reports the traffic between nodes, also in the
// picture. For a function without a node the plan reports that near and far are equal.
#[test]
fn what_crosses_is_marked() {
    let text = planned(&["--synthetic", "2x1", "--functions", "1"]).unwrap();
    assert!(text.contains("2 workers; 1 of 2 channels local\n"), "{text}");
    assert!(text.contains("│ cpu 0 *1! ") && text.contains("│ cpu 1 *0  "), "{text}");
    let text = planned(&["--synthetic", "2x1", "--functions", "-"]).unwrap();
    assert!(text.contains("no function's node is known"), "{text}");
    assert!(text.ends_with("on another node\n") && text.contains("on no known node: function 0\n"));
    let text = planned(&["--synthetic", "1x2", "--functions", "0", "-c", "5", "--no-picture"]);
    let text = text.unwrap();
    assert!(!text.contains('┌') && text.contains("\n2 workers; 5 of 5"), "{text}");
}

// Goal: a request that cannot be planned is refused in one line with the available or allowed
// values.
#[test]
fn nonsense_is_refused() {
    for (words, told) in [
        (&["--synthetic", "2y3"][..], "NODESxCORES"),
        (&["--synthetic", "2x2", "--functions", "0,7"], "node 7 does not exist; allowed: 0, 1"),
        (&["--functions", "x"], "a node number, or -"),
        (&["--channels", "65"], "1..=64"),
        (&["--topology", "/nonexistent"], "no CPUs there"),
        (&["absent0"], "there is no interface 'absent0' here; 'mqnet link --help'"),
        (&["xdp:absent0+null:"], "xdp:absent0: there is no interface 'absent0' here"),
        (&["tap:"], "endpoint 'tap:'"),
        (&["--apply"], "<ENDPOINT>"),
        (&["null:", "--functions", "0"], "cannot be used with"),
        (&["lo+lo"], "the interface is named twice"),
        (&["--functions", "0,0,0,0,0,0,0,0,0", "--synthetic", "1x1"], "at most 8, not 9"),
    ] {
        let what = refused(words);
        assert!(what.contains(told), "{words:?}: {what}");
    }
}

// Goal: the JSON plan has the nodes with their distances, the functions, and the placement of each
// channel.
#[test]
fn the_plan_as_json() {
    let text = planned(&["--synthetic", "2x2", "--functions", "0,1", "-j"]).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let plan = &all[0];
    assert_eq!(plan["machine"]["nodes"][1]["distances"]["0"], 21);
    assert_eq!(plan["functions"][1]["node"], 1);
    let channel = &plan["channels"][3];
    assert_eq!((&channel["function"], &channel["cpu"]), (&1.into(), &3.into()));
    assert_eq!((&channel["local"], &channel["xps"]), (&true.into(), &serde_json::json!([3])));
}

// Goal: the picture names every CPU, every node and every function.
#[test]
fn the_plan_as_svg() {
    let file = std::env::temp_dir().join(format!("mqnet-plan-{}.svg", std::process::id()));
    let path = file.to_str().unwrap();
    planned(&["--synthetic", "1x3+1x0", "--functions", "0,1", "--svg", path]).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    for words in ["<svg", "cpu 0", "cpu 2", "node 1: function 1", "no CPUs", "function 0"] {
        assert!(text.contains(words), "no '{words}'");
    }
    let nowhere = planned(&["--synthetic", "1x1", "--svg", "/nonexistent/x.svg"]);
    assert!(matches!(nowhere, Err(Failure::Broken(what)) if what.contains("/nonexistent/x.svg")));
}

// Goal: without endpoints every running link is planned with its channels, workers and functions;
// links that are down are omitted.
#[test]
fn running_links_are_planned() {
    let function = |number: u16| FunctionPlace {
        netdev: "g0".into(),
        function: number,
        interface: Some(format!("eth{number}")),
        node: Some(0),
        ..FunctionPlace::default()
    };
    let channel = |n: u16| ChannelPlace {
        channel: n,
        functions: vec![function(n % 2)],
        ..ChannelPlace::default()
    };
    let mut group = link("up");
    group.name = "g".into();
    group.channels = 3;
    group.placement = (0..3).map(channel).collect();
    let links = || vec![link("up"), link("down"), group.clone()];
    let topology = mqnet_topology::synthetic("1x4").unwrap();
    let jobs = request::jobs(&args(&[]), &topology, &links, Path::new("/")).unwrap();
    let seen: Vec<_> = jobs
        .iter()
        .map(|job| (job.title.as_deref().unwrap(), job.channels, job.members.len()))
        .collect();
    assert_eq!(seen, [("link vm0", 2, 1), ("link g", 3, 2)]);
    assert_eq!(jobs[1].members[1].interface.as_deref(), Some("eth1"));
    let none = request::jobs(&args(&[]), &topology, &Vec::new, Path::new("/")).unwrap();
    assert_eq!((none.len(), none[0].channels, none[0].members[0].location.node), (1, 4, Some(0)));
}

// Goal: interrupts and sender CPUs are set for each interface separately. Every CPU sends through
// one queue of each interface, although the plan of the group uses near CPUs only.
#[test]
fn interfaces_are_set_one_by_one() {
    let topology = mqnet_topology::synthetic("2x2").unwrap();
    let member = |n: u32| Member {
        name: format!("xdp:eth{n}"),
        location: FunctionLocation { node: Some(n), vectors: Some(2) },
        interface: Some(format!("eth{n}")),
        netns: None,
    };
    let members = vec![member(0), member(1)];
    let job = Job { title: None, members, channels: 4, workers: None, side: CpuListEnd::Low };
    let wanted = job.make(&topology, &topology).wanted();
    let seen: Vec<_> =
        wanted.iter().map(|w| (&w.interface[..], w.queue, w.irq_cpu, &w.senders[..])).collect();
    assert_eq!(
        seen,
        [
            ("eth0", 0, 0, &[0, 2][..]),
            ("eth0", 1, 1, &[1, 3]),
            ("eth1", 0, 2, &[0, 2]),
            ("eth1", 1, 3, &[1, 3]),
        ]
    );
}
