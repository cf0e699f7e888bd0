//! Runs of iperf3 between two hosts.

use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;

use crate::host::Host;
use crate::process::{Guard, finish};
use crate::wait::until;

/// Returns a port that the last 99 calls of this process have not returned. Other processes use
/// other namespaces.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    20_000 + (std::process::id() as u16 % 200) * 100 + n % 100
}

/// Runs iperf3 from `client` to `address` of `server` with extra arguments. Returns the report of
/// iperf3. Panics if the run fails.
#[track_caller]
pub fn iperf3(server: &Host, client: &Host, address: &str, arguments: &[&str]) -> Value {
    let port = port();
    let number = port.to_string();
    let mut listening = server.command(&["iperf3", "-s", "-1", "-p", &number]);
    let listening = listening.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut listening = Guard(listening.expect("starting iperf3"));
    until("the iperf3 server listens", || listens(&listening.0, port).then_some(()));
    let mut sending = client.command(&["iperf3", "-J", "-p", &number, "-c", address]);
    sending.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = finish(sending.spawn().expect("starting iperf3"), &format!("{sending:?}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{sending:?}: {e}: {text}"));
    let error = &report["error"];
    assert!(output.status.success() && error.is_null(), "{sending:?}: {}: {error}", output.status);
    until("the iperf3 server ends", || listening.0.try_wait().expect("waiting for iperf3"));
    report
}

/// Returns true if a socket in the network namespace of the process listens on `port`.
fn listens(child: &Child, port: u16) -> bool {
    let needle = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|file| {
        let path = format!("/proc/{}/net/{file}", child.id());
        let sockets = std::fs::read_to_string(path).unwrap_or_default();
        sockets.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            // Columns: number, local address, remote address, state. State 0A is LISTEN.
            words.len() > 3 && words[1].ends_with(&needle) && words[3] == "0A"
        })
    })
}
