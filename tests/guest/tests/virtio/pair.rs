//! Two guests at the two ends of one link.

use mqnet_guest::{Guest, Kernel, Outcome, Running};
use mqnet_testkit::{Folder, Lane, LinkProcess, until};

use super::{card, possible, shared};

const MEMORY: u32 = 384;

fn guest(folder: &Folder, stores: &str, side: u32) -> Running {
    let socket = folder.file(&format!("card{side}"));
    let script = format!("SIDE={side}\n{}", include_str!("../../scripts/pair.sh"));
    let guest = Guest::new(Kernel::V6_1, &format!("test-pair-{stores}-{side}"));
    let guest = guest.bare().cpus(1).memory(MEMORY).script("pair", &script);
    let device = format!(",mac=02:00:00:00:00:0{side}");
    let card = super::Card { device: &device, ..card(&socket, side == 2) };
    card.put_into(guest, &shared(MEMORY)).start().unwrap()
}

fn sums(outcome: &Outcome) -> Vec<String> {
    let printed = &outcome.passed("pair").unwrap().output;
    println!("{printed}");
    assert!(printed.ends_with("== done\n"), "{printed}");
    printed.lines().filter_map(|line| line.strip_prefix("sum ")).map(str::to_owned).collect()
}

// Goal: two guests, one with split and one with packed rings, transfer data over TCP and UDP, and a
// file, in both directions. Each byte between the guests is copied once.
#[test]
fn two_guests_and_one_copy() {
    two_guests("auto");
}

// Goal: transfers between the guests work with non-temporal stores for every frame.
#[test]
fn two_guests_with_non_temporal_stores() {
    two_guests("streamed");
}

fn two_guests(stores: &str) {
    if !possible(Kernel::V6_1) {
        return;
    }
    let folder = Folder::create();
    let mut command = folder.program();
    command.env("MQNET_STORES", stores);
    let ends =
        [1, 2].map(|side| format!("vhost-user:{}", folder.file(&format!("card{side}")).display()));
    command.args(["link", "--json"]).args(ends);
    let link = LinkProcess::spawn(command);
    until("the sockets", || folder.file("card2").exists().then_some(()));
    let guests = [1, 2].map(|side| guest(&folder, stores, side));
    let [asks, serves] = guests.map(|guest| guest.wait().unwrap());
    let printed = &asks.passed("pair").unwrap().output;
    assert_eq!(printed.matches("receiver").count(), 4, "a stream is missing: {printed}");
    let (one, other) = (sums(&asks), sums(&serves));
    assert_eq!(other.len(), 2, "{other:?}");
    assert!(one == other[..1] && one == other[1..], "a file did not come whole: {one:?} {other:?}");
    let table = link.stop();
    for direction in ["a-to-b", "b-to-a"] {
        let lane = Lane::read(&table.0, direction);
        assert_eq!((lane.tx_lost, lane.in_flight), (0, 0), "{lane:?}");
        // Frames are large, so nearly all bytes belong to the files and streams.
        let copies = table.0[direction]["copies"].as_u64().expect("copies");
        println!(
            "{direction}: {} frames, {} bytes, {copies} copies",
            lane.tx_packets, lane.tx_bytes
        );
        assert!(lane.tx_bytes > 10 << 20, "{lane:?}");
        assert_eq!(copies, lane.tx_packets, "copies of {direction}");
    }
}
