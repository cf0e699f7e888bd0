//! Builder of TUN and TAP devices; its errors name the option.

use std::path::PathBuf;
use std::time::Duration;

use mqnet_netdev::InterfaceAddress;
use mqnet_netdev::limits::MTU_DEFAULT;
use mqnet_tap::{TapConfig, TapFunction, wait_until_active};

use crate::Device;
use crate::join::{Join, Shape};

/// Longest wait until a device that was set up carries traffic.
const ACTIVE_WITHIN: Duration = Duration::from_secs(2);

/// Reason why a device could not be opened, with the option to change.
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
    /// Builder of a TUN with this name: at most 15 bytes; the kernel replaces `%d` by a number.
    pub fn builder(name: &str) -> Builder {
        Builder::new(name, true)
    }
}

impl Tap {
    /// Builder of a TAP with this name: at most 15 bytes; the kernel replaces `%d` by a number.
    pub fn builder(name: &str) -> Builder {
        Builder::new(name, false)
    }
}

/// Options of a device; [`open`](Self::open) creates the device.
#[derive(Clone, Debug)]
#[must_use = "`open` creates the device"]
pub struct Builder {
    name: String,
    tun: bool,
    queues: u16,
    addresses: Vec<String>,
    mtu: u32,
    mtu_max: Option<u32>,
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
            mtu_max: None,
            qdisc: String::new(),
            depth: 128,
            workers: None,
            netns: None,
            mac: None,
            persist: false,
        }
    }

    /// Number of queues, 1 to 64 (default: 1). Packets of one flow arrive on one queue. The open
    /// device can use fewer: [`Device::set_channels`].
    pub fn queues(mut self, queues: u16) -> Self {
        self.queues = queues;
        self
    }

    /// Adds an address with its prefix, such as `10.8.0.1/24` or `fd00::1/64`, and sets the device
    /// up. Each call adds one address.
    pub fn address(mut self, address: &str) -> Self {
        self.addresses.push(address.to_owned());
        self
    }

    /// MTU in bytes, 68 to 65535 for a TUN and to 65521 for a TAP (default: 1500).
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// Largest MTU in bytes that [`Device::set_mtu`] can set (default: the MTU at the start). Each
    /// packet of [`depth`](Self::depth) reserves memory for this size, in both directions.
    pub fn mtu_max(mut self, mtu: u32) -> Self {
        self.mtu_max = Some(mtu);
        self
    }

    /// Qdisc for packets that wait for the program, in the syntax of `tc`, such as `fq_codel` or
    /// `fq_codel limit 1000 target 10ms`. Empty: none.
    pub fn qdisc(mut self, words: &str) -> Self {
        words.clone_into(&mut self.qdisc);
        self
    }

    /// Capacity of a queue in packets, in each direction and in addition to the qdisc: 2 to 16384
    /// (default: 128). Packets in the queue are beyond the control of the qdisc, so a smaller value
    /// gives a lower delay.
    pub fn depth(mut self, packets: u32) -> Self {
        self.depth = packets;
        self
    }

    /// Number of worker threads, at least 1 (default: one per queue, at most one per CPU).
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Network namespace of the device, a file such as `/run/netns/NAME` (default: that of this
    /// process).
    pub fn netns(mut self, path: impl Into<PathBuf>) -> Self {
        self.netns = Some(path.into());
        self
    }

    /// Ethernet address of a TAP (default: chosen by the kernel).
    pub fn mac(mut self, mac: [u8; 6]) -> Self {
        self.mac = Some(mac);
        self
    }

    /// Keeps the device when the program ends.
    pub fn persist(mut self) -> Self {
        self.persist = true;
        self
    }

    /// Creates the device, or attaches to an existing one that is not in use, and starts its
    /// threads.
    pub fn open(self) -> Result<Device, OpenError> {
        let kind = if self.tun { "tun" } else { "tap" };
        let (name, queues) = (format!("{kind}:{}", self.name), self.queues);
        let fail = |what: String| OpenError(format!("{name}: {what}"));
        let mut addresses = Vec::new();
        for text in &self.addresses {
            addresses
                .push(text.parse::<InterfaceAddress>().map_err(|e| fail(format!("address: {e}")))?);
        }
        let tap = TapConfig { tun: self.tun, ..TapConfig::default() };
        // Options are checked before any change of the system.
        let join = Join::prepare(Shape {
            name: name.clone(),
            queues,
            layer: tap.layer(),
            mtu: self.mtu,
            mtu_max: self.mtu_max,
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
            // A timeout is not an error: the kernel drops and counts packets until the device is
            // active.
            wait_until_active(self.netns.as_deref(), &device, ACTIVE_WITHIN)
                .map_err(|e| fail(format!("reading the device: {e}")))?;
        }
        Ok(opened)
    }
}
