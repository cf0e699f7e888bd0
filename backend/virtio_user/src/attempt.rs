//! A handshake under way, on a thread of its own: a device that says nothing must not keep the
//! control thread from its other links.

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
use crate::session::{Lasting, Session};

/// How it stands.
pub(crate) enum Outcome {
    /// The device has not answered everything yet.
    Waiting,
    /// It has.
    Done(Box<Result<Session, String>>),
}

/// A handshake. Dropped, it is called off.
pub(crate) struct Attempt {
    result: mpsc::Receiver<Result<Session, String>>,
    /// Rung when there is a result.
    bell: Arc<EventFd>,
    /// To call it off; none when it is over.
    stream: Option<UnixStream>,
}

impl Attempt {
    /// Begins to shake hands over a fresh connection.
    pub(crate) fn begin(
        stream: UnixStream,
        config: VirtioUserConfig,
        takes: Offloads,
        lasting: Lasting,
    ) -> Result<Self, String> {
        let of_socket = |e| format!("its socket: {e}");
        let stream = pump::serve(stream).map_err(of_socket)?;
        let (theirs, bell) = (stream.try_clone().map_err(of_socket)?, EventFd::new());
        let bell = Arc::new(bell.map_err(|e| format!("eventfd: {e}"))?);
        let (answer, result) = mpsc::channel();
        let rings = bell.clone();
        let work = move || {
            if let Err(e) = process::restrict_thread(&[]) {
                tracing::warn!("virtio-user: a thread keeps its privileges: {e}");
            }
            // Who has called it off does not listen any more.
            let _ = answer.send(Session::start(theirs, &config, takes, &lasting));
            let _ = rings.ring();
        };
        let thread = std::thread::Builder::new().name("mqnet-handshake".to_owned()).spawn(work);
        thread.map_err(|e| format!("a thread: {e}"))?;
        Ok(Self { result, bell, stream: Some(stream) })
    }

    /// How it stands now.
    pub(crate) fn look(&self) -> Outcome {
        match self.result.try_recv() {
            Ok(result) => Outcome::Done(Box::new(result)),
            Err(TryRecvError::Empty) => Outcome::Waiting,
            Err(TryRecvError::Disconnected) => {
                Outcome::Done(Box::new(Err("its thread has ended".to_owned())))
            }
        }
    }

    /// Readable when there is a result.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// There is a result: the connection is the session's.
    pub(crate) fn finish(mut self) {
        self.stream = None;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            // Ends the thread's wait; fails when the device has hung up.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
