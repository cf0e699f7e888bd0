//! Facets: what only some functions have. A function returns each facet that it has by an accessor
//! of [`Function`]. A default holds for functions without the facet, and for those that have the
//! facet and do not define the method.

use std::time::Duration;

use crate::{
    Buckets, Device, FlowRule, Function, Indirection, Interface, MemberView, OpenError, RxMemory,
};

/// Declares a facet: the trait, and the same methods of `dyn Function`, which use the facet if
/// there is one. Nothing can override those, so that no wrapper can lose one.
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

        #[allow(unused_variables, reason = "arguments of defaults")]
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
        /// True when [`steer`](Self::steer) moves only the flows that must move: with more channels
        /// to new ones, with fewer away from retiring ones. Otherwise any flow may move.
        fn steers(&self) -> bool {
            true
        }

        /// How flows are spread over the RX queues, where that can be seen and set.
        fn indirection(&self) -> Option<Indirection> {
            None
        }

        /// Buckets of [`indirection`](Self::indirection) can follow the other direction of their
        /// flows, at least in some sessions.
        fn can_follow(&self) -> bool {
            false
        }

        /// Rules that send flows to RX queues whatever the table says, by location; `None` where
        /// there can be none.
        fn rules(&self) -> Option<&[FlowRule]> {
            None
        }

        /// Queues that this table can name while there are `channels`.
        fn table_queues(&self, channels: u16) -> Vec<u16> {
            (0..channels).collect()
        }
    }
    steering_mut: {
        /// Most frames that can wait in one of its RX queues: whoever has taken so many has taken
        /// all that were older, though the queue was never found empty.
        fn waiting_most(&mut self) -> u32 {
            1 << 16
        }

        /// Lets what arrives from now on come to the first `channels` queues. When it returns, no
        /// frame can arrive any more that chose its queue before.
        fn steer(&mut self, channels: u16) -> Result<(), OpenError> {
            Ok(())
        }

        /// Reads the table anew where others than we can set it; true if somebody has, whose it
        /// then is.
        fn refresh_indirection(&mut self) -> bool {
            false
        }

        /// Spreads flows by this table, or by the default one. As after [`steer`](Self::steer), no
        /// frame can arrive any more that chose its queue before. The caller keeps flows in order.
        fn set_indirection(&mut self, table: &[u16], user_set: bool) -> Result<(), OpenError> {
            let what = "has no such table".to_owned();
            Err(OpenError { function: self.name().to_owned(), what })
        }

        /// Which buckets of [`indirection`](Self::indirection) frames belong to in this session; or
        /// why that is not known. For one that [`can_follow`](Self::can_follow), before its lanes
        /// run: flows may move.
        fn buckets(&mut self) -> Result<Buckets, String> {
            Err("has no table".to_owned())
        }

        /// Puts these in the place of all. As after [`steer`](Self::steer), no frame can arrive any
        /// more that chose its queue before. The caller keeps flows in order.
        fn set_rules(&mut self, rules: &[FlowRule]) -> Result<(), OpenError> {
            Err(OpenError { function: self.name().to_owned(), what: "takes no rules".to_owned() })
        }
    }
}

facet_trait! {
    /// The interface of the kernel that a function is, or is in front of.
    KernelInterface;
    kernel_interface: {
        /// The kernel's interface behind the function, which others may rename and move at any
        /// time; `None` where there is none.
        fn interface(&self) -> Option<Interface<'_>> {
            None
        }

        /// True when what is sent through this function ends in a network stack that is glad of few
        /// large frames instead of many small ones.
        fn feeds_a_stack(&self) -> bool {
            false
        }
    }
    kernel_interface_mut: {
        /// MTU that another program has set on the device, once.
        fn changed_mtu(&mut self) -> Option<u32> {
            None
        }

        /// Sets the device's MTU to that of the plan in force, whatever others have set.
        fn restore_mtu(&mut self) -> Result<(), String> {
            Ok(())
        }

        /// Tells whether frames sent through this function go anywhere: a function that is a
        /// network interface shows it as its carrier.
        fn set_carrier(&mut self, up: bool) {}

        /// Frames that the system dropped before our RX queues saw them, if it counts them; for a
        /// TAP, what its ring had no room for.
        fn dropped_outside(&mut self) -> Option<u64> {
            None
        }
    }
}

facet_trait! {
    /// Devices of the machine, for the placement of workers and interrupts.
    Placement;
    placement: {
        /// What it is told by for ever, whatever it is called and whenever it is found: an address
        /// on a bus, an Ethernet address from the factory. `None`: its endpoint address has to do.
        fn identity(&self) -> Option<String> {
            None
        }

        /// The devices of the machine behind it: channel i is served by device i mod their number.
        /// None where nothing is known of any. It does not change while the function is open.
        fn devices(&self) -> Vec<Device> {
            Vec::new()
        }

        /// True when workers should be placed from the high end of the CPU list, because the other
        /// end of the link, on the same machine, begins at the low one.
        fn takes_high_cpus(&self) -> bool {
            false
        }
    }
    placement: {
    }
}

facet_trait! {
    /// Switches of one kind of function (`ethtool --show-priv-flags`).
    PrivateFlags;
    private_flags: {
        /// Switches of this kind of function alone, with how they stand.
        fn flags(&self) -> Vec<(&'static str, bool)> {
            Vec::new()
        }
    }
    private_flags_mut: {
        /// Sets one of [`flags`](Self::flags).
        fn set_flag(&mut self, flag: &str, on: bool) -> Result<(), OpenError> {
            let what = format!("has no flag '{flag}'");
            Err(OpenError { function: self.name().to_owned(), what })
        }
    }
}

facet_trait! {
    /// Buffers that a function gives to a device.
    RxBuffers;
    rx_buffers: {
        /// How the buffers of its RX queues lie, where it gives them to a device; one of each queue
        /// that has had any.
        fn rx_memory(&self) -> Vec<RxMemory> {
            Vec::new()
        }
    }
    rx_buffers_mut: {
        /// Tells that an XDP program looks at what arrives here, or does not any more.
        fn set_xdp(&mut self, attached: bool) {}
    }
}

facet_trait! {
    /// A function that is made of several: a group.
    Members;
    group: {
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
    }
    group_mut: {
        /// Member `at` of a group all of whose channels are where its map has them; `None` while
        /// they are not, and for what is no group. It is there for its table, which is its own:
        /// queue `q` of it is channel `q * members + at`.
        fn member(&mut self, at: usize) -> Option<&mut dyn Function> {
            None
        }

        /// A lane has failed. True when that is because a part is lost without which this function
        /// goes on: [`refit`](Self::refit) tells the channels, after the next
        /// [`poll_link`](Self::poll_link).
        fn survives(&mut self, now: Duration) -> bool {
            false
        }

        /// Channels in whose queues other queues wait to take over: they do when the queues are
        /// [parked](crate::Queue::park) next. Whoever asks parks them, puts them back, with all
        /// that waits in their lanes, and says [`refitted`](Self::refitted).
        fn refit(&mut self) -> Vec<u16> {
            Vec::new()
        }

        /// The queues have been replaced.
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
