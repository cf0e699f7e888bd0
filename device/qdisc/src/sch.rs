//! The table of the kinds of qdiscs, and the code generated from it.

mod bucket;
mod channels;
mod class;
mod codel;
pub(crate) mod drr;
mod ecn;
pub(crate) mod fifo;
mod flows;
pub(crate) mod fq_codel;
mod held;
mod mqprio;
mod pfifo_fast;
mod prio;
mod store;
mod tbf;
mod unscheduled;

use std::any::Any;

use mqnet_wire::FlowKeys;

use crate::command::Errno;
use crate::kind::{Bypass, Classes, Env, ExtraCounter, Kind, KindOptions};
use crate::parse::Words;
use crate::{Blueprint, FilterVerdict, Filters, Qdisc, QueuedPacket, TcError};

pub use drr::DrrClass;
pub use fifo::Fifo;
pub use fq_codel::FqCodel;
pub use mqprio::Mqprio;
pub use prio::{PRIOMAP, Prio};
pub use tbf::Tbf;

/// Declares [`Params`] and the functions that depend on the kind.
macro_rules! kinds {
    (
        bare { $($(#[$unit_doc:meta])* $unit:ident = $unit_kind:ty,)+ }
        with_options { $($(#[$doc:meta])* $variant:ident($params:ty) = $kind:ty,)+ }
    ) => {
        /// Kind of a qdisc, with its parameters.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Params {
            $($(#[$unit_doc])* $unit,)+
            $($(#[$doc])* $variant($params),)+
        }

        impl Params {
            /// Parses the options of a kind; see [`Kind::parse`]. Returns `ENOENT` for an unknown
            /// kind.
            pub(crate) fn parse(
                kind: &str,
                options: &[String],
                old: Option<&Self>,
                env: Env,
            ) -> Result<Self, TcError> {
                let words = Words::new(options);
                $(if kind == <$unit_kind as Kind>::NAME {
                    return <$unit_kind as Kind>::parse(words, None, env).map(|()| Self::$unit);
                })+
                $(if kind == <$kind as Kind>::NAME {
                    let old = match old {
                        Some(Self::$variant(params)) => Some(params),
                        _ => None,
                    };
                    return <$kind as Kind>::parse(words, old, env).map(Self::$variant);
                })+
                Err(TcError {
                    errno: Errno::NotFound,
                    message: "Specified qdisc kind is unknown".to_owned(),
                    usage: false,
                })
            }

            /// Name in `tc`.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$unit => <$unit_kind as Kind>::NAME,)+
                    $(Self::$variant(_) => <$kind as Kind>::NAME,)+
                }
            }

            /// Counters that only this kind has.
            pub const fn counters(&self) -> &'static [ExtraCounter] {
                match self {
                    $(Self::$unit => <$unit_kind as Kind>::COUNTERS,)+
                    $(Self::$variant(_) => <$kind as Kind>::COUNTERS,)+
                }
            }

            /// Counters that only classes of this kind have.
            pub const fn class_counters(&self) -> &'static [ExtraCounter] {
                match self {
                    $(Self::$unit => <$unit_kind as Kind>::CLASS_COUNTERS,)+
                    $(Self::$variant(_) => <$kind as Kind>::CLASS_COUNTERS,)+
                }
            }

            /// Options in force.
            pub fn options(&self) -> KindOptions {
                match self {
                    $(Self::$unit => <$unit_kind as Kind>::options(&()),)+
                    $(Self::$variant(params) => <$kind as Kind>::options(params),)+
                }
            }

            /// Classes of the qdisc.
            pub(crate) fn classes(&self) -> Classes {
                match self {
                    $(Self::$unit => <$unit_kind as Kind>::classes(&()),)+
                    $(Self::$variant(params) => <$kind as Kind>::classes(params),)+
                }
            }

            /// Returns the parameters with each default that depends on the frame size replaced by
            /// its value for `frame` bytes.
            pub(crate) fn resolved(mut self, frame: u32) -> Self {
                match &mut self {
                    $(Self::$unit => {})+
                    $(Self::$variant(params) => <$kind as Kind>::resolve(params, frame),)+
                }
                self
            }

            const fn bypass(&self) -> Bypass {
                match self {
                    $(Self::$unit => <$unit_kind as Kind>::BYPASS,)+
                    $(Self::$variant(_) => <$kind as Kind>::BYPASS,)+
                }
            }
        }

        /// Builds a qdisc and its children; see [`Kind::build`].
        pub(crate) fn build(plan: Blueprint, mtu: u32, seed: u64) -> Box<dyn Qdisc> {
            match plan.params.clone() {
                $(Params::$unit => <$unit_kind as Kind>::build(&(), plan, mtu, seed),)+
                $(Params::$variant(set) => <$kind as Kind>::build(&set, plan, mtu, seed),)+
            }
        }
    };
}

kinds! {
    bare {
        /// No queue: a full sink stops the source, or drops the frame if `full=drop` is set.
        Noqueue = unscheduled::Noqueue,
        /// One qdisc for each channel.
        Mq = unscheduled::Mq,
        /// Deficit round robin among classes.
        Drr = drr::Drr,
        /// Attachment point of egress filters.
        Clsact = unscheduled::Clsact,
    }
    with_options {
        /// First in, first out; limit in packets.
        Pfifo(Fifo) = fifo::Pfifo,
        /// First in, first out; limit in bytes.
        Bfifo(Fifo) = fifo::Bfifo,
        /// Three bands by priority; each band has the limit, in packets.
        PfifoFast(Fifo) = pfifo_fast::PfifoFast,
        /// Bands by priority, each with a qdisc.
        Prio(Prio) = prio::PrioKind,
        /// One qdisc for each channel; the priority selects a group of channels.
        Mqprio(Mqprio) = mqprio::MqprioKind,
        /// Token bucket.
        Tbf(Tbf) = tbf::TbfKind,
        /// Fair queueing with controlled delay.
        FqCodel(FqCodel) = fq_codel::FqCodelKind,
    }
}

/// True if packets may bypass the empty qdisc and all its children.
pub(crate) fn can_bypass(plan: &Blueprint) -> bool {
    plan.params.bypass().holds(!plan.filters.is_empty())
        && plan.classes.iter().all(|class| can_bypass(&class.child))
}

/// Returns the predecessor if it is a `T`. Otherwise moves its packets to `rest` and returns
/// `None`.
fn same_kind<T: Qdisc>(mut old: Box<dyn Qdisc>, rest: &mut Vec<QueuedPacket>) -> Option<Box<T>> {
    let any: &dyn Any = &*old;
    if !any.is::<T>() {
        old.take_all(rest);
        return None;
    }
    let any: Box<dyn Any> = old;
    any.downcast().ok()
}

/// Runs the filters of a qdisc. The packet keeps its channel even if a filter selects another one:
/// only the lane of the original channel is polled for the packet.
fn run_filters(
    filters: &mut Filters,
    packet: &mut QueuedPacket,
    keys: &FlowKeys,
    now: u64,
) -> FilterVerdict {
    if filters.is_empty() {
        return FilterVerdict::Pass;
    }
    let (channel, bytes) = (packet.meta.channel, packet.wire_len());
    let verdict = filters.run(keys, &mut packet.meta, bytes, now);
    packet.meta.channel = channel;
    verdict
}
