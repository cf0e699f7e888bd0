//! RX queue that also drains the rings of channels that are not in use.
//!
//! A device may write frames into a ring just before it processes the message that disables the
//! ring, and may wait until the frames are consumed. Channel `c` of `n` therefore also reads the
//! rings `c + n`, `c + 2n` and so on. Usually these rings are empty, so a queue polls them only at
//! intervals, and when the channel's own ring is empty.

use std::io;
use std::os::fd::AsFd;

use mqnet_netdev::{Armed, Burst, DetachedFrame, Fault, OwningRx, Queue, Trigger, WakeSource};
use mqnet_pktbuf::Returner;
use mqnet_sysio::epoll::{Epoll, Interest};

/// Number of bursts of the channel's own ring between two polls of the other rings.
const EVERY: u32 = 64;

/// RX queue over the channel's own ring, which is the first, and the rings of unused channels.
pub(crate) struct Fold {
    rings: Vec<Box<dyn OwningRx>>,
    /// Index of the ring of the last peek.
    shown: usize,
    /// Number of frames of that ring that were peeked and not released. These must come first in
    /// the next peek: some segments of a frame may have been sent.
    left: usize,
    /// Number of bursts since the other rings were polled.
    since: u32,
    epoll: Epoll,
}

impl Fold {
    /// Creates the queue over these rings, at least one.
    pub(crate) fn new(rings: Vec<Box<dyn OwningRx>>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        for event in rings.iter().filter_map(|ring| ring.event()) {
            epoll.add(event.fd, Interest::ReadableEdge, 0)?;
        }
        Ok(Self { rings, shown: 0, left: 0, since: EVERY, epoll })
    }
}

impl Queue for Fold {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        let mut armed = Armed::Sleep;
        for ring in &mut self.rings {
            if ring.arm(need)? == Armed::MoreWork {
                armed = Armed::MoreWork;
                // The work may be in one of the other rings, so poll them next.
                self.since = EVERY;
            }
        }
        Ok(armed)
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        Some(WakeSource { fd: self.epoll.as_fd(), trigger: Trigger::Edge })
    }

    fn park(&mut self) {
        // Keep unreleased frames first: a lane that is parked within a frame continues with this
        // frame.
        self.rings.iter_mut().for_each(|ring| ring.park());
    }
}

impl OwningRx for Fold {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let before = burst.frames().len();
        let Self { rings, shown, left, since, .. } = self;
        if *left > 0 {
            *since = since.saturating_add(1);
            // If the other rings are due, only the unreleased frames precede them.
            let budget = if *since >= EVERY { budget.min(*left) } else { budget };
            rings[*shown].peek(burst, budget)?;
            *left = burst.frames().len() - before;
            return Ok(());
        }
        let others_too = *since >= EVERY;
        *since = if others_too { 0 } else { *since + 1 };
        // After a burst of another ring, the next burst reads the own ring again. A device that
        // fills another ring without end therefore does not starve the own ring.
        let order = rings.iter_mut().enumerate();
        for (number, ring) in order.rev().filter(|(number, _)| others_too || *number == 0) {
            ring.peek(burst, budget)?;
            *shown = number;
            *left = burst.frames().len() - before;
            if *left > 0 {
                if number > 0 {
                    *since = EVERY - 1;
                }
                return Ok(());
            }
        }
        // No polled ring has a frame: poll all rings next time.
        *since = EVERY;
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.left = self.left.saturating_sub(frames);
        self.rings[self.shown].release(frames)
    }

    fn detach(&mut self) -> Result<Option<DetachedFrame>, Fault> {
        let kept = self.rings[self.shown].detach()?;
        self.left = self.left.saturating_sub(usize::from(kept.is_some()));
        Ok(kept)
    }

    /// A returner belongs to one pool, so only the channel's own ring is read from now on.
    fn returner(&mut self) -> Option<Returner> {
        self.rings.truncate(1);
        (self.shown, self.left) = (0, 0);
        self.rings[0].returner()
    }
}
