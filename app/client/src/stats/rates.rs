//! Rates between two readings of a lane.

use mqnet_control_api::{LaneStats, LinkStats, StopState};

use super::conservation::dropped;

/// Rates of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) frames: f64,
    pub(crate) gbits: f64,
    pub(crate) stops: f64,
    pub(crate) drops: f64,
    /// Fraction of time in which the lane was stopped, 0 to 1.
    pub(crate) stopped: f64,
}

/// Pairs each reading with the previous reading of the same link, and the reading of a new link
/// with itself. Links of two processes may have the same name: their order distinguishes them.
pub(crate) fn pairs<'a>(
    before: &'a [LinkStats],
    now: &'a [LinkStats],
) -> impl Iterator<Item = (&'a LinkStats, &'a LinkStats)> {
    now.iter().enumerate().map(|(at, link)| {
        let namesake = |other: &&LinkStats| other.link == link.link;
        let earlier = now[..at].iter().filter(namesake).count();
        (before.iter().filter(namesake).nth(earlier).unwrap_or(link), link)
    })
}

/// Total nanoseconds stopped, including a stop that has not ended.
pub(crate) fn stopped_ns(lane: &LaneStats) -> u64 {
    let open = lane.stopped.as_ref().filter(|_| lane.state == StopState::Stopped);
    lane.stopped_ns.saturating_add(open.map_or(0, |stop| stop.for_ns))
}

/// Rates between two readings that are `seconds` apart; all 0 if `seconds` is not positive. A
/// counter that decreased (the process was restarted) counts from zero.
pub(crate) fn rates(before: &LaneStats, now: &LaneStats, seconds: f64) -> Rates {
    if seconds <= 0.0 {
        return Rates::default();
    }
    let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64 / seconds;
    Rates {
        frames: since(now.rx_packets, before.rx_packets),
        gbits: since(now.rx_bytes, before.rx_bytes) * 8.0 / 1e9,
        stops: since(now.tx_stop, before.tx_stop),
        drops: since(dropped(now), dropped(before)),
        stopped: (since(stopped_ns(now), stopped_ns(before)) / 1e9).clamp(0.0, 1.0),
    }
}

/// Seconds between two readings.
pub(crate) fn seconds_between(before: &LinkStats, now: &LinkStats) -> f64 {
    now.time_ns.saturating_sub(before.time_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::fixture::stats;
    use proptest::prelude::*;

    // Goal: two seconds of the fake link result in the expected rates; a stop that has not ended
    // counts as stopped time.
    #[test]
    fn known_rates() {
        let (before, now) = (stats(1), stats(3));
        let seconds = seconds_between(&before, &now);
        let lane = |s: &LinkStats| s.channels[1].a_to_b.clone();
        let got = rates(&lane(&before), &lane(&now), seconds);
        assert_eq!((got.frames, got.stops, got.drops), (200_000.0, 4.0, 0.0));
        assert!((got.gbits - 1.6).abs() < 1e-9 && (got.stopped - 0.25).abs() < 1e-9);
        let mut opened = lane(&now);
        opened.stopped.as_mut().unwrap().for_ns += 1_000_000_000;
        assert!((rates(&lane(&now), &opened, 2.0).stopped - 0.5).abs() < 1e-9);
    }

    // Goal: each of two links with one name is paired with its own previous reading; a new link is
    // paired with itself.
    #[test]
    fn equal_names_have_separate_rates() {
        let (before, now) = ([stats(1), stats(2)], [stats(3), stats(4), stats(5)]);
        let times: Vec<[u64; 2]> =
            pairs(&before, &now).map(|(old, now)| [old.time_ns, now.time_ns]).collect();
        let all = before.each_ref().map(|link| link.time_ns);
        assert_eq!(times[..2], [[all[0], now[0].time_ns], [all[1], now[1].time_ns]]);
        assert_eq!(times[2], [now[2].time_ns; 2]);
    }

    proptest! {
        // Goal: no pair of readings has a rate that is negative or not a number.
        #[test]
        fn rates_are_numbers(a in any::<[u64; 5]>(), b in any::<[u64; 5]>(), s in -1.0f64..1e9) {
            let lane = |n: [u64; 5]| {
                let mut lane = crate::stats::fixture::lane("a", "b", n[0], 0, n[1]);
                (lane.rx_bytes, lane.tx_stop, lane.stopped_ns) = (n[2], n[3], n[4]);
                lane
            };
            let r = rates(&lane(a), &lane(b), s);
            for value in [r.frames, r.gbits, r.stops, r.drops, r.stopped] {
                prop_assert!(value >= 0.0 && value.is_finite());
            }
        }
    }
}
