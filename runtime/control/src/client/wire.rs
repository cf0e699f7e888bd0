//! HTTP/1.1 over a Unix socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::str::FromStr;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use mqnet_control_api::{ApiError, Code};
use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::whereabouts::Whereabouts;
use crate::server::request::NETNS;
use crate::socket::address::SocketAddress;
use mqnet_host::names;

/// Largest answer in bytes.
const ANSWER_MAX: usize = 16 * 1024 * 1024;

/// Connects to `socket` without blocking: the listen queue of a stopped process fills up, and a
/// blocking call would then wait.
pub(super) fn connect(socket: &str) -> Result<StdStream, ApiError> {
    let address = SocketAddress::from_str(socket)?;
    let connected = || {
        let stream = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        stream.set_nonblocking(true)?;
        stream.connect(&address.to_socket()?)?;
        Ok(StdStream::from(OwnedFd::from(stream)))
    };
    connected().map_err(|e| unreachable_at(socket, &e))
}

/// State of the process that listens at `socket`; all fields are `None` if no connection is
/// possible.
pub(crate) fn listener_state(socket: &str) -> Whereabouts {
    connect(socket).map_or_else(|_| Whereabouts::default(), |stream| Whereabouts::of_peer(&stream))
}

/// Describes the state of a connection that has not delivered an answer in time.
pub(super) fn silence(stream: &StdStream) -> String {
    let mut byte = [MaybeUninit::uninit()];
    let is_unread = SockRef::from(stream).peek(&mut byte).is_ok_and(|bytes| bytes > 0);
    let unread = if is_unread { " (a part of the response is unread)" } else { "" };
    format!("{}{unread}", Whereabouts::of_peer(stream))
}

fn unreachable_at(socket: &str, e: &io::Error) -> ApiError {
    let (code, why) = match e.kind() {
        io::ErrorKind::NotFound => (Code::Failed, "there is no such socket: is mqnet running?"),
        io::ErrorKind::ConnectionRefused => (
            Code::Failed,
            "no process listens there: the mqnet process that created it has ended; start it again",
        ),
        io::ErrorKind::PermissionDenied => {
            (Code::Permission, "its mode and owner exclude this user: use sudo, or change them")
        }
        io::ErrorKind::WouldBlock => {
            (Code::TimedOut, "its listen queue is full: is the process stopped?")
        }
        _ => return ApiError::new(Code::Failed, format!("cannot reach mqnet at {socket}: {e}")),
    };
    ApiError::new(code, format!("cannot reach mqnet at {socket}: {why}"))
}

/// Sends a request. Returns the body of a successful answer and the task that drives the
/// connection; an answer with another status is returned as an error.
pub(super) async fn open(
    (socket, stream): (&str, StdStream),
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<(JoinSet<()>, Incoming), ApiError> {
    let broken = |e: hyper::Error| failed(socket, &format!("invalid response: {e}"));
    let stream = UnixStream::from_std(stream).map_err(|e| unreachable_at(socket, &e))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let mut driver = JoinSet::new();
    driver.spawn(async {
        if let Err(e) = connection.await {
            tracing::debug!("control connection: {e}");
        }
    });
    let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "mqnet");
    if let Some(netns) = names::own_netns() {
        request = request.header(NETNS, netns);
    }
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let request = request.body(Full::new(bytes)).map_err(|e| {
        ApiError::new(Code::Invalid, format!("{socket}: cannot send {method} {path}: {e}"))
    })?;
    let answer = sender.send_request(request).await.map_err(broken)?;
    let status = answer.status();
    if status.is_success() {
        return Ok((driver, answer.into_body()));
    }
    let bytes = collect(socket, answer.into_body()).await?;
    Err(refusal(socket, status, &bytes))
}

/// Sends a request and returns the whole answer as JSON.
pub(super) async fn request_json(
    (socket, stream): (&str, StdStream),
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, ApiError> {
    let (_driver, answer) = open((socket, stream), method, path, body).await?;
    let bytes = collect(socket, answer).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|e| failed(socket, &format!("not JSON: {e}")))
}

/// Sends `GET path` and parses the answer as a type of the interface.
pub(crate) async fn get<T: serde::de::DeserializeOwned>(
    socket: &str,
    path: &str,
) -> Result<T, ApiError> {
    let value = request_json((socket, connect(socket)?), "GET", path, None).await?;
    serde_json::from_value(value)
        .map_err(|e| failed(socket, &format!("response of another version: {e}")))
}

async fn collect(socket: &str, body: Incoming) -> Result<Bytes, ApiError> {
    match Limited::new(body, ANSWER_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(e) if e.is::<LengthLimitError>() => Err(failed(socket, "the response is too large")),
        Err(e) => Err(failed(socket, &format!("the response was cut off: {e}"))),
    }
}

fn refusal(socket: &str, status: StatusCode, bytes: &[u8]) -> ApiError {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| failed(socket, &format!("answered {status} without a reason")))
}

fn failed(socket: &str, why: &str) -> ApiError {
    ApiError::new(Code::Failed, format!("mqnet at {socket}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: for a socket without a listener, the state is printed as an empty text.
    #[test]
    fn state_of_absent_listener_is_empty() {
        assert_eq!(listener_state("/nowhere/at/all.sock").to_string(), "");
    }
}
