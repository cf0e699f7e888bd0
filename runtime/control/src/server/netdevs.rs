//! One netdev: what ethtool and the `netdev` netlink family ask and set.

use axum::extract::State;
use mqnet_control_api::{
    Channels, Coalesce, DriverInfo, Feature, FlowRules, NamedCounter, Napi, Outcome, PrivFlag,
    QStats, Queue, Rings, Rss, SetChannels, SetCoalesce, SetFeatures, SetFlowRules, SetMtu,
    SetPrivFlags, SetRings, SetRss,
};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, ask_netdev, change_netdev};
use super::request::{Asked, Body, Name, Parameters};
use crate::calls::HostHandle;

/// A question about a netdev.
macro_rules! read {
    ($name:ident, $path:literal, [$($answer:tt)+], $what:literal) => {
        #[doc = $what]
        #[utoipa::path(get, path = $path, tag = "netdevs",
            params(("dev" = String, Path, description = "Name of a netdev")),
            responses((status = 200, description = $what, body = $($answer)+)))]
        pub(super) async fn $name(
            State(host): State<HostHandle>,
            dev: Name,
        ) -> Answer<$($answer)+> {
            ask_netdev(&host, dev, |host, dev| host.$name(dev)).await
        }
    };
}

/// A change of a netdev.
macro_rules! write {
    ($name:ident, $path:literal, $body:ident, $what:literal) => {
        #[doc = $what]
        #[utoipa::path(patch, path = $path, tag = "netdevs", request_body = $body,
                    params(("dev" = String, Path, description = "Name of a netdev")),
                    responses((status = 200, description = "What came of it", body = Outcome)))]
        pub(super) async fn $name(
            State(host): State<HostHandle>,
            dev: Name,
            Body(want): Body<$body>,
        ) -> Answer<Outcome> {
            change_netdev(&host, dev, move |host, dev| host.$name(dev, &want)).await
        }
    };
}

read!(channels, "/v1/netdevs/{dev}/channels", [Channels], "`ethtool -l`");
write!(set_channels, "/v1/netdevs/{dev}/channels", SetChannels, "`ethtool -L`");
read!(rings, "/v1/netdevs/{dev}/rings", [Rings], "`ethtool -g`");
write!(set_rings, "/v1/netdevs/{dev}/rings", SetRings, "`ethtool -G`");
write!(set_mtu, "/v1/netdevs/{dev}/mtu", SetMtu, "Sets the MTU");
read!(coalesce, "/v1/netdevs/{dev}/coalesce", [Coalesce], "`ethtool -c`");
write!(set_coalesce, "/v1/netdevs/{dev}/coalesce", SetCoalesce, "`ethtool -C`");
read!(rss, "/v1/netdevs/{dev}/rss", [Rss], "`ethtool -x`");
write!(set_rss, "/v1/netdevs/{dev}/rss", SetRss, "`ethtool -X`");
read!(rules, "/v1/netdevs/{dev}/rules", [FlowRules], "`ethtool -n`");
write!(set_rules, "/v1/netdevs/{dev}/rules", SetFlowRules, "`ethtool -N`");
read!(features, "/v1/netdevs/{dev}/features", [Vec<Feature>], "`ethtool -k`");
write!(set_features, "/v1/netdevs/{dev}/features", SetFeatures, "`ethtool -K`");
read!(priv_flags, "/v1/netdevs/{dev}/priv-flags", [Vec<PrivFlag>], "`--show-priv-flags`");
write!(set_priv_flags, "/v1/netdevs/{dev}/priv-flags", SetPrivFlags, "`--set-priv-flags`");
read!(driver, "/v1/netdevs/{dev}/driver", [DriverInfo], "`ethtool -i`");
read!(counters, "/v1/netdevs/{dev}/counters", [Vec<NamedCounter>], "`ethtool -S`");
read!(queues, "/v1/netdevs/{dev}/queues", [Vec<Queue>], "`queue-get`");
read!(napis, "/v1/netdevs/{dev}/napis", [Vec<Napi>], "`napi-get`");

/// What one record of `qstats` is about.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Scope {
    /// The netdev.
    #[default]
    Device,
    /// One queue.
    Queue,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ByScope {
    /// `device` (one record) or `queue` (one a queue).
    #[serde(default)]
    #[param(inline, required = false)]
    scope: Scope,
}

impl Parameters for ByScope {
    const ALLOWED: &'static str = "scope=device or scope=queue";
}

/// `qstats-get`.
#[utoipa::path(get, path = "/v1/netdevs/{dev}/qstats", tag = "netdevs",
    params(("dev" = String, Path, description = "Name of a netdev"), ByScope),
    responses((status = 200, description = "The counters", body = Vec<QStats>)))]
pub(super) async fn qstats(
    State(host): State<HostHandle>,
    dev: Name,
    Asked(asked): Asked<ByScope>,
) -> Answer<Vec<QStats>> {
    let per_queue = asked.scope == Scope::Queue;
    ask_netdev(&host, dev, move |host, dev| host.qstats(dev, per_queue)).await
}
