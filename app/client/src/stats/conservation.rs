//! Verdict on the conservation check of one direction.

use std::fmt::Write;

use mqnet_control_api::{LaneStats, StopState};
use mqnet_netdev::limits::BURST_FRAMES;
use mqnet_netdev::stats::equation;

/// Verdict on two successive readings of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The counters account for every frame; none is in flight.
    Holds,
    /// Counters changed between the readings, and frames are in flight from source to sink.
    Moving,
    /// No counter changed, and a stopped lane holds received frames until its full sink has room.
    Waiting,
    /// Received frames are unaccounted for, although no counter changed and no lane is stopped.
    Missing,
    /// More frames left than arrived; while counters change, by more than one burst per lane.
    TooMany,
    /// The reported `in-flight` differs from the sum of the counters.
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
            Self::Waiting => "holds: they wait for a full sink",
            Self::Missing => "BROKEN: nothing moves, and frames are unaccounted for",
            Self::TooMany => "BROKEN: more frames out than in",
            Self::WrongSum => "BROKEN: in-flight differs from the sum of the counters",
        }
    }
}

pub(crate) fn dropped(lane: &LaneStats) -> u64 {
    lane.drops.iter().fold(0, |sum, drop| sum.saturating_add(drop.frames))
}

/// Returns the verdict from two readings of one direction, each the sum over `lanes` lanes.
/// `stopped` is true if any lane is stopped.
pub(crate) fn judge(before: &LaneStats, now: &LaneStats, lanes: usize, stopped: bool) -> Verdict {
    let moved = |l: &LaneStats| (l.rx_packets, l.tx_packets, dropped(l));
    let drops = now.drops.iter().map(|drop| i128::from(drop.frames)).sum();
    let flight = now.counters().in_flight(drops);
    // The counters of a lane's source and sink are read one after the other: one burst per lane may
    // be counted in between.
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

/// Number of dropped frames and drop reason, joined by `+` for several reasons; `0` without drops.
pub(crate) fn reasons(lane: &LaneStats) -> String {
    let mut out = String::new();
    for drop in lane.drops.iter().filter(|drop| drop.frames > 0) {
        let plus = if out.is_empty() { "" } else { " + " };
        let _ = write!(out, "{plus}{} {}", drop.frames, drop.reason);
    }
    if out.is_empty() { "0".to_owned() } else { out }
}

/// Conservation check of one direction, in one line.
pub(crate) fn line(lane: &LaneStats, verdict: Verdict) -> String {
    let drops = lane.drops.iter().map(|drop| (&*drop.reason, drop.frames));
    let check = equation(&lane.counters(), drops, lane.in_flight);
    let mut out = format!("{} -> {}: {check}  [{}]", lane.from, lane.to, verdict.words());
    if lane.tx_lost > 0 {
        let _ = write!(out, "; of tx, a lost peer had not consumed {}", lane.tx_lost);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::fixture::lane;

    // Goal: each verdict has its condition; frames are missing only if no counter changes and no
    // lane is stopped.
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

    // Goal: no values of the counters cause a panic.
    #[test]
    fn extreme_counters() {
        let mut wild = lane("a", "b", u64::MAX, 0, u64::MAX);
        wild.drops.push(wild.drops[0].clone());
        assert!(judge(&wild, &wild, usize::from(u16::MAX), false).is_broken());
        let wild = lane("a", "b", 0, u64::MAX, u64::MAX);
        assert!(judge(&wild, &wild, 1, false).is_broken());
    }

    // Goal: the line contains every term of the equation, and the frames that a lost peer had not
    // consumed.
    #[test]
    fn the_line_accounts_for_everything() {
        let mut lane = lane("a", "b", 10, 7, 3);
        lane.tx_lost = 2;
        assert_eq!(
            line(&lane, Verdict::Holds),
            "a -> b: rx 10 = tx 7 + 3 too-long + 0 in flight  [holds]; of tx, a lost peer had not \
             consumed 2"
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
        (lane.merged, lane.xdp_out, lane.xdp_in) = (0, 6, 1);
        assert_eq!(
            line(&lane, Verdict::Holds),
            "a -> b: rx 10 + 1 xdp-in = tx 2 + 6 xdp-out + 3 too-long + 0 in flight  [holds]"
        );
    }
}
