//! Links with many channels; both ends of a channel are on one thread. Threads do not wait for each
//! other, and channels share only the state of the link.

use std::sync::Arc;

use mqnet_engine::Lane;
use mqnet_netdev::{Function, QueuePairStats};

use super::super::Result;
use super::super::ntb_ends::{self, Both};

/// Both ends of some channels, polled by one thread.
pub(in super::super) struct Worker {
    channels: Vec<[Lane; 2]>,
    next: usize,
}

impl Worker {
    /// Polls the next channel once; returns the number of sent frames.
    pub(in super::super) fn burst(&mut self) -> usize {
        let at = self.next;
        self.next = (at + 1) % self.channels.len();
        let [send, receive] = &mut self.channels[at];
        ntb_ends::step(send, receive)
    }
}

/// Link, and the workers with its channels.
pub(in super::super) struct Link {
    pub(in super::super) workers: Vec<Worker>,
    ends: Both,
}

impl Link {
    /// Creates a link of `workers` workers with `channels` channels each, for frames of `bytes`
    /// bytes.
    pub(in super::super) fn new(bytes: usize, workers: usize, channels: usize) -> Result<Self> {
        let name = format!("scaling-{bytes}-{workers}-{channels}.sock");
        let (lanes, ends) = ntb_ends::both(bytes, (workers * channels) as u16, &name)?;
        let mut lanes = lanes.into_iter();
        let worker = |_| Worker { channels: lanes.by_ref().take(channels).collect(), next: 0 };
        let made: Vec<Worker> = (0..workers).map(worker).collect();
        if made.iter().any(|worker| worker.channels.len() != channels) {
            return Err(format!("a link of {} channels has fewer", workers * channels).into());
        }
        Ok(Self { workers: made, ends })
    }

    /// Counters of each channel: `[[source, a], [b, sink]]`. `a` and `b` are the ends of the link,
    /// `source` and `sink` the functions next to them.
    pub(in super::super) fn counters(&self) -> Vec<[[Arc<QueuePairStats>; 2]; 2]> {
        let Both { a, b, outside, .. } = &self.ends;
        let of_ends = a.stats().iter().zip(b.stats()).zip(outside);
        of_ends
            .map(|((a, b), [source, sink])| {
                [[source.clone(), a.clone()], [b.clone(), sink.clone()]]
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every channel of every worker moves frames.
    #[test]
    fn all_channels_move_frames() {
        let mut link = Link::new(64, 2, 3).unwrap();
        for worker in &mut link.workers {
            assert_eq!(worker.channels.len(), 3);
            for _ in 0..3 {
                assert!(worker.burst() > 0);
            }
        }
    }
}
