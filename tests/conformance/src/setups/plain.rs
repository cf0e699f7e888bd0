//! Functions that do not use the operating system.

use std::ops::RangeInclusive;

use mqnet_group::{GroupConfig, GroupFunction, OnLoss};
use mqnet_netdev::Function;
use mqnet_netdev::loopback::Loopback;
use mqnet_netdev::null::Null;
use mqnet_port::{PortConfig, PortFunction, Receiver, Sender};
use mqnet_wire::Layer;

use super::{Delivery, Setup};

/// Loopback device, or a group of two loopback devices.
pub enum Loopbacks {
    One,
    Group(OnLoss),
}

impl Setup for Loopbacks {
    fn name(&self) -> String {
        match self {
            Self::One => "loopback".to_owned(),
            Self::Group(on_loss) => format!("group of loopbacks ({on_loss:?})"),
        }
    }

    fn rig_name(&self) -> &'static str {
        "loopback"
    }

    fn ends(&self) -> usize {
        1
    }

    fn make(&mut self, _end: usize) -> Box<dyn Function> {
        match self {
            Self::One => Box::new(Loopback::new(4)),
            Self::Group(on_loss) => {
                let members = (0..2).map(|_| Box::new(Loopback::new(4)) as Box<dyn Function>);
                group(members.collect(), *on_loss, 1)
            }
        }
    }

    fn channels(&self) -> RangeInclusive<u16> {
        match self {
            Self::One => 1..=4,
            Self::Group(_) => 2..=4,
        }
    }

    fn delivery(&self) -> Delivery {
        Delivery::Itself
    }
}

/// Group; its first member is the primary.
pub(super) fn group(
    members: Vec<Box<dyn Function>>,
    on_loss: OnLoss,
    seed: u64,
) -> Box<dyn Function> {
    let name = "group".to_owned();
    let config = GroupConfig { name, members, on_loss, primary: Some(0), seed };
    Box::new(GroupFunction::new(config).expect("members that fit"))
}

/// Null device.
pub struct Nothing;

impl Setup for Nothing {
    fn name(&self) -> String {
        "null".to_owned()
    }

    fn rig_name(&self) -> &'static str {
        "null"
    }

    fn ends(&self) -> usize {
        1
    }

    fn make(&mut self, _end: usize) -> Box<dyn Function> {
        Box::new(Null::new(4))
    }

    fn delivery(&self) -> Delivery {
        Delivery::Nowhere
    }
}

/// Port with the program's ends of its channels.
#[derive(Default)]
pub struct Ports {
    pub program: Vec<(Receiver, Sender)>,
}

/// Maximum number of channels of the port.
const PORTS: u16 = 3;

impl Setup for Ports {
    fn name(&self) -> String {
        "port".to_owned()
    }

    fn rig_name(&self) -> &'static str {
        "port"
    }

    fn ends(&self) -> usize {
        1
    }

    fn make(&mut self, _end: usize) -> Box<dyn Function> {
        let layer = Layer::Ethernet;
        let name = "port:test".to_owned();
        let (mtu, mtu_max, depth) = (1500, 1500, 256);
        let config = PortConfig { name, channels: PORTS, layer, mtu, mtu_max, depth };
        let (function, program) = PortFunction::open(config).expect("a port");
        self.program = program;
        Box::new(function)
    }

    fn channels(&self) -> RangeInclusive<u16> {
        1..=PORTS
    }

    fn delivery(&self) -> Delivery {
        Delivery::Outside
    }

    fn send_outside(&mut self, channel: usize, frame: &[u8]) -> bool {
        self.program[channel].1.try_send(frame).is_ok()
    }

    fn take_outside(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut taken = Vec::new();
        for (channel, (receiver, _)) in self.program.iter_mut().enumerate() {
            while let Some(packet) = receiver.try_recv().expect("an open port") {
                taken.push((channel, packet.to_vec()));
            }
        }
        taken
    }
}
