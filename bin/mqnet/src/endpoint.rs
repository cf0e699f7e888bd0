//! From an endpoint address to the function behind it.

use std::os::fd::OwnedFd;

use mqnet_netdev::limits::{CHANNELS_MAX, MTU_DEFAULT, frame_of_mtu};
use mqnet_netdev::{Function, null::Null};
use mqnet_ntb::layout::Geometry;
use mqnet_ntb::{NtbConfig, NtbFunction};
use mqnet_tap::{TapConfig, TapFunction};

pub(crate) use mqnet_address::{Endpoint, parse};

/// What the backends know of an address.
pub(crate) trait Open {
    /// Finds what can be known to be wrong before anything is opened.
    fn check(&self, channels: u16) -> Result<(), String>;

    /// Opens the function. `fds` are the descriptors named in the address, taken over by `main`.
    fn open(
        self,
        channels: u16,
        fds: Vec<OwnedFd>,
    ) -> Result<Box<dyn Function>, Box<dyn std::error::Error>>;
}

impl Open for Endpoint {
    fn check(&self, channels: u16) -> Result<(), String> {
        let Self::Ntb { window, mtu, .. } = self else { return Ok(()) };
        let frame = frame_of_mtu(mtu.unwrap_or(MTU_DEFAULT));
        if Geometry::divide(*window, channels).frame_max() >= frame {
            return Ok(());
        }
        let need = Geometry::window_for(channels, frame);
        let most = match Geometry::queue_pairs_for(*window, frame) {
            0 => String::new(),
            n => format!(" or --channels {n}"),
        };
        let ring = Geometry::divide(*window, channels).ring;
        Err(format!(
            "window={window} gives {channels} channels rings of {ring} bytes, in which no frame of \
             {frame} bytes fits: use window={need} or more{most}"
        ))
    }

    fn open(
        self,
        channels: u16,
        fds: Vec<OwnedFd>,
    ) -> Result<Box<dyn Function>, Box<dyn std::error::Error>> {
        Ok(match self {
            Self::Null => Box::new(Null::new(CHANNELS_MAX)),
            Self::Ntb { path, window, mtu } => {
                let config = NtbConfig { path, window, channels, mtu };
                Box::new(NtbFunction::memfd(&config, random_seed()))
            }
            Self::Tap(tap) => Box::new(TapFunction::open(TapConfig {
                name: tap.name,
                netns: tap.netns,
                channels,
                mac: tap.mac,
                mtu: tap.mtu,
                addresses: tap.addresses,
                persist: tap.persist,
                fds,
            })?),
        })
    }
}

/// A number that differs from process to process and from start to start. It needs not be secret:
/// a generation guards against stale memory, not against guessing.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a window that could never carry a frame is refused with numbers that work.
    #[test]
    fn impossible_windows_are_refused() {
        let ntb = |window| Endpoint::Ntb { path: "/x".into(), window, mtu: Some(9000) };
        let text = ntb(64 << 10).check(8).unwrap_err();
        let need = Geometry::window_for(8, frame_of_mtu(9000)) as u32;
        assert!(text.contains(&format!("window={need} or more or --channels")), "{text}");
        assert_eq!(ntb(need).check(8), Ok(()));
    }
}
