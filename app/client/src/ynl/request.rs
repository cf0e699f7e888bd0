//! Request: an operation and its attributes, checked as by the kernel's policies.

use mqnet_control_api::{Code, QueueType};
use serde_json::{Map, Value};

use super::fault::{Fault, NlError};

/// Number of requested objects: one or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Do,
    Dump,
}

/// Object type of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Queue,
    Napi,
    QStats,
    PagePool,
    PagePoolStats,
}

/// Operation of the family, with its attributes.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) subject: Subject,
    /// Attributes of a `do`, in the order in which the kernel checks for missing attributes. Empty
    /// if the operation supports only `dump`.
    one: &'static [&'static str],
    /// Attributes of a `dump`.
    all: &'static [&'static str],
    /// Attributes in the order of their numbers, which distinguish unknown from unsupported
    /// attributes.
    numbers: &'static [&'static str],
    /// Attributes in the order in which the kernel sends them.
    pub(super) order: &'static [&'static str],
}

static OPERATIONS: [Operation; 5] = [
    Operation {
        name: "queue-get",
        subject: Subject::Queue,
        one: &["id", "type", "ifindex"],
        all: &["ifindex"],
        numbers: &["id", "ifindex", "type", "napi-id", "dmabuf", "io-uring", "xsk", "lease"],
        order: &["id", "type", "ifindex", "napi-id"],
    },
    Operation {
        name: "napi-get",
        subject: Subject::Napi,
        one: &["id"],
        all: &["ifindex"],
        numbers: &[
            "ifindex",
            "id",
            "irq",
            "pid",
            "defer-hard-irqs",
            "gro-flush-timeout",
            "irq-suspend-timeout",
            "threaded",
        ],
        order: &[
            "id",
            "ifindex",
            "irq",
            "threaded",
            "pid",
            "defer-hard-irqs",
            "irq-suspend-timeout",
            "gro-flush-timeout",
        ],
    },
    Operation {
        name: "qstats-get",
        subject: Subject::QStats,
        one: &[],
        all: &["ifindex", "scope"],
        numbers: &[
            "ifindex",
            "queue-type",
            "queue-id",
            "scope",
            "rx-packets",
            "rx-bytes",
            "tx-packets",
            "tx-bytes",
            "rx-hw-drops",
            "tx-hw-drops",
            "tx-stop",
            "tx-wake",
        ],
        order: &[
            "ifindex",
            "queue-type",
            "queue-id",
            "rx-packets",
            "rx-bytes",
            "rx-hw-drops",
            "tx-packets",
            "tx-bytes",
            "tx-hw-drops",
            "tx-stop",
            "tx-wake",
        ],
    },
    Operation {
        name: "page-pool-get",
        subject: Subject::PagePool,
        one: &["id"],
        all: &["id", "ifindex"],
        numbers: &["id", "ifindex", "napi-id", "inflight", "inflight-mem", "detach-time"],
        order: &["id", "ifindex", "napi-id", "inflight", "inflight-mem"],
    },
    Operation {
        name: "page-pool-stats-get",
        subject: Subject::PagePoolStats,
        one: &["info"],
        all: &["info"],
        numbers: &["info", "alloc-fast", "alloc-slow"],
        order: &[
            "info",
            "id",
            "ifindex",
            "alloc-fast",
            "alloc-slow",
            "alloc-slow-high-order",
            "alloc-empty",
            "alloc-refill",
            "alloc-waive",
            "recycle-cached",
            "recycle-cache-full",
            "recycle-ring",
            "recycle-ring-full",
            "recycle-released-refcnt",
        ],
    },
];

/// Request that the kernel's policies accept.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) operation: &'static Operation,
    pub(super) mode: Mode,
    pub(super) ifindex: Option<u32>,
    pub(super) id: Option<u32>,
    pub(super) kind: Option<QueueType>,
    pub(super) per_queue: bool,
}

impl Request {
    /// Parses the operation's name and attributes. An error of the kernel's policies is a
    /// `Fault::Netlink`, any other error a `Fault::Usage`.
    pub(super) fn parse(mode: Mode, name: &str, json: &str) -> Result<Self, Fault> {
        let Some(operation) = OPERATIONS.iter().find(|operation| operation.name == name) else {
            let option = if mode == Mode::Do { "do" } else { "dump" };
            let names: Vec<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
            let line = format!("--{option}: no operation '{name}' (allowed: {})", names.join(", "));
            return Err(Fault::Usage(line));
        };
        let attributes: Map<String, Value> = serde_json::from_str(json)
            .map_err(|e| Fault::Usage(format!("--json: not a JSON object: {e}")))?;
        let mut request =
            Self { operation, mode, ifindex: None, id: None, kind: None, per_queue: false };
        if mode == Mode::Do && operation.one.is_empty() {
            return Err(NlError::bare(Code::NotSupported));
        }
        for (name, value) in &attributes {
            request.allowed(name)?;
            request.take(name, value)?;
        }
        let missing = |name: &&&str| !attributes.contains_key(**name);
        match operation.one.iter().find(missing) {
            Some(name) if mode == Mode::Do => Err(NlError::missing(name)),
            _ => Ok(request),
        }
    }

    /// Attributes that the operation accepts in the mode of the request.
    fn names(&self) -> &'static [&'static str] {
        if self.mode == Mode::Do { self.operation.one } else { self.operation.all }
    }

    /// Checks that the request accepts an attribute. The kernel reports an attribute with a number
    /// above all accepted ones as unknown, any other rejected attribute as unsupported.
    fn allowed(&self, name: &str) -> Result<(), Fault> {
        let names = self.names();
        if names.contains(&name) {
            return Ok(());
        }
        let number = |name: &str| self.operation.numbers.iter().position(|known| *known == name);
        let Some(this) = number(name) else {
            let line = format!(
                "--json: {} has no attribute '{name}' (allowed: {})",
                self.operation.name,
                names.join(", ")
            );
            return Err(Fault::Usage(line));
        };
        let highest = names.iter().filter_map(|name| number(name)).max();
        let why =
            if Some(this) > highest { "Unknown attribute type" } else { "Unsupported attribute" };
        Err(NlError::attribute(Code::Invalid, why, &format!(".{name}")))
    }

    fn take(&mut self, name: &str, value: &Value) -> Result<(), Fault> {
        let pool = matches!(self.operation.subject, Subject::PagePool);
        match name {
            // A dump of pools has no policy: the kernel ignores every attribute.
            _ if pool && self.mode == Mode::Dump => {}
            "ifindex" => self.ifindex = Some(positive(name, value, ".ifindex", "u32")?),
            "id" if pool => self.id = Some(positive(name, value, ".id", "uint")?),
            "id" => self.id = Some(number(name, value)?),
            "type" => self.kind = Some(queue_type(value)?),
            "scope" => self.per_queue = scope(value)?,
            _ => self.info(value)?,
        }
        Ok(())
    }

    /// Parses the nest that selects a pool for its statistics.
    fn info(&mut self, value: &Value) -> Result<(), Fault> {
        let Value::Object(info) = value else {
            let line = format!("--json: info is {value} (allowed: an object, {{\"id\": N}})");
            return Err(Fault::Usage(line));
        };
        if let Some(name) = info.keys().find(|name| !["id", "ifindex"].contains(&name.as_str())) {
            let line = format!("--json: info has no attribute '{name}' (allowed: id)");
            return Err(Fault::Usage(line));
        }
        for (name, value) in info {
            let path = format!(".info.{name}");
            let kind = if name == "id" { "uint" } else { "u32" };
            let n = positive(&format!("info.{name}"), value, &path, kind)?;
            if self.mode == Mode::Dump {
                return Err(NlError::attribute(Code::Invalid, "Unsupported attribute", &path));
            }
            if name == "id" {
                self.id = Some(n);
            }
        }
        match (self.mode, info.contains_key("id"), info.contains_key("ifindex")) {
            (Mode::Do, false, _) => Err(NlError::missing_in_info()),
            (Mode::Do, true, true) => {
                let why = "selecting by ifindex not supported";
                Err(NlError::attribute(Code::Invalid, why, ".info.ifindex"))
            }
            _ => Ok(()),
        }
    }
}

/// 32-bit number, or its digits as a string.
fn number(name: &str, value: &Value) -> Result<u32, Fault> {
    let n = match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64().and_then(|n| u32::try_from(n).ok()),
    };
    n.ok_or_else(|| Fault::Usage(format!("--json: {name} is {value} (allowed: 0..={})", u32::MAX)))
}

/// Number other than 0; 0 is a range error.
fn positive(name: &str, value: &Value, path: &str, kind: &str) -> Result<u32, Fault> {
    match number(name, value)? {
        0 => Err(NlError::range(path, 1, u32::MAX, kind)),
        n => Ok(n),
    }
}

fn queue_type(value: &Value) -> Result<QueueType, Fault> {
    match value.as_str() {
        Some("rx") => return Ok(QueueType::Rx),
        Some("tx") => return Ok(QueueType::Tx),
        _ => {}
    }
    match number("type", value) {
        Ok(0) => Ok(QueueType::Rx),
        Ok(1) => Ok(QueueType::Tx),
        Ok(_) => Err(NlError::range(".type", 0, 1, "u32")),
        Err(_) => Err(Fault::Usage(format!("--json: type is {value} (allowed: rx, tx)"))),
    }
}

fn scope(value: &Value) -> Result<bool, Fault> {
    let flags = match value {
        Value::Array(flags) => flags.as_slice(),
        one => std::slice::from_ref(one),
    };
    for flag in flags {
        if flag.as_str() != Some("queue") {
            return Err(Fault::Usage(format!("--json: scope is {value} (allowed: queue)")));
        }
    }
    Ok(!flags.is_empty())
}
