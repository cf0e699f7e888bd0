//! State that the commands of a driver set.

use mqnet_virtio::Features;
use mqnet_virtio::net::ctrl::{Rules, Settings};

use crate::receive::ReceiveSettings;

/// State set by the commands of a driver with a control queue.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) rules: Rules,
    pub(crate) settings: Settings,
}

impl Commands {
    /// State of a new driver; `None` if `CTRL_VQ` is not negotiated.
    pub(crate) fn begin(features: Features, pairs: u16, mac: [u8; 6]) -> Option<Self> {
        let rules = Rules { features, pairs };
        let settings = rules.begin(mac);
        features.has(Features::CTRL_VQ).then_some(Self { rules, settings })
    }

    /// True if the driver sets the number of queue pairs by command: `MQ` or `RSS` is negotiated.
    pub(crate) fn sets_pairs(&self) -> bool {
        let features = self.rules.features;
        features.has(Features::MQ) || features.has(Features::RSS)
    }

    pub(crate) fn receive_settings(&self) -> ReceiveSettings {
        ReceiveSettings::new(&self.rules, &self.settings)
    }
}
