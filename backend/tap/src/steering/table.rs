//! Which bucket goes to which queue, and what a change of the number of queues moves.

/// Number of buckets: twice the most channels, so that each queue has some.
pub const BUCKETS: usize = 128;

/// The queue of each bucket.
pub type Table = [u16; BUCKETS];

/// The table to begin with: evenly in turn. Zero channels count as one.
pub fn spread(channels: u16) -> Table {
    std::array::from_fn(|bucket| (bucket % usize::from(channels.max(1))) as u16)
}

/// How many buckets each queue has when those from `from` to `to` have come: each new one its even
/// share, of which those that have most give most.
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

/// The same when those from `to` on have gone: those that have fewest take most.
fn shrunk(mut goals: Vec<usize>, to: usize) -> Vec<usize> {
    let freed: usize = goals.drain(to..).sum();
    for _ in 0..freed {
        if let Some(fewest) = goals.iter_mut().min() {
            *fewest += 1;
        }
    }
    goals
}

/// The table for `to` channels instead of `from`: more channels take from the old ones only, and
/// fewer get only what those had that retire. Nothing moves between channels that stay, whose flows
/// nobody keeps in order meanwhile: so an even table stays even, and one that follows receivers
/// stays as uneven as it is. Zero channels count as one.
pub fn rebalance(table: &Table, from: u16, to: u16) -> Table {
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
