//! What queues decide, from times that are given.

use super::*;

const KIB: u64 = 1024;

/// Bursts of 16 KiB in 16 frames, which take so many µs through the cache and past it; how many
/// of the last 1000 were streamed.
fn run(stores: &mut Stores, bursts: u32, took: [u64; 2]) -> usize {
    let mut now = Duration::from_secs(1);
    let mut streamed = Vec::new();
    for _ in 0..bursts {
        let Manner { streaming, watch, .. } = stores.begin();
        let began = now;
        streamed.push(streaming.is_some());
        now += Duration::from_micros(took[usize::from(streaming.is_some())]);
        if watch.is_some() {
            stores.hear(began, now, 16, 16 * KIB);
        }
    }
    streamed[streamed.len() - 1000..].iter().filter(|streamed| **streamed).count()
}

/// Bursts in which a trial becomes possible again, and those of the trial.
const AGAIN: u32 = 3 * (REST / (16 * KIB)) as u32;

fn auto() -> Option<Stores> {
    is_possible().then(|| Stores::new(Preference::Auto))
}

// Goal: who is near is written to through the cache, who is far past it, but for samples and
// trials, and who moves is followed.
#[test]
fn far_readers_are_streamed_to() {
    let Some(mut stores) = auto() else { return };
    for _ in 0..2 {
        assert_eq!(run(&mut stores, 5000, [1, 2]), 0);
        assert!(run(&mut stores, 5000, [14, 2]) >= 990);
    }
}

// Goal: where samples do not say near, the manner that moves more bytes wins, and where neither
// does, what the samples say; and it is asked again.
#[test]
fn trials_decide() {
    for (took, streams) in [
        ([3, 2], true),
        ([3, 3], false),
        ([3, 5], false),
        // Far by its samples, which were of something else.
        ([14, 28], false),
        ([14, 14], true),
    ] {
        let Some(mut stores) = auto() else { return };
        let is = |n: usize| if streams { n > 700 } else { n < 300 };
        assert!(is(run(&mut stores, AGAIN, took)), "{took:?}");
        // Another reader, of whom the samples say the same.
        let other = if streams { 2 * took[0] } else { 1 };
        let n = run(&mut stores, 2 * AGAIN, [took[0], other]);
        assert!(!streams && n > 700 || streams && n < 300, "{took:?}, {other}: {n}");
    }
}

// Goal: samples that were quick by chance do not add up against a trial, many in a row do.
#[test]
fn a_few_near_samples_change_nothing() {
    let Some(mut stores) = auto() else { return };
    (stores.verdict, stores.is_streaming) = (Some(true), true);
    (stores.evidence, stores.rest) = (EVIDENCE, u64::MAX / 2);
    let hear = |stores: &mut Stores, us| {
        stores.hear(Duration::ZERO, Duration::from_micros(us), 16, 16 * KIB);
    };
    (0..1000).for_each(|n| hear(&mut stores, if n % 4 == 0 { 1 } else { 14 }));
    assert!(stores.is_streaming);
    (0..EVIDENCE).for_each(|_| hear(&mut stores, 1));
    assert_eq!((stores.is_streaming, stores.verdict, stores.rest), (false, None, 0));
}

// Goal: a trial does not take for its own what the turn before has left in a full ring: of
// bytes, and of 512 and 1024 descriptors.
#[test]
fn a_turn_begins_late() {
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
            let (turn, began) = (trial.turn, now);
            // The reader sets the pace, and what it reads was stored so many bytes before.
            let lags = trial.bytes < depth;
            now += Duration::from_micros(if trial.streams() == lags { 10 } else { 2 });
            ends = trial.hear(began, now, frames, bytes);
            assert!(trial.turn <= turn + 1);
        }
        assert_eq!(trial.verdict(), Some(true), "{frames} frames of {bytes} bytes, {depth}");
    }
}

// Goal: interrupted bursts, and bursts that are too small to tell, change nothing.
#[test]
fn what_says_nothing_changes_nothing() {
    let Some(mut stores) = auto() else { return };
    for n in 0..10_000u32 {
        let took = Duration::from_micros(if n % 3 == 0 { 1000 } else { 1 });
        stores.hear(Duration::ZERO, took, 16, 16 * KIB);
    }
    for _ in 0..1000 {
        stores.hear(Duration::ZERO, Duration::from_millis(1), 1, BYTES_MIN - 1);
    }
    assert!(stores.trial.is_none());
    assert_eq!(run(&mut stores, 1000, [1, 1]), 0);
}

// Goal: what a process prefers is what its queues do from their first burst on.
#[test]
fn a_preference_is_followed() {
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

// Goal: what goes through the cache is handed on where the machine can, but for samples: in the
// cached turns of a trial too, and never for who prefers the cache, or past it.
#[test]
fn what_is_cached_is_handed_on() {
    for preference in [Preference::Auto, Preference::Cached, Preference::Streamed] {
        let mut stores = Stores::new(preference);
        let may = preference == Preference::Auto;
        assert_eq!(stores.may_demote, may && demote::is_possible());
        // As on a machine that can.
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
    trial.turn = 1;
    let Manner { streaming, demotes, .. } = stores.begin();
    assert!(streaming.is_some() && !demotes);
}

// Goal: where the decision is made, nothing is watched.
#[test]
fn what_is_fixed_stays() {
    let streamed = if is_possible() { 1000 } else { 0 };
    for (preference, streamed) in [(Preference::Streamed, streamed), (Preference::Cached, 0)] {
        for took in [[1, 14], [14, 1], [3, 2]] {
            assert_eq!(run(&mut Stores::new(preference), 5000, took), streamed);
        }
    }
}
