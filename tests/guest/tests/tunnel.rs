//! The tunnel of the benchmark, shortly: that its two sides differ in nothing but the flag.

use std::time::Duration;

use mqnet_guest::bench::{self, Mode, Report, Settings};
use mqnet_guest::{Guest, Kernel};

use crate::there;

/// A tunnel for a moment: that it works, not how well.
const SMOKE: Settings =
    Settings { rate: 40, delay: 30, ring: 100, room: 65_536, rounds: 1, seconds: 4 };

// Goal: the benchmark measures what it says: only one of its tunnels has the flag, whose ring drops
// nothing; the path loses nothing in either; both carry TCP, and leave a time series.
#[test]
fn the_tunnels_differ_in_the_flag_alone() {
    if !there(Kernel::V7_3) {
        return;
    }
    mqnet_guest::build().unwrap();
    let guest = Guest::new(Kernel::V7_3, "test-tunnel").limit(Duration::from_secs(300));
    let outcome = bench::with_tunnel(guest, &SMOKE).run().unwrap();
    let report = Report::read(SMOKE, &outcome).unwrap();
    print!("{}", report.table());
    assert_eq!(report.runs.len(), 2);
    for run in &report.runs {
        let stops = run.flags & 0x80 != 0;
        assert_eq!(stops, run.mode == Mode::Stop, "{run:?}");
        assert_eq!(run.path_drops, 0, "the path has lost packets: {run:?}");
        assert!(run.mode == Mode::Drop || run.ring_drops == 0, "{run:?}");
        assert!(run.sent > 0 && run.goodput > 0.0, "{run:?}");
        assert!(run.samples.len() >= 4, "{run:?}");
        assert!(run.samples.iter().any(|sample| sample.goodput > 0.0), "{run:?}");
        assert!(run.samples.iter().all(|sample| sample.at > 0.0), "{run:?}");
        assert!(run.samples.iter().any(|sample| sample.rtt > 0.0), "{run:?}");
    }
}
