//! One function for each verb of a netdev: it validates, then applies.
//!
//! The table of the verbs is [`netdev_verbs`]; the functions here have the names of its first
//! column.

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
        /// Carries out a request about the netdev of a side of a link.
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

/// Name and text of the event that a request causes when it changes something.
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

/// Outcome of a change that is complete.
pub(crate) fn done(changed: bool, since: Duration) -> Change {
    let took_us = clock::monotonic().saturating_sub(since).as_micros() as u64;
    Ok(Ticket::done(Outcome { changed, note: None, took_us }))
}

fn plain(code: Code, message: &str) -> ApiError {
    ApiError::new(code, message)
}

/// Refuses while a change is under way: its lanes would be missed.
fn not_while_changing(entry: &HostedLink) -> Result<(), ApiError> {
    match entry.link.is_changing() {
        true => Err(plain(Code::Changing, "another change is under way")),
        false => Ok(()),
    }
}
