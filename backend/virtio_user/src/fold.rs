//! A receive queue that also looks at the rings beyond the channels in use.
//!
//! A device may have put frames into a ring just before it hears that the ring is not used any
//! more, and may wait until they are taken. So channel `c` of `n` reads the rings `c + n`,
//! `c + 2n`, ... too; they are empty as a rule, and looked at when its own is, or now and then.

use std::io;
use std::os::fd::AsFd;

use mqnet_netdev::{Armed, Burst, Event, Fault, Kept, Queue, RxBrings, Trigger};
use mqnet_pktbuf::Returner;
use mqnet_sysio::epoll::{Epoll, Interest};

/// Bursts of its own ring between two looks at the others.
const EVERY: u32 = 64;

/// Its own ring first, then the others.
pub(crate) struct Fold {
    rings: Vec<Box<dyn RxBrings>>,
    /// The one that the last peek showed.
    shown: usize,
    /// Frames of that which were not released: they are shown first again, by the contract of a
    /// queue. Of one of them some segments may have been sent.
    left: usize,
    /// Bursts since the others were looked at.
    since: u32,
    epoll: Epoll,
}

impl Fold {
    /// Serves these rings, of which there is at least one.
    pub(crate) fn new(rings: Vec<Box<dyn RxBrings>>) -> io::Result<Self> {
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
                // It may be one of the others.
                self.since = EVERY;
            }
        }
        Ok(armed)
    }

    fn event(&self) -> Option<Event<'_>> {
        Some(Event { fd: self.epoll.as_fd(), trigger: Trigger::Edge })
    }

    fn park(&mut self) {
        // What was left is still first: a lane that is parked in the middle of a frame goes on.
        self.rings.iter_mut().for_each(|ring| ring.park());
    }
}

impl RxBrings for Fold {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let before = burst.frames().len();
        let Self { rings, shown, left, since, .. } = self;
        if *left > 0 {
            *since = since.saturating_add(1);
            // When the others are due, nothing new comes before them.
            let budget = if *since >= EVERY { budget.min(*left) } else { budget };
            rings[*shown].peek(burst, budget)?;
            *left = burst.frames().len() - before;
            return Ok(());
        }
        let others_too = *since >= EVERY;
        *since = if others_too { 0 } else { *since + 1 };
        // What lies in the others came first; the next burst is its own again, so that a device
        // that never stops there is in nobody's way.
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
        // Nothing here: the others have their turn.
        *since = EVERY;
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        self.left = self.left.saturating_sub(frames);
        self.rings[self.shown].release(frames)
    }

    fn keep(&mut self) -> Result<Option<Kept>, Fault> {
        let kept = self.rings[self.shown].keep()?;
        self.left = self.left.saturating_sub(usize::from(kept.is_some()));
        Ok(kept)
    }

    /// Memory has one way home, so from now on only its own ring is read.
    fn returner(&mut self) -> Option<Returner> {
        self.rings.truncate(1);
        (self.shown, self.left) = (0, 0);
        self.rings[0].returner()
    }
}
