//! Handlers for the process, its links, all netdevs and all page pools.

use axum::extract::State;
use mqnet_control_api::{
    Instance, LinkInfo, LinkSpec, LinkStats, NetdevInfo, Outcome, PagePoolInfo, PagePoolStats,
    Reply, Request,
};

use super::answer::{Answer, Json, reply};
use super::change::change;
use super::request::{Body, Name};
use crate::calls::HostHandle;

/// Description of the answering process.
#[utoipa::path(get, path = "/v1/instance", tag = "instance",
    responses((status = 200, description = "The process", body = Instance)))]
pub(super) async fn instance(State(host): State<HostHandle>) -> Answer<Reply> {
    reply(&host, Request::Instance).await
}

/// Reloads the configuration and applies the differences.
#[utoipa::path(post, path = "/v1/reload", tag = "instance",
    responses((status = 200, description = "What changed", body = Outcome)))]
pub(super) async fn reload(State(host): State<HostHandle>) -> Answer<Outcome> {
    change(&host, Request::Reload).await
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "instance",
    responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(super) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(super::openapi())
}

/// All links.
#[utoipa::path(get, path = "/v1/links", tag = "links",
    responses((status = 200, description = "The links", body = Vec<LinkInfo>)))]
pub(super) async fn links(State(host): State<HostHandle>) -> Answer<Reply> {
    reply(&host, Request::Links).await
}

/// Adds a link. An identical link of that name is left unchanged; a different link of that name is
/// rejected.
#[utoipa::path(put, path = "/v1/links/{link}", tag = "links", request_body = LinkSpec,
    params(("link" = String, Path, description = "Name for the link")),
    responses((status = 200, description = "The link exists", body = Outcome)))]
pub(super) async fn add(
    State(host): State<HostHandle>,
    link: Name,
    Body(spec): Body<LinkSpec>,
) -> Answer<Outcome> {
    change(&host, Request::AddLink { name: link.name.name, spec }).await
}

/// Deletes a link. A process with a single link ends with that link.
#[utoipa::path(delete, path = "/v1/links/{link}", tag = "links",
    params(("link" = String, Path, description = "Name of a link")),
    responses((status = 200, description = "The link is removed", body = Outcome)))]
pub(super) async fn delete(State(host): State<HostHandle>, link: Name) -> Answer<Outcome> {
    change(&host, Request::DeleteLink(link.name)).await
}

/// All counters of a link.
#[utoipa::path(get, path = "/v1/links/{link}/stats", tag = "links",
    params(("link" = String, Path, description = "Name of a link or of one of its netdevs")),
    responses((status = 200, description = "The counters", body = LinkStats)))]
pub(super) async fn stats(State(host): State<HostHandle>, link: Name) -> Answer<Reply> {
    reply(&host, Request::LinkStats(link.name)).await
}

/// All netdevs.
#[utoipa::path(get, path = "/v1/netdevs", tag = "netdevs",
    responses((status = 200, description = "The netdevs", body = Vec<NetdevInfo>)))]
pub(super) async fn netdevs(State(host): State<HostHandle>) -> Answer<Reply> {
    reply(&host, Request::Netdevs).await
}

/// `page-pool-get`.
#[utoipa::path(get, path = "/v1/page-pools", tag = "page pools",
    responses((status = 200, description = "The page pools", body = Vec<PagePoolInfo>)))]
pub(super) async fn page_pools(State(host): State<HostHandle>) -> Answer<Reply> {
    reply(&host, Request::PagePools).await
}

/// `page-pool-stats-get`.
#[utoipa::path(get, path = "/v1/page-pool-stats", tag = "page pools",
    responses((status = 200, description = "Their counters", body = Vec<PagePoolStats>)))]
pub(super) async fn page_pool_stats(State(host): State<HostHandle>) -> Answer<Reply> {
    reply(&host, Request::PagePoolStats).await
}
