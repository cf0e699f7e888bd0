//! Requests from the server's thread to the thread that owns the host.
//!
//! The server parses requests and writes answers on a thread without privileges. The control thread
//! executes the requests between two control steps of the links.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mqnet_control_api::{ApiError, Code, Host, Reply, Request};
use tokio::sync::{mpsc, oneshot};

/// A request with the sender for its reply.
type Call = (Request, oneshot::Sender<Result<Reply, ApiError>>);

/// Handle of the host for servers. Clones refer to the same host.
#[derive(Clone, Debug)]
pub struct HostHandle(mpsc::UnboundedSender<Call>);

/// Queue of requests for the host. The number of connections limits its length.
#[derive(Debug)]
pub struct HostCalls(mpsc::UnboundedReceiver<Call>);

/// Creates a request queue and returns both ends.
pub fn calls() -> (HostHandle, HostCalls) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (HostHandle(sender), HostCalls(receiver))
}

impl HostHandle {
    /// Sends `request` to the thread of the host, and waits for its reply. Returns [`Code::Down`]
    /// if the host has ended.
    pub async fn request(&self, request: Request) -> Result<Reply, ApiError> {
        let (reply, result) = oneshot::channel();
        let ending = |_| ApiError::new(Code::Down, "this mqnet process is shutting down");
        self.0.send((request, reply)).map_err(|_| ending(()))?;
        result.await.map_err(|_| ending(()))?
    }

    /// Waits until the host accepts no requests any more.
    pub async fn closed(&self) {
        self.0.closed().await;
    }

    /// True once the host accepts no requests any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

fn carry_out(host: &mut dyn Host, (request, reply): Call) {
    let result = catch_unwind(AssertUnwindSafe(|| host.request(request)));
    // The panic message is in the log. The change of this request may be incomplete.
    let broken = |_| Err(ApiError::new(Code::Failed, "internal error of mqnet; restart it"));
    // A client that has disconnected needs no reply.
    let _ = reply.send(result.unwrap_or_else(broken));
}

impl HostCalls {
    /// Waits for a request and executes it. Returns false when no handle is left. Dropping the
    /// future while it waits loses no request.
    pub async fn run_next(&mut self, host: &mut dyn Host) -> bool {
        let call = self.0.recv().await;
        call.map(|call| carry_out(host, call)).is_some()
    }

    /// Executes all queued requests, for a thread without an async runtime. Returns false when no
    /// handle is left.
    pub fn run_waiting(&mut self, host: &mut dyn Host) -> bool {
        loop {
            match self.0.try_recv() {
                Ok(call) => carry_out(host, call),
                Err(e) => return e == mpsc::error::TryRecvError::Empty,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Breaks;

    impl Host for Breaks {
        fn request(&mut self, request: Request) -> Result<Reply, ApiError> {
            match request {
                Request::Links => Ok(Reply::Links(Vec::new())),
                _ => panic!("test"),
            }
        }
    }

    // Goal: a request that panics returns an error, and the next request succeeds. After the end of
    // the host every request returns an error.
    #[tokio::test]
    async fn requests_are_answered_or_refused() {
        let (handle, mut calls) = calls();
        let client = async {
            let broken = handle.request(Request::Netdevs).await.err().unwrap();
            assert_eq!(broken.code, Code::Failed);
            assert!(handle.request(Request::Links).await.is_ok());
            assert!(!handle.is_closed());
        };
        let serve = async { while calls.run_next(&mut Breaks).await {} };
        tokio::select! { () = client => {}, () = serve => unreachable!() }
        drop(calls);
        assert_eq!(handle.request(Request::Links).await.err().unwrap().code, Code::Down);
        assert!(handle.is_closed());
    }
}
