//! One guest with a port of each kind to the host: the kernel's `ntb_netdev` on an emulated
//! endpoint, virtio-net over vhost-user, and mqnet over ivshmem.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mqnet_sysio::namespace;
use mqnet_testkit::Figures;
use serde_json::{Value, json};

use super::bridge::{self, Server};
use crate::guest::{Guest, Outcome};
use crate::kernel::Kernel;
use crate::{Result, programs};

const SCRIPT: &str = include_str!("../../scripts/ntb_bench.sh");

/// MTU of all ports: the maximum of the kernel's `ntb_netdev` with slots of 64 KiB.
const MTU: u32 = 65510;
/// Ports, in the order of [`Line::rates`].
const PORTS: [&str; 3] = ["ntb", "vhost-user", "ivshmem"];
const KINDS: [&str; 2] = ["tcp", "udp"];
const QUEUES: [u32; 2] = [1, 2];

/// Number of rounds and duration of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of rounds, each with one run of every kind over every port, with one and with two
    /// queue pairs.
    pub rounds: u32,
    /// Seconds of a run.
    pub seconds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { rounds: 5, seconds: 5 }
    }
}

/// Result of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Received Mbit/s.
    pub mbit: f64,
    /// Average number of bytes of a sent frame.
    pub frame: f64,
    /// Busy share of the guest's CPUs.
    pub busy: f64,
}

impl Rate {
    /// Parses iperf3's report, the clocks of the CPUs before and after the run, and the number of
    /// sent frames. `None` for a failed run.
    fn read(report: &str, clocks: &str) -> Option<Self> {
        let report: Value = serde_json::from_str(report).ok()?;
        let received = &report["end"]["sum_received"];
        let (bytes, seconds) = (received["bytes"].as_f64()?, received["seconds"].as_f64()?);
        let sent = report["end"]["sum_sent"]["bytes"].as_f64().unwrap_or(bytes);
        let clocks: Vec<f64> = clocks.split_whitespace().map_while(|n| n.parse().ok()).collect();
        let &[busy, idle, busy_after, idle_after, frames] = &clocks[..] else { return None };
        let (busy, idle) = (busy_after - busy, idle_after - idle);
        (bytes > 0.0 && seconds > 0.0 && frames > 0.0 && busy > 0.0).then(|| Self {
            mbit: bytes * 8.0 / 1e6 / seconds,
            frame: sent / frames,
            busy: busy / (busy + idle),
        })
    }
}

/// Results of one kind of traffic in one round, for each port.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Number of the round, from 1.
    pub round: u32,
    /// Number of queue pairs or channels.
    pub queues: u32,
    /// `tcp` or `udp`.
    pub kind: &'static str,
    /// Rates over `ntb_netdev`, vhost-user and ivshmem; `None` for a failed run.
    pub rates: [Option<Rate>; 3],
}

impl Line {
    /// Ratio of the rate of `ntb_netdev` to that of port `than` (an index of [`PORTS`]); `None` if
    /// either run failed.
    fn ratio(&self, than: usize) -> Option<f64> {
        Some(self.rates[0]?.mbit / self.rates[than]?.mbit)
    }
}

/// Results of all runs.
#[derive(Clone, Debug)]
pub struct Report {
    /// Settings of the benchmark.
    pub settings: Settings,
    /// Release of the guest's kernel.
    pub release: String,
    /// Results of the runs.
    pub lines: Vec<Line>,
}

fn start(command: &mut Command) -> Result<Server> {
    let child: std::io::Result<Child> = command.stdout(Stdio::null()).spawn();
    Ok(Server(child.map_err(|e| format!("{command:?}: {e}"))?))
}

/// Starts a link between a TAP of the host and a port of the guest.
fn link(net: u32, port: &str) -> Result<Server> {
    let tap = format!("tap:h{net},address=10.{net}.0.1/24,mtu={MTU}");
    let mut command = Command::new(programs::program("mqnet"));
    start(command.args(["link", "--control-socket", "none", &tap, port]))
}

/// Starts all servers and links of the host in a network namespace that ends with this process.
fn serve(sockets: &[PathBuf; 3]) -> Result<Vec<Server>> {
    let refused = |e| format!("a network namespace: {e} (this needs root)");
    namespace::enter_new_net().map_err(refused)?;
    let [ntb, vhost, shared] = sockets.each_ref().map(|path| path.display().to_string());
    let mut servers = vec![
        bridge::serve(&sockets[2], 3)?,
        link(1, &format!("ntb:vfio-user={ntb},queues=2"))?,
        link(2, &format!("vhost-user:{vhost},queues=2"))?,
        link(3, &format!("ntb:ivshmem={shared}"))?,
        start(Command::new("iperf3").arg("-s"))?,
    ];
    for (socket, server) in sockets.iter().zip(&mut servers) {
        bridge::wait_for(socket, server)?;
    }
    Ok(servers)
}

fn guest(settings: &Settings, sockets: &[PathBuf; 3]) -> Guest {
    let Settings { rounds, seconds } = settings;
    let head = format!("MTU={MTU} ROUNDS={rounds} SECONDS_EACH={seconds}\n");
    let [ntb, vhost, shared] = sockets.each_ref().map(|path| path.display().to_string());
    let runs = rounds * (PORTS.len() * KINDS.len() * QUEUES.len()) as u32;
    let device = json!({
        "driver": "vfio-user-pci", "rombar": 0, "socket": { "type": "unix", "path": ntb },
    });
    Guest::new(Kernel::V7_3, "bench-ntb")
        .with_ntb()
        .memory(1024)
        .limit(Duration::from_secs((runs * (seconds + 30) + 300).into()))
        .qemu(&["-device", &device.to_string()])
        .qemu(&["-chardev", &format!("socket,id=vu,path={vhost}")])
        .qemu(&["-netdev", "vhost-user,id=vu,chardev=vu,queues=2"])
        .qemu(&["-device", "virtio-net-pci,netdev=vu,mq=on,vectors=6,mac=02:00:00:00:02:02"])
        .qemu(&["-chardev", &format!("socket,id=iv,path={shared}")])
        .qemu(&["-device", "ivshmem-doorbell,chardev=iv,vectors=3"])
        .script("ntb", &(head + SCRIPT))
}

/// Runs the benchmark. The calling thread enters a new network namespace.
pub fn ntb(settings: &Settings) -> Result<Report> {
    let folder = programs::target().join("guest").join("bench");
    fs::create_dir_all(&folder)?;
    let sockets = ["ntb.sock", "vhost.sock", "ivshmem.sock"].map(|name| folder.join(name));
    for socket in &sockets {
        // The sockets of an earlier run are removed.
        let _ = fs::remove_file(socket);
    }
    let _servers = serve(&sockets)?;
    let outcome = guest(settings, &sockets).start()?.boots()?.wait()?;
    Report::read(*settings, &outcome)
}

fn median(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    bridge::spread(numbers).map(|[_, middle, _]| middle)
}

impl Report {
    fn read(settings: Settings, outcome: &Outcome) -> Result<Self> {
        outcome.passed("ntb")?;
        let mut lines = Vec::new();
        for queues in QUEUES {
            for kind in KINDS {
                for round in 1..=settings.rounds {
                    let rates = PORTS.map(|port| {
                        let file = |end: &str| {
                            outcome.text(&format!("{round}.{port}.{kind}.{queues}.{end}")).ok()
                        };
                        Rate::read(&file("json")?, &file("busy")?)
                    });
                    lines.push(Line { round, queues, kind, rates });
                }
            }
        }
        Ok(Self { settings, release: outcome.release.clone(), lines })
    }

    fn of(&self, kind: &str, queues: u32) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.kind == kind && line.queues == queues)
    }

    /// Writes `ntb.json` to the build folder; returns its path.
    pub fn write(&self) -> Result<PathBuf> {
        let file: &Path = &programs::target().join("ntb.json");
        let run = |line: &Line| {
            let rate = |rate: Option<Rate>| {
                rate.map(|r| json!({ "mbit": r.mbit, "frame": r.frame, "busy": r.busy }))
            };
            let [ntb, vhost_user, ivshmem] = line.rates.map(rate);
            json!({
                "round": line.round, "queues": line.queues, "kind": line.kind,
                "ntb": ntb, "vhost-user": vhost_user, "ivshmem": ivshmem,
            })
        };
        let runs: Vec<Value> = self.lines.iter().map(run).collect();
        let Settings { rounds, seconds } = self.settings;
        let all = json!({
            "kernel": self.release, "profile": programs::profile(), "rounds": rounds,
            "seconds": seconds, "mtu": MTU, "runs": runs,
        });
        fs::write(file, serde_json::to_vec_pretty(&all)?)?;
        Ok(file.to_owned())
    }

    /// Figures for the report of `cargo xtask bench`.
    pub fn figures(&self) -> Figures {
        let cases = QUEUES.into_iter().flat_map(|queues| KINDS.map(|kind| (kind, queues)));
        cases.fold(Figures::of("ntb", "ntb"), |figures, (kind, queues)| {
            let bits = |port: usize| -> Vec<f64> {
                let rates = self.of(kind, queues).filter_map(|line| line.rates[port]);
                rates.map(|rate| rate.mbit * 1e6).collect()
            };
            let ratios = |than: usize| -> Vec<f64> {
                self.of(kind, queues).filter_map(|line| line.ratio(than)).collect()
            };
            let [ntb, vhost_user, ivshmem] = [0, 1, 2].map(bits);
            let name = format!("{} from a guest, queue pairs: {queues}", kind.to_uppercase());
            figures.case(
                &name,
                "bits",
                &[("ntb_netdev", &ntb), ("vhost-user", &vhost_user), ("ivshmem", &ivshmem)],
                &[("ntb_netdev / vhost-user", &ratios(1)), ("ntb_netdev / ivshmem", &ratios(2))],
            )
        })
    }

    /// Readable table of medians.
    pub fn table(&self) -> String {
        let mut out =
            "kind queues  port             Mbit/s  bytes/frame  busy CPUs  ntb / port\n".to_owned();
        for queues in QUEUES {
            for kind in KINDS {
                for (n, port) in PORTS.into_iter().enumerate() {
                    let of = |value: fn(Rate) -> f64| {
                        let rates = self.of(kind, queues).filter_map(|line| line.rates[n]);
                        median(rates.map(value)).unwrap_or_default()
                    };
                    let ratio = median(self.of(kind, queues).filter_map(|line| line.ratio(n)));
                    let _ = writeln!(
                        out,
                        "{kind:<4} {queues:>6}  {port:<12} {:>10.0} {:>12.0} {:>8.0} % {:>11.2}",
                        of(|rate| rate.mbit),
                        of(|rate| rate.frame),
                        of(|rate| rate.busy * 100.0),
                        ratio.unwrap_or_default(),
                    );
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule: the rate is the receiver's; a failed run has neither rate nor ratio.
    #[test]
    fn rates_are_those_of_the_receiver() {
        let report = json!({"end": {
            "sum_received": {"bytes": 1_000_000, "seconds": 2.0},
            "sum_sent": {"bytes": 2_000_000, "seconds": 2.0},
        }})
        .to_string();
        let rate = Rate::read(&report, "100 100 400 200 40").unwrap();
        assert_eq!(rate, Rate { mbit: 4.0, frame: 50_000.0, busy: 0.75 });
        assert_eq!(Rate::read("{\"error\": \"busy\"}", "100 100 400 200 40"), None);
        assert_eq!(Rate::read(&report, "100 100 400"), None);
        let half = Rate { mbit: 8.0, ..rate };
        let line = Line { round: 1, queues: 1, kind: "tcp", rates: [Some(rate), Some(half), None] };
        assert_eq!((line.ratio(1), line.ratio(2)), (Some(0.5), None));
    }
}
