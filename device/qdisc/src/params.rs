//! What can be set about each kind of discipline, as numbers, with Linux's defaults.
//!
//! Times are nanoseconds, rates bytes per second, limits packets unless they say bytes.

/// The kinds, with what is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Params {
    /// Nothing waits; a full sink stops the source, or drops (`full=drop`).
    Noqueue,
    /// First in, first out; packets.
    Pfifo(Fifo),
    /// First in, first out; bytes.
    Bfifo(Fifo),
    /// Three bands by priority, packets each.
    PfifoFast(Fifo),
    /// Bands by priority, each with a discipline of its own.
    Prio(Prio),
    /// One discipline a channel.
    Mq,
    /// One discipline a channel; the priority chooses among channels.
    Mqprio(Mqprio),
    /// A token bucket.
    Tbf(Tbf),
    /// Deficit round robin among classes.
    Drr,
    /// Fair queueing with controlled delay.
    FqCodel(FqCodel),
    /// The place of egress filters.
    Clsact,
}

/// pfifo, bfifo (bytes), pfifo_fast (per band).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fifo {
    /// Packets or bytes.
    pub limit: u32,
}

/// prio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prio {
    /// 2 to 16.
    pub bands: u8,
    /// Band of each priority.
    pub priomap: [u8; 16],
}

/// mqprio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mqprio {
    /// Traffic classes, 1 to 16.
    pub num_tc: u8,
    /// Class of each priority.
    pub map: [u8; 16],
    /// Channels of each class: count and first.
    pub queues: Vec<(u16, u16)>,
}

/// tbf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tbf {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes of the bucket.
    pub burst: u32,
    /// Bytes per second of the second bucket; 0: none.
    pub peakrate: u64,
    /// Bytes of the second bucket.
    pub mtu: u32,
    /// Bytes that may wait (in the inner bfifo).
    pub limit: u32,
}

/// fq_codel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodel {
    /// Packets in all.
    pub limit: u32,
    /// Flows (buckets); cannot be changed later.
    pub flows: u32,
    /// Bytes a flow may send in its turn; 0: MTU and link-layer header, at least 256.
    pub quantum: u32,
    /// Delay that is tolerated.
    pub target: u64,
    /// How long it is tolerated above the target.
    pub interval: u64,
    /// Mark instead of drop.
    pub ecn: bool,
    /// Mark above this delay; `None`: off.
    pub ce_threshold: Option<u64>,
    /// Bytes of memory.
    pub memory_limit: u32,
    /// Most packets dropped at once when over the limit.
    pub drop_batch: u32,
}

impl Default for FqCodel {
    fn default() -> Self {
        Self {
            limit: 10_240,
            flows: 1024,
            quantum: 0,
            target: 5_000_000,
            interval: 100_000_000,
            ecn: true,
            ce_threshold: None,
            memory_limit: 32 << 20,
            drop_batch: 64,
        }
    }
}

/// The map of pfifo_fast, prio and mqprio when nothing is said.
pub const PRIOMAP: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

impl Default for Prio {
    fn default() -> Self {
        Self { bands: 3, priomap: PRIOMAP }
    }
}

/// A class of drr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrrClass {
    /// Bytes in a turn.
    pub quantum: u32,
}

impl Params {
    /// Name as tc has it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Noqueue => "noqueue",
            Self::Pfifo(_) => "pfifo",
            Self::Bfifo(_) => "bfifo",
            Self::PfifoFast(_) => "pfifo_fast",
            Self::Prio(_) => "prio",
            Self::Mq => "mq",
            Self::Mqprio(_) => "mqprio",
            Self::Tbf(_) => "tbf",
            Self::Drr => "drr",
            Self::FqCodel(_) => "fq_codel",
            Self::Clsact => "clsact",
        }
    }
}
