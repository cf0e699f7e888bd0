//! `tc filter add|change|replace|del`.

use super::ledger::FilterLedger;
use super::{CLSACT, State, refused};
use crate::command::Errno;
use crate::filters::{ETH_P_ALL, Plan};
use crate::kind::Classes;
use crate::parse::{self, Keys};
use crate::{Attach, Filters, Handle, TcCommand, TcError, Verb};

/// Smallest automatic priority. Automatic priorities count down from [`AUTO_FIRST`].
const AUTO_LEAST: u16 = 0x8000;
const AUTO_FIRST: u16 = 0xc000;
/// Minor numbers of `parent ffff:...`, which select a hook of clsact.
const INGRESS: u16 = 0xfff2;
const EGRESS: u16 = 0xfff3;

/// A filter.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) prio: u16,
    pub(super) handle: u32,
    pub(super) plan: Plan,
    pub(super) ledger: FilterLedger,
}

/// Filters of a qdisc, by priority, then in the order of creation.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub(super) list: Vec<Entry>,
}

impl Chain {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// True if a filter may select a channel.
    pub(super) fn moves(&self) -> bool {
        self.list.iter().any(|entry| entry.plan.moves())
    }

    /// True if a filter selects `class`.
    pub(super) fn names(&self, class: Handle) -> bool {
        self.list.iter().any(|entry| entry.plan.class == Some(class))
    }

    /// Appends the filters to `filters`, the list of a new scheduler, and creates their counters.
    pub(super) fn build(&mut self, mut filters: Filters) -> Filters {
        for entry in &mut self.list {
            let stats = entry.ledger.open(&entry.plan);
            filters.push(entry.plan.clone(), stats);
        }
        filters
    }

    /// Next automatic priority, one less than the smallest automatic priority in use.
    fn auto_prio(&self) -> u16 {
        let first = self.list.iter().map(|entry| entry.prio).find(|prio| *prio >= AUTO_LEAST);
        first.map_or(AUTO_FIRST, |prio| prio - 1)
    }

    /// Lowest unused handle of the priority `prio`.
    fn free_handle(&self, prio: u16) -> u32 {
        let taken = |handle| self.list.iter().any(|e| e.prio == prio && e.handle == handle);
        (1..=u32::MAX).find(|handle| !taken(*handle)).unwrap_or(u32::MAX)
    }

    fn delete(&mut self, c: &TcCommand) -> Result<bool, TcError> {
        let Some(prio) = c.prio.filter(|prio| *prio != 0) else {
            if c.protocol.is_some() || c.kind.is_some() || c.handle.is_some() {
                let text = "Cannot flush filters with protocol, handle or kind set";
                return Err(refused(Errno::NotFound, text));
            }
            let any = !self.is_empty();
            self.list.clear();
            return Ok(any);
        };
        self.check_prio(prio, c)?.ok_or_else(|| {
            refused(Errno::NotFound, "Filter with specified priority/protocol not found")
        })?;
        match c.handle {
            Some(_) if c.kind.is_none() => {
                Err(parse::usage("Must specify filter type when using \"handle\""))
            }
            Some(Handle(handle)) => {
                let at = self.list.iter().position(|e| e.prio == prio && e.handle == handle);
                let missing = || refused(Errno::NotFound, "Specified filter handle not found");
                self.list.remove(at.ok_or_else(missing)?);
                Ok(true)
            }
            None => {
                self.list.retain(|entry| entry.prio != prio);
                Ok(true)
            }
        }
    }

    /// Returns the protocol of the filters with priority `prio`; `None` if there is no such filter.
    /// Fails if the kind or protocol of the command, if given, differs from that of the filters.
    fn check_prio(&self, prio: u16, c: &TcCommand) -> Result<Option<u16>, TcError> {
        let Some(entry) = self.list.iter().find(|entry| entry.prio == prio) else {
            return Ok(None);
        };
        if c.protocol.is_some_and(|protocol| protocol != entry.plan.protocol) {
            let text = "Protocol mismatch for filter with specified priority";
            return Err(refused(Errno::Invalid, text));
        }
        if c.kind.as_deref().is_some_and(|kind| kind != entry.plan.matcher.kind()) {
            let text = "Specified filter kind does not match existing one";
            return Err(refused(Errno::Invalid, text));
        }
        Ok(Some(entry.plan.protocol))
    }

    fn modify(&mut self, c: &TcCommand, last_action: &mut u32) -> Result<bool, TcError> {
        let creates = c.verb != Verb::Change;
        // Match all protocols by default if the command may create a filter.
        let protocol = c.protocol.or(creates.then_some(ETH_P_ALL));
        let prio = match c.prio.filter(|prio| *prio != 0) {
            Some(prio) => prio,
            None if creates => self.auto_prio(),
            None => {
                let text = "Invalid filter command with priority of zero";
                return Err(refused(Errno::NotFound, text));
            }
        };
        let c = &TcCommand { protocol, ..c.clone() };
        let known = self.check_prio(prio, c)?;
        let (Some(kind), Some(protocol)) = (c.kind.as_deref(), known.or(protocol)) else {
            let text = "Filter kind and protocol must be specified";
            return Err(refused(Errno::Invalid, text));
        };
        if kind == "fw" && c.handle == Some(Handle(0)) {
            return Err(refused(Errno::Invalid, "fw: its handle is the mark to match, not 0"));
        }
        let mut plan = parse::filter(kind, &c.options, Keys { protocol, handle: c.handle })?;
        plan.class = plan.class.filter(|class| class.0 != 0);
        match self.existing(prio, c, &plan) {
            Some(_) if c.verb == Verb::Add => {
                let text = if c.handle.is_some() { "Filter already exists" } else { "File exists" };
                Err(refused(Errno::Exists, text))
            }
            Some(entry) if entry.plan.same(&plan) => Ok(false),
            Some(entry) => {
                number(&mut plan, last_action);
                (entry.plan, entry.ledger) = (plan, FilterLedger::default());
                Ok(true)
            }
            None if !creates => {
                let text = "Need both RTM_NEWTFILTER and NLM_F_CREATE to create a new filter";
                Err(refused(Errno::NotFound, text))
            }
            None => {
                let handle = c.handle.filter(|handle| handle.0 != 0);
                let handle = handle.map_or_else(|| self.free_handle(prio), |handle| handle.0);
                number(&mut plan, last_action);
                let entry = Entry { prio, handle, plan, ledger: FilterLedger::default() };
                let at = self.list.partition_point(|other| other.prio <= prio);
                self.list.insert(at, entry);
                Ok(true)
            }
        }
    }

    /// Finds the filter with the command's handle; without a handle, the filter with the same match
    /// conditions. For matchall, the first filter of the priority is found.
    fn existing(&mut self, prio: u16, c: &TcCommand, plan: &Plan) -> Option<&mut Entry> {
        let handle = c.handle.filter(|handle| handle.0 != 0);
        let one = plan.matcher.kind() == "matchall";
        self.list.iter_mut().filter(|entry| entry.prio == prio).find(|entry| match handle {
            // A priority has at most one matchall filter.
            _ if one => true,
            Some(handle) => entry.handle == handle.0,
            None => entry.plan.matcher == plan.matcher,
        })
    }
}

/// Assigns the indexes after `last` to the actions, and updates `last`.
fn number(plan: &mut Plan, last: &mut u32) {
    for action in &mut plan.actions {
        *last = last.wrapping_add(1);
        action.index = *last;
    }
}

impl State {
    pub(super) fn filter(&mut self, c: &TcCommand) -> Result<bool, TcError> {
        let mut last_action = self.last_action;
        let chain = self.chain(c.attach)?;
        let changed = match c.verb {
            Verb::Delete => chain.delete(c)?,
            _ => chain.modify(c, &mut last_action)?,
        };
        self.last_action = last_action;
        Ok(changed)
    }

    /// Filters of the qdisc or hook that `attach` names.
    fn chain(&mut self, attach: Attach) -> Result<&mut Chain, TcError> {
        let no_parent = || refused(Errno::Invalid, "Parent Qdisc doesn't exists");
        let parent = match attach {
            Attach::Egress => return self.egress.as_mut().ok_or_else(no_parent),
            Attach::Root => self.root.handle,
            Attach::Parent(parent) => parent,
        };
        match (parent.major(), parent.minor()) {
            (CLSACT, EGRESS) => return self.egress.as_mut().ok_or_else(no_parent),
            (CLSACT, INGRESS) => {
                let text = "There are no filters at ingress here, only at egress";
                return Err(refused(Errno::NotSupported, text));
            }
            _ => {}
        }
        let node = self.root.find_mut(parent.major()).ok_or_else(no_parent)?;
        match node.params.classes() {
            Classes::Bands(_) | Classes::User | Classes::Flows => {}
            Classes::One(_) | Classes::Channels => {
                return Err(refused(Errno::NotSupported, "Class doesn't support blocks"));
            }
            Classes::None => return Err(refused(Errno::Invalid, "Qdisc not classful")),
        }
        if parent.minor() != 0 {
            return Err(refused(Errno::Invalid, "Specified class doesn't exist"));
        }
        Ok(&mut node.chain)
    }
}
