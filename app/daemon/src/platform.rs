//! Backends and machine settings for [`mqnet_host`].

use std::error::Error;
use std::os::fd::OwnedFd;

use mqnet_address::config::Policy;
use mqnet_address::{CheckedLink, Endpoint, KindDecl};
use mqnet_control_api::ApiError;
use mqnet_host::{Opened, Placed, Platform};
use mqnet_netdev::HardwareDevice;

use crate::plan::follow;
use crate::{config, endpoint, leftovers, limits};

/// Implementation of the platform with the backends and settings of this machine.
pub(crate) struct Backends;

impl Platform for Backends {
    fn open(&self, end: Endpoint, fds: Vec<OwnedFd>) -> Result<Opened, Box<dyn Error>> {
        endpoint::open(end, fds)
    }

    fn check(&self, policy: &Policy, link: &CheckedLink) -> Result<(), ApiError> {
        limits::check(policy, link)?;
        config::check_ends(link)
    }

    fn recover(&self) {
        leftovers::take_care();
    }

    fn place(
        &self,
        link: &str,
        devices: &[Vec<HardwareDevice>; 2],
        served: &[(usize, u32)],
    ) -> Option<Placed> {
        Some(Box::new(follow::apply(link, devices, served)))
    }

    fn firmware(&self, kind: &KindDecl) -> String {
        let kernel = || std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        match kind.driver {
            "mqnet-tap" => kernel().trim().to_owned(),
            "mqnet-ntb" => format!("layout {}", mqnet_ntb::layout::VERSION_MAX),
            _ => String::new(),
        }
    }
}
