//! Thread that answers the kernel's requests. The kernel waits for each answer during its own
//! work (a starting driver, `vdpa dev add`), so the thread does nothing else.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::vduse::{self, RequestType, VduseRequest};
use mqnet_sysio::{poll, process};

use super::state::Shared;

/// Timeout of a wait that only a request, or the end of the thread, ends.
const NO_LIMIT: Duration = Duration::from_secs(3600);

/// Handle of the thread. A drop ends the thread.
#[derive(Debug)]
pub(super) struct Service {
    end: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the thread. With `kept`, an earlier process created the device, and its driver may
    /// be running.
    pub(super) fn start(shared: Arc<Shared>, kept: bool) -> io::Result<Self> {
        let end = Arc::new(EventFd::new()?);
        let ended = end.clone();
        let run = move || {
            if let Err(e) = process::restrict_thread(&[]) {
                tracing::warn!("vduse: a thread could not drop its privileges: {e}");
            }
            if kept {
                // Answer first the requests that were queued while no process served the device.
                take_all(&shared);
                shared.resume();
            }
            while !poll::is_readable(ended.as_fd()).unwrap_or(true) {
                take_all(&shared);
                if poll::wait_readable(&[shared.device.as_fd(), ended.as_fd()], NO_LIMIT).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("vduse".to_owned()).spawn(run)?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // An error is ignored: writing to this process's own eventfd does not fail.
        let _ = self.end.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn take_all(shared: &Shared) {
    loop {
        match vduse::read_request(shared.device.as_fd()) {
            Ok(Some(request)) => take(shared, &request),
            Ok(None) => return,
            Err(e) => {
                tracing::warn!("vduse: reading a request: {e}");
                // The pause avoids a busy loop on a persistent error.
                poll::pause(Duration::from_millis(100));
                return;
            }
        }
    }
}

fn take(shared: &Shared, request: &VduseRequest) {
    let state = match request.ask {
        RequestType::QueueState(index) => shared.queue_state(index),
        RequestType::Status(status) => shared.before_status(status).map(|()| [0; 4]),
        RequestType::Remap(..) => shared.before_remap().map(|()| [0; 4]),
        RequestType::Other(kind) => Err(format!("unknown request type {kind}")),
    };
    if let Err(why) = &state {
        tracing::warn!("vduse: {why}");
    }
    let is_done = state.is_ok();
    if let Err(e) = vduse::answer(shared.device.as_fd(), request, state.ok()) {
        tracing::warn!("vduse: writing a response: {e} (the kernel waits 30 s for it by default)");
    }
    match request.ask {
        RequestType::Status(status) if is_done => shared.after_status(status),
        RequestType::Remap(..) if is_done => shared.after_remap(),
        _ => {}
    }
}
