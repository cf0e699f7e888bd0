//! Paths between two guests: mqnet over ivshmem, and virtio-net devices at a bridge of the host.

mod report;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use mqnet_sysio::namespace;

pub(super) use report::spread;
pub use report::{Kind, Line, Report};

use crate::guest::Guest;
use crate::kernel::Kernel;
use crate::store::Store;
use crate::tools::Tools;
use crate::{Result, Running, modules, programs};

const SCRIPT: &str = include_str!("../../scripts/bridge.sh");

/// Kernel module of the packet generator.
const GENERATOR: &str = "pktgen";

/// Names of the TAPs and of the guests: client, server.
const NAMES: [&str; 2] = ["asks", "serves"];
/// Number of runs in a round, and seconds of each run in addition to its traffic. On a busy
/// machine, iperf3 may need several attempts to find its server.
const RUNS: u32 = 13;
const EACH_MORE: u32 = 60;
/// Seconds for the boot of both guests and the start of their links.
const BOOT: u32 = 300;
/// Time limit for a server to bind its socket, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Channels, queues, rounds and duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Channels of the links.
    pub channels: u32,
    /// Queue pairs of the virtio-net devices.
    pub queues: u32,
    /// Rounds, each with one run of every kind over every path.
    pub rounds: u32,
    /// Seconds of a run.
    pub seconds: u32,
}

impl Default for Settings {
    /// One channel and one queue. The emulated CPUs of two guests share the CPUs of the host. With
    /// two channels, the four polling workers would compete with each other and with both network
    /// stacks.
    fn default() -> Self {
        Self { channels: 1, queues: 1, rounds: 5, seconds: 5 }
    }
}

/// Server process; killed on drop.
pub(super) struct Server(pub(super) Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an ivshmem server, with `vectors` interrupt vectors for each peer.
pub(super) fn serve(socket: &Path, vectors: u32) -> Result<Server> {
    let mut command = Command::new(programs::program("mqnet"));
    command.arg("ivshmem-server").arg(socket).args(["--vectors", &vectors.to_string()]);
    let child = command.stdout(Stdio::null()).spawn();
    let mut server = Server(child.map_err(|e| format!("{command:?}: {e}"))?);
    wait_for(socket, &mut server)?;
    Ok(server)
}

/// Waits until a server has bound its socket. An error if the server ends or the time limit
/// expires.
pub(super) fn wait_for(socket: &Path, server: &mut Server) -> Result<()> {
    let mut waited = Duration::ZERO;
    while !socket.exists() {
        if let Some(status) = server.0.try_wait()? {
            return Err(format!("server of {}: {status}", socket.display()).into());
        }
        if waited > PATIENCE {
            return Err(format!("{}: no socket", socket.display()).into());
        }
        sleep(Duration::from_millis(50));
        waited += Duration::from_millis(50);
    }
    Ok(())
}

fn ip(words: &str) -> Result<()> {
    let output = Command::new("ip").args(words.split(' ')).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Creates a bridge with two TAPs in a network namespace that ends with this process. QEMU opens a
/// TAP with several queues only in multi-queue mode.
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

/// Content of the kernel module `pktgen`.
fn generator() -> Result<Vec<u8>> {
    let store = Store::open()?;
    let tools = Tools::get(&store)?;
    modules::one(&tools, &Kernel::V7_3.get(&store, &tools)?, GENERATOR)
}

/// Configures one of the two guests.
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

/// Runs the benchmark. The calling thread enters a new network namespace.
pub fn bridge(settings: &Settings) -> Result<Report> {
    make_bridge(settings.queues)?;
    let folder = programs::target().join("guest").join("bench");
    std::fs::create_dir_all(&folder)?;
    let each = settings.channels + 1;
    let devices = [("each", each), ("one", 1), ("frames", each)];
    let devices = devices.map(|(name, vectors)| (folder.join(name), vectors));
    let mut servers = Vec::new();
    for (socket, vectors) in &devices {
        // Remove the socket of an earlier run, if any.
        let _ = std::fs::remove_file(socket);
        servers.push(serve(socket, *vectors)?);
    }
    // Program that sends and receives the frames of the third device.
    let frames = programs::build_one("mqnet-bench", "mqnet-bench")?;
    let with_frames = |guest: Guest| guest.file("bin/mqnet-bench", frames.clone());
    let _serves: Running = with_frames(guest(settings, 1, &devices)).start()?;
    let asks = with_frames(guest(settings, 0, &devices)).file("pktgen.ko", generator()?);
    let outcome = asks.start()?.wait()?;
    Report::read(*settings, &outcome)
}
