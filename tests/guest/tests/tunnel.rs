//! Short run of the tunnel benchmark. The two modes differ only in the device flag
//! `IFF_BACKPRESSURE`.

use std::time::Duration;

use mqnet_guest::bench::{self, Mode, Report, Settings};
use mqnet_guest::{Guest, Kernel};

use crate::there;

/// Settings of a short run, which checks function and not performance.
const SMOKE: Settings =
    Settings { rate: 40, delay: 30, ring: 100, room: 65_536, rounds: 1, seconds: 4 };

// Goal: only in `Mode::Stop` the device has `IFF_BACKPRESSURE`, and then its ring drops no packet.
// The path loses no packet in either mode. Both modes carry TCP and give a time series.
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
