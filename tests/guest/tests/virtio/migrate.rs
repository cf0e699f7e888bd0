//! Migration of a guest to another QEMU process and another mqnet process.

use std::time::{Duration, Instant};

use mqnet_guest::{Guest, Kernel, Monitor, Running};
use mqnet_testkit::{LinkProcess, World, until};
use serde_json::json;

use super::peer::{Numbers, file, give_file, sum, take_file};
use super::{Card, card, possible, shared};

/// Memory of the guest in MiB.
const MEMORY: u32 = 384;

/// Maximum number of lost pings, at ten per second: those in flight while the guest is stopped.
/// Without a log of dirty pages, rings and frames would be stale for seconds and more pings would
/// be lost.
const PINGS_LOST: u64 = 10;

/// Locally administered address of the bridge.
const BRIDGE: &str = "02:00:00:00:00:01";

/// Starts a link between a port of the host's bridge and a vhost-user device.
fn port(world: &World, name: &str) -> LinkProcess {
    let mut command = world.folder().program();
    let tap = format!("tap:{name},netns={}", world.a.name());
    let card = format!("vhost-user:{}", world.file(name).display());
    command.args(["link", "--json", &tap, &card]);
    let link = LinkProcess::spawn(command);
    until("the socket", || world.file(name).exists().then_some(()));
    world.a.run(&["ip", "link", "set", name, "master", "br0", "up"]);
    link
}

/// Machine at one side of the migration; both sides are equal.
fn machine(world: &World, kernel: Kernel, packed: bool, side: &str) -> Guest {
    let guest = Guest::new(kernel, &format!("test-migrate-{kernel}-{packed}-{side}"));
    let monitor =
        format!("unix:{},server=on,wait=off", world.file(&format!("qmp-{side}")).display());
    let guest = guest
        .bare()
        .memory(MEMORY)
        .script("migrate", include_str!("../../scripts/migrate.sh"))
        .qemu(&["-qmp", &monitor]);
    let socket = world.file(side);
    let card = Card { device: ",mac=02:00:00:00:00:02", ..card(&socket, packed) };
    card.put_into(guest, &shared(MEMORY))
}

/// Migrates the guest; returns the total time and the downtime.
fn migrate(monitor: &mut Monitor, channel: &str) -> (Duration, u64) {
    let start = Instant::now();
    // The bandwidth is low, so that the guest's traffic writes memory during the migration.
    let slow = json!({"max-bandwidth": 60 << 20, "downtime-limit": 300});
    monitor.ask(&json!({"execute": "migrate-set-parameters", "arguments": slow})).unwrap();
    monitor.ask(&json!({"execute": "migrate", "arguments": {"uri": channel}})).unwrap();
    let info = until("the end of the migration", || {
        let info = monitor.ask(&json!({"execute": "query-migrate"})).unwrap();
        assert_ne!(info["status"], "failed", "{info}");
        (info["status"] == "completed").then_some(info)
    });
    println!("{info}");
    assert!(info["ram"]["dirty-sync-count"].as_u64() > Some(1), "{info}");
    (start.elapsed(), info["downtime"].as_u64().unwrap_or(0))
}

fn guest_migrates(kernel: Kernel, packed: bool) {
    if !possible(kernel) {
        return;
    }
    let world = World::create();
    // The bridge gets a fixed address. By default it has the lowest address of its ports, which
    // changes when that port is removed. The guest would learn the new address only from an ARP
    // request of the host. If the guest's announcement arrives first, the host sends no ARP
    // request, and frames are lost for seconds.
    world.a.run(&["ip", "link", "add", "br0", "address", BRIDGE, "type", "bridge"]);
    world.a.run(&["ip", "addr", "add", "10.9.0.1/24", "dev", "br0"]);
    world.a.run(&["ip", "link", "set", "br0", "up"]);
    let (from, to) = (port(&world, "from"), port(&world, "to"));
    let whole = file(32 << 20);
    let expected = sum(&whole);
    give_file(&world.a, whole, Duration::from_millis(40));
    let taken = take_file(&world.a);
    let numbers = Numbers::start(&world.a, Duration::from_millis(3));
    let channel = format!("unix:{}", world.file("channel").display());
    let there: Running = machine(&world, kernel, packed, "to").arriving(&channel).start().unwrap();
    until("the other QEMU", || world.file("qmp-to").exists().then_some(()));
    let mut here = machine(&world, kernel, packed, "from").start().unwrap();
    here.says("guest: traffic").unwrap();
    numbers.more(100);
    let mut monitor = Monitor::connect(&world.file("qmp-from")).unwrap();
    let (took, still) = migrate(&mut monitor, &channel);
    let before = numbers.tally().0;
    // Kill the source QEMU, so that it cannot affect the destination.
    here.kill();
    drop(from.stop());
    numbers.more(50);
    println!("moved in {took:?}, of which {still} ms still; {before} numbers until then");
    let outcome = there.wait().unwrap();
    let printed = &outcome.passed("migrate").unwrap().output;
    let (came, twice) = numbers.tally();
    println!("{kernel} packed={packed}: {came} numbers came, {twice} twice\n{printed}");
    assert!(printed.contains(&format!("in {expected}\n")), "a file did not come whole: {printed}");
    let sent = taken.join().unwrap();
    assert!(
        printed.contains(&format!("out {sent}\n")),
        "a file did not go whole: {sent} {printed}"
    );
    assert!(printed.contains(", twice 0\n"), "{printed}");
    assert_eq!(twice, 0, "of {came} datagrams");
    let pings = printed.lines().find(|line| line.contains("transmitted")).expect("pings");
    let count = |at: usize| pings.split_whitespace().nth(at)?.parse::<u64>().ok();
    let (sent, came) = (count(0).expect("sent"), count(3).expect("came"));
    assert!(came + PINGS_LOST >= sent, "the move lost {} pings: {printed}", sent - came);
    assert!(printed.contains("5 packets transmitted, 5 received"), "{printed}");
    assert!(printed.ends_with("== done\n"), "{printed}");
    drop(to.stop());
}

// Goal: a guest with split rings is migrated while frames are written to its memory. Data received
// during the migration is unchanged at the destination, and no frame is duplicated.
#[test]
fn a_move_over_split_rings() {
    guest_migrates(Kernel::V6_1, false);
}

// Goal: a guest with packed rings is migrated while frames are written to its memory.
#[test]
fn a_move_over_packed_rings() {
    guest_migrates(Kernel::V7_3, true);
}
