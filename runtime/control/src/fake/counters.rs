//! Counters that stand still and hold in the conservation check.

use mqnet_control_api::{
    ChannelStats, DropCount, LaneStats, LinkStats, NamedCounter, PoolUse, StopCause, StopState,
    Stopped,
};

use super::link::FakeLink;

fn lane(link: &FakeLink, from: usize, channel: u16) -> LaneStats {
    let stopped = channel == 1;
    LaneStats {
        napi_id: link.napi_id(from, channel),
        from: link.names[from].clone(),
        to: link.names[1 - from].clone(),
        rx_packets: 1000 + u64::from(channel),
        rx_bytes: 64_000,
        tx_packets: 990 + u64::from(channel),
        tx_bytes: 63_360,
        drops: vec![
            DropCount { reason: "too-long".to_owned(), frames: 7 },
            DropCount { reason: "bad \"offload\"".to_owned(), frames: 3 },
        ],
        tx_lost: 1,
        tx_stop: 5,
        tx_wake: 4,
        stopped_ns: 1_500_000_000,
        kicks: 11,
        state: if stopped { StopState::Stopped } else { StopState::Running },
        stopped: stopped.then(|| Stopped {
            by: "the peer's ring is full".to_owned(),
            cause: StopCause::Peer,
            for_ns: 5,
        }),
        ..LaneStats::default()
    }
}

/// All of a link.
pub(super) fn stats(link: &FakeLink) -> LinkStats {
    let channel = |id| ChannelStats {
        id,
        active: true,
        worker: Some(0),
        a_to_b: lane(link, 0, id),
        b_to_a: lane(link, 1, id),
    };
    LinkStats {
        link: link.name.clone(),
        a: link.names[0].clone(),
        b: link.names[1].clone(),
        time_ns: 42,
        channels: (0..link.combined).map(channel).collect(),
        a_to_b: lane(link, 0, 0),
        b_to_a: lane(link, 1, 0),
        dropped_outside_a: Some(2),
        dropped_outside_b: None,
        locality: Vec::new(),
        pools: vec![PoolUse { napi_id: link.napi_id(0, 0), inflight: 3 }],
    }
}

/// `ethtool -S`.
pub(super) fn named(link: &FakeLink, side: usize) -> Vec<NamedCounter> {
    let of = |channel| {
        let lane = lane(link, side, channel);
        [
            NamedCounter { name: format!("rx_queue_{channel}_packets"), value: lane.rx_packets },
            NamedCounter { name: format!("rx_queue_{channel}_bytes"), value: lane.rx_bytes },
        ]
    };
    (0..link.combined).flat_map(of).collect()
}
