//! Kill and restart of mqnet or QEMU at a vhost-user device, under traffic.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mqnet_guest::{Guest, Kernel, Running};
use mqnet_testkit::World;

use super::peer::{Numbers, file, give_file, sum, take_file};
use super::{card, link, possible, shared};

/// Number of kills of mqnet.
const KILLS: usize = 5;
/// Maximum number of frames in progress at a kill: one burst per direction.
const IN_HAND: usize = 64;

fn mqnet_is_killed(kernel: Kernel, packed: bool) {
    if !possible(kernel) {
        return;
    }
    let world = World::create();
    let socket = world.file("card.sock");
    // The TAP disappears with its process. Its successor has the same MAC address, so that the
    // guest's ARP entry stays valid.
    let mut link = link(&world, &socket, ",mac=02:00:00:00:00:01");
    let whole = file(16 << 20);
    let expected = sum(&whole);
    give_file(&world.a, whole, Duration::from_millis(50));
    let taken = take_file(&world.a);
    let numbers = Numbers::start(&world.a, Duration::from_millis(3));
    let guest = Guest::new(kernel, &format!("test-restart-{kernel}-{packed}"));
    let guest =
        guest.bare().memory(512).script("restart", include_str!("../../scripts/restart.sh"));
    let mut guest = card(&socket, packed).put_into(guest, &shared(512)).start().unwrap();
    guest.says("guest: traffic").unwrap();
    numbers.more(100);
    for _ in 0..KILLS {
        sleep(Duration::from_millis(700));
        let start = Instant::now();
        link.restart();
        link.wait_up(1);
        let up = start.elapsed();
        numbers.more(50);
        println!("killed: up after {up:?}, traffic after {:?}", start.elapsed());
    }
    let outcome = guest.wait().unwrap();
    let printed = &outcome.passed("restart").unwrap().output;
    let (came, twice) = numbers.tally();
    println!("{kernel} packed={packed}: {came} numbers came, {twice} twice\n{printed}");
    assert!(printed.contains(&format!("in {expected}\n")), "a file did not come whole: {printed}");
    let sent = taken.join().unwrap();
    assert!(
        printed.contains(&format!("out {sent}\n")),
        "a file did not go whole: {sent} {printed}"
    );
    assert!(printed.contains("5 packets transmitted, 5 received"), "{printed}");
    assert!(printed.contains(", twice 0\n"), "{printed}");
    assert!(twice <= KILLS * IN_HAND, "{twice} of {came} datagrams came twice");
    assert!(printed.ends_with("== done\n"), "{printed}");
}

// Goal: mqnet is killed five times under traffic and restarted. The guest's split rings continue at
// their positions, files in transfer arrive unchanged, and only frames in progress may be
// duplicated.
#[test]
fn killed_over_split_rings() {
    mqnet_is_killed(Kernel::V6_1, false);
}

// Goal: after kills with packed rings, the rings continue at their positions, although QEMU does
// not store these.
#[test]
fn killed_over_packed_rings() {
    mqnet_is_killed(Kernel::V7_3, true);
}

/// Guest that sends numbered datagrams until it is killed.
fn counting(kernel: Kernel, packed: bool, socket: &Path, name: &str) -> Running {
    let guest = Guest::new(kernel, &format!("test-{name}-{packed}")).bare().memory(384);
    let guest = guest.script("restart", include_str!("../../scripts/restart.sh"));
    card(socket, packed).put_into(guest, &shared(384)).start().unwrap()
}

// Goal: QEMU is killed under traffic. Another guest with the other ring layout attaches to the same
// mqnet process and finds no state of the previous guest.
#[test]
fn another_guest_attaches_after_a_kill() {
    if !possible(Kernel::V6_1) {
        return;
    }
    let world = World::create();
    let socket = world.file("card.sock");
    let link = link(&world, &socket, "");
    let numbers = Numbers::start(&world.a, Duration::from_millis(1));
    for (n, packed) in [(1, false), (2, true), (3, false)] {
        let mut guest = counting(Kernel::V6_1, packed, &socket, "killed");
        link.wait_up(n);
        numbers.more(200);
        guest.kill();
        let why = link.wait_lost(n);
        assert!(why.contains("the VMM disconnected"), "{why}");
    }
    let table = link.stop();
    for lane in [table.out(), table.back()] {
        assert_eq!((lane.tx_lost, lane.in_flight), (0, 0), "{lane:?}");
    }
}
