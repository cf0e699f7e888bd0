//! Execution of a request over every running mqnet.

use mqnet_control::client::segment;
use mqnet_control::discover::names::{self, Named};
use mqnet_control_api::{ApiError, Code, NetdevInfo, QueueType};
use serde_json::{Map, Value, json};

use super::fault::{Fault, NlError};
use super::request::{Mode, Request, Subject};
use crate::api::{self, Api};

type Hosts = [Box<dyn Api>];

/// Netdev, and a connection to its process.
struct Device<'a> {
    info: NetdevInfo,
    /// Name that is unique within its process.
    reference: String,
    api: &'a dyn Api,
}

impl Device<'_> {
    fn get(&self, what: &str) -> Result<Vec<Value>, ApiError> {
        api::get(self.api, &format!("/v1/netdevs/{}/{what}", segment(&self.reference)))
    }
}

/// Response: a list of objects for a dump, one object otherwise.
pub(super) fn run(request: &Request, hosts: &Hosts) -> Result<Value, Fault> {
    match (request.operation.subject, request.mode) {
        (Subject::Queue, Mode::Dump) => dump(request, hosts, "queues"),
        (Subject::Napi, Mode::Dump) => dump(request, hosts, "napis"),
        (Subject::QStats, _) if request.per_queue => dump(request, hosts, "qstats?scope=queue"),
        (Subject::QStats, _) => dump(request, hosts, "qstats?scope=device"),
        (Subject::Queue, Mode::Do) => queue(request, hosts),
        (Subject::Napi, Mode::Do) => napi(request, hosts),
        (Subject::PagePool, _) => pools(request, hosts, "/v1/page-pools"),
        (Subject::PagePoolStats, _) => pools(request, hosts, "/v1/page-pool-stats"),
    }
}

/// Every netdev, sorted by ifindex. A process that does not respond is skipped; its error is
/// returned only if no netdev was found.
fn devices(hosts: &Hosts) -> Result<Vec<Device<'_>>, Fault> {
    let mut devices = Vec::new();
    let mut failed = None;
    for host in hosts {
        match api::get::<Vec<NetdevInfo>>(&**host, "/v1/netdevs") {
            Ok(infos) => {
                let all: Vec<Named<'_>> = infos.iter().map(|dev| Named::new(0, dev)).collect();
                let references = (0..all.len()).map(|at| names::reference(at, &all));
                let references: Vec<String> = references.collect();
                let device = |(info, reference)| Device { info, reference, api: &**host };
                devices.extend(infos.into_iter().zip(references).map(device));
            }
            Err(e) => failed = Some(e),
        }
    }
    if let (true, Some(e)) = (devices.is_empty(), failed) {
        return Err(Fault::Local(e.message));
    }
    devices.sort_by_key(|device| device.info.ifindex);
    Ok(devices)
}

/// Netdev with an ifindex, if any. An ifindex is unique only within a network namespace: netdevs of
/// the own namespace take precedence; several remaining netdevs are an error.
fn by_index(hosts: &Hosts, ifindex: u32) -> Result<Option<Device<'_>>, Fault> {
    let mut found = devices(hosts)?;
    found.retain(|device| device.info.ifindex == ifindex);
    let here = names::own_netns();
    if found.iter().any(|device| device.info.netns == here) {
        found.retain(|device| device.info.netns == here);
    }
    if found.len() > 1 {
        let named = |device: &Device<'_>| {
            let netns = device.info.netns.map(names::netns_name);
            let netns = netns.map(|name| format!(", network namespace {name}")).unwrap_or_default();
            format!("{} (link {}{netns})", device.info.name, device.info.link)
        };
        let all: Vec<String> = found.iter().map(named).collect();
        let why = format!(
            "ifindex {ifindex}: ambiguous: {}: run it in the network namespace (ip netns exec), or \
             choose a process with --control SOCKET",
            all.join(", ")
        );
        return Err(Fault::Local(why));
    }
    Ok(found.pop())
}

fn dump(request: &Request, hosts: &Hosts, what: &str) -> Result<Value, Fault> {
    let Some(ifindex) = request.ifindex else {
        let mut all = Vec::new();
        for device in devices(hosts)? {
            match device.get(what) {
                Ok(objects) => all.extend(objects),
                // The device does not support the request, or was removed after the listing.
                Err(e) if matches!(e.code, Code::NotSupported | Code::NoDevice) => {}
                Err(e) => return Err(e.into()),
            }
        }
        return Ok(Value::Array(all));
    };
    // Only errors of `qstats-get` name the rejected attribute, as in the kernel.
    let blame = |code| match request.operation.subject {
        Subject::QStats => NlError::attribute(code, "", ".ifindex"),
        _ => NlError::bare(code),
    };
    let Some(device) = by_index(hosts, ifindex)? else { return Err(blame(Code::NoDevice)) };
    match device.get(what) {
        Ok(objects) => Ok(Value::Array(objects)),
        Err(e) if matches!(e.code, Code::NotSupported | Code::NoDevice) => Err(blame(e.code)),
        Err(e) => Err(e.into()),
    }
}

fn has(object: &Value, name: &str, value: u32) -> bool {
    object.get(name).and_then(Value::as_u64) == Some(u64::from(value))
}

fn queue(request: &Request, hosts: &Hosts) -> Result<Value, Fault> {
    let (Some(ifindex), Some(id), Some(kind)) = (request.ifindex, request.id, request.kind) else {
        return Err(NlError::bare(Code::Invalid));
    };
    let Some(device) = by_index(hosts, ifindex)? else {
        return Err(NlError::bare(Code::NoDevice));
    };
    let kind = match kind {
        QueueType::Rx => "rx",
        QueueType::Tx => "tx",
    };
    let queues = device.get("queues")?;
    // A netdev that is down lists no queues; the kernel's error for each of its queues is ENOENT.
    let none = if queues.is_empty() { Code::NoEntry } else { Code::Invalid };
    let wanted = |queue: &Value| has(queue, "id", id) && queue["type"] == kind;
    queues.into_iter().find(wanted).ok_or_else(|| NlError::bare(none))
}

fn napi(request: &Request, hosts: &Hosts) -> Result<Value, Fault> {
    let id = request.id.unwrap_or_default();
    for device in devices(hosts)? {
        let napis = match device.get("napis") {
            Err(e) if e.code != Code::NoDevice => return Err(e.into()),
            answer => answer.unwrap_or_default(),
        };
        if let Some(napi) = napis.into_iter().find(|napi| has(napi, "id", id)) {
            return Ok(napi);
        }
    }
    Err(NlError::attribute(Code::NoEntry, "", ".id"))
}

fn pools(request: &Request, hosts: &Hosts, path: &str) -> Result<Value, Fault> {
    let mut all: Vec<Value> = Vec::new();
    for host in hosts {
        all.extend(api::get::<Vec<Value>>(&**host, path)?);
    }
    let nested = request.operation.subject == Subject::PagePoolStats;
    let present = |pool: Value| if nested { nest(pool) } else { pool };
    if request.mode == Mode::Dump {
        return Ok(all.into_iter().map(present).collect());
    }
    let id = request.id.unwrap_or_default();
    let found = all.into_iter().find(|pool| has(pool, "id", id));
    found.map(present).ok_or_else(|| NlError::bare(Code::NoEntry))
}

/// Moves the fields that identify a pool into the nest `info`.
fn nest(pool: Value) -> Value {
    let Value::Object(mut fields) = pool else { return pool };
    let mut info = Map::new();
    for name in ["id", "ifindex"] {
        if let Some(value) = fields.remove(name) {
            info.insert(name.to_owned(), value);
        }
    }
    fields.insert("info".to_owned(), json!(info));
    Value::Object(fields)
}
