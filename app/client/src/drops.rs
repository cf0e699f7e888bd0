//! Frames dropped in the last seconds as text: the reason, and the setting that helps.

use mqnet_control_api::{LinkInfo, RecentDrops};
use mqnet_netdev::DropReason;

/// One line for each reason with its remedy, sorted by number of frames, largest first.
pub(crate) fn lines(link: &LinkInfo) -> Vec<String> {
    let mut all: Vec<(String, u64)> = Vec::new();
    for drop in &link.recent_drops {
        // Add up the entries of both netdevs that have the same explanation.
        let what = explanation(link, drop);
        match all.iter_mut().find(|(other, _)| *other == what) {
            Some((_, frames)) => *frames += drop.frames,
            None => all.push((what, drop.frames)),
        }
    }
    all.sort_by_key(|(_, frames)| std::cmp::Reverse(*frames));
    let line = |(what, frames)| {
        let plural = if frames == 1 { "" } else { "s" };
        format!("{frames} frame{plural} dropped: {what}")
    };
    all.into_iter().map(line).collect()
}

fn explanation(link: &LinkInfo, drop: &RecentDrops) -> String {
    let known = DropReason::ALL.into_iter().find(|reason| reason.name() == drop.reason);
    let knob = known.map_or_else(String::new, |reason| format!(" ({})", knob(link, drop, reason)));
    format!("{}{knob}", drop.reason)
}

/// Remedy for a drop reason, with the names of both netdevs and the MTU inserted.
fn knob(link: &LinkInfo, drop: &RecentDrops, reason: DropReason) -> String {
    let here = &drop.netdev;
    let other = link.netdevs.iter().map(|dev| &dev.name).find(|name| *name != here);
    let other = other.unwrap_or(here);
    let (from, to) = if drop.sends { (other, here) } else { (here, other) };
    let mtu = link.mtu.map_or_else(|| "the mtu".to_owned(), |mtu| format!("mtu {mtu}"));
    let names = [("{from}", from), ("{to}", to), ("{here}", here), ("{mtu}", &mtu)];
    names.iter().fold(reason.action().to_owned(), |text, (name, value)| text.replace(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::fixture::link;

    fn with(drops: &[(&str, bool, &str, u64)]) -> Vec<String> {
        let recent_drops = drops.iter().map(|&(netdev, sends, reason, frames)| RecentDrops {
            netdev: netdev.into(),
            sends,
            reason: reason.into(),
            frames,
        });
        lines(&LinkInfo { recent_drops: recent_drops.collect(), ..link("up") })
    }

    // Goal: each drop reason is printed with its count and remedy, the largest count first. An
    // unknown reason of a newer program is printed without a remedy.
    #[test]
    fn drops_are_reported_with_setting() {
        let lines = with(&[
            ("vm0", true, "device-down", 3),
            ("ntb0", false, "device-down", 2),
            ("ntb0", true, "gso-size-over-mtu", 30),
            ("vm0", false, "of-the-future", 1),
        ]);
        assert!(lines[0].starts_with("30 frames dropped: gso-size-over-mtu ("), "{}", lines[0]);
        assert!(lines[0].contains("longer than mtu 1500 of ntb0"), "{}", lines[0]);
        assert_eq!(lines[1], "5 frames dropped: device-down (ip link set vm0 up)");
        assert_eq!(lines[2], "1 frame dropped: of-the-future");
        assert!(with(&[]).is_empty());
    }

    // Goal: every drop reason has a remedy, for frames that the netdev sends and for frames that it
    // receives.
    #[test]
    fn every_reason_has_a_knob() {
        for reason in DropReason::ALL {
            for sends in [false, true] {
                let line = &with(&[("vm0", sends, reason.name(), 2)])[0];
                assert!(line.ends_with(')') && line.len() > 30, "{line}");
            }
        }
    }
}
