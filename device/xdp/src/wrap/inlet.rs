//! RX queues that also return the frames that a program on the opposite lane reinjects.

use std::collections::VecDeque;
use std::time::Duration;

use mqnet_netdev::wrap::insert::Insert;
use mqnet_netdev::{
    Armed, Burst, DetachedFrame, DropReason, Fault, FrameMeta, OwningRx, Queue, Recv, SyscallRx,
    WakeSource,
};
use mqnet_pktbuf::Returner;
use mqnet_shmem::{Segments, Span};

use super::OwnedFrame;
use super::reinject::ReinjectRx;

pub(super) struct OwningQueue {
    pub(super) inner: Box<dyn OwningRx>,
    pub(super) inlet: ReinjectRx,
}

pub(super) struct SyscallQueue {
    pub(super) inner: Box<dyn SyscallRx>,
    pub(super) inlet: ReinjectRx,
}

impl Queue for OwningQueue {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        if self.inlet.arm() { Ok(Armed::MoreWork) } else { self.inner.arm(need) }
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        self.inner.event()
    }

    fn park(&mut self) {
        self.inner.park();
    }

    fn prefetch(&self) {
        self.inner.prefetch();
    }

    fn hold_off(&self) -> Duration {
        self.inner.hold_off()
    }
}

impl OwningRx for OwningQueue {
    fn peek<'a>(&'a mut self, burst: &mut Burst<'a>, budget: usize) -> Result<(), Fault> {
        let Self { inner, inlet } = self;
        inlet.fill();
        let ReinjectRx { ready, insert, .. } = inlet;
        let ready: &'a VecDeque<OwnedFrame> = ready;
        let show = |burst: &mut Burst<'a>, most: usize| {
            let frames = ready.iter().take(most);
            frames.for_each(|owned| {
                burst.push(owned.hdr, owned.len, Span::of(owned.bytes()));
            });
            ready.len().min(most)
        };
        let waits = if ready.is_empty() { 0 } else { insert.lead().min(budget) };
        let before = burst.frames().len();
        let own = if waits == 0 { show(burst, budget) } else { 0 };
        // Peek the queue once per poll: after unreleased frames, further frames of the queue follow
        // in the next poll.
        let most = if waits == 0 { budget - own } else { waits };
        if most > 0 {
            inner.peek(burst, most)?;
        }
        let theirs = burst.frames().len() - before - own;
        if waits == 0 {
            insert.show(0, own, theirs);
        } else {
            insert.show(theirs, show(burst, budget - theirs), 0);
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) -> Result<(), Fault> {
        let (inner, own) = self.inlet.insert.release(frames);
        self.inlet.config.joined.note_taken(own);
        for _ in 0..own {
            if let Some(owned) = self.inlet.ready.pop_front() {
                self.inlet.return_page(owned);
            }
        }
        self.inlet.publish_waiting();
        if inner > 0 { self.inner.release(inner) } else { Ok(()) }
    }

    /// Detaches a frame of the queue. A reinjected frame is in a page of the hook and cannot be
    /// detached.
    fn detach(&mut self) -> Result<Option<DetachedFrame>, Fault> {
        if self.inlet.insert.own_waits() {
            return Ok(None);
        }
        let kept = self.inner.detach()?;
        if kept.is_some() {
            self.inlet.insert.release(1);
        }
        Ok(kept)
    }

    fn returner(&mut self) -> Option<Returner> {
        self.inner.returner()
    }
}

impl Queue for SyscallQueue {
    fn arm(&mut self, need: u32) -> Result<Armed, Fault> {
        if self.inlet.arm() { Ok(Armed::MoreWork) } else { self.inner.arm(need) }
    }

    fn event(&self) -> Option<WakeSource<'_>> {
        self.inner.event()
    }

    fn park(&mut self) {
        self.inner.park();
    }

    fn prefetch(&self) {
        self.inner.prefetch();
    }

    fn hold_off(&self) -> Duration {
        self.inner.hold_off()
    }
}

impl SyscallRx for SyscallQueue {
    fn recv(&mut self, room: &mut Segments<'_>) -> Result<Recv, Fault> {
        // Forget peeked positions: a system-call queue returns each frame only once.
        self.inlet.insert = Insert::default();
        if self.inlet.ready.is_empty() {
            self.inlet.fill();
        }
        let Some(owned) = self.inlet.ready.pop_front() else { return self.inner.recv(room) };
        self.inlet.config.joined.note_taken(1);
        let (hdr, len) = (owned.hdr, owned.len);
        let fits = room.len() >= len as usize;
        if fits {
            let mut rest = Span::of(owned.bytes());
            rest = rest.skip(room.head.copy_from(rest));
            rest = rest.skip(room.tail.copy_from(rest));
            for mut piece in room.more() {
                rest = rest.skip(piece.copy_from(rest));
            }
        }
        self.inlet.return_page(owned);
        self.inlet.publish_waiting();
        if fits {
            return Ok(Recv::Frame(FrameMeta { len, hdr }));
        }
        self.inlet.config.stats.tx.xdp_tx_drops.add(1);
        self.inlet.config.stats.tx.drops.count(DropReason::TooLong, 1);
        Ok(Recv::Dropped { len, reason: DropReason::TooLong })
    }
}

#[cfg(test)]
mod tests;
