//! Sequential iperf3 streams between two hosts.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::child::{self, Child};
use super::hosts::Host;
use super::waiting::SOON;
use super::wires::{SERVER, without_prefix};
use super::{Result, Session, peers};

/// Interval between two checks for a stop signal while a stream runs.
const LOOK: Duration = Duration::from_millis(100);

/// Result of one stream.
#[derive(Debug, PartialEq)]
pub(super) struct Stream {
    /// Received bits per second.
    pub(super) rate: f64,
    /// Received data, in gigabits.
    pub(super) gigabits: f64,
    /// Name of the sender's congestion control in the kernel.
    pub(super) congestion: String,
}

/// Placement of the two ends of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// Each end is pinned to its own CPU, so that rounds do not differ by placement.
    Pinned,
    /// The scheduler places both ends, as in normal use. Pinned ends cannot move away from a CPU
    /// that the processes of the link need, which matters on few CPUs.
    Placed,
}

/// An iperf3 server on the second host.
pub(super) struct Iperf {
    server: Child,
}

impl Iperf {
    /// Starts the server.
    pub(super) fn listen(host: &Host) -> Result<Self> {
        peers::needs("iperf3", "iperf3")?;
        let command = host.command(&["iperf3", "-s", "--forceflush"])?;
        let server = Child::spawn("the iperf3 server", command, Stdio::null())?;
        server.wait_for(0, SOON, listens)?;
        Ok(Self { server })
    }

    /// Current length of the server's output, to be read before a client connects.
    pub(super) fn mark(&self) -> usize {
        self.server.mark()
    }

    /// Waits until the server listens again after `mark`: the server refuses a new client until it
    /// has finished with the previous client.
    pub(super) fn wait_until_free(&self, mark: usize) -> Result<()> {
        self.server.wait_for(mark, SOON, listens)
    }

    /// Runs one stream from `host` to the server. The inner error is a failure of the stream, the
    /// outer error a stop signal.
    pub(super) fn stream(
        &mut self,
        session: &Session,
        host: &Host,
        seconds: u64,
        ends: Ends,
    ) -> Result<std::result::Result<Stream, String>> {
        let mark = self.server.mark();
        let deadline = Instant::now() + Duration::from_secs(seconds) + SOON;
        let mut client = match client(host, seconds, session.cpus, ends) {
            Ok(client) => client,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let ended = loop {
            match client.finish(LOOK) {
                Err(_) if Instant::now() < deadline => session.check()?,
                ended => break ended,
            }
        };
        let stream = ended.and_then(|(_, printed)| received(&printed)).and_then(|stream| {
            self.wait_until_free(mark)?;
            Ok(stream)
        });
        Ok(stream.map_err(|error| error.to_string()))
    }
}

fn client(host: &Host, seconds: u64, [here, there]: [usize; 2], ends: Ends) -> Result<Child> {
    let (to, length, pins) =
        (without_prefix(SERVER), seconds.to_string(), format!("{here},{there}"));
    let words = ["iperf3", "-J", "-c", to, "-t", &length, "--connect-timeout", "5000"];
    let pins: &[&str] = if ends == Ends::Pinned { &["-A", &pins] } else { &[] };
    Child::spawn("iperf3", host.command(&[&words, pins].concat())?, Stdio::null())
}

fn listens(printed: &str) -> Option<()> {
    printed.contains("Server listening").then_some(())
}

/// Result on the receiving side, from the output of `iperf3 -J`.
fn received(printed: &str) -> Result<Stream> {
    let report: Value = serde_json::from_str(printed)
        .map_err(|_| format!("iperf3 gave no report: {}", child::last_lines(printed)))?;
    if let Some(error) = report["error"].as_str() {
        return Err(format!("iperf3: {error}").into());
    }
    let end = &report["end"];
    let arrived = |what: &str| end["sum_received"][what].as_f64().filter(|&value| value > 0.0);
    let nothing = || "iperf3: nothing was received".to_owned();
    let congestion = end["sender_tcp_congestion"].as_str().unwrap_or("unknown").to_owned();
    let rate = arrived("bits_per_second").ok_or_else(nothing)?;
    let gigabits = arrived("bytes").ok_or_else(nothing)? * 8.0 / 1e9;
    Ok(Stream { rate, gigabits, congestion })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the received data count, and an error of iperf3 keeps its text.
    #[test]
    fn the_report_of_iperf3_is_read() {
        let good = r#"{"end": {"sum_sent": {"bits_per_second": 9e9, "bytes": 4e9},
                              "sum_received": {"bits_per_second": 8.5e9, "bytes": 2.5e9},
                              "sender_tcp_congestion": "cubic"}}"#;
        let congestion = "cubic".to_owned();
        assert_eq!(received(good).unwrap(), Stream { rate: 8.5e9, gigabits: 20.0, congestion });
        for (bad, words) in [
            (r#"{"end": {}, "error": "unable to connect"}"#, "iperf3: unable to connect"),
            (r#"{"end": {"sum_received": {"bits_per_second": 0.0}}}"#, "nothing was received"),
            ("Cannot open network namespace", "no report: Cannot open network namespace"),
        ] {
            let error = received(bad).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
