//! `page-pool-get` and `page-pool-stats-get` of the kernel's `netdev` family.

use mqnet_control_api::{PagePoolInfo, PagePoolStats};
use mqnet_engine::Direction;
use mqnet_netdev::RxMemory;
use mqnet_pktbuf::{Mapping, PoolStats};

use crate::HostedLink;

/// `page-pool-get` and `page-pool-stats-get`. The list first contains the pools of lanes: for
/// disciplines, or between two system-call queues. Then the pools of RX queues that provide buffers
/// to a device follow. The id of a pool is the NAPI id of its lane.
pub(crate) fn page_pools(entry: &mut HostedLink) -> Vec<(PagePoolInfo, PagePoolStats)> {
    let queues = [0, 1].map(|side| entry.link.functions()[side].rx_memory());
    let entry = &*entry;
    let pool = |side: usize, channel: u16, stats: &PoolStats, mapping: Mapping, provided: bool| {
        let number = entry.napi(channel, side);
        let ifindex = Some(entry.netdevs[side].ifindex);
        let pool = PagePoolInfo {
            mapping: mapping.name().to_owned(),
            memory: if provided { "provided" } else { "own" }.to_owned(),
            id: number,
            ifindex,
            napi_id: Some(number),
            inflight: u64::from(stats.inflight()),
            inflight_mem: stats.inflight_bytes(),
        };
        let counters = PagePoolStats::of(number, ifindex, stats);
        (pool, counters)
    };
    let of_lanes = entry.link.pools().into_iter().map(|(id, stats)| {
        let side = usize::from(id.way == Direction::BToA);
        pool(side, id.channel, &stats, Mapping::Allocation, false)
    });
    let of_queues = queues.iter().enumerate().flat_map(|(side, queues)| {
        let one = move |queue: &RxMemory| {
            pool(side, queue.queue, &queue.pool, queue.mapping, queue.provided)
        };
        queues.iter().map(one)
    });
    of_lanes.chain(of_queues).collect()
}
