//! Forwarding of frames between two veth pairs: `xdp:` ports, DPDK's AF_XDP ports, and a minimal
//! relay of packet sockets.
//!
//! All devices are in a network namespace of the calling thread, so that every exit path removes
//! them. A sender floods the first pair from the first CPU, the forwarder runs on the second CPU,
//! and the frames received by the second pair count. The sender is slower than two of the three
//! forwarders; therefore draining a backlog without a sender is measured, too.

mod backlog;

use std::cell::Cell;
use std::fs;
use std::process::Stdio;
use std::rc::Rc;

use mqnet_sysio::namespace;

use super::child::{self, Child, RunFolder};
use super::hosts::ip;
use super::hugepages::HugePages;
use super::link::{self, boxed};
use super::report::{Case, Line, Report, Unit};
use super::slices::{self, End};
use super::testpmd::{self, Testpmd};
use super::waiting::SOON;
use super::wires::is_up;
use super::{Result, Session, peers};

const SOURCE: &str = include_str!("../peers/packet.c");
/// Huge pages (2 MiB) for one testpmd.
const HUGE_PAGES: u64 = 256;
/// Switch of IPv6 for new devices: frames that the kernel generates would be counted.
const NO_IPV6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";

/// Forwarder under test.
#[derive(Clone, Copy, Debug)]
enum Forwarder {
    Mqnet,
    Dpdk,
    Relay,
}

const ALL: [Forwarder; 3] = [Forwarder::Mqnet, Forwarder::Dpdk, Forwarder::Relay];

impl Forwarder {
    fn who(self) -> &'static str {
        match self {
            Self::Mqnet => "mqnet",
            Self::Dpdk => "DPDK af_xdp",
            Self::Relay => "packet relay",
        }
    }

    /// Prefix of the names of the forwarder's devices.
    fn word(self) -> &'static str {
        match self {
            Self::Mqnet => "mqnet",
            Self::Dpdk => "dpdk",
            Self::Relay => "relay",
        }
    }
}

pub(super) fn run(session: &Session, report: &mut Report, sizes: &[usize]) -> Result<()> {
    if let Some(wrong) = sizes.iter().find(|bytes| !(60..=1514).contains(*bytes)) {
        return Err(format!("--size {wrong}: from 60 to 1514 is possible on a veth").into());
    }
    if let Err(error) = namespace::enter_new_net() {
        let reason = format!("needs root (a network namespace: {error})");
        let case = |bytes: &usize| {
            let lines = ALL.map(|who| Line::skipped(who.who(), reason.as_str()));
            let (name, unit) = (name(*bytes), Unit::Frames { bytes: *bytes });
            Case::new(name, unit, lines.into())
        };
        report.cases.extend(sizes.iter().map(case));
        return Ok(());
    }
    // A kernel without IPv6 has no such file, and generates no frames.
    let _ = fs::write(NO_IPV6, "1");
    let folder = RunFolder::new()?;
    let pages = HugePages::reserve(HUGE_PAGES);
    report.notes.push(pages.note().to_owned());
    report.notes.push("copy mode on all sides: veth knows no zero copy".to_owned());
    for &bytes in sizes {
        let name = name(bytes);
        session.progress.show(&format!("{name}: starting the processes"));
        let counts = ALL.map(|_| Rc::new(Cell::new([0, 0])));
        let start = |(who, counts): (Forwarder, &Rc<Cell<[u64; 2]>>)| {
            let path = Path::start(session, &folder, &pages, who, bytes, counts);
            (who.who(), path.map(boxed))
        };
        let contenders = ALL.into_iter().zip(&counts).map(start).collect();
        session.check()?;
        report.cases.push(link::row(session, name, bytes, contenders)?);
        report.notes.push(shares(bytes, counts.map(|counts| counts.get())));
        report.cases.push(backlog::peers(session, &folder, &pages, bytes)?);
        report.cases.push(backlog::workers(session, &folder, bytes)?);
    }
    Ok(())
}

/// Share of the sent frames that each forwarder forwarded. A forwarder without loss is as fast as
/// the sender, because the sender's CPU also does the receive half of AF_XDP on a veth. That is a
/// limit of the set-up, not of the forwarder.
fn shares(bytes: usize, counts: [[u64; 2]; 3]) -> String {
    let shares = ALL.iter().zip(counts).map(|(who, [sent, received])| {
        let per_cent = received as f64 / sent.max(1) as f64 * 100.0;
        format!("{} {per_cent:.1} %", who.who())
    });
    let shares = shares.collect::<Vec<_>>().join(", ");
    format!("{bytes} B, forwarded of what was sent: {shares} (100: the sender is the limit)")
}

fn name(bytes: usize) -> String {
    format!("veth to veth, {bytes} B")
}

/// Two veth pairs: `g` to `f0`, `f1` to `s`.
struct Devices {
    names: [String; 4],
}

impl Devices {
    /// Creates two veth pairs with this prefix in their names.
    fn create(letter: &str) -> Result<Self> {
        let names = ["g", "f0", "f1", "s"].map(|end| format!("{letter}-{end}"));
        let devices = Self { names };
        for [a, b] in [[0, 1], [2, 3]] {
            let [a, b] = [&devices.names[a], &devices.names[b]];
            ip(&["link", "add", "name", a, "type", "veth", "peer", "name", b])?;
        }
        for name in &devices.names {
            ip(&["link", "set", "dev", name, "up"])?;
        }
        Ok(devices)
    }

    /// Device and counter of the frames that arrived behind the forwarder.
    fn arrived(&self) -> (&str, usize) {
        (&self.names[3], RX_PACKETS)
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        for name in [&self.names[0], &self.names[2]] {
            // Deleting one end of a veth pair also deletes the other end.
            let _ = ip(&["link", "delete", "dev", name]);
        }
    }
}

/// Forwarder process.
enum Process {
    Testpmd(Testpmd),
    Other(Child),
}

impl Process {
    /// Starts a forwarder from `f0` to `f1` on this CPU.
    fn start(
        folder: &RunFolder,
        pages: &HugePages,
        who: Forwarder,
        program: &std::path::Path,
        devices: &Devices,
        cpu: usize,
    ) -> Result<Self> {
        let [_, near, far, _] = &devices.names;
        Ok(match who {
            Forwarder::Mqnet => {
                let ends = [near, far].map(|name| format!("xdp:{name}"));
                Self::Other(start_ours(folder, &ends, &[cpu])?)
            }
            Forwarder::Dpdk => Self::Testpmd(start_dpdk(pages, near, far, cpu)?),
            Forwarder::Relay => {
                let mut command = child::guarded(program)?;
                command.args(["relay", near, far, &cpu.to_string()]);
                Self::Other(Child::spawn("the relay", command, Stdio::null())?)
            }
        })
    }

    fn pid(&self) -> u32 {
        match self {
            Self::Testpmd(testpmd) => testpmd.pid(),
            Self::Other(child) => child.pid(),
        }
    }

    fn tail(&self) -> String {
        match self {
            Self::Testpmd(testpmd) => testpmd.tail(),
            Self::Other(child) => child.tail(),
        }
    }
}

/// Sender, forwarder, and the devices between them.
struct Path {
    sender: Child,
    forwarder: Process,
    /// Frames sent and received at the last read, without those before the first turn.
    counts: Rc<Cell<[u64; 2]>>,
    before: [u64; 2],
    // Dropped after the processes that use the devices.
    devices: Devices,
}

impl Path {
    fn start(
        session: &Session,
        folder: &RunFolder,
        pages: &HugePages,
        who: Forwarder,
        bytes: usize,
        counts: &Rc<Cell<[u64; 2]>>,
    ) -> Result<Self> {
        peers::needs("ip", "iproute2")?;
        let program = peers::build_plain(folder, "packet", SOURCE)?;
        let devices = Devices::create(who.word())?;
        let [tx_cpu, rx_cpu] = session.cpus;
        let forwarder = Process::start(folder, pages, who, &program, &devices, rx_cpu)?;
        let from = &devices.names[0];
        let mut command = child::guarded(&program)?;
        command.args(["flood", from, &bytes.to_string(), &tx_cpu.to_string()]);
        let sender = Child::spawn("the sender", command, Stdio::null())?;
        let (counts, before) = (Rc::clone(counts), [0, 0]);
        let mut path = Self { sender, forwarder, counts, before, devices };
        if slices::moves_frames(&mut path)? {
            path.before = path.counts.get();
            return Ok(path);
        }
        let (sender, forwarder) = (path.sender.tail(), path.forwarder.tail());
        Err(format!("no frames move: sender: {sender}; forwarder: {forwarder}").into())
    }
}

/// Starts a link between these ends with one worker on each of these CPUs.
fn start_ours(folder: &RunFolder, ends: &[String; 2], cpus: &[usize]) -> Result<Child> {
    let workers = cpus.len().to_string();
    let cpus = cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let words = ["link", "--json", "--workers", &workers, "--cpus", &cpus, &ends[0], &ends[1]];
    let mut command = child::own(&words)?;
    command.env("MQNET_RUNTIME_DIR", &folder.path);
    let link = Child::spawn("mqnet link", command, Stdio::null())?;
    link.wait_for(0, SOON, |said| said.lines().any(is_up).then_some(()))?;
    Ok(link)
}

fn start_dpdk(pages: &HugePages, near: &str, far: &str, cpu: usize) -> Result<Testpmd> {
    let vdevs = [near, far].map(|name| format!("net_af_xdp_{name},iface={name},force_copy=1"));
    let (role, mode) = ("af_xdp", "io");
    let setup = testpmd::Setup {
        role,
        cpu,
        vdevs: &vdevs,
        mode,
        bytes: 1514,
        buffers: testpmd::PLENTY,
        pages,
        more: &[],
    };
    let mut testpmd = Testpmd::start(&setup)?;
    testpmd.forward(64)?;
    Ok(testpmd)
}

impl End for Path {
    fn pids(&self) -> Vec<u32> {
        vec![self.forwarder.pid(), self.sender.pid()]
    }

    fn frames_received(&mut self) -> Result<u64> {
        let [from, _, _, to] = &self.devices.names;
        let counts = read_counters([(from, TX_PACKETS), (to, RX_PACKETS)])?;
        let [sent, received] = self.before;
        self.counts.set([counts[0] - sent, counts[1] - received]);
        Ok(counts[1])
    }
}

/// Reads counters of several devices in one snapshot.
fn read_counters<const N: usize>(asked: [(&str, usize); N]) -> Result<[u64; N]> {
    // The network namespace belongs to this thread, not to the process.
    let path = "/proc/thread-self/net/dev";
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let mut counts = [0; N];
    for (count, (device, column)) in counts.iter_mut().zip(asked) {
        let known = counter(&text, device, column);
        *count = known.ok_or_else(|| format!("{path} does not know {device}"))?;
    }
    Ok(counts)
}

/// Columns of `/proc/net/dev`.
const RX_PACKETS: usize = 1;
const TX_PACKETS: usize = 9;

/// Counter of a device in the text of `/proc/net/dev`.
fn counter(text: &str, device: &str, column: usize) -> Option<u64> {
    let counters =
        text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
    counters?.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the counters of frames, not bytes, of exactly this device are read; a device with the
    // same prefix is skipped.
    #[test]
    fn the_counter_of_the_right_device_is_read() {
        let text = "Inter-|   Receive\n face |bytes    packets errs\n\
                    relay-s0: 1 2 0 0\n  \
                    relay-s:  6000     100    0    0 0 0 0 0 7000 90\n    lo: 7 8 9\n";
        assert_eq!(counter(text, "relay-s", RX_PACKETS), Some(100));
        assert_eq!(counter(text, "relay-s", TX_PACKETS), Some(90));
        assert_eq!(counter(text, "relay-s0", RX_PACKETS), Some(2));
        assert_eq!(counter(text, "relay", RX_PACKETS), None);
    }
}
