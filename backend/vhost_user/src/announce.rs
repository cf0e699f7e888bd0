//! Announcement of a guest that was migrated to this host (`SEND_RARP`).
//!
//! A RARP frame with the guest's address leaves through the guest's first queue, so that switches
//! learn the guest's new port.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mqnet_netdev::wrap::insert::Insert;
use mqnet_netdev::{Armed, Burst, Fault, OwningRx, Queue, QueuePairStats, WakeSource};
use mqnet_shmem::Span;
use mqnet_wire::VnetHdr;

use crate::GuestTx;

/// Length of the RARP frame without the FCS.
const LEN: usize = 60;

/// Pending announcement; a newer address replaces an older one.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    is_due: AtomicBool,
    mac: Mutex<Option<[u8; 6]>>,
}

impl Announcements {
    pub(crate) fn add(&self, mac: [u8; 6]) {
        *self.mac.lock().unwrap_or_else(PoisonError::into_inner) = Some(mac);
        // `Relaxed` suffices: the lock publishes the address, and the flag is only a hint.
        self.is_due.store(true, Ordering::Relaxed);
    }

    /// Discards the pending announcement when the guest disconnects.
    pub(crate) fn forget(&self) {
        self.take();
    }

    #[cold]
    fn take(&self) -> Option<[u8; 6]> {
        self.is_due.store(false, Ordering::Relaxed);
        self.mac.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// RARP request for the guest's own address, from the guest to the broadcast address.
pub(crate) fn frame(mac: [u8; 6]) -> [u8; LEN] {
    let mut frame = [0; LEN];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&mac);
    // RARP: Ethernet and IPv4, addresses of 6 and 4 bytes, request.
    frame[12..22].copy_from_slice(&[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    frame[22..28].copy_from_slice(&mac);
    frame[32..38].copy_from_slice(&mac);
    frame
}

/// RX queue of a guest's first pair, with announcements inserted between the guest's frames.
#[derive(Debug)]
pub(crate) struct Announcing {
    inner: GuestTx,
    due: Arc<Announcements>,
    frame: [u8; LEN],
    /// True from the construction of the announcement until its release.
    has_frame: bool,
    insert: Insert,
    stats: Arc<QueuePairStats>,
}

impl Announcing {
    pub(crate) fn new(inner: GuestTx, due: Arc<Announcements>, stats: Arc<QueuePairStats>) -> Self {
        Self { inner, due, frame: [0; LEN], has_frame: false, insert: Insert::default(), stats }
    }
}

impl Queue for Announcing {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        let armed = self.inner.arm(need)?;
        let is_due = self.has_frame || self.due.is_due.load(Ordering::Relaxed);
        Ok(if is_due { Armed::MoreWork } else { armed })
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        self.inner.event()
    }

    fn park(&mut self) {
        self.inner.park();
    }
}

impl OwningRx for Announcing {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        if self.due.is_due.load(Ordering::Relaxed)
            && let Some(mac) = self.due.take()
        {
            (self.frame, self.has_frame) = (frame(mac), true);
        }
        let Self { inner, frame, has_frame, insert, .. } = self;
        let before = burst.frames().len();
        if !*has_frame {
            inner.peek(burst, budget)?;
            insert.show(0, 0, burst.frames().len() - before);
            return Ok(());
        }
        let waits = insert.lead().min(budget);
        if waits > 0 {
            inner.peek(burst, waits)?;
        }
        let lead = burst.frames().len() - before;
        let own = usize::from(lead < budget);
        if own > 0 {
            burst.push(VnetHdr::default(), LEN as u32, Span::of(frame));
        }
        insert.show(lead, own, 0);
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        let (inner, own) = self.insert.release(frames);
        if inner > 0 {
            self.inner.release(inner)?;
        }
        if own > 0 {
            self.has_frame = false;
            self.stats.rx.packets.add(1);
            self.stats.rx.bytes.add(LEN as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::VringCell;

    // Goal: an announcement is peeked until it is released, is sent once, and is counted. A lane
    // does not sleep while an announcement is pending.
    #[test]
    fn announcements_go_out_once() {
        let stats = Arc::<QueuePairStats>::default();
        let cell = Arc::new(VringCell::new().unwrap());
        let guest = GuestTx::new(0, [cell], 1518, stats.clone()).unwrap();
        let due = Arc::<Announcements>::default();
        let mut queue = Announcing::new(guest, due.clone(), stats.clone());
        assert_eq!(queue.arm(0).unwrap(), Armed::Sleep);
        let mac = [2, 0, 0, 0, 0, 7];
        due.add(mac);
        assert_eq!(queue.arm(0).unwrap(), Armed::MoreWork);
        for taken in [0, 1] {
            let mut seen = [0; LEN];
            {
                let mut burst = Burst::new();
                queue.peek(&mut burst, 64).unwrap();
                assert_eq!(burst.frames()[0].head.read_header(&mut seen), LEN);
            }
            assert_eq!(
                (&seen[..6], &seen[6..12], &seen[32..38]),
                (&[0xff; 6][..], &mac[..], &mac[..])
            );
            queue.release(taken).unwrap();
        }
        let mut burst = Burst::new();
        queue.peek(&mut burst, 64).unwrap();
        assert!(burst.frames().is_empty());
        assert_eq!((stats.rx.packets.get(), stats.rx.bytes.get()), (1, 60));
    }
}
