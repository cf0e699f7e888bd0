//! Serialization of the changes of one link, in order of arrival.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// Locks of a server, one for each link with a change.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues(Arc<Mutex<BTreeMap<String, Arc<Turn<()>>>>>);

impl Queues {
    /// Waits until earlier changes of `link` are complete. The caller's turn ends when the guard is
    /// dropped, also when the client disconnects.
    pub(super) async fn turn(&self, link: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Remove entries that only the map references: they have neither a holder nor a waiter.
            all.retain(|_, turn| Arc::strong_count(turn) > 1);
            all.entry(link.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }
}
