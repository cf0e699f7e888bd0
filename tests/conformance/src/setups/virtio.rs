//! Device and driver of mqnet at the two ends of a vhost-user socket.

use mqnet_netdev::Function;
use mqnet_vhost_user::{Meet, VhostUserConfig, VhostUserFunction};
use mqnet_virtio_user::{VirtioUserConfig, VirtioUserFunction};

use super::{Loss, Setup};
use crate::rigs::Folder;

/// Number of the end with the device.
pub(crate) const DEVICE: usize = 0;
/// Number of the end with the driver.
pub(crate) const DRIVER: usize = 1;

/// Device as end 0 and driver as end 1.
pub struct Virtio {
    /// True for packed rings.
    pub packed: bool,
    /// True with a control queue.
    pub ctrl: bool,
    /// True with mergeable buffers and checksum offload by the device.
    pub rich: bool,
    /// True if the driver listens and the device connects.
    pub reversed: bool,
    folder: Folder,
}

impl Virtio {
    /// Creates a device and a driver.
    pub fn new(packed: bool, ctrl: bool, rich: bool) -> Self {
        Self { packed, ctrl, rich, reversed: false, folder: Folder::new() }
    }

    /// Swaps the listening and the connecting end.
    pub fn reversed(self) -> Self {
        Self { reversed: true, ..self }
    }
}

impl Setup for Virtio {
    fn name(&self) -> String {
        let Self { packed, ctrl, rich, reversed, .. } = self;
        format!("virtio (packed {packed}, ctrl {ctrl}, rich {rich}, reversed {reversed})")
    }

    fn rig_name(&self) -> &'static str {
        "virtio"
    }

    fn make(&mut self, end: usize) -> Box<dyn Function> {
        let path = self.folder.0.join("v.sock");
        if end == DEVICE {
            let meet = if self.reversed { Meet::Connect(path) } else { Meet::Listen(path) };
            let device = VhostUserFunction::open(VhostUserConfig {
                name: "vhost-user:test".to_owned(),
                meet,
                mac: None,
                mtu: None,
                queues: 4,
                packed: self.packed,
                ctrl: self.ctrl,
            });
            return Box::new(device.expect("a device"));
        }
        let config = VirtioUserConfig {
            packed: self.packed,
            server: self.reversed,
            mergeable: self.rich,
            csum: self.rich,
            queues: Some(4),
            ..VirtioUserConfig::new(&path)
        };
        Box::new(VirtioUserFunction::new(config).expect("a driver"))
    }

    fn follows(&self, end: usize) -> Option<usize> {
        (end == DEVICE).then_some(DRIVER)
    }

    /// False only for the driver after [`Loss::Closed`], because a driver gets no notification of a
    /// closed device.
    fn notices(&self, end: usize, loss: Loss) -> bool {
        end == DEVICE || loss == Loss::Killed
    }
}
