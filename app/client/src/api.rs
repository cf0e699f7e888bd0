//! JSON requests to a running mqnet.

use mqnet_control_api::ApiError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Connection to one mqnet process, or to several processes with their lists concatenated. Paths
/// begin with `/v1/`.
pub(crate) trait Api {
    /// One connection per process if this connection joins several processes; `None` for one
    /// process.
    fn several(&self) -> Option<Vec<&dyn Api>> {
        None
    }
    /// `GET path`.
    fn get(&self, path: &str) -> Result<Value, ApiError>;
    /// `PATCH path` with a JSON body.
    fn patch(&self, path: &str, body: &Value) -> Result<Value, ApiError>;
    /// `POST path` with a JSON body. The default implementation returns `NotSupported`.
    fn post(&self, path: &str, _body: &Value) -> Result<Value, ApiError> {
        Err(ApiError::new(mqnet_control_api::Code::NotSupported, format!("POST {path}: no")))
    }
}

/// Sends `GET path` and decodes the response.
pub(crate) fn get<T: DeserializeOwned>(api: &dyn Api, path: &str) -> Result<T, ApiError> {
    parse(api.get(path)?)
}

/// Sends `PATCH path` and decodes the response.
pub(crate) fn patch<B: Serialize, T: DeserializeOwned>(
    api: &dyn Api,
    path: &str,
    body: &B,
) -> Result<T, ApiError> {
    let body = serde_json::to_value(body).map_err(|e| odd(&e))?;
    parse(api.patch(path, &body)?)
}

/// Sends `POST path` and decodes the response.
pub(crate) fn post<B: Serialize, T: DeserializeOwned>(
    api: &dyn Api,
    path: &str,
    body: &B,
) -> Result<T, ApiError> {
    let body = serde_json::to_value(body).map_err(|e| odd(&e))?;
    parse(api.post(path, &body)?)
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, ApiError> {
    serde_json::from_value(value).map_err(|e| odd(&e))
}

fn odd(e: &serde_json::Error) -> ApiError {
    ApiError::new(mqnet_control_api::Code::Failed, format!("response of another version: {e}"))
}
