//! Capture taps on the lanes of a running link. New lanes of a channel change get the taps too.
//! Taps are removed when their reader is dropped.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mqnet_netdev::wrap::capture::{
    CaptureConfig, CaptureDirection, CaptureReader, Captured, take_all, tap, unwrap_tx, wrap_tx,
};
use mqnet_netdev::{Rx, Tx};
use mqnet_pktbuf::PoolStats;

use super::Link;
use crate::lane::{Direction, Lane, LaneId, taps_off, taps_on};

/// Memory for the captured frames of a lane in bytes.
const RING_BYTES: u32 = 1 << 20;

/// Parameters of a capture.
#[derive(Clone, Copy, Debug)]
pub struct CaptureRequest {
    /// Index of the function.
    pub side: usize,
    /// Channel to capture; `None`: all channels.
    pub channel: Option<u16>,
    /// True to capture only dropped frames.
    pub drops_only: bool,
    /// Largest number of bytes kept of each frame.
    pub snaplen: u32,
    /// Clock for timestamps, in nanoseconds since the epoch.
    pub clock: fn() -> u64,
}

type Readers = Arc<Mutex<Vec<CaptureReader>>>;

/// Captured frames. Dropping this value ends the capture.
#[derive(Debug)]
pub struct Captures(Readers);

impl Captures {
    /// Takes the frames captured since the last call, oldest first. Returns the number of missed
    /// frames.
    pub fn take(&mut self, frames: &mut Vec<Captured>) -> u64 {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        take_all(&mut readers, frames)
    }
}

/// Capture with taps on the lanes.
pub(super) struct Active {
    request: CaptureRequest,
    readers: Readers,
}

impl Active {
    /// Adds a tap to a lane if the capture includes it.
    pub(super) fn put_on(&self, lane: &mut Lane) {
        let CaptureRequest { side, channel, drops_only, snaplen, clock } = self.request;
        let id = lane.id();
        if channel.is_some_and(|only| only != id.channel) {
            return;
        }
        let leaves_here = (id.way == Direction::AToB) == (side == 0);
        // Directions are those of the netdev: frames of its RX queue are inbound.
        let direction =
            if leaves_here { CaptureDirection::Inbound } else { CaptureDirection::Outbound };
        let new_tap = || {
            let (channel, ring_bytes) = (id.channel, RING_BYTES);
            let config =
                CaptureConfig { channel, direction, drops_only, snaplen, ring_bytes, clock };
            let (tap, reader) = tap(config);
            self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
            tap
        };
        if !drops_only || leaves_here {
            lane.edit_rx(|rx| {
                let (rx, mut taps) = taps_off(rx);
                taps.insert(0, new_tap());
                taps_on(rx, taps)
            });
        }
        if drops_only && !leaves_here {
            lane.edit_tx(|tx, stats| wrap_tx(tx, new_tap(), stats));
        }
    }
}

/// Removes the taps without a reader from a lane.
fn remove_abandoned(lane: &mut Lane) {
    lane.edit_rx(|rx: Rx| {
        let (rx, mut taps) = taps_off(rx);
        taps.retain(|tap| !tap.is_abandoned());
        taps_on(rx, taps)
    });
    lane.edit_tx(|mut tx: Tx, stats| {
        let mut kept = Vec::new();
        loop {
            let (inner, tap) = unwrap_tx(tx);
            tx = inner;
            match tap {
                Some(tap) if !tap.is_abandoned() => kept.push(tap),
                Some(_) => {}
                None => break,
            }
        }
        kept.into_iter().rev().fold(tx, |tx, tap| wrap_tx(tx, tap, stats.clone()))
    });
}

impl Link {
    /// Starts a capture. The workers insert the taps between two bursts.
    pub fn capture(&mut self, request: CaptureRequest) -> Captures {
        let readers: Readers = Arc::default();
        let active = || Active { request, readers: readers.clone() };
        self.on_every_lane(|| {
            let active = active();
            move |lane| active.put_on(lane)
        });
        self.captures.push(active());
        Captures(readers)
    }

    pub(super) fn remove_abandoned_taps(&mut self) {
        let before = self.captures.len();
        self.captures.retain(|active| Arc::strong_count(&active.readers) > 1);
        if self.captures.len() < before {
            self.on_every_lane(|| remove_abandoned);
        }
    }

    pub(super) fn on_every_lane<E: FnOnce(&mut Lane) + Send + 'static>(
        &self,
        mut edit: impl FnMut() -> E,
    ) {
        let Some(running) = &self.running else { return };
        for channel in 0..running.plan.channels {
            for way in [Direction::AToB, Direction::BToA] {
                let edit = edit();
                let id = LaneId { set: running.set, channel, way };
                self.workers.edit(
                    id,
                    Box::new(move |lane| {
                        edit(lane);
                        Ok(())
                    }),
                );
            }
        }
    }

    /// Number of pages in use in each lane's pool, for lanes with a pool. Reads shared gauges and
    /// does not wake the workers.
    pub fn pools_in_use(&self) -> Vec<(LaneId, u32)> {
        let at_work = self.running.as_ref().map(|running| running.set);
        let of_them = self.shown_pools.iter().filter(|(id, _)| Some(id.set) == at_work);
        let mut pools: Vec<(LaneId, u32)> =
            of_them.filter_map(|(id, shown)| Some((*id, shown.inflight()?))).collect();
        pools.sort_by_key(|(id, _)| (id.channel, id.way == Direction::BToA));
        pools
    }

    /// Statistics of each lane's page pool, for lanes with a pool. Queries the workers, which wakes
    /// them.
    pub fn pools(&self) -> Vec<(LaneId, PoolStats)> {
        // The gauges of newly attached disciplines appear with a delay, so the check includes
        // disciplines.
        if self.pools_in_use().is_empty() && !self.has_disciplines() {
            return Vec::new();
        }
        let (answer, answers) = channel();
        self.on_every_lane(|| {
            let answer = answer.clone();
            move |lane: &mut Lane| {
                if let Some(stats) = lane.pool_stats() {
                    // Ignore errors: a reply after the time limit has no receiver.
                    let _ = answer.send((lane.id(), stats));
                }
            }
        });
        drop(answer);
        let mut pools = Vec::new();
        while let Ok(pool) = answers.recv_timeout(Duration::from_millis(100)) {
            pools.push(pool);
        }
        pools.sort_by_key(|(id, _)| (id.channel, id.way == Direction::BToA));
        pools
    }
}
