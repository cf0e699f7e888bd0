//! Queue pairs of an agreement, opened over the two windows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqnet_netdev::{Channel, QueuePairStats, Rx, Tx};
use mqnet_shmem::Window;

use crate::hw::{Hw, MemoryWindows};
use crate::layout::Geometry;
use crate::link::Agreement;
use crate::rx::RxHalf;
use crate::shared::{Common, Words};
use crate::tx::TxHalf;

/// Sets the control blocks of the agreement's bank in this end's window to 0. The peer no longer
/// uses this bank, and writes there only after this end has announced the bank.
pub(crate) fn clear_bank(hw: &dyn Hw, agreement: &Agreement) {
    let Some(windows) = hw.windows() else { return };
    for at in agreement.inbound.controls().step_by(8) {
        // A later Release store announces the bank, so these stores may be Relaxed.
        windows.inbound.word(windows.offset + at).store(0, Ordering::Relaxed);
    }
}

/// Opens the queue pairs of an agreement. `Err` if the link is down or the hardware lacks a
/// doorbell.
pub(crate) fn open_queue_pairs(
    hw: &dyn Hw,
    agreement: &Agreement,
    stats: &[Arc<QueuePairStats>],
) -> Result<Vec<Channel>, String> {
    let windows = hw.windows().ok_or("the hardware link is down")?;
    (0..agreement.plan.channels).map(|qp| open(hw, &windows, agreement, stats, qp)).collect()
}

fn open(
    hw: &dyn Hw,
    windows: &MemoryWindows,
    agreement: &Agreement,
    stats: &[Arc<QueuePairStats>],
    qp: u16,
) -> Result<Channel, String> {
    let bit = 1 + usize::from(qp);
    let words = |region: &Arc<_>, geometry: &Geometry| {
        Words::new(Arc::clone(region), windows.offset, geometry, qp)
    };
    let common = || -> Result<Common, String> {
        Ok(Common {
            channel: qp,
            generation: agreement.words_generation(),
            inbound: words(&windows.inbound, &agreement.inbound),
            outbound: words(&windows.outbound, &agreement.outbound),
            peer_bell: hw.peer_doorbell(bit).ok_or(format!("the peer has no doorbell {bit}"))?,
            event: hw.doorbell_event(bit).ok_or(format!("this end has no doorbell {bit}"))?,
            stats: stats[usize::from(qp)].clone(),
        })
    };
    let ring = |region: &Arc<_>, geometry: &Geometry| {
        let base = windows.offset + geometry.ring_at(qp);
        Window::new(Arc::clone(region), base, geometry.ring)
    };
    let inbound = ring(&windows.inbound, &agreement.inbound);
    let outbound = ring(&windows.outbound, &agreement.outbound);
    Ok(Channel {
        rx: Rx::Owning(Box::new(RxHalf::new(common()?, inbound, agreement.plan.frame_max))),
        tx: Tx::Owning(Box::new(TxHalf::new(common()?, outbound, agreement.outbound.depth))),
    })
}
