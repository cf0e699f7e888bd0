//! The server: HTTP/1.1 and JSON in front of a [`Host`].

mod answer;
mod capture;
mod document;
mod events;
mod links;
mod metrics;
mod netdevs;
mod request;
mod router;
mod tc;
#[cfg(test)]
mod tests;
mod xdp;

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use mqnet_control_api::Host;
use mqnet_sysio::descriptors::explained;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

pub use events::Events;
pub use router::openapi;

/// The host, as the server and its owner share it. It is locked for the length of one call.
pub type SharedHost = Arc<Mutex<dyn Host>>;

/// Connections that are served at the same time; more wait in the listen queue, so that nobody
/// takes the descriptors that links need.
const CONNECTIONS_MAX: usize = 128;
/// A client that has not sent a request after this time is let go.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait when the system has no descriptor for a new connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `/v1` and `/metrics` until it is dropped, which also ends every connection.
///
/// An abstract socket has neither owner nor mode, so there only root and the own user are served.
pub async fn serve(listener: UnixListener, host: SharedHost) -> Infallible {
    let is_abstract = listener.local_addr().is_ok_and(|address| address.as_pathname().is_none());
    let only = is_abstract.then(|| nix::unistd::geteuid().as_raw());
    run(Local { listener, only }, router::whole(host)).await
}

/// Serves `GET /metrics` and nothing else, for a scraper that cannot reach a Unix socket.
pub async fn serve_metrics_tcp(listener: TcpListener, host: SharedHost) -> Infallible {
    run(listener, router::metrics_only(host)).await
}

/// Serves everything over TCP, for test clients that know nothing else.
#[cfg(feature = "fake")]
pub async fn serve_tcp(listener: TcpListener, host: SharedHost) -> Infallible {
    run(listener, router::whole(host)).await
}

/// Where connections come from.
trait Source: Send + Sync {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

struct Local {
    listener: UnixListener,
    /// Serve nobody but this user and root.
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

/// Accepts and serves.
async fn run(source: impl Source, router: Router) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = source.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok(stream) => {
                    connections.spawn(connection(stream, router.clone()));
                }
                Err(e) => {
                    tracing::warn!("control socket: cannot accept a connection: {}", explained(e));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

async fn connection<S>(stream: S, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(e) = served {
        // The client left in mid-answer or does not speak HTTP: nothing that we could mend.
        tracing::debug!("control connection: {e}");
    }
}
