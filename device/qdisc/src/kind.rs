//! Trait of a kind of qdisc, and the types of its options, counters and classes.

use crate::parse::Words;
use crate::{Blueprint, Fifo, Params, Qdisc, TcError};

/// Number of counters that a kind may have in addition to those of every qdisc.
pub const EXTRA_MAX: usize = 9;

/// Default limit of a fifo in packets: the `txqueuelen` of a device.
pub(crate) const TXQUEUELEN: u32 = 1000;

/// A kind of qdisc: one type per kind, listed in `sch.rs`.
pub(crate) trait Kind {
    /// Parameters of the qdisc. Times are in nanoseconds, rates in bytes per second.
    type Params;
    /// Name in `tc`.
    const NAME: &'static str;
    /// Counters of the qdisc, in the order of [`NodeStats::extra`](crate::NodeStats::extra).
    const COUNTERS: &'static [ExtraCounter] = &[];
    /// Counters of each class, in the order of [`NodeStats::extra`](crate::NodeStats::extra).
    const CLASS_COUNTERS: &'static [ExtraCounter] = &[];
    /// Condition under which a packet may bypass the empty qdisc.
    const BYPASS: Bypass = Bypass::Always;

    /// Parses the options of a command. `old`: parameters in force when a qdisc of the same kind is
    /// changed. An option that the words omit keeps its old value if the kernel keeps it too.
    fn parse(
        words: Words<'_>,
        old: Option<&Self::Params>,
        env: Env,
    ) -> Result<Self::Params, TcError>;

    /// Options in force, for `tc qdisc show`.
    fn options(_: &Self::Params) -> KindOptions {
        Vec::new()
    }

    /// Builds the scheduler. `mtu`: MTU with its link-layer header; `seed` perturbs flow hashes.
    fn build(params: &Self::Params, plan: Blueprint, mtu: u32, seed: u64) -> Box<dyn Qdisc>;

    /// Replaces each default that depends on the frame size by its value for `frame` bytes.
    fn resolve(_: &mut Self::Params, _frame: u32) {}

    /// Classes of the qdisc.
    fn classes(_: &Self::Params) -> Classes {
        Classes::None
    }
}

/// Names and values of options, in any order.
pub type KindOptions = Vec<(&'static str, OptionValue)>;

/// Value of an option, in the unit of `tc -j`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A number.
    Number(u64),
    /// On or off.
    Flag(bool),
    /// Numbers, such as a priority map.
    Numbers(Vec<u64>),
    /// Ranges of channels, first and last.
    Ranges(Vec<[u16; 2]>),
}

impl From<u32> for OptionValue {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for OptionValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for OptionValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&[u8]> for OptionValue {
    fn from(numbers: &[u8]) -> Self {
        Self::Numbers(numbers.iter().copied().map(u64::from).collect())
    }
}

/// A counter that only one kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraCounter {
    /// Name in `tc -s`.
    pub name: &'static str,
    merge: Merge,
}

/// Rule by which the values of several schedulers are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merge {
    Sum,
    Max,
    Gauge,
}

impl ExtraCounter {
    /// Creates a counter: the values of schedulers are added.
    pub(crate) const fn sum(name: &'static str) -> Self {
        Self { name, merge: Merge::Sum }
    }

    /// Creates a counter: the largest value of all schedulers applies.
    pub(crate) const fn max(name: &'static str) -> Self {
        Self { name, merge: Merge::Max }
    }

    /// Creates a gauge: the values of running schedulers are added, and ended schedulers count as
    /// 0.
    pub(crate) const fn gauge(name: &'static str) -> Self {
        Self { name, merge: Merge::Gauge }
    }

    /// True for a value that becomes 0 when its scheduler ends.
    pub(crate) fn is_gauge(self) -> bool {
        self.merge == Merge::Gauge
    }

    /// Combined value of two schedulers.
    pub(crate) fn merged(self, a: u64, b: u64) -> u64 {
        if self.merge == Merge::Max { a.max(b) } else { a.wrapping_add(b) }
    }
}

/// Values on which defaults depend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Env {
    /// MTU with its link-layer header, in bytes.
    pub(crate) frame: u32,
    /// Largest number of channels.
    pub(crate) channels: u16,
}

/// Classes of a qdisc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Classes {
    /// No classes.
    None,
    /// Flows that the qdisc creates. Filters select among them; no qdisc can be attached.
    Flows,
    /// One class with this qdisc as default. Every minor number means this class.
    One(Params),
    /// Classes 1 to this number, each with a pfifo as default.
    Bands(u16),
    /// One class for each channel.
    Channels,
    /// Classes that the user creates.
    User,
}

impl Classes {
    /// Default qdisc of a class. For [`Channels`](Self::Channels) the tree selects another default.
    pub(crate) fn default_child(self) -> Params {
        match self {
            Self::One(child) => child,
            _ => Params::Pfifo(Fifo { limit: TXQUEUELEN }),
        }
    }
}

/// Condition under which a packet may bypass an empty qdisc: the qdisc would neither delay nor
/// reclassify the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bypass {
    Always,
    WithoutFilters,
    Never,
}

impl Bypass {
    /// True if a packet may bypass an empty qdisc; `has_filters`: the qdisc has filters.
    pub(crate) const fn holds(self, has_filters: bool) -> bool {
        match self {
            Self::Always => true,
            Self::WithoutFilters => !has_filters,
            Self::Never => false,
        }
    }
}
