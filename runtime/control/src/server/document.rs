//! Parts of the OpenAPI document that no handler provides: errors, and endpoint addresses.

use mqnet_control_api::ApiError;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Content, OpenApi as Document, Ref, RefOr, ResponseBuilder};

/// Base of the OpenAPI document; the router adds paths and schemas.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "mqnet control interface",
        description = "Requests of a running mqnet process, over its control socket."
    ),
    components(schemas(ApiError))
)]
pub(super) struct Frame;

/// Errors that every operation can return.
const ANY: [(&str, &str); 5] = [
    ("400", "A malformed request, or a value that is not allowed"),
    ("404", "No such link, netdev, queue, discipline or path"),
    ("405", "The path has no such method; the Allow header lists the allowed ones"),
    ("422", "This device cannot do it"),
    ("500", "An internal error of mqnet"),
];
/// Additional errors of a change.
const CHANGE: [(&str, &str); 3] = [
    ("403", "The kernel refused"),
    ("409", "Another change is under way, the object exists already, or the link is down"),
    ("504", "The peer did not answer in time, or the change is still under way"),
];
/// Additional errors of an operation with a request body.
const BODY: [(&str, &str); 3] = [
    ("408", "The body did not arrive in time"),
    ("413", "The body is too large"),
    ("415", "The body is not JSON"),
];

/// Adds the possible errors to every operation.
pub(super) fn add_refusals(document: &mut Document) {
    for item in document.paths.paths.values_mut() {
        let read = item.get.as_mut();
        let changes = [&mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        for operation in read.into_iter() {
            add(operation, &ANY);
        }
        for operation in changes.into_iter().flatten() {
            add(operation, &ANY);
            add(operation, &CHANGE);
            if operation.request_body.is_some() {
                add(operation, &BODY);
            }
        }
    }
}

/// Adds the endpoint addresses to the description of a link's ends.
pub(super) fn add_addresses(document: &mut Document) {
    let components = document.components.as_mut();
    let schema = components.and_then(|components| components.schemas.get_mut("LinkSpec"));
    let Some(RefOr::T(Schema::Object(link))) = schema else { return };
    for side in ["a", "b"] {
        if let Some(RefOr::T(Schema::Object(address))) = link.properties.get_mut(side) {
            let text = address.description.get_or_insert_default();
            *text = format!("{} Addresses: {}.", text.trim(), mqnet_address::addresses());
        }
    }
}

fn add(operation: &mut Operation, refusals: &[(&str, &str)]) {
    for (status, what) in refusals {
        let body = Content::new(Some(RefOr::Ref(Ref::from_schema_name("ApiError"))));
        let refusal = ResponseBuilder::new().description(*what).content("application/json", body);
        operation.responses.responses.insert((*status).to_owned(), refusal.build().into());
    }
}
