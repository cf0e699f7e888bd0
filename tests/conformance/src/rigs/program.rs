//! Rigs of a port. Queues wrap the program's end of the channel.

use std::sync::Arc;

use mqnet_netdev::{
    Armed, Burst, Fault, FrameMeta, Function, Plan, Queue, QueuePairStats, Recv, Rx, SyscallRx,
    SyscallTx, Tx, WakeSource,
};
use mqnet_port::{Error, PortConfig, PortFunction, Receiver, Sender};
use mqnet_shmem::{Segments, Span, SpanMut};
use mqnet_wire::{Layer, VnetHdr};

use super::first;
use crate::Rig;

/// RX queue for the frames that the program receives.
struct Received(Receiver, Arc<QueuePairStats>);

/// TX queue for the frames that the program sends.
struct Sent(Sender, Arc<QueuePairStats>);

impl Queue for Received {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallRx for Received {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        let Some(packet) = self.0.try_recv().expect("an open port") else {
            return Ok(Recv::Empty);
        };
        room.head.copy_from(Span::of(&packet));
        self.1.rx.packets.add(1);
        self.1.rx.bytes.add(packet.len() as u64);
        Ok(Recv::Frame(FrameMeta { len: packet.len() as u32, hdr: VnetHdr::default() }))
    }
}

impl Queue for Sent {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallTx for Sent {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let mut taken = 0;
        for frame in &burst.frames()[from..] {
            let mut bytes = vec![0; frame.len as usize];
            let mut at = SpanMut::of(&mut bytes).copy_from(frame.head);
            for piece in burst.more(frame) {
                at += SpanMut::of(&mut bytes[at..]).copy_from(*piece);
            }
            match self.0.try_send(&bytes) {
                Ok(()) => {}
                Err(Error::Full) => break,
                Err(e) => panic!("an open port: {e}"),
            }
            self.1.tx.packets.add(1);
            self.1.tx.bytes.add(u64::from(frame.len));
            taken += 1;
        }
        Ok(taken)
    }
}

/// Opens a port; returns the function, its channel, the program's end of the channel, and the
/// largest frame.
fn port() -> (PortFunction, mqnet_netdev::Channel, (Receiver, Sender), u32) {
    let layer = Layer::Ethernet;
    let name = "port:test".to_owned();
    let config = PortConfig { name, channels: 1, layer, mtu: 9000, mtu_max: 9000, depth: 256 };
    let (mut function, mut program) = PortFunction::open(config).expect("a port");
    let caps = function.caps();
    let plan = Plan::join(&caps, &caps).expect("a plan");
    let channel = first(function.open(&plan).expect("open"));
    (function, channel, program.remove(0), plan.frame_max)
}

/// Rig from a port to the program.
pub fn to_program() -> Rig {
    let (function, channel, (receiver, sender), frame_max) = port();
    let rx_stats = Arc::<QueuePairStats>::default();
    Rig {
        name: "port, to the program",
        tx: channel.tx,
        rx: Rx::Syscall(Box::new(Received(receiver, rx_stats.clone()))),
        tx_stats: function.stats()[0].clone(),
        rx_stats,
        frame_max,
        lossless: true,
        keep: Box::new((channel.rx, sender, function)),
    }
}

/// Rig from the program to a port.
pub fn from_program() -> Rig {
    let (function, channel, (receiver, sender), frame_max) = port();
    let tx_stats = Arc::<QueuePairStats>::default();
    Rig {
        name: "port, from the program",
        tx: Tx::Syscall(Box::new(Sent(sender, tx_stats.clone()))),
        rx: channel.rx,
        tx_stats,
        rx_stats: function.stats()[0].clone(),
        frame_max,
        lossless: true,
        keep: Box::new((channel.tx, receiver, function)),
    }
}
