//! `dpdk-testpmd` as a peer. The link benchmark joins two testpmd processes by memif in copy mode.

use std::process::Stdio;
use std::time::Duration;

use mqnet_sysio::affinity;

use super::child::{self, Child, RunFolder};
use super::hosts::Host;
use super::hugepages::HugePages;
use super::peers;
use super::slices::{self, End};
use super::waiting::wait_for_device;
use super::{Result, Session};

/// Time limit of the start, which takes several seconds on a busy machine.
const START: Duration = Duration::from_secs(40);
const ANSWER: Duration = Duration::from_secs(10);
const PROMPT: &str = "testpmd> ";
/// Number of buffers that exceeds the capacity of any ring of a peer.
pub(super) const PLENTY: u32 = 16_384;
/// Number of 2 MiB huge pages for one testpmd between TAPs.
const TAP_PAGES: u64 = 80;

/// One `dpdk-testpmd` process.
#[derive(Debug)]
pub(super) struct Testpmd(Child);

/// Parameters of one testpmd.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    /// Name for messages and files.
    pub(super) role: &'a str,
    pub(super) cpu: usize,
    /// Ports in the format of `--vdev`.
    pub(super) vdevs: &'a [String],
    /// Forwarding mode: `txonly`, `rxonly`, `io` or `flowgen`.
    pub(super) mode: &'a str,
    /// Bytes of a frame.
    pub(super) bytes: usize,
    /// Number of buffers in the pool.
    pub(super) buffers: u32,
    pub(super) pages: &'a HugePages,
    /// Additional arguments.
    pub(super) more: &'a [&'a str],
}

/// Longest frame that fits one buffer.
const ONE_BUFFER: usize = 10_000;
/// Data size of one buffer of a longer frame: about a page, as in a guest's kernel.
const PART: usize = 4000;

/// Buffer size for frames of `bytes` bytes, and the lengths of a frame's segments.
fn cut(bytes: usize) -> (usize, String) {
    match bytes {
        0..=2048 => (2176, bytes.to_string()),
        2049..=ONE_BUFFER => (10_240, bytes.to_string()),
        _ => {
            let part = |at: usize| PART.min(bytes - at).to_string();
            let parts: Vec<String> = (0..bytes).step_by(PART).map(part).collect();
            (PART + 224, parts.join(","))
        }
    }
}

/// Starts a testpmd that forwards between two of DPDK's TAPs, "a" and "b", in this host's
/// namespace. The process must be dropped before the huge pages.
pub(super) fn between_taps(host: &Host) -> Result<(Child, HugePages)> {
    peers::needs("dpdk-testpmd", "dpdk-dev")?;
    let pages = HugePages::reserve(TAP_PAGES);
    let cpus = affinity::allowed_cpus().map_err(|error| format!("sched_getaffinity: {error}"))?;
    let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
    // In non-interactive mode, testpmd ends when its standard input is closed.
    let mut command = host.command(&["stdbuf", "-oL", "dpdk-testpmd", "--no-pci"])?;
    command.args(["--log-level", "4", "--lcores"]).arg(format!("(0,1)@({})", cpus.join(",")));
    command.arg(format!("--file-prefix=mqnet-{}-taps", std::process::id())).args(pages.eal(128));
    command.args(["--vdev=net_tap0,iface=a", "--vdev=net_tap1,iface=b"]);
    command.args(["--", "--nb-cores=1", "--total-num-mbufs=16384", "--forward-mode=io"]);
    let child = Child::spawn("testpmd between TAPs", command, Stdio::piped())?;
    child.wait_for(0, START, |text| text.contains("Press enter").then_some(()))?;
    for device in ["a", "b"] {
        wait_for_device(host, device, &child)?;
    }
    Ok((child, pages))
}

impl Testpmd {
    /// Starts a testpmd; traffic starts with [`forward`](Self::forward).
    pub(super) fn start(setup: &Setup<'_>) -> Result<Self> {
        peers::needs("dpdk-testpmd", "dpdk-dev")?;
        peers::needs("stdbuf", "coreutils")?;
        let (id, cpu, role) = (std::process::id(), setup.cpu, setup.role);
        let (mbuf, _) = cut(setup.bytes);
        let mut command = child::guarded("stdbuf")?;
        command.args(["-oL", "dpdk-testpmd", "--no-pci", "--log-level", "4"]);
        command.arg("--lcores").arg(format!("0@{cpu},1@{cpu}"));
        command.arg(format!("--file-prefix=mqnet-{id}-{role}"));
        command.args(setup.pages.eal(if setup.bytes <= 2048 { 128 } else { 256 }));
        command.args(setup.vdevs.iter().map(|vdev| format!("--vdev={vdev}")));
        command.args(["--", "-i", "--nb-cores=1"]);
        command.arg(format!("--total-num-mbufs={}", setup.buffers));
        command.arg(format!("--mbuf-size={mbuf}"));
        command.arg(format!("--forward-mode={}", setup.mode)).args(setup.more);
        let child = Child::spawn(&format!("testpmd {role}"), command, Stdio::piped())?;
        child.wait_for(0, START, |text| text.contains(PROMPT).then_some(()))?;
        Ok(Self(child))
    }

    /// Starts forwarding in the mode of the setup. A sender transmits frames of `bytes` bytes.
    pub(super) fn forward(&mut self, bytes: usize) -> Result<()> {
        order(&mut self.0, &format!("set txpkts {}", cut(bytes).1))?;
        order(&mut self.0, "start")
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Last lines of the output.
    pub(super) fn tail(&self) -> String {
        self.0.tail()
    }

    /// Number of frames that all ports have received.
    pub(super) fn received(&mut self) -> Result<u64> {
        let mark = self.0.mark();
        self.0.say("show port stats all")?;
        self.0.wait_for(mark, ANSWER, received)
    }
}

/// Sender (memif client) on the first CPU and receiver (memif server) on the second.
#[derive(Debug)]
pub(super) struct Memif {
    // The client is dropped first: otherwise the server would read a ring without an owner.
    client: Testpmd,
    server: Testpmd,
}

impl Memif {
    pub(super) fn start(
        session: &Session,
        folder: &RunFolder,
        pages: &HugePages,
        bytes: usize,
    ) -> Result<Self> {
        let socket = folder.path.join(format!("memif-{bytes}.sock"));
        let buffer = if bytes <= 2048 { 2048 } else { 16384 };
        let open = |role: &str, cpu: usize, mode: &str, more: &str| -> Result<Testpmd> {
            let vdev = format!(
                "net_memif0,role={role},id=0,socket={},socket-abstract=no,\
                 rsize=10,bsize={buffer}{more}",
                socket.display()
            );
            let vdevs = &[vdev];
            Testpmd::start(&Setup {
                role,
                cpu,
                vdevs,
                mode,
                bytes,
                buffers: PLENTY,
                pages,
                more: &[],
            })
        };
        let [tx, rx] = session.cpus;
        let mut server = open("server", rx, "rxonly", "")?;
        server.forward(bytes)?;
        let mut client = open("client", tx, "txonly", ",zero-copy=no")?;
        client.forward(bytes)?;
        let mut pair = Self { client, server };
        if slices::moves_frames(&mut pair)? {
            return Ok(pair);
        }
        Err(format!("testpmd moves no frames: {}", pair.client.tail()).into())
    }
}

impl End for Memif {
    fn pids(&self) -> Vec<u32> {
        vec![self.server.pid(), self.client.pid()]
    }

    fn frames_received(&mut self) -> Result<u64> {
        self.server.received()
    }
}

/// Sends a command and waits for the next prompt.
fn order(child: &mut Child, text: &str) -> Result<()> {
    let mark = child.mark();
    child.say(text)?;
    // testpmd echoes its input, so only a prompt after the echo ends the command.
    let done = |result: &str| {
        let (_, after) = result.split_once(text)?;
        after.contains(PROMPT).then(|| after.to_owned())
    };
    let answer = child.wait_for(mark, ANSWER, done)?;
    if answer.contains("rror") || answer.contains("Bad arguments") {
        return Err(format!("testpmd refuses {text:?}: {}", child::last_lines(&answer)).into());
    }
    Ok(())
}

/// Sum of the receive counters in a response to `show port stats`; `None` until the response is
/// complete.
fn received(result: &str) -> Option<u64> {
    let mut ports = result.split("RX-packets:").skip(1).peekable();
    ports.peek()?;
    if !result.rsplit("RX-packets:").next()?.contains(PROMPT) {
        return None;
    }
    let counter = |port: &str| port.split_whitespace().next()?.parse::<u64>().ok();
    ports.map(counter).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: an incomplete response gives `None`, never a truncated number.
    #[test]
    fn only_complete_answers_count() {
        let whole = "show port stats 0\n  RX-packets: 12345  RX-missed: 0\n ####\ntestpmd> ";
        assert_eq!(received(whole), Some(12345));
        for cut in [whole.len() - 3, 38, 20] {
            assert_eq!(received(&whole[..cut]), None);
        }
        let two = whole.replace("testpmd> ", "RX-packets: 5 RX-missed: 0\ntestpmd> ");
        assert_eq!(received(&two), Some(12350));
    }

    // Goal: the segment lengths of a long frame add up to its length.
    #[test]
    fn long_frames_are_cut() {
        assert_eq!(cut(1514), (2176, "1514".to_owned()));
        assert_eq!(cut(9000).1, "9000");
        assert_eq!(cut(13_000), (4224, "4000,4000,4000,1000".to_owned()));
        assert_eq!(cut(64_000).1.split(',').count(), 16);
    }
}
