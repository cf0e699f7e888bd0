//! Serialization of the changes of one link, in the order of their arrival.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// Queues of a server, one for each link that is being changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues(Arc<Mutex<BTreeMap<String, Arc<Turn<()>>>>>);

impl Queues {
    /// Waits until earlier changes of `link` are done. The turn ends when the guard is dropped,
    /// also when the client disconnects.
    pub(super) async fn turn(&self, link: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // An entry that only the map holds has no waiter.
            all.retain(|_, turn| Arc::strong_count(turn) > 1);
            all.entry(link.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }
}
