//! Counters of a link.

use mqnet_control_api::{
    ChannelStats, LaneStats, LinkStats, PoolUse, StopCause, StopState, Stopped,
};
use mqnet_engine::Direction;
use mqnet_netdev::{FullCause, LaneSums, QueuePairStats as Counters};
use mqnet_sysio::clock;

use crate::{HostedLink, place};

/// Counters of the lane, or the sum of all lanes, from side `from`.
fn lane(entry: &HostedLink, from: usize, napi_id: u32, sums: &LaneSums) -> LaneStats {
    let [from, to] = [from, 1 - from].map(|side| entry.netdevs[side].name.clone());
    LaneStats { napi_id, from, to, ..LaneStats::of(sums) }
}

/// State of the TX queue of a lane. The second value has cause and duration if the queue is
/// stopped.
fn stop_state(
    counters: &Counters,
    active: bool,
    (by, cause): (&str, FullCause),
    now: u64,
) -> (StopState, Option<Stopped>) {
    match counters.tx.stopped_since_ns.get() {
        _ if !active => (StopState::Unused, None),
        0 => (StopState::Running, None),
        since => {
            let cause = match cause {
                FullCause::Device => StopCause::Device,
                FullCause::Peer => StopCause::Peer,
                FullCause::Memory => StopCause::Memory,
            };
            let for_ns = now.saturating_sub(since);
            let stopped = Stopped { by: by.to_owned(), cause, for_ns };
            (StopState::Stopped, Some(stopped))
        }
    }
}

/// All counters of a link.
pub(crate) fn link_stats(entry: &mut HostedLink) -> LinkStats {
    let now = clock::monotonic().as_nanos() as u64;
    let active = entry.link.running().map_or(0, |running| running.plan.channels);
    let full = entry.link.functions().map(|one| (one.full_means(), one.full_cause()));
    let outside = entry.link.functions().map(|function| function.dropped_outside());
    let [a, b] = entry.link.stats().map(<[_]>::to_vec);
    let mut sums = [LaneSums::default(); 2];
    let mut channels = Vec::with_capacity(a.len());
    for (id, (a, b)) in (0u16..).zip(a.iter().zip(&b)) {
        let in_use = id < active;
        let one = |from: usize, rx: &Counters, tx: &Counters| {
            let (state, stopped) = stop_state(tx, in_use, full[1 - from], now);
            let sums = LaneSums::of(rx, tx);
            LaneStats { state, stopped, ..lane(entry, from, entry.napi(id, from), &sums) }
        };
        sums[0].add(a, b);
        sums[1].add(b, a);
        channels.push(ChannelStats {
            id,
            active: in_use,
            worker: entry.link.worker_of(id).filter(|_| in_use).map(|worker| worker as u16),
            a_to_b: one(0, a, b),
            b_to_a: one(1, b, a),
        });
    }
    let total = |from: usize| {
        let state = if active > 0 { StopState::Running } else { StopState::Unused };
        LaneStats { state, ..lane(entry, from, 0, &sums[from]) }
    };
    let pools = entry.link.pools_in_use().into_iter().map(|(id, inflight)| PoolUse {
        napi_id: entry.napi(id.channel, usize::from(id.way == Direction::BToA)),
        inflight: inflight.into(),
    });
    LinkStats {
        link: entry.name.clone(),
        a: entry.netdevs[0].name.clone(),
        b: entry.netdevs[1].name.clone(),
        time_ns: now,
        channels,
        a_to_b: total(0),
        b_to_a: total(1),
        dropped_outside_a: outside[0],
        dropped_outside_b: outside[1],
        pools: pools.collect(),
        locality: place::locality(entry),
    }
}
