//! Two guests side by side: over ivshmem, and over virtio cards at a bridge of the host.

mod report;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use mqnet_sysio::namespace;

pub use report::{Kind, Line, Report};

use crate::guest::Guest;
use crate::kernel::Kernel;
use crate::store::Store;
use crate::tools::Tools;
use crate::{Result, Running, modules, programs};

const SCRIPT: &str = include_str!("../../scripts/bridge.sh");

/// The kernel's own generator of frames.
const GENERATOR: &str = "pktgen";

/// Names of the TAPs, and of the scripts.
const NAMES: [&str; 2] = ["asks", "serves"];
/// What a round is made of, and seconds that a run may take beyond its own: for iperf3 to find its
/// server, on a busy machine more than once.
const RUNS: u32 = 13;
const EACH_MORE: u32 = 60;
/// Boot of both, with the links.
const BOOT: u32 = 300;
/// A server binds its socket at once, but for the machine's load.
const PATIENCE: Duration = Duration::from_secs(30);

/// What to compare, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Channels of the links.
    pub channels: u32,
    /// Queue pairs of the virtio cards.
    pub queues: u32,
    /// Rounds, each with one run of every kind over every path.
    pub rounds: u32,
    /// Seconds of a run.
    pub seconds: u32,
}

impl Default for Settings {
    /// One channel and queue: emulated, the four CPUs of two guests share those of the host, and
    /// with two channels four workers that poll take them from each other and from both stacks (UDP
    /// 0.55 to 0.7 of virtio on a host of two CPUs, 1.0 and 1.16 with one).
    fn default() -> Self {
        Self { channels: 1, queues: 1, rounds: 5, seconds: 5 }
    }
}

/// Ends with its owner.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Either fails for one that has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lends both guests a memory; `vectors` wake each.
fn serve(socket: &Path, vectors: u32) -> Result<Server> {
    let mut command = Command::new(programs::program("mqnet"));
    command.arg("ivshmem-server").arg(socket).args(["--vectors", &vectors.to_string()]);
    let child = command.stdout(Stdio::null()).spawn();
    let mut server = Server(child.map_err(|e| format!("{command:?}: {e}"))?);
    let mut waited = Duration::ZERO;
    while !socket.exists() {
        if let Some(status) = server.0.try_wait()? {
            return Err(format!("{command:?}: {status}").into());
        }
        if waited > PATIENCE {
            return Err(format!("{command:?}: no socket").into());
        }
        sleep(Duration::from_millis(50));
        waited += Duration::from_millis(50);
    }
    Ok(server)
}

fn ip(words: &str) -> Result<()> {
    let output = Command::new("ip").args(words.split(' ')).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// A bridge with two ports, in a network namespace that ends with this process. QEMU opens a TAP of
/// several queues only as one of several.
fn make_bridge(queues: u32) -> Result<()> {
    let several = if queues > 1 { " multi_queue" } else { "" };
    let refused = |e| format!("a network namespace: {e} (this needs root)");
    namespace::enter_new_net().map_err(refused)?;
    ip("link add br0 type bridge")?;
    for name in NAMES {
        ip(&format!("tuntap add {name} mode tap{several} vnet_hdr"))?;
        ip(&format!("link set {name} master br0 up"))?;
    }
    ip("link set br0 up")
}

/// The module of the kernel's generator.
fn generator() -> Result<Vec<u8>> {
    let store = Store::open()?;
    let tools = Tools::get(&store)?;
    modules::one(&tools, &Kernel::V7_3.get(&store, &tools)?, GENERATOR)
}

/// One of the two guests.
fn guest(settings: &Settings, me: usize, devices: &[(PathBuf, u32)]) -> Guest {
    let Settings { channels, queues, rounds, seconds } = settings;
    let name = NAMES[me];
    let me = me + 1;
    let head = format!(
        "ME={me} CHANNELS={channels} CARD_QUEUES={queues} ROUNDS={rounds} SECONDS_EACH={seconds}\n"
    );
    let several = if *queues > 1 { format!(",queues={queues}") } else { String::new() };
    let mq = if *queues > 1 { ",mq=on" } else { "" };
    let tap = format!("tap,id=n0,ifname={name},script=no,downscript=no{several}");
    let card = format!("virtio-net-pci,netdev=n0,mac=02:00:00:00:08:0{me}{mq}");
    let limit = rounds * RUNS * (seconds + EACH_MORE) + BOOT;
    let mut guest = Guest::new(Kernel::V7_3, &format!("bench-{name}"))
        .memory(512)
        .limit(Duration::from_secs(limit.into()))
        .boot_words("intel_iommu=on")
        .qemu(&["-device", "intel-iommu,intremap=on", "-netdev", &tap, "-device", &card])
        .script("bridge", &(head + SCRIPT));
    for (n, (socket, vectors)) in devices.iter().enumerate() {
        let chardev = format!("socket,id=iv{n},path={}", socket.display());
        let device = format!("ivshmem-doorbell,chardev=iv{n},vectors={vectors}");
        guest = guest.qemu(&["-chardev", &chardev, "-device", &device]);
    }
    guest
}

/// Runs the benchmark. This process leaves its network namespace for one of its own.
pub fn bridge(settings: &Settings) -> Result<Report> {
    make_bridge(settings.queues)?;
    let folder = programs::target().join("guest").join("bench");
    std::fs::create_dir_all(&folder)?;
    let each = settings.channels + 1;
    let devices = [("each", each), ("one", 1), ("frames", each)];
    let devices = devices.map(|(name, vectors)| (folder.join(name), vectors));
    let mut servers = Vec::new();
    for (socket, vectors) in &devices {
        // What an earlier run left; a server that still runs there says so.
        let _ = std::fs::remove_file(socket);
        servers.push(serve(socket, *vectors)?);
    }
    // The ends of the third device.
    let frames = programs::build_one("mqnet-bench", "mqnet-bench")?;
    let with_frames = |guest: Guest| guest.file("bin/mqnet-bench", frames.clone());
    let _serves: Running = with_frames(guest(settings, 1, &devices)).start()?;
    let asks = with_frames(guest(settings, 0, &devices)).file("pktgen.ko", generator()?);
    let outcome = asks.start()?.wait()?;
    Report::read(*settings, &outcome)
}
