//! Answers of handlers.

use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use mqnet_control_api::{ApiError, Code, NetdevRequest, Outcome, Reply, Request};
use serde::Serialize;

use super::request::Name;
use crate::calls::HostHandle;

/// Time after which a change is answered with "still under way".
const CHANGE_TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit for waiting for other changes of the link.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval for retrying while the link makes a change of its own.
const CHANGE_PAUSE: Duration = Duration::from_millis(20);

/// An answer in JSON, or an error in JSON.
pub(super) type Answer<T> = Result<Json<T>, Refusal>;

/// An answer in JSON. axum's type is not used: its buffer makes large answers slower to write.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
            // No answer has map keys that JSON cannot represent.
            Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
        }
    }
}

/// An [`ApiError`] and its HTTP status.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    error: ApiError,
}

impl Refusal {
    /// Creates an error with a status that no [`Code`] maps to.
    pub(super) fn with_status(status: StatusCode, error: ApiError) -> Self {
        Self { status, error }
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self { status: status(error.code), error }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let ApiError { code, message, field } = self.error;
        let error = ApiError { code, message: one_line(message), field: field.map(one_line) };
        (self.status, Json(error)).into_response()
    }
}

/// Escapes control characters, which names and values of a client may insert into a message. A
/// message is printed as one line, also on a terminal.
fn one_line(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c.is_control() {
            true => escaped.extend(c.escape_default()),
            false => escaped.push(c),
        }
    }
    escaped
}

/// HTTP status of an error code.
pub(super) fn status(code: Code) -> StatusCode {
    match code {
        Code::NoDevice | Code::NoEntry => StatusCode::NOT_FOUND,
        Code::Invalid | Code::Range => StatusCode::BAD_REQUEST,
        Code::NotSupported => StatusCode::UNPROCESSABLE_ENTITY,
        Code::Exists | Code::Busy | Code::Changing | Code::Down => StatusCode::CONFLICT,
        Code::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        Code::Permission => StatusCode::FORBIDDEN,
        Code::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Sends a request and answers with its reply.
pub(super) async fn reply(host: &HostHandle, request: Request) -> Answer<Reply> {
    Ok(Json(host.request(request).await?))
}

/// Error for a reply of the wrong kind, which no host sends.
pub(super) fn wrong_reply() -> ApiError {
    ApiError::new(Code::Failed, "the host sent a reply of another kind")
}

/// Requests a change of a netdev, after earlier changes of its link, and waits for its outcome.
/// Also waits for a change that the link makes on its own.
pub(super) async fn change_netdev(
    host: &HostHandle,
    name: Name,
    request: NetdevRequest,
) -> Answer<Outcome> {
    let Name { name, queues } = name;
    let Reply::Found(found) = host.request(Request::Find(name.clone())).await? else {
        return Err(wrong_reply().into());
    };
    let link = found.link;
    let begun = async {
        let turn = queues.turn(&link).await;
        loop {
            // Resolved by name each time: the netdev may have been deleted in between.
            let request = Request::Netdev(name.clone(), request.clone());
            match host.request(request).await {
                Err(e) if e.code == Code::Changing => tokio::time::sleep(CHANGE_PAUSE).await,
                asked => return asked.map(|ticket| (turn, ticket)),
            }
        }
    };
    match tokio::time::timeout(QUEUE_TIMEOUT, begun).await {
        // The turn is held until the change is done.
        Ok(begun) => {
            let (_turn, reply) = begun?;
            outcome(reply).await
        }
        Err(_) => {
            let limit = QUEUE_TIMEOUT.as_secs();
            let why = format!("link {link}: other changes are under way for {limit} s: try again");
            Err(ApiError::new(Code::Busy, why).into())
        }
    }
}

/// Requests a change and waits for its outcome.
pub(super) async fn change(host: &HostHandle, request: Request) -> Answer<Outcome> {
    outcome(host.request(request).await?).await
}

async fn outcome(reply: Reply) -> Answer<Outcome> {
    let Reply::Change(ticket) = reply else { return Err(wrong_reply().into()) };
    match tokio::time::timeout(CHANGE_TIMEOUT, ticket).await {
        Ok(outcome) => Ok(Json(outcome?)),
        Err(_) => {
            let limit = CHANGE_TIMEOUT.as_secs();
            let why = format!("the change is still under way after {limit} s; see GET /v1/events");
            Err(ApiError::new(Code::TimedOut, why).into())
        }
    }
}
