//! Sinks that stop, with and without qdiscs. Frames for a stopped sink wait without loss, are sent
//! when the sink continues, and do not delay flows to other sinks.

use std::time::{Duration, Instant};

use mqnet_conformance::world::{World, random};
use mqnet_qdisc::{Attach, ObjectType, TcCommand, Verb};

const FLOWS: u32 = 40;

fn replace_root(words: &str) -> TcCommand {
    let mut words = words.split_whitespace().map(str::to_owned);
    TcCommand {
        verb: Verb::Replace,
        object: ObjectType::Qdisc,
        attach: Attach::Root,
        handle: None,
        prio: None,
        protocol: None,
        kind: words.next(),
        options: words.collect(),
    }
}

/// Attaches a qdisc to the simulated host of an end, in front of the sink that stalls.
fn attach(world: &mut World, end: usize, words: &str) {
    let link = &mut world.ends[end].link;
    let side = (0..2).find(|&side| link.functions()[side].name() == "flows").expect("a host");
    let done = link.tc(side, &replace_root(words));
    done.unwrap_or_else(|e| panic!("{words}: {e}"));
}

fn arrived(world: &World, end: usize) -> Vec<u64> {
    let state = world.ends[end].flows.state();
    (0..FLOWS).map(|flow| state.arrived(flow)).collect()
}

/// Waits until another frame of each of these flows has arrived at an end.
fn until_they_move(world: &mut World, end: usize, what: &str, flows: &[u32]) {
    let before = arrived(world, end);
    world.until(what, |w| {
        let now = arrived(w, end);
        flows.iter().all(|&flow| now[flow as usize] > before[flow as usize])
    });
}

/// Runs both links for `time`.
fn pass(world: &mut World, time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        world.turn();
    }
}

/// Number of leading entries of `ROOTS` that never drop frames in these tests. The leaves of `mq`,
/// the last entry, drop above 1000 frames.
const LOSSLESS: u64 = 3;
const ROOTS: [&str; 4] = [
    "noqueue",
    "pfifo limit 1000000",
    "fq_codel limit 1000000 target 100s interval 100s memory_limit 1gb",
    "mq",
];

// Goal: a stopped queue stops only its own flows. The rule holds without a qdisc, with one qdisc
// per queue, and with one qdisc for all queues.
#[test]
fn a_stopped_queue_is_in_nobodys_way() {
    for (seed, words) in (1u64..).zip(ROOTS) {
        let mut world = World::new(seed, None);
        world.resize(0, 4).expect("four channels");
        world.resize(1, 4).expect("four channels");
        world.settle();
        attach(&mut world, 1, words);
        for stopped in [1u16, 3, 0] {
            world.ends[1].flows.state().stalled = 1 << stopped;
            pass(&mut world, Duration::from_millis(20));
            let free: Vec<u32> = {
                let sender = world.ends[0].flows.state();
                (0..FLOWS).filter(|&flow| sender.queue_of(flow) != stopped).collect()
            };
            assert!(!free.is_empty());
            let held = arrived(&world, 1);
            until_they_move(&mut world, 1, &format!("{words}: flows of other queues"), &free);
            let now = arrived(&world, 1);
            let still =
                |flow: &u32| free.contains(flow) || now[*flow as usize] == held[*flow as usize];
            assert!((0..FLOWS).all(|flow| still(&flow)), "{words}: a stopped queue sent");
            world.ends[1].flows.state().stalled = 0;
            let all: Vec<u32> = (0..FLOWS).collect();
            until_they_move(&mut world, 1, &format!("{words}: after the stop"), &all);
        }
        match seed <= LOSSLESS {
            true => assert!(world.finish() > 1000),
            // A leaf of `mq` may have been full before the stall ended, so drops are allowed if
            // they are counted.
            false => world.assert_conserved(),
        }
    }
}

// Goal: random stalls, qdisc changes and resizes from both ends lose, duplicate and reorder no
// frame, and no queue stays stopped after its sink continues.
#[test]
fn nothing_stays_stopped() {
    for seed in 11..=13u64 {
        let mut world = World::new(seed, None);
        let mut dice = seed * 104_729;
        for _ in 0..60 {
            let end = (random(&mut dice) % 2) as usize;
            match random(&mut dice) % 5 {
                0 => world.ends[end].flows.state().stalled = random(&mut dice) & 0xff,
                1 | 2 => {
                    let words = ROOTS[(random(&mut dice) % LOSSLESS) as usize];
                    attach(&mut world, end, words);
                }
                3 => {
                    // End the stalls first, because a channel change waits until the sinks have
                    // room for the frames.
                    world.ends.iter().for_each(|end| end.flows.state().stalled = 0);
                    let channels = [1, 2, 3, 8][(random(&mut dice) % 4) as usize];
                    world.resize(end, channels).expect("a resize");
                    world.settle();
                }
                _ => {
                    world.ends.iter().for_each(|end| end.flows.state().stalled = 0);
                    let all: Vec<u32> = (0..FLOWS).collect();
                    until_they_move(&mut world, end, "every flow goes on", &all);
                }
            }
            pass(&mut world, Duration::from_millis(random(&mut dice) % 8));
        }
        world.ends.iter().for_each(|end| end.flows.state().stalled = 0);
        assert!(world.finish() > 1000);
    }
}

// Goal: if links go down while frames wait in qdiscs, every lost frame is counted once, and traffic
// continues afterwards.
#[test]
fn flaps_count_every_lost_frame() {
    for (seed, words) in (21u64..).zip(ROOTS) {
        let mut world = World::new(seed, None);
        let mut dice = seed * 7919;
        attach(&mut world, 0, words);
        attach(&mut world, 1, words);
        for _ in 0..8 {
            let end = (random(&mut dice) % 2) as usize;
            world.resize(end, [1, 2, 4][(random(&mut dice) % 3) as usize]).expect("a resize");
            world.settle();
            world.ends[end].flows.state().stalled = random(&mut dice) & 0xf;
            pass(&mut world, Duration::from_millis(5));
            world.ends[(random(&mut dice) % 2) as usize]
                .link
                .shut_down("a flap", Duration::ZERO)
                .expect("down");
            world.until("both are down", |w| w.ends.iter().any(|end| end.channels() == 0));
            world.ends.iter().for_each(|end| end.flows.state().stalled = 0);
            world.until("both are up", |w| w.ends.iter().all(|end| end.channels() > 0));
            // A link that goes down may lose frames, so missing ones are removed from the senders'
            // windows.
            world.forgive();
            let all: Vec<u32> = (0..FLOWS).collect();
            until_they_move(&mut world, end, "every flow goes on", &all);
        }
        world.assert_conserved();
    }
}

// Goal: a link that is closed while its peer is stalled delivers all accepted frames after the peer
// resumes. No frame is dropped in the lanes and qdiscs of the link, or lost in its rings.
#[test]
fn orderly_end_loses_nothing() {
    for (seed, words) in (41u64..).zip(ROOTS) {
        let mut world = World::new(seed, None);
        attach(&mut world, 0, words);
        world.resize(0, 1 + (seed % 3) as u16).expect("a resize");
        world.ends[1].flows.state().stalled = u64::MAX;
        pass(&mut world, Duration::from_millis(20));
        let host = world.ends[1].flows.clone();
        let goes_on = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            host.state().stalled = 0;
        });
        world.ends[0].link.shut_down("the end", Duration::from_secs(20)).expect("down");
        goes_on.join().expect("a thread");
        let received = world.ends[1].flows.state().received;
        let stats = world.ends[0].link.stats();
        let taken: u64 = stats[0].iter().map(|s| s.rx.packets.get()).sum();
        let dropped: u64 = stats[0].iter().map(|s| s.rx.drops.total()).sum();
        let refused: u64 = stats[1].iter().map(|s| s.tx.drops.total()).sum();
        let lost: u64 = stats[1].iter().map(|s| s.tx.lost.get()).sum();
        assert!(taken > 100, "hardly any traffic: {taken}");
        assert_eq!((received, dropped, refused, lost), (taken, 0, 0, 0));
        world.assert_conserved();
    }
}

/// mqprio with one class for all priorities.
const MQPRIO: &str = "mqprio num_tc 1 map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 4@0 hw 0";

// Goal: after every transition between kinds of root qdiscs, the lanes apply further changes. A new
// filter that drops all frames must let no frame pass.
#[test]
fn changes_reach_lanes_after_every_kind_of_root() {
    let command = |object, kind: &str, options: &[&str]| TcCommand {
        object,
        attach: Attach::Egress,
        verb: Verb::Add,
        kind: Some(kind.to_owned()),
        options: options.iter().map(|word| (*word).to_owned()).collect(),
        ..replace_root("")
    };
    for (seed, roots) in (31u64..).zip([
        &[MQPRIO][..],
        &["pfifo limit 1000000", MQPRIO],
        &[MQPRIO, "pfifo limit 1000000"],
        &["mq", "pfifo limit 1000000", "noqueue", MQPRIO],
        &["pfifo limit 1000000", "mq"],
        &["noqueue"],
    ]) {
        let mut world = World::new(seed, None);
        for end in [0, 1] {
            world.resize(end, 4).expect("four channels");
        }
        world.settle();
        for words in roots {
            attach(&mut world, 1, words);
            pass(&mut world, Duration::from_millis(10));
        }
        let link = &mut world.ends[1].link;
        let side = (0..2).find(|&side| link.functions()[side].name() == "flows").expect("a host");
        link.tc(side, &command(ObjectType::Qdisc, "clsact", &[])).expect("clsact");
        let drop_all = command(ObjectType::Filter, "matchall", &["action", "drop"]);
        link.tc(side, &drop_all).expect("a filter");
        pass(&mut world, Duration::from_millis(50));
        let before: u64 = arrived(&world, 1).iter().sum();
        pass(&mut world, Duration::from_millis(50));
        assert_eq!(arrived(&world, 1).iter().sum::<u64>(), before, "{roots:?}");
        world.assert_conserved();
    }
}
