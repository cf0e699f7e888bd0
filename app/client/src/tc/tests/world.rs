//! Fake server: fixed lists for each netdev, and a log of requests.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mqnet_control_api::{ApiError, Code, NetdevInfo, Outcome};
use serde_json::{Value, json};

use super::numbers;
use crate::api::Api;

#[derive(Default)]
struct State {
    /// Responses by netdev: `qdiscs`, `classes`, `filters`.
    lists: BTreeMap<String, BTreeMap<&'static str, Value>>,
    sent: Vec<(String, String)>,
    refusal: Option<ApiError>,
}

/// One process with all netdevs.
#[derive(Clone, Default)]
pub(super) struct World(Rc<RefCell<State>>);

impl World {
    /// Netdevs of the simulated recordings, and `t1` with the discipline `noqueue`.
    pub(super) fn of_numbers() -> Self {
        let world = Self::default();
        world.put("t1", "qdiscs", json!([{ "kind": "noqueue", "handle": "0:", "root": true }]));
        for (dev, what, list) in numbers::all() {
            world.put(dev, what, list);
        }
        world
    }

    fn put(&self, dev: &str, what: &'static str, list: Value) {
        let mut state = self.0.borrow_mut();
        state.lists.entry(dev.to_owned()).or_default().insert(what, list);
    }

    /// Adds a netdev with the disciplines that `tc -s -j` printed. `mq` gets one class for each
    /// child, `tbf` one class, other kinds none.
    pub(super) fn add_json(&mut self, dev: &str, text: &str) {
        let qdiscs: Value = serde_json::from_str(text).unwrap();
        let list = qdiscs.as_array().unwrap();
        let class = |kind: &str, id: String| json!({ "class": kind, "handle": id, "root": true });
        let classes: Vec<Value> = match list[0]["kind"].as_str().unwrap() {
            "mq" => (1..list.len()).map(|n| class("mq", format!("1:{n}"))).collect(),
            "tbf" => {
                let leaf = list.get(1).map(|child| child["handle"].clone());
                vec![json!({ "class": "tbf", "handle": "1:1", "parent": "1:", "leaf": leaf })]
            }
            _ => Vec::new(),
        };
        self.put(dev, "qdiscs", qdiscs.clone());
        self.put(dev, "classes", json!(classes));
    }

    /// Makes every later `POST` fail with `error`.
    pub(super) fn refuse(&self, error: ApiError) {
        self.0.borrow_mut().refusal = Some(error);
    }

    /// `POST` requests since the start: path and body.
    pub(super) fn sent(&self) -> Vec<(String, String)> {
        self.0.borrow().sent.clone()
    }

    pub(super) fn process(&self) -> Box<dyn Api> {
        Box::new(self.clone())
    }

    pub(super) fn device(&self, dev: &str) -> Result<Box<dyn Api>, ApiError> {
        match self.0.borrow().lists.contains_key(dev) {
            true => Ok(self.process()),
            false => Err(ApiError::new(Code::NoDevice, format!("no netdev '{dev}'"))),
        }
    }
}

fn netdev(name: &str) -> NetdevInfo {
    NetdevInfo {
        name: name.to_owned(),
        ifindex: 7,
        netns: None,
        function: "null:".to_owned(),
        link: "l".to_owned(),
        partner: "p".to_owned(),
        carrier: true,
        protocol: None,
        slot_rings: None,
        members: Vec::new(),
    }
}

impl Api for World {
    fn get(&self, path: &str) -> Result<Value, ApiError> {
        let state = self.0.borrow();
        let place = path.strip_prefix("/v1/netdevs/").and_then(|place| place.split_once('/'));
        let Some((dev, what)) = place else {
            return Ok(json!(state.lists.keys().map(|name| netdev(name)).collect::<Vec<_>>()));
        };
        let lists = state.lists.get(dev).ok_or_else(|| ApiError::new(Code::NoDevice, "gone"))?;
        Ok(lists.get(what).cloned().unwrap_or(json!([])))
    }

    fn patch(&self, path: &str, _body: &Value) -> Result<Value, ApiError> {
        panic!("PATCH {path}")
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        let mut state = self.0.borrow_mut();
        state.sent.push((path.to_owned(), body.to_string()));
        match &state.refusal {
            Some(error) => Err(error.clone()),
            None => Ok(json!(Outcome { changed: true, note: None, took_us: 1 })),
        }
    }
}
