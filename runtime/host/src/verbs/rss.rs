//! `ethtool -x` and `-X`.

use mqnet_control_api::{ApiError, Change, Code, Rss, SetRss};
use mqnet_sysio::clock;

use super::{done, not_while_changing, plain};
use crate::HostedLink;

/// `ethtool -x`.
pub(super) fn rss(entry: &mut HostedLink, side: usize) -> Result<Rss, ApiError> {
    let rings = entry.link.running().map_or(1, |running| running.plan.channels);
    let spread = entry.link.functions()[side].indirection();
    let spread =
        spread.ok_or_else(|| plain(Code::NotSupported, "this device has no indirection table"))?;
    Ok(Rss {
        rings,
        indirection_table: spread.table,
        hash_function: spread.hash.to_owned(),
        user_set: spread.user_set,
    })
}

/// `ethtool -X`.
pub(super) fn set_rss(entry: &mut HostedLink, side: usize, want: &SetRss) -> Change {
    let since = clock::monotonic();
    let now = rss(entry, side)?;
    not_while_changing(entry)?;
    if entry.link.running().is_none() {
        let why = "the link is down: its number of channels is not known yet";
        return Err(plain(Code::Down, why));
    }
    let size = now.indirection_table.len();
    let asked = [
        want.indirection_table.is_some(),
        want.equal.is_some(),
        want.weights.is_some(),
        want.default == Some(true),
    ];
    if asked.iter().filter(|asked| **asked).count() != 1 {
        let why = "exactly one of indirection-table, equal, weights and default is needed";
        return Err(plain(Code::Invalid, why));
    }
    // Queues that the table can contain: in a group, only those of the primary.
    let named = entry.link.functions()[side].table_queues(now.rings);
    let most = named.len() as u16;
    if most == 0 {
        return Err(plain(
            Code::NotSupported,
            "its indirection table cannot select any of these channels",
        ));
    }
    let spread = |queues: u16| (0..size).map(|i| named[i % usize::from(queues)]).collect();
    let table: Vec<u16> = match want {
        SetRss { indirection_table: Some(table), .. } if table.len() == size => table.clone(),
        SetRss { indirection_table: Some(table), .. } => {
            let n = table.len();
            let why = format!("size ({n}) mismatch with device indir table ({size})");
            return Err(ApiError::field("indirection-table", why));
        }
        SetRss { equal: Some(queues), .. } if (1..=most).contains(queues) => spread(*queues),
        SetRss { equal: Some(queues), .. } => {
            let why = format!("equal: {queues} is not a number from 1 to {most}");
            return Err(ApiError::field("equal", why));
        }
        SetRss { weights: Some(weights), .. } => by_weight(weights, size)?,
        _ => spread(most),
    };
    if let Some(entry) = table.iter().position(|&queue| queue >= now.rings) {
        let why = format!("entry {entry}: queue out of range ({})", table[entry]);
        return Err(plain(Code::Invalid, &why));
    }
    let user_set = want.default != Some(true);
    let set = entry.link.set_indirection(side, &table, user_set);
    let set = set.map_err(|e| plain(Code::Failed, &e.to_string()))?;
    set.map_err(|why| plain(Code::Failed, &why))?;
    done(rss(entry, side)? != now, since)
}

/// Creates a table in which each queue has a number of buckets proportional to its weight. Returns
/// an error without a positive weight, or for more weights than channels can exist.
fn by_weight(weights: &[u32], size: usize) -> Result<Vec<u16>, ApiError> {
    let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    if total == 0 || weights.len() > usize::from(mqnet_netdev::limits::CHANNELS_MAX) {
        return Err(ApiError::field("weights", "weights: 1 to 64 numbers, not all 0, are needed"));
    }
    let mut table = Vec::with_capacity(size);
    let mut sum = 0;
    for (queue, &weight) in (0u16..).zip(weights) {
        sum += u64::from(weight);
        let end = (size as u64 * sum / total) as usize;
        table.resize(end.max(table.len()), queue);
    }
    Ok(table)
}
