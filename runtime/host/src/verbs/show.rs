//! Descriptions of links and netdevs.

use mqnet_control_api::{
    ApiError, DriverInfo, LinkInfo, LinkState, MemberInfo, NetdevInfo, QueuePairInfo, RxBufferInfo,
    SlotRingsInfo, WayOffloads, WindowInfo, WorkerInfo,
};
use mqnet_netdev::{Function, MemberView, Offloads, PairView, Plan, RxMemory, SlotRings};
use mqnet_sysio::clock;

use crate::{HostedLink, place};

/// Offloads of the direction from side `from`. `plan` is the plan as seen from that side.
fn offloads(entry: &mut HostedLink, from: usize, plan: &Plan) -> WayOffloads {
    let names = |set: Offloads| set.names().map(str::to_owned).collect();
    let caps = entry.link.functions().map(|function| function.caps());
    let settings = entry.link.settings();
    let unwanted = [settings.without_forth, settings.without_back][from];
    WayOffloads {
        sends: names(caps[from].rx_offloads),
        takes: names(caps[1 - from].tx_offloads),
        unwanted: names(unwanted),
        merged: names(entry.link.merges(from)),
        from: entry.netdevs[from].name.clone(),
        to: entry.netdevs[1 - from].name.clone(),
        arriving: names(plan.rx_offloads),
        leaving: names(plan.mirrored().tx_offloads),
        emulated: names(plan.rx_emulation.offloads),
        cuts: plan.rx_emulation.cuts,
    }
}

/// Buffer layout of the RX queues with which a side provides buffers to its device.
fn rx_buffers(entry: &mut HostedLink, side: usize) -> Vec<RxBufferInfo> {
    let queues = entry.link.functions()[side].rx_memory();
    let netdev = &entry.netdevs[side].name;
    let info = |queue: RxMemory| RxBufferInfo {
        netdev: netdev.clone(),
        queue: queue.queue,
        mode: queue.mode.to_owned(),
        asked: queue.requested.to_owned(),
        layout: queue.layout().to_owned(),
        forced: queue.forced,
        reason: queue.reason,
        ..RxBufferInfo::of(&queue.buffers)
    };
    queues.into_iter().map(info).collect()
}

/// Members of a group; empty for other functions.
fn members(function: &dyn Function) -> Vec<MemberInfo> {
    let info = |member: MemberView| MemberInfo {
        function: member.address,
        id: member.identity,
        primary: member.primary,
        why: member.why,
        up: member.up,
        reason: member.reason,
        channels: member.channels,
        standing_in: member.standing_in,
    };
    function.members().into_iter().map(info).collect()
}

fn slots(rings: SlotRings) -> SlotRingsInfo {
    let window = |(bytes, far_bytes)| WindowInfo { bytes, far_bytes };
    let pair = |view: PairView| QueuePairInfo {
        id: view.pair,
        open: view.is_open,
        rx_slots: view.rx_slots,
        rx_waiting: view.rx_waiting,
        tx_slots: view.tx_slots,
        tx_in_use: view.tx_in_use,
        received: view.received,
        credits: view.credits,
    };
    SlotRingsInfo {
        slot_bytes: rings.slot,
        windows: rings.windows.into_iter().map(window).collect(),
        vectors: rings.vectors,
        queue_pairs: rings.pairs.into_iter().map(pair).collect(),
    }
}

/// Description of a link.
pub(crate) fn show(entry: &mut HostedLink) -> LinkInfo {
    let running = entry.link.running();
    let plan = running.map(|running| running.plan.clone());
    let state = match (&plan, entry.link.is_changing()) {
        (None, _) => LinkState::Down,
        (Some(_), true) => LinkState::Changing,
        (Some(_), false) => LinkState::Up,
    };
    let reason = match state {
        LinkState::Down => entry.link.down_reason().map(str::to_owned),
        LinkState::Changing => Some("a change is under way".to_owned()),
        LinkState::Up => entry.link.settled_note(),
    };
    let ways = plan
        .as_ref()
        .map(|plan| [offloads(entry, 0, plan), offloads(entry, 1, &plan.mirrored())].to_vec());
    let members = entry.link.functions().map(|function| members(&*function));
    let protocols = entry.link.functions().map(|end| (*end).protocol().map(str::to_owned));
    let slot_rings = entry.link.functions().map(|end| (*end).slot_rings().map(slots));
    let is_running =
        entry.link.functions().map(|end| end.interface().is_none_or(|there| there.is_running));
    let info = |side: usize| {
        let dev = &entry.netdevs[side];
        NetdevInfo {
            name: dev.name.clone(),
            ifindex: dev.ifindex,
            netns: dev.netns,
            function: dev.address.clone(),
            link: entry.name.clone(),
            partner: entry.netdevs[1 - side].name.clone(),
            carrier: plan.is_some() && is_running[side],
            protocol: protocols[side].clone(),
            slot_rings: slot_rings[side].clone(),
            members: members[side].clone(),
        }
    };
    let workers: Vec<WorkerInfo> = entry
        .link
        .workers()
        .enumerate()
        .map(|(id, worker)| WorkerInfo {
            id: id as u16,
            cpu: worker.cpu.map(|cpu| cpu as u32),
            node: worker.node,
            tid: worker.thread,
            ..WorkerInfo::of(&worker.stats.totals())
        })
        .collect();
    let stats = entry.link.stats();
    let names = [0, 1].map(|side| entry.netdevs[side].name.as_str());
    let recent_drops = entry.recent.drops(names, stats);
    LinkInfo {
        recent_drops,
        offloads: ways.unwrap_or_default(),
        name: entry.name.clone(),
        spec: entry.spec.clone(),
        state,
        reason,
        next_attempt_ms: entry.next_attempt_ms(clock::monotonic()),
        notes: [0, 1].into_iter().flat_map(|side| entry.link.notes(side)).collect(),
        netdevs: vec![info(0), info(1)],
        channels: plan.as_ref().map_or(0, |plan| plan.channels),
        mtu: plan.as_ref().map(|plan| plan.mtu),
        frame_max: plan.as_ref().map(|plan| plan.frame_max),
        rx_buffers: [0, 1].into_iter().flat_map(|side| rx_buffers(entry, side)).collect(),
        workers,
        placement: place::channels(entry),
    }
}

/// `ethtool -i`.
pub(super) fn driver(entry: &mut HostedLink, side: usize) -> Result<DriverInfo, ApiError> {
    let end = &entry.link.functions()[side];
    // Only an `ntb_transport` of the kernel has a protocol version, which is shown instead of the
    // firmware version.
    let protocol = (**end).slot_rings().and_then(|_| (**end).protocol());
    let firmware = protocol.unwrap_or(entry.firmware(side)).to_owned();
    let dev = &entry.netdevs[side];
    Ok(DriverInfo {
        driver: dev.kind.driver.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        firmware_version: firmware,
        bus_info: dev.address.clone(),
    })
}
