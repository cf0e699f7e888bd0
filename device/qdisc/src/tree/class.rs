//! `tc class add|change|replace|del`, for the user's classes of drr.

use super::node::Class;
use super::{State, not_supported, refused};
use crate::command::Errno;
use crate::kind::Classes;
use crate::{Attach, DrrClass, Handle, TcCommand, TcError, Verb};

fn not_there() -> TcError {
    refused(Errno::NotFound, "No such file or directory")
}

fn wrong() -> TcError {
    refused(Errno::Invalid, "Invalid argument")
}

impl State {
    pub(super) fn class(&mut self, c: &TcCommand) -> Result<bool, TcError> {
        let id = c.handle.unwrap_or_default();
        let parent = match c.attach {
            Attach::Root => None,
            Attach::Parent(parent) => Some(parent),
            Attach::Egress => return Err(not_supported()),
        };
        let major = match (id.major(), parent.map(Handle::major)) {
            (0, None) => self.root.handle.major(),
            (0, Some(major)) | (major, None) => major,
            (major, Some(above)) if major == above => major,
            _ => return Err(wrong()),
        };
        let node = self.root.find_mut(major).ok_or_else(not_there)?;
        match node.params.classes() {
            Classes::User => {}
            Classes::None => return Err(wrong()),
            _ => return Err(not_supported()),
        }
        if let Some(kind) = c.kind.as_deref().filter(|kind| *kind != "drr") {
            let text = format!("Class of kind {kind} under discipline {major:x}: of kind drr");
            return Err(refused(Errno::Invalid, text));
        }
        if id.minor() == 0 {
            return Err(wrong());
        }
        let there = node.classes.get_mut(&id.minor());
        match (c.verb, there) {
            (Verb::Add, Some(_)) => Err(refused(Errno::Exists, "File exists")),
            (Verb::Change | Verb::Delete, None) => Err(not_there()),
            (Verb::Delete, Some(_)) => {
                if node.chain.names(Handle::new(major, id.minor())) {
                    return Err(refused(Errno::Busy, "DRR class is in use"));
                }
                node.classes.remove(&id.minor());
                Ok(true)
            }
            (_, Some(class)) => {
                let old = class.drr.unwrap_or_default();
                let new = DrrClass::parse(&c.options, old)?;
                class.drr = Some(new);
                Ok(new != old)
            }
            (_, None) => {
                let drr = DrrClass::parse(&c.options, DrrClass::default())?;
                let mut class = Class::of(node.default_child());
                class.drr = Some(drr);
                node.classes.insert(id.minor(), class);
                Ok(true)
            }
        }
    }
}
