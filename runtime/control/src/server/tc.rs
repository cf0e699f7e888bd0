//! Disciplines, classes and filters of one netdev.

use axum::extract::State;
use mqnet_control_api::{Class, Filter, Outcome, Qdisc, TcRequest};

use super::answer::{Answer, ask_netdev, change_netdev};
use super::request::{Body, Name};
use crate::calls::HostHandle;

/// `tc qdisc show`.
#[utoipa::path(get, path = "/v1/netdevs/{dev}/qdiscs", tag = "tc",
    params(("dev" = String, Path, description = "Name of a netdev")),
    responses((status = 200, description = "The disciplines", body = Vec<Qdisc>)))]
pub(super) async fn qdiscs(State(host): State<HostHandle>, dev: Name) -> Answer<Vec<Qdisc>> {
    ask_netdev(&host, dev, |host, dev| host.qdiscs(dev)).await
}

/// `tc class show`.
#[utoipa::path(get, path = "/v1/netdevs/{dev}/classes", tag = "tc",
    params(("dev" = String, Path, description = "Name of a netdev")),
    responses((status = 200, description = "The classes", body = Vec<Class>)))]
pub(super) async fn classes(State(host): State<HostHandle>, dev: Name) -> Answer<Vec<Class>> {
    ask_netdev(&host, dev, |host, dev| host.classes(dev)).await
}

/// `tc filter show`, of every parent.
#[utoipa::path(get, path = "/v1/netdevs/{dev}/filters", tag = "tc",
    params(("dev" = String, Path, description = "Name of a netdev")),
    responses((status = 200, description = "The filters", body = Vec<Filter>)))]
pub(super) async fn filters(State(host): State<HostHandle>, dev: Name) -> Answer<Vec<Filter>> {
    ask_netdev(&host, dev, |host, dev| host.filters(dev)).await
}

/// `tc qdisc|class|filter add|change|replace|delete`.
#[utoipa::path(post, path = "/v1/netdevs/{dev}/tc", tag = "tc", request_body = TcRequest,
    params(("dev" = String, Path, description = "Name of a netdev")),
    responses((status = 200, description = "What came of it", body = Outcome)))]
pub(super) async fn set_tc(
    State(host): State<HostHandle>,
    dev: Name,
    Body(want): Body<TcRequest>,
) -> Answer<Outcome> {
    change_netdev(&host, dev, move |host, dev| host.set_tc(dev, &want)).await
}
