//! What a scheduler is built from: made by the control thread, handed to a worker.

use std::sync::Arc;

use crate::kind::Classes;
use crate::{DrrClass, Filters, Handle, NodeStats, Params};

/// One discipline and what is below it.
#[derive(Debug)]
pub struct Blueprint {
    /// Its handle; [`Handle::default`] for one that the user did not attach (a default child).
    pub handle: Handle,
    /// What it is; never mq, mqprio or clsact.
    pub params: Params,
    /// Where it counts.
    pub stats: Arc<NodeStats>,
    /// Its classes, in order: prio's bands, tbf's one class, drr's classes.
    pub classes: Vec<ClassPlan>,
    /// Filters that choose among its classes.
    pub filters: Filters,
}

/// One class.
#[derive(Debug)]
pub struct ClassPlan {
    /// Its id.
    pub id: Handle,
    /// drr's quantum.
    pub drr: Option<DrrClass>,
    /// Where it counts.
    pub stats: Arc<NodeStats>,
    /// The discipline in it.
    pub child: Blueprint,
}

impl Blueprint {
    /// A discipline without classes and filters that starts counting at 0.
    pub fn plain(handle: Handle, params: Params) -> Self {
        let stats = Arc::default();
        Self { handle, params, stats, classes: Vec::new(), filters: Filters::default() }
    }
}

impl ClassPlan {
    /// A class with the discipline that a class has when nobody attached one.
    pub fn plain(id: Handle) -> Self {
        let child = Classes::User.default_child();
        let child = Blueprint::plain(Handle::default(), child);
        Self { id, drr: None, stats: Arc::default(), child }
    }
}
