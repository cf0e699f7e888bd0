//! Links and netdevs as they are shown.

use mqnet_control_api::{DriverInfo, LinkInfo, LinkState, NetdevInfo, WorkerInfo};

use super::Entry;

/// A link.
pub(super) fn link(entry: &mut Entry) -> LinkInfo {
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
    let info = |side: usize| {
        let dev = &entry.netdevs[side];
        NetdevInfo {
            name: dev.name.clone(),
            ifindex: dev.ifindex,
            netns: dev.netns,
            function: dev.address.clone(),
            link: entry.name.clone(),
            partner: entry.netdevs[1 - side].name.clone(),
            carrier: plan.is_some(),
        }
    };
    let workers = entry.link.workers().enumerate().map(|(id, worker)| WorkerInfo {
        id: id as u16,
        cpu: worker.cpu.map(|cpu| cpu as u32),
        node: worker.node,
        tid: worker.thread,
        passes: worker.stats.passes.get(),
        sleeps: worker.stats.sleeps.get(),
    });
    LinkInfo {
        name: entry.name.clone(),
        spec: entry.spec.clone(),
        state,
        reason,
        netdevs: vec![info(0), info(1)],
        channels: plan.as_ref().map_or(0, |plan| plan.channels),
        mtu: plan.as_ref().map(|plan| plan.mtu),
        frame_max: plan.as_ref().map(|plan| plan.frame_max),
        workers: workers.collect(),
    }
}

/// `ethtool -i`.
pub(super) fn driver(entry: &mut Entry, side: usize) -> DriverInfo {
    let dev = &entry.netdevs[side];
    let kernel = || std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    DriverInfo {
        driver: dev.driver.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        firmware_version: match dev.driver {
            "mqnet-tap" => kernel().trim().to_owned(),
            "mqnet-ntb" => format!("layout {}", mqnet_ntb::layout::VERSION_MAX),
            _ => String::new(),
        },
        bus_info: dev.address.clone(),
    }
}
