//! Answers of handlers.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use mqnet_control_api::{ApiError, Code, Reply, Request};
use serde::Serialize;

use crate::calls::HostHandle;

/// Result of a handler: a value or an error, both sent as JSON.
pub(super) type Answer<T> = Result<Json<T>, Refusal>;

/// JSON answer. axum's type is slower for large answers because of its buffer.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
            // JSON can represent every answer, so serialization does not fail.
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
    /// Creates an error with a status to which no [`Code`] maps.
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

/// Escapes control characters. A client can insert them into a message through names and values,
/// and a message is printed as one line, also on a terminal.
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

/// Returns the HTTP status of an error code.
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

/// Sends a request to the host and returns its reply as JSON.
pub(super) async fn reply(host: &HostHandle, request: Request) -> Answer<Reply> {
    Ok(Json(host.request(request).await?))
}

/// Creates the error for a reply of the wrong variant. A correct host never causes this error.
pub(super) fn wrong_reply() -> ApiError {
    ApiError::new(Code::Failed, "the host sent a reply of another kind")
}
