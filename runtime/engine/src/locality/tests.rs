use proptest::prelude::*;

use super::*;

const BUCKETS: usize = 16;

fn at(look: u32) -> Duration {
    // The base time is large, because a bucket at time 0 would be within the hold time of a move.
    Duration::from_secs(1000) + SAMPLE_INTERVAL * look
}

fn sample() -> impl Strategy<Value = Sample> {
    prop_oneof![
        2 => Just(Sample::Nowhere),
        1 => Just(Sample::Mixed),
        5 => (0u16..4).prop_map(Sample::On),
    ]
}

// Goal: a sample counts for a channel only if the channel has at least three in four frames.
#[test]
fn sights_need_a_clear_majority() {
    let of = |counts: &[u64]| Sample::of(counts.iter().copied());
    assert_eq!(of(&[]), Sample::Nowhere);
    assert_eq!(of(&[0, 0, 0]), Sample::Nowhere);
    assert_eq!(of(&[0, 1]), Sample::On(1));
    assert_eq!(of(&[1, 3]), Sample::On(1));
    assert_eq!(of(&[1, 2]), Sample::Mixed);
    assert_eq!(of(&[300, 50, 50]), Sample::On(0));
    assert_eq!(of(&[u64::MAX, u64::MAX]), Sample::On(0));
}

// Goal: a bucket moves at the third consecutive sample on the same channel, not earlier. Samples
// without traffic neither count nor reset. A sample on another channel, a mixed sample, or one on
// the bucket's queue resets the count.
#[test]
fn buckets_move_after_three_samples() {
    let on = Sample::On(2);
    for between in [Sample::Nowhere, Sample::Mixed, Sample::On(1), Sample::On(0)] {
        let mut policy = Policy::new(1);
        let mut look = |n, sample| policy.decide(at(n), true, &[0], &[sample]);
        assert_eq!(look(0, on), None);
        assert_eq!(look(1, on), None);
        assert_eq!(look(2, between), None);
        let moved = look(3, on);
        assert_eq!(moved.is_some(), between == Sample::Nowhere, "{between:?}");
    }
}

// Goal: a bucket that waits for its move stays on its queue if the target queue is removed.
#[test]
fn removed_queues_get_no_buckets() {
    for queues in [2, 4] {
        let mut policy = Policy::new(2 * MOVES);
        let (table, on) = ([0; 2 * MOVES], [Sample::On(3); 2 * MOVES]);
        let moved = |moves: Option<Moves>| moves.map_or(0, |moves| moves.buckets.len());
        assert_eq!(
            (0..3).map(|n| moved(policy.decide(at(n), true, &table, &on))).sum::<usize>(),
            MOVES
        );
        policy.limit_queues(queues);
        let moves = policy.decide(at(3), true, &table, &[Sample::Nowhere; 2 * MOVES]);
        assert_eq!(moved(moves), if queues == 4 { MOVES } else { 0 });
    }
}

// Goal: of two ends that follow each other, only the leader moves buckets. After that, both tables
// agree.
#[test]
fn mutual_followers_converge() {
    let mut policies = [Policy::new(BUCKETS), Policy::new(BUCKETS)];
    let mut tables = [[0u16; BUCKETS], [1u16; BUCKETS]];
    let mut moves = [0, 0];
    for look in 0..200 {
        let seen = tables;
        for end in 0..2 {
            let samples = seen[1 - end].map(Sample::On);
            if let Some(m) = policies[end].decide(at(look), end == 0, &tables[end], &samples) {
                m.buckets.iter().for_each(|&bucket| tables[end][bucket] = m.queue);
                moves[end] += m.buckets.len();
            }
        }
    }
    assert_eq!((tables[0], moves), ([1; BUCKETS], [BUCKETS, 0]));
}

// Goal: a bucket with a new channel every second moves less and less often: at most 12 times in 300
// s.
#[test]
fn restless_buckets_move_less_often() {
    let mut policy = Policy::new(1);
    let (mut table, mut moves) = ([0u16], Vec::new());
    for look in 0..3000 {
        let channel = (look / 10 % 4) as u16;
        if let Some(m) = policy.decide(at(look), true, &table, &[Sample::On(channel)]) {
            table[0] = m.queue;
            moves.push(look);
        }
    }
    assert!((3..=12).contains(&moves.len()), "moves at samples {moves:?}");
}

// Goal: a driver is trusted if its frames arrive on the queues of its table, and distrusted
// otherwise. There is no verdict before enough frames have arrived. Buckets that have just moved do
// not count, and a few frames that a rule steers elsewhere do not matter.
#[test]
fn driver_hashes_are_verified() {
    let table = [0, 1, 0, 1];
    let news = |on: [[u64; 4]; 2]| on.map(|counts| counts.to_vec());
    let right = news([[30, 0, 10, 0], [0, 20, 0, 0]]);
    let mut trial = Trial::default();
    assert_eq!(trial.compare(&table, &right), Judgement::Unknown, "the first table is news");
    assert_eq!(trial.compare(&table, &right), Judgement::Unknown, "60 frames");
    assert_eq!(trial.compare(&table, &right), Judgement::True);
    assert_eq!(trial.compare(&table, &news([[0; 4]; 2])), Judgement::True, "still");
    // All frames of moved buckets arrived on the old queues.
    assert_eq!(trial.compare(&[1, 1, 1, 1], &news([[90, 0, 90, 0], [0; 4]])), Judgement::True);
    assert_eq!(trial.compare(&[1; 4], &news([[4, 0, 4, 0], [28; 4]])), Judgement::True, "a rule");
    let strays = Judgement::False { strays: 40, of: 80 };
    assert_eq!(trial.compare(&[1; 4], &news([[10; 4], [10; 4]])), strays);
    trial.restart();
    assert_eq!(
        trial.compare(&table, &news([[90; 4], [90; 4]])),
        Judgement::True,
        "of another table"
    );
    let mut trial = Trial { before: table.to_vec(), ..Trial::default() };
    let wrong = news([[16; 4], [16; 4]]);
    assert_eq!(trial.compare(&table, &wrong), Judgement::False { strays: 64, of: 128 });
}

proptest! {
    // Goal: for all samples, a bucket moves only to a queue on which it was seen and that it does
    // not have. The number of moves per sample is limited, and no bucket moves twice within the
    // minimum hold time.
    #[test]
    fn moves_are_bounded(
        looks in prop::collection::vec(prop::collection::vec(sample(), BUCKETS), 1..80),
        leads in any::<bool>(),
    ) {
        let mut policy = Policy::new(BUCKETS);
        let (mut table, mut last) = ([0u16; BUCKETS], [None; BUCKETS]);
        for (n, samples) in (0u32..).zip(&looks) {
            let Some(moves) = policy.decide(at(n), leads, &table, samples) else { continue };
            prop_assert!(!moves.buckets.is_empty() && moves.buckets.len() <= MOVES);
            for bucket in moves.buckets {
                prop_assert_ne!(table[bucket], moves.queue);
                let seen = |samples: &Vec<Sample>| samples[bucket] == Sample::On(moves.queue);
                prop_assert!(looks[..=n as usize].iter().any(seen));
                if let Some(before) = last[bucket].replace(n) {
                    prop_assert!(at(n) - at(before) >= HOLD_LEAST);
                }
                table[bucket] = moves.queue;
            }
        }
    }
}
