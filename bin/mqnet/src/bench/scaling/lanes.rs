//! Links of many channels, of which a thread has both ends: nothing is waited for, and nothing of
//! one channel is another's, unless the link itself shares it.

use mqnet_engine::Lane;

use super::super::Result;
use super::super::ntb_ends::{self, Both};

/// Both ends of some channels, on one thread.
pub(super) struct Worker {
    channels: Vec<[Lane; 2]>,
    next: usize,
}

impl Worker {
    /// One burst on the next channel; returns the frames that went in.
    pub(super) fn burst(&mut self) -> usize {
        let at = self.next;
        self.next = (at + 1) % self.channels.len();
        let [send, receive] = &mut self.channels[at];
        ntb_ends::step(send, receive)
    }
}

/// A link, and the workers that have its channels.
pub(super) struct Link {
    pub(super) workers: Vec<Worker>,
    _ends: Both,
}

impl Link {
    /// `workers` with `channels` each, for frames of so many bytes.
    pub(super) fn new(bytes: usize, workers: usize, channels: usize) -> Result<Self> {
        let name = format!("scaling-{bytes}-{workers}-{channels}.sock");
        let (lanes, ends) = ntb_ends::both(bytes, (workers * channels) as u16, &name)?;
        let mut lanes = lanes.into_iter();
        let worker = |_| Worker { channels: lanes.by_ref().take(channels).collect(), next: 0 };
        let made: Vec<Worker> = (0..workers).map(worker).collect();
        if made.iter().any(|worker| worker.channels.len() != channels) {
            return Err(format!("a link of {} channels has fewer", workers * channels).into());
        }
        Ok(Self { workers: made, _ends: ends })
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
