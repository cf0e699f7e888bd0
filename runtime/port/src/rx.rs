//! The RX queue of a port: what the program sent.

use std::sync::Arc;

use mqnet_netdev::limits::BURST_BYTES;
use mqnet_netdev::{Armed, Burst, ChannelStats, Event, Fault, Queue, RxBrings, Trigger};
use mqnet_rings::mpsc::Consumer;
use mqnet_shmem::Span;
use mqnet_sysio::eventfd::EventFd;

use crate::function::Slot;

pub(crate) struct PortRx {
    pub(crate) ring: Consumer<Slot>,
    pub(crate) door: Arc<EventFd>,
    pub(crate) stats: Arc<ChannelStats>,
}

impl Queue for PortRx {
    fn arm(&mut self, _need: u32) -> Result<Armed, Fault> {
        self.stats.rx.arms.add(1);
        Ok(if self.ring.arm() { Armed::Sleep } else { Armed::MoreWork })
    }

    fn event(&self) -> Option<Event<'_>> {
        use std::os::fd::AsFd;
        Some(Event { fd: self.door.as_fd(), trigger: Trigger::Edge })
    }
}

impl RxBrings for PortRx {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let mut bytes = 0;
        for slot in self.ring.peek().take(budget) {
            if burst.is_full() || bytes >= BURST_BYTES {
                break;
            }
            bytes += slot.len as usize;
            burst.push(slot.hdr, slot.len, Span::of(&slot.bytes).first(slot.len as usize));
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        let bytes = self.ring.peek().take(frames).map(|slot| u64::from(slot.len)).sum();
        self.ring.release(frames);
        self.stats.rx.packets.add(frames as u64);
        self.stats.rx.bytes.add(bytes);
        Ok(())
    }
}
