//! CPU time and memory of a link.

use std::time::Duration;

use mqnet_testkit::{Figures, IdleCost, Need, Stream, World, has, resident_kib};

/// Duration of one measurement, maximum wake-ups per second, and number of measurements.
const WATCHED: Duration = Duration::from_secs(5);
const SLEEPS_MAX: u64 = 50;
const WINDOWS: usize = 3;

/// Time after which a process without a peer retries less often. The process retries often for 2 s
/// (`SOON` in the engine).
const OFTEN: Duration = Duration::from_millis(2500);

/// Maximum resident memory in KiB of an end with 4 channels and windows of 2 MiB. About half is
/// code of the program, or more if the page cache has the program in large folios.
const RESIDENT_MAX_KIB: u64 = 26 << 10;

/// Takes three measurements and returns the one with the fewest wake-ups, because the network
/// stacks may send frames.
fn idle_cost(pid: u32) -> IdleCost {
    let costs = std::iter::repeat_with(|| IdleCost::measure(pid, WATCHED)).take(WINDOWS);
    costs.min_by_key(|cost| cost.sleeps).unwrap()
}

/// Text with the setting of huge pages for shared memory. With huge pages the first access to a
/// window already occupies 2 MiB.
fn huge_pages() -> String {
    let file = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let setting = std::fs::read_to_string(file).unwrap_or_default();
    format!(" (huge pages of shared memory: {})", setting.trim())
}

// Goal: an idle link uses less than 1 % of a core and at most [`RESIDENT_MAX_KIB`], also after
// traffic has touched all of its memory.
#[test]
fn an_idle_link_is_cheap() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end.channels(4));
    // Enough streams for the flow hash to use every channel.
    let start = |n: usize| {
        let (from, to) =
            if n.is_multiple_of(2) { (&world.a, &world.b) } else { (&world.b, &world.a) };
        Stream::start(from, to, ["10.0.0.2", "10.0.0.1", "fd00::2", "fd00::1"][n % 4])
    };
    let flows: Vec<Stream> = (0..16).map(start).collect();
    for flow in flows {
        flow.wait_more(16 << 20);
        flow.finish();
    }
    pair.a.wait_quiet();
    pair.b.wait_quiet();
    let (mut percents, mut sizes) = (Vec::new(), Vec::new());
    for (name, end) in [("a", &pair.a), ("b", &pair.b)] {
        let cost = idle_cost(end.pid());
        let resident = resident_kib(end.pid());
        println!("idle end {name}: {cost:?}, {resident} KiB resident");
        cost.assert_below(SLEEPS_MAX);
        assert!(resident < RESIDENT_MAX_KIB, "{resident} KiB resident{}", huge_pages());
        percents.push(cost.percent());
        sizes.push(resident as f64 / 1024.0);
    }
    let cpu = "an idle link, percent of a CPU (a tick is 10 ms, of 5 s)";
    let figures = Figures::of("idle", "link").case(cpu, "percent", &[("mqnet", &percents)], &[]);
    let memory = "resident memory of an end with 4 channels";
    figures.case(memory, "MiB", &[("mqnet", &sizes)], &[]).keep();
    pair.stop();
}

// Goal: an end without a peer uses less than 1 % of a core.
#[test]
fn waiting_for_a_peer_is_cheap() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let a = world.end_a().spawn();
    a.wait_down("peer");
    std::thread::sleep(OFTEN);
    let cost = idle_cost(a.pid());
    println!("waiting for a peer: {cost:?}");
    cost.assert_below(SLEEPS_MAX);
    a.stop().assert_conserved();
}

// Goal: both ends count kicks; under load there are far fewer kicks than frames.
#[test]
fn kicks_are_counted() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end);
    let flow = Stream::start(&world.a, &world.b, "10.0.0.2");
    flow.wait_more(512 << 20);
    flow.finish();
    pair.a.wait_quiet();
    let (a, b) = pair.stop();
    let mut rates = Vec::new();
    for (name, end) in [("a", &a), ("b", &b)] {
        let kicks = end.out().kicks + end.back().kicks;
        let per_frame = kicks as f64 / end.frames() as f64;
        println!("end {name}: {kicks} kicks, {} frames, {per_frame:.4} a frame", end.frames());
        assert!(kicks > 0, "no kick at all: how was the worker woken by the first frame?");
        assert!(kicks < end.frames(), "a kick for each frame");
        rates.push(per_frame);
    }
    let case = "doorbells for a frame of a TCP stream";
    Figures::of("idle", "doorbells").case(case, "doorbells", &[("mqnet", &rates)], &[]).keep();
}
