//! From an endpoint address to the function behind it.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mqnet_netdev::limits::{CHANNELS_MAX, MTU_DEFAULT, frame_of_mtu};
use mqnet_netdev::{Function, null::Null};
use mqnet_ntb::layout::Geometry;
use mqnet_ntb::{NtbConfig, NtbFunction};
use mqnet_tap::{TapConfig, TapFunction};

pub(crate) use mqnet_address::Endpoint;

/// An opened function and how its netdev is called.
pub(crate) struct Opened {
    pub(crate) function: Box<dyn Function>,
    /// Name of the netdev.
    pub(crate) name: String,
    /// Its number in the kernel, if it is a device of the kernel.
    pub(crate) ifindex: Option<u32>,
    /// Network namespace in which the name is valid.
    pub(crate) netns: Option<u64>,
    /// Name of the backend.
    pub(crate) driver: &'static str,
}

/// The driver of netdevs that nobody names.
pub(crate) const NULL: &str = "mqnet-null";

/// What the backends know of an address.
pub(crate) trait Open {
    /// Finds what can be known to be wrong before anything is opened.
    fn check(&self, channels: u16) -> Result<(), String>;

    /// The network namespace in which the name of the netdev is valid.
    fn home(&self) -> Option<u64>;

    /// Opens the function. `fds` are the descriptors named in the address, taken over by `main`.
    fn open(self, fds: Vec<OwnedFd>) -> Result<Opened, Box<dyn std::error::Error>>;
}

impl Open for Endpoint {
    fn check(&self, channels: u16) -> Result<(), String> {
        let Self::Ntb { window, mtu, .. } = self else { return Ok(()) };
        let frame = frame_of_mtu(mtu.unwrap_or(MTU_DEFAULT));
        let need = Geometry::window_for(channels, frame);
        if u64::from(*window) >= need {
            return Ok(());
        }
        let most = match Geometry::queue_pairs_for(*window, frame) {
            0 => String::new(),
            n => format!(" or --channels {n}"),
        };
        let ring = Geometry::ring_max(*window, channels);
        Err(format!(
            "window={window} gives {channels} channels rings of {ring} bytes, in which no frame of \
             {frame} bytes fits: use window={need} or more{most}"
        ))
    }

    fn home(&self) -> Option<u64> {
        let Self::Tap(tap) = self else { return None };
        let file = tap.netns.as_deref().unwrap_or(Path::new("/proc/self/ns/net"));
        std::fs::metadata(file).ok().map(|there| there.ino())
    }

    fn open(self, fds: Vec<OwnedFd>) -> Result<Opened, Box<dyn std::error::Error>> {
        let (name, netns) = (self.netdev_name(), self.home());
        Ok(match self {
            Self::Null => Opened {
                function: Box::new(Null::new(CHANNELS_MAX)),
                name,
                ifindex: None,
                netns,
                driver: NULL,
            },
            Self::Ntb { path, window, mtu, .. } => {
                let config = NtbConfig { path, window, mtu };
                Opened {
                    function: Box::new(NtbFunction::memfd(&config, random_seed())),
                    name,
                    ifindex: None,
                    netns,
                    driver: "mqnet-ntb",
                }
            }
            Self::Tap(tap) => {
                let function = TapFunction::open(TapConfig {
                    tun: false,
                    name: tap.name,
                    netns: tap.netns,
                    mac: tap.mac,
                    mtu: tap.mtu,
                    addresses: tap.addresses,
                    persist: tap.persist,
                    fds,
                })?;
                Opened {
                    name: function.device().to_owned(),
                    ifindex: Some(function.index()),
                    netns,
                    driver: "mqnet-tap",
                    function: Box::new(function),
                }
            }
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
        let ntb = |window| Endpoint::Ntb { path: "/x".into(), window, mtu: Some(9000), name: None };
        let text = ntb(64 << 10).check(8).unwrap_err();
        let need = Geometry::window_for(8, frame_of_mtu(9000)) as u32;
        assert!(text.contains(&format!("window={need} or more or --channels")), "{text}");
        assert_eq!(ntb(need).check(8), Ok(()));
    }
}
