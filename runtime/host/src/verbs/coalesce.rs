//! `ethtool -c` and `-C`.

use std::time::Duration;

use mqnet_control_api::{ApiError, Change, Coalesce, Code, SetCoalesce};
use mqnet_engine::IdlePolicy;
use mqnet_sysio::clock;

use super::{done, not_while_changing, plain};
use crate::HostedLink;

/// `ethtool -c`.
pub(super) fn coalesce(entry: &mut HostedLink, _side: usize) -> Result<Coalesce, ApiError> {
    Ok(Coalesce {
        rx_usecs: entry.link.idle_policy().window.as_micros() as u32,
        tx_frames: entry.link.wake_frames(),
    })
}

/// `ethtool -C`.
pub(super) fn set_coalesce(entry: &mut HostedLink, side: usize, want: &SetCoalesce) -> Change {
    let since = clock::monotonic();
    let before = coalesce(entry, side)?;
    let limits = [("rx-usecs", want.rx_usecs, 1_000_000), ("tx-frames", want.tx_frames, 65_536)];
    for (field, value, most) in limits {
        if let Some(value) = value.filter(|&value| value > most) {
            let why = format!("{field}: {value} is not a number from 0 to {most}");
            return Err(ApiError { field: Some(field.into()), ..plain(Code::Range, &why) });
        }
    }
    if want.tx_frames.is_some() {
        not_while_changing(entry)?;
    }
    if let Some(usecs) = want.rx_usecs {
        let window = Duration::from_micros(u64::from(usecs));
        let policy = IdlePolicy { window, ..entry.link.idle_policy() };
        entry.link.set_idle_policy(policy);
    }
    if let Some(frames) = want.tx_frames {
        entry.link.set_wake_frames(frames);
    }
    done(coalesce(entry, side)? != before, since)
}
