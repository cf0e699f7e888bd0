//! `queue-get`, `napi-get` and `qstats-get` of the kernel's `netdev` family.

use mqnet_control_api::{ApiError, Napi, QStats, QueueInfo, QueueType};
use mqnet_netdev::{MemberView, QueuePairStats};

use crate::HostedLink;

fn channels(entry: &HostedLink) -> u16 {
    entry.link.running().map_or(0, |running| running.plan.channels)
}

/// Address of the function of each channel: the member that serves the channel if the netdev is a
/// group.
fn functions(entry: &mut HostedLink, side: usize) -> Vec<String> {
    let members = entry.link.functions()[side].members();
    let serves = |member: &MemberView, channel: u16| {
        let own = member.up && member.channels.contains(&channel);
        own || member.standing_in.contains(&channel)
    };
    let of = |channel| {
        let member = members.iter().find(|member| serves(member, channel));
        member.map_or(&entry.netdevs[side].address, |member| &member.address).clone()
    };
    (0..channels(entry)).map(of).collect()
}

/// `queue-get`: all RX queues, then all TX queues. Empty while the link is down.
pub(super) fn queues(entry: &mut HostedLink, side: usize) -> Result<Vec<QueueInfo>, ApiError> {
    let functions = functions(entry, side);
    let all = 0..channels(entry);
    let dev = &entry.netdevs[side];
    // The lane of a TX queue has its RX queue on the other side, so the queue has the NAPI id of
    // that side.
    let queue = |kind: QueueType, channel: u16| QueueInfo {
        id: u32::from(channel),
        ifindex: dev.ifindex,
        kind,
        napi_id: Some(entry.napi(channel, if kind == QueueType::Rx { side } else { 1 - side })),
        function: functions[usize::from(channel)].clone(),
    };
    let of = |kind| all.clone().map(move |channel| queue(kind, channel));
    Ok(of(QueueType::Rx).chain(of(QueueType::Tx)).collect())
}

/// `napi-get`, in descending order of ids as in the kernel.
pub(super) fn napis(entry: &mut HostedLink, side: usize) -> Result<Vec<Napi>, ApiError> {
    let functions = functions(entry, side);
    let threads: Vec<Option<u32>> = entry.link.workers().map(|worker| worker.thread).collect();
    let dev = &entry.netdevs[side];
    let napi = |channel: u16| Napi {
        id: entry.napi(channel, side),
        ifindex: dev.ifindex,
        pid: entry.link.worker_of(channel).and_then(|worker| threads[worker]),
        defer_hard_irqs: 0,
        gro_flush_timeout: 0,
        irq_suspend_timeout: 0,
        threaded: "enabled".to_owned(),
        function: functions[usize::from(channel)].clone(),
    };
    Ok((0..channels(entry)).rev().map(napi).collect())
}

/// `qstats-get`. The totals of the netdev include channels that are no longer in use.
pub(super) fn qstats(entry: &mut HostedLink, side: usize, per_queue: bool) -> Vec<QStats> {
    let active = usize::from(channels(entry));
    let ifindex = entry.netdevs[side].ifindex;
    let all = entry.link.stats()[side];
    if !per_queue {
        let mut sum = QStats { ifindex, ..QStats::default() };
        for stats in all {
            add_rx(&mut sum, stats);
            add_tx(&mut sum, stats);
        }
        return vec![sum];
    }
    let queue = |kind, id: usize, add: fn(&mut QStats, &QueuePairStats)| {
        let (queue_type, queue_id) = (Some(kind), Some(id as u32));
        let mut one = QStats { ifindex, queue_type, queue_id, ..QStats::default() };
        add(&mut one, &all[id]);
        one
    };
    let rx = (0..active).map(|id| queue(QueueType::Rx, id, add_rx));
    rx.chain((0..active).map(|id| queue(QueueType::Tx, id, add_tx))).collect()
}

fn plus(sum: &mut Option<u64>, value: u64) {
    *sum = Some(sum.unwrap_or(0) + value);
}

fn add_rx(sum: &mut QStats, stats: &QueuePairStats) {
    plus(&mut sum.rx_packets, stats.rx.packets.get());
    plus(&mut sum.rx_bytes, stats.rx.bytes.get());
    plus(&mut sum.rx_hw_drops, stats.rx.drops.total());
}

fn add_tx(sum: &mut QStats, stats: &QueuePairStats) {
    plus(&mut sum.tx_packets, stats.tx.packets.get());
    plus(&mut sum.tx_bytes, stats.tx.bytes.get());
    plus(&mut sum.tx_hw_drops, stats.tx.drops.total());
    plus(&mut sum.tx_stop, stats.tx.stops.get());
    plus(&mut sum.tx_wake, stats.tx.wakes.get());
}
