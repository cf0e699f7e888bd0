//! What tc asks for, as data.

use crate::Handle;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Make it; an error if it is there. A discipline that is a default, or of another kind without
    /// a handle being named, is replaced, as in Linux.
    Add,
    /// Change it in place; an error if it is not there. A discipline of another kind is replaced if
    /// no handle is named, as in Linux.
    Change,
    /// Change it, or make it in the place of what is there.
    Replace,
    /// Take it off: the default comes back.
    Delete,
}

/// To what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// A discipline.
    Qdisc,
    /// A class.
    Class,
    /// A filter.
    Filter,
}

/// Where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// `root`, or nothing said: the root discipline, also of classes and filters.
    Root,
    /// `parent 1:2`
    Parent(Handle),
    /// `egress` (filters), `clsact` (qdisc)
    Egress,
}

/// One order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What is to be done.
    pub verb: Verb,
    /// To what.
    pub object: Object,
    /// Where.
    pub attach: Attach,
    /// `handle 1:` of a discipline, `classid 1:2` of a class, `handle 0x1` of a filter.
    pub handle: Option<Handle>,
    /// Filters: `prio`/`pref`; `None`: the next free one.
    pub prio: Option<u16>,
    /// Filters: `protocol` as an EtherType, 3 (`ETH_P_ALL`) for all; `None`: not said.
    pub protocol: Option<u16>,
    /// Such as `fq_codel`, `flower`.
    pub kind: Option<String>,
    /// The words after the kind, as tc takes them: `limit 1000 target 5ms`. Of fw's
    /// `handle 0x1/0xff` the mask is a word here: `mask 0xff`.
    pub options: Vec<String>,
}

/// Which error tc reports.
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

/// A command was refused; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TcError {
    /// Kind of error.
    pub errno: Errno,
    /// One line, in the kernel's words where it has some (`Error: ...` in tc), without a full stop.
    /// Where it has none but the text of the errno (`RTNETLINK answers: ...` in tc), that text.
    pub message: String,
    /// True when `message` is about the words of the command (tc itself complains, exit code 1 or
    /// 255, and prints no `Error:`), not what the kernel would say (exit code 2).
    pub usage: bool,
}
