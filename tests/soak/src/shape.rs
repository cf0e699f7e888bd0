//! What a rig is made of, as far as the schedule has to know.

use mqnet_testkit::Need;

/// The rigs: each is one topology of processes with its own two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rig {
    /// A daemon with several links: TAPs, an AF_XDP interface, a group.
    Daemon,
    /// Two processes at the two ends of a bridge.
    Ntb,
    /// The same in the memory of an ivshmem server.
    Ivshmem,
    /// A device in one process, its driver in another.
    Vhost,
    /// The same with one that others wrote in between: testpmd drives our device, and is the
    /// device of our driver.
    Testpmd,
}

/// The backends that `--only` knows, and the rig that has each.
///
/// `vhost-resize` is `vhost` with changes of channels, and runs only when it is named: our driver
/// stops to read a ring before the device has stopped to fill it (both are told of a change in
/// their own time), so frames stay there, and a device with more of them than the ring holds waits
/// for ever.
pub const KINDS: [&str; 8] =
    ["tap", "xdp", "group", "ntb", "ivshmem", "vhost", "vhost-resize", "testpmd"];

impl Rig {
    pub(crate) const ALL: [Self; 5] =
        [Self::Daemon, Self::Ntb, Self::Ivshmem, Self::Vhost, Self::Testpmd];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Ntb => "ntb",
            Self::Ivshmem => "ivshmem",
            Self::Vhost => "vhost",
            Self::Testpmd => "testpmd",
        }
    }

    /// What the machine must have for it, beside what all need.
    pub(crate) fn needs(self) -> &'static [Need] {
        match self {
            Self::Testpmd => &[Need::Program("dpdk-testpmd"), Need::Program("stdbuf")],
            _ => &[],
        }
    }

    /// The backends of it that are wanted.
    fn kinds(self, only: &[String]) -> Vec<&'static str> {
        let all: &[&str] = match self {
            Self::Daemon => &["tap", "xdp", "group"],
            Self::Ntb => &["ntb"],
            Self::Ivshmem => &["ivshmem"],
            Self::Vhost => &["vhost", "vhost-resize"],
            Self::Testpmd => &["testpmd"],
        };
        let wanted = |kind: &&&str| match only.is_empty() {
            true => **kind != "vhost-resize",
            false => only.iter().any(|name| name == **kind),
        };
        all.iter().filter(wanted).copied().collect()
    }
}

/// What can be done to a netdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Can {
    /// `ethtool -L` up to this number.
    Channels(u16),
    /// Another number of queues of testpmd, and `ethtool -L` up to this number.
    Queues(u16),
    /// `ethtool -G`.
    Rings,
    /// `ethtool -C`.
    Coalesce,
    /// `set DEV mtu`.
    Mtu,
    /// `ethtool -X`.
    Spread,
    /// `tc qdisc`.
    Discipline,
    /// `xdp attach`, `xdp detach`.
    Program,
    /// `ethtool --set-priv-flags DEV full-page-rx`.
    Layout,
    /// `capture`.
    Capture,
    /// The kernel's interface of this host goes down and up.
    Flap,
    /// It is a member of a group: removed, and put back.
    Member,
}

/// Which of the two hosts has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one with the addresses that end in 1.
    A,
    /// The other one.
    B,
}

/// A netdev, of mqnet or of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Dev {
    pub(crate) name: &'static str,
    pub(crate) side: Side,
    pub(crate) path: usize,
    pub(crate) process: usize,
    pub(crate) can: Vec<Can>,
}

/// A process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    /// It may be killed.
    pub(crate) mortal: bool,
    /// It may be stopped for a moment.
    pub(crate) stalls: bool,
}

/// Where traffic runs: between two addresses.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) kind: &'static str,
    /// Third byte of the addresses.
    pub(crate) net: u8,
    /// The kernel's devices of either host, whose drops explain what is missing.
    pub(crate) devices: [&'static [&'static str]; 2],
    /// The links that it crosses, from host a to host b, and whether it enters one by its first
    /// netdev.
    pub(crate) links: &'static [(&'static str, bool)],
}

/// All of a rig.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) rig: Rig,
    pub(crate) processes: Vec<Process>,
    pub(crate) paths: Vec<Path>,
    pub(crate) devs: Vec<Dev>,
}

const TAP: &[Can] = &[
    Can::Channels(8),
    Can::Coalesce,
    Can::Mtu,
    Can::Spread,
    Can::Discipline,
    Can::Program,
    Can::Capture,
    Can::Flap,
];
/// The other end follows an MTU: two ends that want different ones are refused.
const FAR_TAP: &[Can] = &[
    Can::Channels(8),
    Can::Coalesce,
    Can::Spread,
    Can::Discipline,
    Can::Program,
    Can::Capture,
    Can::Flap,
];
const BRIDGE: &[Can] = &[Can::Rings, Can::Coalesce, Can::Discipline, Can::Program, Can::Capture];
const BESIDE_XDP: &[Can] =
    &[Can::Channels(4), Can::Coalesce, Can::Spread, Can::Discipline, Can::Program, Can::Capture];
const NIC: &[Can] = &[Can::Coalesce, Can::Discipline, Can::Capture];
const BESIDE_GROUP: &[Can] = &[Can::Channels(8), Can::Coalesce, Can::Discipline, Can::Capture];
const GROUP: &[Can] = &[Can::Discipline, Can::Capture];
const DRIVER: &[Can] = &[Can::Coalesce, Can::Discipline, Can::Layout, Can::Program, Can::Capture];
const CARD: &[Can] = &[Can::Coalesce, Can::Discipline, Can::Program, Can::Capture];

fn dev(name: &'static str, side: Side, place: (usize, usize), can: &'static [Can]) -> Dev {
    Dev { name, side, path: place.0, process: place.1, can: can.to_vec() }
}

impl Shape {
    /// The shape of a rig with the wanted backends; none when there is nothing to do.
    ///
    /// Who may be killed depends on the seed: one process of each rig lives as long as the soak,
    /// so that there is one whose memory can be judged.
    pub(crate) fn of(rig: Rig, only: &[String], seed: u64) -> Option<Self> {
        let kinds = rig.kinds(only);
        if kinds.is_empty() {
            return None;
        }
        let second = seed.is_multiple_of(2);
        Some(match rig {
            Rig::Daemon => daemon(&kinds, seed % 4 == 3),
            Rig::Ntb => ends(rig, second),
            Rig::Ivshmem => ends(rig, second),
            Rig::Testpmd => foreign(second),
            Rig::Vhost => {
                let mut shape = ends(rig, second);
                shape.paths[0].kind = kinds[0];
                for dev in shape.devs.iter_mut().filter(|_| kinds[0] == "vhost") {
                    dev.can.retain(|can| !matches!(can, Can::Channels(_)));
                }
                shape
            }
        })
    }
}

impl Shape {
    /// Its backends, as `--only` has them.
    pub(crate) fn kinds(&self) -> String {
        let kinds: Vec<&str> = self.paths.iter().map(|path| path.kind).collect();
        kinds.join(",")
    }
}

fn process(name: &'static str, mortal: bool) -> Process {
    Process { name, mortal, stalls: true }
}

fn daemon(kinds: &[&'static str], mortal: bool) -> Shape {
    let (mut paths, mut devs) = (Vec::new(), Vec::new());
    for &kind in kinds {
        let at = (paths.len(), 0);
        let (path, more) = match kind {
            "tap" => (
                Path { kind, net: 1, devices: [&["ta"], &["tb"]], links: &[("tap", true)] },
                vec![dev("ta", Side::A, at, TAP), dev("tb", Side::B, at, FAR_TAP)],
            ),
            "xdp" => (
                Path { kind, net: 2, devices: [&["xt", "nic"], &["xp"]], links: &[("xdp", true)] },
                vec![
                    dev("xt", Side::A, at, BESIDE_XDP),
                    dev("nic", Side::A, at, NIC),
                    dev("xp", Side::B, at, &[Can::Flap]),
                ],
            ),
            _ => (
                Path {
                    kind,
                    net: 3,
                    devices: [&["ga"], &["gb0", "gb1"]],
                    links: &[("group", true)],
                },
                vec![
                    dev("ga", Side::A, at, BESIDE_GROUP),
                    dev("gb0", Side::B, at, GROUP),
                    dev("gb1", Side::B, at, &[Can::Member]),
                ],
            ),
        };
        paths.push(path);
        devs.extend(more);
    }
    Shape { rig: Rig::Daemon, processes: vec![process("daemon", mortal)], paths, devs }
}

/// The rigs of two processes; either the first or the second may be killed.
fn ends(rig: Rig, second: bool) -> Shape {
    let pair =
        |names: [&'static str; 2]| vec![process(names[0], !second), process(names[1], second)];
    let (a, b) = (Side::A, Side::B);
    let taps = |names: [&'static str; 2]| {
        [dev(names[0], a, (0, 0), TAP), dev(names[1], b, (0, 1), FAR_TAP)]
    };
    let (path, processes, mut devs) = match rig {
        Rig::Vhost => (
            Path {
                kind: "vhost",
                net: 6,
                devices: [&["va"], &["vb"]],
                links: &[("va", true), ("vb", false)],
            },
            pair(["device", "driver"]),
            vec![dev("card", a, (0, 0), CARD), dev("nic0", b, (0, 1), DRIVER)],
        ),
        Rig::Ivshmem => {
            let mut processes = pair(["left", "right"]);
            processes.push(Process { name: "server", mortal: true, stalls: false });
            (
                Path {
                    kind: "ivshmem",
                    net: 5,
                    devices: [&["ia"], &["ib"]],
                    links: &[("ia", true), ("ib", false)],
                },
                processes,
                vec![dev("iwa", a, (0, 0), BRIDGE), dev("iwb", b, (0, 1), BRIDGE)],
            )
        }
        _ => (
            Path {
                kind: "ntb",
                net: 4,
                devices: [&["na"], &["nb"]],
                links: &[("na", true), ("nb", false)],
            },
            pair(["left", "right"]),
            vec![dev("nwa", a, (0, 0), BRIDGE), dev("nwb", b, (0, 1), BRIDGE)],
        ),
    };
    devs.extend(taps([path.devices[0][0], path.devices[1][0]]));
    Shape { rig, processes, paths: vec![path], devs }
}

/// Testpmd between two processes. It sends on queue by queue what comes, so its queues and the
/// channels of our driver change together, and those of the TAPs follow.
fn foreign(second: bool) -> Shape {
    let path = Path {
        kind: "testpmd",
        net: 7,
        devices: [&["pa"], &["pb"]],
        links: &[("pa", true), ("pb", false)],
    };
    let names = [("device", !second), ("driver", second), ("testpmd", true)];
    let mut devs = vec![
        dev("pcard", Side::A, (0, 0), CARD),
        dev("pnic", Side::B, (0, 1), DRIVER),
        dev("pa", Side::A, (0, 0), TAP),
        dev("pb", Side::B, (0, 1), FAR_TAP),
    ];
    for dev in &mut devs {
        dev.can.retain(|can| !matches!(can, Can::Channels(_) | Can::Mtu));
    }
    devs[1].can.push(Can::Queues(4));
    let processes = names.map(|(name, mortal)| process(name, mortal)).to_vec();
    Shape { rig: Rig::Testpmd, processes, paths: vec![path], devs }
}
