//! `tc` commands as data.

use crate::Handle;

/// Verb of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Creates the object; an error if it exists. A default qdisc is replaced, as in Linux. A qdisc
    /// of another kind is replaced if no handle is given.
    Add,
    /// Changes the object in place; an error if it does not exist. A qdisc of another kind is
    /// replaced if no handle is given, as in Linux.
    Change,
    /// Changes the object, replaces it, or creates it if it does not exist.
    Replace,
    /// Deletes the object. A deleted qdisc is replaced by the default qdisc.
    Delete,
}

/// Type of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectType {
    /// A qdisc.
    Qdisc,
    /// A class.
    Class,
    /// A filter.
    Filter,
}

/// Parent of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// `root`, or no parent given; for classes and filters, the root qdisc.
    Root,
    /// `parent 1:2`: a qdisc or a class.
    Parent(Handle),
    /// `egress` for filters, `clsact` for a qdisc.
    Egress,
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcCommand {
    /// Verb of the command.
    pub verb: Verb,
    /// Type of the object.
    pub object: ObjectType,
    /// Parent of the object.
    pub attach: Attach,
    /// `handle 1:` of a qdisc, `classid 1:2` of a class, `handle 0x1` of a filter.
    pub handle: Option<Handle>,
    /// Priority of a filter (`prio`, `pref`); `None`: not given.
    pub prio: Option<u16>,
    /// Protocol of a filter as an EtherType, 3 (`ETH_P_ALL`) for all; `None`: not given.
    pub protocol: Option<u16>,
    /// Kind, such as `fq_codel` or `flower`.
    pub kind: Option<String>,
    /// Words after the kind, in tc's syntax: `limit 1000 target 5ms`. The mask of an fw filter
    /// (`handle 0x1/0xff`) is passed here as `mask 0xff`.
    pub options: Vec<String>,
}

/// Error number in tc's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// `EEXIST`
    Exists,
    /// `ENOENT`
    NotFound,
    /// `EINVAL`
    Invalid,
    /// `EBUSY`
    Busy,
    /// `EOPNOTSUPP`
    NotSupported,
    /// `ERANGE`
    Range,
}

/// Error of a command; a failed command changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TcError {
    /// Kind of error.
    pub errno: Errno,
    /// One line without a full stop: the kernel's message if there is one (`Error: ...` in tc),
    /// otherwise the text of the errno (`RTNETLINK answers: ...` in tc).
    pub message: String,
    /// True for a syntax error, which tc itself reports (exit code 1 or 255, without `Error:`);
    /// false for an error of the kernel (exit code 2).
    pub usage: bool,
}
