//! Facets: what only some functions have. A function returns each facet that it has by an accessor
//! of [`Function`]. What holds for a function without the facet is defined once, in the methods of
//! `dyn Function`.

use std::time::Duration;

use crate::{
    Buckets, Device, FlowRule, Function, Indirection, Interface, MemberView, OpenError, RxMemory,
};

/// Choice of the RX queue of each frame.
pub trait Steering: Function {
    /// True when [`steer`](Self::steer) moves only the flows that must move: with more channels
    /// to new ones, with fewer away from retiring ones. Otherwise any flow may move.
    fn steers(&self) -> bool {
        true
    }

    /// Most frames that can wait in one of its RX queues: whoever has taken so many has taken all
    /// that were older, though the queue was never found empty.
    fn waiting_most(&mut self) -> u32 {
        1 << 16
    }

    /// Lets what arrives from now on come to the first `channels` queues. When it returns, no
    /// frame can arrive any more that chose its queue before.
    fn steer(&mut self, _channels: u16) -> Result<(), OpenError> {
        Ok(())
    }

    /// How flows are spread over the RX queues, where that can be seen and set.
    fn indirection(&self) -> Option<Indirection> {
        None
    }

    /// Reads the table anew where others than we can set it; true if somebody has, whose it then
    /// is.
    fn refresh_indirection(&mut self) -> bool {
        false
    }

    /// Spreads flows by this table, or by the default one. As after [`steer`](Self::steer), no
    /// frame can arrive any more that chose its queue before. The caller keeps flows in order.
    fn set_indirection(&mut self, _table: &[u16], _user_set: bool) -> Result<(), OpenError> {
        Err(OpenError { function: self.name().to_owned(), what: "has no such table".to_owned() })
    }

    /// Buckets of [`indirection`](Self::indirection) can follow the other direction of their flows,
    /// at least in some sessions.
    fn can_follow(&self) -> bool {
        false
    }

    /// Which buckets of [`indirection`](Self::indirection) frames belong to in this session; or
    /// why that is not known. For one that [`can_follow`](Self::can_follow), before its lanes run:
    /// flows may move.
    fn buckets(&mut self) -> Result<Buckets, String> {
        Err("has no table".to_owned())
    }

    /// Rules that send flows to RX queues whatever the table says, by location; `None` where there
    /// can be none.
    fn rules(&self) -> Option<&[FlowRule]> {
        None
    }

    /// Puts these in the place of all. As after [`steer`](Self::steer), no frame can arrive any
    /// more that chose its queue before. The caller keeps flows in order.
    fn set_rules(&mut self, _rules: &[FlowRule]) -> Result<(), OpenError> {
        Err(OpenError { function: self.name().to_owned(), what: "takes no rules".to_owned() })
    }

    /// Queues that this table can name while there are `channels`.
    fn table_queues(&self, channels: u16) -> Vec<u16> {
        (0..channels).collect()
    }
}

/// The interface of the kernel that a function is, or is in front of.
pub trait KernelInterface {
    /// The kernel's interface behind the function, which others may rename and move at any time;
    /// `None` where there is none.
    fn interface(&self) -> Option<Interface<'_>> {
        None
    }

    /// MTU that another program has set on the device, once.
    fn changed_mtu(&mut self) -> Option<u32> {
        None
    }

    /// Sets the device's MTU to that of the plan in force, whatever others have set.
    fn restore_mtu(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// True when what is sent through this function ends in a network stack that is glad of few
    /// large frames instead of many small ones.
    fn feeds_a_stack(&self) -> bool {
        false
    }

    /// Tells whether frames sent through this function go anywhere: a function that is a network
    /// interface shows it as its carrier.
    fn set_carrier(&mut self, _up: bool) {}

    /// Frames that the system dropped before our RX queues saw them, if it counts them; for a TAP,
    /// what its ring had no room for.
    fn dropped_outside(&mut self) -> Option<u64> {
        None
    }
}

/// Devices of the machine, for the placement of workers and interrupts.
pub trait Placement {
    /// What it is told by for ever, whatever it is called and whenever it is found: an address on a
    /// bus, an Ethernet address from the factory. `None`: its endpoint address has to do.
    fn identity(&self) -> Option<String> {
        None
    }

    /// The devices of the machine behind it: channel i is served by device i mod their number. None
    /// where nothing is known of any. It does not change while the function is open.
    fn devices(&self) -> Vec<Device> {
        Vec::new()
    }

    /// True when workers should be placed from the high end of the CPU list, because the other end
    /// of the link, on the same machine, begins at the low one.
    fn takes_high_cpus(&self) -> bool {
        false
    }
}

/// Switches of one kind of function (`ethtool --show-priv-flags`).
pub trait PrivateFlags: Function {
    /// Switches of this kind of function alone, with how they stand.
    fn flags(&self) -> Vec<(&'static str, bool)> {
        Vec::new()
    }

    /// Sets one of [`flags`](Self::flags).
    fn set_flag(&mut self, flag: &str, _on: bool) -> Result<(), OpenError> {
        Err(OpenError { function: self.name().to_owned(), what: format!("has no flag '{flag}'") })
    }
}

/// Buffers that a function gives to a device.
pub trait RxBuffers {
    /// How the buffers of its RX queues lie, where it gives them to a device; one of each queue
    /// that has had any.
    fn rx_memory(&self) -> Vec<RxMemory> {
        Vec::new()
    }

    /// Tells that an XDP program looks at what arrives here, or does not any more.
    fn set_xdp(&mut self, _attached: bool) {}
}

/// A function that is made of several: a group.
pub trait Members {
    /// Member `at` of a group all of whose channels are where its map has them; `None` while they
    /// are not, and for what is no group. It is there for its table, which is its own: queue `q` of
    /// it is channel `q * members + at`.
    fn member(&mut self, _at: usize) -> Option<&mut dyn Function> {
        None
    }

    /// The functions that it is made of, if it is made of several.
    fn members(&self) -> Vec<MemberView> {
        Vec::new()
    }

    /// Fewest channels with which each of its parts has one.
    fn least_channels(&self) -> u16 {
        1
    }

    /// Channels whose statistics are in use, where they are more than those of the plan.
    fn counted(&self) -> u16 {
        0
    }

    /// A lane has failed. True when that is because a part is lost without which this function goes
    /// on: [`refit`](Self::refit) tells the channels, after the next
    /// [`poll_link`](Self::poll_link).
    fn survives(&mut self, _now: Duration) -> bool {
        false
    }

    /// Channels in whose queues other queues wait to take over: they do when the queues are
    /// [parked](crate::Queue::park) next. Whoever asks parks them, puts them back, with all that
    /// waits in their lanes, and says [`refitted`](Self::refitted).
    fn refit(&mut self) -> Vec<u16> {
        Vec::new()
    }

    /// The queues have been replaced.
    fn refitted(&mut self) {}
}

/// Methods of the facets, with what holds for a function that lacks the facet. They cannot be
/// overridden, so that no wrapper can lose one.
impl dyn Function + '_ {
    /// See [`Steering::steers`].
    pub fn steers(&self) -> bool {
        match self.steering() {
            Some(facet) => facet.steers(),
            None => true,
        }
    }

    /// See [`Steering::waiting_most`].
    pub fn waiting_most(&mut self) -> u32 {
        match self.steering_mut() {
            Some(facet) => facet.waiting_most(),
            None => 1 << 16,
        }
    }

    /// See [`Steering::steer`].
    pub fn steer(&mut self, channels: u16) -> Result<(), OpenError> {
        match self.steering_mut() {
            Some(facet) => facet.steer(channels),
            None => Ok(()),
        }
    }

    /// See [`Steering::indirection`].
    pub fn indirection(&self) -> Option<Indirection> {
        match self.steering() {
            Some(facet) => facet.indirection(),
            None => None,
        }
    }

    /// See [`Steering::refresh_indirection`].
    pub fn refresh_indirection(&mut self) -> bool {
        match self.steering_mut() {
            Some(facet) => facet.refresh_indirection(),
            None => false,
        }
    }

    /// See [`Steering::set_indirection`].
    pub fn set_indirection(&mut self, table: &[u16], user_set: bool) -> Result<(), OpenError> {
        match self.steering_mut() {
            Some(facet) => facet.set_indirection(table, user_set),
            None => Err(OpenError {
                function: self.name().to_owned(),
                what: "has no such table".to_owned(),
            }),
        }
    }

    /// See [`Steering::can_follow`].
    pub fn can_follow(&self) -> bool {
        match self.steering() {
            Some(facet) => facet.can_follow(),
            None => false,
        }
    }

    /// See [`Steering::buckets`].
    pub fn buckets(&mut self) -> Result<Buckets, String> {
        match self.steering_mut() {
            Some(facet) => facet.buckets(),
            None => Err("has no table".to_owned()),
        }
    }

    /// See [`Steering::rules`].
    pub fn rules(&self) -> Option<&[FlowRule]> {
        match self.steering() {
            Some(facet) => facet.rules(),
            None => None,
        }
    }

    /// See [`Steering::set_rules`].
    pub fn set_rules(&mut self, rules: &[FlowRule]) -> Result<(), OpenError> {
        match self.steering_mut() {
            Some(facet) => facet.set_rules(rules),
            None => Err(OpenError {
                function: self.name().to_owned(),
                what: "takes no rules".to_owned(),
            }),
        }
    }

    /// See [`Steering::table_queues`].
    pub fn table_queues(&self, channels: u16) -> Vec<u16> {
        match self.steering() {
            Some(facet) => facet.table_queues(channels),
            None => (0..channels).collect(),
        }
    }

    /// See [`KernelInterface::interface`].
    pub fn interface(&self) -> Option<Interface<'_>> {
        match self.kernel_interface() {
            Some(facet) => facet.interface(),
            None => None,
        }
    }

    /// See [`KernelInterface::changed_mtu`].
    pub fn changed_mtu(&mut self) -> Option<u32> {
        match self.kernel_interface_mut() {
            Some(facet) => facet.changed_mtu(),
            None => None,
        }
    }

    /// See [`KernelInterface::restore_mtu`].
    pub fn restore_mtu(&mut self) -> Result<(), String> {
        match self.kernel_interface_mut() {
            Some(facet) => facet.restore_mtu(),
            None => Ok(()),
        }
    }

    /// See [`KernelInterface::feeds_a_stack`].
    pub fn feeds_a_stack(&self) -> bool {
        match self.kernel_interface() {
            Some(facet) => facet.feeds_a_stack(),
            None => false,
        }
    }

    /// See [`KernelInterface::set_carrier`].
    pub fn set_carrier(&mut self, up: bool) {
        if let Some(facet) = self.kernel_interface_mut() {
            facet.set_carrier(up);
        }
    }

    /// See [`KernelInterface::dropped_outside`].
    pub fn dropped_outside(&mut self) -> Option<u64> {
        match self.kernel_interface_mut() {
            Some(facet) => facet.dropped_outside(),
            None => None,
        }
    }

    /// See [`Placement::identity`].
    pub fn identity(&self) -> Option<String> {
        match self.placement() {
            Some(facet) => facet.identity(),
            None => None,
        }
    }

    /// See [`Placement::devices`].
    pub fn devices(&self) -> Vec<Device> {
        match self.placement() {
            Some(facet) => facet.devices(),
            None => Vec::new(),
        }
    }

    /// See [`Placement::takes_high_cpus`].
    pub fn takes_high_cpus(&self) -> bool {
        match self.placement() {
            Some(facet) => facet.takes_high_cpus(),
            None => false,
        }
    }

    /// See [`PrivateFlags::flags`].
    pub fn flags(&self) -> Vec<(&'static str, bool)> {
        match self.private_flags() {
            Some(facet) => facet.flags(),
            None => Vec::new(),
        }
    }

    /// See [`PrivateFlags::set_flag`].
    pub fn set_flag(&mut self, flag: &str, on: bool) -> Result<(), OpenError> {
        match self.private_flags_mut() {
            Some(facet) => facet.set_flag(flag, on),
            None => Err(OpenError {
                function: self.name().to_owned(),
                what: format!("has no flag '{flag}'"),
            }),
        }
    }

    /// See [`RxBuffers::rx_memory`].
    pub fn rx_memory(&self) -> Vec<RxMemory> {
        match self.rx_buffers() {
            Some(facet) => facet.rx_memory(),
            None => Vec::new(),
        }
    }

    /// See [`RxBuffers::set_xdp`].
    pub fn set_xdp(&mut self, attached: bool) {
        if let Some(facet) = self.rx_buffers_mut() {
            facet.set_xdp(attached);
        }
    }

    /// See [`Members::member`].
    pub fn member(&mut self, at: usize) -> Option<&mut dyn Function> {
        match self.group_mut() {
            Some(facet) => facet.member(at),
            None => None,
        }
    }

    /// See [`Members::members`].
    pub fn members(&self) -> Vec<MemberView> {
        match self.group() {
            Some(facet) => facet.members(),
            None => Vec::new(),
        }
    }

    /// See [`Members::least_channels`].
    pub fn least_channels(&self) -> u16 {
        match self.group() {
            Some(facet) => facet.least_channels(),
            None => 1,
        }
    }

    /// See [`Members::counted`].
    pub fn counted(&self) -> u16 {
        match self.group() {
            Some(facet) => facet.counted(),
            None => 0,
        }
    }

    /// See [`Members::survives`].
    pub fn survives(&mut self, now: Duration) -> bool {
        match self.group_mut() {
            Some(facet) => facet.survives(now),
            None => false,
        }
    }

    /// See [`Members::refit`].
    pub fn refit(&mut self) -> Vec<u16> {
        match self.group_mut() {
            Some(facet) => facet.refit(),
            None => Vec::new(),
        }
    }

    /// See [`Members::refitted`].
    pub fn refitted(&mut self) {
        if let Some(facet) = self.group_mut() {
            facet.refitted();
        }
    }
}

/// Accessors of the facets that the function implements itself.
#[macro_export]
macro_rules! facets {
    ($($facet:ident),*) => { $($crate::facet!($facet);)* };
}

#[doc(hidden)]
#[macro_export]
macro_rules! facet {
    (steering) => {
        fn steering(&self) -> Option<&dyn $crate::Steering> {
            Some(self)
        }

        fn steering_mut(&mut self) -> Option<&mut dyn $crate::Steering> {
            Some(self)
        }
    };
    (kernel_interface) => {
        fn kernel_interface(&self) -> Option<&dyn $crate::KernelInterface> {
            Some(self)
        }

        fn kernel_interface_mut(&mut self) -> Option<&mut dyn $crate::KernelInterface> {
            Some(self)
        }
    };
    (placement) => {
        fn placement(&self) -> Option<&dyn $crate::Placement> {
            Some(self)
        }
    };
    (private_flags) => {
        fn private_flags(&self) -> Option<&dyn $crate::PrivateFlags> {
            Some(self)
        }

        fn private_flags_mut(&mut self) -> Option<&mut dyn $crate::PrivateFlags> {
            Some(self)
        }
    };
    (rx_buffers) => {
        fn rx_buffers(&self) -> Option<&dyn $crate::RxBuffers> {
            Some(self)
        }

        fn rx_buffers_mut(&mut self) -> Option<&mut dyn $crate::RxBuffers> {
            Some(self)
        }
    };
    (group) => {
        fn group(&self) -> Option<&dyn $crate::Members> {
            Some(self)
        }

        fn group_mut(&mut self) -> Option<&mut dyn $crate::Members> {
            Some(self)
        }
    };
}

/// Accessors of a function that has the facets of another one, its field.
#[macro_export]
macro_rules! forward_facets {
    ($inner:ident) => {
        fn steering(&self) -> Option<&dyn $crate::Steering> {
            self.$inner.steering()
        }

        fn steering_mut(&mut self) -> Option<&mut dyn $crate::Steering> {
            self.$inner.steering_mut()
        }

        fn kernel_interface(&self) -> Option<&dyn $crate::KernelInterface> {
            self.$inner.kernel_interface()
        }

        fn kernel_interface_mut(&mut self) -> Option<&mut dyn $crate::KernelInterface> {
            self.$inner.kernel_interface_mut()
        }

        fn placement(&self) -> Option<&dyn $crate::Placement> {
            self.$inner.placement()
        }

        fn private_flags(&self) -> Option<&dyn $crate::PrivateFlags> {
            self.$inner.private_flags()
        }

        fn private_flags_mut(&mut self) -> Option<&mut dyn $crate::PrivateFlags> {
            self.$inner.private_flags_mut()
        }

        fn rx_buffers(&self) -> Option<&dyn $crate::RxBuffers> {
            self.$inner.rx_buffers()
        }

        fn rx_buffers_mut(&mut self) -> Option<&mut dyn $crate::RxBuffers> {
            self.$inner.rx_buffers_mut()
        }

        fn group(&self) -> Option<&dyn $crate::Members> {
            self.$inner.group()
        }

        fn group_mut(&mut self) -> Option<&mut dyn $crate::Members> {
            self.$inner.group_mut()
        }

        fn peer(&mut self) -> Option<&mut dyn $crate::Peer> {
            self.$inner.peer()
        }
    };
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::null::Null;
    use crate::{Caps, Channel, ChannelStats, Plan};

    /// A function with all facets.
    struct All(Null);

    impl Function for All {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn caps(&self) -> Caps {
            self.0.caps()
        }

        fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenError> {
            self.0.open(plan)
        }

        fn stats(&self) -> &[Arc<ChannelStats>] {
            self.0.stats()
        }

        crate::facets!(steering, kernel_interface, placement, private_flags, rx_buffers, group);
    }

    impl Steering for All {
        fn steers(&self) -> bool {
            false
        }
    }

    impl KernelInterface for All {
        fn feeds_a_stack(&self) -> bool {
            true
        }
    }

    impl Placement for All {
        fn takes_high_cpus(&self) -> bool {
            true
        }
    }

    impl PrivateFlags for All {
        fn flags(&self) -> Vec<(&'static str, bool)> {
            vec![("flag", true)]
        }
    }

    impl RxBuffers for All {}

    impl Members for All {
        fn least_channels(&self) -> u16 {
            7
        }
    }

    struct Wrapper {
        inner: All,
    }

    impl Function for Wrapper {
        fn name(&self) -> &str {
            self.inner.name()
        }

        fn caps(&self) -> Caps {
            self.inner.caps()
        }

        fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenError> {
            self.inner.open(plan)
        }

        fn stats(&self) -> &[Arc<ChannelStats>] {
            self.inner.stats()
        }

        crate::forward_facets!(inner);
    }

    /// A wrapper has every facet of the function inside; a function without facets has none.
    #[test]
    fn wrappers_lose_no_facet() {
        let facets = |f: &mut dyn Function| {
            [
                f.steering().is_some(),
                f.steering_mut().is_some(),
                f.kernel_interface().is_some(),
                f.kernel_interface_mut().is_some(),
                f.placement().is_some(),
                f.private_flags().is_some(),
                f.private_flags_mut().is_some(),
                f.rx_buffers().is_some(),
                f.rx_buffers_mut().is_some(),
                f.group().is_some(),
                f.group_mut().is_some(),
            ]
        };
        assert_eq!(facets(&mut Null::new(1)), [false; 11]);
        let mut wrapper = Wrapper { inner: All(Null::new(1)) };
        assert_eq!(facets(&mut wrapper), [true; 11]);
        let f: &mut dyn Function = &mut wrapper;
        assert!(!f.steers() && f.feeds_a_stack() && f.takes_high_cpus());
        assert_eq!((f.flags(), f.least_channels()), (vec![("flag", true)], 7));
    }
}
