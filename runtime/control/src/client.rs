//! Blocking client of a running mqnet, for the command line.

mod whereabouts;
mod wire;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use mqnet_control_api::{ApiError, Code};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::socket::address::SocketAddress;

use whereabouts::Whereabouts;
pub(crate) use wire::{get, listener_state};

/// Default time limit for an answer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// First time limit for the answers of a process; extended while the process waits in the kernel
/// (see [`KERNELS_TIMEOUT`]).
pub(crate) const IDENTITY_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum time limit for a change. The server waits up to 30 s for other changes, then up to 15 s
/// for the change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(50);
/// Total time limit while the server's process waits in the kernel. Grace periods
/// (`synchronize_rcu_expedited`) can take tens of seconds under the lock of all network
/// configuration, for example on a machine with stolen CPU time.
pub(crate) const KERNELS_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval for checking whether the server's process still waits in the kernel.
const KERNEL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval for checking the stop flag of a stream.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Characters that are percent-encoded in names: all except letters, digits, `-`, `_`, `.` and `~`.
const IN_NAMES: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Percent-encodes a name as a path segment.
pub fn segment(name: &str) -> String {
    utf8_percent_encode(name, &IN_NAMES).to_string()
}

/// Client of one running mqnet. Each request uses a new connection, so that a client that waits for
/// an event does not delay other requests. Must not be called inside a tokio runtime.
#[derive(Clone, Debug)]
pub struct Client {
    socket: String,
    timeout: Duration,
}

impl Client {
    /// Creates a client of the process that listens at `socket`, a path or `@name`.
    pub fn new(socket: &str) -> Self {
        Self { socket: socket.to_owned(), timeout: TIMEOUT }
    }

    /// Creates a client as [`Client::new`] does. Returns an error if the address is invalid or no
    /// process listens.
    pub fn connect(socket: &str) -> Result<Self, ApiError> {
        SocketAddress::from_str(socket)?;
        let client = Self::new(socket);
        wire::connect(socket)?;
        Ok(client)
    }

    /// Sets the time limit for an answer. The limit of a long poll must exceed the requested wait.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Address of the control socket.
    pub fn socket(&self) -> &str {
        &self.socket
    }

    /// Sends `GET path` and returns the answer as JSON.
    pub fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.request("GET", path, None)
    }

    /// Sends a request and returns the answer as JSON; `null` if the answer has no body. The time
    /// limit is extended while the server's process waits in the kernel.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let stream = wire::connect(&self.socket)?;
        let kept = self.keep(&stream)?;
        let asked = wire::request_json((&self.socket, stream), method, path, body);
        let limited = async {
            let mut asked = std::pin::pin!(asked);
            let mut waited = Duration::ZERO;
            let mut limit = match method {
                "GET" => self.timeout,
                _ => self.timeout.max(CHANGE_TIMEOUT),
            };
            loop {
                if let Ok(done) = tokio::time::timeout(limit, &mut asked).await {
                    return done;
                }
                waited += limit;
                limit = KERNEL_CHECK_INTERVAL;
                let is_in_kernel = || Whereabouts::of_peer(&kept).is_in_kernel();
                if waited >= KERNELS_TIMEOUT || !is_in_kernel() {
                    return Err(self.timed_out(&kept, waited));
                }
            }
        };
        runtime(&self.socket)?.block_on(limited)
    }

    /// Sends `GET path` and returns the answer as text, for example for `/metrics`.
    pub fn text(&self, path: &str) -> Result<String, ApiError> {
        let mut bytes = Vec::new();
        self.stream(path, &mut bytes, &AtomicBool::new(false))?;
        String::from_utf8(bytes)
            .map_err(|e| self.failed(&format!("the response is not UTF-8: {e}")))
    }

    /// Copies the answer to `GET path` to `out` as it arrives. Stops when the server ends the
    /// answer, `out` is a broken pipe, or `stop` is set. Returns the number of bytes copied.
    pub fn stream(
        &self,
        path: &str,
        out: &mut dyn Write,
        stop: &AtomicBool,
    ) -> Result<u64, ApiError> {
        let stream = wire::connect(&self.socket)?;
        let kept = self.keep(&stream)?;
        let begin = wire::open((&self.socket, stream), "GET", path, None);
        let copy = async {
            let limited = tokio::time::timeout(self.timeout, begin).await;
            let late = |_| self.timed_out(&kept, self.timeout);
            let (_connection, mut answer) = limited.map_err(late)??;
            let mut copied = 0;
            while !stop.load(Ordering::Relaxed) {
                let Ok(frame) = tokio::time::timeout(STOP_CHECK_INTERVAL, answer.frame()).await
                else {
                    continue;
                };
                let Some(frame) = frame else { break };
                let frame =
                    frame.map_err(|e| self.failed(&format!("the response was cut off: {e}")))?;
                let Ok(data) = frame.into_data() else { continue };
                match out.write_all(&data).and_then(|()| out.flush()) {
                    Ok(()) => copied += data.len() as u64,
                    Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => break,
                    Err(e) => return Err(self.failed(&format!("cannot write the response: {e}"))),
                }
            }
            Ok(copied)
        };
        runtime(&self.socket)?.block_on(copy)
    }

    /// Duplicates the handle of a connection, for diagnostics after a timeout.
    fn keep(&self, stream: &UnixStream) -> Result<UnixStream, ApiError> {
        stream.try_clone().map_err(|e| self.failed(&format!("cannot send the request: {e}")))
    }

    fn timed_out(&self, stream: &UnixStream, waited: Duration) -> ApiError {
        let (limit, more) = (waited.as_secs_f64(), wire::silence(stream));
        let why = format!("mqnet at {}{more} did not answer within {limit} s", self.socket);
        ApiError::new(Code::TimedOut, why)
    }

    fn failed(&self, why: &str) -> ApiError {
        ApiError::new(Code::Failed, format!("mqnet at {}: {why}", self.socket))
    }
}

/// Creates an async runtime for one request. Dropping the runtime closes the connection.
pub(crate) fn runtime(socket: &str) -> Result<tokio::runtime::Runtime, ApiError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
        ApiError::new(Code::Failed, format!("{socket}: cannot create an event loop: {e}"))
    })
}
