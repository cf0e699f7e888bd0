//! Placeholder for a function that is not open. Its link is always down, with the reason.

use std::sync::Arc;
use std::time::Duration;

use mqnet_wire::Layer;

use crate::limits::{CHANNELS_MAX, FRAME_MAX, MTU_MAX};
use crate::{
    Caps, Channel, Function, LinkStatus, Offloads, OpenChannelsError, Plan, QueuePairStats,
    SteeringRule,
};
use crate::{PrivateFlags, Steering};

/// A function that is not open. The placeholder keeps the link visible, with the reason why the
/// link carries no traffic.
#[derive(Debug)]
pub struct Absent {
    name: String,
    reason: String,
    stats: Vec<Arc<QueuePairStats>>,
}

impl Absent {
    /// Creates a placeholder for the function with the address `name`. `stats` are the statistics
    /// of the function that it replaces; empty if there is none.
    pub fn new(name: String, reason: String, stats: Vec<Arc<QueuePairStats>>) -> Self {
        Self { name, reason, stats }
    }

    fn error(&self) -> OpenChannelsError {
        OpenChannelsError {
            function: self.name.clone(),
            what: format!("not open: {}", self.reason),
        }
    }
}

impl Function for Absent {
    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> Caps {
        Caps {
            layer: Layer::Ethernet,
            channels: CHANNELS_MAX,
            wanted: None,
            mtu: None,
            mtu_found: None,
            mtu_max: MTU_MAX,
            frame_max: FRAME_MAX,
            rx_offloads: Offloads::NONE,
            tx_offloads: Offloads::NONE,
            rx_fixed: Offloads::NONE,
        }
    }

    fn poll_link(&mut self, _now: Duration) -> LinkStatus {
        LinkStatus::Down(self.reason.clone())
    }

    fn open(&mut self, _plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        Err(self.error())
    }

    fn full_means(&self) -> &'static str {
        "the device is not open"
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }

    crate::facets!(steering, private_flags);
}

impl Steering for Absent {
    fn set_indirection(
        &mut self,
        _table: &[u16],
        _user_set: bool,
    ) -> Result<(), OpenChannelsError> {
        Err(self.error())
    }

    fn can_follow(&self) -> bool {
        // Return true: the device's answer is unknown while the function is not open.
        true
    }

    fn set_rules(&mut self, _rules: &[SteeringRule]) -> Result<(), OpenChannelsError> {
        Err(self.error())
    }
}

impl PrivateFlags for Absent {
    fn set_flag(&mut self, _flag: &str, _on: bool) -> Result<(), OpenChannelsError> {
        Err(self.error())
    }
}
