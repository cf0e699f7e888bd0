//! Requests of every verb, in a fixed sequence.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::request;

/// Read requests about the process and its links.
const PROCESS: [&str; 6] = [
    "/v1/instance",
    "/v1/links",
    "/v1/netdevs",
    "/v1/page-pools",
    "/v1/page-pool-stats",
    "/v1/events?wait=0",
];

/// Read requests about a netdev.
const NETDEV: [&str; 16] = [
    "channels",
    "rings",
    "coalesce",
    "rss",
    "rules",
    "features",
    "driver",
    "priv-flags",
    "counters",
    "queues",
    "napis",
    "qstats?scope=queue",
    "qdiscs",
    "classes",
    "filters",
    "xdp",
];

/// Change requests to the good link. Each leaves the settings nearly unchanged.
const CHANGES: [(&str, &str, &str); 6] = [
    ("PATCH", "mtu", r#"{"mtu": 1500}"#),
    ("PATCH", "coalesce", r#"{"rx-usecs": 0}"#),
    ("PATCH", "rss", r#"{"equal": 2}"#),
    ("PATCH", "features", r#"{"features": {"tx-checksum-ip-generic": true}}"#),
    ("PATCH", "priv-flags", r#"{"flags": {}}"#),
    ("PATCH", "channels", r#"{"combined": 2}"#),
];

/// Sequence of requests.
#[derive(Debug, Default)]
pub(super) struct Verbs {
    next: AtomicUsize,
    /// Netdevs of links with a hostile peer.
    bad: Vec<&'static str>,
}

impl Verbs {
    /// Creates the sequence: verbs of the good link, and read requests about the netdevs in `bad`.
    pub(super) fn new(bad: Vec<&'static str>) -> Self {
        Self { next: AtomicUsize::new(0), bad }
    }

    /// Number of requests of one round.
    pub(super) fn count(&self) -> usize {
        PROCESS.len() + 2 + NETDEV.len() * (1 + self.bad.len()) + CHANGES.len()
    }

    /// Sends the next request; returns the time until its response, and true if the request is a
    /// change.
    pub(super) fn ask(&self, socket: &Path) -> (Duration, bool) {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.count();
        let fixed: Vec<String> =
            PROCESS.iter().map(|path| (*path).to_owned()).chain(more()).collect();
        let devices: Vec<&str> = ["gooda"].into_iter().chain(self.bad.iter().copied()).collect();
        let (method, path, body) = match (at, at.checked_sub(fixed.len())) {
            (_, None) => ("GET", fixed[at].clone(), ""),
            (_, Some(rest)) if rest < NETDEV.len() * devices.len() => {
                let (device, what) = (devices[rest / NETDEV.len()], NETDEV[rest % NETDEV.len()]);
                ("GET", format!("/v1/netdevs/{device}/{what}"), "")
            }
            (_, Some(rest)) => {
                let (method, what, body) = CHANGES[rest - NETDEV.len() * devices.len()];
                (method, format!("/v1/netdevs/gooda/{what}"), body)
            }
        };
        let begin = Instant::now();
        let answer = request(socket, method, &path, body);
        let took = begin.elapsed();
        // Requests for rings, rules or programs may be refused, because some kinds of endpoints
        // have none or the link is down.
        let allowed = ["HTTP/1.1 200", "HTTP/1.1 409", "HTTP/1.1 422"];
        let is_answered = allowed.iter().any(|status| answer.starts_with(status));
        assert!(is_answered, "{method} {path}: {answer}");
        (took, method == "PATCH")
    }
}

fn more() -> [String; 2] {
    ["/v1/links/good/stats".to_owned(), "/metrics".to_owned()]
}
