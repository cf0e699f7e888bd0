//! Construction plan of a scheduler: built by the control thread, passed to a worker.

use std::sync::Arc;

use crate::kind::Classes;
use crate::{DrrClass, Filters, Handle, NodeStats, Params};

/// A qdisc and its descendants.
#[derive(Debug)]
pub struct Blueprint {
    /// Handle of the qdisc; [`Handle::default`] for a default child that the user did not attach.
    pub handle: Handle,
    /// Kind and parameters; never mq, mqprio or clsact.
    pub params: Params,
    /// Statistics of the qdisc.
    pub stats: Arc<NodeStats>,
    /// Classes in order: the bands of prio, the one class of tbf, or the classes of drr.
    pub classes: Vec<ClassPlan>,
    /// Filters that select a class.
    pub filters: Filters,
}

/// One class.
#[derive(Debug)]
pub struct ClassPlan {
    /// Id of the class.
    pub id: Handle,
    /// Quantum of a drr class; `None` for classes of other kinds.
    pub drr: Option<DrrClass>,
    /// Statistics of the class.
    pub stats: Arc<NodeStats>,
    /// Qdisc of the class.
    pub child: Blueprint,
}

impl Blueprint {
    /// Creates a qdisc without classes and filters, with counters at 0.
    pub fn plain(handle: Handle, params: Params) -> Self {
        let stats = Arc::default();
        Self { handle, params, stats, classes: Vec::new(), filters: Filters::default() }
    }
}

impl ClassPlan {
    /// Creates a class with the default qdisc of user-created classes, a pfifo.
    pub fn plain(id: Handle) -> Self {
        let child = Classes::User.default_child();
        let child = Blueprint::plain(Handle::default(), child);
        Self { id, drr: None, stats: Arc::default(), child }
    }
}
