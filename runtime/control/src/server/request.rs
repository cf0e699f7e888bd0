//! Extractors of requests: names in paths, query parameters and JSON bodies. Every error names the
//! wrong field.

use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use mqnet_control_api::{ApiError, ObjectName};
use serde::de::DeserializeOwned;

use super::answer::Refusal;
use super::queue::Queues;

/// Largest request body in bytes.
const BODY_MAX: usize = 1 << 20;
/// Time limit for the arrival of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Header with the inode of the client's network namespace, for resolving device names. Without the
/// header, a name that exists in several namespaces is rejected.
pub(crate) const NETNS: &str = "mqnet-netns";

/// Name in a path, of a netdev or of a link.
pub(super) struct Name {
    /// Name as written by the client.
    pub(super) name: ObjectName,
    /// Serialization of the changes of each link.
    pub(super) queues: Queues,
}

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let name: Result<Path<String>, PathRejection> =
            Path::from_request_parts(parts, state).await;
        match name {
            Ok(Path(name)) => {
                let queues = parts.extensions.get::<Queues>().cloned().unwrap_or_default();
                let name = ObjectName { name, netns: netns(parts)? };
                Ok(Self { name, queues })
            }
            Err(e) => Err(ApiError::field("path", e.body_text()).into()),
        }
    }
}

fn netns(parts: &Parts) -> Result<Option<u64>, Refusal> {
    let Some(value) = parts.headers.get(NETNS) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    let why = format!("{NETNS}: must be the inode number of a network namespace");
    number.map(Some).ok_or_else(|| ApiError::field(NETNS, why).into())
}

/// Query parameters.
pub(super) trait Parameters: DeserializeOwned {
    /// Description of the allowed parameters, for errors.
    const ALLOWED: &'static str;
}

/// Query parameters of a request.
pub(super) struct QueryParameters<P>(pub(super) P);

impl<S: Send + Sync, P: Parameters> FromRequestParts<S> for QueryParameters<P> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        match Query::<P>::try_from_uri(&parts.uri) {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(e) => {
                let text = e.body_text();
                let text = text.rsplit_once("query string: ").map_or(&*text, |(_, why)| why);
                let why = format!("{text}; allowed: {}", P::ALLOWED);
                Err(ApiError::field(field_in(text).unwrap_or("query"), why).into())
            }
        }
    }
}

/// JSON body of a request.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        if !is_json(&request) {
            let why = "the body must be JSON, with Content-Type: application/json";
            let error = ApiError::field("Content-Type", why);
            return Err(Refusal::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
        }
        parse(&read(request).await?).map(Self).map_err(Refusal::from)
    }
}

fn is_json(request: &Request) -> bool {
    let value = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

async fn read(request: Request) -> Result<Vec<u8>, Refusal> {
    let body = Limited::new(request.into_body(), BODY_MAX).collect();
    match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(e)) if e.is::<LengthLimitError>() => {
            let why = format!("the body is too large: at most {BODY_MAX} bytes");
            let error = ApiError::field("body", why);
            Err(Refusal::with_status(StatusCode::PAYLOAD_TOO_LARGE, error))
        }
        Ok(Err(e)) => Err(ApiError::field("body", format!("cannot read the body: {e}")).into()),
        Err(_) => {
            let why = format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs());
            let error = ApiError::field("body", why);
            Err(Refusal::with_status(StatusCode::REQUEST_TIMEOUT, error))
        }
    }
}

/// Parses a JSON object. An error names the wrong field.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // serde also accepts an array for a struct, but the order of fields is not part of the
    // interface.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(ApiError::field("body", "the body must be a JSON object: {\"field\": value}"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|e| {
        let path = e.path().to_string();
        let why = e.inner().to_string();
        if !e.inner().is_data() {
            return ApiError::field("body", format!("the body is not JSON: {why}"));
        }
        let named = field_in(&why).map(str::to_owned);
        let field = named.or((path != ".").then_some(path));
        match field {
            Some(field) if !why.contains(&format!("`{field}`")) => {
                ApiError::field(&field, format!("{field}: {why}"))
            }
            Some(field) => ApiError::field(&field, why),
            None => ApiError::field("body", format!("body: {why}")),
        }
    })?;
    json.end().map_err(|e| ApiError::field("body", format!("after the JSON object: {e}")))?;
    Ok(parsed)
}

/// Finds the name of the field in an error message of serde: `name: ...` or "... field `name`".
/// Returns `None` for other messages.
fn field_in(why: &str) -> Option<&str> {
    let quoted = why.split_once("field `").and_then(|(_, rest)| rest.split_once('`'));
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let before = why.split_once(": ").map(|(name, _)| name).filter(|name| is_name(name));
    quoted.map(|(name, _)| name).or(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqnet_control_api::{LinkSpec, SetChannels, SetRss};
    use proptest::prelude::*;

    fn refusal<T: DeserializeOwned>(text: &str) -> (String, String) {
        let error = parse::<T>(text.as_bytes()).err().expect(text);
        (error.field.unwrap(), error.message)
    }

    // Goal: an error names the wrong field and the allowed values.
    #[test]
    fn refusals_name_the_field() {
        for (text, field, words) in [
            (r#"{"combined":"x"}"#, "combined", "expected u16"),
            (r#"{"combined":70000}"#, "combined", "70000"),
            (r#"{"combined":-1}"#, "combined", "-1"),
            (r#"{"combined":1.5}"#, "combined", "expected u16"),
            (r#"{"combine":1}"#, "combine", "expected `combined`"),
            (r#"{"combined":1,"combined":2}"#, "combined", "duplicate"),
            ("{}", "combined", "missing"),
            ("[]", "body", "must be a JSON object"),
            ("[2]", "body", "must be a JSON object"),
            ("", "body", "must be a JSON object"),
            (r#"{"combined":1"#, "body", "EOF"),
            (r#"{"combined":1}}"#, "body", "trailing"),
            ("\u{0}", "body", "must be a JSON object"),
        ] {
            let (named, message) = refusal::<SetChannels>(text);
            assert_eq!(named, field, "{text}: {message}");
            assert!(message.contains(words), "{text}: {message}");
        }
        let (field, message) = refusal::<SetRss>(r#"{"weights":[1,"x"]}"#);
        assert_eq!(field, "weights[1]", "{message}");
    }

    proptest! {
        // Goal: no input makes the parser panic, and every error names a field.
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            if let Err(e) = parse::<LinkSpec>(&bytes) {
                prop_assert!(e.field.is_some());
            }
        }
    }
}
