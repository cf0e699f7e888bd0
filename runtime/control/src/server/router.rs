//! Routes of the server, and answers to requests without a route.

use std::sync::LazyLock;

use axum::extract::Request;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use mqnet_control_api::{ApiError, Code, VERSION};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Refusal;
use super::queue::Queues;
use super::{capture, document, events, links, metrics, netdevs};
use crate::calls::HostHandle;

/// Suffixes of the paths that take query parameters.
const WITH_QUERY: [&str; 3] = ["/events", "/qstats", "/capture"];

/// All documented routes.
fn documented() -> OpenApiRouter<HostHandle> {
    OpenApiRouter::with_openapi(document::Frame::openapi())
        .routes(routes!(links::instance))
        .routes(routes!(links::reload))
        .routes(routes!(links::document))
        .routes(routes!(links::links))
        .routes(routes!(links::add, links::delete))
        .routes(routes!(links::stats))
        .routes(routes!(links::netdevs))
        .routes(routes!(links::page_pools))
        .routes(routes!(links::page_pool_stats))
        .routes(routes!(events::events))
        .merge(netdevs::routed())
        .routes(routes!(capture::capture))
        .routes(routes!(metrics::metrics))
}

/// OpenAPI document of the interface.
pub fn openapi() -> utoipa::openapi::OpenApi {
    // Build the document once: it is constant, and building it requires the whole router.
    static DOCUMENT: LazyLock<utoipa::openapi::OpenApi> = LazyLock::new(|| {
        let (_, mut document) = documented().split_for_parts();
        document::add_refusals(&mut document);
        document::add_addresses(&mut document);
        document
    });
    DOCUMENT.clone()
}

/// Router of the control socket.
pub(super) fn whole(host: HostHandle) -> Router {
    // Collect the paths once, because the fuzzer creates a router per connection and collecting is
    // slow.
    static ROUTER: LazyLock<Router<HostHandle>> =
        LazyLock::new(|| documented().split_for_parts().0);
    finish(ROUTER.clone().fallback(no_path).with_state(host))
}

/// Router of the metrics port.
pub(super) fn metrics_only(host: HostHandle) -> Router {
    let router = Router::new().route("/metrics", get(metrics::metrics));
    finish(router.fallback(no_metrics_path).with_state(host))
}

fn finish(router: Router) -> Router {
    let queues = Extension(Queues::default());
    router.method_not_allowed_fallback(no_method).layer(from_fn(well_formed)).layer(queues)
}

async fn no_path(uri: Uri) -> Refusal {
    let path = uri.path();
    let first = path.split('/').nth(1).unwrap_or_default();
    let is_version = first.strip_prefix('v').is_some_and(|n| n.parse::<u32>().is_ok());
    let why = if is_version && first != VERSION {
        format!("version {first} of the interface is not supported: use {VERSION}")
    } else {
        format!("no path {path}: GET /{VERSION}/openapi.json lists them")
    };
    ApiError::new(Code::NoEntry, why).into()
}

async fn no_metrics_path(uri: Uri) -> Refusal {
    let why = format!("no path {}: this port serves /metrics only", uri.path());
    ApiError::new(Code::NoEntry, why).into()
}

async fn no_method(method: Method, uri: Uri) -> Refusal {
    let why = format!("{method} is not allowed for {}", uri.path());
    Refusal::with_status(StatusCode::METHOD_NOT_ALLOWED, ApiError::field("method", why))
}

/// Rejects requests that axum would accept: invalid percent-encoding, and query parameters on paths
/// that take none.
async fn well_formed(request: Request, next: Next) -> Response {
    match flaw(request.uri()) {
        Some(error) => Refusal::from(error).into_response(),
        None => next.run(request).await,
    }
}

fn flaw(uri: &Uri) -> Option<ApiError> {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    for (field, text) in [("path", path), ("query", query)] {
        if !is_percent_encoded(text) {
            let why = format!("{field}: `%` must be followed by two hexadecimal digits: {text}");
            return Some(ApiError::field(field, why));
        }
    }
    if !query.is_empty() && !WITH_QUERY.iter().any(|end| path.ends_with(end)) {
        let why = format!("query: {path} takes no parameters, not `{query}`");
        return Some(ApiError::field("query", why));
    }
    None
}

fn is_percent_encoded(text: &str) -> bool {
    text.split('%').skip(1).all(|after| {
        let digits = after.as_bytes().get(..2).unwrap_or_default();
        digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit)
    })
}
