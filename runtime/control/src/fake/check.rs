//! What a real host would refuse.

use mqnet_control_api::{ApiError, Code, LinkSpec, SetCoalesce, SetFlowRules, SetRss};

use super::CHANNELS_MAX;

/// Buckets of the fake indirection table.
pub(super) const BUCKETS: usize = 16;

/// Places for rules.
pub(super) const RULES: u32 = 64;

/// A number that must lie in a range.
fn range(field: &str, value: u32, allowed: std::ops::RangeInclusive<u32>) -> Result<(), ApiError> {
    if allowed.contains(&value) {
        return Ok(());
    }
    let why = format!("{field}: {value} is not in {}..={}", allowed.start(), allowed.end());
    Err(ApiError { code: Code::Range, message: why, field: Some(field.to_owned()) })
}

pub(super) fn channels(combined: u16) -> Result<(), ApiError> {
    range("combined", combined.into(), 1..=CHANNELS_MAX.into())
}

pub(super) fn mtu(mtu: u32) -> Result<(), ApiError> {
    range("mtu", mtu, 68..=65521)
}

pub(super) fn ring(field: &str, size: u32) -> Result<(), ApiError> {
    range(field, size, 64..=1024)
}

pub(super) fn coalesce(want: &SetCoalesce) -> Result<(), ApiError> {
    want.rx_usecs.map_or(Ok(()), |value| range("rx-usecs", value, 0..=1_000_000))?;
    want.tx_frames.map_or(Ok(()), |value| range("tx-frames", value, 0..=65536))
}

pub(super) fn captured(channel: Option<u16>, combined: u16) -> Result<(), ApiError> {
    match channel {
        Some(channel) if channel >= combined => {
            let why = format!("no channel {channel}: there are 0..={}", combined - 1);
            let field = Some("channel".to_owned());
            Err(ApiError { code: Code::NoEntry, message: why, field })
        }
        _ => Ok(()),
    }
}

pub(super) fn link(name: &str, spec: &LinkSpec) -> Result<(), ApiError> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 15 || !name.chars().all(is_name) {
        let why = format!("link `{name}`: 1 to 15 letters, digits, `.`, `_` or `-`");
        return Err(ApiError::field("link", why));
    }
    for (field, address) in [("a", &spec.a), ("b", &spec.b)] {
        if !["tap:", "ntb:", "null:"].iter().any(|kind| address.starts_with(kind)) {
            let why = format!("{field}: `{address}` is no endpoint: tap:, ntb: or null:");
            return Err(ApiError::field(field, why));
        }
    }
    spec.channels.map_or(Ok(()), |n| range("channels", n.into(), 1..=64))?;
    spec.workers.map_or(Ok(()), |n| range("workers", n.into(), 1..=1024))?;
    spec.poll_window.map_or(Ok(()), |n| range("poll-window", n, 0..=1_000_000))
}

/// The location that a change of rules is about.
pub(super) fn rule(want: &SetFlowRules, combined: u16) -> Result<u32, ApiError> {
    let location = match (&want.add, want.delete) {
        (Some(rule), None) => {
            range("queue", rule.queue.into(), 0..=u32::from(combined) - 1)?;
            rule.location
        }
        (None, Some(location)) => location,
        _ => return Err(ApiError::new(Code::Invalid, "exactly one of add and delete is needed")),
    };
    range("location", location, 0..=RULES - 1)?;
    Ok(location)
}

/// The table that is asked for; `None`: the default.
pub(super) fn rss(want: &SetRss, combined: u16) -> Result<Option<Vec<u16>>, ApiError> {
    let spread = |n: usize| (0..BUCKETS).map(|bucket| (bucket % n) as u16).collect();
    match (&want.indirection_table, want.equal, &want.weights, want.default) {
        (Some(table), None, None, None) => {
            range("indirection-table", table.len() as u32, BUCKETS as u32..=BUCKETS as u32)?;
            let all = table.iter().try_for_each(|&queue| {
                range("indirection-table", queue.into(), 0..=u32::from(combined) - 1)
            });
            all.map(|()| Some(table.clone()))
        }
        (None, Some(equal), None, None) => {
            range("equal", equal.into(), 1..=combined.into())?;
            Ok(Some(spread(equal.into())))
        }
        (None, None, Some(weights), None) => {
            range("weights", weights.len() as u32, 1..=combined.into())?;
            Ok(Some(spread(weights.len())))
        }
        (None, None, None, Some(true)) => Ok(None),
        _ => {
            let why = "exactly one of indirection-table, equal, weights, default (true)";
            Err(ApiError::field("body", why))
        }
    }
}
