//! Handshake in progress, on its own thread: a silent device must not block the control thread,
//! which also serves other links.

use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};

use mqnet_netdev::Offloads;
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::process;

use crate::config::VirtioUserConfig;
use crate::pump;
use crate::session::{Persistent, Session};

/// State of the handshake.
pub(crate) enum Outcome {
    /// The handshake is in progress.
    Waiting,
    /// The handshake has ended.
    Done(Box<Result<Session, String>>),
}

/// Handshake in progress. Dropping this handle cancels the handshake.
pub(crate) struct Attempt {
    result: mpsc::Receiver<Result<Session, String>>,
    /// Event that is signalled when there is a result.
    done: Arc<EventFd>,
    /// Connection to shut down on cancellation; `None` after the end of the handshake.
    stream: Option<UnixStream>,
}

impl Attempt {
    /// Starts the handshake on a new connection, in a new thread.
    pub(crate) fn begin(
        stream: UnixStream,
        config: VirtioUserConfig,
        takes: Offloads,
        persistent: Persistent,
    ) -> Result<Self, String> {
        let of_socket = |e| format!("its socket: {e}");
        let stream = pump::serve(stream).map_err(of_socket)?;
        let (theirs, done) = (stream.try_clone().map_err(of_socket)?, EventFd::new());
        let done = Arc::new(done.map_err(|e| format!("eventfd: {e}"))?);
        let (answer, result) = mpsc::channel();
        let done_event = done.clone();
        let work = move || {
            if let Err(e) = process::restrict_thread(&[]) {
                tracing::warn!("virtio-user: a thread could not drop its privileges: {e}");
            }
            // An error is ignored: a cancelled attempt has no receiver.
            let _ = answer.send(Session::start(theirs, &config, takes, &persistent));
            let _ = done_event.ring();
        };
        let thread = std::thread::Builder::new().name("mqnet-handshake".to_owned()).spawn(work);
        thread.map_err(|e| format!("a thread: {e}"))?;
        Ok(Self { result, done, stream: Some(stream) })
    }

    /// Returns the current state.
    pub(crate) fn poll(&self) -> Outcome {
        match self.result.try_recv() {
            Ok(result) => Outcome::Done(Box::new(result)),
            Err(TryRecvError::Empty) => Outcome::Waiting,
            Err(TryRecvError::Disconnected) => {
                Outcome::Done(Box::new(Err("its thread ended".to_owned())))
            }
        }
    }

    /// Descriptor that is readable when there is a result.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// Ends the attempt without shutting the connection down, because a session may use it.
    pub(crate) fn finish(mut self) {
        self.stream = None;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            // Ends the thread's wait. An error is ignored: the device may have disconnected.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
