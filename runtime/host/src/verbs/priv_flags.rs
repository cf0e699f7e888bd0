//! `ethtool --show-priv-flags` and `--set-priv-flags`.

use mqnet_control_api::{ApiError, Change, Code, PrivFlag, SetPrivFlags};
use mqnet_netdev::RxMemory;
use mqnet_sysio::clock;

use super::{done, not_while_changing, plain};
use crate::HostedLink;

/// Flag that is shown with notes about the buffer layout.
const FULL_PAGE: &str = "full-page-rx";

/// Describes the buffer layout of RX queues. Adjacent queues with the same layout and reason share
/// one line.
fn layout_notes(queues: &[RxMemory]) -> Vec<String> {
    let same = |a: &RxMemory, b: &RxMemory| (a.full, &a.reason) == (b.full, &b.reason);
    let line = |group: &[RxMemory]| {
        let (first, last) = (&group[0], &group[group.len() - 1]);
        let queues = match first.queue == last.queue {
            true => format!("queue {}", first.queue),
            false => format!("queues {}-{}", first.queue, last.queue),
        };
        format!("{queues}: {} ({})", first.layout(), first.reason)
    };
    queues.chunk_by(same).map(line).collect()
}

/// `ethtool --show-priv-flags`.
pub(super) fn priv_flags(entry: &mut HostedLink, side: usize) -> Result<Vec<PrivFlag>, ApiError> {
    let flags = entry.link.functions()[side].flags();
    if flags.is_empty() {
        return Err(plain(Code::NotSupported, "this kind of device has no private flags"));
    }
    let mut notes = layout_notes(&entry.link.functions()[side].rx_memory());
    let flag = |(name, on): (&str, bool)| {
        let notes = if name == FULL_PAGE { std::mem::take(&mut notes) } else { Vec::new() };
        PrivFlag { name: name.to_owned(), on, notes }
    };
    Ok(flags.into_iter().map(flag).collect())
}

/// `ethtool --set-priv-flags`.
pub(super) fn set_priv_flags(entry: &mut HostedLink, side: usize, want: &SetPrivFlags) -> Change {
    let since = clock::monotonic();
    let known = priv_flags(entry, side)?;
    not_while_changing(entry)?;
    for name in want.flags.keys() {
        if !known.iter().any(|flag| flag.name == *name) {
            return Err(ApiError::field(name, "bit name not found"));
        }
    }
    let mut changed = Vec::new();
    for (name, &on) in &want.flags {
        if known.iter().any(|flag| flag.name == *name && flag.on != on) {
            if let Err(e) = entry.link.functions()[side].set_flag(name, on) {
                for (name, on) in changed {
                    // A flag that cannot be restored keeps its new value, which is shown.
                    let _ = entry.link.functions()[side].set_flag(name, on);
                }
                return Err(plain(Code::Failed, &e.to_string()));
            }
            changed.push((name, !on));
        }
    }
    done(!changed.is_empty(), since)
}
