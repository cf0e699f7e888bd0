//! Facets of a TAP: steering, kernel interface, private flags.

use std::sync::Arc;

use mqnet_netdev::{
    Buckets, Indirection, Interface, KernelInterface, OpenChannelsError, PrivateFlags, Steering,
    SteeringRule,
};
use mqnet_sysio::tap as sys;

use super::{FLOW_STEERING, TapFunction};
use crate::steering::bucket;

impl Steering for TapFunction {
    fn steers(&self) -> bool {
        self.queues.steers()
    }

    fn waiting_most(&mut self) -> u32 {
        // One frame more than the ring. A later enlargement of the ring does not matter: only
        // frames that are queued already count.
        self.netlink.link_at(self.index).map_or(1 << 16, |info| info.ring.saturating_add(1))
    }

    fn steer(&mut self, channels: u16) -> Result<(), OpenChannelsError> {
        // Read the counter only if the kernel steers, because only then frames can be lost. The
        // read can take long, and lanes wait.
        let before = if self.queues.steers() { None } else { self.dropped_outside() };
        let steered = self.queues.steer(channels);
        self.note_dropped_since(before);
        steered.map_err(|what| self.error(what))
    }

    fn indirection(&self) -> Option<Indirection> {
        let (table, user_set) = self.queues.table()?;
        Some(Indirection { table: table.to_vec(), user_set, hash: "xor" })
    }

    fn set_indirection(&mut self, table: &[u16], user_set: bool) -> Result<(), OpenChannelsError> {
        self.queues.set_table(table, user_set).map_err(|what| self.error(what))
    }

    fn rules(&self) -> Option<&[SteeringRule]> {
        self.queues.rules()
    }

    fn set_rules(&mut self, rules: &[SteeringRule]) -> Result<(), OpenChannelsError> {
        self.queues.set_rules(rules).map_err(|what| self.error(what))
    }

    fn can_follow(&self) -> bool {
        true
    }

    /// Buckets of the answers to frames: both directions of a flow have the same bucket.
    fn buckets(&mut self) -> Result<Buckets, String> {
        let layer = self.layer;
        let of_answers = Arc::new(move |frame: &[u8]| bucket(frame, layer));
        Ok(Buckets { of_answers, of_arrivals: None })
    }
}

impl KernelInterface for TapFunction {
    fn interface(&self) -> Option<Interface<'_>> {
        self.shown()
    }

    fn changed_mtu(&mut self) -> Option<u32> {
        self.view.changed_mtu.take()
    }

    fn restore_mtu(&mut self) -> Result<(), String> {
        self.plan.clone().map_or(Ok(()), |plan| self.apply_mtu(&plan))
    }

    fn feeds_a_stack(&self) -> bool {
        true
    }

    fn set_carrier(&mut self, up: bool) {
        // Fails on kernels before 5.0, and without privilege over an inherited device, whose
        // owner controls its carrier.
        let set = sys::set_carrier(self.first(), up);
        self.view.carrier = up && set.is_ok();
        if up {
            // The kernel processes a carrier change later, and drops frames until then. A read of
            // the device completes the pending change (Linux 6.8 and later).
            let _ = self.netlink.link_at(self.index);
        }
    }

    fn dropped_outside(&mut self) -> Option<u64> {
        self.netlink.link_at(self.index).ok().map(|info| info.tx_dropped)
    }
}

impl PrivateFlags for TapFunction {
    fn flags(&self) -> Vec<(&'static str, bool)> {
        vec![(FLOW_STEERING, self.queues.steers())]
    }

    fn set_flag(&mut self, flag: &str, on: bool) -> Result<(), OpenChannelsError> {
        if flag != FLOW_STEERING {
            return Err(self.error(format!("has no flag '{flag}'")));
        }
        let queues = self.plan.as_ref().map_or(1, |plan| plan.channels);
        self.queues.set_steering(on, queues, &self.stats).map_err(|what| self.error(what))
    }
}
