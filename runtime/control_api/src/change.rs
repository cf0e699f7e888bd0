//! Changes that take a while: a resize waits for the peer and for queues to drain.

use std::sync::{Arc, Mutex};
use std::task::Waker;

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

use crate::ApiError;

/// What a change came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "kebab-case")]
pub struct Outcome {
    /// False when everything was as wanted already.
    pub changed: bool,
    /// What the user should know, such as "2 channels: the other side has no more".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How long it took, in microseconds.
    pub took_us: u64,
}

/// What a call that changes something returns: the outcome, or a ticket to wait for it.
pub type Change = Result<Ticket, ApiError>;

#[derive(Debug, Default)]
struct Slot {
    result: Option<Result<Outcome, ApiError>>,
    /// Of every task that waits: several may wait for one change.
    wakers: Vec<Waker>,
}

/// A promise of an [`Outcome`]. It is a future; its other half is a second clone.
#[derive(Clone, Debug, Default)]
pub struct Ticket(Arc<Mutex<Slot>>);

impl Ticket {
    /// A ticket that is still open.
    pub fn open() -> Self {
        Self::default()
    }

    /// A ticket that is done already.
    pub fn done(outcome: Outcome) -> Self {
        let ticket = Self::open();
        ticket.settle(Ok(outcome));
        ticket
    }

    /// Answers it. The first answer counts.
    pub fn settle(&self, result: Result<Outcome, ApiError>) {
        let Ok(mut slot) = self.0.lock() else { return };
        if slot.result.is_none() {
            slot.result = Some(result);
        }
        std::mem::take(&mut slot.wakers).into_iter().for_each(Waker::wake);
    }

    /// The answer, once there is one.
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

    /// Every task that waits for a ticket is woken, once each however often it has polled.
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
