//! Registry of the links of a process, and the requests about links.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use mqnet_address::config::Policy;
use mqnet_address::{CheckedLink, Endpoint};
use mqnet_control_api::{
    ApiError, Change, Code, Event, FoundNetdev, Host, Instance, LinkInfo, LinkSpec, NetdevRequest,
    ObjectName, Reply, Request, Ticket,
};
use mqnet_engine::{Cpus, LinkError, Notice};
use mqnet_sysio::{affinity, clock};

use crate::link::{HostedLink, Opening};
use crate::names::{self, Named};
use crate::platform::{Platform, netns_of};
use crate::recent;
use crate::verbs::{self, done};

/// Default limit of the number of links.
pub const LINKS_DEFAULT: u32 = 1024;

/// Number of events kept for clients that connect later.
const EVENTS_MAX: usize = 1000;

/// Duration above which a control step is logged, because requests wait for the step.
const SLOW: Duration = Duration::from_millis(500);

/// Kind of the process, which determines if requests may add links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMode {
    /// Process with one link, given on the command line.
    Link,
    /// Process with the links of a configuration and of requests.
    Daemon,
}

/// All links of this process.
pub struct LinkHost {
    platform: Box<dyn Platform>,
    mode: HostMode,
    started: Duration,
    /// Links, oldest first.
    pub entries: Vec<HostedLink>,
    events: VecDeque<(u64, Event)>,
    last_event: u64,
    made: u32,
    /// True if a request has left work for the next control step.
    step_due: bool,
    /// True if the only link of the process was deleted.
    pub finished: bool,
    /// Ticket of a request to reload the configuration; `None`: no request.
    pub reload_wanted: Option<Ticket>,
    /// Restrictions on the endpoints that requests may name.
    pub policy: Policy,
    /// Largest number of links.
    pub links_max: u32,
}

impl LinkHost {
    /// Creates a host without links.
    pub fn new(mode: HostMode, platform: Box<dyn Platform>) -> Self {
        Self {
            platform,
            mode,
            started: clock::monotonic(),
            entries: Vec::new(),
            events: VecDeque::new(),
            last_event: 0,
            made: 0,
            step_due: false,
            finished: false,
            reload_wanted: None,
            policy: Policy::default(),
            links_max: LINKS_DEFAULT,
        }
    }

    /// True if a request has left work for the next control step; resets that state.
    pub fn take_step_due(&mut self) -> bool {
        std::mem::take(&mut self.step_due)
    }

    /// Opens a link and adds it to the registry. Fails if the name or a netdev is in use, a limit
    /// is reached, a CPU is not allowed, or an end cannot be opened.
    pub fn add(
        &mut self,
        name: Option<&str>,
        spec: LinkSpec,
        link: CheckedLink,
        opening: Opening,
    ) -> Result<(), ApiError> {
        if name.is_some_and(|name| self.entries.iter().any(|entry| entry.name == name)) {
            let why = format!("link '{}' exists already", name.unwrap_or_default());
            return Err(ApiError::new(Code::Busy, why));
        }
        if self.entries.len() >= self.links_max as usize {
            let most = self.links_max;
            let why = format!("{most} links exist, the limit: raise links in [limits]");
            return Err(ApiError::new(Code::Busy, why));
        }
        for (field, end) in [("a", &link.a), ("b", &link.b)] {
            self.is_free(field, end, None)?;
        }
        if let Cpus::List(cpus) = &link.cpus {
            may_run_on(cpus)?;
        }
        // Restore settings left by killed processes first, so that the link records the original
        // settings of its devices.
        self.platform.recover();
        let (platform, others) = (&*self.platform, &self.entries);
        let entry = HostedLink::open(platform, name, spec, link, opening, self.made, others)?;
        self.made += 1;
        let (name, text) = (entry.name.clone(), format!("{} <-> {}", entry.spec.a, entry.spec.b));
        self.entries.push(entry);
        self.happened("link-add", &name, text);
        Ok(())
    }

    /// Returns an error if another link has the netdev of `end`. Must be called before anything is
    /// opened: a device of another link must not be touched. `own` is the index of the link with
    /// this end; `None` for a new link.
    fn is_free(&self, field: &str, end: &Endpoint, own: Option<usize>) -> Result<(), ApiError> {
        let (name, netns) = (end.config().netdev_name(), netns_of(end));
        let has =
            |entry: &HostedLink| entry.netdevs.iter().any(|d| d.name == name && d.netns == netns);
        let mut others = self.entries.iter().enumerate().filter(|(number, _)| Some(*number) != own);
        let Some((_, other)) = others.find(|(_, entry)| has(entry)) else { return Ok(()) };
        // An end in a namespace that does not exist cannot conflict.
        let is_open = netns.is_some() || end.config().namespace().is_none();
        if *end == Endpoint::Null || !is_open {
            return Ok(());
        }
        let (other, knob) = (&other.name, end.rename_knob());
        let why = format!("{field}: link '{other}' has a netdev '{name}' already{knob}");
        Err(ApiError { field: Some(field.to_owned()), ..ApiError::new(Code::Busy, why) })
    }

    /// Ends a link and removes it from the registry. Returns an error if no link has this name, or
    /// if the link did not end properly.
    pub fn remove(&mut self, name: &str) -> Result<(), ApiError> {
        let at = self.entries.iter().position(|entry| entry.name == name);
        let mut entry = self.entries.remove(at.ok_or_else(|| no_link(name))?);
        let ended = entry.end("its user deleted it", Duration::MAX);
        self.happened("link-del", name, "deleted".to_owned());
        ended.map_err(|e| ApiError::new(Code::Failed, e.to_string()))
    }

    /// Applies the options of a configuration that can change while the link runs. Fails if no link
    /// has this name, or if the number of channels cannot change.
    pub fn retune(
        &mut self,
        name: &str,
        spec: LinkSpec,
        link: CheckedLink,
    ) -> Result<(), ApiError> {
        self.link(name)?.retune(spec, link)
    }

    /// Runs a control step of every link and passes the notices to `seen`. A link that fails is
    /// removed; with [`HostMode::Link`] the failure is returned instead.
    pub fn turn(
        &mut self,
        mut seen: impl FnMut(&mut HostedLink, &Notice),
    ) -> Result<(), LinkError> {
        let mut happened = Vec::new();
        let mut lost = Vec::new();
        self.open_waiting();
        for (number, entry) in self.entries.iter_mut().enumerate() {
            loop {
                let notice = match one_step(entry) {
                    Ok(Some(notice)) => notice,
                    Ok(None) => break,
                    // The failure of the only link of a process ends the process with its reason.
                    Err(e) if self.mode == HostMode::Link => return Err(e),
                    Err(e) => {
                        happened.push(("link-lost", entry.name.clone(), e.to_string()));
                        lost.push(number);
                        break;
                    }
                };
                entry.fit_interfaces(&*self.platform, &notice);
                let (event, text) = entry.noticed(&notice);
                happened.push((event, entry.name.clone(), text));
                seen(entry, &notice);
                if !matches!(notice, Notice::Up(_)) {
                    break;
                }
            }
            entry.follow_interfaces();
            entry.answer();
            entry.recent.sample(clock::monotonic(), entry.link.stats());
        }
        // Only failed links are removed, the last one first so that the other numbers stay valid.
        for number in lost.into_iter().rev() {
            let entry = self.entries.remove(number);
            tracing::error!("link {}: abandoned", entry.name);
        }
        for (event, link, text) in happened {
            self.happened(event, &link, text);
        }
        Ok(())
    }

    /// Tries to open the waiting ends with a due attempt.
    fn open_waiting(&mut self) {
        let now = clock::monotonic();
        for number in 0..self.entries.len() {
            for side in self.entries[number].due_ends(now) {
                let end = self.entries[number].endpoint(side).clone();
                let free = self.is_free(["a", "b"][side], &end, Some(number));
                self.platform.recover();
                let opened = match free {
                    Ok(()) => self.platform.open(end, Vec::new()).map_err(|e| e.to_string()),
                    Err(e) => Err(e.message),
                };
                self.entries[number].attempted(side, opened, clock::monotonic());
            }
        }
    }

    /// Names of the links with an end that cannot be opened yet, each with the reason.
    pub fn waiting(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().filter_map(|entry| Some((&entry.name[..], entry.waits_for()?)))
    }

    /// Tries to open all waiting ends immediately.
    pub fn retry_now(&mut self) {
        self.entries.iter_mut().for_each(HostedLink::hurry);
        self.open_waiting();
    }

    /// Longest wait for an event before the next control step.
    pub fn patience(&self) -> Duration {
        let shortest = self.entries.iter().map(|entry| entry.link.patience()).min();
        shortest.unwrap_or(recent::EVERY).min(recent::EVERY)
    }

    /// Duplicates the descriptors of all links that become ready when a control step is due.
    pub fn events_to_watch(&self) -> std::io::Result<Vec<OwnedFd>> {
        let fds = self.entries.iter().flat_map(|entry| entry.link.events());
        fds.map(|fd| fd.try_clone_to_owned()).collect()
    }

    fn happened(&mut self, event: &str, link: &str, text: String) {
        let since = clock::since_epoch();
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

    /// Names of all netdevs, two per link in the order of the links.
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

    fn link(&mut self, name: &str) -> Result<&mut HostedLink, ApiError> {
        let at = self.entries.iter().position(|entry| entry.name == name);
        at.map(|at| &mut self.entries[at]).ok_or_else(|| no_link(name))
    }

    fn daemon_only(&self, what: &str) -> Result<(), ApiError> {
        match self.mode {
            HostMode::Daemon => Ok(()),
            HostMode::Link => Err(ApiError::new(
                Code::NotSupported,
                format!("{what}: this process is a single link; start 'mqnet daemon'"),
            )),
        }
    }

    fn find(&self, asked: &ObjectName) -> Result<(usize, FoundNetdev), ApiError> {
        let (all, name) = (self.names(), &*asked.name);
        let at = names::only(name, "netdev", &names::devices(name, asked.netns, &all), &all)?;
        let (netdev, link) = (names::reference(at, &all), all[at].link.to_owned());
        Ok((at, FoundNetdev { netdev, link }))
    }

    /// Finds a link by its name or by the name of one of its netdevs.
    fn find_link(&mut self, asked: &ObjectName) -> Result<&mut HostedLink, ApiError> {
        let (all, name) = (self.names(), &*asked.name);
        let found = names::links(name, asked.netns, &all);
        let at = names::only(name, "link or netdev", &found, &all)?;
        Ok(&mut self.entries[at / 2])
    }

    fn instance(&self) -> Instance {
        Instance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            mode: if self.mode == HostMode::Daemon { "daemon" } else { "link" }.to_owned(),
            uptime_ms: clock::monotonic().saturating_sub(self.started).as_millis() as u64,
        }
    }

    fn links(&mut self) -> Vec<LinkInfo> {
        self.entries.iter_mut().map(verbs::show).collect()
    }

    fn add_link(&mut self, name: &str, spec: LinkSpec) -> Change {
        let since = clock::monotonic();
        self.daemon_only("adding a link")?;
        mqnet_address::check_link_name(name)?;
        for (field, end) in [("a", &spec.a), ("b", &spec.b)] {
            if mqnet_address::absolute(end, Path::new("/")) != *end {
                let why = "paths must be absolute: the daemon has its own working directory";
                return Err(ApiError::field(field, format!("{field}: endpoint '{end}': {why}")));
            }
        }
        let checked = mqnet_address::check(&spec)?;
        // Check before any access to a path of the request.
        self.platform.check(&self.policy, &checked)?;
        if let Some(there) = self.entries.iter().find(|entry| entry.name == name)
            && there.checked == checked
        {
            return done(false, since);
        }
        // Only links of the configuration may wait for an end; a request fails with the reason.
        self.add(Some(name), spec, checked, Opening::plain(false))?;
        self.step_due = true;
        done(true, since)
    }

    fn delete_link(&mut self, name: &ObjectName) -> Change {
        let since = clock::monotonic();
        let name = self.find_link(name)?.name.clone();
        if self.mode == HostMode::Link {
            // The process deletes the link at its own end, after this reply.
            self.finished = true;
        } else {
            self.remove(&name)?;
        }
        self.step_due = true;
        done(true, since)
    }

    fn reload(&mut self) -> Change {
        self.daemon_only("reloading")?;
        self.step_due = true;
        Ok(self.reload_wanted.get_or_insert_with(Ticket::open).clone())
    }

    fn netdev(&mut self, name: &ObjectName, request: NetdevRequest) -> Result<Reply, ApiError> {
        let (at, found) = self.find(name)?;
        let event = verbs::event(&request);
        let reply = verbs::execute(&mut self.entries[at / 2], at % 2, request)?;
        self.step_due |= matches!(reply, Reply::Change(_) | Reply::Capture(_));
        if let (Some((event, text)), Reply::Change(ticket)) = (event, &reply)
            && matches!(ticket.result(), Some(Ok(outcome)) if outcome.changed)
        {
            self.happened(event, &found.link, format!("{}: {text}", found.netdev));
        }
        Ok(reply)
    }
}

impl Host for LinkHost {
    fn request(&mut self, request: Request) -> Result<Reply, ApiError> {
        Ok(match request {
            Request::Instance => Reply::Instance(self.instance()),
            Request::Links => Reply::Links(self.links()),
            Request::AddLink { name, spec } => Reply::Change(self.add_link(&name, spec)?),
            Request::DeleteLink(name) => Reply::Change(self.delete_link(&name)?),
            Request::LinkStats(name) => {
                Reply::LinkStats(Box::new(verbs::link_stats(self.find_link(&name)?)))
            }
            Request::Reload => Reply::Change(self.reload()?),
            Request::Events(after) => {
                let newer = self.events.iter().filter(|(number, _)| *number > after);
                Reply::Events(newer.map(|(_, event)| event.clone()).collect(), self.last_event)
            }
            Request::Netdevs => {
                Reply::Netdevs(self.links().into_iter().flat_map(|link| link.netdevs).collect())
            }
            Request::PagePools => {
                let pools = self.entries.iter_mut().flat_map(verbs::page_pools);
                Reply::PagePools(pools.map(|(pool, _)| pool).collect())
            }
            Request::PagePoolStats => {
                let pools = self.entries.iter_mut().flat_map(verbs::page_pools);
                Reply::PagePoolStats(pools.map(|(_, stats)| stats).collect())
            }
            Request::Find(name) => Reply::Found(self.find(&name)?.1),
            Request::Netdev(name, request) => self.netdev(&name, request)?,
        })
    }
}

/// Returns an error if this process may not run on one of the CPUs.
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

/// Runs one control step of a link. Logs a slow step.
fn one_step(entry: &mut HostedLink) -> Result<Option<Notice>, LinkError> {
    let begin = clock::monotonic();
    let outcome = entry.link.turn(begin);
    let took = clock::monotonic().saturating_sub(begin);
    if took > SLOW {
        let (name, ms) = (&entry.name, took.as_millis());
        tracing::warn!(
            "link {name}: a control step took {ms} ms and delayed requests (a busy machine, or a \
             kernel that is changing its network)"
        );
    }
    outcome
}
