//! Decisions of queues, for given times.

use super::*;

const KIB: u64 = 1024;

/// Runs bursts of 16 KiB in 16 frames. `took` is their duration in µs with cached and with
/// non-temporal stores. Returns the number of streamed bursts among the last 1000.
fn run(stores: &mut Stores, bursts: u32, took: [u64; 2]) -> usize {
    let mut now = Duration::from_secs(1);
    let mut streamed = Vec::new();
    for _ in 0..bursts {
        let StoreMode { streaming, watch, .. } = stores.begin();
        let began = now;
        streamed.push(streaming.is_some());
        now += Duration::from_micros(took[usize::from(streaming.is_some())]);
        if watch.is_some() {
            stores.record(began, now, 16, 16 * KIB);
        }
    }
    streamed[streamed.len() - 1000..].iter().filter(|streamed| **streamed).count()
}

/// Number of bursts that includes the wait for the next trial and the trial.
const AGAIN: u32 = 3 * (TRIAL_INTERVAL / (16 * KIB)) as u32;

fn auto() -> Option<Stores> {
    is_possible().then(|| Stores::new(Preference::Auto))
}

// Goal: near readers get cached stores and far ones non-temporal stores, except in samples and
// trials. The mode follows a reader that moves.
#[test]
fn far_readers_get_non_temporal_stores() {
    let Some(mut stores) = auto() else { return };
    for _ in 0..2 {
        assert_eq!(run(&mut stores, 5000, [1, 2]), 0);
        assert!(run(&mut stores, 5000, [14, 2]) >= 990);
    }
}

// Goal: if samples do not show a near reader, the mode with the higher throughput wins. Without a
// winner the samples decide, and trials are repeated.
#[test]
fn trial_winner_is_used() {
    for (took, streams) in [
        ([3, 2], true),
        ([3, 3], false),
        ([3, 5], false),
        // Samples show a far reader, although non-temporal stores are not faster.
        ([14, 28], false),
        ([14, 14], true),
    ] {
        let Some(mut stores) = auto() else { return };
        let is = |n: usize| if streams { n > 700 } else { n < 300 };
        assert!(is(run(&mut stores, AGAIN, took)), "{took:?}");
        // Another reader with the same samples.
        let other = if streams { 2 * took[0] } else { 1 };
        let n = run(&mut stores, 2 * AGAIN, [took[0], other]);
        assert!(!streams && n > 700 || streams && n < 300, "{took:?}, {other}: {n}");
    }
}

// Goal: single fast samples do not outweigh a trial, but many in a row do.
#[test]
fn single_near_samples_change_nothing() {
    let Some(mut stores) = auto() else { return };
    (stores.verdict, stores.is_streaming) = (Some(true), true);
    (stores.evidence, stores.until_trial) = (EVIDENCE, u64::MAX / 2);
    let record = |stores: &mut Stores, us| {
        stores.record(Duration::ZERO, Duration::from_micros(us), 16, 16 * KIB);
    };
    (0..1000).for_each(|n| record(&mut stores, if n % 4 == 0 { 1 } else { 14 }));
    assert!(stores.is_streaming);
    (0..EVIDENCE).for_each(|_| record(&mut stores, 1));
    assert_eq!((stores.is_streaming, stores.verdict, stores.until_trial), (false, None, 0));
}

// Goal: a trial does not count the frames that the previous round left in a full ring, measured in
// bytes, or in 512 and 1024 descriptors.
#[test]
fn rounds_ignore_the_previous_rounds_ring() {
    for (frames, bytes, depth) in [
        (16, 16 * KIB, 512 * KIB),
        (64, 64 * 1514, 512 * 1514),
        (32, 32 * 1514, 1024 * 1514),
        (32, 32 * 64, 1024 * 64),
        (33, 33 * 4000, 256 * 4000),
    ] {
        let mut trial = Trial::default();
        let (mut now, mut ends) = (Duration::ZERO, false);
        while !ends {
            let (round, began) = (trial.round, now);
            // The reader determines the rate, and reads data that was stored `depth` bytes earlier.
            let lags = trial.bytes < depth;
            now += Duration::from_micros(if trial.streams() == lags { 10 } else { 2 });
            ends = trial.record(began, now, frames, bytes);
            assert!(trial.round <= round + 1);
        }
        assert_eq!(trial.verdict(), Some(true), "{frames} frames of {bytes} bytes, {depth}");
    }
}

// Goal: interrupted bursts, and bursts below the minimum size, change nothing.
#[test]
fn meaningless_samples_change_nothing() {
    let Some(mut stores) = auto() else { return };
    for n in 0..10_000u32 {
        let took = Duration::from_micros(if n % 3 == 0 { 1000 } else { 1 });
        stores.record(Duration::ZERO, took, 16, 16 * KIB);
    }
    for _ in 0..1000 {
        stores.record(Duration::ZERO, Duration::from_millis(1), 1, BYTES_MIN - 1);
    }
    assert!(stores.trial.is_none());
    assert_eq!(run(&mut stores, 1000, [1, 1]), 0);
}

// Goal: queues follow the process's preference from their first burst on.
#[test]
fn preference_applies_from_the_first_burst() {
    for (preference, streams) in [
        (Preference::Streamed, is_possible()),
        (Preference::Cached, false),
        (Preference::Auto, false),
    ] {
        prefer(preference);
        let mut stores = Stores::default();
        assert_eq!(stores.begin().streaming.is_some(), streams, "{preference:?}");
        assert_eq!(stores.is_fixed, preference != Preference::Auto || !is_possible());
    }
}

// Goal: cached lines are demoted if the CPU supports that, also in the cached rounds of a trial.
// They are not demoted in samples, for a forced mode, or with non-temporal stores.
#[test]
fn cached_lines_are_demoted() {
    for preference in [Preference::Auto, Preference::Cached, Preference::Streamed] {
        let mut stores = Stores::new(preference);
        let may = preference == Preference::Auto;
        assert_eq!(stores.may_demote, may && demote::is_possible());
        // Simulate a CPU with the instruction.
        stores.may_demote |= may;
        assert_eq!(stores.demotes(), may);
        for n in 1..=3 * PERIOD {
            let is_sample = n % PERIOD == 0;
            assert_eq!(stores.begin().demotes, may && !is_sample, "{preference:?}, {n}");
        }
    }
    let Some(mut stores) = auto() else { return };
    stores.may_demote = true;
    stores.trial = Some(Trial::default());
    stores.left = 1;
    assert!(stores.begin().demotes);
    (stores.is_streaming, stores.left) = (true, 1);
    assert!(!stores.demotes());
    let trial = stores.trial.as_mut().unwrap();
    trial.round = 1;
    let StoreMode { streaming, demotes, .. } = stores.begin();
    assert!(streaming.is_some() && !demotes);
}

// Goal: a forced mode does not change, for any times of the bursts.
#[test]
fn forced_modes_do_not_change() {
    let streamed = if is_possible() { 1000 } else { 0 };
    for (preference, streamed) in [(Preference::Streamed, streamed), (Preference::Cached, 0)] {
        for took in [[1, 14], [14, 1], [3, 2]] {
            assert_eq!(run(&mut Stores::new(preference), 5000, took), streamed);
        }
    }
}
