//! Queueing disciplines, classifiers and actions with Linux's names, defaults and semantics.
//!
//! The control thread keeps a [`Tree`]: what the user attached to a netdev, by handle. From it
//! come [`Scheduler`]s, which workers run: filters of the egress hook, then one tree of
//! disciplines. A multi-queue root (`mq`) has a scheduler for each channel; any other root is one
//! scheduler for all channels, and lanes take turns with it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod act;
mod ahead;
mod blueprint;
mod cls;
mod command;
mod dql;
mod filters;
pub mod id;
mod info;
mod kind;
mod packet;
mod parse;
mod qdisc;
mod sch;
mod scheduler;
mod stats;
mod tree;

pub use blueprint::{Blueprint, ClassPlan};
pub use command::{Attach, Errno, ObjectType, TcCommand, TcError, Verb};
pub use dql::ByteLimit;
pub use filters::{FilterVerdict, Filters};
pub use info::{ActionInfo, ClassInfo, FilterInfo, QdiscInfo};
pub use kind::{EXTRA_MAX, ExtraCounter, KindOptions, OptionValue};
pub use packet::{Meta, QueuedPacket};
pub use qdisc::{Cx, Enqueued, Qdisc};
pub use sch::{DrrClass, Fifo, FqCodel, Mqprio, PRIOMAP, Params, Prio, Tbf};
pub use scheduler::Scheduler;
pub use stats::{NodeStats, Totals};
pub use tree::{ChannelMap, Shape, Tree};

/// A handle or a class id, `major:minor` in 16 bits each. 0 is "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

impl Handle {
    /// `major:minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self((major as u32) << 16 | minor as u32)
    }

    /// The upper half.
    pub const fn major(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The lower half.
    pub const fn minor(self) -> u16 {
        self.0 as u16
    }

    /// A class as tc takes it: `1:2`, `:2`, `1:`, `root`, `none`, or 32 bits in hexadecimal.
    pub fn of_class(word: &str) -> Option<Self> {
        parse::number::class(word)
    }

    /// The handle of a discipline as tc takes it: `1:` or `1`.
    pub fn of_qdisc(word: &str) -> Option<Self> {
        parse::number::qdisc(word)
    }
}

impl std::fmt::Display for Handle {
    /// As tc prints it: hexadecimal, halves of 0 left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.major(), self.minor()) {
            (0, 0) => write!(f, "0:"),
            (0, minor) => write!(f, ":{minor:x}"),
            (major, 0) => write!(f, "{major:x}:"),
            (major, minor) => write!(f, "{major:x}:{minor:x}"),
        }
    }
}
