//! Hosts and command lines of each rig.

use mqnet_testkit::{Host, World};

use crate::rig::Site;
use crate::shape::{Path, Rig, Shape};

/// Channels at the beginning of each round.
pub(crate) const CHANNELS: u16 = 4;
/// KiB of mqnet's rings at the beginning of each round.
pub(crate) const RING_KIB: u32 = 128;
/// Configuration file of the daemon.
pub(crate) const CONFIG: &str = "mqnet.toml";
/// Queue length of a kernel device, so that a busy machine causes no loss.
const QUEUE: &str = "4000";

/// Address of a host on a path.
pub(crate) fn address(path: &Path, host: usize) -> String {
    format!("10.30.{}.{}", path.net, host + 1)
}

fn tap(path: &Path, host: &Host, name: &str, last: usize) -> String {
    let (ns, net) = (host.name(), path.net);
    format!(
        "tap:{name},netns={ns},address={}/24,mac=02:00:00:00:0{net}:0{last},persist",
        address(path, last)
    )
}

/// Prepares both hosts: no IPv6 traffic, no reverse-path filter, and a veth for the AF_XDP
/// interface if the shape has one.
pub(crate) fn prepare(shape: &Shape, world: &World) {
    for host in [&world.a, &world.b] {
        for set in ["ipv6.conf.all.disable_ipv6=1", "ipv6.conf.default.disable_ipv6=1"]
            .into_iter()
            .chain(["ipv4.conf.all.rp_filter=0", "ipv4.conf.default.rp_filter=0"])
        {
            host.run(&["sysctl", "-qw", &format!("net.{set}")]);
        }
    }
    if shape.paths.iter().any(|path| path.kind == "xdp") {
        wire(world, &shape.paths);
    }
}

/// Creates a veth of four queues: `nic` at host a, `xp` at host b.
fn wire(world: &World, paths: &[Path]) {
    let queues = ["numrxqueues", "4", "numtxqueues", "4"];
    let mut words = vec!["ip", "link", "add", "nic"];
    words.extend(queues);
    words.extend(["type", "veth", "peer", "name", "xp"]);
    words.extend(queues);
    words.extend(["netns", world.b.name()]);
    world.a.run(&words);
    world.a.run(&["ip", "link", "set", "nic", "up"]);
    world.b.run(&["ip", "link", "set", "xp", "up"]);
    // A veth does not fill in offloaded checksums.
    world.b.run(&["ethtool", "-K", "xp", "tx", "off"]);
    for path in paths.iter().filter(|path| path.kind == "xdp") {
        let address = format!("{}/24", address(path, 1));
        world.b.run(&["ip", "address", "add", &address, "dev", "xp"]);
    }
}

/// Sets long rings on the kernel's devices.
pub(crate) fn lengthen(shape: &Shape, world: &World) {
    for path in &shape.paths {
        for (host, devices) in [&world.a, &world.b].into_iter().zip(path.devices) {
            for device in devices.iter().filter(|device| !matches!(**device, "nic" | "xp")) {
                host.run(&["ip", "link", "set", "dev", device, "txqueuelen", QUEUE]);
            }
        }
    }
}

/// Configuration of the daemon: the paths of the shape, and an optional additional link.
pub(crate) fn config_of(shape: &Shape, world: &World, other: Option<u16>) -> String {
    let (a, b) = (&world.a, &world.b);
    let mut text = String::new();
    for path in &shape.paths {
        let [here, there] = match path.kind {
            "tap" => [tap(path, a, "ta", 0), tap(path, b, "tb", 1)],
            "xdp" => [tap(path, a, "xt", 0), format!("xdp:nic,netns={}", a.name())],
            _ => {
                let second = format!(
                    "tap:gb1,netns={},mac=02:00:00:00:03:01,address=10.31.3.2/24,persist",
                    b.name()
                );
                let first = tap(path, b, "gb0", 1);
                [tap(path, a, "ga", 0), format!("{first}+{second},on-member-loss=degrade")]
            }
        };
        text +=
            &format!("[link.{}]\na = '{here}'\nb = '{there}'\nchannels = {CHANNELS}\n", path.kind);
    }
    if let Some(channels) = other {
        let ns = a.name();
        text +=
            &format!("[link.other]\na = 'tap:ot,netns={ns}'\nb = 'null:'\nchannels = {channels}\n");
    }
    text
}

/// Arguments of a process.
pub(crate) fn words(site: &Site, at: usize) -> Vec<String> {
    let Site { shape, world, control, queues, .. } = site;
    let socket = world.file("x.sock").display().to_string();
    let link = |host: usize, other: String| {
        let path = &shape.paths[0];
        let name = path.devices[host][0];
        let tap = tap(path, [&world.a, &world.b][host], name, host);
        let words = ["link", "--json", &tap, &other, "--channels", &queues.to_string()];
        words.map(str::to_owned).to_vec()
    };
    let bridge = |name: &str, socket: String| format!("ntb:{socket},name={name}");
    match (shape.rig, at) {
        (Rig::Daemon, _) => {
            vec!["daemon".into(), "-f".into(), control.file(CONFIG).display().to_string()]
        }
        (Rig::Ntb, at) => link(at, bridge(["nwa", "nwb"][at], socket)),
        (Rig::Ivshmem, 2) => ["ivshmem-server", &socket, "--size", "16M", "--vectors", "5"]
            .map(str::to_owned)
            .to_vec(),
        (Rig::Ivshmem, at) => link(at, bridge(["iwa", "iwb"][at], format!("ivshmem={socket}"))),
        (Rig::Vhost, 0) => link(0, format!("vhost-user:{socket},name=card")),
        (Rig::Testpmd, 0) => link(0, format!("vhost-user:{socket},connect,name=pcard")),
        // Limit the queues: testpmd always offers 128, and each queue needs memory.
        (Rig::Testpmd, _) => {
            let socket = world.file("y.sock").display().to_string();
            link(1, format!("virtio-user:{socket},queues={CHANNELS},name=pnic"))
        }
        (Rig::Vhost, _) => link(1, format!("virtio-user:{socket},name=nic0")),
    }
}
