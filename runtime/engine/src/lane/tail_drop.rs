//! `full=drop`: frames that arrive while the sink is full are dropped, as by the kernel's noqueue.

use arrayvec::ArrayVec;
use mqnet_netdev::limits::{BUDGET, BURST_FRAMES};
use mqnet_netdev::{Burst, DropReason, Fault, Recv, Rx};
use mqnet_shmem::{Segments, SpanMut};

use super::{Lane, PollEnd, Polled};

impl Lane {
    /// Drops the rest of a budget of frames of the source. Only `full=drop` uses this function: the
    /// sender gets no backpressure.
    #[cold]
    pub(super) fn tail_drop(&mut self, polled: &mut Polled) -> Result<(), Fault> {
        let budget = BUDGET.saturating_sub(polled.frames);
        let mut dropped = 0;
        if let Some(hand) = self.finishing.as_ref().filter(|hand| hand.has_a_frame()) {
            // The kept frame is older than the frames of the source, so it is dropped first.
            hand.drop_the_kept();
            self.tx.submit(&Burst::new(), 0)?;
            self.tx.flush()?;
        }
        match &mut self.rx {
            // The budget was used up before the sink was full, so the next poll drops.
            Rx::Owning(_) if budget == 0 => {}
            Rx::Owning(rx) => {
                let mut lengths: ArrayVec<u32, BURST_FRAMES> = ArrayVec::new();
                {
                    let mut burst = Burst::new();
                    rx.peek(&mut burst, budget)?;
                    lengths.extend(burst.frames().iter().map(|frame| frame.len));
                }
                dropped = lengths.len();
                rx.release(dropped)?;
                // A partly sent frame is given up only if it was the first of the dropped frames. A
                // partly sent frame in a discipline, or one received earlier, is kept.
                let of_source = dropped > 0 && self.partial_in_source();
                if let Some(hand) = self.finishing.as_ref().filter(|_| of_source) {
                    hand.give_up();
                }
            }
            Rx::Syscall(rx) => {
                let waiting = self.batch.as_mut().map_or(0, |batch| batch.drain().len());
                if let Some(hand) = self.finishing.as_ref().filter(|_| !self.partial_inside) {
                    // A partly sent frame outside the disciplines was received by this lane or
                    // reinjected. In both cases its rest is dropped.
                    hand.give_up();
                }
                self.tx_stats.tx.drops.count(DropReason::SinkFull, waiting as u64);
                let Some(loan) = &mut self.loan else { return Ok(()) };
                if let Some((page, _)) = loan.held.take() {
                    // The frame in the page waits for the full sink too, so it is dropped first.
                    loan.pool.free(page);
                    self.tx_stats.tx.drops.count(DropReason::SinkFull, 1);
                }
                let Some(mut page) = loan.pool.alloc() else { return Ok(()) };
                while dropped < budget {
                    // Offer all space: a shorter read truncates the frame and hides its length.
                    let head = loan.pool.span_mut(&mut page).split_at(self.room as usize).0;
                    match rx.recv(&mut Segments::new(head, SpanMut::empty())) {
                        Ok(Recv::Frame(_)) => dropped += 1,
                        Ok(Recv::Dropped { .. }) => polled.frames += 1,
                        Ok(Recv::Empty) => break,
                        Err(fault) => {
                            loan.pool.free(page);
                            return Err(fault);
                        }
                    }
                }
                loan.pool.free(page);
            }
        }
        self.tx_stats.tx.drops.count(DropReason::SinkFull, dropped as u64);
        polled.frames += dropped;
        // A lane that drops is never stopped: it waits for its source alone.
        let is_empty = match &self.rx {
            // A source may show fewer frames than it has, so only an empty result counts.
            Rx::Owning(_) => dropped == 0 && budget > 0,
            Rx::Syscall(_) => dropped < budget,
        };
        polled.rest = if is_empty { PollEnd::Empty } else { PollEnd::Budget };
        Ok(())
    }
}
