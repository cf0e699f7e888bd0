//! Controlled delay (RFC 8289): state of one queue, and its control law.

/// Parameters of CoDel; times are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodelParameters {
    /// Target delay.
    pub(crate) target: u64,
    /// Time for which the delay may exceed the target before drops begin.
    pub(crate) interval: u64,
    /// True if ECN-capable packets are marked instead of dropped.
    pub(crate) ecn: bool,
    /// Delay above which ECN-capable packets are marked; `None`: off.
    pub(crate) ce_threshold: Option<u64>,
    /// Backlog in bytes up to which no packet is dropped, so that the link does not become idle.
    pub(crate) tolerance: u64,
}

/// State of one queue; times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Codel {
    /// Drop count of the dropping state; the drop rate grows with its square root.
    pub(crate) count: u32,
    last_count: u32,
    dropping: bool,
    /// Time from which drops may begin if the delay stays above target; `None`: below target.
    first_above: Option<u64>,
    drop_next: u64,
}

/// Reason for a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    InsteadOfDrop,
    Threshold,
}

/// Queue operations that CoDel uses.
pub(crate) trait Source {
    /// Packet type of the queue.
    type Item;
    /// Removes the oldest packet; `None` if the queue is empty.
    fn pop(&mut self) -> Option<Self::Item>;
    /// Time at which the packet was enqueued.
    fn since(item: &Self::Item) -> u64;
    /// Bytes queued after the packet that was popped.
    fn backlog(&self) -> u64;
    /// Drops the packet.
    fn drop(&mut self, item: Self::Item);
    /// Marks the packet. Returns false if the packet is not ECN-capable.
    fn mark(&mut self, item: &mut Self::Item, why: Mark) -> bool;
}

impl Codel {
    /// Resets the state because the queue became empty: an earlier delay was no standing queue.
    /// Without the reset, the first packet after a pause could be dropped for an old delay.
    pub(crate) fn went_empty(&mut self) {
        self.first_above = None;
        self.dropping = false;
    }

    /// Returns the next packet that is not dropped; `None` if the queue becomes empty.
    pub(crate) fn dequeue<S: Source>(
        &mut self,
        law: &CodelParameters,
        now: u64,
        s: &mut S,
    ) -> Option<S::Item> {
        let (mut item, mut above) = self.pop(law, now, s)?;
        if self.dropping {
            if !above {
                self.dropping = false;
            }
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if law.ecn && s.mark(&mut item, Mark::InsteadOfDrop) {
                    self.drop_next = self.after(law, self.drop_next);
                    break;
                }
                s.drop(item);
                (item, above) = self.pop(law, now, s)?;
                if above {
                    self.drop_next = self.after(law, self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if above {
            // Enter the dropping state before the next pop: a pop from an empty queue leaves the
            // state.
            self.begin(law, now);
            if !(law.ecn && s.mark(&mut item, Mark::InsteadOfDrop)) {
                s.drop(item);
                item = self.pop(law, now, s)?.0;
            }
        }
        let delay = now.saturating_sub(S::since(&item));
        if law.ce_threshold.is_some_and(|threshold| delay > threshold) {
            s.mark(&mut item, Mark::Threshold);
        }
        Some(item)
    }

    /// Pops the oldest packet; `None` if the queue is empty. Also returns true if the delay has
    /// been above target for an interval.
    fn pop<S: Source>(
        &mut self,
        law: &CodelParameters,
        now: u64,
        s: &mut S,
    ) -> Option<(S::Item, bool)> {
        let Some(item) = s.pop() else {
            self.went_empty();
            return None;
        };
        let delay = now.saturating_sub(S::since(&item));
        if delay < law.target || s.backlog() <= law.tolerance {
            self.first_above = None;
            return Some((item, false));
        }
        let until = *self.first_above.get_or_insert(now.saturating_add(law.interval));
        Some((item, now >= until))
    }

    fn begin(&mut self, law: &CodelParameters, now: u64) {
        self.dropping = true;
        let since = self.count.wrapping_sub(self.last_count);
        let recently = now < self.drop_next.saturating_add(law.interval.saturating_mul(16));
        // Reuse the drop count of the last dropping state if that state ended recently.
        self.count = if since > 1 && since <= self.count && recently { since } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.after(law, now);
    }

    /// Time of the next drop after `t`.
    fn after(&self, law: &CodelParameters, t: u64) -> u64 {
        let wait = law.interval as f64 / f64::from(self.count.max(1)).sqrt();
        t.saturating_add(wait as u64)
    }
}

#[cfg(test)]
mod tests;
