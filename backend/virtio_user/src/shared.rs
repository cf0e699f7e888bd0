//! Queue pair, with the state that its RX and TX queues share.

use std::sync::Arc;

use mqnet_netdev::{Channel, HandOver, OwningRx, Plan, QueuePairStats, Rx, Tx};
use mqnet_sysio::eventfd::EventFd;
use mqnet_virtio::driver::DriverQueue;

use crate::rx::{RxCore, RxQueue};
use crate::tx::{TxCore, TxQueue};

/// Queue pair, for any layout of its rings.
pub(crate) trait Pair: Send {
    fn channel(&self, channel: u16, plan: &Plan) -> Channel;
    /// Receive queue over this pair's ring for channel `channel`, with that channel's statistics.
    fn read_by(&self, channel: u16, plan: &Plan, stats: Arc<QueuePairStats>) -> Box<dyn OwningRx>;
    /// Makes receive buffers available for all free descriptors, unless a queue has the ring.
    fn refill(&self) -> Result<(), String>;
    /// True after a violation by the device in one of the rings, if no queue has that ring.
    fn is_broken(&self) -> bool;
}

/// State that the RX and TX queues of a pair share: rings in hand-over cells, events, counters.
pub(crate) struct Queues<Q: DriverQueue> {
    pub(crate) rx: Arc<HandOver<RxCore<Q>>>,
    pub(crate) tx: Arc<HandOver<TxCore<Q>>>,
    pub(crate) rx_event: Arc<EventFd>,
    pub(crate) tx_event: Arc<EventFd>,
    pub(crate) stats: Arc<QueuePairStats>,
}

impl<Q: DriverQueue + 'static> Pair for Queues<Q> {
    fn channel(&self, channel: u16, plan: &Plan) -> Channel {
        let (max, stats) = (plan.frame_max, &self.stats);
        let rx = self.read_by(channel, plan, stats.clone());
        let tx = self.tx.clone();
        let tx = TxQueue::new(channel, tx, max, self.tx_event.clone(), stats.clone());
        Channel { rx: Rx::Owning(rx), tx: Tx::Owning(Box::new(tx)) }
    }

    fn read_by(&self, channel: u16, plan: &Plan, stats: Arc<QueuePairStats>) -> Box<dyn OwningRx> {
        let (rx, event) = (self.rx.clone(), self.rx_event.clone());
        Box::new(RxQueue::new(channel, rx, plan.rx_frame_max(), event, stats))
    }

    fn refill(&self) -> Result<(), String> {
        // A queue that has the ring refills it.
        let refilled = self.rx.with(|core| core.refill()).unwrap_or(Ok(()));
        refilled.map_err(|e| format!("the device's doorbell: {e}"))
    }

    fn is_broken(&self) -> bool {
        let rx = self.rx.with(|core| core.is_broken());
        rx == Some(true) || self.tx.with(|core| core.is_broken()) == Some(true)
    }
}
