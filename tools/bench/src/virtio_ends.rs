//! Device and driver of mqnet at the two ends of a vhost-user connection, on one thread for
//! instruction counts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mqnet_engine::{Direction, Lane, LaneId};
use mqnet_netdev::{Caps, Channel, Function, LinkStatus, Plan, QueuePairStats};
use mqnet_sysio::clock;

use super::child::RunFolder;
use super::ntb_ends::first;
use super::traffic::{self, Role, Traffic};
use super::{Burst, Result};
use mqnet_daemon::endpoint;

/// Parameters of a counted section.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) bytes: usize,
    pub(super) packed: bool,
    /// True for the direction from the driver to the device.
    pub(super) to_device: bool,
}

/// Creates a closure that moves frames from one end to the other. The two lanes are polled
/// alternately, in place of two workers.
pub(super) fn burst(shape: &Shape) -> Result<Burst> {
    let folder = RunFolder::new()?;
    let caps = Traffic::new(Role::Sink, 1).caps();
    let [mut device, mut driver] = open(&folder.path, shape.packed, &caps)?;
    wait_for(&mut *driver)?;
    let plan = Plan::join(&driver.caps(), &caps)?;
    let there = first(driver.open(&plan)?)?;
    wait_for(&mut *device)?;
    let here = first(device.open(&Plan::join(&device.caps(), &caps)?)?)?;
    let stats = [device.stats()[0].clone(), driver.stats()[0].clone()];
    let (mut send, mut receive) = lanes(shape, &plan, [here, there], &stats)?;
    Ok(Box::new(move || {
        let _alive = (&folder, &device, &driver);
        let sent = send.poll(clock::monotonic).map_or(0, |p| p.frames);
        let _ = receive.poll(clock::monotonic);
        sent
    }))
}

fn open(folder: &Path, packed: bool, caps: &Caps) -> Result<[Box<dyn Function>; 2]> {
    let socket = folder.join("virtio.sock");
    let socket = socket.display();
    let open = |address: String| -> Result<Box<dyn Function>> {
        let mut function = endpoint::open(mqnet_address::parse(&address)?, Vec::new())?.function;
        function.set_partner(caps);
        Ok(function)
    };
    let device = open(format!("vhost-user:{socket}"))?;
    let layout = if packed { "on" } else { "off" };
    let driver = open(format!("virtio-user:{socket},queues=1,packed={layout}"))?;
    Ok([device, driver])
}

fn wait_for(function: &mut dyn Function) -> Result<()> {
    let mut why = String::new();
    for _ in 0..5000 {
        match function.poll_link(clock::monotonic()) {
            LinkStatus::Up { .. } => return Ok(()),
            LinkStatus::Down(reason) => why = reason,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("{}: {why}", function.name()).into())
}

/// Lane into the virtqueue and lane out of it.
fn lanes(
    shape: &Shape,
    plan: &Plan,
    [device, driver]: [Channel; 2],
    [of_device, of_driver]: &[Arc<QueuePairStats>; 2],
) -> Result<(Lane, Lane)> {
    let stats: [Arc<QueuePairStats>; 2] = [Arc::default(), Arc::default()];
    let source = traffic::channel(Role::Source(shape.bytes), &stats[0], traffic::share(1));
    let sink = traffic::channel(Role::Sink, &stats[1], traffic::share(1));
    let (into, out, counts) = if shape.to_device {
        (driver.tx, device.rx, of_driver)
    } else {
        (device.tx, driver.rx, of_device)
    };
    let id = LaneId { set: 0, channel: 0, way: Direction::AToB };
    let max = plan.frame_max;
    let send = Lane::new(id, source.rx, into, max, None, counts.clone())?;
    Ok((send, Lane::new(id, out, sink.tx, max, None, stats[1].clone())?))
}
