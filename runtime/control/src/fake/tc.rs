//! Disciplines of a fake netdev: a root that can be exchanged, with classes and a filter that
//! stand still.

use std::collections::BTreeMap;

use mqnet_control_api::{
    Action, ApiError, Class, Code, ControlAction, Filter, FilterOptions, Qdisc, TcCounters,
    TcObject, TcRequest, TcVerb,
};
use serde_json::{Value, json};

/// Kinds that the fake knows.
const KINDS: [&str; 4] = ["pfifo", "bfifo", "fq_codel", "mq"];

/// What is attached to one side of a fake link.
#[derive(Debug)]
pub(super) struct FakeTc {
    pub(super) qdiscs: Vec<Qdisc>,
    pub(super) classes: Vec<Class>,
    pub(super) filters: Vec<Filter>,
    attached: u16,
}

fn object(value: Value) -> BTreeMap<String, Value> {
    match value {
        Value::Object(map) => map.into_iter().collect(),
        _ => BTreeMap::new(),
    }
}

fn refused(code: Code, message: &str) -> ApiError {
    ApiError::new(code, message)
}

impl FakeTc {
    /// `mq` with a leaf for each of four channels, and a filter.
    pub(super) fn new() -> Self {
        let leaf = |minor: u16| Qdisc {
            kind: "fq_codel".to_owned(),
            handle: "0:".to_owned(),
            parent: Some(format!("8001:{minor}")),
            options: object(json!({
                "limit": 10240, "flows": 1024, "quantum": 1514, "target": 5000,
                "interval": 100_000, "memory_limit": 33_554_432, "ecn": true, "drop_batch": 64,
            })),
            counters: TcCounters {
                bytes: 1000,
                packets: 10,
                drops: 2,
                backlog: 3000,
                qlen: 2,
                ..TcCounters::default()
            },
            extra: object(json!({
                "maxpacket": 1514, "drop_overlimit": 2, "new_flow_count": 3, "ecn_mark": 0,
                "new_flows_len": 0, "old_flows_len": 1,
            })),
            ..Qdisc::default()
        };
        let class = |minor: u16| Class {
            class: "mq".to_owned(),
            handle: format!("8001:{minor}"),
            root: true,
            ..Class::default()
        };
        let mut tc =
            Self { qdiscs: Vec::new(), classes: Vec::new(), filters: vec![filter()], attached: 1 };
        tc.qdiscs.push(Qdisc {
            kind: "mq".to_owned(),
            handle: "8001:".to_owned(),
            root: true,
            counters: TcCounters { bytes: 4000, packets: 40, drops: 8, ..TcCounters::default() },
            ..Qdisc::default()
        });
        tc.qdiscs.extend((1..=4).rev().map(leaf));
        tc.classes.extend((1..=4).map(class));
        tc
    }

    /// Carries out a request about the root.
    pub(super) fn apply(&mut self, want: &TcRequest) -> Result<bool, ApiError> {
        let at_root = want.parent.as_deref() == Some("root");
        if want.object != TcObject::Qdisc || !at_root {
            return Err(refused(Code::NoEntry, "Failed to find specified qdisc"));
        }
        let has_root = self.qdiscs.iter().any(|qdisc| qdisc.root);
        match (want.command, has_root) {
            (TcVerb::Add, true) => {
                return Err(refused(Code::Exists, "Exclusivity flag on, cannot modify"));
            }
            (TcVerb::Delete, false) => {
                return Err(refused(Code::NoEntry, "Cannot delete qdisc with handle of zero"));
            }
            (TcVerb::Delete, true) => {
                *self =
                    Self { qdiscs: Vec::new(), classes: Vec::new(), filters: Vec::new(), ..*self };
                return Ok(true);
            }
            (TcVerb::Change, false) => {
                let why = "Qdisc not found. To create specify NLM_F_CREATE flag";
                return Err(refused(Code::NoEntry, why));
            }
            _ => {}
        }
        let root = self.made(want)?;
        let same = self
            .qdiscs
            .iter()
            .any(|old| old.root && (&old.kind, &old.options) == (&root.kind, &root.options));
        if !same {
            self.attached += 1;
            self.qdiscs = vec![root];
        }
        Ok(!same)
    }

    fn made(&self, want: &TcRequest) -> Result<Qdisc, ApiError> {
        let kind = want.kind.as_deref().unwrap_or_default();
        if !KINDS.contains(&kind) {
            return Err(refused(Code::NoEntry, "Specified qdisc kind is unknown"));
        }
        let limit = match want.options.as_slice() {
            [] => 1000,
            [word, number] if word == "limit" => {
                let number = number.parse::<u32>().ok();
                number.ok_or_else(|| ApiError::field("options", "Illegal \"limit\""))?
            }
            [word, ..] => return Err(ApiError::field("options", format!("What is \"{word}\"?"))),
        };
        let handle = want.handle.clone();
        Ok(Qdisc {
            kind: kind.to_owned(),
            handle: handle.unwrap_or_else(|| format!("{:x}:", 0x8001 + self.attached)),
            root: true,
            refcnt: Some(5),
            options: object(json!({ "limit": limit })),
            ..Qdisc::default()
        })
    }
}

fn filter() -> Filter {
    Filter {
        egress: true,
        protocol: "ip".to_owned(),
        pref: 49152,
        kind: "flower".to_owned(),
        options: Some(FilterOptions {
            handle: 1,
            keys: object(json!({ "eth_type": "ipv4", "ip_proto": "tcp", "dst_port": 80 })),
            not_in_hw: true,
            actions: vec![Action {
                order: 1,
                kind: "skbedit".to_owned(),
                control_action: ControlAction { kind: "pipe".to_owned() },
                index: 1,
                options: object(json!({ "queue_mapping": 3 })),
                stats: TcCounters::default(),
            }],
            ..FilterOptions::default()
        }),
        ..Filter::default()
    }
}
