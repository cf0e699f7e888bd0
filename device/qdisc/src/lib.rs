//! Queueing disciplines, classifiers and actions with Linux's names, defaults and semantics.
//!
//! The control thread keeps a [`Tree`] of the qdiscs, classes and filters that the user attached to
//! a netdev. The tree builds [`Scheduler`]s, which workers run: the filters of the egress hook,
//! then the qdiscs. A multi-queue root (`mq`, `mqprio`), or a noqueue root with egress filters, has
//! one scheduler for each channel. Any other root has one scheduler, which all channels share under
//! a lock.

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

/// A qdisc handle or a class id, `major:minor` in 16 bits each; 0 is `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

impl Handle {
    /// Creates the handle `major:minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self((major as u32) << 16 | minor as u32)
    }

    /// Upper 16 bits: the number of the qdisc.
    pub const fn major(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Lower 16 bits: the number of the class; 0 for the qdisc.
    pub const fn minor(self) -> u16 {
        self.0 as u16
    }

    /// Parses a class id in tc's syntax: `1:2`, `:2`, `1:`, `root`, `none`, or 32 bits in
    /// hexadecimal.
    pub fn of_class(word: &str) -> Option<Self> {
        parse::number::class(word)
    }

    /// Parses a qdisc handle in tc's syntax: `1:`, `1` or `none`.
    pub fn of_qdisc(word: &str) -> Option<Self> {
        parse::number::qdisc(word)
    }
}

impl std::fmt::Display for Handle {
    /// Formats the handle as tc does: hexadecimal, with halves of 0 left out; `0:` for handle 0.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.major(), self.minor()) {
            (0, 0) => write!(f, "0:"),
            (0, minor) => write!(f, ":{minor:x}"),
            (major, 0) => write!(f, "{major:x}:"),
            (major, minor) => write!(f, "{major:x}:{minor:x}"),
        }
    }
}
