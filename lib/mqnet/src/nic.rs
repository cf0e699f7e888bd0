//! Network interfaces of the kernel, taken over by the program (AF_XDP).

use std::path::PathBuf;
use std::time::Duration;

use mqnet_af_xdp::{AfXdpConfig, AfXdpFunction, RequestedMode, ZeroCopy};
use mqnet_sysio::namespace;
use mqnet_sysio::nic::Nics;
use mqnet_wire::Layer;

use crate::join::{Join, Shape};
use crate::{Device, OpenError};

/// Longest wait for busy queues: the kernel releases the queues of a closed socket with a delay.
const PATIENCE: Duration = Duration::from_secs(5);

/// A network interface that delivers received frames to the program instead of the network stack
/// (AF_XDP, book/src/reference/af_xdp.md). All RX queues are used, with zero copy if the driver
/// supports it.
#[derive(Debug)]
pub enum Nic {}

impl Nic {
    /// Builder for the interface with this name.
    pub fn builder(name: &str) -> NicBuilder {
        NicBuilder {
            config: AfXdpConfig {
                interface: name.to_owned(),
                patience: Some(PATIENCE),
                ..AfXdpConfig::default()
            },
            queues: None,
            mtu_max: None,
            qdisc: String::new(),
            depth: 128,
            workers: None,
        }
    }
}

/// Options of an interface; [`open`](Self::open) takes the interface over.
#[derive(Clone, Debug)]
#[must_use = "`open` takes the interface over"]
pub struct NicBuilder {
    config: AfXdpConfig,
    queues: Option<u16>,
    mtu_max: Option<u32>,
    qdisc: String,
    depth: u32,
    workers: Option<usize>,
}

impl NicBuilder {
    /// Number of queues of the device, 1 to 64 (default: that of the interface). If the interface
    /// has more, queue `q` of `n` receives from the interface's queues `q`, `q + n`, and so on.
    pub fn queues(mut self, queues: u16) -> Self {
        self.queues = Some(queues);
        self
    }

    /// Sets the number of queues of the interface, and restores the old number at the end (default:
    /// unchanged).
    pub fn set_queues(mut self, queues: u16) -> Self {
        self.config.queues = Some(queues);
        self
    }

    /// Receives frames in the network stack (generic XDP, any driver) instead of in the driver.
    pub fn generic(mut self) -> Self {
        self.config.mode = RequestedMode::Generic;
        self
    }

    /// Requires zero copy: opening fails if the driver does not support it (default: zero copy if
    /// it is supported).
    pub fn zero_copy(mut self) -> Self {
        self.config.zero_copy = ZeroCopy::On;
        self
    }

    /// Size of each ring of the kernel in frames, a power of two from 64 to 8192 (default: 2048 for
    /// up to 8 queues, less for more).
    pub fn ring(mut self, frames: u16) -> Self {
        self.config.ring = Some(frames);
        self
    }

    /// Receives only frames that pass the address filter of the interface (default: all frames).
    pub fn keep_filter(mut self) -> Self {
        self.config.keep_filter = true;
        self
    }

    /// Largest MTU in bytes that [`Device::set_mtu`] can set (default: the MTU of the interface).
    /// Each frame of [`depth`](Self::depth) reserves memory for this size, in both directions.
    pub fn mtu_max(mut self, mtu: u32) -> Self {
        self.mtu_max = Some(mtu);
        self
    }

    /// Qdisc for frames that wait for the program, in the syntax of `tc`. Empty: none.
    pub fn qdisc(mut self, words: &str) -> Self {
        words.clone_into(&mut self.qdisc);
        self
    }

    /// Capacity of a queue in frames, in each direction and in addition to the qdisc: 2 to 16384
    /// (default: 128).
    pub fn depth(mut self, frames: u32) -> Self {
        self.depth = frames;
        self
    }

    /// Number of worker threads, at least 1 (default: one per queue, at most one per CPU).
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Network namespace of the interface, a file such as `/run/netns/NAME` (default: that of this
    /// process).
    pub fn netns(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.netns = Some(path.into());
        self
    }

    /// Takes the interface over and starts the threads. Dropping the device releases the interface.
    ///
    /// # Errors
    ///
    /// The interface does not exist, is down or has no carrier; an option is out of range; another
    /// program uses one of its queues for longer than 5 s; CAP_NET_ADMIN, CAP_NET_RAW or CAP_BPF is
    /// missing.
    pub fn open(self) -> Result<Device, OpenError> {
        let interface = self.config.interface.clone();
        let name = format!("xdp:{interface}");
        let fail = |what: String| OpenError(format!("{name}: {what}"));
        if let Some(ring) = self.config.ring
            && !(ring.is_power_of_two() && (64..=8192).contains(&ring))
        {
            return Err(fail(format!("ring: {ring}: a power of two from 64 to 8192")));
        }
        let nics = match &self.config.netns {
            None => Nics::open(),
            Some(path) => namespace::run_in_net(path, Nics::open)
                .map_err(|e| fail(format!("netns: {}: {e}", path.display())))?,
        };
        let nics = nics.map_err(|e| fail(format!("listing interfaces: {e}")))?;
        let look = nics.interface_state(&interface).map_err(|e| fail(e.to_string()))?;
        let there = match self.config.queues {
            Some(queues) => queues,
            None => nics
                .channels(&interface)
                .map_err(|e| fail(format!("its queues: {e}")))?
                .rx()
                .try_into()
                .unwrap_or(u16::MAX),
        };
        let join = Join::prepare(Shape {
            name: name.clone(),
            queues: self.queues.unwrap_or(there),
            layer: Layer::Ethernet,
            mtu: self.config.mtu.unwrap_or(look.mtu),
            mtu_max: self.mtu_max,
            depth: self.depth,
            qdisc: self.qdisc,
            workers: self.workers,
        })?;
        let function = AfXdpFunction::new(self.config).map_err(|e| OpenError(e.to_string()))?;
        join.start("xdp", Box::new(function), interface)
    }
}
