//! Null function: discards all sent frames and receives none.

use std::sync::Arc;

use mqnet_shmem::Segments;
use mqnet_wire::Layer;

use crate::limits::{CHANNELS_MAX, FRAME_MAX, MTU_MAX};
use crate::{
    Armed, Burst, Caps, Channel, Fault, Function, Offloads, OpenChannelsError, Plan, Queue,
    QueuePairStats, Recv, Rx, SyscallRx, SyscallTx, Tx, WakeSource,
};

/// The null function.
#[derive(Debug)]
pub struct Null {
    /// Layer of the other side.
    layer: Layer,
    stats: Vec<Arc<QueuePairStats>>,
}

impl Null {
    /// Creates a null function with `channels` channels (1..=64).
    pub fn new(channels: u16) -> Self {
        let channels = channels.clamp(1, CHANNELS_MAX);
        Self { layer: Layer::Ethernet, stats: (0..channels).map(|_| Arc::default()).collect() }
    }
}

impl Function for Null {
    fn name(&self) -> &str {
        "null:"
    }

    fn caps(&self) -> Caps {
        Caps {
            layer: self.layer,
            channels: self.stats.len() as u16,
            wanted: None,
            mtu: None,
            mtu_found: None,
            mtu_max: MTU_MAX,
            frame_max: FRAME_MAX,
            rx_offloads: Offloads::NONE,
            tx_offloads: Offloads::ALL,
            rx_fixed: Offloads::NONE,
        }
    }

    fn set_partner(&mut self, partner: &Caps) {
        self.layer = partner.layer;
    }

    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        plan.check_channels(self.name(), self.stats.len() as u16)?;
        let channel = |stats: &Arc<QueuePairStats>| Channel {
            rx: Rx::Syscall(Box::new(EmptyRx)),
            tx: Tx::Syscall(Box::new(DiscardTx(stats.clone()))),
        };
        Ok(self.stats.iter().take(usize::from(plan.channels)).map(channel).collect())
    }

    fn stats(&self) -> &[Arc<QueuePairStats>] {
        &self.stats
    }
}

/// Creates an RX queue that never receives a frame.
pub fn silent_rx() -> Rx {
    Rx::Syscall(Box::new(EmptyRx))
}

/// Creates a TX queue that discards all frames.
pub fn swallowing_tx() -> Tx {
    Tx::Syscall(Box::new(DiscardTx(Arc::default())))
}

struct EmptyRx;
struct DiscardTx(Arc<QueuePairStats>);

impl Queue for EmptyRx {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::Sleep)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallRx for EmptyRx {
    fn recv(&mut self, _room: &mut Segments<'_>) -> Result<Recv, Fault> {
        Ok(Recv::Empty)
    }
}

impl Queue for DiscardTx {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallTx for DiscardTx {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let frames = &burst.frames()[from..];
        self.0.tx.packets.add(frames.len() as u64);
        self.0.tx.bytes.add(frames.iter().map(|f| u64::from(f.len)).sum());
        Ok(frames.len())
    }
}
