//! The conservation law: `rx + segments = tx + merged + drops + in flight`; what XDP programs send
//! back leaves one direction and comes into the other.

use std::fmt::Write;

use mqnet_control_api::{LaneStats, StopState};
use mqnet_netdev::limits::BURST_FRAMES;

/// What two readings of one direction, a moment apart, say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything that came in has left or was dropped for a reason.
    Holds,
    /// Traffic flows, and some of it is between the two queues.
    Moving,
    /// A full sink makes the source wait with what it has taken.
    Waiting,
    /// Nothing moves, nothing is stopped, and frames are missing.
    Missing,
    /// More left than came in.
    TooMany,
    /// The link's own sum is not what its counters say.
    WrongSum,
}

impl Verdict {
    pub(crate) fn is_broken(self) -> bool {
        matches!(self, Self::Missing | Self::TooMany | Self::WrongSum)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Moving => "moving",
            Self::Waiting => "waiting",
            Self::Missing => "missing",
            Self::TooMany => "too-many",
            Self::WrongSum => "wrong-sum",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Moving => "holds: traffic flows",
            Self::Waiting => "holds: a full sink makes them wait",
            Self::Missing => "BROKEN: nothing moves, and frames are unaccounted for",
            Self::TooMany => "BROKEN: more left than came in",
            Self::WrongSum => "BROKEN: in-flight is not rx + segments - tx - merged - drops",
        }
    }
}

pub(crate) fn dropped(lane: &LaneStats) -> u64 {
    lane.drops.iter().fold(0, |sum, drop| sum.saturating_add(drop.frames))
}

/// rx + segments - tx - merged - drops, whatever the numbers.
fn balance(lane: &LaneStats) -> i128 {
    let drops: i128 = lane.drops.iter().map(|drop| i128::from(drop.frames)).sum();
    let came = [lane.rx_packets, lane.xdp_in, lane.segments].map(i128::from).iter().sum::<i128>();
    let left = [lane.tx_packets, lane.merged, lane.xdp_out].map(i128::from).iter().sum::<i128>();
    came - left - drops
}

/// Judges a direction made of `lanes` lanes by its sums `now` and those `before`, of which
/// `stopped` says whether any lane is stopped.
pub(crate) fn judge(before: &LaneStats, now: &LaneStats, lanes: usize, stopped: bool) -> Verdict {
    let moved = |l: &LaneStats| (l.rx_packets, l.tx_packets, dropped(l));
    let flight = balance(now);
    // Counters of one burst a lane may be read between its two ends.
    let skew = i128::try_from(lanes.max(1) * BURST_FRAMES).unwrap_or(i128::MAX);
    if flight != i128::from(now.in_flight) {
        Verdict::WrongSum
    } else if flight == 0 {
        Verdict::Holds
    } else if moved(before) != moved(now) {
        if flight < -skew { Verdict::TooMany } else { Verdict::Moving }
    } else if flight < 0 {
        Verdict::TooMany
    } else if stopped || now.state == StopState::Stopped {
        Verdict::Waiting
    } else {
        Verdict::Missing
    }
}

/// Drops by reason, as a sum.
pub(crate) fn reasons(lane: &LaneStats) -> String {
    let mut out = String::new();
    for drop in lane.drops.iter().filter(|drop| drop.frames > 0) {
        let plus = if out.is_empty() { "" } else { " + " };
        let _ = write!(out, "{plus}{} {}", drop.frames, drop.reason);
    }
    if out.is_empty() { "0".to_owned() } else { out }
}

/// The law of one direction, in one line.
pub(crate) fn line(lane: &LaneStats, verdict: Verdict) -> String {
    let drops = match reasons(lane) {
        none if none == "0" => "0 dropped".to_owned(),
        some => some,
    };
    let made = match lane.segments {
        0 => String::new(),
        n => format!(" + {n} segments"),
    };
    let merged = match lane.merged {
        0 => String::new(),
        n => format!(" + {n} merged"),
    };
    let mut out = format!(
        "{} -> {}: rx {}{made} = tx {}{merged} + {drops} + {} in flight  [{}]",
        lane.from,
        lane.to,
        lane.rx_packets,
        lane.tx_packets,
        lane.in_flight,
        verdict.words()
    );
    if lane.xdp_out > 0 {
        let _ = write!(out, "; {} sent elsewhere by XDP", lane.xdp_out);
    }
    if lane.xdp_in > 0 {
        let _ = write!(out, "; {} more came from XDP", lane.xdp_in);
    }
    if lane.tx_lost > 0 {
        let _ = write!(out, "; of tx, a lost peer had not taken {}", lane.tx_lost);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::fixture::lane;

    // Goal: each verdict is reached, and only at rest are frames said to be missing.
    #[test]
    fn verdicts() {
        let with = |rx, tx, dropped| lane("a", "b", rx, tx, dropped);
        let rest = with(10, 7, 3);
        assert_eq!(judge(&rest, &rest, 1, false), Verdict::Holds);
        let flying = with(10, 6, 3);
        assert_eq!(judge(&rest, &flying, 1, false), Verdict::Moving);
        assert_eq!(judge(&flying, &flying, 1, false), Verdict::Missing);
        assert_eq!(judge(&flying, &flying, 1, true), Verdict::Waiting);
        let more = with(10, 11, 0);
        assert_eq!(judge(&more, &more, 1, true), Verdict::TooMany);
        assert_eq!(judge(&rest, &more, 1, true), Verdict::Moving);
        assert_eq!(judge(&rest, &with(10, 74, 1), 1, true), Verdict::TooMany);
        assert_eq!(judge(&rest, &with(10, 74, 1), 2, true), Verdict::Moving);
        let mut cut = with(10, 52, 0);
        (cut.segments, cut.in_flight) = (42, 0);
        assert_eq!(judge(&cut, &cut, 1, false), Verdict::Holds);
        cut.segments = 41;
        assert_eq!(judge(&cut, &cut, 1, false), Verdict::WrongSum);
        let mut merged = with(10, 2, 0);
        merged.merged = 8;
        merged.in_flight = 0;
        assert_eq!(judge(&merged, &merged, 1, false), Verdict::Holds);
        let mut lie = with(10, 7, 3);
        lie.in_flight = 1;
        assert_eq!(judge(&lie, &lie, 1, false), Verdict::WrongSum);
    }

    // Goal: no counters, however wrong, make the check panic.
    #[test]
    fn extreme_counters() {
        let mut wild = lane("a", "b", u64::MAX, 0, u64::MAX);
        wild.drops.push(wild.drops[0].clone());
        assert!(judge(&wild, &wild, usize::from(u16::MAX), false).is_broken());
        let wild = lane("a", "b", 0, u64::MAX, u64::MAX);
        assert!(judge(&wild, &wild, 1, false).is_broken());
    }

    // Goal: the line names every reason and what a lost peer had not taken.
    #[test]
    fn the_line_accounts_for_everything() {
        let mut lane = lane("a", "b", 10, 7, 3);
        lane.tx_lost = 2;
        assert_eq!(
            line(&lane, Verdict::Holds),
            "a -> b: rx 10 = tx 7 + 3 too-long + 0 in flight  [holds]; of tx, a lost peer had not \
             taken 2"
        );
        (lane.tx_lost, lane.segments, lane.tx_packets) = (0, 44, 51);
        assert_eq!(
            line(&lane, Verdict::Holds),
            "a -> b: rx 10 + 44 segments = tx 51 + 3 too-long + 0 in flight  [holds]"
        );
        (lane.segments, lane.merged, lane.tx_packets) = (0, 5, 2);
        assert_eq!(
            line(&lane, Verdict::Holds),
            "a -> b: rx 10 = tx 2 + 5 merged + 3 too-long + 0 in flight  [holds]"
        );
    }
}
