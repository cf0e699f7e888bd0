//! Connections of a server. At the limit, a new connection replaces the one that has waited longest
//! for its client.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::{AbortHandle, Id};

/// Largest number of connections. The limit leaves descriptors for the links.
const MOST: usize = 256;

/// State of a connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// True while the server processes a request or sends its answer.
    answering: AtomicBool,
    /// True if the last write could not proceed because the client does not read.
    blocked: AtomicBool,
    /// Sequence number of the last transfer. All connections of the process share one sequence.
    last: AtomicU64,
}

impl Activity {
    /// True if no answer is in progress, or if the client does not read the answer.
    fn waits_for_client(&self) -> bool {
        !self.answering.load(Ordering::Relaxed) || self.blocked.load(Ordering::Relaxed)
    }

    fn moved(&self) {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        self.last.store(NUMBER.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.blocked.store(false, Ordering::Relaxed);
    }
}

/// Connections of a server.
#[derive(Debug, Default)]
pub(super) struct Connections(BTreeMap<Id, (AbortHandle, Arc<Activity>)>);

impl Connections {
    /// True if a new connection can be accepted: the limit is not reached, or a connection that
    /// waits for its client can be closed.
    pub(super) fn has_room(&self) -> bool {
        self.0.len() < MOST || self.0.values().any(|(_, activity)| activity.waits_for_client())
    }

    /// If the limit is reached, closes the connection that has waited longest for its client.
    pub(super) fn make_room(&mut self) {
        if self.0.len() < MOST {
            return;
        }
        let idle = self.0.iter().filter(|(_, (_, activity))| activity.waits_for_client());
        let oldest = idle.min_by_key(|(_, (_, activity))| activity.last.load(Ordering::Relaxed));
        if let Some((id, (task, _))) = oldest {
            task.abort();
            let id = *id;
            self.0.remove(&id);
        }
    }

    /// True if an answer is in progress and its client reads it.
    pub(super) fn are_answering(&self) -> bool {
        self.0.values().any(|(_, activity)| !activity.waits_for_client())
    }

    pub(super) fn add(&mut self, task: AbortHandle, activity: Arc<Activity>) {
        self.0.insert(task.id(), (task, activity));
    }

    pub(super) fn ended(&mut self, id: Id) {
        self.0.remove(&id);
    }
}

/// Stream that records its activity.
pub(super) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        activity.moved();
        Self { stream, activity }
    }

    fn wrote<T>(&self, done: Poll<T>) -> Poll<T> {
        match done {
            Poll::Pending => self.activity.blocked.store(true, Ordering::Relaxed),
            Poll::Ready(_) => self.activity.moved(),
        }
        done
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let done = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        self.activity.moved();
        Poll::Ready(done)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.wrote(done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Marks a connection as answering a request until dropped.
pub(super) struct Answering(Arc<Activity>);

impl Answering {
    pub(super) fn new(activity: Arc<Activity>) -> Self {
        activity.answering.store(true, Ordering::Relaxed);
        Self(activity)
    }

    /// Wraps the body of the answer. The mark is removed when the body is dropped.
    pub(super) fn with(self, body: Body) -> Body {
        Body::new(Tracked { body, _until: self })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.store(false, Ordering::Relaxed);
    }
}

struct Tracked {
    body: Body,
    _until: Answering,
}

impl http_body::Body for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
