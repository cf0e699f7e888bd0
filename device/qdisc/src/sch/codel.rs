//! Controlled delay (RFC 8289): the state of one queue and the law by which it drops.

/// What is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    /// Delay that is tolerated.
    pub(crate) target: u64,
    /// How long more than that is tolerated.
    pub(crate) interval: u64,
    /// Mark instead of drop where the sender understands it.
    pub(crate) ecn: bool,
    /// Mark above this delay.
    pub(crate) ce_threshold: Option<u64>,
    /// While no more bytes wait than this, nothing is dropped: the link would fall idle.
    pub(crate) tolerance: u64,
}

/// State of one queue; times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Codel {
    /// Drops since dropping began, roughly: the rate of drops grows with its root.
    pub(crate) count: u32,
    last_count: u32,
    dropping: bool,
    /// When the delay will have been above target for an interval.
    first_above: Option<u64>,
    drop_next: u64,
}

/// Why a packet is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    InsteadOfDrop,
    Threshold,
}

/// The queue.
pub(crate) trait Source {
    /// What waits in it.
    type Item;
    /// Takes the oldest.
    fn pop(&mut self) -> Option<Self::Item>;
    /// When it was enqueued.
    fn since(item: &Self::Item) -> u64;
    /// Bytes that wait behind what was popped.
    fn backlog(&self) -> u64;
    /// Drops it.
    fn drop(&mut self, item: Self::Item);
    /// Marks it if its sender understands that.
    fn mark(&mut self, item: &mut Self::Item, why: Mark) -> bool;
}

impl Codel {
    /// The queue is empty, or has been: whatever delay there was is no standing one. Without this
    /// the first packet after a pause may be dropped for the delay of long ago.
    pub(crate) fn went_empty(&mut self) {
        self.first_above = None;
        self.dropping = false;
    }

    /// The next packet that is not dropped.
    pub(crate) fn dequeue<S: Source>(&mut self, law: &Law, now: u64, s: &mut S) -> Option<S::Item> {
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
            // Entered before the next packet is looked at: an empty queue ends it.
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

    /// The oldest packet, and whether the delay has been above target for an interval.
    fn pop<S: Source>(&mut self, law: &Law, now: u64, s: &mut S) -> Option<(S::Item, bool)> {
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

    fn begin(&mut self, law: &Law, now: u64) {
        self.dropping = true;
        let since = self.count.wrapping_sub(self.last_count);
        let recently = now < self.drop_next.saturating_add(law.interval.saturating_mul(16));
        // Soon after the last time, the rate of drops that was found then still fits.
        self.count = if since > 1 && since <= self.count && recently { since } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.after(law, now);
    }

    /// When the next packet after `t` is dropped.
    fn after(&self, law: &Law, t: u64) -> u64 {
        let wait = law.interval as f64 / f64::from(self.count.max(1)).sqrt();
        t.saturating_add(wait as u64)
    }
}

#[cfg(test)]
mod tests;
