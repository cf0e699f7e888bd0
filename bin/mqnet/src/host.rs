//! The owner of the links: what stands behind the control interface.

mod entry;
mod netdev;
mod place;
mod recent;
mod rules;
mod show;
mod stats;
pub(crate) mod tc;
mod tune;
mod waiting;
mod xdp;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mqnet_address::CheckedLink;
use mqnet_address::config::Policy;
use mqnet_control::names::{self, Named};
use mqnet_control_api::{
    ApiError, CaptureFilter, Change, Channels, Class, Coalesce, Code, DriverInfo, Event, Feature,
    Filter, FlowRules, FoundNetdev, FrameSink, Host, Instance, LinkInfo, LinkSpec, LinkStats,
    NamedCounter, Napi, NetdevInfo, Outcome, PagePool, PagePoolStats, PrivFlag, QStats, Qdisc,
    Queue, Rings, Rss, SetChannels, SetCoalesce, SetFeatures, SetFlowRules, SetMtu, SetPrivFlags,
    SetRings, SetRss, SetXdp, TcRequest, Ticket, XdpEntry, XdpInfo, XdpMapRequest,
};
use mqnet_engine::{Cpus, LinkError, Notice};
use mqnet_sysio::{affinity, clock};
use tokio::sync::Notify;

use crate::endpoint::{Endpoint, Open};
use crate::leftovers;
use crate::limits::{self, LINKS_DEFAULT};
pub(crate) use entry::{Entry, Opening};

/// Events that are remembered for those who ask late.
const EVENTS_MAX: usize = 1000;

/// A step of control that takes longer is told: nobody is answered meanwhile.
const SLOW: Duration = Duration::from_millis(500);

/// Whether the links are the host's to make and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One link, given on the command line.
    Link,
    /// Those of the configuration, and whatever is asked for.
    Daemon,
}

/// The links of this process.
pub(crate) struct LinkHost {
    mode: Mode,
    started: Instant,
    pub(crate) entries: Vec<Entry>,
    events: VecDeque<(u64, Event)>,
    last_event: u64,
    made: u32,
    /// Wakes whoever turns the links.
    wake: Arc<Notify>,
    /// Somebody wants the process to end: its only link was deleted.
    pub(crate) finished: bool,
    /// Somebody wants the configuration to be read again.
    pub(crate) reload_wanted: Option<Ticket>,
    /// Restricts the endpoints that requests name.
    pub(crate) policy: Policy,
    /// Most links.
    pub(crate) links_max: u32,
}

impl LinkHost {
    pub(crate) fn new(mode: Mode) -> Self {
        Self {
            mode,
            started: Instant::now(),
            entries: Vec::new(),
            events: VecDeque::new(),
            last_event: 0,
            made: 0,
            wake: Arc::default(),
            finished: false,
            reload_wanted: None,
            policy: Policy::default(),
            links_max: LINKS_DEFAULT,
        }
    }

    /// Told when a request has left something to do.
    pub(crate) fn wake(&self) -> Arc<Notify> {
        self.wake.clone()
    }

    /// Opens a link and adds it.
    pub(crate) fn add(
        &mut self,
        name: Option<&str>,
        spec: LinkSpec,
        link: CheckedLink,
        opening: Opening,
    ) -> Result<(), ApiError> {
        if name.is_some_and(|name| self.entries.iter().any(|entry| entry.name == name)) {
            let why = format!("there is a link '{}' already", name.unwrap_or_default());
            return Err(ApiError::new(Code::Busy, why));
        }
        if self.entries.len() >= self.links_max as usize {
            let most = self.links_max;
            let why = format!("there are {most} links already: raise links in [limits]");
            return Err(ApiError::new(Code::Busy, why));
        }
        for (field, end) in [("a", &link.a), ("b", &link.b)] {
            self.is_free(field, end, None)?;
        }
        if let Cpus::List(cpus) = &link.cpus {
            may_run_on(cpus)?;
        }
        // Before it looks at anything: what is there shall be the kernel's own.
        leftovers::take_care();
        let entry = Entry::open(name, spec, link, opening, self.made, &self.entries)?;
        self.made += 1;
        let (name, text) = (entry.name.clone(), format!("{} <-> {}", entry.spec.a, entry.spec.b));
        self.entries.push(entry);
        self.happened("link-add", &name, text);
        Ok(())
    }

    /// Looked at before anything is opened: what another link has must not even be touched.
    /// `own` is the number of the link that the end belongs to.
    fn is_free(&self, field: &str, end: &Endpoint, own: Option<usize>) -> Result<(), ApiError> {
        let (name, home) = (end.config().netdev_name(), end.home());
        let has = |entry: &Entry| entry.netdevs.iter().any(|d| d.name == name && d.netns == home);
        let mut others = self.entries.iter().enumerate().filter(|(number, _)| Some(*number) != own);
        let Some((_, other)) = others.find(|(_, entry)| has(entry)) else { return Ok(()) };
        // Nobody knows yet which namespace it will be.
        let is_open = home.is_some() || end.config().namespace().is_none();
        if *end == Endpoint::Null || !is_open {
            return Ok(());
        }
        let (other, knob) = (&other.name, end.rename_knob());
        let why = format!("{field}: link '{other}' has a netdev '{name}' already{knob}");
        Err(ApiError { field: Some(field.to_owned()), ..ApiError::new(Code::Busy, why) })
    }

    /// Ends a link and forgets it.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), ApiError> {
        let at = self.entries.iter().position(|entry| entry.name == name);
        let mut entry = self.entries.remove(at.ok_or_else(|| no_link(name))?);
        let ended = entry.end("its user deleted it", Duration::MAX);
        self.happened("link-del", name, "deleted".to_owned());
        ended.map_err(|e| ApiError::new(Code::Failed, e.to_string()))
    }

    /// Gives a link what can be changed while it runs.
    pub(crate) fn retune(
        &mut self,
        name: &str,
        spec: LinkSpec,
        link: CheckedLink,
    ) -> Result<(), ApiError> {
        self.link(name)?.retune(spec, link)
    }

    /// One step of every link; what happened goes to `seen`.
    pub(crate) fn turn(
        &mut self,
        mut seen: impl FnMut(&mut Entry, &Notice),
    ) -> Result<(), LinkError> {
        let mut happened = Vec::new();
        let mut lost = None;
        self.open_waiting();
        for (number, entry) in self.entries.iter_mut().enumerate() {
            loop {
                let notice = match one_step(entry) {
                    Ok(Some(notice)) => notice,
                    Ok(None) => break,
                    // A single link ends its process, with its reason.
                    Err(e) if self.mode == Mode::Link => return Err(e),
                    Err(e) => {
                        happened.push(("link-lost", entry.name.clone(), e.to_string()));
                        lost = Some(number);
                        break;
                    }
                };
                entry.fit_interfaces(&notice);
                let (event, text) = entry.noticed(&notice);
                happened.push((event, entry.name.clone(), text));
                seen(entry, &notice);
                if !matches!(notice, Notice::Up(_)) {
                    break;
                }
            }
            entry.follow_interfaces();
            entry.answer();
            entry.recent.look(clock::monotonic(), entry.link.stats());
        }
        if let Some(number) = lost {
            // The others go on.
            let entry = self.entries.remove(number);
            tracing::error!("link {}: given up", entry.name);
        }
        for (event, link, text) in happened {
            self.happened(event, &link, text);
        }
        Ok(())
    }

    /// Tries to open ends that wait and are due.
    fn open_waiting(&mut self) {
        let now = clock::monotonic();
        for number in 0..self.entries.len() {
            for side in self.entries[number].due_ends(now) {
                let end = self.entries[number].endpoint(side).clone();
                let free = self.is_free(["a", "b"][side], &end, Some(number));
                leftovers::take_care();
                let opened = match free {
                    Ok(()) => end.open(Vec::new()).map_err(|e| e.to_string()),
                    Err(e) => Err(e.message),
                };
                self.entries[number].attempted(side, opened, clock::monotonic());
            }
        }
    }

    /// Links with an end that cannot be opened yet, each with the reason.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().filter_map(|entry| Some((&entry.name[..], entry.waits_for()?)))
    }

    /// Tries all ends that wait now, whenever they are due.
    pub(crate) fn retry_now(&mut self) {
        self.entries.iter_mut().for_each(Entry::hurry);
        self.open_waiting();
    }

    /// How long to wait for an event before the next turn.
    pub(crate) fn patience(&self) -> Duration {
        let shortest = self.entries.iter().map(|entry| entry.link.patience()).min();
        shortest.unwrap_or(recent::EVERY).min(recent::EVERY)
    }

    /// Copies of the descriptors whose readiness asks for a turn.
    pub(crate) fn events_to_watch(&self) -> std::io::Result<Vec<OwnedFd>> {
        let fds = self.entries.iter().flat_map(|entry| entry.link.events());
        fds.map(|fd| fd.try_clone_to_owned()).collect()
    }

    fn happened(&mut self, event: &str, link: &str, text: String) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let event = Event {
            time_ms: since.as_millis() as u64,
            event: event.to_owned(),
            link: link.to_owned(),
            text,
        };
        self.last_event += 1;
        self.events.push_back((self.last_event, event));
        if self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// The same for a change, after which the links want a turn.
    fn changing(&mut self, dev: &str) -> Result<(&mut Entry, usize), ApiError> {
        self.wake.notify_one();
        self.netdev(dev)
    }

    /// The link and the side of a netdev.
    fn netdev(&mut self, dev: &str) -> Result<(&mut Entry, usize), ApiError> {
        let all = self.names();
        let at = names::only(dev, "netdev", &names::devices(dev, None, &all), &all)?;
        Ok((&mut self.entries[at / 2], at % 2))
    }

    /// The netdevs of all links, two for each.
    fn names(&self) -> Vec<Named<'_>> {
        let mut all = Vec::with_capacity(2 * self.entries.len());
        for entry in &self.entries {
            for dev in &entry.netdevs {
                let (link, name, netns) = (&*entry.name, &*dev.name, dev.netns);
                all.push(Named { process: 0, link, name, netns });
            }
        }
        all
    }

    fn link(&mut self, name: &str) -> Result<&mut Entry, ApiError> {
        let at = self.entries.iter().position(|entry| entry.name == name);
        at.map(|at| &mut self.entries[at]).ok_or_else(|| no_link(name))
    }

    fn daemon_only(&self, what: &str) -> Result<(), ApiError> {
        match self.mode {
            Mode::Daemon => Ok(()),
            Mode::Link => Err(ApiError::new(
                Code::NotSupported,
                format!("{what}: this process is a single link; start 'mqnet daemon'"),
            )),
        }
    }
}

/// Refuses CPUs on which this process may not run.
fn may_run_on(cpus: &[usize]) -> Result<(), ApiError> {
    let Ok(allowed) = affinity::allowed_cpus() else { return Ok(()) };
    let Some(other) = cpus.iter().find(|cpu| !allowed.contains(cpu)) else { return Ok(()) };
    let allowed: Vec<String> = allowed.iter().map(usize::to_string).collect();
    let why =
        format!("cpus: this process may not run on CPU {other}: allowed: {}", allowed.join(","));
    Err(ApiError::field("cpus", why))
}

fn no_link(name: &str) -> ApiError {
    ApiError::new(Code::NoDevice, format!("no link or netdev '{name}' here"))
}

/// What a call that is done at once came to.
fn done(changed: bool, since: Instant) -> Change {
    let took_us = since.elapsed().as_micros() as u64;
    Ok(Ticket::done(Outcome { changed, note: None, took_us }))
}

impl Host for LinkHost {
    fn instance(&self) -> Instance {
        Instance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            mode: if self.mode == Mode::Daemon { "daemon" } else { "link" }.to_owned(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
        }
    }

    fn links(&mut self) -> Vec<LinkInfo> {
        self.entries.iter_mut().map(show::link).collect()
    }

    fn netdevs(&mut self) -> Vec<NetdevInfo> {
        self.entries.iter_mut().flat_map(|entry| show::link(entry).netdevs).collect()
    }

    fn find_netdev(&mut self, asked: &str, caller: Option<u64>) -> Result<FoundNetdev, ApiError> {
        let all = self.names();
        let at = names::only(asked, "netdev", &names::devices(asked, caller, &all), &all)?;
        let (netdev, link) = (names::reference(at, &all), all[at].link.to_owned());
        Ok(FoundNetdev { netdev, link })
    }

    fn find_link(&mut self, asked: &str, caller: Option<u64>) -> Result<String, ApiError> {
        let all = self.names();
        let found = names::links(asked, caller, &all);
        names::only(asked, "link or netdev", &found, &all).map(|at| all[at].link.to_owned())
    }

    fn add_link(&mut self, name: &str, spec: &LinkSpec) -> Change {
        let since = Instant::now();
        self.daemon_only("adding a link")?;
        mqnet_address::check_link_name(name)?;
        for (field, end) in [("a", &spec.a), ("b", &spec.b)] {
            if mqnet_address::absolute(end, Path::new("/")) != *end {
                let why = "the daemon has a folder of its own: write paths from / on";
                return Err(ApiError::field(field, format!("{field}: endpoint '{end}': {why}")));
            }
        }
        let checked = mqnet_address::check(spec)?;
        // Before any access to a path of the request.
        limits::check(&self.policy, &checked)?;
        crate::config::check_ends(&checked)?;
        if let Some(there) = self.entries.iter().find(|entry| entry.name == name)
            && there.checked == checked
        {
            return done(false, since);
        }
        // Whoever asks is told: only links of the configuration wait.
        self.add(Some(name), spec.clone(), checked, Opening::plain(false))?;
        self.wake.notify_one();
        done(true, since)
    }

    fn del_link(&mut self, name: &str) -> Change {
        let since = Instant::now();
        let name = self.link(name)?.name.clone();
        if self.mode == Mode::Link {
            // The process ends with it, after this answer.
            self.finished = true;
        } else {
            self.remove(&name)?;
        }
        self.wake.notify_one();
        done(true, since)
    }

    fn reload(&mut self) -> Change {
        self.daemon_only("reloading")?;
        let ticket = self.reload_wanted.get_or_insert_with(Ticket::open).clone();
        self.wake.notify_one();
        Ok(ticket)
    }

    fn stats(&mut self, name: &str) -> Result<LinkStats, ApiError> {
        self.link(name).map(stats::link)
    }

    fn events(&mut self, after: u64) -> (Vec<Event>, u64) {
        let newer = self.events.iter().filter(|(number, _)| *number > after);
        (newer.map(|(_, event)| event.clone()).collect(), self.last_event)
    }

    fn channels(&mut self, dev: &str) -> Result<Channels, ApiError> {
        self.netdev(dev).map(|(entry, _)| tune::channels(entry))
    }

    fn set_channels(&mut self, dev: &str, want: &SetChannels) -> Change {
        self.changing(dev).and_then(|(entry, _)| tune::set_channels(entry, want))
    }

    fn rings(&mut self, dev: &str) -> Result<Rings, ApiError> {
        self.netdev(dev).and_then(|(entry, side)| tune::rings(entry, side))
    }

    fn set_rings(&mut self, dev: &str, want: &SetRings) -> Change {
        self.changing(dev).and_then(|(entry, side)| tune::set_rings(entry, side, want))
    }

    fn set_mtu(&mut self, dev: &str, want: &SetMtu) -> Change {
        self.changing(dev).and_then(|(entry, _)| tune::set_mtu(entry, want))
    }

    fn coalesce(&mut self, dev: &str) -> Result<Coalesce, ApiError> {
        self.netdev(dev).map(|(entry, _)| tune::coalesce(entry))
    }

    fn set_coalesce(&mut self, dev: &str, want: &SetCoalesce) -> Change {
        self.changing(dev).and_then(|(entry, _)| tune::set_coalesce(entry, want))
    }

    fn rss(&mut self, dev: &str) -> Result<Rss, ApiError> {
        self.netdev(dev).and_then(|(entry, side)| tune::rss(entry, side))
    }

    fn set_rss(&mut self, dev: &str, want: &SetRss) -> Change {
        self.changing(dev).and_then(|(entry, side)| tune::set_rss(entry, side, want))
    }

    fn rules(&mut self, dev: &str) -> Result<FlowRules, ApiError> {
        self.netdev(dev).and_then(|(entry, side)| rules::rules(entry, side))
    }

    fn set_rules(&mut self, dev: &str, want: &SetFlowRules) -> Change {
        self.changing(dev).and_then(|(entry, side)| rules::set_rules(entry, side, want))
    }

    fn features(&mut self, dev: &str) -> Result<Vec<Feature>, ApiError> {
        self.netdev(dev).map(|(entry, side)| tune::features(entry, side))
    }

    fn set_features(&mut self, dev: &str, want: &SetFeatures) -> Change {
        self.changing(dev).and_then(|(entry, side)| tune::set_features(entry, side, want))
    }

    fn driver(&mut self, dev: &str) -> Result<DriverInfo, ApiError> {
        self.netdev(dev).map(|(entry, side)| show::driver(entry, side))
    }

    fn priv_flags(&mut self, dev: &str) -> Result<Vec<PrivFlag>, ApiError> {
        self.netdev(dev).and_then(|(entry, side)| tune::priv_flags(entry, side))
    }

    fn set_priv_flags(&mut self, dev: &str, want: &SetPrivFlags) -> Change {
        self.changing(dev).and_then(|(entry, side)| tune::set_priv_flags(entry, side, want))
    }

    fn counters(&mut self, dev: &str) -> Result<Vec<NamedCounter>, ApiError> {
        self.netdev(dev).map(|(entry, side)| stats::counters(entry, side))
    }

    fn qdiscs(&mut self, dev: &str) -> Result<Vec<Qdisc>, ApiError> {
        self.netdev(dev).map(|(entry, side)| tc::qdiscs(entry, side))
    }

    fn classes(&mut self, dev: &str) -> Result<Vec<Class>, ApiError> {
        self.netdev(dev).map(|(entry, side)| tc::classes(entry, side))
    }

    fn filters(&mut self, dev: &str) -> Result<Vec<Filter>, ApiError> {
        self.netdev(dev).map(|(entry, side)| tc::filters(entry, side))
    }

    fn set_tc(&mut self, dev: &str, want: &TcRequest) -> Change {
        let (entry, side) = self.changing(dev)?;
        let link = entry.name.clone();
        let ticket = tc::set(entry, side, want)?;
        if matches!(ticket.result(), Some(Ok(outcome)) if outcome.changed) {
            self.happened("tc-changed", &link, format!("{dev}: {}", tc::in_words(want)));
        }
        Ok(ticket)
    }

    fn xdp(&mut self, dev: &str) -> Result<XdpInfo, ApiError> {
        self.netdev(dev).map(|(entry, side)| xdp::show(entry, side))
    }

    fn set_xdp(&mut self, dev: &str, want: &SetXdp) -> Change {
        let (entry, side) = self.changing(dev)?;
        let link = entry.name.clone();
        let ticket = xdp::set(entry, side, want)?;
        let what = if want.object.is_some() { "attached" } else { "detached" };
        self.happened("xdp-changed", &link, format!("{dev}: program {what}"));
        Ok(ticket)
    }

    fn xdp_map(&mut self, dev: &str, want: &XdpMapRequest) -> Result<Vec<XdpEntry>, ApiError> {
        self.netdev(dev).and_then(|(entry, side)| xdp::map(entry, side, want))
    }

    fn queues(&mut self, dev: &str) -> Result<Vec<Queue>, ApiError> {
        self.netdev(dev).map(|(entry, side)| netdev::queues(entry, side))
    }

    fn napis(&mut self, dev: &str) -> Result<Vec<Napi>, ApiError> {
        self.netdev(dev).map(|(entry, side)| netdev::napis(entry, side))
    }

    fn qstats(&mut self, dev: &str, per_queue: bool) -> Result<Vec<QStats>, ApiError> {
        self.netdev(dev).map(|(entry, side)| netdev::qstats(entry, side, per_queue))
    }

    fn page_pools(&mut self) -> Vec<PagePool> {
        self.entries.iter_mut().flat_map(netdev::page_pools).map(|(pool, _)| pool).collect()
    }

    fn page_pool_stats(&mut self) -> Vec<PagePoolStats> {
        self.entries.iter_mut().flat_map(netdev::page_pools).map(|(_, stats)| stats).collect()
    }

    fn capture(
        &mut self,
        dev: &str,
        filter: CaptureFilter,
    ) -> Result<Box<dyn FrameSink>, ApiError> {
        let (entry, side) = self.changing(dev)?;
        stats::capture(entry, side, filter)
    }
}

/// One step of a link; one that took long is told.
fn one_step(entry: &mut Entry) -> Result<Option<Notice>, LinkError> {
    let begin = clock::monotonic();
    let outcome = entry.link.turn(begin);
    let took = clock::monotonic().saturating_sub(begin);
    if took > SLOW {
        let (name, ms) = (&entry.name, took.as_millis());
        tracing::warn!(
            "link {name}: a step of control took {ms} ms; requests wait meanwhile (a busy machine, \
             or a kernel that is changing its network)"
        );
    }
    outcome
}
