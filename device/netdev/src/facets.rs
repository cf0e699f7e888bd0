//! Facets: optional parts of the contract. A function returns each facet that it implements by an
//! accessor of [`Function`]. A default applies to functions without the facet, and to facets that
//! do not define the method.

use std::time::Duration;

use crate::{
    Buckets, Function, HardwareDevice, Indirection, Interface, MemberView, OpenChannelsError,
    RxMemory, SlotRings, SteeringRule,
};

/// Declares a facet: the trait, and the same methods of `dyn Function`, which call the facet if
/// there is one. These methods cannot be overridden, so that no wrapper can hide a facet.
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
    /// Choice of the RX queue of each frame.
    Steering;
    steering: {
        /// True if [`steer`](Self::steer) moves only the flows that must move: to new queues when
        /// channels are added, from retired queues when they are removed. Otherwise any flow may
        /// move.
        fn steers(&self) -> bool {
            true
        }

        /// Indirection table of the RX queues; `None` where it cannot be read and set.
        fn indirection(&self) -> Option<Indirection> {
            None
        }

        /// True if buckets of [`indirection`](Self::indirection) can follow the other direction
        /// of their flows, at least in some sessions.
        fn can_follow(&self) -> bool {
            false
        }

        /// Flow rules, by location. They take precedence over the table. `None` where rules are not
        /// supported.
        fn rules(&self) -> Option<&[SteeringRule]> {
            None
        }

        /// Queues that a table may name with this number of channels.
        fn table_queues(&self, channels: u16) -> Vec<u16> {
            (0..channels).collect()
        }
    }
    steering_mut: {
        /// Capacity of an RX queue in frames. A reader that has taken this number of frames has
        /// taken all older ones, even if the queue was never empty.
        fn waiting_most(&mut self) -> u32 {
            1 << 16
        }

        /// Steers new frames to the first `channels` queues. All frames that arrive after its
        /// return have their queue by the new choice.
        fn steer(&mut self, channels: u16) -> Result<(), OpenChannelsError> {
            Ok(())
        }

        /// Reads the table again where other programs can set it; true if another program has set
        /// it, which then owns it.
        fn refresh_indirection(&mut self) -> bool {
            false
        }

        /// Sets the table; `user_set` is false for the default one. As with
        /// [`steer`](Self::steer), all frames that arrive afterwards have their queue by the new
        /// table. The caller keeps flows in order.
        fn set_indirection(&mut self, table: &[u16], user_set: bool)
            -> Result<(), OpenChannelsError> {
            let what = "has no such table".to_owned();
            Err(OpenChannelsError { function: self.name().to_owned(), what })
        }

        /// Mapping from frames to buckets of [`indirection`](Self::indirection) in this session, or
        /// the reason why it is unknown. Call it before the lanes run, since flows may move; only
        /// where [`can_follow`](Self::can_follow) is true.
        fn buckets(&mut self) -> Result<Buckets, String> {
            Err("has no table".to_owned())
        }

        /// Replaces all rules. As with [`steer`](Self::steer), all frames that arrive afterwards
        /// have their queue by the new rules. The caller keeps flows in order.
        fn set_rules(&mut self, rules: &[SteeringRule]) -> Result<(), OpenChannelsError> {
            let what = "takes no rules".to_owned();
            Err(OpenChannelsError { function: self.name().to_owned(), what })
        }
    }
}

facet_trait! {
    /// Kernel interface of a function: the function is this interface, or is behind it.
    KernelInterface;
    kernel_interface: {
        /// Name, index and state of the interface, which other programs may rename and move at any
        /// time; `None` while there is none.
        fn interface(&self) -> Option<Interface<'_>> {
            None
        }

        /// True if frames sent through this function go to a network stack, which processes a few
        /// large frames faster than many small ones.
        fn feeds_a_stack(&self) -> bool {
            false
        }
    }
    kernel_interface_mut: {
        /// MTU that another program has set on the device since the last call.
        fn changed_mtu(&mut self) -> Option<u32> {
            None
        }

        /// Sets the device's MTU to that of the plan in force.
        fn restore_mtu(&mut self) -> Result<(), String> {
            Ok(())
        }

        /// Sets the carrier of the interface: up while frames sent through the function have a
        /// destination.
        fn set_carrier(&mut self, up: bool) {}

        /// Frames that the system dropped before they reached an RX queue, where it counts them;
        /// at a TAP, those that found its ring full.
        fn dropped_outside(&mut self) -> Option<u64> {
            None
        }
    }
}

facet_trait! {
    /// Devices of the machine, for the placement of workers and interrupts.
    Placement;
    placement: {
        /// Permanent identity of the device, independent of its name: a bus address, or the
        /// factory's Ethernet address. `None` where only the endpoint address identifies it.
        fn identity(&self) -> Option<String> {
            None
        }

        /// Devices behind the function: device `i mod n` of `n` serves channel `i`. Empty where
        /// none is known. Constant while the function is open.
        fn devices(&self) -> Vec<HardwareDevice> {
            Vec::new()
        }

        /// True if workers should be placed from the high end of the CPU list, because the other
        /// end of a bridge on the same machine places its workers from the low end.
        fn takes_high_cpus(&self) -> bool {
            false
        }
    }
    placement: {
    }
}

facet_trait! {
    /// Far end of a bridge that can have more than one protocol.
    Bridge;
    bridge: {
        /// Name of the protocol in use; `None` while the far end is unknown.
        fn protocol(&self) -> Option<&'static str> {
            None
        }

        /// Reason why the number of channels is not this end's choice, with what to do instead;
        /// `None` where it is.
        fn channels_fixed(&self) -> Option<String> {
            None
        }

        /// Rings of slots; `None` where the protocol has none, and before the peer has set them up.
        fn slot_rings(&self) -> Option<SlotRings> {
            None
        }
    }
    bridge: {
    }
}

facet_trait! {
    /// Switches of one kind of function (`ethtool --show-priv-flags`).
    PrivateFlags;
    private_flags: {
        /// Names and values of the flags.
        fn flags(&self) -> Vec<(&'static str, bool)> {
            Vec::new()
        }
    }
    private_flags_mut: {
        /// Sets one of [`flags`](Self::flags).
        fn set_flag(&mut self, flag: &str, on: bool) -> Result<(), OpenChannelsError> {
            let what = format!("has no flag '{flag}'");
            Err(OpenChannelsError { function: self.name().to_owned(), what })
        }
    }
}

facet_trait! {
    /// Buffers that a function gives to a device.
    RxBuffers;
    rx_buffers: {
        /// Buffer layout of each RX queue that has had buffers.
        fn rx_memory(&self) -> Vec<RxMemory> {
            Vec::new()
        }
    }
    rx_buffers_mut: {
        /// Announces that an XDP program is attached to the RX queues, or detached.
        fn set_xdp(&mut self, attached: bool) {}
    }
}

facet_trait! {
    /// Members of a group.
    Members;
    group: {
        /// Description of each member.
        fn members(&self) -> Vec<MemberView> {
            Vec::new()
        }

        /// Smallest number of channels with which each member has one.
        fn least_channels(&self) -> u16 {
            1
        }

        /// Number of channels with statistics in use, where it exceeds that of the plan; otherwise
        /// 0.
        fn counted(&self) -> u16 {
            0
        }
    }
    group_mut: {
        /// Member `at`, for access to its own indirection table: its queue `q` is channel
        /// `q * members + at`. `None` while a channel is not at its place in the group's map.
        fn member(&mut self, at: usize) -> Option<&mut dyn Function> {
            None
        }

        /// Reports the failure of a lane. True if the reason is the loss of a member and the
        /// group continues without it: [`refit`](Self::refit) returns the channels after the next
        /// [`poll_link`](Self::poll_link).
        fn survives(&mut self, now: Duration) -> bool {
            false
        }

        /// Channels with replacement queues, which become active when the present queues are
        /// [parked](crate::Queue::park). The caller parks these queues, attaches them again with
        /// the frames held in their lanes, and calls [`refitted`](Self::refitted).
        fn refit(&mut self) -> Vec<u16> {
            Vec::new()
        }

        /// Ends the replacement of queues that [`refit`](Self::refit) began.
        fn refitted(&mut self) {}
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

    /// A function with all facets.
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
