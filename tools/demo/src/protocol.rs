//! Messages between the demo and its two hosts, one JSON object per line.

use std::net::Ipv4Addr;
use std::time::Duration;

use clap::ValueEnum;
use mqnet_sysio::clock;
use mqnet_traffic::Tally;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Channels of the demo's link.
pub(super) const CHANNELS: u16 = 2;
/// Name of the TAP device in each host.
pub(super) const DEVICE: &str = "demo";
/// Milliseconds between two lines of a link's counters.
pub(super) const INTERVAL_MS: u64 = 100;
/// Number of datagram flows in each direction.
pub(super) const FLOWS: u16 = 4;

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Side {
    Left,
    Right,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::Left, Self::Right];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    pub(super) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 90, 0, 1 + self as u8)
    }
}

/// Order to a host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order")]
pub(super) enum Order {
    LinkStart,
    LinkKill,
    LinkStop,
    /// Open the sockets; with `listen`, also a listening TCP socket.
    Sockets {
        listen: bool,
    },
    /// Open this number of additional TCP connections.
    Connect {
        streams: u32,
    },
    /// Start or pause the TCP senders.
    TcpRun {
        on: bool,
    },
    /// End every TCP stream normally and report.
    TcpFinish,
    /// Send datagrams until stopped: one per flow every `pace_us`, or without `pace_us` as soon as
    /// the receiver acknowledges.
    UdpStart {
        run: u32,
        pace_us: Option<u64>,
    },
    UdpStop,
    /// Report the result of a run.
    UdpReport {
        run: u32,
    },
}

/// One end's report on one TCP stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct StreamReport {
    pub(super) id: u32,
    pub(super) sent: u64,
    /// Bytes received and verified.
    pub(super) verified: u64,
    /// Position of the first wrong byte.
    pub(super) wrong_at: Option<u64>,
    /// Error that ended the stream early.
    pub(super) error: Option<String>,
    /// Pauses of the received data: start and end (nanoseconds of the monotonic clock).
    pub(super) gaps: Vec<(u64, u64)>,
}

/// Counters of a host's kernel.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct KernelCounters {
    /// Frames that the TAP dropped before they reached the link.
    pub(super) tap_dropped: u64,
    /// Datagrams dropped because the socket's buffer was full.
    pub(super) socket_full: u64,
    /// Datagrams with a wrong checksum.
    pub(super) bad_checksum: u64,
    /// Retransmitted TCP segments.
    pub(super) retransmitted: u64,
}

/// Event of a host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub(super) enum Event {
    /// The host runs in its namespaces.
    Ready,
    LinkStarted {
        at: u64,
    },
    LinkLine {
        life: usize,
        at: u64,
        line: Value,
    },
    /// The link's output has ended. `words` contains the last lines of its stderr.
    LinkSilent {
        life: usize,
        words: String,
    },
    LinkKilled {
        at: u64,
    },
    LinkEnded {
        life: usize,
        status: String,
    },
    Sockets,
    Connected {
        streams: u32,
    },
    /// Verified bytes of each TCP stream (in the client's order), and verified datagrams, since the
    /// start.
    Progress {
        at: u64,
        tcp: Vec<u64>,
        udp: u64,
    },
    TcpDone {
        streams: Vec<StreamReport>,
    },
    UdpSent {
        run: u32,
        sent: Vec<u64>,
        refused: u64,
        nanos: u64,
    },
    UdpReport {
        run: u32,
        flows: Vec<Tally>,
        kernel: KernelCounters,
    },
    /// The host cannot continue.
    Broken {
        what: String,
    },
}

/// Current time in nanoseconds of the monotonic clock, which all processes of a machine share.
pub(super) fn now() -> u64 {
    clock::monotonic().as_nanos() as u64
}

/// Milliseconds between two times.
pub(super) fn millis(from: u64, to: u64) -> f64 {
    Duration::from_nanos(to.saturating_sub(from)).as_secs_f64() * 1e3
}
