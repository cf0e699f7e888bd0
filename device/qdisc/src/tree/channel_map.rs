//! Selection of the TX channel of a packet.

use std::sync::Arc;

use mqnet_counters::Counter;

use super::Tree;
use crate::{Meta, Mqprio, Params};

/// Selection of the TX channel after the egress filters. Each lane has its own map.
#[derive(Debug)]
pub struct ChannelMap {
    mqprio: Option<Mqprio>,
    misdirected: Arc<Counter>,
}

impl ChannelMap {
    /// Returns the TX channel of a packet that was received on channel `came_by`, of `channels` in
    /// use.
    ///
    /// A channel that a filter selected is kept. If that channel does not exist, the packet is
    /// counted and uses channel 0, as in Linux. Under mqprio, the packet's traffic class has a
    /// range of channels, and each RX channel maps to one of them. If any class has a channel that
    /// is not in use, mqprio selects no channel, as in Linux.
    pub fn pick(&self, meta: &Meta, came_by: u16, channels: u16) -> u16 {
        if meta.channel >= channels {
            self.misdirected.add(1);
            return 0;
        }
        match &self.mqprio {
            Some(mqprio) if meta.channel == came_by => mqprio.pick(meta, channels),
            _ => meta.channel,
        }
    }
}

impl Tree {
    /// Creates the channel map of one lane.
    pub fn channel_map(&mut self) -> ChannelMap {
        let mqprio = match &self.state.root.params {
            Params::Mqprio(mqprio) => Some(mqprio.clone()),
            _ => None,
        };
        // Merge the counters of ended lanes.
        let past = Counter::new();
        self.misdirected.retain_mut(|counter| {
            let live = Arc::get_mut(counter).is_none();
            if !live {
                past.add(counter.get());
            }
            live
        });
        let misdirected = Arc::new(Counter::new());
        self.misdirected.push(Arc::new(past));
        self.misdirected.push(misdirected.clone());
        ChannelMap { mqprio, misdirected }
    }

    /// Number of packets that a filter sent to a channel that did not exist; they left through
    /// channel 0.
    pub fn misdirected(&self) -> u64 {
        self.misdirected.iter().map(|counter| counter.get()).sum()
    }
}
