//! An interface of the kernel, taken over.

use std::path::PathBuf;
use std::time::Duration;

use mqnet_af_xdp::{AfXdpConfig, AfXdpFunction, ModeWish, ZeroCopy};
use mqnet_sysio::namespace;
use mqnet_sysio::nic::Nics;
use mqnet_wire::Layer;

use crate::join::{Join, Shape};
use crate::{Device, OpenError};

/// A program that opened the interface before may be gone without the kernel having let go of its
/// queues; there is nobody here who would try again.
const PATIENCE: Duration = Duration::from_secs(5);

/// A network interface whose frames go to the program instead of the kernel's stack (AF_XDP,
/// docs/af_xdp.md): every RX queue of it, zero-copy where the driver can.
#[derive(Debug)]
pub enum Nic {}

impl Nic {
    /// Begins to describe how the interface `name` is taken over.
    pub fn builder(name: &str) -> NicBuilder {
        NicBuilder {
            config: AfXdpConfig {
                interface: name.to_owned(),
                patience: Some(PATIENCE),
                ..AfXdpConfig::default()
            },
            queues: None,
            qdisc: String::new(),
            depth: 128,
            workers: None,
        }
    }
}

/// Describes how an interface is taken over; [`open`](Self::open) does it.
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `open`"]
pub struct NicBuilder {
    config: AfXdpConfig,
    queues: Option<u16>,
    qdisc: String,
    depth: u32,
    workers: Option<usize>,
}

impl NicBuilder {
    /// Queues of the device, 1 to 64 (as many as the interface has). With fewer, queue `q` of `n`
    /// has what arrives on the interface's queues `q`, `q + n`, ...: nothing is without a reader.
    pub fn queues(mut self, queues: u16) -> Self {
        self.queues = Some(queues);
        self
    }

    /// Sets the interface's own number of queues first, and back in the end (left alone).
    pub fn set_queues(mut self, queues: u16) -> Self {
        self.config.queues = Some(queues);
        self
    }

    /// Takes frames in the stack, which any driver can, instead of in the driver.
    pub fn generic(mut self) -> Self {
        self.config.mode = ModeWish::Generic;
        self
    }

    /// The device must move frames into and out of our memory itself; otherwise opening fails
    /// (it does so if it can).
    pub fn zero_copy(mut self) -> Self {
        self.config.zero_copy = ZeroCopy::On;
        self
    }

    /// Frames in each ring of the kernel, a power of two from 64 to 8192 (2048 for up to 8
    /// queues, fewer for more).
    pub fn ring(mut self, frames: u16) -> Self {
        self.config.ring = Some(frames);
        self
    }

    /// Takes only what is sent to the interface's own address (everything).
    pub fn keep_filter(mut self) -> Self {
        self.config.keep_filter = true;
        self
    }

    /// Discipline in which frames wait for the program, in tc's words. Empty: none.
    pub fn qdisc(mut self, words: &str) -> Self {
        words.clone_into(&mut self.qdisc);
        self
    }

    /// Frames that a queue holds in each direction, besides its discipline (128).
    pub fn depth(mut self, frames: u32) -> Self {
        self.depth = frames;
        self
    }

    /// Threads that move frames (one a queue, at most one a CPU).
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Network namespace of the interface, a file such as `/run/netns/NAME` (this process's).
    pub fn netns(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.netns = Some(path.into());
        self
    }

    /// Takes the interface over and starts the threads. Dropped, the device gives it back.
    ///
    /// Fails when there is no such interface, it is down or has no carrier, a knob is out of its
    /// range (it is named), another program has a queue of it (after 5 s, as the kernel takes its
    /// time to let go of queues), or without CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
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
        let nics = nics.map_err(|e| fail(format!("looking at interfaces: {e}")))?;
        let look = nics.look(&interface).map_err(|e| fail(e.to_string()))?;
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
            depth: self.depth,
            qdisc: self.qdisc,
            workers: self.workers,
        })?;
        let function = AfXdpFunction::new(self.config).map_err(|e| OpenError(e.to_string()))?;
        join.start("xdp", Box::new(function), interface)
    }
}
