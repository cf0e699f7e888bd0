//! The peer of the link benchmark: two `dpdk-testpmd` joined by memif in copy mode.

use std::process::Stdio;
use std::time::Duration;

use super::child::{self, Child, RunFolder};
use super::hugepages::HugePages;
use super::peers;
use super::slices::End;
use super::{Result, Session};

/// On a busy machine it needs several seconds.
const START: Duration = Duration::from_secs(40);
const ANSWER: Duration = Duration::from_secs(10);
const PROMPT: &str = "testpmd> ";

/// A sender (memif client) on the first CPU, a receiver (server) on the second.
#[derive(Debug)]
pub(super) struct Memif {
    // The client goes first: dropped the other way round the server is left reading a dead ring.
    client: Child,
    server: Child,
}

impl Memif {
    pub(super) fn start(
        session: &Session,
        folder: &RunFolder,
        pages: &HugePages,
        bytes: usize,
    ) -> Result<Self> {
        peers::needs("dpdk-testpmd", "dpdk")?;
        peers::needs("stdbuf", "coreutils")?;
        let socket = folder.path.join(format!("memif-{bytes}.sock"));
        let (buffer, mbuf) = if bytes <= 2048 { (2048, 2176) } else { (16384, 10240) };
        let open = |role: &str, cpu: usize, mode: &str, more: &str| -> Result<Child> {
            let (id, socket) = (std::process::id(), socket.display());
            let mut command = child::guarded("stdbuf")?;
            command.args(["-oL", "dpdk-testpmd", "--no-pci", "--log-level", "4"]);
            command.arg("--lcores").arg(format!("0@{cpu},1@{cpu}"));
            command.arg(format!("--file-prefix=mqnet-{id}-{role}"));
            command.args(pages.eal(if bytes <= 2048 { 128 } else { 256 }));
            command.arg(format!(
                "--vdev=net_memif0,role={role},id=0,socket={socket},socket-abstract=no,\
                 rsize=10,bsize={buffer}{more}"
            ));
            command.args(["--", "-i", "--nb-cores=1", "--total-num-mbufs=16384"]);
            command.arg(format!("--mbuf-size={mbuf}")).arg(format!("--forward-mode={mode}"));
            let child = Child::spawn(&format!("testpmd {role}"), command, Stdio::piped())?;
            child.wait_for(0, START, |text| text.contains(PROMPT).then_some(()))?;
            Ok(child)
        };
        let [tx, rx] = session.cpus;
        let mut server = open("server", rx, "rxonly", "")?;
        order(&mut server, "start")?;
        let mut client = open("client", tx, "txonly", ",zero-copy=no")?;
        order(&mut client, &format!("set txpkts {bytes}"))?;
        order(&mut client, "start")?;
        let mut pair = Self { client, server };
        pair.await_traffic()?;
        Ok(pair)
    }

    fn await_traffic(&mut self) -> Result<()> {
        for _ in 0..100 {
            if self.frames_received()? > 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(format!("testpmd moves no frames: {}", self.client.tail()).into())
    }
}

impl End for Memif {
    fn pids(&self) -> Vec<u32> {
        vec![self.server.pid(), self.client.pid()]
    }

    fn frames_received(&mut self) -> Result<u64> {
        let mark = self.server.mark();
        self.server.say("show port stats 0")?;
        self.server.wait_for(mark, ANSWER, received)
    }
}

/// Gives an order and waits for the next prompt.
fn order(child: &mut Child, text: &str) -> Result<()> {
    let mark = child.mark();
    child.say(text)?;
    // It echoes what it reads, so its prompt is only new after the order.
    let done = |said: &str| {
        let (_, after) = said.split_once(text)?;
        after.contains(PROMPT).then(|| after.to_owned())
    };
    let answer = child.wait_for(mark, ANSWER, done)?;
    if answer.contains("rror") || answer.contains("Bad arguments") {
        return Err(format!("testpmd refuses {text:?}: {}", child::last_lines(&answer)).into());
    }
    Ok(())
}

/// The receive counter in a complete answer to `show port stats`.
fn received(said: &str) -> Option<u64> {
    let (_, after) = said.split_once("RX-packets:")?;
    after.contains(PROMPT).then(|| after.split_whitespace().next()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a counter that is still being printed is not read: half a number is another number.
    #[test]
    fn only_complete_answers_count() {
        let whole = "show port stats 0\n  RX-packets: 12345  RX-missed: 0\n ####\ntestpmd> ";
        assert_eq!(received(whole), Some(12345));
        for cut in [whole.len() - 3, 38, 20] {
            assert_eq!(received(&whole[..cut]), None);
        }
    }
}
