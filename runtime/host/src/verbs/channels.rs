//! `ethtool -l` and `-L`.

use mqnet_control_api::{ApiError, Change, Channels, Code, SetChannels};
use mqnet_engine::LinkSettings;

use super::plain;
use crate::HostedLink;

fn most_channels(entry: &mut HostedLink) -> u16 {
    entry.link.functions().map(|function| function.caps().channels).into_iter().min().unwrap_or(1)
}

/// `ethtool -l`.
pub(super) fn channels(entry: &mut HostedLink, _side: usize) -> Result<Channels, ApiError> {
    let combined = entry.link.running().map(|running| running.plan.channels);
    let wanted = entry.link.settings().channels;
    Ok(Channels {
        combined_max: most_channels(entry),
        // While the link is down, show the requested number, or 1.
        combined: combined.or(wanted).unwrap_or(1),
        wanted,
        peer_wanted: entry.link.peer_wants(),
        note: entry.link.settled_note(),
    })
}

/// `ethtool -L`.
pub(super) fn set_channels(entry: &mut HostedLink, _side: usize, want: &SetChannels) -> Change {
    let most = most_channels(entry);
    if want.combined > most {
        let why = "requested channel count exceeds maximum";
        return Err(ApiError { field: Some("combined".into()), ..plain(Code::Invalid, why) });
    }
    if want.combined == 0 {
        let why = "requested channel counts would result in no RX or TX channel being configured";
        return Err(ApiError { field: Some("combined".into()), ..plain(Code::Invalid, why) });
    }
    for function in entry.link.functions() {
        let rules = function.rules().unwrap_or_default();
        if rules.iter().any(|rule| rule.queue >= want.combined) {
            let why = "requested channel counts are too low for existing ntuple filter settings";
            return Err(plain(Code::Invalid, why));
        }
        let Some(spread) = function.indirection().filter(|spread| spread.user_set) else {
            continue;
        };
        let last = spread.table.iter().max().copied().unwrap_or(0);
        if want.combined <= last {
            let why = format!(
                "requested channel counts are too low for existing indirection table ({last})"
            );
            return Err(plain(Code::Invalid, &why));
        }
    }
    let settings = LinkSettings { channels: Some(want.combined), ..entry.link.settings().clone() };
    entry.request(settings)
}
