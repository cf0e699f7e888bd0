//! Calls from the thread of the server to the thread that owns the host.
//!
//! The server parses requests and writes answers on a thread without privileges. What a request
//! needs from the links runs on the control thread, between two steps of the links.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mqnet_control_api::{ApiError, Code, Host};
use tokio::sync::{mpsc, oneshot};

type Call = Box<dyn FnOnce(&mut dyn Host) + Send>;

/// The host as the server sees it. Clones lead to the same host.
#[derive(Clone, Debug)]
pub struct HostHandle(mpsc::UnboundedSender<Call>);

/// Calls that wait for the host. There are at most as many as connections of the servers.
#[derive(Debug)]
pub struct HostCalls(mpsc::UnboundedReceiver<Call>);

/// Both ends of a queue of calls.
pub fn calls() -> (HostHandle, HostCalls) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (HostHandle(sender), HostCalls(receiver))
}

impl HostHandle {
    /// Runs `call` on the thread of the host, and waits for its result.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut dyn Host) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (reply, result) = oneshot::channel();
        let ending = |_| ApiError::new(Code::Down, "this mqnet process is ending");
        let run = move |host: &mut dyn Host| {
            // A client that left needs no reply.
            let _ = reply.send(catch_unwind(AssertUnwindSafe(|| call(host))));
        };
        self.0.send(Box::new(run)).map_err(|_| ending(()))?;
        let result = result.await.map_err(|_| ending(()))?;
        // The panic is in the log. The change of this request may be incomplete.
        result.map_err(|_| ApiError::new(Code::Failed, "mqnet is broken inside; restart it"))
    }

    /// Waits until the host takes no calls any more.
    pub async fn closed(&self) {
        self.0.closed().await;
    }

    /// True once the host takes no calls any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl HostCalls {
    /// Waits for a call and runs it; false when no handle is left. It may be dropped while it
    /// waits: no call is lost then.
    pub async fn run_next(&mut self, host: &mut dyn Host) -> bool {
        let call = self.0.recv().await;
        call.map(|call| call(host)).is_some()
    }

    /// The same for a thread without a runtime; `host` is locked for the length of one call.
    #[cfg(feature = "fake")]
    pub(crate) fn run_all(mut self, host: &std::sync::Mutex<impl Host>) {
        while let Some(call) = self.0.blocking_recv() {
            call(&mut *host.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeHost;

    // Goal: a call that panics is refused, and the next one is answered; after the end of the host
    // every call is refused.
    #[tokio::test]
    async fn calls_are_answered_or_refused() {
        let (handle, mut calls) = calls();
        let mut host = FakeHost::new();
        let client = async {
            let broken = handle.call(|_| -> u8 { panic!("test") }).await.unwrap_err();
            assert_eq!(broken.code, Code::Failed);
            assert_eq!(handle.call(|host| host.links().len()).await.unwrap(), 2);
            assert!(!handle.is_closed());
        };
        let serve = async { while calls.run_next(&mut host).await {} };
        tokio::select! { () = client => {}, () = serve => unreachable!() }
        drop(calls);
        assert_eq!(handle.call(|host| host.links().len()).await.unwrap_err().code, Code::Down);
        assert!(handle.is_closed());
    }
}
