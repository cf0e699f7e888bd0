//! Numbered datagrams and a TCP stream each way on a path.

use std::time::{Duration, Instant};

use mqnet_testkit::{DEADLINE, Flows, Stream, Tally, World};

use crate::shape::Path;
use crate::worlds::address;

/// UDP flows in each direction.
const FLOWS: usize = 4;
/// Each of them sends one datagram in this time.
const PACE: Duration = Duration::from_millis(4);
/// After every 128 KiB of TCP, when it does not go as fast as it can.
const PAUSE: Duration = Duration::from_millis(25);
/// Datagrams that have to come, each way, to show that traffic goes on.
const ALIVE: u64 = 20;

/// All traffic of one path.
pub(crate) struct Traffic {
    kind: &'static str,
    flows: [Flows; 2],
    streams: [Stream; 2],
}

impl Traffic {
    /// Starts it on a path that works; it is under way when this returns.
    pub(crate) fn start(world: &World, path: &Path, flood: bool) -> Self {
        let ways = [(&world.a, &world.b, address(path, 1)), (&world.b, &world.a, address(path, 0))];
        for (from, to, address) in &ways {
            // Neighbours that do not know each other yet drop all but a few datagrams.
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
        traffic.goes_on();
        traffic
    }

    /// What has come: datagrams each way, bytes each way.
    pub(crate) fn come(&self) -> [u64; 4] {
        let [a, b] = self.flows.each_ref().map(Flows::received);
        let [c, d] = self.streams.each_ref().map(Stream::received);
        [a, b, c, d]
    }

    /// Waits until more of everything has come: what does not is stuck.
    #[track_caller]
    pub(crate) fn goes_on(&self) {
        let before = self.come();
        let start = Instant::now();
        loop {
            let now = self.come();
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

    /// Ends it: every byte of the streams has come and was right. What became of the datagrams.
    #[track_caller]
    pub(crate) fn finish(self) -> [Tally; 2] {
        for stream in self.streams {
            stream.finish();
        }
        self.flows.map(Flows::finish)
    }
}
