//! Components of a rig, as far as the schedule needs them.

use mqnet_testkit::Need;

/// Rigs. Each is one topology of processes with its own two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rig {
    /// Daemon with several links: TAPs, an AF_XDP interface, a group.
    Daemon,
    /// Two processes at the two ends of a bridge.
    Ntb,
    /// Two processes at the two ends of a bridge, in the memory of an ivshmem server.
    Ivshmem,
    /// Virtio device in one process and its driver in another process.
    Vhost,
    /// Virtio device, testpmd, and virtio driver: testpmd is the driver of the device and the
    /// device of the driver.
    Testpmd,
}

/// Backends accepted by `--only`.
///
/// `vhost-resize` is `vhost` with changes of channels, and runs only if it is named. Both sides
/// apply a change independently, so the driver may stop reading a ring before the device stops
/// filling it. Frames then remain in the ring, and a device with more frames than the ring holds
/// waits without end.
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

    /// Additional requirements of a rig on the machine.
    pub(crate) fn needs(self) -> &'static [Need] {
        match self {
            Self::Testpmd => &[Need::Program("dpdk-testpmd"), Need::Program("stdbuf")],
            _ => &[],
        }
    }

    /// Selected backends of a rig.
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

/// Action that a netdev supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Can {
    /// `ethtool -L` up to this number.
    Channels(u16),
    /// Change of testpmd's queues, and `ethtool -L` up to this number.
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
    /// Down and up of the kernel's interface.
    Flap,
    /// Removal and return of a group member.
    Member,
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Host with the addresses that end in 1.
    A,
    /// Other host.
    B,
}

/// Netdev of mqnet or of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Dev {
    pub(crate) name: &'static str,
    pub(crate) side: Side,
    pub(crate) path: usize,
    pub(crate) process: usize,
    pub(crate) can: Vec<Can>,
}

/// Process of a rig.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    /// True if the process may be killed.
    pub(crate) mortal: bool,
    /// True if the process may be stopped for a moment.
    pub(crate) stalls: bool,
}

/// Path of traffic between two addresses.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) kind: &'static str,
    /// Third byte of the addresses.
    pub(crate) net: u8,
    /// Kernel devices of host a and of host b. Their drops explain missing frames.
    pub(crate) devices: [&'static [&'static str]; 2],
    /// Links from host a to host b, each with a flag that is true when the path enters by the
    /// link's first netdev.
    pub(crate) links: &'static [(&'static str, bool)],
}

/// Complete description of a rig.
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
/// Actions of the TAP at the far end. There is no MTU change: the TAP uses the other end's MTU,
/// because two ends with different configured MTUs are refused.
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
    /// Shape of a rig with the selected backends; `None` if none of the rig's backends is selected.
    ///
    /// The seed selects the process that may be killed. Another process of the rig runs for the
    /// whole soak, so that its memory can be checked.
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
    /// Backends of the shape, in the format of `--only`.
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

/// Shape of a rig with two ends. If `second` is true, the second process may be killed, otherwise
/// the first one.
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

/// Shape with testpmd between two processes. testpmd forwards queue by queue, so its queues and the
/// virtio driver's channels change together. The link then gives the TAPs the same number of
/// channels.
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
