//! `tc qdisc add|change|replace|del`.

use super::node::{Class, Node};
use super::{CLSACT, Room, State, not_supported, refused};
use crate::command::Errno;
use crate::kind::Classes;
use crate::{Attach, Handle, Params, TcCommand, TcError, Verb};

/// Largest nesting depth of qdiscs, including the root.
const NESTED_MAX: usize = 8;

/// Attachment point of a qdisc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Root,
    Class { major: u16, minor: u16 },
}

fn no_class() -> TcError {
    refused(Errno::NotFound, "Specified class not found")
}

fn unknown_kind() -> TcError {
    refused(Errno::NotFound, "Specified qdisc kind is unknown")
}

fn other_kind() -> TcError {
    refused(Errno::Invalid, "Invalid qdisc name: must match existing qdisc")
}

fn not_there() -> TcError {
    refused(Errno::NotFound, "Qdisc not found. To create specify NLM_F_CREATE flag")
}

fn exists() -> TcError {
    refused(Errno::Exists, "Exclusivity flag on, cannot modify")
}

impl State {
    pub(super) fn qdisc(&mut self, c: &TcCommand, room: Room) -> Result<bool, TcError> {
        if c.attach == Attach::Egress {
            return self.clsact(c);
        }
        let slot = self.slot(c, room)?;
        let changed =
            if c.verb == Verb::Delete { self.delete(c, slot) } else { self.modify(c, slot, room) };
        let changed = changed?;
        if changed && self.root.is_multi_queue() {
            self.settle_leaves(room.used);
        }
        Ok(changed)
    }

    /// Finds the attachment point of a command; creates the leaf of a channel if absent.
    fn slot(&mut self, c: &TcCommand, room: Room) -> Result<Slot, TcError> {
        let Attach::Parent(parent) = c.attach else { return Ok(Slot::Root) };
        let leaf = self.later_leaf.clone();
        let missing = match c.verb {
            Verb::Delete => "Failed to find qdisc with specified classid",
            _ => "Failed to find specified qdisc",
        };
        let found = self.root.find_mut(parent.major());
        let node = found.ok_or_else(|| refused(Errno::NotFound, missing))?;
        let minor = match node.params.classes() {
            Classes::One(_) => 1,
            Classes::Channels => {
                if !(1..=room.most).contains(&parent.minor()) {
                    return Err(no_class());
                }
                let leaf = || Class::of(Node::of(leaf));
                node.classes.entry(parent.minor()).or_insert_with(leaf);
                parent.minor()
            }
            Classes::Bands(_) | Classes::User => parent.minor(),
            Classes::Flows => return Err(no_class()),
            Classes::None => {
                return Err(refused(Errno::NotSupported, "Parent qdisc is not classful"));
            }
        };
        let class = Slot::Class { major: node.handle.major(), minor };
        node.classes.contains_key(&minor).then_some(class).ok_or_else(no_class)
    }

    /// Returns the qdisc at an attachment point; `None` if the point does not exist.
    /// [`slot`](Self::slot) returns only existing points.
    fn at(&mut self, slot: Slot) -> Option<&mut Node> {
        match slot {
            Slot::Root => Some(&mut self.root),
            Slot::Class { major, minor } => {
                let class = self.root.find_mut(major)?.classes.get_mut(&minor)?;
                Some(&mut class.child)
            }
        }
    }

    fn put(&mut self, slot: Slot, node: Node) {
        if slot == Slot::Root {
            self.later_leaf = self.default_leaf.clone();
        }
        if let Some(place) = self.at(slot) {
            *place = node;
        }
    }

    /// Creates the default qdisc of an attachment point.
    fn default_of(&self, slot: Slot) -> Node {
        match slot {
            Slot::Root => Node::of(self.default_root.clone()),
            Slot::Class { major, .. } => match self.root.find(major) {
                Some(parent) if !parent.is_multi_queue() => parent.default_child(),
                _ => Node::of(self.default_leaf.clone()),
            },
        }
    }

    fn delete(&mut self, c: &TcCommand, slot: Slot) -> Result<bool, TcError> {
        let node = self.at(slot).ok_or_else(no_class)?;
        if c.handle.is_some_and(|handle| handle.0 != 0 && handle != node.handle) {
            return Err(refused(Errno::Invalid, "Invalid handle"));
        }
        if c.kind.as_deref().is_some_and(|kind| kind != node.params.kind()) {
            return Err(refused(Errno::Invalid, "Invalid qdisc name"));
        }
        if node.handle.0 == 0 {
            let text = "Cannot delete qdisc with handle of zero";
            return Err(refused(Errno::NotFound, text));
        }
        let default = self.default_of(slot);
        self.put(slot, default);
        Ok(true)
    }

    fn modify(&mut self, c: &TcCommand, slot: Slot, room: Room) -> Result<bool, TcError> {
        let kind = c.kind.as_deref();
        let node = self.at(slot).ok_or_else(no_class)?;
        let old = (node.handle.0 != 0).then(|| (node.handle, node.params.kind()));
        let wanted = c.handle.filter(|handle| handle.0 != 0);
        let create = match (old, wanted) {
            (Some((handle, _)), Some(wanted)) if handle == wanted => false,
            (Some(_), Some(_)) if c.verb != Verb::Replace => {
                return Err(refused(Errno::Exists, "NLM_F_REPLACE needed to override"));
            }
            (_, Some(wanted)) => {
                self.check_handle(wanted)?;
                true
            }
            (None, None) => true,
            // Linux treats a different kind as a replacement, for any verb.
            (Some((_, old)), None) => kind.is_some_and(|kind| kind != old),
        };
        if create {
            if c.verb == Verb::Change && (old.is_none() || wanted.is_some()) {
                return Err(not_there());
            }
            let handle = wanted.unwrap_or_else(|| self.next_handle());
            let node = self.create(c, slot, handle, room)?;
            self.put(slot, node);
            return Ok(true);
        }
        if c.verb == Verb::Add {
            return Err(exists());
        }
        if kind.is_some_and(|kind| old.is_some_and(|(_, old)| kind != old)) {
            return Err(other_kind());
        }
        self.change(c, slot)
    }

    /// Rejects a handle with a minor number, the handle of clsact, and a handle that is in use.
    fn check_handle(&self, wanted: Handle) -> Result<(), TcError> {
        if wanted.minor() != 0 {
            return Err(refused(Errno::Invalid, "Invalid minor handle"));
        }
        if wanted.major() == CLSACT {
            return Err(refused(Errno::Invalid, "Handle ffff: is clsact's"));
        }
        match self.root.find(wanted.major()) {
            Some(_) => {
                let text = "Cannot move an existing qdisc to a different parent";
                Err(refused(Errno::Invalid, text))
            }
            None => Ok(()),
        }
    }

    /// Returns the next free automatic handle, counting from 8001: and wrapping after fffe:.
    fn next_handle(&mut self) -> Handle {
        loop {
            self.auto_handle = match self.auto_handle {
                0xfffe.. => 0x8001,
                last => last + 1,
            };
            if self.root.find(self.auto_handle).is_none() {
                return Handle::new(self.auto_handle, 0);
            }
        }
    }

    fn create(
        &mut self,
        c: &TcCommand,
        slot: Slot,
        handle: Handle,
        r: Room,
    ) -> Result<Node, TcError> {
        let kind = c.kind.as_deref().ok_or_else(unknown_kind)?;
        match (kind, slot) {
            ("clsact", _) | ("mq" | "mqprio", Slot::Class { .. }) => return Err(not_supported()),
            ("mq" | "mqprio", Slot::Root) if r.most == 1 => return Err(not_supported()),
            ("noqueue", Slot::Class { .. }) => {
                return Err(refused(Errno::Invalid, "Cannot assign noqueue to a class"));
            }
            _ => {}
        }
        let depth = match slot {
            Slot::Root => 0,
            Slot::Class { major, .. } => self.root.depth_of(major).map_or(0, |depth| depth + 1),
        };
        if depth >= NESTED_MAX {
            let text = format!("Disciplines can be nested {NESTED_MAX} deep");
            return Err(refused(Errno::Invalid, text));
        }
        let params = Params::parse(kind, &c.options, None, self.env())?;
        self.born += 1;
        let mut node = Node { handle, born: self.born, ..Node::of(params) };
        if node.is_multi_queue() {
            let leaf = || Class::of(Node::of(self.default_leaf.clone()));
            node.classes = (1..=r.used).map(|minor| (minor, leaf())).collect();
        }
        Ok(node)
    }

    fn change(&mut self, c: &TcCommand, slot: Slot) -> Result<bool, TcError> {
        let env = self.env();
        let node = self.at(slot).ok_or_else(no_class)?;
        let kind = node.params.kind();
        // Accept unchanged parameters of mqprio, although mqprio cannot be changed.
        let again = matches!(node.params, Params::Mqprio(_))
            && Params::parse(kind, &c.options, None, env)? == node.params;
        if again {
            return Ok(false);
        }
        let params = Params::parse(kind, &c.options, Some(&node.params), env)?;
        if params == node.params {
            return Ok(false);
        }
        node.set(params);
        Ok(true)
    }

    /// Sets the qdisc of channels that are added later, and of default leaves above `used`. If the
    /// user gave all leaves in use the same qdisc, that qdisc applies, otherwise the default.
    fn settle_leaves(&mut self, used: u16) {
        let leaves: Vec<_> = (1..=used).map(|minor| self.root.classes.get(&minor)).collect();
        let first = leaves.first().copied().flatten().map(|class| &class.child.params);
        let alike = leaves.iter().all(|leaf| {
            leaf.is_some_and(|leaf| leaf.child.handle.0 != 0 && Some(&leaf.child.params) == first)
        });
        let later = first.filter(|_| alike).unwrap_or(&self.default_leaf).clone();
        for (_, class) in self.root.classes.range_mut(used.saturating_add(1)..) {
            if class.child.handle.0 == 0 && class.child.params != later {
                class.child = Node::of(later.clone());
            }
        }
        self.later_leaf = later;
    }

    fn clsact(&mut self, c: &TcCommand) -> Result<bool, TcError> {
        if c.kind.as_deref().is_some_and(|kind| kind != "clsact") {
            return Err(not_supported());
        }
        let ours = c.handle.is_none_or(|handle| [0, CLSACT].contains(&handle.major()));
        match (c.verb, &self.egress) {
            (Verb::Delete, None) => {
                let text = "Cannot find specified qdisc on specified device";
                Err(refused(Errno::NotFound, text))
            }
            (Verb::Delete, Some(_)) if !ours => Err(refused(Errno::Invalid, "Invalid handle")),
            (Verb::Delete, Some(_)) => {
                self.egress = None;
                Ok(true)
            }
            (Verb::Add, Some(_)) => Err(exists()),
            (_, Some(_)) => Ok(false),
            (Verb::Change, None) => Err(not_there()),
            (_, None) => {
                Params::parse("clsact", &c.options, None, self.env())?;
                self.egress = Some(super::Chain::default());
                Ok(true)
            }
        }
    }
}
