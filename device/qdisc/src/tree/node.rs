//! Qdiscs and their classes, in a tree.

use std::collections::BTreeMap;

use super::filter::Chain;
use super::ledger::Ledger;
use crate::kind::Classes;
use crate::{DrrClass, Handle, Params};

/// Hash bits of the kernel's qdisc table: tc shows qdiscs in the order of the table's buckets.
const BUCKET_BITS: u32 = 4;

/// A qdisc of the tree.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Handle; 0 for a default qdisc.
    pub(super) handle: Handle,
    pub(super) params: Params,
    /// Classes by minor number. For mq and mqprio, the classes of current and former channels.
    pub(super) classes: BTreeMap<u16, Class>,
    pub(super) chain: Chain,
    pub(super) ledger: Ledger,
    /// Sequence number of the attachment; 0 for a default qdisc.
    pub(super) born: u64,
}

/// A class and its qdisc.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) drr: Option<DrrClass>,
    pub(super) ledger: Ledger,
    pub(super) child: Node,
}

impl Class {
    pub(super) fn of(child: Node) -> Self {
        Self { drr: None, ledger: Ledger::default(), child }
    }
}

impl Node {
    /// Creates a default qdisc, without a handle.
    pub(super) fn of(params: Params) -> Self {
        let mut node = Self {
            handle: Handle::default(),
            params,
            classes: BTreeMap::new(),
            chain: Chain::default(),
            ledger: Ledger::default(),
            born: 0,
        };
        node.fit_classes();
        node
    }

    /// True if each channel has a separate leaf: mq and mqprio.
    pub(super) fn is_multi_queue(&self) -> bool {
        matches!(self.params.classes(), Classes::Channels)
    }

    /// Adapts the classes that the parameters imply: bands of prio, the class of tbf.
    fn fit_classes(&mut self) {
        match self.params.classes() {
            Classes::Bands(bands) => {
                self.classes.retain(|minor, _| *minor <= bands);
                for minor in 1..=bands {
                    let child = || Class::of(Self::of(Classes::Bands(bands).default_child()));
                    self.classes.entry(minor).or_insert_with(child);
                }
            }
            Classes::One(child) => {
                let default = || Class::of(Self::of(child.clone()));
                let class = self.classes.entry(1).or_insert_with(default);
                if class.child.handle == Handle::default() {
                    class.child.params = child;
                }
            }
            _ => {}
        }
    }

    /// Creates the default qdisc of a class. For leaves of channels the tree selects another
    /// default.
    pub(super) fn default_child(&self) -> Self {
        Self::of(self.params.classes().default_child())
    }

    /// Changes the parameters in place.
    pub(super) fn set(&mut self, params: Params) {
        self.params = params;
        self.fit_classes();
    }

    /// Visits the qdisc and its descendants, parents first, as `visit(parent class, qdisc)`.
    pub(super) fn walk<'a>(
        &'a self,
        parent: Option<Handle>,
        visit: &mut impl FnMut(Option<Handle>, &'a Self),
    ) {
        visit(parent, self);
        for (minor, class) in &self.classes {
            class.child.walk(Some(Handle::new(self.handle.major(), *minor)), visit);
        }
    }

    pub(super) fn any(&self, is_so: &impl Fn(&Self) -> bool) -> bool {
        is_so(self) || self.classes.values().any(|class| class.child.any(is_so))
    }

    /// Finds the attached qdisc with the major number `major`, which must not be 0.
    pub(super) fn find(&self, major: u16) -> Option<&Self> {
        if major != 0 && self.handle.major() == major {
            return Some(self);
        }
        self.classes.values().find_map(|class| class.child.find(major))
    }

    pub(super) fn find_mut(&mut self, major: u16) -> Option<&mut Self> {
        if major != 0 && self.handle.major() == major {
            return Some(self);
        }
        self.classes.values_mut().find_map(|class| class.child.find_mut(major))
    }

    /// Number of ancestors of the qdisc with the major number `major`; `None` if there is no such
    /// qdisc.
    pub(super) fn depth_of(&self, major: u16) -> Option<usize> {
        if self.handle.major() == major {
            return Some(0);
        }
        self.classes.values().find_map(|class| class.child.depth_of(major)).map(|depth| depth + 1)
    }

    /// Position in the kernel's table: the bucket, then later attachments first.
    pub(super) fn order(&self) -> (u32, std::cmp::Reverse<u64>) {
        let bucket = self.handle.0.wrapping_mul(0x61c8_8647) >> (32 - BUCKET_BITS);
        (bucket, std::cmp::Reverse(self.born))
    }
}
