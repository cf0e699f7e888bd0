//! Datagrams of 1500 bytes without offloads into a TAP: many frames per system call (io_uring)
//! compared with one frame per call.

use std::net::UdpSocket;
use std::sync::Arc;

use mqnet_engine::{Direction, Lane, LaneId};
use mqnet_netdev::{
    Armed, Burst, Fault, Function, KernelInterface, Offloads, OwningRx, Plan, Queue,
    QueuePairStats, Rx, WakeSource,
};
use mqnet_shmem::Span;
use mqnet_sysio::{clock, namespace};
use mqnet_tap::{Io, TapConfig, TapFunction};
use mqnet_wire::VnetHdr;

use super::report::{Case, Line, Report, Unit};
use super::{Result, Session, pingpong};

/// Bytes of an Ethernet header and an IP packet of the usual MTU.
const FRAME: usize = 1514;
/// Port of a socket that is never read: the kernel processes a datagram completely, but wakes no
/// thread.
const PORT: u16 = 7777;

/// Source that repeats the same datagrams from its own memory, as an owning queue does.
struct Source {
    frames: Vec<u8>,
}

impl Source {
    /// Creates the datagrams for the device with the number `device`.
    fn new(device: u8) -> Self {
        let mut frame = vec![0; FRAME];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, device, 2, 0, 0, 0, 1, device, 8, 0]);
        let packet = &mut frame[14..];
        let [high, low] = (packet.len() as u16).to_be_bytes();
        packet[..12].copy_from_slice(&[0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0]);
        packet[12..20].copy_from_slice(&[10, 0, device, 2, 10, 0, device, 1]);
        let sum = Span::of(&packet[..20]).sum() as u16;
        packet[10..12].copy_from_slice(&(!sum).to_ne_bytes());
        let length = (packet.len() - 20) as u16;
        packet[20..22].copy_from_slice(&1000u16.to_be_bytes());
        packet[22..24].copy_from_slice(&PORT.to_be_bytes());
        packet[24..26].copy_from_slice(&length.to_be_bytes());
        Self { frames: frame.repeat(64) }
    }
}

impl Queue for Source {
    fn arm(&mut self, _need: u32) -> std::result::Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl OwningRx for Source {
    fn peek<'a>(
        &'a mut self,
        burst: &mut Burst<'a>,
        budget: usize,
    ) -> std::result::Result<(), Fault> {
        for frame in self.frames.chunks(FRAME).take(budget) {
            burst.push(VnetHdr::default(), FRAME as u32, Span::of(frame));
        }
        Ok(())
    }

    fn release(&mut self, _frames: usize) -> std::result::Result<(), Fault> {
        Ok(())
    }
}

/// TAP, and the lane into it.
struct Path {
    tap: TapFunction,
    lane: Lane,
}

impl Path {
    fn new(device: u8, io: Io) -> Result<Self> {
        let address = format!("10.0.{device}.1/24").parse()?;
        let mut tap = TapFunction::open(TapConfig {
            name: format!("mqbench{device}"),
            mac: Some([2, 0, 0, 0, 0, device]),
            addresses: vec![address],
            io,
            ..TapConfig::default()
        })?;
        let mut caps = tap.caps();
        (caps.rx_offloads, caps.tx_offloads) = (Offloads::NONE, Offloads::NONE);
        let plan = Plan::join(&tap.caps(), &caps)?;
        let channel = tap.open(&plan)?.into_iter().next().ok_or("a TAP without channels")?;
        tap.set_carrier(true);
        let id = LaneId { set: 0, channel: 0, way: Direction::AToB };
        let source = Rx::Owning(Box::new(Source::new(device)));
        let stats = tap.stats()[0].clone();
        let lane = Lane::new(id, source, channel.tx, plan.frame_max, None, stats)?;
        Ok(Self { tap, lane })
    }

    fn stats(&self) -> Arc<QueuePairStats> {
        self.tap.stats()[0].clone()
    }

    fn burst(&mut self) -> usize {
        self.lane.poll(clock::monotonic).map_or(0, |polled| polled.frames)
    }
}

pub(super) fn run(session: &Session, report: &mut Report) -> Result<()> {
    namespace::enter_new_net()
        .map_err(|e| format!("a network namespace: {e}: run as root, or inside 'unshare -Urn'"))?;
    let _nobody_reads = UdpSocket::bind(("0.0.0.0", PORT))?;
    let mut ways = [Path::new(1, Io::Uring)?, Path::new(2, Io::Plain)?];
    let mut series = [const { Vec::new() }; 2];
    // The first slice of each path warms caches and is not counted.
    for pair in 0..=session.pairs {
        session.check()?;
        session.progress.show(&format!("tap: pair {pair} of {}", session.pairs));
        for turn in super::slices::order(2, pair) {
            let mut burst = || ways[turn].burst();
            let slice = pingpong::one_cpu_slice(session.cpus[0], session.slice, &mut burst)?;
            series[turn].push(slice.sample());
        }
    }
    let names = ["io=uring", "io=plain"];
    let lines = names
        .iter()
        .zip(series)
        .map(|(name, series)| Line::of(name, series.into_iter().skip(1).collect()));
    let name = format!("UDP in frames of {FRAME} B to a TAP");
    report.cases.push(Case::new(name, Unit::Frames { bytes: FRAME }, lines.collect()));
    for (name, way) in names.iter().zip(&ways) {
        let stats = way.stats();
        let (calls, frames) = (stats.tx.syscalls.get() as f64, stats.tx.packets.get() as f64);
        if stats.tx.drops.total() > 0 {
            return Err(format!("{name}: the kernel dropped {}", stats.tx.drops.total()).into());
        }
        report.notes.push(format!("{name}: {:.3} system calls a frame", calls / frames));
    }
    Ok(())
}
