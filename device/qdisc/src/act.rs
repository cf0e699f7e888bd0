//! Actions of filters.

mod police;

use std::sync::Arc;

use crate::{Handle, Meta};

pub(crate) use police::{Bucket, Police};

/// Control result of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// End the actions; the filter's class applies.
    Ok,
    /// Drop the packet.
    Drop,
    /// Continue with the next filter.
    Continue,
    /// Continue with the next action.
    Pipe,
}

impl Control {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "pass",
            Self::Drop => "drop",
            Self::Continue => "continue",
            Self::Pipe => "pipe",
        }
    }
}

/// Changes to the metadata of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skbedit {
    pub(crate) queue_mapping: Option<u16>,
    pub(crate) priority: Option<u32>,
    /// Value and mask of the mark; bits outside the mask stay unchanged.
    pub(crate) mark: Option<(u32, u32)>,
}

impl Skbedit {
    pub(crate) fn apply(&self, meta: &mut Meta) {
        if let Some(channel) = self.queue_mapping {
            meta.channel = channel;
        }
        if let Some(priority) = self.priority {
            meta.priority = priority;
        }
        if let Some((mark, mask)) = self.mark {
            meta.mark = meta.mark & !mask | mark & mask;
        }
    }
}

/// Operation of an action.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Gact,
    Skbedit(Skbedit),
    /// Rate limit. All schedulers of a netdev share the bucket, so the rate applies to the netdev.
    Police(Police, Arc<Bucket>),
}

/// One action of a filter.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) act: Act,
    /// Control result. In a police action, the result applies to packets within the rate.
    pub(crate) control: Control,
    /// Number of the action within the netdev.
    pub(crate) index: u32,
}

impl Action {
    pub(crate) const fn kind(&self) -> &'static str {
        match self.act {
            Act::Gact => "gact",
            Act::Skbedit(_) => "skbedit",
            Act::Police(..) => "police",
        }
    }

    /// True if the action selects a channel.
    pub(crate) const fn moves(&self) -> bool {
        matches!(self.act, Act::Skbedit(Skbedit { queue_mapping: Some(_), .. }))
    }

    /// True if both actions have the same kind, parameters and control result. The action numbers
    /// and the levels of police buckets are not compared.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let acts = match (&self.act, &other.act) {
            (Act::Gact, Act::Gact) => true,
            (Act::Skbedit(a), Act::Skbedit(b)) => a == b,
            (Act::Police(a, _), Act::Police(b, _)) => a == b,
            _ => false,
        };
        acts && self.control == other.control
    }

    /// Options in force, with the names of `tc -j`: `priority` as a class id, police rates in bytes
    /// per second, sizes in bytes.
    pub(crate) fn options(&self) -> Vec<(&'static str, String)> {
        let control = self.control.name().to_owned();
        match &self.act {
            Act::Gact => vec![("control_action", control)],
            Act::Skbedit(edit) => {
                let mark = |(mark, mask)| match mask {
                    u32::MAX => format!("{mark}"),
                    mask => format!("{mark}/{mask:#x}"),
                };
                let fields = [
                    ("queue_mapping", edit.queue_mapping.map(|channel| channel.to_string())),
                    ("priority", edit.priority.map(|priority| Handle(priority).to_string())),
                    ("mark", edit.mark.map(mark)),
                    ("control_action", Some(control)),
                ];
                fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
            }
            Act::Police(police, _) => {
                let mut fields =
                    vec![("rate", police.rate.to_string()), ("burst", police.burst.to_string())];
                if let Some(mtu) = police.mtu {
                    fields.push(("mtu", mtu.to_string()));
                }
                fields.push(("control_action", police.exceed.name().to_owned()));
                fields.push(("conform", control));
                fields
            }
        }
    }
}
