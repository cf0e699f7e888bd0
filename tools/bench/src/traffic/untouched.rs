//! Frames as `testpmd` makes and takes them: their headers are written and the rest of them is
//! whatever lies there; what has come is not looked at. Against such a peer these ends do its work
//! and no more.

use std::sync::Arc;

use mqnet_netdev::{
    Armed, Burst, ChannelStats, Event, Fault, FrameMeta, Queue, Recv, RxBorrows, TxBorrows,
};
use mqnet_shmem::Segments;
use mqnet_wire::VnetHdr;

/// Bytes that are written of each frame: Ethernet, IPv4 and UDP, as `testpmd`'s `txonly` has them.
const HEADERS: usize = 14 + 20 + 8;

/// Makes frames in the sink's own memory.
pub(super) struct Maker {
    pub(super) bytes: usize,
    pub(super) stats: Arc<ChannelStats>,
}

/// Takes frames.
pub(super) struct Taker(pub(super) Arc<ChannelStats>);

impl Queue for Maker {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        Ok(Armed::MoreWork)
    }

    fn event(&self) -> Option<Event<'_>> {
        None
    }
}

impl RxBorrows for Maker {
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

    fn event(&self) -> Option<Event<'_>> {
        None
    }
}

impl TxBorrows for Taker {
    fn submit(&mut self, burst: &Burst<'_>, from: usize) -> Result<usize, Fault> {
        let frames = burst.frames().len() - from;
        self.0.tx.packets.add(frames as u64);
        Ok(frames)
    }
}
