//! Link of the host, with its names.

use std::os::fd::OwnedFd;
use std::time::Duration;

use mqnet_address::{CheckedLink, Endpoint, KindDecl};
use mqnet_control_api::{ApiError, Code, LinkSpec, Outcome, Ticket};
use mqnet_engine::{
    IdlePolicy, Link, LinkConfig, LinkError, LinkSettings, Notice, RejectedRequest, RequestError,
};
use mqnet_netdev::Interface;
use mqnet_sysio::{clock, namespace};

use crate::foreign::ForeignInterfaces;
use crate::platform::{Opened, Placed, Platform};
use crate::recent::Recent;
use crate::waiting::{self, Attempts};

/// First index of netdevs that are no kernel interfaces.
const IFINDEX_BASE: u32 = 1_000_000;
/// First NAPI id, above the range of CPU numbers as in the kernel (`MIN_NAPI_ID`).
const NAPI_BASE: u32 = 8193;
/// Largest number of lanes of a link.
const NAPIS: u32 = 2 * mqnet_netdev::limits::CHANNELS_MAX as u32;

/// Time limit for the delivery of accepted frames when a link ends. The limit is far longer than a
/// working peer needs, and short for the user.
const PATIENCE: Duration = Duration::from_millis(100);

/// Netdev: one side of a link.
pub struct Netdev {
    /// Name of the netdev.
    pub name: String,
    /// Interface index of the netdev.
    pub ifindex: u32,
    /// Inode of the network namespace in which the name is valid; `None`: no kernel interface, or
    /// unknown.
    pub netns: Option<u64>,
    /// Kind of the endpoint.
    pub kind: &'static KindDecl,
    /// Address of the endpoint.
    pub address: String,
}

/// Request under way.
struct Waiting {
    ticket: Ticket,
    since: Duration,
    /// False if the requested settings were already set.
    changed: bool,
}

/// Options for opening the ends of a link.
pub struct Opening {
    /// Descriptors named in the addresses of end a and end b.
    pub fds: [Vec<OwnedFd>; 2],
    /// True if an end that cannot be opened is tried again later; otherwise the link is rejected.
    pub may_wait: bool,
}

impl Opening {
    /// Options without descriptors.
    pub fn plain(may_wait: bool) -> Self {
        Self { fds: [Vec::new(), Vec::new()], may_wait }
    }
}

/// Link with its names.
pub struct HostedLink {
    /// Name of the link.
    pub name: String,
    /// Endpoints and options of the link, as written.
    pub spec: LinkSpec,
    /// Endpoints and options of the link, parsed and checked.
    pub checked: CheckedLink,
    /// Netdevs of the link, in the order of its ends.
    pub netdevs: [Netdev; 2],
    /// Link of the engine.
    pub link: Link,
    napi_base: u32,
    waiting: Option<Waiting>,
    /// Attempts to open the ends that could not be opened yet.
    pub(crate) waiting_ends: waiting::Waiting,
    /// Interrupt and transmit queue settings of the interfaces, according to the workers' CPUs;
    /// `None`: original settings.
    pub(crate) placed: Option<Placed>,
    firmware: [String; 2],
    /// Inode of the network namespace of the process.
    own_netns: Option<u64>,
    /// Cached properties of interfaces in other network namespaces.
    pub(crate) elsewhere: ForeignInterfaces,
    /// Recent drops of the link.
    pub(crate) recent: Recent,
}

/// Makes the names of `null` endpoints unique by a number, because several links may have `null`
/// ends.
fn name_nulls(netdevs: &mut [Netdev; 2], others: &[HostedLink]) {
    let mut taken: Vec<String> =
        others.iter().flat_map(|entry| &entry.netdevs).map(|dev| dev.name.clone()).collect();
    for dev in netdevs {
        let first = dev.name.clone();
        let mut names = (1..).map(|n| format!("{first}{n}"));
        while dev.kind.name() == "null" && taken.contains(&dev.name) {
            dev.name = names.next().unwrap_or_default();
        }
        taken.push(dev.name.clone());
    }
}

/// Opens an end. If that fails and `may_wait` is true, returns a placeholder with the next attempt;
/// otherwise returns the error.
fn open_end(
    platform: &dyn Platform,
    end: &Endpoint,
    address: &str,
    fds: Vec<OwnedFd>,
    may_wait: bool,
) -> Result<(Opened, Option<Attempts>), ApiError> {
    match platform.open(end.clone(), fds) {
        Ok(opened) => Ok((opened, None)),
        Err(e) if may_wait => {
            let reason = e.to_string();
            let absent = waiting::absent(end, waiting::short(address), reason.clone(), Vec::new());
            Ok((absent, Some(Attempts::new(reason, clock::monotonic()))))
        }
        Err(e) => Err(ApiError::new(Code::Failed, e.to_string())),
    }
}

impl HostedLink {
    pub(crate) fn open(
        platform: &dyn Platform,
        name: Option<&str>,
        spec: LinkSpec,
        checked: CheckedLink,
        Opening { fds: [a_fds, b_fds], may_wait }: Opening,
        number: u32,
        others: &[Self],
    ) -> Result<Self, ApiError> {
        let (a, a_waits) = open_end(platform, &checked.a, &spec.a, a_fds, may_wait)?;
        let (b, b_waits) = open_end(platform, &checked.b, &spec.b, b_fds, may_wait)?;
        let netdev = |opened: &Opened, side: u32, end: &Endpoint, address: &str| Netdev {
            name: opened.name.clone(),
            ifindex: opened.ifindex.unwrap_or(IFINDEX_BASE + number * 2 + side),
            netns: opened.netns,
            kind: end.kind(),
            address: address.to_owned(),
        };
        let namespaces = [a.netns, b.netns];
        let mut netdevs = [netdev(&a, 0, &checked.a, &spec.a), netdev(&b, 1, &checked.b, &spec.b)];
        name_nulls(&mut netdevs, others);
        let firmware = [0, 1].map(|side: usize| platform.firmware(netdevs[side].kind));
        let config = LinkConfig {
            channels: checked.channels,
            workers: checked.workers.map(usize::from),
            cpus: checked.cpus.clone(),
            idle: IdlePolicy {
                window: Duration::from_micros(u64::from(checked.poll_window)),
                ..IdlePolicy::default()
            },
            egress: checked.egress.clone(),
        };
        let link = Link::new(a.function, b.function, config)
            .map_err(|e| ApiError::new(Code::Failed, e.to_string()))?;
        Ok(Self {
            name: name.unwrap_or(&netdevs[0].name).to_owned(),
            spec,
            checked,
            netdevs,
            link,
            napi_base: NAPI_BASE + number * NAPIS,
            waiting: None,
            waiting_ends: waiting::Waiting::new([a_waits, b_waits], namespaces),
            placed: None,
            firmware,
            own_netns: namespace::own_inode().ok(),
            elsewhere: ForeignInterfaces::default(),
            recent: Recent::default(),
        })
    }

    /// Wraps a link that the program created. `spec` describes its ends; the strings are the names
    /// of its netdevs.
    pub fn around(link: Link, spec: LinkSpec, checked: CheckedLink, [a, b]: [String; 2]) -> Self {
        let netdev = |name, end: &Endpoint, address: &str, side: u32| Netdev {
            name,
            ifindex: IFINDEX_BASE + side,
            netns: None,
            kind: end.kind(),
            address: address.to_owned(),
        };
        Self {
            name: a.clone(),
            netdevs: [netdev(a, &checked.a, &spec.a, 0), netdev(b, &checked.b, &spec.b, 1)],
            spec,
            checked,
            link,
            napi_base: NAPI_BASE,
            waiting: None,
            waiting_ends: waiting::Waiting::default(),
            placed: None,
            firmware: Default::default(),
            own_netns: namespace::own_inode().ok(),
            elsewhere: ForeignInterfaces::default(),
            recent: Recent::default(),
        }
    }

    /// NAPI id of the lane with the RX queue of `channel` on `side`.
    pub(crate) fn napi(&self, channel: u16, side: usize) -> u32 {
        self.napi_base + u32::from(channel) * 2 + side as u32
    }

    /// Firmware version of the netdev of a side, as shown by `ethtool -i`.
    pub(crate) fn firmware(&self, side: usize) -> &str {
        &self.firmware[side]
    }

    /// Updates name, index and namespace of the netdevs from their interfaces. A name given in an
    /// XDP address is kept.
    pub(crate) fn follow_interfaces(&mut self) {
        let is_named = [&self.checked.a, &self.checked.b]
            .map(|end| matches!(end, Endpoint::AfXdp(nic) if nic.name.is_some()));
        let ends = self.netdevs.iter_mut().zip(self.link.functions()).zip(is_named);
        for ((dev, end), is_named) in ends {
            let Some(Interface { name, index, netns, .. }) = end.interface() else { continue };
            if dev.name != name && !is_named {
                name.clone_into(&mut dev.name);
            }
            dev.ifindex = index.unwrap_or(dev.ifindex);
            dev.netns = netns.or(self.own_netns);
        }
    }

    /// Returns kind and text of the event for a notice.
    pub(crate) fn noticed(&mut self, notice: &Notice) -> (&'static str, String) {
        match notice {
            Notice::Up(plan) => {
                ("link-up", format!("{} channels, mtu {}", plan.channels, plan.mtu))
            }
            Notice::Down(why) => ("link-down", why.clone()),
            Notice::Changed { plan, took, untidy } => {
                let took = took.as_secs_f64() * 1e3;
                let (n, mtu) = (plan.channels, plan.mtu);
                let mut text = format!("{n} channels, mtu {mtu}, changed in {took:.1} ms");
                untidy.iter().for_each(|what| text += &format!("; {what}"));
                ("link-changed", text)
            }
            Notice::ChangeFailed(why) => ("change-failed", why.clone()),
        }
    }

    /// Requests new settings of the link. Returns a ticket, which is already complete if the
    /// link is down.
    pub(crate) fn request(&mut self, settings: LinkSettings) -> Result<Ticket, ApiError> {
        let changed = *self.link.settings() != settings;
        let since = clock::monotonic();
        self.link.request(settings, clock::monotonic()).map_err(|e| match e {
            RejectedRequest::Busy => ApiError::new(Code::Changing, e.to_string()),
            RejectedRequest::Impossible(why) => ApiError::new(Code::Invalid, why),
        })?;
        let ticket = Ticket::open();
        if !changed && self.link.running().is_none() {
            return Ok(Ticket::done(Outcome::default()));
        }
        self.waiting = Some(Waiting { ticket: ticket.clone(), since, changed });
        self.answer();
        Ok(ticket)
    }

    /// Applies the options of a configuration that can change while the link runs: poll window,
    /// full policy and channels. Fails if the number of channels cannot change.
    pub(crate) fn retune(&mut self, spec: LinkSpec, checked: CheckedLink) -> Result<(), ApiError> {
        let window = Duration::from_micros(u64::from(checked.poll_window));
        self.link.set_idle_policy(IdlePolicy { window, ..self.link.idle_policy() });
        for (side, egress) in checked.egress.iter().enumerate() {
            self.link.set_full(side, egress.full);
        }
        if checked.channels != self.checked.channels {
            let settings =
                LinkSettings { channels: checked.channels, ..self.link.settings().clone() };
            self.request(settings)?;
        }
        (self.spec, self.checked) = (spec, checked);
        Ok(())
    }

    /// Settles the ticket of a completed change. Must be called after every control step of the
    /// link.
    pub fn answer(&mut self) {
        let Some(answer) = self.link.answer() else { return };
        let Some(Waiting { ticket, since, changed }) = self.waiting.take() else { return };
        let took_us = clock::monotonic().saturating_sub(since).as_micros() as u64;
        ticket.settle(match answer {
            Ok(note) => Ok(Outcome { changed, note, took_us }),
            Err(RequestError::TimedOut(why)) => Err(ApiError::new(Code::TimedOut, why)),
            Err(RequestError::Undone(why)) => Err(ApiError::new(Code::Failed, why)),
        });
    }

    /// Ends the link. Frames in flight have `patience` to arrive, at most 100 ms. Fails if a worker
    /// does not reply in time.
    pub fn end(&mut self, why: &str, patience: Duration) -> Result<(), LinkError> {
        let ended = self.link.shut_down(why, patience.min(PATIENCE));
        self.placed = None;
        ended
    }
}
