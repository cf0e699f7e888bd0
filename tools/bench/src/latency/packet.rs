//! Round trips of bare frames over a veth pair, through packet sockets that are polled
//! (`peers/ping.c`).

use std::process::Stdio;
use std::time::Duration;

use mqnet_sysio::process;

use super::super::child::{Child, RunFolder};
use super::super::histogram::Histogram;
use super::super::hosts::Host;
use super::super::waiting::SOON;
use super::super::{Result, peers};
use super::ping;

const PING: &str = include_str!("../../peers/ping.c");

/// Process with both ends of a veth pair, and the namespace of the pair.
pub(super) struct Veth {
    asks: Child,
    // Fields are dropped in order: the namespace after the process that runs in it.
    _host: Host,
}

impl Veth {
    pub(super) fn start(cpus: [usize; 2], folder: &RunFolder) -> Result<Self> {
        if !process::is_root() {
            return Err("needs root (network namespaces)".into());
        }
        peers::needs("ip", "iproute2")?;
        let program = peers::build_plain(folder, "ping", PING)?;
        let host = Host::create("veth", "frames")?;
        host.ip(&["link", "add", "name", "a", "type", "veth", "peer", "name", "b"])?;
        for end in ["a", "b"] {
            host.ip(&["link", "set", "dev", end, "up"])?;
        }
        let [a, b] = cpus.map(|cpu| cpu.to_string());
        let command = host.command(&[&program.to_string_lossy(), &a, &b])?;
        let asks = Child::spawn("ping over veth", command, Stdio::piped())?;
        asks.wait_for(0, SOON, |output| output.lines().any(|line| line == "ready").then_some(()))?;
        Ok(Self { asks, _host: host })
    }

    /// Measures for `length`. The process sleeps between two measurements.
    pub(super) fn turn(&mut self, length: Duration) -> Result<Histogram> {
        ping::ask(&mut self.asks, length, &format!("{} 0", length.as_millis()))
    }
}
