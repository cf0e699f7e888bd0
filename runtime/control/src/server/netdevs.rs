//! Handlers for one netdev: one per row of the table of requests, and those with further
//! parameters.

use axum::extract::State;
use mqnet_control_api::{
    Channels, Class, Coalesce, DriverInfo, Feature, Filter, FlowRules, NamedCounter, Napi,
    NetdevRequest, Outcome, PrivFlag, QStats, QdiscEntry, QueueInfo, Reply, Request, Rings, Rss,
    SetChannels, SetCoalesce, SetFeatures, SetFlowRules, SetMtu, SetPrivFlags, SetRings, SetRss,
    SetXdp, TcRequest, XdpEntry, XdpInfo, XdpMapRequest, netdev_verbs,
};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{Answer, reply};
use super::change::change_netdev;
use super::request::{Body, Name, Parameters, QueryParameters};
use crate::calls::HostHandle;

macro_rules! handlers {
    (
        read { $($read:ident $variant:ident [$reply:ty] $path:literal $what:literal;)+ }
        change {
            $($set:ident $change:ident [$body:ty] $method:ident $to:literal $does:literal;)+
        }
    ) => {
        $(
            #[doc = $what]
            #[utoipa::path(get, path = $path, tag = "netdevs",
                params(("dev" = String, Path, description = "Name of a netdev")),
                responses((status = 200, description = $what, body = $reply)))]
            async fn $read(State(host): State<HostHandle>, dev: Name) -> Answer<Reply> {
                reply(&host, Request::Netdev(dev.name, NetdevRequest::$variant)).await
            }
        )+
        $(
            #[doc = $does]
            #[utoipa::path($method, path = $to, tag = "netdevs", request_body = $body,
                params(("dev" = String, Path, description = "Name of a netdev")),
                responses((status = 200, description = "The outcome", body = Outcome)))]
            async fn $set(
                State(host): State<HostHandle>,
                dev: Name,
                Body(want): Body<$body>,
            ) -> Answer<Outcome> {
                change_netdev(&host, dev, NetdevRequest::$change(want)).await
            }
        )+

        /// Routes of all handlers of a netdev except captures.
        pub(super) fn routed() -> OpenApiRouter<HostHandle> {
            OpenApiRouter::new()
                $(.routes(routes!($read)))+
                $(.routes(routes!($set)))+
                .routes(routes!(qstats))
                .routes(routes!(xdp_map))
        }
    };
}

netdev_verbs!(handlers);

/// Scope of one record of `qstats`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Scope {
    /// One record for the netdev.
    #[default]
    Device,
    /// One record per queue.
    Queue,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ByScope {
    /// `device` (one record) or `queue` (one record per queue).
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
async fn qstats(
    State(host): State<HostHandle>,
    dev: Name,
    QueryParameters(asked): QueryParameters<ByScope>,
) -> Answer<Reply> {
    let per_queue = asked.scope == Scope::Queue;
    reply(&host, Request::Netdev(dev.name, NetdevRequest::QStats { per_queue })).await
}

/// Reads or writes a map of the XDP program.
#[utoipa::path(post, path = "/v1/netdevs/{dev}/xdp/map", tag = "netdevs",
    request_body = XdpMapRequest,
    params(("dev" = String, Path, description = "Name of a netdev")),
    responses((status = 200, description = "The entries that were requested",
               body = Vec<XdpEntry>)))]
async fn xdp_map(
    State(host): State<HostHandle>,
    dev: Name,
    Body(want): Body<XdpMapRequest>,
) -> Answer<Reply> {
    reply(&host, Request::Netdev(dev.name, NetdevRequest::XdpMap(want))).await
}
