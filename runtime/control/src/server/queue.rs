//! Changes of one link, one after the other, in the order in which they came.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// The queues of a server, one for each link that is being changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues(Arc<Mutex<BTreeMap<String, Arc<Turn<()>>>>>);

impl Queues {
    /// Waits until the changes of `link` that came before are done. The turn ends when the guard is
    /// dropped, also by a client that hangs up.
    pub(super) async fn turn(&self, link: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Only the map has one that nobody waits for.
            all.retain(|_, turn| Arc::strong_count(turn) > 1);
            all.entry(link.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }
}
