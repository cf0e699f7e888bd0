//! VDUSE device of this kernel and a TAP, joined by a kernel bridge.

use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::thread::JoinHandle;

use mqnet_netdev::Function;
use mqnet_tap::{TapConfig, TapFunction};
use mqnet_vhost_user::vduse::{VduseConfig, VduseFunction};

use super::Setup;
use super::kernel::{ip, until_forwarding};

/// Names of the device (and its netdev) and of the TAP.
const NAMES: [&str; 2] = ["v0", "tb"];

/// VDUSE device as end 0 and TAP as end 1. A test needs its own kernel, because VDUSE devices
/// belong to no namespace.
pub struct Vduse {
    packed: bool,
    /// Thread that unbinds the driver: the unbinding blocks until the test's channels release the
    /// rings.
    unbinding: Option<JoinHandle<()>>,
}

impl Vduse {
    /// Creates the setup with packed or split rings.
    pub fn new(packed: bool) -> Self {
        ip("link add br0 type bridge mcast_snooping 0");
        ip("link set br0 up");
        Self { packed, unbinding: None }
    }
}

impl Drop for Vduse {
    fn drop(&mut self) {
        ip("link del br0");
    }
}

/// Name of the netdev of the vdpa device; `None` if the netdev does not exist.
fn netdev() -> Option<String> {
    let card = fs::read_dir("/sys/bus/vdpa/devices/v0").ok()?;
    let nets = card.filter_map(|entry| fs::read_dir(entry.ok()?.path().join("net")).ok());
    let names =
        nets.flat_map(|net| net.filter_map(|entry| entry.ok()?.file_name().into_string().ok()));
    names.into_iter().next()
}

fn join(name: &str) {
    ip(&format!("link set {name} master br0"));
    ip(&format!("link set {name} up"));
}

fn drivers(action: &str) -> PathBuf {
    PathBuf::from("/sys/bus/vdpa/drivers/virtio_vdpa").join(action)
}

impl Setup for Vduse {
    fn name(&self) -> String {
        format!("vduse (packed {})", self.packed)
    }

    fn rig_name(&self) -> &'static str {
        "vduse"
    }

    fn make(&mut self, end: usize) -> Box<dyn Function> {
        let name = NAMES[end].to_owned();
        let function: Box<dyn Function> = match end {
            0 => {
                let config = VduseConfig {
                    name: "vduse:v0".to_owned(),
                    device: name,
                    mac: None,
                    mtu: None,
                    packed: self.packed,
                    persist: false,
                };
                Box::new(VduseFunction::open(config).expect("a card"))
            }
            _ => {
                let config = || TapConfig { name: name.clone(), ..TapConfig::default() };
                Box::new(mqnet_testkit::until("a TAP", || TapFunction::open(config()).ok()))
            }
        };
        join(NAMES[end]);
        function
    }

    fn channels(&self) -> RangeInclusive<u16> {
        1..=1
    }

    /// The kernel at each end drops frames when a queue is full.
    fn lossless(&self) -> bool {
        false
    }

    fn frame_max(&self) -> usize {
        1514
    }

    fn opened(&mut self, end: usize, function: &mut dyn Function) {
        function.set_carrier(true);
        until_forwarding(NAMES[end]);
    }

    fn unplug(&mut self) -> Vec<usize> {
        let unbind = || fs::write(drivers("unbind"), "v0").expect("a driver that lets go");
        self.unbinding = Some(std::thread::spawn(unbind));
        vec![0]
    }

    fn plug(&mut self) {
        if let Some(thread) = self.unbinding.take() {
            thread.join().expect("it is unbound");
        }
        if !PathBuf::from("/sys/bus/vdpa/devices/v0").exists() {
            // The VDUSE device no longer exists, because it ends with its process.
            return;
        }
        fs::write(drivers("bind"), "v0").expect("a driver that takes it");
        let name = mqnet_testkit::until("a netdev", netdev);
        if name != NAMES[0] {
            ip(&format!("link set {name} name {}", NAMES[0]));
        }
        join(NAMES[0]);
    }
}
