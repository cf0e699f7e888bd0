//! Data of `tc show`.

use crate::kind::ExtraCounter;
use crate::{Attach, DrrClass, Handle, Params, Totals};

/// One discipline.
#[derive(Clone, Debug, PartialEq)]
pub struct QdiscInfo {
    /// Its handle; 0 for the default leaves of mq, which tc prints as `0:`.
    pub handle: Handle,
    /// Kind and parameters.
    pub attach: Attach,
    /// What it is.
    pub params: Params,
    /// Value of `refcnt N`, which tc prints unless 1: for mq 1; for a root qdisc shared by all
    /// channels 1 plus the number of channels.
    pub refcnt: u32,
    /// Counters, including those of former schedulers.
    pub totals: Totals,
}

/// One class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassInfo {
    /// Kind of its discipline.
    pub kind: &'static str,
    /// Counters that only classes of this kind have.
    pub counters: &'static [ExtraCounter],
    /// Its id.
    pub id: Handle,
    /// The class above; `None`: root.
    pub parent: Option<Handle>,
    /// Handle of the discipline in it (`leaf 10:`), if the user attached one.
    pub leaf: Option<Handle>,
    /// drr's quantum.
    pub drr: Option<DrrClass>,
    /// Its counters.
    pub totals: Totals,
}

/// One filter.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterInfo {
    /// Where it is attached: a discipline's handle, or egress.
    pub attach: Attach,
    /// EtherType; 3 for all.
    pub protocol: u16,
    /// Its priority.
    pub pref: u16,
    /// `flower`, `matchall`, `fw`.
    pub kind: &'static str,
    /// Its handle.
    pub handle: u32,
    /// Where matching packets go.
    pub class: Option<Handle>,
    /// What it matches, by the names of `tc -j` (`dst_ip`, `ip_proto`), in the order of printing.
    pub keys: Vec<(&'static str, String)>,
    /// Its actions, in order.
    pub actions: Vec<ActionInfo>,
    /// Packets that matched.
    pub hits: u64,
}

/// One action of a filter.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionInfo {
    /// `skbedit`, `police`, `gact`.
    pub kind: &'static str,
    /// Its number, counted from 1 within the netdev (`index 1`).
    pub index: u32,
    /// What is set, by the names of `tc -j`: rates in bytes per second, sizes in bytes, priority as
    /// a class.
    pub options: Vec<(&'static str, String)>,
    /// Packets that it saw.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What it dropped.
    pub drops: u64,
    /// Packets that were over the rate (police).
    pub overlimits: u64,
}
