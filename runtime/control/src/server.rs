//! HTTP/1.1 and JSON server for a [`Host`](mqnet_control_api::Host).

mod answer;
mod capture;
mod change;
mod connections;
mod document;
mod events;
mod links;
mod metrics;
mod netdevs;
mod queue;
pub(crate) mod request;
mod router;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use mqnet_sysio::descriptors::explained;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::calls::HostHandle;
use connections::{Activity, Answering, Connections, Watched};
pub use events::Events;
pub use router::openapi;

/// Time limit for the arrival of a request head. A connection may be closed earlier if a new client
/// connects while the number of connections is at its limit.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval for checking whether one more connection can be accepted.
const ROOM_PAUSE: Duration = Duration::from_millis(50);
/// Pause after the system refused a new connection, for example without a free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time limit for answers in progress after the end of the host.
const ENDING: Duration = Duration::from_millis(500);

/// Serves `/v1` and `/metrics` until the host has ended. Answers in progress may then take up to
/// 500 ms. Dropping the future closes every connection.
///
/// An abstract socket has neither owner nor mode, so the server accepts only root and the user of
/// this process there.
pub async fn serve(listener: UnixListener, host: HostHandle) {
    let is_abstract = listener.local_addr().is_ok_and(|address| address.as_pathname().is_none());
    let only = is_abstract.then(|| nix::unistd::geteuid().as_raw());
    run(Local { listener, only }, router::whole(host.clone()), host).await
}

/// Serves only `GET /metrics`, for a scraper that cannot reach a Unix socket.
pub async fn serve_metrics_tcp(listener: TcpListener, host: HostHandle) {
    run(listener, router::metrics_only(host.clone()), host).await
}

/// Serves the whole interface over TCP, for test clients without Unix sockets.
#[cfg(feature = "testing")]
pub async fn serve_tcp(listener: TcpListener, host: HostHandle) {
    run(listener, router::whole(host.clone()), host).await
}

/// Serves one connection, for fuzzing without sockets.
#[cfg(feature = "testing")]
pub(crate) async fn serve_stream<S>(stream: S, host: HostHandle)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::<Activity>::default();
    connection(Watched::new(stream, activity.clone()), router::whole(host), activity).await;
}

/// Source of connections.
trait Source: Send + Sync {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

struct Local {
    listener: UnixListener,
    /// User id that may connect, besides root; `None`: all users.
    only: Option<u32>,
}

impl Source for Local {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let Some(own) = self.only else { return Ok(stream) };
            if stream.peer_cred().is_ok_and(|peer| [0, own].contains(&peer.uid())) {
                return Ok(stream);
            }
        }
    }
}

impl Source for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        TcpListener::accept(self).await.map(|(stream, _)| stream)
    }
}

/// Accepts and serves connections until the host ends.
async fn run(source: impl Source, router: Router, host: HostHandle) {
    let (mut tasks, mut connections) = (JoinSet::new(), Connections::default());
    loop {
        let has_room = connections.has_room();
        tokio::select! {
            () = host.closed() => break,
            Some(done) = tasks.join_next_with_id() => {
                connections.ended(done.map_or_else(|e| e.id(), |(id, ())| id));
            }
            () = tokio::time::sleep(ROOM_PAUSE), if !has_room => {}
            accepted = source.accept(), if has_room => match accepted {
                Ok(stream) => {
                    connections.make_room();
                    let activity = Arc::<Activity>::default();
                    // The activity must begin here: if it began in the task, a connection with a
                    // task that has not started would seem to be the oldest.
                    let stream = Watched::new(stream, activity.clone());
                    let served = connection(stream, router.clone(), activity.clone());
                    connections.add(tasks.spawn(served), activity);
                }
                Err(e) => {
                    tracing::warn!("control socket: cannot accept a connection: {}", explained(e));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(source);
    let answered = async {
        while connections.are_answering() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // Returning drops the remaining tasks, which closes their connections.
    let _ = tokio::time::timeout(ENDING, answered).await;
}

async fn connection<S>(stream: Watched<S>, router: Router, activity: Arc<Activity>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(stream);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        let answering = Answering::new(activity.clone());
        let answer = router.call(request);
        async move { answer.await.map(|answer| answer.map(|body| answering.with(body))) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .serve_connection(stream, service)
        .await;
    if let Err(e) = served {
        // The client disconnected during an answer, or sent something that is not HTTP.
        tracing::debug!("control connection: {e}");
    }
}
