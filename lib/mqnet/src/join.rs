//! Joins a function of the kernel with the program's port.

use mqnet_control_api::LinkSpec;
use mqnet_engine::{Cpus, EgressConfig, LinkConfig, LinkError};
use mqnet_host::HostedLink;
use mqnet_netdev::Function;
use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_port::{DriverError, LinkDriver, PortConfig, PortFunction, Receiver, Sender};
use mqnet_wire::Layer;

use crate::device::Hosted;
use crate::{Device, OpenError};

/// Name of the program's end among the netdevs of the link.
const PROGRAM: &str = "program";

/// Configuration common to all kinds of devices.
pub(crate) struct Shape {
    /// Endpoint address, for errors.
    pub(crate) name: String,
    pub(crate) queues: u16,
    pub(crate) layer: Layer,
    pub(crate) mtu: u32,
    /// Largest MTU that the open device supports; `None` stands for `mtu`.
    pub(crate) mtu_max: Option<u32>,
    pub(crate) depth: u32,
    pub(crate) qdisc: String,
    pub(crate) workers: Option<usize>,
}

/// Checked configuration and the program's port, before the port is linked.
pub(crate) struct Join {
    shape: Shape,
    port: PortFunction,
    ends: Vec<(Receiver, Sender)>,
}

impl Join {
    /// Checks every option and creates the port, without a change of the system.
    pub(crate) fn prepare(shape: Shape) -> Result<Self, OpenError> {
        let fail = |what: String| OpenError(format!("{}: {what}", shape.name));
        let queues = shape.queues;
        if !(1..=CHANNELS_MAX).contains(&queues) {
            return Err(fail(format!("queues: {queues}: 1 to {CHANNELS_MAX}")));
        }
        if shape.workers == Some(0) {
            return Err(fail("workers: 0: at least 1".to_owned()));
        }
        let (port, ends) = PortFunction::open(PortConfig {
            name: shape.name.clone(),
            channels: queues,
            layer: shape.layer,
            mtu: shape.mtu,
            mtu_max: shape.mtu_max.unwrap_or(shape.mtu),
            depth: shape.depth,
        })
        .map_err(|e| OpenError(e.to_string()))?;
        Ok(Self { shape, port, ends })
    }

    /// Starts the threads. `kind` is the kind of the function's endpoint, `device` the kernel's
    /// name of the device.
    pub(crate) fn start(
        self,
        kind: &str,
        function: Box<dyn Function>,
        device: String,
    ) -> Result<Device, OpenError> {
        let Self { shape: Shape { name, queues, qdisc, workers, .. }, port, ends } = self;
        let fail = |what: String| OpenError(format!("{name}: {what}"));
        // Options of the second function, which is the port.
        let qdisc = Some(qdisc).filter(|words| !words.trim().is_empty());
        let egress = [EgressConfig::default(), EgressConfig { qdisc, ..EgressConfig::default() }];
        let config = LinkConfig {
            channels: Some(queues),
            workers,
            // Workers are not pinned: they share the CPUs with the program's threads.
            cpus: Cpus::Float,
            egress,
            ..LinkConfig::default()
        };
        let spec = LinkSpec {
            a: format!("{kind}:{device}"),
            b: "null:".to_owned(),
            channels: Some(queues),
            workers: None,
            cpus: None,
            poll_window: None,
        };
        let names = [device.clone(), PROGRAM.to_owned()];
        let checked = mqnet_address::check(&spec).map_err(|e| fail(e.message))?;
        let wrap = move |link| Hosted::new(HostedLink::around(link, spec, checked, names));
        let driver = LinkDriver::start_with(function, port, config, wrap).map_err(|e| match e {
            DriverError::Link(LinkError::Qdisc(e)) => fail(format!("qdisc: {e}")),
            other => match other.to_string() {
                // Errors of a function begin with its address.
                text if text.starts_with(&name) => OpenError(text),
                text => fail(text),
            },
        })?;
        let opened = driver.plan().channels;
        if opened < queues {
            return Err(fail(format!("queues: {queues}: the kernel gives only {opened}")));
        }
        Ok(Device::new(device, ends, driver))
    }
}
