//! Numbered datagrams and a TCP stream in each direction of a path.

use std::time::{Duration, Instant};

use mqnet_testkit::{DEADLINE, Flows, Stream, Tally, World};

use crate::shape::Path;
use crate::worlds::address;

/// UDP flows in each direction.
const FLOWS: usize = 4;
/// Interval between two datagrams of a flow.
const PACE: Duration = Duration::from_millis(4);
/// Pause after every 128 KiB of a paced TCP stream.
const PAUSE: Duration = Duration::from_millis(25);
/// Number of datagrams per direction that count as progress.
const ALIVE: u64 = 20;

/// All traffic of one path.
pub(crate) struct Traffic {
    kind: &'static str,
    flows: [Flows; 2],
    streams: [Stream; 2],
}

impl Traffic {
    /// Starts traffic on a working path; returns when frames arrive.
    pub(crate) fn start(world: &World, path: &Path, flood: bool) -> Self {
        let ways = [(&world.a, &world.b, address(path, 1)), (&world.b, &world.a, address(path, 0))];
        for (from, to, address) in &ways {
            // Resolve the neighbour first: until then the kernel drops all but a few datagrams.
            let first = Flows::start(from, to, address, 1, PACE);
            first.wait_more(2);
            first.finish();
        }
        let pause = if flood { Duration::ZERO } else { PAUSE };
        let streams = [0, 1].map(|way: usize| {
            let (from, to, address) = &ways[way];
            Stream::start_paced(from, to, address, pause)
        });
        let flows = [0, 1].map(|way: usize| {
            let (from, to, address) = &ways[way];
            Flows::start(from, to, address, FLOWS, PACE)
        });
        let traffic = Self { kind: path.kind, flows, streams };
        traffic.wait_progress();
        traffic
    }

    /// Received datagrams of both directions, and then received TCP bytes of both directions.
    pub(crate) fn received(&self) -> [u64; 4] {
        let [a, b] = self.flows.each_ref().map(Flows::received);
        let [c, d] = self.streams.each_ref().map(Stream::received);
        [a, b, c, d]
    }

    /// Waits until both directions have received `ALIVE` more datagrams and further TCP bytes.
    #[track_caller]
    pub(crate) fn wait_progress(&self) {
        let before = self.received();
        let start = Instant::now();
        loop {
            let now = self.received();
            let more: Vec<u64> = now.iter().zip(before).map(|(now, then)| now - then).collect();
            if more[..2].iter().all(|&n| n >= ALIVE) && more[2..].iter().all(|&n| n > 0) {
                return;
            }
            assert!(
                start.elapsed() < DEADLINE,
                "{}: no progress in {DEADLINE:?}: datagrams there {}, back {}; bytes of TCP \
                 there {}, back {}",
                self.kind,
                more[0],
                more[1],
                more[2],
                more[3],
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the traffic and verifies every byte of the streams. Returns the datagram counts of both
    /// directions.
    #[track_caller]
    pub(crate) fn finish(self) -> [Tally; 2] {
        for stream in self.streams {
            stream.finish();
        }
        self.flows.map(Flows::finish)
    }
}
