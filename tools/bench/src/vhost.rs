//! Virtio over vhost-user, compared with DPDK: two devices with the same driver, two drivers with
//! the same device, and two switches with the same two guests.
//!
//! All peers are `testpmd`. With small frames, testpmd's driver sends more slowly than either
//! device receives; therefore two devices are also compared with the mqnet driver. As a device,
//! mqnet copies each frame once, as DPDK does. As a driver, mqnet makes the frames in its buffers
//! and discards received frames there, as DPDK does. Both drivers cause the same work in the
//! device: without an option, neither requests checksum offload. A separate row has this option.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::child::RunFolder;
use super::hugepages::HugePages;
use super::link;
use super::ntb_ends::{Half, Which};
use super::report::Report;
use super::slices::{self, End};
use super::testpmd::{self, Testpmd};
use super::{LinkSetup, Result, Session};

/// Number of 2 MiB huge pages for four testpmd with the largest frames.
const HUGE_PAGES: u64 = 4 * (256 + 32) / 2;

/// Largest frame without many segments; longer frames need segmentation offload.
const LONG: usize = 10_000;

/// Arguments of `mqnet-bench vhost`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct VhostArgs {
    /// Part that mqnet has: an end, or the link between two guests
    #[arg(long = "side", value_enum, value_delimiter = ',',
          default_values_t = [Side::Device, Side::Driver, Side::Checksums, Side::Behind,
                              Side::Link])]
    sides: Vec<Side>,
    /// Layout of the rings
    #[arg(long = "ring", value_enum, default_values_t = [Ring::Split, Ring::Packed],
          value_delimiter = ',')]
    rings: Vec<Ring>,
    /// Bytes of a frame; frames above 10000 bytes have many segments, like those of a guest's TCP
    #[arg(long = "size", value_name = "BYTES", default_values_t = [64, 1514, 64_000],
          value_delimiter = ',')]
    sizes: Vec<usize>,
}

/// Part of the vhost-user set-up that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Side {
    /// The network device, as a backend of a VMM (`vhost-user:`).
    Device,
    /// The driver, as in a guest (`virtio-user:`).
    Driver,
    /// The driver, with checksums that the device completes: the device then reads the header of
    /// each frame.
    Checksums,
    /// The network device, with the mqnet driver.
    Behind,
    /// Two devices and the link between them; one process acts as both guests.
    Link,
}

/// Layout of the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Ring {
    /// Split ring (virtio 1.3, 2.7).
    Split,
    /// Packed ring (virtio 1.3, 2.8).
    Packed,
}

/// Row of the results.
#[derive(Clone, Copy, Debug)]
struct Row {
    side: Side,
    ring: Ring,
    bytes: usize,
    /// Direction: from the driver to the device, or the reverse.
    to_device: bool,
}

impl Row {
    fn name(&self) -> String {
        let ring = if self.ring == Ring::Split { "split" } else { "packed" };
        let way = if self.to_device { "driver to device" } else { "device to driver" };
        let bytes = self.bytes;
        match self.side {
            Side::Device => format!("device, {ring}, {way}, {bytes} B"),
            Side::Driver => format!("driver, {ring}, {way}, {bytes} B"),
            Side::Checksums => format!("driver with checksums, {ring}, {bytes} B"),
            Side::Behind => format!("device behind our driver, {ring}, {bytes} B"),
            Side::Link => format!("guest to guest, {ring}, {bytes} B"),
        }
    }
}

pub(super) fn run(session: &Session, report: &mut Report, args: &VhostArgs) -> Result<()> {
    let folder = RunFolder::new()?;
    let pages = HugePages::reserve(HUGE_PAGES);
    report.notes.push(pages.note().to_owned());
    for &side in &args.sides {
        for &ring in &args.rings {
            for &bytes in &args.sizes {
                // The remaining sides are measured from the driver to the device only, and without
                // long frames: rows with long frames have checksums anyway, and testpmd computes no
                // checksums from guest to guest.
                let ways: &[bool] = match side {
                    Side::Device | Side::Driver => &[true, false],
                    _ if bytes > LONG => &[],
                    Side::Checksums | Side::Behind | Side::Link => &[true],
                };
                for &to_device in ways {
                    session.check()?;
                    let row = Row { side, ring, bytes, to_device };
                    compare(session, report, &Place { folder: &folder.path, pages: &pages }, row)?;
                }
            }
        }
    }
    Ok(())
}

/// Folder of the sockets, and huge pages of DPDK.
struct Place<'a> {
    folder: &'a Path,
    pages: &'a HugePages,
}

fn compare(session: &Session, report: &mut Report, place: &Place<'_>, row: Row) -> Result<()> {
    let name = row.name();
    session.progress.show(&format!("{name}: starting the processes"));
    let calls = Arc::new(Mutex::new(None));
    let contenders = [("mqnet", true), ("DPDK", false)].map(|(who, ours)| {
        let pair = Pair::start(session, place, row, ours)
            .map(|pair| Pair { calls: ours.then(|| calls.clone()), ..pair });
        (who, pair.map(link::boxed))
    });
    report.cases.push(link::row(session, name.clone(), row.bytes, contenders.into())?);
    let calls = calls.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some([frames, calls]) = calls {
        let share = 1000.0 * calls as f64 / frames.max(1) as f64;
        let what = "doorbells and arms of ours for 1000 frames";
        report.notes.push(format!("{name}: {share:.2} {what}"));
    }
    Ok(())
}

/// Process of mqnet or DPDK.
enum Process {
    Ours(Half),
    Dpdk(Testpmd),
}

impl Process {
    fn pid(&self) -> u32 {
        match self {
            Self::Ours(half) => half.pid(),
            Self::Dpdk(testpmd) => testpmd.pid(),
        }
    }

    fn tail(&self) -> String {
        match self {
            Self::Ours(half) => half.tail(),
            Self::Dpdk(testpmd) => testpmd.tail(),
        }
    }

    fn received(&mut self) -> Result<u64> {
        match self {
            Self::Ours(half) => half.received(),
            Self::Dpdk(testpmd) => testpmd.received(),
        }
    }

    fn calls(&mut self) -> Option<u64> {
        match self {
            Self::Ours(half) => half.counts().ok().map(|[_, calls]| calls),
            Self::Dpdk(_) => None,
        }
    }
}

/// Received frames and system calls of the mqnet process in a measurement.
type Calls = Arc<Mutex<Option<[u64; 2]>>>;

/// Driver and device that move frames.
struct Pair {
    // The driver is dropped first: the device uses memory of the driver.
    driver: Process,
    device: Process,
    /// True if the device receives, false if the driver receives.
    to_device: bool,
    /// True if the device is the second process of `pids`, because the driver receives.
    device_is_second: bool,
    calls: Option<Calls>,
}

/// Parameters for starting the processes of a pair.
struct Starter<'a> {
    session: &'a Session,
    place: &'a Place<'a>,
    row: Row,
    /// True if the compared part is mqnet's, false if it is DPDK's.
    ours: bool,
    sockets: [String; 2],
}

impl Starter<'_> {
    fn new<'a>(
        session: &'a Session,
        place: &'a Place<'a>,
        row: Row,
        ours: bool,
    ) -> Result<Starter<'a>> {
        let whose = if ours { "ours" } else { "dpdk" };
        let sockets = [0, 1].map(|number| {
            let path = place.folder.join(format!("{whose}{number}.sock"));
            // Remove the socket of an earlier row; its listener has ended.
            let _ = std::fs::remove_file(&path);
            path.display().to_string()
        });
        Ok(Starter { session, place, row, ours, sockets })
    }

    /// Sockets of the row: two for [`Side::Link`], one otherwise.
    fn sockets(&self) -> &[String] {
        if self.row.side == Side::Link { &self.sockets } else { &self.sockets[..1] }
    }

    /// True if the driver requests checksums that the device completes.
    fn has_checksums(&self) -> bool {
        self.row.side == Side::Checksums || self.row.bytes > LONG
    }

    fn ours(&self, side: Side) -> Result<Process> {
        let Row { bytes, ring, to_device, .. } = self.row;
        let [tx_cpu, rx_cpu] = self.session.cpus;
        let setup = LinkSetup { bytes, tx_cpu, rx_cpu, channels: 1 };
        let [socket, other] = &self.sockets;
        let packed = if ring == Ring::Packed { "on" } else { "off" };
        let (which, endpoint) = match (side, to_device) {
            (Side::Device | Side::Behind, true) => (Which::Rx, format!("vhost-user:{socket}")),
            (Side::Device | Side::Behind, false) => (Which::Tx, format!("vhost-user:{socket}")),
            (Side::Link, _) => (Which::Join, format!("vhost-user:{socket} vhost-user:{other}")),
            (Side::Driver | Side::Checksums, _) => {
                let which = if to_device { Which::Make } else { Which::Take };
                let csum = if self.has_checksums() { "on" } else { "off" };
                (which, format!("virtio-user:{socket},queues=1,packed={packed},csum={csum}"))
            }
        };
        Half::start(&setup, which, &endpoint).map(Process::Ours)
    }

    fn dpdk(&self, side: Side) -> Result<Process> {
        let Row { bytes, ring, to_device, .. } = self.row;
        let packed = u8::from(ring == Ring::Packed);
        let vdev = |(number, socket): (usize, &String)| match side {
            Side::Driver => format!(
                "net_virtio_user{number},path={socket},queues=1,queue_size=1024,mrg_rxbuf=1,\
                 packed_vq={packed},in_order=1"
            ),
            // The vhost port offers segmentation only if requested.
            _ => {
                let tso = u8::from(bytes > LONG);
                format!("net_vhost{number},iface={socket},queues=1,tso={tso}")
            }
        };
        let vdevs: Vec<String> = self.sockets().iter().enumerate().map(vdev).collect();
        let [tx_cpu, rx_cpu] = self.session.cpus;
        let (cpu, mode) = match (self.row.side, side) {
            (Side::Link, Side::Driver) => (tx_cpu, "flowgen"),
            (Side::Link, _) => (rx_cpu, "io"),
            _ if (side == Side::Driver) == to_device => (tx_cpu, "txonly"),
            _ => (rx_cpu, "rxonly"),
        };
        let role = if side == Side::Driver { "driver" } else { "device" };
        let role = format!("{role}-{}", if self.ours { "ours" } else { "dpdk" });
        // Offloads for frames of many segments. A driver sends frames longer than the MTU only with
        // TCP segmentation and checksum offloads, which a device port does not support.
        let offloads: &[&str] = match (bytes > LONG, side) {
            (false, Side::Driver) if self.has_checksums() => &["--tx-offloads=0x8"],
            (false, _) => &[],
            (true, Side::Driver) => &["--tx-offloads=0x802c"],
            (true, _) => &["--tx-offloads=0x8000"],
        };
        let more = [&["--rxd=1024", "--txd=1024"], offloads].concat();
        let pages = self.place.pages;
        let setup = testpmd::Setup {
            role: &role,
            cpu,
            vdevs: &vdevs,
            mode,
            bytes,
            buffers: buffers(vdevs.len(), bytes),
            pages,
            more: &more,
        };
        let mut testpmd = Testpmd::start(&setup)?;
        testpmd.forward(bytes)?;
        Ok(Process::Dpdk(testpmd))
    }

    fn open(&self, side: Side) -> Result<Process> {
        let whole = self.row.side;
        if whole == Side::Behind && side == Side::Driver {
            return self.ours(side);
        }
        let is_driver = matches!(whole, Side::Driver | Side::Checksums);
        let end = if is_driver { Side::Driver } else { Side::Device };
        if self.ours && end == side { self.ours(whole) } else { self.dpdk(side) }
    }
}

/// Number of buffers in a testpmd's pool. For short frames the number slightly exceeds the capacity
/// of rings, caches and bursts.
///
/// With a much larger pool, the result would depend on the CPU's caches. DPDK's in-order driver of
/// split rings frees all used buffers together if a device finishes a burst before the next one
/// arrives. The pool then returns the oldest buffers first, so a large pool cycles through more
/// memory than a second-level cache holds (DPDK 22.11, `virtio_rxtx.c`).
fn buffers(ports: usize, bytes: usize) -> u32 {
    match ports {
        _ if bytes > 2048 => testpmd::PLENTY,
        1 => 3072,
        _ => 6144,
    }
}

impl Pair {
    fn start(session: &Session, place: &Place<'_>, row: Row, ours: bool) -> Result<Self> {
        let starter = Starter::new(session, place, row, ours)?;
        let device = starter.open(Side::Device)?;
        for socket in starter.sockets() {
            wait_for_socket(socket, &device)?;
        }
        let driver = starter.open(Side::Driver)?;
        let to_device = row.to_device && row.side != Side::Link;
        let mut pair =
            Self { driver, device, to_device, device_is_second: !row.to_device, calls: None };
        if slices::moves_frames(&mut pair)? {
            return Ok(pair);
        }
        let (driver, device) = (pair.driver.tail(), pair.device.tail());
        Err(format!("no frames move: driver: {driver}; device: {device}").into())
    }
}

impl End for Pair {
    fn pids(&self) -> Vec<u32> {
        let [device, driver] = [self.device.pid(), self.driver.pid()];
        if self.device_is_second { vec![driver, device] } else { vec![device, driver] }
    }

    fn frames_received(&mut self) -> Result<u64> {
        let frames =
            if self.to_device { self.device.received()? } else { self.driver.received()? };
        let calls = &self.calls;
        if let Some(all) = calls
            && let Some(calls) = self.device.calls().or_else(|| self.driver.calls())
        {
            *all.lock().unwrap_or_else(PoisonError::into_inner) = Some([frames, calls]);
        }
        Ok(frames)
    }
}

fn wait_for_socket(socket: &str, device: &Process) -> Result<()> {
    for _ in 0..200 {
        if Path::new(socket).exists() {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Err(format!("the device does not listen: {}", device.tail()).into())
}
