//! Data of `tc show`.

use crate::kind::ExtraCounter;
use crate::{Attach, DrrClass, Handle, Params, Totals};

/// One qdisc.
#[derive(Clone, Debug, PartialEq)]
pub struct QdiscInfo {
    /// Handle of the qdisc; 0 for the default leaves of mq, which tc prints as `0:`.
    pub handle: Handle,
    /// Parent of the qdisc.
    pub attach: Attach,
    /// Kind and parameters.
    pub params: Params,
    /// Value of `refcnt N`, which tc prints unless it is 1. For a root that is not multi-queue, the
    /// value is 1 plus the number of channels, or 2 for the default noqueue; otherwise 1.
    pub refcnt: u32,
    /// Counters of the qdisc, including those of former schedulers.
    pub totals: Totals,
}

/// One class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassInfo {
    /// Kind of the qdisc that owns the class.
    pub kind: &'static str,
    /// Counters that only classes of this kind have.
    pub counters: &'static [ExtraCounter],
    /// Id of the class.
    pub id: Handle,
    /// Parent qdisc or class; `None`: tc prints `root`.
    pub parent: Option<Handle>,
    /// Handle of the class's qdisc (`leaf 10:`), if the user attached one.
    pub leaf: Option<Handle>,
    /// Quantum of a drr class.
    pub drr: Option<DrrClass>,
    /// Counters of the class.
    pub totals: Totals,
}

/// One filter.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterInfo {
    /// Attachment point: a qdisc's handle, or egress.
    pub attach: Attach,
    /// EtherType; 3 (`ETH_P_ALL`) for all.
    pub protocol: u16,
    /// Priority of the filter.
    pub pref: u16,
    /// `flower`, `matchall`, `fw`.
    pub kind: &'static str,
    /// Handle of the filter.
    pub handle: u32,
    /// Class of matching packets.
    pub class: Option<Handle>,
    /// Match conditions with the names of `tc -j` (`dst_ip`, `ip_proto`), in the order of printing.
    pub keys: Vec<(&'static str, String)>,
    /// Actions in order.
    pub actions: Vec<ActionInfo>,
    /// Packets that matched.
    pub hits: u64,
}

/// One action of a filter.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionInfo {
    /// `skbedit`, `police`, `gact`.
    pub kind: &'static str,
    /// Number of the action within the netdev, from 1 (`index 1`).
    pub index: u32,
    /// Parameters with the names of `tc -j`: rates in bytes per second, sizes in bytes, priority as
    /// a class id.
    pub options: Vec<(&'static str, String)>,
    /// Packets on which the action ran.
    pub packets: u64,
    /// Bytes of these packets on the wire.
    pub bytes: u64,
    /// Packets that the action dropped.
    pub drops: u64,
    /// Packets above the rate of a police action.
    pub overlimits: u64,
}
