use proptest::prelude::*;

use super::plans::{self, simple_tbf};
use super::world::{SECOND, Spec, World};
use crate::{Enqueued, Tbf};

/// Keeps a bucket saturated for `seconds`. Returns the time and length of each packet sent.
fn serve(world: &mut World, seconds: u64, lens: &[u32]) -> Vec<(u64, u32)> {
    let (start, mut left) = (world.now, Vec::new());
    let mut lens = lens.iter().cycle();
    while world.now < start + seconds * SECOND {
        while world.s.len() < 3 {
            assert_eq!(world.enqueue(Spec::new(0, *lens.next().unwrap())), Enqueued::Queued);
        }
        match world.dequeue(0) {
            Some(packet) => left.push((world.now - start, packet.wire)),
            None => {
                let wake = world.s.next_time().expect("it waits for a time");
                assert!(wake > world.now);
                world.now = wake - 1;
                assert_eq!(world.dequeue(0), None, "a nanosecond early");
                assert_eq!(world.s.next_time(), Some(wake));
                world.now = wake;
            }
        }
    }
    left
}

/// Checks the bound `rate * t + burst` at every packet, and the rate within 1 % at the end.
fn check(left: &[(u64, u32)], rate: u64, burst: u32, seconds: u64) {
    let mut sent = 0u128;
    for (at, bytes) in left {
        sent += u128::from(*bytes);
        let allowed = u128::from(*at) * u128::from(rate) / u128::from(SECOND);
        assert!(sent <= allowed + u128::from(burst), "{sent} at {at}");
    }
    let expected = u128::from(rate * seconds);
    assert!(sent * 100 >= expected * 99 && sent * 100 <= expected * 101 + 100 * u128::from(burst));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    // Goal: a saturated bucket sends at its rate within 1 %, never more than rate * t + burst, and
    // its next time is exact.
    #[test]
    fn tbf_keeps_its_rate(
        rate in 500_000u64..20_000_000,
        burst in 1600u32..50_000,
        lens in prop::collection::vec(60u32..1515, 1..20),
    ) {
        let mut world = World::new(plans::tbf(simple_tbf(rate, burst), None));
        let left = serve(&mut world, 3, &lens);
        check(&left, rate, burst, 3);
        world.finish();
    }
}

// Goal: GSO frames longer than the burst can leave, and the rate counts the bytes of their segments
// on the wire.
#[test]
fn large_frames_pass_at_the_rate() {
    let mut world = World::new(plans::tbf(simple_tbf(2_000_000, 3000), None));
    let left = serve(&mut world, 20, &[60_000, 64, 30_000]);
    let sent: u64 = left.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
    assert!(left.iter().any(|(_, bytes)| *bytes == 60_000 + 41 * 66));
    assert!(sent.abs_diff(40_000_000) <= 400_000, "{sent}");
    world.finish();
}

// Goal: a frame that can never be sent is dropped immediately and does not block the queue.
#[test]
fn a_frame_longer_than_the_burst_is_dropped() {
    let mut world = World::new(plans::tbf(simple_tbf(1_000_000, 1000), None));
    assert_eq!(world.enqueue(Spec::new(0, 1001)), Enqueued::Dropped);
    assert_eq!(world.enqueue(Spec::new(0, 1000)), Enqueued::Queued);
    assert!(world.dequeue(0).is_some());
    world.finish();
}

// Goal: with a peak rate, two frames are never closer than the peak rate allows, and the rate
// holds.
#[test]
fn the_peak_rate_spaces_packets() {
    let tbf = Tbf { peakrate: 2_000_000, mtu: 1514, ..simple_tbf(1_000_000, 50_000) };
    let mut world = World::new(plans::tbf(tbf, None));
    let left = serve(&mut world, 5, &[1500]);
    check(&left, 1_000_000, 50_000, 5);
    for pair in left.windows(2).skip(1) {
        assert!(pair[1].0 - pair[0].0 >= 749_000, "{pair:?}");
    }
    world.finish();
}

// Goal: a wait counts as one overlimit at any polling frequency.
#[test]
fn peek_does_not_count_overlimit() {
    let plan = plans::tbf(simple_tbf(1_000_000, 1514), None);
    let stats = plan.stats.clone();
    let mut world = World::new(plan);
    world.fill(3, Spec::new(0, 1514));
    assert!(world.dequeue(0).is_some());
    (0..50).for_each(|_| assert!(world.dequeue(0).is_none()));
    assert_eq!(stats.overlimits.get(), 1);
    world.now = world.s.next_time().unwrap();
    assert!(world.dequeue(0).is_some());
    assert!(world.dequeue(0).is_none());
    assert_eq!(stats.overlimits.get(), 2);
    world.finish();
}
