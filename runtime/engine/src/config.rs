//! Configuration of a link.

use crate::egress::EgressConfig;
use crate::idle::IdlePolicy;

/// Selection of the workers' CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cpus {
    /// Distinct cores of the process's cpuset, on the NUMA nodes of the devices if they are known.
    /// The search begins at the end of the CPU list that the functions prefer.
    #[default]
    Auto,
    /// Workers are not pinned; the kernel schedules them.
    Float,
    /// List of CPUs, used in order and repeated if necessary.
    List(Vec<usize>),
}

/// Configuration of a link.
#[derive(Clone, Debug, Default)]
pub struct LinkConfig {
    /// Initial number of channels; `None`: the number that a function or its peer requests,
    /// otherwise 1.
    pub channels: Option<u16>,
    /// Number of workers; `None`: one per channel, at most one per CPU.
    pub workers: Option<usize>,
    /// CPUs of the workers.
    pub cpus: Cpus,
    /// Idle policy of the workers.
    pub idle: IdlePolicy,
    /// Egress settings of the first function, and of the second.
    pub egress: [EgressConfig; 2],
}
