//! One link of the host, under its names.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use mqnet_address::{CheckedLink, KindDecl};
use mqnet_control_api::{ApiError, Code, LinkSpec, Outcome, Ticket};
use mqnet_engine::{AskError, IdlePolicy, Link, LinkConfig, LinkError, Notice, RequestError, Wish};
use mqnet_netdev::Interface;
use mqnet_sysio::{clock, namespace};

use super::place::{self, Elsewhere};
use super::recent::Recent;
use super::waiting::{self, Attempts};
use crate::endpoint::{Endpoint, Open, Opened};
use crate::plan::apply::Applied;

/// Numbers of netdevs that the kernel does not know begin here.
const IFINDEX_BASE: u32 = 1_000_000;
/// The kernel's numbers of NAPI instances begin above those of CPUs; ours do as the kernel's.
const NAPI_BASE: u32 = 8193;
/// Lanes of a link.
const NAPIS: u32 = 2 * mqnet_netdev::limits::CHANNELS_MAX as u32;

/// How long what a link has taken may take to arrive when it is ended: far longer than any peer
/// that works needs, and not felt by who waits.
const PATIENCE: Duration = Duration::from_millis(100);

/// One side of a link.
pub(crate) struct Netdev {
    pub(crate) name: String,
    pub(crate) ifindex: u32,
    pub(crate) netns: Option<u64>,
    pub(crate) kind: &'static KindDecl,
    pub(crate) address: String,
}

/// A request under way.
struct Waiting {
    ticket: Ticket,
    since: Instant,
    /// False when it was for what is wanted already.
    changed: bool,
}

/// How to open the ends of a link.
pub(crate) struct Opening {
    /// Descriptors named in the addresses.
    pub(crate) fds: [Vec<OwnedFd>; 2],
    /// An end that cannot be opened yet waits; otherwise the link is refused.
    pub(crate) may_wait: bool,
}

impl Opening {
    /// Without descriptors.
    pub(crate) fn plain(may_wait: bool) -> Self {
        Self { fds: [Vec::new(), Vec::new()], may_wait }
    }
}

/// One link.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) spec: LinkSpec,
    pub(crate) checked: CheckedLink,
    pub(crate) netdevs: [Netdev; 2],
    pub(crate) link: Link,
    napi_base: u32,
    waiting: Option<Waiting>,
    /// Ends that cannot be opened yet.
    pub(super) waiting_ends: waiting::Waiting,
    /// Interrupts and senders of the interfaces behind it, as its workers want them.
    applied: Option<Applied>,
    /// Inode of the process's network namespace.
    own_netns: Option<u64>,
    /// What the kernel knows of interfaces in other network namespaces.
    pub(super) elsewhere: Elsewhere,
    /// What was dropped in the last seconds.
    pub(super) recent: Recent,
}

/// Any number of links may end in nothing, and each such end still needs a name.
fn name_nulls(netdevs: &mut [Netdev; 2], others: &[Entry]) {
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

/// Opens an end. One that cannot be opened yet waits where that is allowed.
fn open_end(
    end: &Endpoint,
    address: &str,
    fds: Vec<OwnedFd>,
    may_wait: bool,
) -> Result<(Opened, Option<Attempts>), ApiError> {
    match end.clone().open(fds) {
        Ok(opened) => Ok((opened, None)),
        Err(e) if may_wait => {
            let reason = e.to_string();
            let absent = end.absent(waiting::short(address), reason.clone(), Vec::new());
            Ok((absent, Some(Attempts::new(reason, clock::monotonic()))))
        }
        Err(e) => Err(ApiError::new(Code::Failed, e.to_string())),
    }
}

impl Entry {
    pub(super) fn open(
        name: Option<&str>,
        spec: LinkSpec,
        checked: CheckedLink,
        Opening { fds: [a_fds, b_fds], may_wait }: Opening,
        number: u32,
        others: &[Self],
    ) -> Result<Self, ApiError> {
        let (a, a_waits) = open_end(&checked.a, &spec.a, a_fds, may_wait)?;
        let (b, b_waits) = open_end(&checked.b, &spec.b, b_fds, may_wait)?;
        let netdev = |opened: &Opened, side: u32, end: &Endpoint, address: &str| Netdev {
            name: opened.name.clone(),
            ifindex: opened.ifindex.unwrap_or(IFINDEX_BASE + number * 2 + side),
            netns: opened.netns,
            kind: end.kind(),
            address: address.to_owned(),
        };
        let homes = [a.netns, b.netns];
        let mut netdevs = [netdev(&a, 0, &checked.a, &spec.a), netdev(&b, 1, &checked.b, &spec.b)];
        name_nulls(&mut netdevs, others);
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
            waiting_ends: waiting::Waiting::new([a_waits, b_waits], homes),
            applied: None,
            own_netns: namespace::own_inode().ok(),
            elsewhere: Elsewhere::default(),
            recent: Recent::default(),
        })
    }

    /// Number of the lane that takes from the RX queue of a side.
    pub(super) fn napi(&self, channel: u16, side: usize) -> u32 {
        self.napi_base + u32::from(channel) * 2 + side as u32
    }

    /// Lets the interrupts and senders of the interfaces behind it follow its workers.
    pub(super) fn fit_interfaces(&mut self, notice: &Notice) {
        if matches!(notice, Notice::ChangeFailed(_)) {
            return;
        }
        // What was there before us is put back first, so that it is what will be remembered.
        self.applied = None;
        self.elsewhere = Elsewhere::default();
        if matches!(notice, Notice::Down(_)) {
            // It is kept by nothing of ours: its network namespace may have been deleted.
            return;
        }
        let wanted = place::wanted(self);
        if wanted.is_empty() {
            return;
        }
        let applied = Applied::apply(Path::new("/"), &wanted);
        applied.said.iter().for_each(|what| tracing::info!("{}: {what}", self.name));
        if applied.failed > 0 {
            let (failed, all) = (applied.failed, applied.said.len());
            tracing::warn!(
                "{}: {failed} of {all} interrupts and XPS sets could not be placed (-v says which)",
                self.name
            );
        }
        self.applied = Some(applied);
    }

    /// Names its netdevs as their interfaces are called now, wherever they are.
    pub(super) fn follow_interfaces(&mut self) {
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

    /// What a notice is called among the events, and in words.
    pub(super) fn noticed(&mut self, notice: &Notice) -> (&'static str, String) {
        match notice {
            Notice::Up(plan) => {
                ("link-up", format!("{} channels, mtu {}", plan.channels, plan.mtu))
            }
            Notice::Down(why) => ("link-down", why.clone()),
            Notice::Changed { plan, took, untidy } => {
                let took = took.as_secs_f64() * 1e3;
                let (n, mtu) = (plan.channels, plan.mtu);
                let mut text = format!("{n} channels, mtu {mtu}, in {took:.1} ms");
                untidy.iter().for_each(|what| text += &format!("; {what}"));
                ("link-changed", text)
            }
            Notice::ChangeFailed(why) => ("change-failed", why.clone()),
        }
    }

    /// Wants something else of the link.
    pub(super) fn ask(&mut self, wish: Wish) -> Result<Ticket, ApiError> {
        let changed = *self.link.wish() != wish;
        let since = Instant::now();
        self.link.ask(wish, clock::monotonic()).map_err(|e| match e {
            AskError::Busy => ApiError::new(Code::Changing, e.to_string()),
            AskError::Impossible(why) => ApiError::new(Code::Invalid, why),
        })?;
        let ticket = Ticket::open();
        if !changed && self.link.running().is_none() {
            return Ok(Ticket::done(Outcome::default()));
        }
        self.waiting = Some(Waiting { ticket: ticket.clone(), since, changed });
        self.answer();
        Ok(ticket)
    }

    /// Takes over those options of a file that can change while the link runs.
    pub(super) fn retune(&mut self, spec: LinkSpec, checked: CheckedLink) -> Result<(), ApiError> {
        let window = Duration::from_micros(u64::from(checked.poll_window));
        self.link.set_idle_policy(IdlePolicy { window, ..self.link.idle_policy() });
        for (side, egress) in checked.egress.iter().enumerate() {
            self.link.set_full(side, egress.full);
        }
        if checked.channels != self.checked.channels {
            let wish = Wish { channels: checked.channels, ..self.link.wish().clone() };
            self.ask(wish)?;
        }
        (self.spec, self.checked) = (spec, checked);
        Ok(())
    }

    /// Passes the link's answer on.
    pub(super) fn answer(&mut self) {
        let Some(answer) = self.link.answer() else { return };
        let Some(Waiting { ticket, since, changed }) = self.waiting.take() else { return };
        let took_us = since.elapsed().as_micros() as u64;
        ticket.settle(match answer {
            Ok(note) => Ok(Outcome { changed, note, took_us }),
            Err(RequestError::TimedOut(why)) => Err(ApiError::new(Code::TimedOut, why)),
            Err(RequestError::Undone(why)) => Err(ApiError::new(Code::Failed, why)),
        });
    }

    /// Ends the link; what it has taken has `patience` to arrive, [`PATIENCE`] at most.
    pub(crate) fn end(&mut self, why: &str, patience: Duration) -> Result<(), LinkError> {
        let ended = self.link.shut_down(why, patience.min(PATIENCE));
        self.applied = None;
        ended
    }
}
