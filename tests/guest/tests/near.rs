//! Bytes that cross NUMA nodes: one device for two nodes, compared with one device per node.

use std::time::Duration;

use mqnet_guest::{Kernel, Outcome};
use mqnet_tap::steering::bucket;
use mqnet_testkit::{Figures, LinkProcess, Need, World, has, until};
use mqnet_wire::Layer;
use serde_json::Value;

use crate::numa::{CPUS, guest};
use crate::there;

const SCRIPT: &str = include_str!("../scripts/near.sh");
const CHANNELS: usize = 4;
/// Name of the ratio in the report.
const RATIO: &str = "two functions / one function";

/// RSS hash bucket of a ping from 10.9.0.1 to 10.9.0.`to`.
fn bucket_of(to: u8) -> usize {
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[23] = 1;
    frame[26..30].copy_from_slice(&[10, 9, 0, 1]);
    frame[30..34].copy_from_slice(&[10, 9, 0, to]);
    bucket(&frame, Layer::Ethernet).unwrap()
}

/// Addresses, one for each channel: the indirection table steers its flows to that channel.
fn destinations() -> Vec<String> {
    let of = |channel| (10..=250).find(|to| bucket_of(*to) % CHANNELS == channel).unwrap();
    (0..CHANNELS).map(|channel| format!("10.9.0.{}", of(channel))).collect()
}

/// Bytes that stayed on their node, and bytes that crossed nodes, summed over the functions.
fn bytes(outcome: &Outcome, name: &str) -> [u64; 2] {
    let stats: Value = serde_json::from_str(&outcome.text(name).unwrap()).unwrap();
    let stats = if stats.is_array() { &stats[0] } else { &stats };
    let functions = stats["locality"].as_array().unwrap_or_else(|| panic!("{stats}"));
    println!("{name}: {functions:?}");
    let sum = |key: &str| functions.iter().map(|one| one[key].as_u64().unwrap()).sum();
    ["local-bytes", "cross-bytes"].map(sum)
}

/// Checks each channel in `mqnet show`: its CPU belongs to its node, and its function has an
/// interface, a queue and an interrupt. Returns the number of channels on another node than that of
/// their device.
fn check_places(outcome: &Outcome, name: &str) -> usize {
    let show: Value = serde_json::from_str(&outcome.text(name).unwrap()).unwrap();
    let places = show[0]["placement"].as_array().unwrap_or_else(|| panic!("{show}"));
    assert_eq!(places.len(), CHANNELS, "{places:?}");
    let across = places.iter().filter(|place| {
        let (cpu, node) = (place["cpu"].as_u64().unwrap(), place["node"].as_u64().unwrap());
        assert!(CPUS[node as usize].contains(&cpu), "{place}");
        let function = &place["functions"][0];
        assert!(function["interface"].is_string() && function["queue"].is_u64(), "{place}");
        assert!(!function["irqs"].as_array().unwrap().is_empty(), "{place}");
        function["node"].as_u64().unwrap() != node
    });
    across.count()
}

/// Hosts that answer pings, each connected to one device; both hosts have every address.
fn answering(world: &World, flows: &[String]) -> Vec<LinkProcess> {
    let hosts = [&world.a, &world.b];
    let spawn = |card: usize| {
        let socket = world.file(&format!("card{card}"));
        let mut tap = format!("tap:h,netns={},mac=02:00:00:00:00:09", hosts[card].name());
        flows.iter().for_each(|to| tap += &format!(",address={to}/24"));
        let mut command = world.folder().program();
        command.args(["link", "--json", "--channels", "4"]);
        command.arg(format!("vhost-user:{}", socket.display())).arg(tap);
        let link = LinkProcess::spawn(command);
        until("a card's socket", || socket.exists().then_some(()));
        let neighbour = "ip neigh replace 10.9.0.1 lladdr 02:00:00:00:00:01 dev h nud permanent";
        let words: Vec<&str> = neighbour.split(' ').collect();
        until("the neighbour is known", || {
            mqnet_testkit::run_command(&mut hosts[card].command(&words))
                .status
                .success()
                .then_some(())
        });
        link
    };
    (0..2).map(spawn).collect()
}

// Goal: in a guest with senders on two nodes, one device per node, joined to one netdev, sends at
// most a tenth of the bytes across nodes that one device for both sends. `mqnet show` reports CPU,
// node, function, queue and interrupts of every channel.
#[test]
fn two_functions_keep_bytes_on_their_node() {
    if !(has(&[Need::Root]) && there(Kernel::V6_1)) {
        return;
    }
    mqnet_guest::build().unwrap();
    let world = World::create();
    let flows = destinations();
    let links = answering(&world, &flows);
    let script = format!("FLOWS='{}'\n{SCRIPT}", flows.join(" "));
    let guest = guest(world.folder(), "test-near", CHANNELS).script("near", &script);
    let outcome = guest.limit(Duration::from_secs(200)).run().unwrap();
    let printed = &outcome.passed("near").unwrap().output;
    println!("{printed}");
    assert!(printed.ends_with("== done\n"), "{printed}");
    assert_eq!(check_places(&outcome, "one-show"), 2, "a card for both nodes");
    assert_eq!(check_places(&outcome, "two-show"), 0, "a card for each");
    let [one, two] = ["one-stats", "two-stats"].map(|name| bytes(&outcome, name));
    println!(
        "cross-node bytes: one function {} of {}, two functions {} of {}",
        one[1],
        one[0] + one[1],
        two[1],
        two[0] + two[1]
    );
    // Two of the four flows cross nodes, at least in one direction; each has 200 pings of 1400
    // bytes.
    assert!(one[1] > 2 * 200 * 1400, "one function: {one:?}");
    assert!(two[0] > one[0], "two functions: {two:?}, one: {one:?}");
    assert!(two[1] * 10 <= one[1], "one function {one:?}, two {two:?}");
    let [one, two] = [one, two].map(|[near, far]| [100.0 * far as f64 / (near + far) as f64]);
    let ratio = [two[0] / one[0]];
    let (case, unit) = ("bytes that cross nodes, flows pinned", "% of the bytes");
    let lines: [(&str, &[f64]); 2] = [("two functions", &two), ("one function", &one)];
    Figures::of("guests", "nodes").case(case, unit, &lines, &[(RATIO, &ratio)]).keep();
    drop(links);
}
