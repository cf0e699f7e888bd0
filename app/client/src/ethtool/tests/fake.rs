//! Fake netdevs with the settings and counters of the recorded devices.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mqnet_control_api::{
    ApiError, Code, Feature, FlowRules, NamedCounter, Outcome, PrivFlag, Rss, SetFeatures,
    SetFlowRules,
};
use serde_json::{Value, json};

use super::golden::Case;
use crate::api::Api;

/// Responses of a device by `GET` path. A path without a response returns `NotSupported`.
type Answers = BTreeMap<&'static str, Value>;

#[derive(Default)]
struct State {
    answers: BTreeMap<String, Answers>,
    sent: Vec<(String, Value)>,
}

/// Fake server with all devices.
#[derive(Clone)]
pub(super) struct World(Rc<RefCell<State>>);

/// Features of a recorded `--json -k`, under the kernel's names.
fn features(file: &str, dev: &str) -> Value {
    let kernel = [
        ("rx-checksumming", "rx-checksum"),
        ("generic-segmentation-offload", "tx-generic-segmentation"),
        ("generic-receive-offload", "rx-gro"),
        ("large-receive-offload", "rx-lro"),
        ("rx-vlan-offload", "rx-vlan-hw-parse"),
        ("tx-vlan-offload", "tx-vlan-hw-insert"),
        ("ntuple-filters", "rx-ntuple-filter"),
        ("receive-hashing", "rx-hashing"),
    ];
    let case = recorded(file, &["--json", "-k", dev]);
    let all: Vec<BTreeMap<String, Value>> = serde_json::from_str(&case.out).unwrap();
    let mut list = Vec::new();
    for (name, value) in &all[0] {
        // `fixed` is null for a legacy name that stands for several kernel features; such names are
        // skipped. Features that are off and fixed are skipped too, as mqnet does not list them.
        let Some(fixed) = value.get("fixed").and_then(Value::as_bool) else { continue };
        let name = kernel.iter().find(|(old, _)| old == name).map_or(name.as_str(), |(_, k)| k);
        let is = |key: &str| value[key].as_bool().unwrap();
        if is("active") || !fixed {
            let (active, requested) = (is("active"), is("requested"));
            list.push(Feature { name: name.to_owned(), active, fixed, requested });
        }
    }
    json!(list)
}

fn recorded(file: &str, args: &[&str]) -> Case {
    super::cases(file).into_iter().find(|case| case.args == args).unwrap()
}

fn counters(file: &str, dev: &str) -> Value {
    let case = recorded(file, &["-S", dev]);
    let counter = |line: &str| {
        let (name, value) = line.trim().split_once(": ").unwrap();
        NamedCounter { name: name.to_owned(), value: value.parse().unwrap() }
    };
    json!(case.out.lines().skip(1).map(counter).collect::<Vec<_>>())
}

fn driver(driver: &str, version: &str, bus: &str) -> Value {
    json!({ "driver": driver, "version": version, "firmware-version": "", "bus-info": bus })
}

fn no_rules() -> FlowRules {
    FlowRules { rings: 4, size: 64, rules: Vec::new() }
}

/// Inserts, replaces or deletes one rule; a location, queue or rule that does not exist is an
/// error.
fn change_rules(all: &mut FlowRules, want: SetFlowRules) -> Result<(), ApiError> {
    let place = want.delete.or(want.add.as_ref().map(|rule| rule.location)).unwrap();
    let at = all.rules.iter().position(|rule| rule.location == place);
    if let Some(rule) = &want.add
        && (rule.location >= all.size || rule.queue >= all.rings)
    {
        return Err(ApiError::new(Code::Invalid, "out of range"));
    }
    match (at, want.add) {
        (None, None) => return Err(ApiError::new(Code::NoEntry, "no such rule")),
        (Some(at), None) => drop(all.rules.remove(at)),
        (Some(at), Some(rule)) => all.rules[at] = rule,
        (None, Some(rule)) => all.rules.push(rule),
    }
    all.rules.sort_by_key(|rule| rule.location);
    Ok(())
}

fn rss(rings: u16, size: u16) -> Value {
    json!(Rss {
        rings,
        indirection_table: (0..size).map(|i| i % rings).collect(),
        hash_function: "xor".to_owned(),
        user_set: false,
    })
}

impl World {
    pub(super) fn new() -> Self {
        let veth = Answers::from([
            ("features", features("veth.txt", "v0")),
            ("counters", counters("veth.txt", "v0")),
            ("driver", driver("veth", "1.0", "")),
        ]);
        let tap = Answers::from([
            ("features", features("tap.txt", "t0")),
            ("counters", json!([])),
            ("driver", driver("tun", "1.6", "tap")),
            ("channels", json!({ "combined-max": 256, "combined": 0 })),
        ]);
        let virtio = Answers::from([
            ("channels", json!({ "combined-max": 1, "combined": 1 })),
            ("rings", json!({ "rx-max": 256, "rx": 256, "tx-max": 256, "tx": 256, "unit": "x" })),
            ("coalesce", json!({ "rx-usecs": 1000, "tx-frames": 1 })),
        ]);
        let flag = |name: &str, on| PrivFlag { name: name.to_owned(), on, notes: Vec::new() };
        let ntb = Answers::from([
            ("channels", json!({ "combined-max": 64, "combined": 4, "wanted": 8 })),
            ("rings", json!({ "rx-max": 512, "rx": 256, "unit": "KiB" })),
            ("coalesce", json!({ "rx-usecs": 1000, "tx-frames": 0 })),
            ("rss", rss(4, 8)),
            ("features", features("veth.txt", "v0")),
            ("counters", json!([{ "name": "rx_packets", "value": u64::MAX }])),
            ("driver", driver("mqnet-ntb", "0.1.0", "ntb:/run/x.sock")),
            ("priv-flags", json!([flag("full", false), flag("longer-name", true)])),
        ]);
        let answers = [
            ("longername123", veth.clone()),
            ("v0", veth),
            ("t0", tap),
            ("lo", Answers::from([("features", features("tap.txt", "lo"))])),
            ("eth0", virtio),
            ("sim0", Answers::from([("rss", rss(4, 16)), ("rules", json!(no_rules()))])),
            ("ntb0", ntb),
        ];
        let answers = answers.into_iter().map(|(name, a)| (name.to_owned(), a)).collect();
        Self(Rc::new(RefCell::new(State { answers, sent: Vec::new() })))
    }

    pub(super) fn find(&self, dev: &str) -> Result<Box<dyn Api>, ApiError> {
        match self.0.borrow().answers.contains_key(dev) {
            true => Ok(Box::new(self.clone())),
            false => Err(ApiError::new(Code::NoDevice, "none of ours")),
        }
    }

    /// Returns the change requests that arrived since the last call.
    pub(super) fn take_sent(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.0.borrow_mut().sent)
    }
}

fn split(path: &str) -> (&str, &str) {
    path.strip_prefix("/v1/netdevs/").unwrap().split_once('/').unwrap()
}

impl Api for World {
    fn get(&self, path: &str) -> Result<Value, ApiError> {
        if path == "/v1/links" {
            return Ok(json!([]));
        }
        let (dev, what) = split(path);
        let state = self.0.borrow();
        let missing = || ApiError::new(Code::NotSupported, format!("{dev} has no {what}"));
        state.answers[dev].get(what).cloned().ok_or_else(missing)
    }

    fn patch(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        let (dev, what) = split(path);
        let mut state = self.0.borrow_mut();
        state.sent.push((path.to_owned(), body.clone()));
        let mut outcome = Outcome { changed: true, ..Outcome::default() };
        let known = state.answers.get_mut(dev).and_then(|answers| answers.get_mut(what));
        let known = known.ok_or_else(|| ApiError::new(Code::NotSupported, "not there"))?;
        match what {
            "features" => {
                let mut list: Vec<Feature> = serde_json::from_value(known.clone()).unwrap();
                let want: SetFeatures = serde_json::from_value(body.clone()).unwrap();
                apply(&mut list, &want, dev == "t0");
                *known = json!(list);
            }
            "rules" => {
                let mut all: FlowRules = serde_json::from_value(known.clone()).unwrap();
                change_rules(&mut all, serde_json::from_value(body.clone()).unwrap())?;
                *known = json!(all);
            }
            "channels" if body["combined"] == 7 => {
                outcome.note = Some("settled on 4 channels: the peer wants no more".to_owned());
            }
            "channels" if body["combined"] == 6 => {
                return Err(ApiError::new(Code::TimedOut, "the peer does not answer"));
            }
            "coalesce" if body["rx-usecs"].as_u64() > Some(1_000_000) => {
                return Err(ApiError::field("rx-usecs", "allowed: 0..=1000000"));
            }
            _ => {}
        }
        Ok(json!(outcome))
    }
}

/// Applies a change as the kernel does: a feature is active only while the features that it needs
/// are active. `finished` is true for a TAP with a peer that needs complete checksums: checksum
/// offload then stays off.
fn apply(list: &mut [Feature], want: &SetFeatures, finished: bool) {
    for (name, on) in &want.features {
        let feature = list.iter_mut().find(|feature| feature.name == *name).unwrap();
        assert!(!feature.fixed, "{name} is fixed and was sent");
        feature.requested = *on;
        feature.active = *on && !(finished && name == "tx-checksum-ip-generic");
    }
    let off = |name: &str| list.iter().any(|f| f.name == name && !f.active);
    let (checksum, gather) = (off("tx-checksum-ip-generic"), off("tx-scatter-gather"));
    for feature in list.iter_mut().filter(|f| !f.fixed && f.requested) {
        let name = feature.name.as_str();
        let tso = name.starts_with("tx-tcp") && name != "tx-tcp-accecn-segmentation";
        let lost = (tso && (checksum || gather))
            || (name == "tx-udp-segmentation" && checksum)
            || (name == "tx-generic-segmentation" && gather);
        let depends = tso || name == "tx-udp-segmentation" || name == "tx-generic-segmentation";
        if depends {
            feature.active = !lost;
        }
    }
}

/// Removes null fields: the server treats an absent field and a null alike.
pub(super) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.into_iter().filter(|(_, value)| !value.is_null()).collect())
        }
        other => other,
    }
}
