//! Channel changes under traffic. Two engines are joined by a bridge, hosts number every frame,
//! both ends make random requests, and failures are injected at every step.

use std::time::Duration;

use mqnet_conformance::flows::Failure;
use mqnet_conformance::world::{End, World, random};
use mqnet_engine::LinkSettings;
use mqnet_netdev::RequestedRings;
use mqnet_sysio::clock;

// Goal: any sequence of resizes from either end, with failures at every step, loses, duplicates and
// reorders no frame. A failed resize reports its reason and keeps the old state. Finally both ends
// have the smaller of the requested numbers of channels.
#[test]
fn resizes_with_failures_lose_nothing() {
    (1..=4u64).for_each(|seed| resizes_with_failures(seed, None));
}

// Goal: resizes lose no frame that waits in a qdisc before a sink. The qdiscs are one per channel,
// one for all channels, and one that delays frames, so that frames wait during every change.
#[test]
fn resizes_keep_frames_in_qdiscs() {
    for (seed, words) in [
        (1u64, "pfifo limit 1000000"),
        (2, "fq_codel limit 1000000 target 10s interval 100s memory_limit 1gb"),
        (3, "tbf rate 80mbit burst 10kb limit 100mb"),
    ] {
        resizes_with_failures(seed, Some(words));
    }
}

fn resizes_with_failures(seed: u64, attached: Option<&str>) {
    {
        let mut world = World::new(seed, attached);
        let mut dice = seed * 7919;
        let (mut failures, mut changes) = (0, 0);
        for _ in 0..40 {
            let side = (random(&mut dice) % 2) as usize;
            let wanted = [1, 2, 3, 4, 8, 13][(random(&mut dice) % 6) as usize];
            let fail = match random(&mut dice) % 6 {
                0 => Some(Failure::Prepare),
                1 => Some(Failure::Steer),
                _ => None,
            };
            let victim = (random(&mut dice) % 2) as usize;
            world.ends[victim].flows.state().fail = fail;
            let before = world.ends.each_ref().map(End::channels);
            let steered = world.ends.each_ref().map(|e| e.flows.state().steered_to);
            match world.resize(side, wanted) {
                Ok(_) => {
                    changes += 1;
                    world.settle();
                    let requests = world.ends.each_ref().map(|e| e.link.settings().channels);
                    let smaller = requests.into_iter().flatten().min().unwrap_or(1);
                    assert_eq!(world.ends[0].channels(), smaller, "{:?}", world.logs());
                }
                Err(why) => {
                    failures += 1;
                    assert!(why.contains("injected"), "{why}");
                    world.settle();
                    assert_eq!(world.ends.each_ref().map(End::channels), before);
                    let now = world.ends.each_ref().map(|e| e.flows.state().steered_to);
                    assert_eq!(now, steered, "a failed change left flows elsewhere");
                }
            }
            world.ends[victim].flows.state().fail = None;
        }
        assert!(failures > 2 && changes > 5, "{failures} failures, {changes} changes");
        assert!(world.finish() > 1000);
    }
}

// Goal: if the lanes of an idle link sleep at both ends during a change, the first frames of every
// flow still arrive in both directions. No wake-up is lost.
#[test]
fn an_idle_link_wakes_after_a_change() {
    let mut world = World::quiet(31, None);
    for end in &world.ends {
        end.flows.state().prepare_takes = Duration::from_millis(20);
    }
    for (round, channels) in [8, 2, 16, 1].into_iter().enumerate() {
        for side in [0, 1] {
            // The smaller request applies, so both ends send one; they alternate in sending the
            // first.
            world.resize((round + side) % 2, channels).expect("resized");
        }
        world.settle();
        std::thread::sleep(Duration::from_millis(20));
        for end in &world.ends {
            (0..40).for_each(|flow| end.flows.send(flow));
        }
        let due = 40 * (round as u64 + 1);
        world.until("every flow arrives", |w| {
            w.ends.iter().all(|end| end.flows.state().received == due)
        });
    }
    world.finish();
}

// Goal: if both ends send different requests at the same time, both get an answer, and both ends
// use the smaller request.
#[test]
fn concurrent_requests_settle_on_the_smaller() {
    for seed in 41..46 {
        let mut world = World::new(seed, None);
        let now = clock::monotonic();
        for (side, channels) in [(0, 8), (1, 4)] {
            let link = &mut world.ends[side].link;
            let settings = LinkSettings { channels: Some(channels), ..link.settings().clone() };
            link.request(settings, now).expect("requested");
            // The second request follows after zero to two iterations.
            (0..seed % 3).for_each(|_| world.turn());
        }
        let mut answers = [None, None];
        world.until("both are answered", |w| {
            for (end, answer) in w.ends.iter_mut().zip(&mut answers) {
                *answer = answer.take().or(end.link.answer());
            }
            answers.iter().all(Option::is_some)
        });
        assert!(answers.iter().flatten().all(Result::is_ok), "{answers:?}: {:?}", world.logs());
        world.until("the smaller settings wins", |w| w.ends.iter().all(|e| e.channels() == 4));
        world.finish();
    }
}

// Goal: requests that change ring size, MTU and channels together take effect under traffic without
// loss.
#[test]
fn rings_and_mtu_change_under_traffic() {
    let mut world = World::new(11, None);
    for (round, kib) in [16u32, 256, 32, 1024].into_iter().enumerate() {
        let rings = RequestedRings { rx: Some(kib << 10), tx: None };
        let mtu = if round % 2 == 0 { 9000 } else { 1500 };
        let channels = Some(1 + round as u16);
        let settings = LinkSettings { rings, channels, mtu: Some(mtu), ..LinkSettings::default() };
        world.ask(0, settings).expect("changed");
        world.settle();
        for end in &world.ends {
            assert_eq!(end.link.running().expect("up").plan.mtu, mtu);
        }
        let [near, far] = world.ends.each_mut().map(|end| {
            let sizes =
                end.link.functions().into_iter().filter_map(|f| f.peer().map(|p| p.rings()));
            sizes.collect::<Vec<_>>()[0]
        });
        let largest = near.rx_max.min(kib << 10);
        assert_eq!((near.rx, far.tx), (largest, largest));
    }
    assert!(world.finish() > 100);
}

// Goal: an impossible request is refused immediately with the limits and changes no setting.
#[test]
fn impossible_requests_are_refused() {
    let mut world = World::new(21, None);
    let tiny = RequestedRings { rx: Some(512), tx: None };
    let why = world.ask(1, LinkSettings { rings: tiny, ..LinkSettings::default() }).unwrap_err();
    assert!(why.contains("rings too small for a frame of mtu 1500"), "{why}");
    world.resize(0, 4).expect("still alive");
    world.finish();
}

// Goal: if the follower commits so late that the leader's new lanes already sleep, the follower's
// frames wake these lanes.
#[test]
fn a_late_follower_wakes_its_leader() {
    let mut world = World::new(31, None);
    let leads = |end: &mut End| {
        end.link.functions().into_iter().any(|f| f.peer().is_some_and(|peer| peer.leads()))
    };
    let leader = world.ends.iter_mut().position(leads).expect("one of them leads");
    for channels in [4, 1, 8, 2] {
        let settings = LinkSettings { channels: Some(channels), ..LinkSettings::default() };
        world.ends[leader].link.request(settings, clock::monotonic()).expect("requested");
        while !world.ends[leader].link.is_changing() {
            world.ends[leader].turn();
        }
        // An idle lane of a busy worker sleeps after 64 poll windows of one millisecond.
        std::thread::sleep(Duration::from_millis(200));
        world.until("the change is made", |w| w.ends.iter().all(|e| e.channels() == channels));
        world.settle();
    }
    assert!(world.finish() > 1000);
}
