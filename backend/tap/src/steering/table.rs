//! Which bucket goes to which queue, and what a change of the number of queues moves.

/// Number of buckets: twice the most channels, so that each queue has some.
pub const BUCKETS: usize = 128;

/// The queue of each bucket.
pub type Table = [u16; BUCKETS];

/// The table to begin with: evenly in turn. Zero channels count as one.
pub fn spread(channels: u16) -> Table {
    std::array::from_fn(|bucket| (bucket % usize::from(channels.max(1))) as u16)
}

/// How many buckets each queue should have so that all are even within one, and as few as possible
/// move: who has most already gets what does not divide. Queues from `channels` on get none.
fn goals(have: &[usize], channels: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..channels).collect();
    order.sort_by_key(|&queue| std::cmp::Reverse(have[queue]));
    let mut goals = vec![0; have.len()];
    for (place, queue) in order.into_iter().enumerate() {
        goals[queue] = BUCKETS / channels + usize::from(place < BUCKETS % channels);
    }
    goals
}

/// The table for another number of channels that moves as few buckets as possible. From an even
/// table, more channels take from the old ones only, and fewer give only those that retire.
/// Zero channels count as one.
pub fn rebalance(table: &Table, channels: u16) -> Table {
    let channels = usize::from(channels.max(1));
    let queues = table.iter().map(|&queue| usize::from(queue) + 1).max().unwrap_or(0);
    let mut have = vec![0; queues.max(channels)];
    for &queue in table {
        have[usize::from(queue)] += 1;
    }
    let goals = goals(&have, channels);
    let mut next = *table;
    let mut taker = 0;
    for queue in &mut next {
        let giver = usize::from(*queue);
        if have[giver] <= goals[giver] {
            continue;
        }
        // In turn, so that neighbouring buckets do not all go to one queue. There is always one:
        // what is too much here is too little elsewhere.
        while have[taker] >= goals[taker] {
            taker = (taker + 1) % channels;
        }
        have[giver] -= 1;
        have[taker] += 1;
        *queue = taker as u16;
        taker = (taker + 1) % channels;
    }
    next
}
