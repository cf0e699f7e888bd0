//! Through which channel a packet leaves.

use std::sync::Arc;

use mqnet_counters::Counter;

use super::Tree;
use crate::{Meta, Mqprio, Params};

/// Chooses the channel after the egress filters. A lane has one of its own.
#[derive(Debug)]
pub struct ChannelMap {
    mqprio: Option<Mqprio>,
    misdirected: Arc<Counter>,
}

impl ChannelMap {
    /// The channel of a packet that came by channel `came_by`, of `channels` in use.
    ///
    /// A channel that a filter chose stands, and is 0 (and counted) where there is no such channel,
    /// as in Linux. With mqprio the packet's class has a range of channels, of which every channel
    /// that packets come by has its own; when a range is not all in use, the classes mean nothing,
    /// as in Linux.
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
    /// What chooses the channel of packets, for one lane.
    pub fn channel_map(&mut self) -> ChannelMap {
        let mqprio = match &self.state.root.params {
            Params::Mqprio(mqprio) => Some(mqprio.clone()),
            _ => None,
        };
        // Those of lanes that are no more become one.
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

    /// Packets that a filter sent to a channel that there was not; they left through channel 0.
    pub fn misdirected(&self) -> u64 {
        self.misdirected.iter().map(|counter| counter.get()).sum()
    }
}
