//! Sections of `cargo xtask bench`, in order. A new section needs an entry here only.

/// One section of `mqnet-bench`.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) name: &'static str,
    /// Question answered by the section.
    pub(super) answers: &'static str,
    /// Packages for the figures, with the names of `cargo xtask setup`.
    pub(super) packages: &'static [&'static str],
    pub(super) root: bool,
    /// Expected duration of a full run, in seconds.
    pub(super) seconds: u64,
    /// Arguments and seconds of a quick run; `None` for a section that is not part of it.
    pub(super) quick: Option<(&'static str, u64)>,
}

const DPDK: &[&str] = &["gcc", "pkg-config", "dpdk-dev", "libdpdk-dev"];
const PORTS: &[&str] = &["gcc", "pkg-config", "dpdk-dev", "libdpdk-dev", "iproute2"];
const HOSTS: &[&str] = &["gcc", "iproute2", "iperf3"];
const RELAYS: &[&str] =
    &["gcc", "iproute2", "iperf3", "socat", "vde2", "openvswitch-switch-dpdk", "dpdk-dev"];

#[rustfmt::skip]
pub(super) const SECTIONS: &[Section] = &[
    Section { name: "limits", answers: "What can this machine do at all?",
        packages: &[], root: false, seconds: 4, quick: Some(("--slice-ms 10", 2)) },
    Section { name: "ring", answers: "What does a hop from CPU to CPU cost, against rte_ring?",
        packages: DPDK, root: false, seconds: 8, quick: Some(("--slice-ms 8", 4)) },
    Section { name: "pool", answers: "What does a page cost, against rte_mempool and rte_pktmbuf?",
        packages: DPDK, root: false, seconds: 10, quick: Some(("--slice-ms 8", 4)) },
    Section { name: "link", answers: "How fast is a link of two processes, against DPDK's memif \
        and a bare copy?",
        packages: DPDK, root: false, seconds: 50,
        quick: Some(("--slice-ms 8 --size 64,1514", 15)) },
    Section { name: "channels", answers: "What do 64 channels cost compared with one?",
        packages: &["valgrind"], root: false, seconds: 34,
        quick: Some(("--slice-ms 8 --size 64", 12)) },
    Section { name: "group", answers: "What does it cost a frame that its channel is one of a \
        group?",
        packages: &["valgrind"], root: false, seconds: 36, quick: None },
    Section { name: "vhost", answers: "How fast are our virtio device and driver, against DPDK's?",
        packages: DPDK, root: false, seconds: 384,
        quick: Some(("--slice-ms 8 --side device --ring split --size 64", 15)) },
    Section { name: "rxbuf", answers: "Do RX buffers that are parts of pages cost anything?",
        packages: &["valgrind"], root: false, seconds: 48, quick: None },
    Section { name: "tap", answers: "What do batches of system calls save on the way to a TAP?",
        packages: &[], root: true, seconds: 4, quick: Some(("--slice-ms 10", 3)) },
    Section { name: "tcp", answers: "How fast is TCP through TAPs and a bridge, against a relay \
        and veth?",
        packages: HOSTS, root: true, seconds: 140,
        quick: Some(("--seconds 1 --only unpaced", 45)) },
    Section { name: "relays", answers: "What does a gigabit of TCP cost, through us, veth, a \
        bridge, a relay, socat, vde2, OVS-DPDK and DPDK's TAPs?",
        packages: RELAYS, root: true, seconds: 180, quick: None },
    Section { name: "afxdp", answers: "How fast are we from veth to veth, against DPDK's AF_XDP \
        ports and a packet relay?",
        packages: PORTS, root: true, seconds: 46,
        quick: Some(("--slice-ms 8 --size 60", 25)) },
    Section { name: "latency", answers: "How long does an answer take, idle, asleep and under \
        load, against veth and relays?",
        packages: &["gcc", "iproute2", "socat"], root: true, seconds: 115,
        quick: Some(("--slice-ms 50 --only tcp", 14)) },
    Section { name: "scaling", answers: "What do more workers bring, and what do more channels \
        cost?",
        packages: &[], root: false, seconds: 20, quick: Some(("--slice-ms 8", 5)) },
    Section { name: "control", answers: "How long do questions take while TCP saturates the link?",
        packages: HOSTS, root: true, seconds: 130, quick: None },
    Section { name: "queueing", answers: "Is nothing lost under pressure, is no flow starved, and \
                                          what does it cost?",
        packages: &["valgrind"], root: false, seconds: 168,
        quick: Some(("--slice-ms 20 --only table", 16)) },
    Section { name: "instr", answers: "How many instructions does a frame take, exactly?",
        packages: &["gcc", "pkg-config", "libdpdk-dev", "valgrind"], root: false, seconds: 122,
        quick: Some(("--only link", 18)) },
];

/// Option for the number of ratios of every section in a quick run.
const QUICK_PAIRS: &str = "--pairs 10";

impl Section {
    pub(super) fn cost(&self, quick: bool) -> u64 {
        if quick { self.quick.map_or(0, |(_, seconds)| seconds) } else { self.seconds }
    }

    /// Arguments of `mqnet-bench`.
    pub(super) fn words(&self, quick: bool) -> Vec<&'static str> {
        let mut words = vec![self.name, "--json"];
        if let (true, Some((more, _))) = (quick, self.quick) {
            words.extend(QUICK_PAIRS.split(' ').chain(more.split(' ')));
        }
        words
    }

    /// Command that prints this section's figures as a table.
    pub(super) fn command(&self, quick: bool) -> String {
        let words = self.words(quick);
        let words: Vec<&str> = words.into_iter().filter(|&word| word != "--json").collect();
        format!("mqnet-bench {}", words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: by this table, all sections take less than 25 minutes and a quick run less than 3.
    #[test]
    fn the_table_fits_the_budget() {
        let sum = |quick| SECTIONS.iter().map(|section| section.cost(quick)).sum::<u64>();
        assert!(sum(false) < 25 * 60 && sum(true) < 3 * 60, "{} {}", sum(false), sum(true));
    }

    // Goal: names are unique, each section has a question, and the command omits `--json`.
    #[test]
    fn commands_can_be_typed() {
        for (at, section) in SECTIONS.iter().enumerate() {
            assert!(SECTIONS[..at].iter().all(|other| other.name != section.name));
            assert!(section.answers.ends_with('?'), "{}", section.name);
        }
        let link = SECTIONS.iter().find(|section| section.name == "link").unwrap();
        assert_eq!(link.command(false), "mqnet-bench link");
        assert!(link.command(true).starts_with("mqnet-bench link --pairs 10 --slice-ms"));
    }
}
