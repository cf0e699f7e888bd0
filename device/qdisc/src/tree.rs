//! What the user attached to a netdev: the control thread's side.

use crate::{ClassInfo, Command, FilterInfo, QdiscInfo, Scheduler, TcError};

/// How lanes run what is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Not at all: noqueue without egress filters.
    None,
    /// Each lane has a scheduler of its own (mq without filters that move packets to other
    /// channels).
    PerChannel,
    /// All lanes of the direction share schedulers: one for each channel (mq or mqprio with
    /// packets that may change their channel).
    SharedLeaves,
    /// All lanes share one scheduler (any other root on more than one channel; with one channel
    /// the shape is `PerChannel`).
    SharedRoot,
}

/// What is attached to a netdev.
#[derive(Debug)]
pub struct Tree {}

impl Tree {
    /// Nothing attached: noqueue. `default` are the words of the discipline that mq's leaves and
    /// a deleted root's successor get, such as `fq_codel limit 1000`; empty: pfifo_fast, and
    /// noqueue for the root.
    pub fn new(_default: &str) -> Result<Self, TcError> {
        Ok(Self {})
    }

    /// Carries out a command, wholly or not at all. `Ok(false)`: nothing is different. `channels`
    /// are those in use, `channels_max` the most there can be.
    pub fn apply(&mut self, _c: &Command, _channels: u16, _max: u16) -> Result<bool, TcError> {
        Ok(false)
    }

    /// How lanes run it with this many channels.
    pub fn shape(&self, _channels: u16) -> Shape {
        Shape::None
    }

    /// True when a packet may leave through another channel than it came by (mqprio, `skbedit
    /// queue_mapping`).
    pub fn may_change_channel(&self) -> bool {
        false
    }

    /// A new scheduler for a channel (`SharedRoot`: for all; pass 0). Its counters are added to what
    /// earlier ones of the same nodes counted. `None` for the shape `None`.
    pub fn build(&mut self, _channel: u16, _mtu: u32, _seed: u64) -> Option<Scheduler> {
        None
    }

    /// The channel for a packet of this priority under mqprio, `hash` choosing among a class's
    /// channels; `None` without mqprio.
    pub fn qdiscs(&self, _channels: u16) -> Vec<QdiscInfo> {
        Vec::new()
    }

    /// `tc class show`.
    pub fn classes(&self, _channels: u16) -> Vec<ClassInfo> {
        Vec::new()
    }

    /// `tc filter show`.
    pub fn filters(&self) -> Vec<FilterInfo> {
        Vec::new()
    }
}
