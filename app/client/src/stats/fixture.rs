//! Fake link and counters for the tests of all verbs that print links.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use mqnet_control_api::{
    ApiError, ChannelStats, Code, DropCount, LaneStats, LinkInfo, LinkStats, PoolUse, StopState,
    Stopped,
};
use serde_json::{Value, json};

use crate::api::Api;

/// Responses by path. A path with several responses returns them in order and repeats the last one;
/// an unknown path is an error.
#[derive(Default)]
pub(crate) struct FakeApi {
    answers: RefCell<BTreeMap<String, VecDeque<Value>>>,
    pub(crate) asked: RefCell<Vec<String>>,
}

impl FakeApi {
    pub(crate) fn on(self, path: &str, answer: impl serde::Serialize) -> Self {
        let value = serde_json::to_value(answer).unwrap();
        self.answers.borrow_mut().entry(path.to_owned()).or_default().push_back(value);
        self
    }
}

impl Api for FakeApi {
    fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.asked.borrow_mut().push(path.to_owned());
        let mut answers = self.answers.borrow_mut();
        let Some(queue) = answers.get_mut(path) else {
            return Err(ApiError::new(Code::NoDevice, format!("nothing at {path}")));
        };
        let first = queue.pop_front().unwrap();
        if queue.is_empty() {
            queue.push_back(first.clone());
        }
        Ok(first)
    }

    fn patch(&self, path: &str, _body: &Value) -> Result<Value, ApiError> {
        Err(ApiError::new(Code::Failed, format!("{path} must not be changed")))
    }
}

pub(crate) fn lane(from: &str, to: &str, rx: u64, tx: u64, dropped: u64) -> LaneStats {
    let drops = match dropped {
        0 => Vec::new(),
        frames => vec![DropCount { reason: "too-long".into(), frames }],
    };
    LaneStats {
        napi_id: 1,
        from: from.into(),
        to: to.into(),
        rx_packets: rx,
        rx_bytes: rx.saturating_mul(1000),
        tx_packets: tx,
        tx_bytes: tx.saturating_mul(1000),
        drops,
        in_flight: rx.wrapping_sub(tx).wrapping_sub(dropped) as i64,
        state: StopState::Running,
        ..LaneStats::default()
    }
}

/// Link `vm0` with two channels after `seconds` of traffic; the lane of channel 1 from `vm0` to
/// `ntb0` is stopped.
pub(crate) fn stats(seconds: u64) -> LinkStats {
    let t = seconds;
    let mut forth = lane("vm0", "ntb0", 200_000 * t + 1, 200_000 * t, 0);
    forth.tx_stop = 4 * t;
    forth.tx_wake = 4 * t - 1;
    forth.stopped_ns = 250_000_000 * (t - 1);
    forth.state = StopState::Stopped;
    forth.stopped = Some(Stopped {
        cause: mqnet_control_api::StopCause::Peer,
        by: "the peer's ring is full: the peer does not take frames".into(),
        for_ns: 1_250_000_000,
    });
    let one = ChannelStats {
        id: 0,
        active: true,
        worker: Some(0),
        a_to_b: lane("vm0", "ntb0", 100_000 * t, 99_990 * t, 10 * t),
        b_to_a: lane("ntb0", "vm0", 50 * t, 50 * t, 0),
    };
    let two = ChannelStats {
        id: 1,
        active: true,
        worker: Some(1),
        a_to_b: forth,
        b_to_a: lane("ntb0", "vm0", 0, 0, 0),
    };
    LinkStats {
        link: "vm0".into(),
        a: "vm0".into(),
        b: "ntb0".into(),
        time_ns: t * 1_000_000_000,
        channels: vec![one, two],
        a_to_b: lane("vm0", "ntb0", 300_000 * t + 1, 299_990 * t, 10 * t),
        b_to_a: lane("ntb0", "vm0", 50 * t, 50 * t, 0),
        dropped_outside_a: Some(7),
        dropped_outside_b: None,
        locality: Vec::new(),
        pools: vec![PoolUse { napi_id: 1, inflight: 2 }],
    }
}

pub(crate) fn link(state: &str) -> LinkInfo {
    let reason = (state != "up").then_some("the peer has ended");
    let netdev = |name: &str, partner: &str, function: &str, ifindex: u32| {
        json!({ "name": name, "ifindex": ifindex, "function": function, "link": "vm0",
                "partner": partner, "carrier": state == "up" })
    };
    let mut value = json!({
        "name": "vm0", "state": state, "channels": if state == "up" { 2 } else { 0 },
        "spec": { "a": "tap:vm0", "b": "ntb:/run/x.sock", "channels": 2 },
        "netdevs": [netdev("vm0", "ntb0", "tap:vm0", 7),
                    netdev("ntb0", "vm0", "ntb:/run/x.sock", 1_000_000)],
        "workers": [{ "id": 0, "cpu": 2, "node": 0, "passes": 9, "sleeps": 1 },
                    { "id": 1, "cpu": 3, "node": 0, "passes": 9, "sleeps": 1 }],
    });
    if let Some(reason) = reason {
        value["reason"] = reason.into();
    } else {
        value["mtu"] = 1500.into();
        value["frame-max"] = 65558.into();
    }
    serde_json::from_value(value).unwrap()
}
