//! Frames as in `testpmd`: only the headers are written, the payload keeps the contents of the
//! buffer, and received frames are not read. These ends therefore do the same work as a `testpmd`
//! peer.

use std::sync::Arc;

use mqnet_netdev::{
    Armed, Burst, Fault, FrameMeta, Queue, QueuePairStats, Recv, SyscallRx, SyscallTx, WakeSource,
};
use mqnet_shmem::Segments;
use mqnet_wire::VnetHdr;

/// Bytes written per frame: Ethernet, IPv4 and UDP headers, as in `testpmd`'s `txonly` mode.
const HEADERS: usize = 14 + 20 + 8;

/// Source that makes frames in the sink's memory.
pub(super) struct Maker {
    pub(super) bytes: usize,
    pub(super) stats: Arc<QueuePairStats>,
}

/// Sink that discards frames without reading them.
pub(super) struct Taker(pub(super) Arc<QueuePairStats>);

impl Queue for Maker {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallRx for Maker {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        room.head.write_header(&[0x5a; HEADERS]);
        self.stats.rx.packets.add(1);
        Ok(Recv::Frame(FrameMeta { len: self.bytes as u32, hdr: VnetHdr::default() }))
    }
}

impl Queue for Taker {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        None
    }
}

impl SyscallTx for Taker {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let frames = burst.frames().len() - from;
        self.0.tx.packets.add(frames as u64);
        Ok(frames)
    }
}
