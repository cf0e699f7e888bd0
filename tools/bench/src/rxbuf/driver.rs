//! Driver and device of mqnet, each in its own process.

use std::path::Path;

use crate::ntb_ends::{Half, Which};
use crate::slices::{self, End};
use crate::{LinkSetup, Result, Session};

/// Processes of driver and device; the device sends.
pub(super) struct Pair {
    // The driver is dropped first: the device uses memory of the driver.
    driver: Half,
    device: Half,
}

impl Pair {
    pub(super) fn start(
        session: &Session,
        folder: &Path,
        layout: &str,
        queues: u16,
        mergeable: bool,
        bytes: usize,
    ) -> Result<Self> {
        let socket = folder.join(format!("rxbuf-{layout}.sock"));
        let socket = socket.to_str().ok_or("the folder for sockets has a strange name")?;
        let [tx_cpu, rx_cpu] = session.cpus;
        let setup = LinkSetup { bytes, tx_cpu, rx_cpu, channels: queues };
        let mrg = if mergeable { "on" } else { "off" };
        let device = Half::start(&setup, Which::Tx, &format!("vhost-user:{socket}"))?;
        // The driver reconnects until the device listens.
        let driver =
            format!("virtio-user:{socket},queues={queues},mrg={mrg},rx-buf-layout={layout}");
        let driver = Half::start(&setup, Which::Rx, &driver)?;
        let mut pair = Self { driver, device };
        if slices::moves_frames(&mut pair)? {
            return Ok(pair);
        }
        let (driver, device) = (pair.driver.tail(), pair.device.tail());
        Err(format!("no frames move: driver: {driver}; device: {device}").into())
    }
}

impl End for Pair {
    fn pids(&self) -> Vec<u32> {
        vec![self.driver.pid(), self.device.pid()]
    }

    fn frames_received(&mut self) -> Result<u64> {
        self.driver.received()
    }
}
