//! Validation of a link's specification.

use std::ops::RangeInclusive;

use mqnet_control_api::{ApiError, Code, LinkSpec};
use mqnet_engine::{Cpus, EgressConfig};
use mqnet_netdev::limits::CHANNELS_MAX;
use mqnet_topology::parse_cpu_list;

use crate::{Endpoint, parse_both};

/// Allowed numbers of channels.
pub const CHANNELS: RangeInclusive<u32> = 1..=CHANNELS_MAX as u32;

/// Allowed numbers of workers.
pub const WORKERS: RangeInclusive<u32> = 1..=1024;

/// Allowed poll windows, in microseconds.
pub const POLL_WINDOW: RangeInclusive<u32> = 0..=1_000_000;

/// Default poll window, in microseconds.
pub const POLL_WINDOW_DEFAULT: u32 = 1000;

/// Validated link. Two equal values describe the same link, even if their texts differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedLink {
    /// Endpoint of side a.
    pub a: Endpoint,
    /// Endpoint of side b.
    pub b: Endpoint,
    /// Number of channels; `None`: as many as the peer requests, or 1.
    pub channels: Option<u16>,
    /// Number of workers; `None`: one per channel, at most one per CPU.
    pub workers: Option<u16>,
    /// CPUs of the workers.
    pub cpus: Cpus,
    /// Poll window in microseconds.
    pub poll_window: u32,
    /// Egress options of `a` and of `b`.
    pub egress: [EgressConfig; 2],
}

/// Parses the CPU choice of workers: `auto`, `float` or a CPU list.
pub fn parse_cpus(text: &str) -> Result<Cpus, String> {
    match text {
        "auto" => Ok(Cpus::Auto),
        "float" => Ok(Cpus::Float),
        list => parse_cpu_list(list).map(Cpus::List).map_err(|e| format!("{e}, auto or float")),
    }
}

/// Creates the error for a number out of range.
pub(crate) fn out_of_range(
    field: &str,
    value: impl std::fmt::Display,
    range: &RangeInclusive<u32>,
) -> ApiError {
    let (least, most) = (range.start(), range.end());
    let message = format!("{field}: {value} is not a number from {least} to {most}");
    ApiError { code: Code::Range, message, field: Some(field.to_owned()) }
}

fn in_range(
    field: &str,
    value: Option<impl Into<u32>>,
    range: &RangeInclusive<u32>,
) -> Result<(), ApiError> {
    match value.map(Into::into) {
        Some(value) if !range.contains(&value) => Err(out_of_range(field, value, range)),
        _ => Ok(()),
    }
}

fn endpoint(field: &str, address: &str) -> Result<(Endpoint, EgressConfig), ApiError> {
    let (endpoint, egress) =
        parse_both(address).map_err(|e| ApiError::field(field, format!("{field}: {e}")))?;
    // Descriptor numbers would refer to the process that runs the link, not to the client.
    if !endpoint.config().inherited().is_empty() {
        let why = "fd= is possible on the command line only, where a parent process passes it";
        return Err(ApiError::field(field, format!("{field}: endpoint '{address}': {why}")));
    }
    Ok((endpoint, egress))
}

/// Returns an error if `channels` is smaller than the number of members of a group.
fn enough_for_groups(channels: Option<u16>, ends: [&Endpoint; 2]) -> Result<(), ApiError> {
    for end in ends {
        let (Endpoint::Group(group), Some(channels)) = (end, channels) else { continue };
        let members = group.members.len();
        if usize::from(channels) < members {
            let why =
                format!("{channels} is too few for a group of {members}: each member needs one");
            return Err(ApiError::field("channels", format!("channels: {why}")));
        }
    }
    Ok(())
}

/// Returns an error if `name` is not a valid name of a link. Names appear in paths of the control
/// interface, in metrics, in logs and on command lines.
pub fn check_link_name(name: &str) -> Result<(), ApiError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if name.len() <= 63 && starts_well && name.chars().all(good) {
        return Ok(());
    }
    let allowed = "1 to 63 letters, digits, '.', '_' and '-', the first a letter or digit";
    Err(ApiError::field("link", format!("{name:?} is not a valid link name; allowed: {allowed}")))
}

/// Validates a link of a configuration file or of a request. Returns an error with the first
/// invalid field.
pub fn check(spec: &LinkSpec) -> Result<CheckedLink, ApiError> {
    let ((a, from_a), (b, from_b)) = (endpoint("a", &spec.a)?, endpoint("b", &spec.b)?);
    let egress = [from_a, from_b];
    if a.is_bridge() && b.is_bridge() {
        let why = "ntb: to ntb: is not possible: each bridge negotiates with its own peer only";
        return Err(ApiError::field("b", format!("b: {why}")));
    }
    in_range("channels", spec.channels, &CHANNELS)?;
    enough_for_groups(spec.channels, [&a, &b])?;
    in_range("workers", spec.workers, &WORKERS)?;
    in_range("poll-window", spec.poll_window, &POLL_WINDOW)?;
    let cpus = spec.cpus.as_deref().map_or(Ok(Cpus::Auto), parse_cpus);
    let cpus = cpus.map_err(|e| ApiError::field("cpus", format!("cpus: {e}")))?;
    let poll_window = spec.poll_window.unwrap_or(POLL_WINDOW_DEFAULT);
    let (channels, workers) = (spec.channels, spec.workers);
    Ok(CheckedLink { a, b, channels, workers, cpus, poll_window, egress })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> LinkSpec {
        LinkSpec {
            a: "tap:a".into(),
            b: "ntb:/run/x.sock".into(),
            channels: None,
            workers: None,
            cpus: None,
            poll_window: None,
        }
    }

    // Goal: the error of an invalid field contains its name and the allowed values.
    #[test]
    fn wrong_fields_are_named() {
        type Change = fn(&mut LinkSpec);
        let cases: [(&str, &str, Change); 13] = [
            ("a", "unknown kind 'tun'", |s| s.a = "tun:a".into()),
            ("b", "addresses are", |s| s.b = String::new()),
            ("a", "command line", |s| s.a = "tap:a,fd=5".into()),
            ("b", "is not possible:", |s| s.a = "ntb:/run/y.sock".into()),
            ("b", "is not possible:", |s| s.a = "ntb:ivshmem=pci".into()),
            ("a", "must be stop or drop", |s| s.a = "tap:a,full=maybe".into()),
            ("b", "arguments of tc qdisc", |s| s.b = "null:,qdisc= ".into()),
            ("channels", "from 1 to 64", |s| s.channels = Some(0)),
            ("channels", "65 is not a number from 1 to 64", |s| s.channels = Some(65)),
            ("workers", "from 1 to 1024", |s| s.workers = Some(0)),
            ("workers", "from 1 to 1024", |s| s.workers = Some(1025)),
            ("poll-window", "from 0 to 1000000", |s| s.poll_window = Some(1_000_001)),
            ("cpus", "auto or float", |s| s.cpus = Some("first".into())),
        ];
        for (field, words, change) in cases {
            let mut spec = spec();
            change(&mut spec);
            let error = check(&spec).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(field));
            assert!(error.message.starts_with(&format!("{field}: ")), "{error}");
            assert!(error.message.contains(words), "{error}");
        }
    }

    // Goal: links with different texts and equal meaning are equal.
    #[test]
    fn equal_links_are_equal() {
        let plain = check(&spec()).unwrap();
        let mut same = spec();
        same.b = "ntb:/run/x.sock,window=16384K".into();
        (same.cpus, same.poll_window) = (Some("auto".into()), Some(1000));
        assert_eq!(check(&same).unwrap(), plain);
        same.b += ",full=stop";
        assert_eq!(check(&same).unwrap(), plain);
        same.channels = Some(1);
        assert_ne!(check(&same).unwrap(), plain);
    }
}
