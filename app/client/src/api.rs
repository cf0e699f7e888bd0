//! What every verb needs of a running mqnet: to ask and to change, in JSON.

use mqnet_control_api::ApiError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A connection to one running mqnet, or to several whose lists it joins. Paths begin with `/v1/`.
pub(crate) trait Api {
    /// Where it is several: each of them, for what only one of them knows.
    fn several(&self) -> Option<Vec<&dyn Api>> {
        None
    }
    /// `GET path`.
    fn get(&self, path: &str) -> Result<Value, ApiError>;
    /// `PATCH path` with a JSON body.
    fn patch(&self, path: &str, body: &Value) -> Result<Value, ApiError>;
    /// `POST path` with a JSON body; refused by those who are there to look.
    fn post(&self, path: &str, _body: &Value) -> Result<Value, ApiError> {
        Err(ApiError::new(mqnet_control_api::Code::NotSupported, format!("POST {path}: no")))
    }
}

/// `GET path` as a type of the interface.
pub(crate) fn get<T: DeserializeOwned>(api: &dyn Api, path: &str) -> Result<T, ApiError> {
    parse(api.get(path)?)
}

/// `PATCH path`.
pub(crate) fn patch<B: Serialize, T: DeserializeOwned>(
    api: &dyn Api,
    path: &str,
    body: &B,
) -> Result<T, ApiError> {
    let body = serde_json::to_value(body).map_err(|e| odd(&e))?;
    parse(api.patch(path, &body)?)
}

/// `POST path`.
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
    ApiError::new(mqnet_control_api::Code::Failed, format!("an answer of another version: {e}"))
}
