//! The tunnel of the benchmark, shortly: that its two sides differ in nothing but the flag.

use mqnet_guest::Kernel;
use mqnet_guest::bench::{Mode, Report};

use crate::{SMOKE, outcome};

// Goal: the benchmark measures what it says: only one of its tunnels has the flag, whose ring drops
// nothing; the path loses nothing in either; both carry TCP, and leave a time series.
#[test]
fn the_tunnels_differ_in_the_flag_alone() {
    let Some(outcome) = outcome(Kernel::V7_3) else { return };
    let report = Report::read(SMOKE, outcome).unwrap();
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
