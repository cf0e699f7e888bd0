//! Control thread: runs the steps of the links and the calls of the server, and handles signals.
//! The server runs on another thread, at most with `CAP_NET_BIND_SERVICE`.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use mqnet_command::Failure;
use mqnet_control::calls::{HostCalls, HostHandle, calls};
use mqnet_control::notify;
use mqnet_control::socket::{ControlSocket, Role, SocketOptions};
use mqnet_control_api::ApiError;
use mqnet_engine::Notice;
use mqnet_host::{HostedLink, LinkHost};
use mqnet_shmem::Preference;
use mqnet_sysio::signal::StopSignals;
use mqnet_sysio::{bounded, process};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::args::{ControlArgs, SandboxArgs};
use crate::privileges;
use crate::receive;

/// Part of a process that differs between `link` and `daemon`.
pub(crate) trait Frontend {
    /// Reports an event of a link.
    fn notice(&mut self, entry: &mut HostedLink, notice: &Notice);
    /// Runs in every iteration; returns the time within which the next iteration must start.
    fn tick(&mut self, host: &mut LinkHost) -> Duration;
    /// Handles SIGHUP; returns true to continue.
    fn hangup(&mut self, host: &mut LinkHost) -> bool;
}

/// Reads `$MQNET_STORES`, the method of writing payload to shared memory. Unknown values
/// are an error.
pub fn take_stores() -> Result<(), Failure> {
    const NAME: &str = "MQNET_STORES";
    let Some(value) = std::env::var_os(NAME) else { return Ok(()) };
    mqnet_shmem::prefer(match value.to_str() {
        Some("" | "auto") => Preference::Auto,
        Some("cached") => Preference::Cached,
        Some("streamed") => Preference::Streamed,
        _ => {
            let value = value.to_string_lossy();
            let what = format!("${NAME} is {value:?}; allowed: auto, cached, streamed");
            return Err(Failure::BadInput(what));
        }
    });
    Ok(())
}

/// Minimum number of descriptors.
const DESCRIPTORS_MIN: u64 = 64;

/// Prepares the process for its links: installs the seccomp filter, enables the receiver of peers'
/// descriptors, and raises the descriptor limit.
pub(crate) fn prepare(sandbox: &SandboxArgs) -> Result<(), Failure> {
    privileges::filter_calls(sandbox)?;
    receive::enable();
    match process::raise_descriptor_limit() {
        Ok(limit) if limit < DESCRIPTORS_MIN => Err(Failure::Broken(format!(
            "the limit of open files is {limit}, at least {DESCRIPTORS_MIN} are needed: raise it \
             with ulimit -n, or LimitNOFILE= in a systemd unit"
        ))),
        Ok(_) => Ok(()),
        Err(e) => {
            tracing::debug!("the limit of open files could not be raised: {e}");
            Ok(())
        }
    }
}

/// Creates a single-threaded runtime for the calling thread.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Opens the control socket, or returns the inherited one; `None` if the user disabled the socket.
pub(crate) fn open_control(
    args: &ControlArgs,
    inherited: Option<ControlSocket>,
    role: Role,
) -> Result<Option<ControlSocket>, ApiError> {
    if inherited.is_some() {
        return Ok(inherited);
    }
    if args.control.as_deref() == Some("none") {
        return Ok(None);
    }
    let options: SocketOptions = args.options()?;
    ControlSocket::open(&options, role, &mqnet_control::socket::Places::from_env()).map(Some)
}

/// Runs the steps of the links until a stop signal or a SIGHUP for which `hangup` returns false.
/// `mqnet link` also ends when its link is deleted.
pub(crate) async fn turn(
    host: &mut LinkHost,
    server: &mut Server,
    signals: &StopSignals,
    frontend: &mut dyn Frontend,
) -> Result<(), Failure> {
    loop {
        host.turn(|entry, notice| frontend.notice(entry, notice))?;
        let due = frontend.tick(host);
        if host.finished {
            return Ok(());
        }
        let mut fds = host.events_to_watch()?;
        fds.push(signals.as_fd().try_clone_to_owned()?);
        let mut ready = pin!(any_readable(fds));
        let mut pause = pin!(tokio::time::sleep(host.patience().min(due)));
        loop {
            // Requests have the lowest priority: a flood of requests must not delay the steps of
            // the links.
            tokio::select! {
                biased;
                readable = &mut ready => break readable?,
                () = &mut pause => break,
                () = server.run_call(host) => {
                    if host.take_step_due() {
                        break;
                    }
                }
            }
        }
        while let Some(hangup) = signals.next_is_hangup() {
            if !hangup || !frontend.hangup(host) {
                return Ok(());
            }
        }
    }
}

/// Waits until one of the descriptors is readable. `AsyncFd::with_interest` is deprecated because
/// the descriptor could be closed early, which an `OwnedFd` excludes. The successor of the function
/// is `unsafe`.
#[allow(deprecated, reason = "an OwnedFd keeps its descriptor open")]
async fn any_readable(fds: Vec<OwnedFd>) -> std::io::Result<()> {
    let mut watched = Vec::with_capacity(fds.len());
    for fd in fds {
        watched.push(AsyncFd::with_interest(fd, Interest::READABLE)?);
    }
    poll_fn(|context| {
        for fd in &watched {
            if let Poll::Ready(ready) = fd.poll_read_ready(context) {
                return Poll::Ready(ready.map(drop));
            }
        }
        Poll::Pending
    })
    .await
}

/// Time limit for the end of the server thread, longer than the server's limit for replies.
const SERVER_END: Duration = Duration::from_secs(1);

/// Time between two attempts to bind the metrics address.
const METRICS_RETRY: Duration = Duration::from_secs(1);

/// Server of the control socket and of the metrics, with its thread.
pub(crate) struct Server {
    calls: HostCalls,
    /// Sender that keeps the request queue open if there is no server thread.
    handle: HostHandle,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the server thread if there is a control socket or a metrics address, and starts the
    /// watchdog task.
    pub(crate) fn start(
        control: Option<&ControlSocket>,
        metrics: Option<SocketAddr>,
    ) -> Result<Self, Failure> {
        let (handle, calls) = calls();
        // The watchdog task runs on the control thread: systemd restarts the process if that thread
        // hangs.
        tokio::spawn(notify::watchdog(|| true));
        let mut server = Self { calls, handle, thread: None };
        if control.is_none() && metrics.is_none() {
            return Ok(server);
        }
        let listener = control.map(ControlSocket::std_listener).transpose()?;
        let (handle, runtime) = (server.handle.clone(), runtime()?);
        let body = move || {
            // Binding the metrics address may need the capability for low ports.
            let keep = metrics.map(|_| process::Capability::NetBindService);
            if let Err(e) = process::restrict_thread(keep.as_slice()) {
                tracing::warn!("the server could not drop its privileges: {e}");
            }
            runtime.block_on(async {
                let control = async {
                    if let Some(listener) = listener {
                        serve(listener, handle.clone()).await;
                    }
                };
                let metrics = async {
                    if let Some(address) = metrics {
                        serve_metrics(address, handle.clone()).await;
                    }
                };
                tokio::join!(control, metrics);
            });
        };
        let thread = std::thread::Builder::new().name("mqnet-server".to_owned());
        server.thread = Some(thread.spawn(body)?);
        Ok(server)
    }

    /// Waits for a request and executes it.
    async fn run_call(&mut self, host: &mut LinkHost) {
        self.calls.run_next(host).await;
    }

    /// Ends the server after the replies in progress are sent, and waits at most [`SERVER_END`].
    pub(crate) fn end(self) {
        drop(self.calls);
        if let Some(thread) = self.thread
            && !bounded::join(thread, SERVER_END)
        {
            tracing::warn!("the server does not end");
        }
    }
}

async fn serve(listener: std::os::unix::net::UnixListener, host: HostHandle) {
    match tokio::net::UnixListener::from_std(listener) {
        Ok(listener) => mqnet_control::serve(listener, host).await,
        Err(e) => tracing::error!("the control socket is not served: {e}"),
    }
}

/// Serves the metrics. While the address is unavailable, the bind is retried every second.
async fn serve_metrics(address: SocketAddr, host: HostHandle) {
    let mut last = None;
    let listener = loop {
        match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(e) if last == Some(e.kind()) => {}
            Err(e) => {
                tracing::warn!("metrics = \"{address}\": {e}; tried again every second");
                last = Some(e.kind());
            }
        }
        tokio::select! {
            () = host.closed() => return,
            () = tokio::time::sleep(METRICS_RETRY) => {}
        }
    };
    mqnet_control::serve_metrics_tcp(listener, host).await;
}
