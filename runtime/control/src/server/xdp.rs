//! XDP programs of one netdev, and their maps.

use axum::extract::State;
use mqnet_control_api::{Outcome, SetXdp, XdpEntry, XdpInfo, XdpMapRequest};

use super::answer::{Answer, ask_netdev, change_netdev};
use super::request::{Body, Name};
use crate::calls::HostHandle;

/// The program that is attached, with its counters and maps.
#[utoipa::path(get, path = "/v1/netdevs/{dev}/xdp", tag = "xdp",
    params(("dev" = String, Path, description = "Name of a netdev")),
    responses((status = 200, description = "The program, if there is one", body = XdpInfo)))]
pub(super) async fn xdp(State(host): State<HostHandle>, dev: Name) -> Answer<XdpInfo> {
    ask_netdev(&host, dev, |host, dev| host.xdp(dev)).await
}

/// Attaches a program, or takes it off.
#[utoipa::path(post, path = "/v1/netdevs/{dev}/xdp", tag = "xdp", request_body = SetXdp,
    params(("dev" = String, Path, description = "Name of a netdev")),
    responses((status = 200, description = "What came of it", body = Outcome)))]
pub(super) async fn set_xdp(
    State(host): State<HostHandle>,
    dev: Name,
    Body(want): Body<SetXdp>,
) -> Answer<Outcome> {
    change_netdev(&host, dev, move |host, dev| host.set_xdp(dev, &want)).await
}

/// Reads or writes a map of the program.
#[utoipa::path(post, path = "/v1/netdevs/{dev}/xdp/map", tag = "xdp", request_body = XdpMapRequest,
    params(("dev" = String, Path, description = "Name of a netdev")),
    responses((status = 200, description = "The entries that were asked for",
               body = Vec<XdpEntry>)))]
pub(super) async fn xdp_map(
    State(host): State<HostHandle>,
    dev: Name,
    Body(want): Body<XdpMapRequest>,
) -> Answer<Vec<XdpEntry>> {
    ask_netdev(&host, dev, move |host, dev| host.xdp_map(dev, &want)).await
}
