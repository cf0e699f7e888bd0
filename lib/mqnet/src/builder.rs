//! Opening a device: every knob, and errors that name it.

use std::path::PathBuf;
use std::time::Duration;

use mqnet_netdev::Address;
use mqnet_netdev::limits::MTU_DEFAULT;
use mqnet_tap::{TapConfig, TapFunction, wait_until_active};

use crate::Device;
use crate::join::{Join, Shape};

/// How long the kernel may take to send through a device that is up.
const ACTIVE_WITHIN: Duration = Duration::from_secs(2);

/// A device could not be opened: what failed, and the knob to turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub(crate) String);

/// A TUN device: IP packets.
#[derive(Debug)]
pub enum Tun {}

/// A TAP device: Ethernet frames.
#[derive(Debug)]
pub enum Tap {}

impl Tun {
    /// Begins to describe a TUN called `name` (at most 15 bytes; may hold a `%d`).
    pub fn builder(name: &str) -> Builder {
        Builder::new(name, true)
    }
}

impl Tap {
    /// Begins to describe a TAP called `name` (at most 15 bytes; may hold a `%d`).
    pub fn builder(name: &str) -> Builder {
        Builder::new(name, false)
    }
}

/// Describes a device; [`open`](Self::open) makes it.
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `open`"]
pub struct Builder {
    name: String,
    tun: bool,
    queues: u16,
    addresses: Vec<String>,
    mtu: u32,
    qdisc: String,
    depth: u32,
    workers: Option<usize>,
    netns: Option<PathBuf>,
    mac: Option<[u8; 6]>,
    persist: bool,
}

impl Builder {
    fn new(name: &str, tun: bool) -> Self {
        Self {
            name: name.to_owned(),
            tun,
            queues: 1,
            addresses: Vec::new(),
            mtu: MTU_DEFAULT,
            qdisc: String::new(),
            depth: 128,
            workers: None,
            netns: None,
            mac: None,
            persist: false,
        }
    }

    /// Queues, 1 to 64 (1). The kernel's packets of one flow come through one queue.
    pub fn queues(mut self, queues: u16) -> Self {
        self.queues = queues;
        self
    }

    /// Adds an address with its prefix, such as `10.8.0.1/24` or `fd00::1/64`, and sets the device
    /// up. Call it again for more.
    pub fn address(mut self, address: &str) -> Self {
        self.addresses.push(address.to_owned());
        self
    }

    /// MTU (1500).
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// Discipline in which packets wait for the program, in tc's words, such as `fq_codel` or
    /// `fq_codel limit 1000 target 10ms`. Empty: none.
    pub fn qdisc(mut self, words: &str) -> Self {
        words.clone_into(&mut self.qdisc);
        self
    }

    /// Packets that a queue holds in each direction, besides its discipline (128). Less is less
    /// delay that the discipline does not see.
    pub fn depth(mut self, packets: u32) -> Self {
        self.depth = packets;
        self
    }

    /// Threads that move packets (one a queue, at most one a CPU).
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Network namespace for the device, a file such as `/run/netns/NAME` (this process's).
    pub fn netns(mut self, path: impl Into<PathBuf>) -> Self {
        self.netns = Some(path.into());
        self
    }

    /// Ethernet address of a TAP (the kernel's choice).
    pub fn mac(mut self, mac: [u8; 6]) -> Self {
        self.mac = Some(mac);
        self
    }

    /// Keeps the device when the program ends.
    pub fn persist(mut self) -> Self {
        self.persist = true;
        self
    }

    /// Makes the device (or takes one that is there and free) and starts its threads.
    pub fn open(self) -> Result<Device, OpenError> {
        let kind = if self.tun { "tun" } else { "tap" };
        let (name, queues) = (format!("{kind}:{}", self.name), self.queues);
        let fail = |what: String| OpenError(format!("{name}: {what}"));
        let mut addresses = Vec::new();
        for text in &self.addresses {
            addresses.push(text.parse::<Address>().map_err(|e| fail(format!("address: {e}")))?);
        }
        let tap = TapConfig { tun: self.tun, ..TapConfig::default() };
        // Checks its knobs, before the system is touched.
        let join = Join::prepare(Shape {
            name: name.clone(),
            queues,
            layer: tap.layer(),
            mtu: self.mtu,
            depth: self.depth,
            qdisc: self.qdisc,
            workers: self.workers,
        })?;
        let is_up = !addresses.is_empty();
        let tap = TapFunction::open(TapConfig {
            name: self.name,
            netns: self.netns.clone(),
            mac: self.mac,
            mtu: Some(self.mtu),
            addresses,
            persist: self.persist,
            ..tap
        })
        .map_err(|e| OpenError(e.to_string()))?;
        let device = tap.device().to_owned();
        let opened = join.start("tap", Box::new(tap), device.clone())?;
        if is_up {
            // Later is no failure: the kernel drops, and counts, what is sent before.
            wait_until_active(self.netns.as_deref(), &device, ACTIVE_WITHIN)
                .map_err(|e| fail(format!("reading the device: {e}")))?;
        }
        Ok(opened)
    }
}
