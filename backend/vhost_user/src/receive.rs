//! Receive settings that the guest sets over its control queue: filters for addresses and VLANs,
//! hash reports, and RSS.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mqnet_virtio::Features;
use mqnet_virtio::net::ctrl::{Rules, Settings};
use mqnet_virtio::net::filter::RxFilter;
use mqnet_virtio::net::rss::{Hashed, Hasher, IndirectionTable};
use mqnet_wire::FlowKeys;

/// Receive settings. A step (filter, hash, RSS) that is `None` is skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceiveSettings {
    filter: Option<RxFilter>,
    hasher: Option<Hasher>,
    spread: Option<IndirectionTable>,
}

impl ReceiveSettings {
    pub(crate) fn new(rules: &Rules, settings: &Settings) -> Self {
        let Settings { filter, hasher, spread, .. } = settings;
        let reports = rules.features.has(Features::HASH_REPORT) && hasher.types != 0;
        Self {
            filter: Some(filter).filter(|filter| !filter.is_open()).cloned(),
            hasher: Some(*hasher).filter(|_| reports || spread.is_some()),
            spread: spread.clone(),
        }
    }

    /// True if frames need neither a filter, nor a hash, nor the selection of a queue.
    pub(crate) fn is_plain(&self) -> bool {
        self.filter.is_none() && self.hasher.is_none() && self.spread.is_none()
    }

    pub(crate) fn passes(&self, keys: &FlowKeys) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.passes(keys))
    }

    /// Hash of a frame, and the queue pair that RSS selects. The pair is `None` without RSS.
    pub(crate) fn choose(&self, keys: &FlowKeys) -> (Hashed, Option<u16>) {
        let hashed = self.hasher.map(|hasher| hasher.hash(keys)).unwrap_or_default();
        (hashed, self.spread.as_ref().map(|spread| spread.pair(hashed)))
    }
}

/// Hand-over of the settings from the connection thread to the lanes.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    version: AtomicU32,
    settings: Mutex<Arc<ReceiveSettings>>,
}

impl Receiving {
    pub(crate) fn set(&self, settings: ReceiveSettings) {
        let mut place = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        if **place != settings {
            *place = Arc::new(settings);
            // `Relaxed` suffices: the lock publishes the settings, and the version is only a hint.
            self.version.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> Arc<ReceiveSettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counter that changes with every new value of [`get`](Self::get).
    #[inline]
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Relaxed)
    }
}
