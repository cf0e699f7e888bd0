//! Typical operations on a guest's device.

use std::time::Duration;

use mqnet_guest::{Guest, Kernel};
use mqnet_testkit::World;

use super::peer::{Flood, file, give_file, iperf_server, sum, take_file};
use super::{Card, card, link, possible, shared};

/// Size of the transferred file.
const FILE: usize = 4 << 20;
/// Frames between two reads of the counters.
const MEANWHILE: u64 = 100;

/// Words after `word` on the first output line of the guest that begins with `word`.
fn values_of<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    line.unwrap_or_else(|| panic!("no {word} in {text}")).split_whitespace().collect()
}

/// State of the device in mqnet at the time when the guest prints its state.
struct Seen {
    channels: u64,
    features: String,
    /// Number of frames to the guest, and number of frames from the guest.
    frames: [u64; 2],
}

fn look(world: &World) -> Seen {
    let channels = world.folder().ask_json("ethtool --json -l card")[0]["combined"].as_u64();
    let features = world.ask("ethtool -k card").out;
    let statistics = world.ask("ethtool -S card").out;
    println!("{features}\n{statistics}");
    let frames = ["tx", "rx"].map(|half| {
        let counts = statistics.lines().filter_map(|line| line.trim().split_once(": "));
        let of_half = |name: &str| name.starts_with(half) && name.ends_with("_packets");
        let counts = counts.filter(|(name, _)| of_half(name));
        counts.map(|(_, value)| value.parse::<u64>().expect("a counter")).sum()
    });
    Seen { channels: channels.expect("channels"), features, frames }
}

fn operations_of_a_guest(kernel: Kernel, packed: bool, pairs: u16) {
    if !possible(kernel) {
        return;
    }
    let world = World::create();
    let socket = world.file("card.sock");
    let link = link(&world, &socket, "");
    let whole = file(FILE);
    let expected = sum(&whole);
    give_file(&world.a, whole, Duration::ZERO);
    let _server = iperf_server(&world.a);
    let card = Card { pairs, ..card(&socket, packed) };
    let guest = Guest::new(kernel, &format!("test-virtio-{kernel}-{packed}"))
        .bare()
        .limit(Duration::from_secs(400))
        .script("virtio", &format!("PAIRS={pairs}\n{}", include_str!("../../scripts/virtio.sh")));
    let mut guest = card.put_into(guest, &shared(1024)).start().unwrap();
    guest.says("guest: look").unwrap();
    let seen = look(&world);
    // The guest continues after it has sent a file to this server.
    let _told = take_file(&world.a);
    guest.says("guest: flood").unwrap();
    let flood = Flood::start(&world.a);
    let outcome = guest.wait().unwrap();
    drop(flood);
    let text = &outcome.passed("virtio").unwrap().output;
    println!("{kernel} packed={packed}, {:?}: {text}", outcome.wall);
    assert!(text.contains(&format!("max {pairs}\n")), "{text}");
    assert!(text.contains("50 packets transmitted, 50 received"), "{text}");
    assert!(text.contains("tcp-segmentation-offload: on"), "{text}");
    assert!(text.contains("fq_codel worked\n"), "{text}");
    assert_eq!(text.matches("receiver").count(), 4, "a stream is missing: {text}");
    let [rx, tx, "combined", combined] = values_of(text, "counted ")[..] else { panic!("{text}") };
    assert_eq!(combined, seen.channels.to_string());
    assert!(seen.features.contains("tcp-segmentation-offload: on"), "{}", seen.features);
    for (guest, ours) in [rx, tx].iter().zip(seen.frames) {
        let guest: u64 = guest.parse().expect("a number of frames");
        assert!(guest <= ours && ours < guest + MEANWHILE, "the guest {guest}, mqnet {ours}");
    }
    let files = text.lines().filter(|line| line.starts_with("file ")).count();
    let right = text.matches(&expected).count();
    assert!(files > 2 && files == right, "{right} of {files} files came whole: {text}");
    assert!(text.contains(&format!("combined {pairs}\n")), "{text}");
    // The device does not offer `RING_RESET`, because QEMU does not forward a ring resize to the
    // back end.
    assert!(!text.contains("resized\n"), "rings were resized behind our back: {text}");
    assert!(text.ends_with("== done\n"), "{text}");
    let resizes = link.events("changed").len();
    assert!(resizes >= 100, "the guest's resizes came as {resizes} changes");
    assert_eq!(link.events("change-failed"), [""; 0]);
    let table = link.stop();
    for lane in [table.out(), table.back()] {
        assert_eq!((lane.tx_lost, lane.in_flight), (0, 0), "{lane:?}");
    }
}

// Goal: a guest with an old kernel and split rings pings and transfers data over TCP and UDP in
// both directions. It reports the same numbers as mqnet, and files arrive unchanged while channels
// are resized 200 times and features are switched. The link survives down, up and rebinding under a
// flood.
#[test]
fn an_old_guest_on_split_rings() {
    operations_of_a_guest(Kernel::V6_1, false, 4);
}

// Goal: the operations work with a new kernel, packed rings, and fewer CPUs than queue pairs.
#[test]
fn a_new_guest_on_packed_rings() {
    operations_of_a_guest(Kernel::V7_3, true, 8);
}
