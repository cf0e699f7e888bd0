//! `ethtool -S`.

use mqnet_control_api::{ApiError, NamedCounter};
use mqnet_netdev::{DropReason, PairView, RxMemory, SlotRings};
use mqnet_pktbuf::PoolStats;

use crate::HostedLink;

/// `ethtool -S`, with the names of virtio-net for the counters that virtio-net has.
pub(super) fn counters(entry: &mut HostedLink, side: usize) -> Result<Vec<NamedCounter>, ApiError> {
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
    if let Some(rings) = (*entry.link.functions()[side]).slot_rings() {
        list.extend(queue_pairs(&rings));
    }
    list.extend(buffers(&entry.link.functions()[side].rx_memory()));
    if let Some(outside) = entry.link.functions()[side].dropped_outside() {
        list.push(NamedCounter { name: "rx_dropped_outside".to_owned(), value: outside });
    }
    Ok(list)
}

/// State and counters of each queue pair with an `ntb_transport`.
fn queue_pairs(rings: &SlotRings) -> Vec<NamedCounter> {
    let of_pair = |view: &PairView| {
        let values = [
            ("open", u64::from(view.is_open)),
            ("rx_slots", view.rx_slots.into()),
            ("rx_waiting", view.rx_waiting.into()),
            ("tx_slots", view.tx_slots.into()),
            ("tx_in_use", view.tx_in_use.into()),
            ("received", view.received),
            ("credits", view.credits),
        ];
        let pair = view.pair;
        values.map(|(name, value)| NamedCounter { name: format!("qp{pair}_{name}"), value })
    };
    rings.pairs.iter().flat_map(of_pair).collect()
}

/// Counters of queues that provide buffers to a device: sums over their page pools, then the
/// counters of each queue.
fn buffers(queues: &[RxMemory]) -> Vec<NamedCounter> {
    let mut list = Vec::new();
    let mut add = |name: String, value: u64| list.push(NamedCounter { name, value });
    if !queues.is_empty() {
        let pools: Vec<Vec<u64>> =
            queues.iter().map(|queue| queue.pool.counters().map(|(_, n)| n).collect()).collect();
        for (at, row) in PoolStats::TABLE.iter().enumerate() {
            add(format!("rx_{}", row.ethtool), pools.iter().map(|pool| pool[at]).sum());
        }
    }
    for queue in queues {
        let id = queue.queue.to_string();
        for (row, value) in queue.pool.counters() {
            add(format!("rx{id}_{}", row.ethtool), value);
        }
        for (row, value) in queue.buffers.iter().filter(|(row, _)| !row.pattern.is_empty()) {
            add(row.pattern.replace('#', &id), value);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use mqnet_netdev::stats::RxBufferTotals;
    use mqnet_pktbuf::Mapping;

    use super::*;

    // Goal: page pool counters have the kernel's names; the sums come before the counters of each
    // queue.
    #[test]
    fn pools_have_the_kernels_names() {
        let queue = |queue: u16| RxMemory {
            queue,
            mode: "small",
            requested: "frag",
            full: false,
            reason: String::new(),
            forced: false,
            buffers: RxBufferTotals { foreign: 4, alloc_fail: 1, ..RxBufferTotals::default() },
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
