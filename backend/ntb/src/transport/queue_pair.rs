//! Resources of a queue pair. The queues of channels are created from them.

use std::sync::Arc;

use mqnet_sysio::eventfd::EventFd;

use super::cell::Cell;
use super::shared::PairState;
use super::slots::{RxSlots, TxSlots};
use crate::hw::{Doorbell, DoorbellTrap};

/// Rings, state and notifications of a queue pair.
#[derive(Clone)]
pub(crate) struct QueuePair {
    pub(crate) state: Arc<PairState>,
    pub(crate) rx: Arc<Cell<RxSlots>>,
    pub(crate) tx: Arc<Cell<TxSlots>>,
    /// Event of the pair's doorbell at this end.
    pub(crate) event: Arc<EventFd>,
    pub(crate) trap: Option<Arc<dyn DoorbellTrap>>,
    /// Doorbell of the pair at the peer.
    pub(crate) doorbell: Arc<dyn Doorbell>,
}
