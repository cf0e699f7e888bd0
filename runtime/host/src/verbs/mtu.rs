//! MTU of a link.

use mqnet_control_api::{ApiError, Change, Code, SetMtu};
use mqnet_engine::LinkSettings;
use mqnet_netdev::limits::{MTU_MAX, MTU_MIN};

use super::plain;
use crate::HostedLink;

/// Requests a new MTU of the link.
pub(super) fn set_mtu(entry: &mut HostedLink, _side: usize, want: &SetMtu) -> Change {
    if !(MTU_MIN..=MTU_MAX).contains(&want.mtu) {
        let why = format!("mtu: {} is not a number from {MTU_MIN} to {MTU_MAX}", want.mtu);
        return Err(ApiError { field: Some("mtu".into()), ..plain(Code::Range, &why) });
    }
    let settings = LinkSettings { mtu: Some(want.mtu), ..entry.link.settings().clone() };
    entry.request(settings)
}
