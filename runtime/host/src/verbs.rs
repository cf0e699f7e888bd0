//! Requests about a netdev, one function for each. A function validates the request, then applies
//! it.
//!
//! The table of the requests is [`netdev_verbs`]; its first column contains the function names.

mod capture;
mod channels;
mod coalesce;
mod counters;
mod features;
mod mtu;
mod page_pools;
mod priv_flags;
mod queues;
mod rings;
mod rss;
mod rules;
mod show;
mod stats;
pub mod tc;
mod xdp;

use std::time::Duration;

use mqnet_control_api::{
    ApiError, Change, Code, NetdevRequest, Outcome, Reply, Ticket, netdev_verbs,
};

use mqnet_sysio::clock;

use crate::HostedLink;
use capture::capture;
use channels::{channels, set_channels};
use coalesce::{coalesce, set_coalesce};
use counters::counters;
use features::{features, set_features};
use mtu::set_mtu;
pub(crate) use page_pools::page_pools;
use priv_flags::{priv_flags, set_priv_flags};
use queues::{napis, qstats, queues};
use rings::{rings, set_rings};
use rss::{rss, set_rss};
use rules::{rules, set_rules};
use show::driver;
pub(crate) use show::show;
pub(crate) use stats::link_stats;
use tc::{classes, filters, qdiscs, set_tc};
use xdp::{set_xdp, xdp, xdp_map};

macro_rules! dispatch {
    (
        read { $($read:ident $variant:ident [$reply:ty] $path:literal $what:literal;)+ }
        change {
            $($set:ident $change:ident [$body:ty] $method:ident $to:literal $does:literal;)+
        }
    ) => {
        /// Executes a request about the netdev of a side of a link.
        pub fn execute(
            entry: &mut HostedLink,
            side: usize,
            request: NetdevRequest,
        ) -> Result<Reply, ApiError> {
            Ok(match request {
                $(NetdevRequest::$variant => Reply::$variant($read(entry, side)?),)+
                $(NetdevRequest::$change(want) => Reply::Change($set(entry, side, &want)?),)+
                NetdevRequest::QStats { per_queue } => {
                    Reply::QStats(qstats(entry, side, per_queue))
                }
                NetdevRequest::XdpMap(want) => Reply::XdpEntries(xdp_map(entry, side, &want)?),
                NetdevRequest::Capture(filter) => Reply::Capture(capture(entry, side, filter)?),
            })
        }
    };
}

netdev_verbs!(dispatch);

/// Name and text of the event for a successful change; `None` for requests without an event.
pub(crate) fn event(request: &NetdevRequest) -> Option<(&'static str, String)> {
    match request {
        NetdevRequest::SetTc(want) => Some(("tc-changed", tc::in_words(want))),
        NetdevRequest::SetXdp(want) => {
            let what = if want.object.is_some() { "attached" } else { "detached" };
            Some(("xdp-changed", format!("program {what}")))
        }
        _ => None,
    }
}

/// Completed ticket of a change. `since` is the start of the change.
pub(crate) fn done(changed: bool, since: Duration) -> Change {
    let took_us = clock::monotonic().saturating_sub(since).as_micros() as u64;
    Ok(Ticket::done(Outcome { changed, note: None, took_us }))
}

fn plain(code: Code, message: &str) -> ApiError {
    ApiError::new(code, message)
}

/// Returns an error while a change is under way: the new lanes of that change would not get the
/// setting.
fn not_while_changing(entry: &HostedLink) -> Result<(), ApiError> {
    match entry.link.is_changing() {
        true => Err(plain(Code::Changing, "another change is under way")),
        false => Ok(()),
    }
}
