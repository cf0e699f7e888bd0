//! Construction plan of a scheduler: built by the control thread, passed to a worker.

use std::sync::Arc;

use crate::kind::Classes;
use crate::{DrrClass, Filters, Handle, NodeStats, Params};

/// A qdisc and its descendants.
#[derive(Debug)]
pub struct Blueprint {
    /// Handle; [`Handle::default`] for a default child, which the user did not attach.
    pub handle: Handle,
    /// Kind and parameters; never mq, mqprio or clsact.
    pub params: Params,
    /// Statistics of the qdisc.
    pub stats: Arc<NodeStats>,
    /// Classes, in order: prio's bands, tbf's one class, drr's classes.
    pub classes: Vec<ClassPlan>,
    /// Filters that select a class.
    pub filters: Filters,
}

/// One class.
#[derive(Debug)]
pub struct ClassPlan {
    /// Its id.
    pub id: Handle,
    /// drr's quantum.
    pub drr: Option<DrrClass>,
    /// Statistics of the class.
    pub stats: Arc<NodeStats>,
    /// Qdisc of the class.
    pub child: Blueprint,
}

impl Blueprint {
    /// A qdisc without classes and filters, with counters at 0.
    pub fn plain(handle: Handle, params: Params) -> Self {
        let stats = Arc::default();
        Self { handle, params, stats, classes: Vec::new(), filters: Filters::default() }
    }
}

impl ClassPlan {
    /// A class with its default qdisc.
    pub fn plain(id: Handle) -> Self {
        let child = Classes::User.default_child();
        let child = Blueprint::plain(Handle::default(), child);
        Self { id, drr: None, stats: Arc::default(), child }
    }
}
