//! Data of `tc show`.

use super::filter::{Chain, Entry};
use super::node::Node;
use super::{State, Tree, ledger};
use crate::kind::Classes;
use crate::{ActionInfo, Attach, ClassInfo, FilterInfo, Handle, Params, QdiscInfo, Totals};

/// Minor number of mqprio's first traffic class.
const MQPRIO_FIRST: u16 = 0xffe0;

/// A qdisc and its parent class.
type Placed<'a> = (Option<Handle>, &'a Node);

impl Tree {
    /// `tc qdisc show`, in tc's order: the root, the other qdiscs in the order of the kernel's
    /// table, then clsact. Default children are omitted, except the leaves of channels.
    pub fn qdiscs(&self, channels: u16) -> Vec<QdiscInfo> {
        let state = &self.state;
        let root = &state.root;
        let default_leaf = Node::of(state.later_leaf.clone());
        let leaf = |channel: u16| {
            let class = root.classes.get(&(channel + 1));
            class.map_or(&default_leaf, |class| &class.child)
        };
        let mut shown = Vec::new();
        if root.handle.0 == 0 && root.is_multi_queue() && channels.max(state.most) == 1 {
            // Show the leaf: a default mq is used only with more than one channel.
            shown.push(state.qdisc_info(None, leaf(0), channels));
        } else {
            shown.push(state.qdisc_info(None, root, channels));
            let mut others: Vec<Placed<'_>> = Vec::new();
            if root.is_multi_queue() {
                let class = |channel| Handle::new(root.handle.major(), channel + 1);
                // Reverse the default leaves: they have the same age, and the kernel lists the last
                // one first.
                let all = (0..channels).rev().map(|channel| (Some(class(channel)), leaf(channel)));
                others.extend(all.filter(|(_, leaf)| leaf.handle.0 == 0));
            }
            others.extend(state.attached(channels).into_iter().skip(1));
            others.sort_by_key(|(_, node)| node.order());
            let info = |(parent, node)| state.qdisc_info(parent, node, channels);
            shown.extend(others.into_iter().map(info));
        }
        if state.egress.is_some() {
            shown.push(QdiscInfo {
                handle: Handle::new(super::CLSACT, 0),
                attach: Attach::Egress,
                params: Params::Clsact,
                refcnt: 1,
                totals: Totals::default(),
            });
        }
        shown
    }

    /// `tc class show`.
    pub fn classes(&self, channels: u16) -> Vec<ClassInfo> {
        let state = &self.state;
        let mut nodes = state.attached(channels);
        if let Some((_, below)) = nodes.split_first_mut() {
            below.sort_by_key(|(_, node)| node.order());
        }
        nodes.iter().flat_map(|(_, node)| state.class_infos(node, channels)).collect()
    }

    /// `tc filter show`: the filters of the qdiscs, then those of the egress hook.
    pub fn filters(&self) -> Vec<FilterInfo> {
        let state = &self.state;
        let of = |chain: &Chain, attach| {
            let info = move |entry: &Entry| entry.info(attach);
            chain.list.iter().map(info).collect::<Vec<_>>()
        };
        let mut shown = Vec::new();
        state.root.walk(None, &mut |_, node| {
            shown.extend(of(&node.chain, Attach::Parent(node.handle)));
        });
        shown.extend(state.egress.iter().flat_map(|chain| of(chain, Attach::Egress)));
        shown
    }
}

impl State {
    /// The root and the qdiscs that the user attached below it, without those of unused channels.
    fn attached(&self, channels: u16) -> Vec<Placed<'_>> {
        let mut nodes: Vec<Placed<'_>> = vec![(None, &self.root)];
        for (minor, class) in &self.root.classes {
            if self.root.is_multi_queue() && *minor > channels {
                continue;
            }
            let parent = Some(Handle::new(self.root.handle.major(), *minor));
            class.child.walk(parent, &mut |parent, node| {
                if node.handle.0 != 0 {
                    nodes.push((parent, node));
                }
            });
        }
        nodes
    }

    fn qdisc_info(&self, parent: Option<Handle>, node: &Node, channels: u16) -> QdiscInfo {
        let params = node.params.clone().resolved(self.frame);
        let refcnt = match (parent, &params) {
            (Some(_), _) | (None, Params::Mq | Params::Mqprio(_)) => 1,
            // Count the reference of the device and that of the one queue that every kernel device
            // has.
            (None, Params::Noqueue) if node.handle.0 == 0 => 2,
            (None, _) => 1 + u32::from(channels.max(1)),
        };
        QdiscInfo {
            handle: node.handle,
            attach: parent.map_or(Attach::Root, Attach::Parent),
            params,
            refcnt,
            totals: node.totals(),
        }
    }

    fn class_infos(&self, node: &Node, channels: u16) -> Vec<ClassInfo> {
        let major = node.handle.major();
        let kind = node.params.kind();
        let counters = node.params.class_counters();
        let shown = |minor: &u16| !node.is_multi_queue() || *minor <= channels;
        let mut infos: Vec<ClassInfo> = Vec::new();
        if let Params::Mqprio(mqprio) = &node.params {
            infos.extend((0..u16::from(mqprio.num_tc)).map(|class| {
                let (id, totals) = (Handle::new(major, MQPRIO_FIRST + class), Totals::default());
                ClassInfo { kind, counters, id, parent: None, leaf: None, drr: None, totals }
            }));
        }
        for (minor, class) in node.classes.iter().filter(|(minor, _)| shown(minor)) {
            let parent = match &node.params {
                Params::Mq | Params::Drr => None,
                Params::Mqprio(mqprio) => {
                    let channel = minor - 1;
                    let has = |(count, first): &(u16, u16)| {
                        (*first..first.saturating_add(*count)).contains(&channel)
                    };
                    let class = (MQPRIO_FIRST..).zip(&mqprio.queues).find(|(_, range)| has(range));
                    class.map(|(minor, _)| Handle::new(major, minor))
                }
                _ => Some(node.handle),
            };
            let leaf = class.child.handle;
            infos.push(ClassInfo {
                kind,
                counters,
                id: Handle::new(major, *minor),
                parent,
                leaf: (leaf.0 != 0).then_some(leaf),
                drr: class.drr.map(|drr| drr.resolved(self.frame)),
                totals: class.totals(&node.params),
            });
        }
        infos
    }
}

impl Node {
    fn totals(&self) -> Totals {
        if !self.is_multi_queue() {
            return self.ledger.totals(self.params.counters());
        }
        let mut sum = Totals::default();
        self.classes.values().for_each(|class| ledger::add(&mut sum, class.child.totals(), &[]));
        sum
    }
}

impl super::node::Class {
    /// Counters of the class. A class of the user has separate counters; other classes have those
    /// of their qdisc.
    fn totals(&self, parent: &Params) -> Totals {
        match parent.classes() {
            Classes::User => self.ledger.totals(parent.class_counters()),
            _ => self.child.totals(),
        }
    }
}

impl Entry {
    fn info(&self, attach: Attach) -> FilterInfo {
        let totals = self.ledger.totals(&self.plan);
        let actions = self.plan.actions.iter().zip(&totals.actions);
        FilterInfo {
            attach,
            protocol: self.plan.protocol,
            pref: self.prio,
            kind: self.plan.matcher.kind(),
            handle: self.handle,
            class: self.plan.class,
            keys: self.plan.matcher.keys(),
            actions: actions
                .map(|(action, &[packets, bytes, drops, overlimits])| ActionInfo {
                    kind: action.kind(),
                    index: action.index,
                    options: action.options(),
                    packets,
                    bytes,
                    drops,
                    overlimits,
                })
                .collect(),
            hits: totals.hits,
        }
    }
}
