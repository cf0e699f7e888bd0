//! Facets: optional parts of the contract. A function returns each facet that it implements by an
//! accessor of [`Function`]. The default methods apply to functions without the facet, and to
//! facets that do not override the method.

use std::time::Duration;

use crate::{
    Buckets, Function, HardwareDevice, Indirection, Interface, MemberView, OpenChannelsError,
    RxMemory, SlotRings, SteeringRule,
};

/// Declares a facet: the trait, and methods of `dyn Function` with the same names. These methods
/// call the facet if there is one, and otherwise run the default body. They cannot be overridden,
/// so that no wrapper can hide a facet.
macro_rules! facet_trait {
    (
        $(#[$doc:meta])*
        $facet:ident;
        $accessor:ident: {$(
            $(#[$read_doc:meta])*
            fn $read:ident(&$this:ident $(, $arg:ident: $of:ty)*) $(-> $value:ty)? $body:block
        )*}
        $accessor_mut:ident: {$(
            $(#[$write_doc:meta])*
            fn $write:ident(&mut $own:ident $(, $word:ident: $kind:ty)*) $(-> $result:ty)?
            $work:block
        )*}
    ) => {
        $(#[$doc])*
        #[allow(unused_variables, reason = "arguments of defaults")]
        pub trait $facet: Function {
            $($(#[$read_doc])* fn $read(&$this $(, $arg: $of)*) $(-> $value)? $body)*
            $($(#[$write_doc])* fn $write(&mut $own $(, $word: $kind)*) $(-> $result)? $work)*
        }

        impl dyn Function + '_ {
            $($(#[$read_doc])*
            pub fn $read(&$this $(, $arg: $of)*) $(-> $value)? {
                if let Some(facet) = $this.$accessor() {
                    return facet.$read($($arg),*);
                }
                $body
            })*
            $($(#[$write_doc])*
            pub fn $write(&mut $own $(, $word: $kind)*) $(-> $result)? {
                if let Some(facet) = $own.$accessor_mut() {
                    return facet.$write($($word),*);
                }
                $work
            })*
        }
    };
}

facet_trait! {
    /// Selection of the RX queue of each frame.
    Steering;
    steering: {
        /// True if [`steer`](Self::steer) moves only the flows that must move: to new queues if
        /// channels are added, from retired queues if channels are removed. False if any flow may
        /// move.
        fn steers(&self) -> bool {
            true
        }

        /// Indirection table of the RX queues; `None` if there is no table that can be read and
        /// set.
        fn indirection(&self) -> Option<Indirection> {
            None
        }

        /// True if, at least in some sessions, buckets of [`indirection`](Self::indirection) can be
        /// assigned to the queue that sends the other direction of their flows.
        fn can_follow(&self) -> bool {
            false
        }

        /// Flow rules by location, which take precedence over the table; `None` if rules are not
        /// supported.
        fn rules(&self) -> Option<&[SteeringRule]> {
            None
        }

        /// Queues that an indirection table may contain for `channels` channels.
        fn table_queues(&self, channels: u16) -> Vec<u16> {
            (0..channels).collect()
        }
    }
    steering_mut: {
        /// Capacity of an RX queue in frames. A reader that takes this number of frames has taken
        /// every frame that was queued when it began, even if the queue was never empty.
        fn waiting_most(&mut self) -> u32 {
            1 << 16
        }

        /// Steers new frames to the first `channels` queues. After the return, all arriving frames
        /// are queued by the new selection.
        fn steer(&mut self, channels: u16) -> Result<(), OpenChannelsError> {
            Ok(())
        }

        /// Reads the table again if other programs can set it. Returns true if another program has
        /// set the table since the last read; that program then owns the table.
        fn refresh_indirection(&mut self) -> bool {
            false
        }

        /// Sets the table; `user_set` is false for a default table. After the return, all arriving
        /// frames are queued by the new table. The caller preserves the order of frames within
        /// flows.
        fn set_indirection(&mut self, table: &[u16], user_set: bool)
            -> Result<(), OpenChannelsError> {
            let what = "has no such table".to_owned();
            Err(OpenChannelsError { function: self.name().to_owned(), what })
        }

        /// Mapping from frames to buckets of [`indirection`](Self::indirection) in this session, or
        /// the reason why the mapping is unknown. Call the method only if
        /// [`can_follow`](Self::can_follow) is true, and before the lanes run, because the call may
        /// move flows.
        fn buckets(&mut self) -> Result<Buckets, String> {
            Err("has no table".to_owned())
        }

        /// Replaces all rules. After the return, all arriving frames are queued by the new rules.
        /// The caller preserves the order of frames within flows.
        fn set_rules(&mut self, rules: &[SteeringRule]) -> Result<(), OpenChannelsError> {
            let what = "does not support rules".to_owned();
            Err(OpenChannelsError { function: self.name().to_owned(), what })
        }
    }
}

facet_trait! {
    /// Kernel interface of a function, or behind a function.
    KernelInterface;
    kernel_interface: {
        /// Name, index and state of the interface, which other programs may rename and move at any
        /// time; `None` if there is no interface at present.
        fn interface(&self) -> Option<Interface<'_>> {
            None
        }

        /// True if frames sent through the function go to a network stack, which processes a few
        /// large frames faster than many small ones.
        fn feeds_a_stack(&self) -> bool {
            false
        }
    }
    kernel_interface_mut: {
        /// MTU that another program set on the device since the last call; `None` if none was set.
        fn changed_mtu(&mut self) -> Option<u32> {
            None
        }

        /// Sets the device's MTU to that of the current plan.
        fn restore_mtu(&mut self) -> Result<(), String> {
            Ok(())
        }

        /// Sets the carrier of the interface: up if frames sent through the interface have a
        /// destination.
        fn set_carrier(&mut self, up: bool) {}

        /// Number of frames that were dropped before they reached an RX queue, for example at a
        /// full TAP ring; `None` if these drops are not counted.
        fn dropped_outside(&mut self) -> Option<u64> {
            None
        }
    }
}

facet_trait! {
    /// Hardware devices of a function, for the placement of workers and interrupts.
    Placement;
    placement: {
        /// Permanent identity of the device, independent of its name: a bus address, or the
        /// permanent MAC address. `None` if only the endpoint address identifies the device.
        fn identity(&self) -> Option<String> {
            None
        }

        /// Devices behind the function: device `i mod n` of `n` devices serves channel `i`. Empty
        /// if no device is known. The list is constant while the function is open.
        fn devices(&self) -> Vec<HardwareDevice> {
            Vec::new()
        }

        /// True if workers are placed from the high end of the CPU list. The other end of the
        /// bridge is then on the same machine and uses the low end.
        fn takes_high_cpus(&self) -> bool {
            false
        }
    }
    placement: {
    }
}

facet_trait! {
    /// Bridge that supports more than one protocol.
    Bridge;
    bridge: {
        /// Name of the protocol in use; `None` if the far end is unknown.
        fn protocol(&self) -> Option<&'static str> {
            None
        }

        /// Reason why this end cannot select the number of channels, with the remedy; `None` if
        /// this end can select the number.
        fn channels_fixed(&self) -> Option<String> {
            None
        }

        /// Description of the slot rings; `None` if the protocol has no slots, or the peer has not
        /// set up the rings yet.
        fn slot_rings(&self) -> Option<SlotRings> {
            None
        }
    }
    bridge: {
    }
}

facet_trait! {
    /// Private flags of one kind of function (`ethtool --show-priv-flags`).
    PrivateFlags;
    private_flags: {
        /// Names and values of the private flags.
        fn flags(&self) -> Vec<(&'static str, bool)> {
            Vec::new()
        }
    }
    private_flags_mut: {
        /// Sets one of the [`flags`](Self::flags); fails if the function has no such flag.
        fn set_flag(&mut self, flag: &str, on: bool) -> Result<(), OpenChannelsError> {
            let what = format!("has no flag '{flag}'");
            Err(OpenChannelsError { function: self.name().to_owned(), what })
        }
    }
}

facet_trait! {
    /// Buffers that a function provides to a device.
    RxBuffers;
    rx_buffers: {
        /// Description of the buffers of each RX queue that has provided buffers to the device.
        fn rx_memory(&self) -> Vec<RxMemory> {
            Vec::new()
        }
    }
    rx_buffers_mut: {
        /// Reports that an XDP program was attached to the RX queues (true), or detached.
        fn set_xdp(&mut self, attached: bool) {}
    }
}

facet_trait! {
    /// Members of a group of functions.
    Members;
    group: {
        /// Description of each member.
        fn members(&self) -> Vec<MemberView> {
            Vec::new()
        }

        /// Smallest number of channels that gives each member at least one.
        fn least_channels(&self) -> u16 {
            1
        }

        /// Number of channels with statistics in use while a member serves channels of another
        /// member; otherwise 0, and the plan's number applies.
        fn counted(&self) -> u16 {
            0
        }
    }
    group_mut: {
        /// Member `at`, for access to its indirection table. Queue `q` of the member is channel
        /// `q * members + at`. `None` if there is no such member, or while any member serves a
        /// channel of another member.
        fn member(&mut self, at: usize) -> Option<&mut dyn Function> {
            None
        }

        /// Reports the failure of a lane. Returns true if the cause is the loss of a member and the
        /// group continues without that member. After the next [`poll_link`](Self::poll_link),
        /// [`refit`](Self::refit) then returns the affected channels.
        fn survives(&mut self, now: Duration) -> bool {
            false
        }

        /// Channels with replacement queues, which become active when the present queues are
        /// [parked](crate::Queue::park). The caller parks the present queues and attaches them
        /// again, with the frames held in their lanes. The caller then calls
        /// [`refitted`](Self::refitted).
        fn refit(&mut self) -> Vec<u16> {
            Vec::new()
        }

        /// Ends the replacement of queues that [`refit`](Self::refit) began.
        fn refitted(&mut self) {}
    }
}

/// Defines the accessors of the facets that the function implements.
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
    (bridge) => {
        fn bridge(&self) -> Option<&dyn $crate::Bridge> {
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

/// Defines accessors that return the facets and the peer of the function in the field `$inner`.
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

        fn bridge(&self) -> Option<&dyn $crate::Bridge> {
            self.$inner.bridge()
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
    use crate::{Caps, Channel, Plan, QueuePairStats};

    /// A function that implements all facets.
    struct All(Null);

    impl Function for All {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn caps(&self) -> Caps {
            self.0.caps()
        }

        fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
            self.0.open(plan)
        }

        fn stats(&self) -> &[Arc<QueuePairStats>] {
            self.0.stats()
        }

        crate::facets!(steering, kernel_interface, placement, bridge, private_flags);
        crate::facets!(rx_buffers, group);
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

    impl Bridge for All {
        fn protocol(&self) -> Option<&'static str> {
            Some("a protocol")
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

        fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
            self.inner.open(plan)
        }

        fn stats(&self) -> &[Arc<QueuePairStats>] {
            self.inner.stats()
        }

        crate::forward_facets!(inner);
    }

    /// Goal: a wrapper returns every facet of the inner function; a function without facets returns
    /// none.
    #[test]
    fn wrappers_lose_no_facet() {
        let facets = |f: &mut dyn Function| {
            [
                f.steering().is_some(),
                f.steering_mut().is_some(),
                f.kernel_interface().is_some(),
                f.kernel_interface_mut().is_some(),
                f.placement().is_some(),
                f.bridge().is_some(),
                f.private_flags().is_some(),
                f.private_flags_mut().is_some(),
                f.rx_buffers().is_some(),
                f.rx_buffers_mut().is_some(),
                f.group().is_some(),
                f.group_mut().is_some(),
            ]
        };
        assert_eq!(facets(&mut Null::new(1)), [false; 12]);
        let mut wrapper = Wrapper { inner: All(Null::new(1)) };
        assert_eq!(facets(&mut wrapper), [true; 12]);
        let f: &mut dyn Function = &mut wrapper;
        assert!(!f.steers() && f.feeds_a_stack() && f.takes_high_cpus());
        assert_eq!((f.flags(), f.least_channels()), (vec![("flag", true)], 7));
        assert_eq!(f.protocol(), Some("a protocol"));
    }
}
