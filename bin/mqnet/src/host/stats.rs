//! Every counter of a link, and captures.

use std::time::{SystemTime, UNIX_EPOCH};

use mqnet_control_api::{
    ApiError, CaptureFilter, CapturedFrame, ChannelStats, Code, FrameDirection, FrameSink,
    LaneStats, LinkStats, NamedCounter, PoolUse, StopCause, StopState, Stopped,
};
use mqnet_engine::{CaptureRequest, Captures, Way};
use mqnet_netdev::wrap::capture::{Captured, Direction};
use mqnet_netdev::{ChannelStats as Counters, DropReason, FullCause, LaneSums, RxMemory};
use mqnet_sysio::clock;

use super::{Entry, place};

/// The lane from side `from`, with its counters.
fn lane(entry: &Entry, from: usize, napi_id: u32, sums: &LaneSums) -> LaneStats {
    let [from, to] = [from, 1 - from].map(|side| entry.netdevs[side].name.clone());
    LaneStats { napi_id, from, to, ..LaneStats::of(sums) }
}

/// Whether the sink of a lane takes frames.
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

/// Everything that is counted.
pub(super) fn link(entry: &mut Entry) -> LinkStats {
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
        napi_id: entry.napi(id.channel, usize::from(id.way == Way::Back)),
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

/// `ethtool -S`, under the names of virtio-net where it has one.
pub(super) fn counters(entry: &mut Entry, side: usize) -> Vec<NamedCounter> {
    let mut list = Vec::new();
    let mut add = |name: String, value: u64| list.push(NamedCounter { name, value });
    let all = entry.link.stats()[side];
    for (id, stats) in all.iter().enumerate() {
        for (row, value) in stats.rx.counters().chain(stats.rx.xdp.counters()) {
            add(row.ethtool(id), value);
        }
        add(format!("rx_queue_{id}_drops"), stats.rx.drops.total());
    }
    for (id, stats) in all.iter().enumerate() {
        for (row, value) in stats.tx.counters() {
            add(row.ethtool(id), value);
        }
        add(format!("tx_queue_{id}_drops"), stats.tx.drops.total());
    }
    for reason in DropReason::ALL {
        let frames = all.iter().map(|s| s.rx.drops.get(reason) + s.tx.drops.get(reason)).sum();
        add(format!("drop_{}", reason.name().replace('-', "_")), frames);
    }
    list.extend(buffers(&entry.link.functions()[side].rx_memory()));
    if let Some(outside) = entry.link.functions()[side].dropped_outside() {
        list.push(NamedCounter { name: "rx_dropped_outside".to_owned(), value: outside });
    }
    list
}

/// The kernel's word for a statistic of a page pool in `ethtool -S`, from that of netlink.
fn pool_name(name: &str) -> String {
    let name = match name {
        "alloc-slow-high-order" => "alloc-slow-ho",
        "recycle-released-refcnt" => "recycle-released-ref",
        name => name,
    };
    format!("pp_{}", name.replace('-', "_"))
}

/// Of queues that give buffers to a device: what their page pools did in all, then queue by queue.
fn buffers(queues: &[RxMemory]) -> Vec<NamedCounter> {
    let mut list = Vec::new();
    let mut add = |name: String, value: u64| list.push(NamedCounter { name, value });
    if let Some(first) = queues.first() {
        for (at, (name, _)) in first.pool.counters().into_iter().enumerate() {
            let sum = queues.iter().map(|queue| queue.pool.counters()[at].1).sum();
            add(format!("rx_{}", pool_name(name)), sum);
        }
    }
    for queue in queues {
        let id = queue.queue;
        for (name, value) in queue.pool.counters() {
            add(format!("rx{id}_{}", pool_name(name)), value);
        }
        for (name, value) in [
            ("alloc_fail", queue.alloc_fail),
            ("length_errors", queue.length_errors),
            ("buffers", queue.taken),
            ("buffers_foreign", queue.foreign),
            ("buffer_size", queue.size.into()),
            ("buffers_per_page", queue.per_page.into()),
            ("pages", queue.pages.into()),
        ] {
            add(format!("rx_queue_{id}_{name}"), value);
        }
    }
    list
}

struct Sink {
    captures: Captures,
    taken: Vec<Captured>,
}

impl FrameSink for Sink {
    fn take(&mut self, frames: &mut Vec<CapturedFrame>) -> u64 {
        let missed = self.captures.take(&mut self.taken);
        frames.extend(self.taken.drain(..).map(|frame| CapturedFrame {
            time_ns: frame.time_ns,
            channel: frame.channel,
            direction: match frame.direction {
                Direction::Inbound => FrameDirection::Inbound,
                Direction::Outbound => FrameDirection::Outbound,
            },
            len: frame.len,
            bytes: frame.bytes,
            drop_reason: frame.drop_reason.map(DropReason::name),
        }));
        missed
    }
}

fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Begins to capture.
pub(super) fn capture(
    entry: &mut Entry,
    side: usize,
    filter: CaptureFilter,
) -> Result<Box<dyn FrameSink>, ApiError> {
    let active = entry.link.running().map_or(0, |running| running.plan.channels);
    if let Some(channel) = filter.channel.filter(|&channel| channel >= active) {
        let why = format!("channel: {channel} is not in use, there are {active}");
        return Err(ApiError {
            field: Some("channel".into()),
            ..ApiError::new(Code::NoEntry, why)
        });
    }
    let captures = entry.link.capture(CaptureRequest {
        side,
        channel: filter.channel,
        drops_only: filter.drops,
        snaplen: filter.snaplen,
        clock: wall_clock,
    });
    Ok(Box::new(Sink { captures, taken: Vec::new() }))
}

#[cfg(test)]
mod tests {
    use mqnet_pktbuf::{Mapping, PoolStats};

    use super::*;

    // Goal: page pools are summed under the kernel's names, then told queue by queue.
    #[test]
    fn pools_have_the_kernels_names() {
        let queue = |queue: u16| RxMemory {
            queue,
            mode: "small",
            wish: "frag",
            full: false,
            reason: String::new(),
            forced: false,
            size: 1920,
            headroom: 64,
            per_page: 2,
            per_page_used: 200,
            pages: 3,
            pages_most: 8,
            taken: 10,
            foreign: 4,
            refill_ns: [0; 2],
            alloc_fail: 1,
            length_errors: 2,
            mapping: Mapping::Allocation,
            provided: false,
            pool: PoolStats::of(std::array::from_fn(|at| at as u64 + 1), [0; 3]),
        };
        let list = buffers(&[queue(0), queue(1)]);
        let value = |name: &str| list.iter().find(|c| c.name == name).map(|c| c.value);
        for (name, expected) in [
            ("rx_pp_alloc_fast", 2),
            ("rx_pp_alloc_slow_ho", 6),
            ("rx_pp_recycle_released_ref", 22),
            ("rx1_pp_alloc_fast", 1),
            ("rx0_pp_recycle_cached", 7),
            ("rx_queue_1_alloc_fail", 1),
            ("rx_queue_0_buffers_foreign", 4),
        ] {
            assert_eq!(value(name), Some(expected), "{name}");
        }
        assert_eq!(list[0].name, "rx_pp_alloc_fast");
        assert!(buffers(&[]).is_empty());
    }
}
