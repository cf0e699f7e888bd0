//! Classifiers: match conditions of filters.

mod flower;

use mqnet_wire::FlowKeys;

use crate::Meta;

pub(crate) use flower::{Address, Flower, Ports};

/// Match condition of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Matcher {
    /// Header fields.
    Flower(Box<Flower>),
    /// Every packet.
    Matchall,
    /// Mark of the packet, compared in the bits of `mask`.
    Fw { mark: u32, mask: u32 },
}

impl Matcher {
    pub(crate) fn matches(&self, keys: &FlowKeys, meta: &Meta) -> bool {
        match self {
            Self::Flower(flower) => flower.matches(keys),
            Self::Matchall => true,
            Self::Fw { mark, mask } => meta.mark & mask == *mark,
        }
    }

    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Flower(_) => "flower",
            Self::Matchall => "matchall",
            Self::Fw { .. } => "fw",
        }
    }

    /// Match conditions with the names of `tc -j`. The mark of fw is the filter's handle and is not
    /// listed.
    pub(crate) fn keys(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Flower(flower) => flower.keys(),
            Self::Matchall => Vec::new(),
            Self::Fw { mask: u32::MAX, .. } => Vec::new(),
            Self::Fw { mask, .. } => vec![("mask", format!("{mask:#x}"))],
        }
    }
}
