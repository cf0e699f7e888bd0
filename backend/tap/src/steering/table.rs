//! Table from buckets to queues, and its changes with the number of queues.

/// Number of buckets: twice the largest number of channels.
pub const BUCKETS: usize = 128;

/// Queue of each bucket.
pub type BucketTable = [u16; BUCKETS];

/// Initial table: buckets are assigned round-robin. Zero channels count as one.
pub fn spread(channels: u16) -> BucketTable {
    std::array::from_fn(|bucket| (bucket % usize::from(channels.max(1))) as u16)
}

/// Number of buckets per queue after the queues `from..to` are added. Each new queue gets an even
/// share, taken from the queues with the most buckets.
fn grown(mut goals: Vec<usize>, from: usize, to: usize) -> Vec<usize> {
    let spare = (BUCKETS % to).saturating_sub(from);
    for (place, queue) in (from..to).enumerate() {
        let share = BUCKETS / to + usize::from(place < spare);
        for _ in goals[queue]..share {
            if let Some(most) = goals[..from].iter_mut().max().filter(|most| **most > 0) {
                *most -= 1;
                goals[queue] += 1;
            }
        }
    }
    goals
}

/// Number of buckets per queue after the queues from `to` on are removed. Their buckets go to the
/// queues with the fewest buckets.
fn shrunk(mut goals: Vec<usize>, to: usize) -> Vec<usize> {
    let freed: usize = goals.drain(to..).sum();
    for _ in 0..freed {
        if let Some(fewest) = goals.iter_mut().min() {
            *fewest += 1;
        }
    }
    goals
}

/// Table for `to` channels instead of `from`. New channels take buckets from old channels only, and
/// buckets of removed channels go to the remaining channels. No bucket moves between two remaining
/// channels, because such a move would not preserve the order of its flows. An even table stays
/// even, and other tables keep their proportions. Zero channels count as one.
pub fn rebalance(table: &BucketTable, from: u16, to: u16) -> BucketTable {
    let named = table.iter().map(|&queue| usize::from(queue) + 1).max().unwrap_or(0);
    let (from, channels) = (named.max(from.into()), usize::from(to.max(1)));
    let mut have = vec![0; from.max(channels)];
    for &queue in table {
        have[usize::from(queue)] += 1;
    }
    let mut goals = if channels > from {
        grown(have.clone(), from, channels)
    } else {
        shrunk(have.clone(), channels)
    };
    goals.resize(have.len(), 0);
    let mut next = *table;
    let mut taker = 0;
    for queue in &mut next {
        let giver = usize::from(*queue);
        if have[giver] <= goals[giver] {
            continue;
        }
        // Select the receiving queues in turn, so that neighbouring buckets do not all move to one
        // queue. The search ends, because every excess in a queue has a deficit in another queue.
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
