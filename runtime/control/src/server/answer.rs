//! Answers of handlers.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use mqnet_control_api::{ApiError, Code, Reply, Request};
use serde::Serialize;

use crate::calls::HostHandle;

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
