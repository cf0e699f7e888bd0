//! `dpdk-testpmd` in forwarding mode: its command line, commands and counters.

use std::process::Command;

use mqnet_testkit::{Running, World, until};

use crate::worlds::CHANNELS;

/// Index of testpmd among the processes of its rig.
pub(crate) const PROCESS: usize = 2;

const PROMPT: &str = "testpmd> ";

/// Frame counters of testpmd's two ports: the driver of mqnet's device, and the device of mqnet's
/// driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted(pub(crate) [Port; 2]);

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Frames towards the port dropped because its rings were full.
    pub(crate) dropped: u64,
}

/// Command line. testpmd listens at both sockets, so that each mqnet process may connect and
/// disconnect independently.
pub(crate) fn command(world: &World, queues: u16) -> Command {
    let sockets = ["x.sock", "y.sock"].map(|name| world.file(name));
    for socket in &sockets {
        // testpmd does not replace the socket of a killed process.
        let _ = std::fs::remove_file(socket);
    }
    let [driver, device] = sockets.map(|path| path.display().to_string());
    // `nice`: testpmd polls continuously, and the other rigs need CPU time. `stdbuf`: line-buffered
    // output.
    let mut command = Command::new("nice");
    command.args(["-n", "5", "stdbuf", "-oL", "dpdk-testpmd"]);
    command.args(["--no-huge", "--no-pci", "--no-shconf", "-m", "512", "--log-level", "4"]);
    command.args(["--lcores", "(0,1)@(0-1)"]);
    command.arg(format!(
        "--vdev=net_virtio_user0,path={driver},server=1,queues={CHANNELS},queue_size=1024"
    ));
    command.arg(format!("--vdev=net_vhost1,iface={device},queues={CHANNELS}"));
    command.args(["--", "-i", "--nb-cores=1", "--total-num-mbufs=32768", "--forward-mode=io"]);
    // Without `--no-flush-rx`, testpmd would discard frames received during its start.
    command.args(["--no-flush-rx", &format!("--rxq={queues}"), &format!("--txq={queues}")]);
    command
}

/// Changes the number of queues, and waits until testpmd forwards again.
#[track_caller]
pub(crate) fn set_queues(testpmd: &Running, queues: u16) {
    let mark = testpmd.out_len();
    testpmd.order(&format!(
        "stop\nport stop all\nport config all rxq {queues}\nport config all txq {queues}\n\
         port start all\nstart"
    ));
    until("testpmd to forward with other queues", || {
        let printed = testpmd.out_from(mark);
        let (_, after) = printed.split_once("nb forwarding ports=2")?;
        after.contains(PROMPT).then_some(())
    });
}

/// Reads the counters.
#[track_caller]
pub(crate) fn counted(testpmd: &Running) -> Counted {
    let mark = testpmd.out_len();
    testpmd.order("show fwd stats all\nshow port stats all");
    until("counters of testpmd", || read(&testpmd.out_from(mark)))
}

/// Parses the counters of both ports; `None` if the output is not complete.
fn read(printed: &str) -> Option<Counted> {
    let number = |table: &str, port: usize, key: &str| {
        let (_, after) = printed.split_once(&format!("{table} for port {port} "))?;
        after.split_once(key)?.1.split_whitespace().next()?.parse().ok()
    };
    let (_, last) = printed.rsplit_once("NIC statistics for port 1 ")?;
    last.contains(PROMPT).then_some(())?;
    let port = |port: usize| {
        Some(Port {
            received: number("NIC statistics", port, "RX-packets:")?,
            sent: number("NIC statistics", port, "TX-packets:")?,
            dropped: number("Forward statistics", port, "TX-dropped:")?,
        })
    };
    Some(Counted([port(0)?, port(1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the counters of each port are parsed from testpmd's output, and an incomplete output is
    // rejected.
    #[test]
    fn counters_are_read_when_all_are_there() {
        let mut printed = String::new();
        for (port, dropped) in [(0, 3), (1, 4)] {
            printed += &format!(
                " --- Forward statistics for port {port}  ---\n  RX-packets: 9  RX-dropped: 0\n  \
                 TX-packets: 9   TX-dropped: {dropped}   TX-total: 9\n"
            );
        }
        for (port, rx, tx) in [(0, 10, 20), (1, 23, 6)] {
            printed += &format!(
                " ### NIC statistics for port {port}  ###\n  RX-packets: {rx}  RX-missed: 0\n  \
                 TX-packets: {tx}  TX-errors: 0\n"
            );
        }
        assert_eq!(read(&printed), None, "no prompt yet");
        printed += PROMPT;
        let first = Port { received: 10, sent: 20, dropped: 3 };
        let second = Port { received: 23, sent: 6, dropped: 4 };
        assert_eq!(read(&printed), Some(Counted([first, second])));
        assert_eq!(read(&printed[printed.len() / 2..]), None);
    }
}
