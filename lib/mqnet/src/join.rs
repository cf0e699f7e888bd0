//! A function of the kernel and the program's end, made one link.

use mqnet_control_api::LinkSpec;
use mqnet_engine::{Cpus, EgressConfig, LinkConfig, LinkError};
use mqnet_host::HostedLink;
use mqnet_netdev::Function;
use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_port::{Driver, DriverError, PortConfig, PortFunction, Receiver, Sender};
use mqnet_wire::Layer;

use crate::device::Hosted;
use crate::{Device, OpenError};

/// Name of the program's end among the netdevs of the link.
const PROGRAM: &str = "program";

/// What a device is to be, whatever carries it.
pub(crate) struct Shape {
    /// Its address, for errors.
    pub(crate) name: String,
    pub(crate) queues: u16,
    pub(crate) layer: Layer,
    pub(crate) mtu: u32,
    pub(crate) depth: u32,
    pub(crate) qdisc: String,
    pub(crate) workers: Option<usize>,
}

/// The program's end, ready.
pub(crate) struct Join {
    shape: Shape,
    port: PortFunction,
    ends: Vec<(Receiver, Sender)>,
}

impl Join {
    /// Checks every knob and makes the program's end; the system is not touched.
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
            depth: shape.depth,
        })
        .map_err(|e| OpenError(e.to_string()))?;
        Ok(Self { shape, port, ends })
    }

    /// Starts the threads. `kind` is the kind of the function's endpoint, `device` its name in the
    /// kernel.
    pub(crate) fn start(
        self,
        kind: &str,
        function: Box<dyn Function>,
        device: String,
    ) -> Result<Device, OpenError> {
        let Self { shape: Shape { name, queues, qdisc, workers, .. }, port, ends } = self;
        let fail = |what: String| OpenError(format!("{name}: {what}"));
        // Packets that leave through the port: the second function of the link.
        let qdisc = Some(qdisc).filter(|words| !words.trim().is_empty());
        let egress = [EgressConfig::default(), EgressConfig { qdisc, ..EgressConfig::default() }];
        let config = LinkConfig {
            channels: Some(queues),
            workers,
            // The program's own threads have the CPUs too.
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
        let driver = Driver::start_with(function, port, config, wrap).map_err(|e| match e {
            DriverError::Link(LinkError::Qdisc(e)) => fail(format!("qdisc: {e}")),
            other => match other.to_string() {
                // A function says its name itself.
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
