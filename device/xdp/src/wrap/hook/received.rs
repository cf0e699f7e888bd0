//! Processing of received frames: completed, segmented, or as GSO frames.

use mqnet_netdev::DropReason;
use mqnet_wire::VnetHdr;

use super::super::OwnedFrame;
use super::super::prepare::{Large, Received, complete, cut, segment};
use super::{DROPS_MAX, HEADROOM, Hook};

impl Hook {
    /// Takes the frame after the headroom of `page`; the caller has checked
    /// [`accepts`](Self::accepts). Returns true if a frame was reinjected.
    pub(super) fn take(&mut self, page: Box<[u8]>, len: u32, hdr: VnetHdr, budget: usize) -> bool {
        if !hdr.is_large() {
            self.left -= 1;
            return self.small(page, len, hdr);
        }
        self.received = Some(Received { page, len, hdr, begun: None });
        self.process(budget)
    }

    /// Processes the received GSO frame until `budget` frames are ready or the limit of the poll is
    /// reached. Returns true if a frame was reinjected.
    pub(super) fn process(&mut self, budget: usize) -> bool {
        let mut sent = false;
        while self.left > 0 && self.ready.len() < budget {
            let Some(frame) = self.received.take() else { break };
            self.left -= 1;
            let takes_large = self.program.as_ref().is_none_or(|program| program.takes_large());
            sent |= match frame.begun {
                None if takes_large => self.large(frame),
                _ => self.next_segment(frame),
            };
        }
        sent
    }

    fn small(&mut self, mut page: Box<[u8]>, len: u32, hdr: VnetHdr) -> bool {
        if self.program.is_none() {
            self.ready.push_back(OwnedFrame { page, start: HEADROOM as u32, len, hdr });
            return false;
        }
        if complete(&mut page[HEADROOM..][..len as usize], hdr).is_none() {
            self.drop(page, (HEADROOM, len as usize), DropReason::BadHeader);
            return false;
        }
        self.decide(page, len, None)
    }

    fn large(&mut self, frame: Received) -> bool {
        let Received { page, len, hdr, .. } = frame;
        if self.program.is_none() {
            self.ready.push_back(OwnedFrame { page, start: HEADROOM as u32, len, hdr });
            return false;
        }
        match Large::find(&page[HEADROOM..][..len as usize], hdr) {
            Some(large) => self.decide(page, len, Some(large)),
            None => {
                self.drop(page, (HEADROOM, len as usize), DropReason::BadHeader);
                false
            }
        }
    }

    /// Processes the next segment of a GSO frame, and keeps the frame if segments remain.
    fn next_segment(&mut self, mut frame: Received) -> bool {
        let large = &frame.page[HEADROOM..][..frame.len as usize];
        let begun = frame.begun.or_else(|| cut(large, frame.hdr).map(|cut| (cut, 0)));
        let Some((how, number)) = begun else {
            self.drop(frame.page, (HEADROOM, frame.len as usize), DropReason::BadHeader);
            return false;
        };
        if number == 0 {
            self.stats.rx.xdp.segments.add(u64::from(how.count()) - 1);
        }
        let mut page = self.page();
        let len = segment(&how, number, large, &mut page[HEADROOM..]);
        if number + 1 < how.count() {
            frame.begun = Some((how, number + 1));
            self.received = Some(frame);
        } else {
            self.free(frame.page);
        }
        match len {
            None => {
                self.drop(page, (HEADROOM, 0), DropReason::BadHeader);
                false
            }
            Some(len) if self.program.is_none() => {
                let hdr = VnetHdr::default();
                self.ready.push_back(OwnedFrame { page, start: HEADROOM as u32, len, hdr });
                false
            }
            Some(len) => self.decide(page, len, None),
        }
    }

    /// Begins a poll: processes the remaining segments of a GSO frame that an earlier poll
    /// received.
    pub(super) fn resume(&mut self, budget: usize) {
        self.left = DROPS_MAX;
        if self.process(budget) {
            self.wake();
        }
    }
}
