//! Changes that may take longer than a request: a resize waits for the peer and for queues to
//! drain.

use std::sync::{Arc, Mutex};
use std::task::Waker;

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

use crate::ApiError;

/// Result of a successful change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Outcome {
    /// False if the settings already had the requested values.
    pub changed: bool,
    /// Note for the user, such as "2 channels: the other side has no more".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Duration of the change in microseconds.
    pub took_us: u64,
}

/// Return value of a call that changes something: a ticket for the outcome, or the error.
pub type Change = Result<Ticket, ApiError>;

#[derive(Debug, Default)]
struct Slot {
    result: Option<Result<Outcome, ApiError>>,
    /// Wakers of all tasks that wait for the result.
    wakers: Vec<Waker>,
}

/// Future of an [`Outcome`]. All clones share one result: one clone settles it, the others wait.
#[derive(Clone, Debug, Default)]
pub struct Ticket(Arc<Mutex<Slot>>);

impl Ticket {
    /// Ticket without a result.
    pub fn open() -> Self {
        Self::default()
    }

    /// Ticket that already has the result `outcome`.
    pub fn done(outcome: Outcome) -> Self {
        let ticket = Self::open();
        ticket.settle(Ok(outcome));
        ticket
    }

    /// Sets the result and wakes all waiting tasks. Later results are ignored.
    pub fn settle(&self, result: Result<Outcome, ApiError>) {
        let Ok(mut slot) = self.0.lock() else { return };
        if slot.result.is_none() {
            slot.result = Some(result);
        }
        std::mem::take(&mut slot.wakers).into_iter().for_each(Waker::wake);
    }

    /// Result of the change; `None` while the change is under way.
    pub fn result(&self) -> Option<Result<Outcome, ApiError>> {
        self.0.lock().ok().and_then(|slot| slot.result.clone())
    }
}

impl Future for Ticket {
    type Output = Result<Outcome, ApiError>;

    fn poll(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        let Ok(mut slot) = self.0.lock() else { return std::task::Poll::Pending };
        match &slot.result {
            Some(result) => std::task::Poll::Ready(result.clone()),
            None => {
                if !slot.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    slot.wakers.push(context.waker().clone());
                }
                std::task::Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Goal: settling a ticket wakes every waiting task exactly once, even if the task polled
    /// twice.
    #[test]
    fn all_waiters_are_woken() {
        let ticket = Ticket::open();
        let tasks = [(); 3].map(|()| Arc::new(Count(AtomicUsize::new(0))));
        for task in tasks.iter().chain(&tasks) {
            let waker = task.clone().into();
            let waiting = std::pin::pin!(ticket.clone()).poll(&mut Context::from_waker(&waker));
            assert!(waiting.is_pending());
        }
        ticket.settle(Ok(Outcome::default()));
        assert!(tasks.iter().all(|task| task.0.load(Ordering::Relaxed) == 1));
    }
}
