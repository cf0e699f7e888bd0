//! Host for tests of the server and its clients: real links between null functions.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::time::Duration;

use mqnet_address::config::Policy;
use mqnet_address::{CheckedLink, Endpoint};
use mqnet_control_api::{ApiError, LinkSpec};
use mqnet_netdev::null::Null;
use mqnet_sysio::clock;

use crate::{HostMode, LinkHost, Opened, Opening, Platform, is_same_netdev};

/// Largest number of channels of a null function.
pub const CHANNELS_MAX: u16 = 8;

/// Time limit for the links to complete a change.
const SETTLE: Duration = Duration::from_secs(5);

/// Platform on which every endpoint is a null function, named after its address.
#[derive(Debug)]
struct NullPlatform;

impl Platform for NullPlatform {
    fn open(&self, end: Endpoint, _fds: Vec<OwnedFd>) -> Result<Opened, Box<dyn Error>> {
        let (name, function) = (end.config().netdev_name(), Box::new(Null::new(CHANNELS_MAX)));
        Ok(Opened { function, name, ifindex: None, netns: None })
    }

    fn check(&self, _policy: &Policy, link: &CheckedLink) -> Result<(), ApiError> {
        match is_same_netdev(&link.a, &link.b) {
            true => Err(ApiError::field("b", "b: the other end has the same name")),
            false => Ok(()),
        }
    }
}

/// Creates a daemon host with the links `vm0` and `vm1`, each with four channels. The netdevs are
/// `vm0` and `ntb0`, and `vm1` and `ntb1`.
pub fn two_links() -> LinkHost {
    let mut host = LinkHost::new(HostMode::Daemon, Box::new(NullPlatform));
    for (name, bridge) in [("vm0", "ntb0"), ("vm1", "ntb1")] {
        let spec = LinkSpec {
            a: format!("tap:{name}"),
            b: format!("ntb:/nowhere/{bridge}"),
            channels: Some(4),
            workers: Some(1),
            cpus: None,
            poll_window: None,
        };
        let added = mqnet_address::check(&spec)
            .and_then(|checked| host.add(Some(name), spec, checked, Opening::plain(false)));
        added.unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    settle(&mut host);
    host
}

/// Runs control steps until all links are up without a change, at most 5 s.
pub fn settle(host: &mut LinkHost) {
    let begin = clock::monotonic();
    loop {
        host.turn(|_, _| {}).unwrap_or_else(|e| panic!("{e}"));
        let busy =
            |entry: &crate::HostedLink| entry.link.is_changing() || entry.link.running().is_none();
        if !host.entries.iter().any(busy) || clock::monotonic().saturating_sub(begin) > SETTLE {
            return;
        }
        std::thread::yield_now();
    }
}
