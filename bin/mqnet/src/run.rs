//! The control thread: turns the links, answers the control socket, hears signals. All of it is
//! one thread, so that a request has no queue to wait in.

use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use mqnet_control::socket::{ControlSocket, Options, Role};
use mqnet_control::{SharedHost, notify};
use mqnet_control_api::ApiError;
use mqnet_engine::Notice;
use mqnet_shmem::Preference;
use mqnet_sysio::process;
use mqnet_sysio::signal::StopSignals;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::cli::{ControlArgs, Failure};
use crate::host::{Entry, LinkHost};
use crate::receive;

/// A host as the control thread and the server share it.
pub(crate) type Shared = Arc<Mutex<LinkHost>>;

/// What a process does beside its links.
pub(crate) trait Frontend {
    /// Something happened to a link.
    fn notice(&mut self, entry: &mut Entry, notice: &Notice);
    /// After every turn; returns until when the next one must be at the latest.
    fn tick(&mut self, host: &mut LinkHost) -> Duration;
    /// SIGHUP came; true to go on.
    fn hangup(&mut self, host: &mut LinkHost) -> bool;
}

/// The host, whatever happened to another who held it.
pub(crate) fn lock(host: &Shared) -> MutexGuard<'_, LinkHost> {
    host.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the queues of this process store payload into shared memory: `$MQNET_STORES`.
pub(crate) fn take_stores() -> Result<(), Failure> {
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

/// Descriptors without which nothing can run.
const DESCRIPTORS_MIN: u64 = 64;

/// Takes all descriptors that the process may have, and prepares for those of peers.
pub(crate) fn take_descriptors() -> Result<(), Failure> {
    receive::enable();
    match process::raise_descriptor_limit() {
        Ok(limit) if limit < DESCRIPTORS_MIN => Err(Failure::Broken(format!(
            "the limit of open files is {limit}, at least {DESCRIPTORS_MIN} are needed: raise it \
             with ulimit -n, or LimitNOFILE= in a systemd unit"
        ))),
        Ok(_) => Ok(()),
        Err(e) => {
            tracing::debug!("the limit of open files stays as it is: {e}");
            Ok(())
        }
    }
}

/// A runtime for this thread alone.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Opens the control socket; `None` when the user wants none.
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
    let options: Options = args.options()?;
    ControlSocket::open(&options, role, &mqnet_control::socket::Places::from_env()).map(Some)
}

/// Turns the links until a stop signal comes or the host has nothing left to do.
pub(crate) async fn turn(
    host: &Shared,
    signals: &StopSignals,
    frontend: &mut dyn Frontend,
) -> Result<(), Failure> {
    let wake = lock(host).wake();
    loop {
        let (fds, timeout) = {
            let mut host = lock(host);
            host.turn(|entry, notice| frontend.notice(entry, notice))?;
            let due = frontend.tick(&mut host);
            if host.finished {
                return Ok(());
            }
            let mut fds = host.events_to_watch()?;
            fds.push(signals.as_fd().try_clone_to_owned()?);
            (fds, host.patience().min(due))
        };
        tokio::select! {
            ready = any_readable(fds) => ready?,
            () = wake.notified() => {}
            () = tokio::time::sleep(timeout) => {}
        }
        while let Some(hangup) = signals.next_is_hangup() {
            if !hangup || !frontend.hangup(&mut lock(host)) {
                return Ok(());
            }
        }
    }
}

/// Waits until one of the descriptors is readable. They are copies and ours, so that nobody closes
/// them meanwhile: that is all the deprecated function asks for, and its successor is `unsafe`.
#[allow(deprecated, reason = "an OwnedFd keeps its descriptor open, which is what it is about")]
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

/// Serves the control socket in the background of the runtime, and the watchdog with it.
pub(crate) fn serve(control: Option<&ControlSocket>, host: &Shared) -> Result<(), Failure> {
    if let Some(control) = control {
        let listener = control.listener()?;
        let shared: SharedHost = host.clone();
        tokio::spawn(async move {
            mqnet_control::serve(listener, shared).await;
        });
    }
    // Fed by the thread that turns the links: if that hangs, systemd hears nothing.
    tokio::spawn(notify::watchdog(|| true));
    Ok(())
}
