//! Parser and checks of the server's answers.

use mqnet_control_api::ApiError;
use serde_json::Value;
use tokio::io::{AsyncReadExt, DuplexStream};

use super::request::Request;

/// Statuses with which the HTTP library answers without a body.
const OF_LIBRARY: [u16; 3] = [400, 414, 431];

/// Client's end of a connection, with the bytes received and not yet parsed.
pub(super) struct Reader {
    pub(super) stream: DuplexStream,
    bytes: Vec<u8>,
}

/// Answer to one request.
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    /// Body of the answer; `None` if the body was not read.
    body: Option<Vec<u8>>,
    /// True if the connection cannot carry a further request.
    pub(super) ends: bool,
}

impl Reader {
    pub(super) fn new(stream: DuplexStream) -> Self {
        Self { stream, bytes: Vec::new() }
    }

    /// Reads the next final answer. Returns `None` if the server closes the connection before the
    /// answer is complete.
    pub(super) async fn answer(&mut self, is_head: bool) -> Option<Answer> {
        loop {
            let (status, headers) = self.head().await?;
            if (100..200).contains(&status) {
                continue;
            }
            let mut answer = Answer { status, headers, body: None, ends: false };
            let length = answer.header("content-length").map(str::to_owned);
            let is_chunked = answer.header("transfer-encoding") == Some("chunked");
            answer.ends = answer.header("connection") == Some("close");
            if is_head {
                return Some(answer);
            }
            if answer.kind().starts_with("application/x-pcapng") {
                // A capture grows until its reader disconnects, so its body is not read.
                answer.ends = true;
                return Some(answer);
            }
            answer.body = if is_chunked {
                Some(self.chunks().await?)
            } else if let Some(length) = length {
                let Ok(length) = length.parse() else { panic!("length {length}") };
                Some(self.take(length).await?)
            } else {
                answer.ends = true;
                while self.fill().await {}
                Some(std::mem::take(&mut self.bytes))
            };
            return Some(answer);
        }
    }

    /// Receives more bytes. Returns false at the end of the connection.
    async fn fill(&mut self) -> bool {
        self.stream.read_buf(&mut self.bytes).await.is_ok_and(|len| len > 0)
    }

    /// Takes bytes up to and including `end`. Returns `None` if the connection ends before.
    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.bytes.windows(end.len()).position(|part| part == end) {
                return self.take(at + end.len()).await;
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    async fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        while self.bytes.len() < len {
            if !self.fill().await {
                return None;
            }
        }
        Some(self.bytes.drain(..len).collect())
    }

    async fn head(&mut self) -> Option<(u16, Vec<(String, String)>)> {
        let head = self.until(b"\r\n\r\n").await?;
        let head = String::from_utf8_lossy(&head);
        let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
        let first = lines.next().unwrap_or_default();
        let version = first.strip_prefix("HTTP/1.1 ").or_else(|| first.strip_prefix("HTTP/1.0 "));
        let status = version.and_then(|rest| rest.get(..3)?.parse().ok());
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        Some((status.unwrap_or_else(|| panic!("no status: {first}")), headers.collect()))
    }

    async fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let line = self.until(b"\r\n").await?;
            let line = String::from_utf8_lossy(&line);
            let Ok(len) = usize::from_str_radix(line.trim(), 16) else { panic!("chunk {line}") };
            all.extend(self.take(len).await?);
            self.take(2).await?;
            if len == 0 {
                return Some(all);
            }
        }
    }
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn kind(&self) -> &str {
        self.header("content-type").unwrap_or_default()
    }

    /// Panics for a status or a body that the interface does not document.
    pub(super) fn check(&self, request: &Request) {
        let status = self.status;
        let is_allowed = request.allows(status) || !request.is_complete && status != 500;
        assert!(is_allowed, "status {status} for {}: {:?}", request.text(), self.text());
        if status == 405 {
            assert!(self.header("allow").is_some(), "405 without Allow for {}", request.text());
        }
        let Some(body) = &self.body else { return };
        if body.is_empty() {
            let of_library = !request.is_complete && OF_LIBRARY.contains(&status);
            assert!(of_library, "{status} without a body for {}", request.text());
            return;
        }
        if self.kind().starts_with("text/plain") {
            assert!(status == 200 && request.is_metrics(), "text for {}", request.text());
            return;
        }
        assert_eq!(self.kind(), "application/json", "for {}", request.text());
        assert!(!body.contains(&b'\n'), "several lines for {}: {:?}", request.text(), self.text());
        if status == 200 {
            let value = serde_json::from_slice::<Value>(body);
            assert!(value.is_ok(), "no JSON for {}: {:?}", request.text(), self.text());
            return;
        }
        let Ok(error) = serde_json::from_slice::<ApiError>(body) else {
            panic!("no ApiError for {}: {:?}", request.text(), self.text());
        };
        let is_line = !error.message.is_empty() && !error.message.contains(char::is_control);
        assert!(is_line, "message {:?} for {}", error.message, request.text());
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(self.body.as_deref().unwrap_or_default()).into_owned()
    }
}
