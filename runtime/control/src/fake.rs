//! A host without a data path: two links of four channels, whose counters stand still. It refuses
//! what a real one would refuse.

mod check;
mod counters;
mod link;
mod tc;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mqnet_control_api::{
    ApiError, CaptureFilter, CapturedFrame, Change, Channels, Class, Coalesce, Code, DriverInfo,
    Event, Feature, Filter, FlowRules, FrameDirection, FrameSink, Host, Instance, LinkInfo,
    LinkSpec, LinkStats, NamedCounter, Napi, NetdevInfo, Outcome, PagePool, PagePoolStats,
    PrivFlag, QStats, Qdisc, Queue, QueueType, Rings, Rss, SetChannels, SetCoalesce, SetFeatures,
    SetFlowRules, SetMtu, SetPrivFlags, SetRings, SetRss, TcRequest, Ticket, XdpInfo,
};

use crate::calls::{HostHandle, calls};
use link::FakeLink;

/// Most channels of a fake link.
pub(crate) const CHANNELS_MAX: u16 = 8;

/// The host.
#[derive(Debug)]
pub struct FakeHost {
    pid: u32,
    links: Vec<FakeLink>,
    events: Vec<Event>,
    captures: Arc<AtomicUsize>,
    held: Option<Vec<Ticket>>,
}

impl FakeHost {
    /// Two links: `vm0` and `vm1`, each a TAP and a bridge (`ntb0` and `ntb1`).
    pub fn new() -> Self {
        let links = (0..2).map(FakeLink::numbered).collect();
        let mut host = Self {
            pid: std::process::id(),
            links,
            events: Vec::new(),
            captures: Arc::default(),
            held: None,
        };
        host.happened("link-up", "vm0");
        host.happened("link-up", "vm1");
        host
    }

    /// For tests that inspect the host while it is served.
    pub fn shared(self) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(self))
    }

    /// Serves a host on a thread of its own, which ends with the last handle.
    pub fn serve(host: Arc<Mutex<Self>>) -> HostHandle {
        let (handle, calls) = calls();
        std::thread::spawn(move || calls.run_all(&host));
        handle
    }

    /// Names the first link's TAP differently and puts it into a network namespace.
    #[must_use]
    pub fn named(mut self, device: &str, netns: Option<u64>) -> Self {
        self.links.truncate(1);
        self.links[0].rename(device, netns);
        self
    }

    /// Claims to be this process.
    #[must_use]
    pub fn with_pid(mut self, pid: u32) -> Self {
        self.pid = pid;
        self
    }

    /// From now on changes of channels are not answered until [`FakeHost::release`].
    pub fn hold(&mut self) {
        self.held = Some(Vec::new());
    }

    /// Answers the changes that were held back; returns how many.
    pub fn release(&mut self) -> usize {
        let held = self.held.take().unwrap_or_default();
        held.iter().for_each(|ticket| ticket.settle(Ok(changed(true))));
        held.len()
    }

    /// Captures that are under way.
    pub fn captures(&self) -> usize {
        self.captures.load(Ordering::Relaxed)
    }

    fn happened(&mut self, event: &str, link: &str) {
        self.events.push(Event {
            time_ms: 1_700_000_000_000 + self.events.len() as u64,
            event: event.to_owned(),
            link: link.to_owned(),
            text: format!("{link}: {event}"),
        });
    }

    fn dev(&mut self, dev: &str) -> Result<(&mut FakeLink, usize), ApiError> {
        let found = self.links.iter_mut().find_map(|link| link.side(dev).map(|side| (link, side)));
        found.ok_or_else(|| ApiError::new(Code::NoDevice, format!("no netdev `{dev}`")))
    }

    /// Changes a netdev and tells about it if something changed.
    fn change(
        &mut self,
        dev: &str,
        event: &str,
        change: impl FnOnce(&mut FakeLink, usize) -> Result<bool, ApiError>,
    ) -> Change {
        let (link, side) = self.dev(dev)?;
        let (is_changed, name) = (change(link, side)?, link.name.clone());
        if is_changed {
            self.happened(event, &name);
        }
        Ok(Ticket::done(changed(is_changed)))
    }
}

impl Default for FakeHost {
    fn default() -> Self {
        Self::new()
    }
}

fn changed(changed: bool) -> Outcome {
    Outcome { changed, note: None, took_us: 7 }
}

impl Host for FakeHost {
    fn instance(&self) -> Instance {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Instance { version, pid: self.pid, mode: "daemon".to_owned(), uptime_ms: 1234 }
    }

    fn links(&mut self) -> Vec<LinkInfo> {
        self.links.iter().map(FakeLink::info).collect()
    }

    fn netdevs(&mut self) -> Vec<NetdevInfo> {
        self.links.iter().flat_map(FakeLink::netdevs).collect()
    }

    fn add_link(&mut self, name: &str, spec: &LinkSpec) -> Change {
        check::link(name, spec)?;
        if let Some(link) = self.links.iter().find(|link| link.name == name) {
            return if link.spec == *spec {
                Ok(Ticket::done(changed(false)))
            } else {
                let why = format!("link `{name}` exists and is another one: delete it first");
                Err(ApiError::new(Code::Busy, why))
            };
        }
        let number = self.links.len();
        self.links.push(FakeLink::new(number, name, spec.clone()));
        self.happened("link-add", name);
        Ok(Ticket::done(changed(true)))
    }

    fn del_link(&mut self, name: &str) -> Change {
        let before = self.links.len();
        self.links.retain(|link| link.name != name);
        if self.links.len() == before {
            return Err(ApiError::new(Code::NoDevice, format!("no link `{name}`")));
        }
        self.happened("link-del", name);
        Ok(Ticket::done(changed(true)))
    }

    fn reload(&mut self) -> Change {
        Ok(Ticket::done(changed(false)))
    }

    fn stats(&mut self, name: &str) -> Result<LinkStats, ApiError> {
        let found = self.links.iter().find(|link| link.name == name || link.side(name).is_some());
        let none = || ApiError::new(Code::NoDevice, format!("no link or netdev `{name}`"));
        found.map(counters::stats).ok_or_else(none)
    }

    fn events(&mut self, after: u64) -> (Vec<Event>, u64) {
        let seen = usize::try_from(after).unwrap_or(usize::MAX).min(self.events.len());
        (self.events[seen..].to_vec(), self.events.len() as u64)
    }

    fn channels(&mut self, dev: &str) -> Result<Channels, ApiError> {
        let (link, _) = self.dev(dev)?;
        Ok(Channels {
            combined_max: CHANNELS_MAX,
            combined: link.combined,
            wanted: Some(link.combined),
            peer_wanted: None,
            note: None,
        })
    }

    fn set_channels(&mut self, dev: &str, want: &SetChannels) -> Change {
        let done = self.change(dev, "channels-changed", |link, _| {
            check::channels(want.combined)?;
            Ok(std::mem::replace(&mut link.combined, want.combined) != want.combined)
        })?;
        let Some(held) = &mut self.held else { return Ok(done) };
        let ticket = Ticket::open();
        held.push(ticket.clone());
        Ok(ticket)
    }

    fn rings(&mut self, dev: &str) -> Result<Rings, ApiError> {
        self.dev(dev).map(|(link, side)| link.rings(side))
    }

    fn set_rings(&mut self, dev: &str, want: &SetRings) -> Change {
        self.change(dev, "rings-changed", |link, side| link.set_rings(side, want))
    }

    fn set_mtu(&mut self, dev: &str, want: &SetMtu) -> Change {
        self.change(dev, "mtu-changed", |link, _| {
            check::mtu(want.mtu)?;
            Ok(std::mem::replace(&mut link.mtu, want.mtu) != want.mtu)
        })
    }

    fn coalesce(&mut self, dev: &str) -> Result<Coalesce, ApiError> {
        self.dev(dev).map(|(link, _)| link.coalesce.clone())
    }

    fn set_coalesce(&mut self, dev: &str, want: &SetCoalesce) -> Change {
        self.change(dev, "coalesce-changed", |link, _| {
            check::coalesce(want)?;
            let new = Coalesce {
                rx_usecs: want.rx_usecs.unwrap_or(link.coalesce.rx_usecs),
                tx_frames: want.tx_frames.unwrap_or(link.coalesce.tx_frames),
            };
            Ok(std::mem::replace(&mut link.coalesce, new.clone()) != new)
        })
    }

    fn rss(&mut self, dev: &str) -> Result<Rss, ApiError> {
        self.dev(dev).map(|(link, _)| link.rss())
    }

    fn set_rss(&mut self, dev: &str, want: &SetRss) -> Change {
        self.change(dev, "rss-changed", |link, _| {
            let new = check::rss(want, link.combined)?;
            Ok(std::mem::replace(&mut link.table, new.clone()) != new)
        })
    }

    fn rules(&mut self, dev: &str) -> Result<FlowRules, ApiError> {
        self.dev(dev).map(|(link, _)| link.rules())
    }

    fn set_rules(&mut self, dev: &str, want: &SetFlowRules) -> Change {
        self.change(dev, "rules-changed", |link, _| link.set_rules(want))
    }

    fn features(&mut self, dev: &str) -> Result<Vec<Feature>, ApiError> {
        self.dev(dev).map(|(link, side)| link.features[side].clone())
    }

    fn set_features(&mut self, dev: &str, want: &SetFeatures) -> Change {
        self.change(dev, "features-changed", |link, side| link.set_features(side, want))
    }

    fn driver(&mut self, dev: &str) -> Result<DriverInfo, ApiError> {
        self.dev(dev).map(|(link, side)| link.driver(side))
    }

    fn priv_flags(&mut self, dev: &str) -> Result<Vec<PrivFlag>, ApiError> {
        let (link, side) = self.dev(dev)?;
        link.priv_flags(side)
    }

    fn set_priv_flags(&mut self, dev: &str, want: &SetPrivFlags) -> Change {
        self.change(dev, "priv-flags-changed", |link, side| link.set_priv_flags(side, want))
    }

    fn counters(&mut self, dev: &str) -> Result<Vec<NamedCounter>, ApiError> {
        self.dev(dev).map(|(link, side)| counters::named(link, side))
    }

    fn xdp(&mut self, dev: &str) -> Result<XdpInfo, ApiError> {
        self.dev(dev).map(|_| XdpInfo::default())
    }

    fn qdiscs(&mut self, dev: &str) -> Result<Vec<Qdisc>, ApiError> {
        self.dev(dev).map(|(link, side)| link.tc[side].qdiscs.clone())
    }

    fn classes(&mut self, dev: &str) -> Result<Vec<Class>, ApiError> {
        self.dev(dev).map(|(link, side)| link.tc[side].classes.clone())
    }

    fn filters(&mut self, dev: &str) -> Result<Vec<Filter>, ApiError> {
        self.dev(dev).map(|(link, side)| link.tc[side].filters.clone())
    }

    fn set_tc(&mut self, dev: &str, want: &TcRequest) -> Change {
        self.change(dev, "tc-changed", |link, side| link.tc[side].apply(want))
    }

    fn queues(&mut self, dev: &str) -> Result<Vec<Queue>, ApiError> {
        self.dev(dev).map(|(link, side)| link.queues(side))
    }

    fn napis(&mut self, dev: &str) -> Result<Vec<Napi>, ApiError> {
        self.dev(dev).map(|(link, side)| link.napis(side))
    }

    fn qstats(&mut self, dev: &str, per_queue: bool) -> Result<Vec<QStats>, ApiError> {
        let (link, side) = self.dev(dev)?;
        let ifindex = link.ifindex(side);
        if !per_queue {
            return Ok(vec![QStats { ifindex, rx_packets: Some(10), ..QStats::default() }]);
        }
        let queue = |kind, id| QStats {
            ifindex,
            queue_type: Some(kind),
            queue_id: Some(id),
            ..QStats::default()
        };
        let ids = || 0..u32::from(link.combined);
        let rx = ids().map(|id| queue(QueueType::Rx, id));
        Ok(rx.chain(ids().map(|id| queue(QueueType::Tx, id))).collect())
    }

    fn page_pools(&mut self) -> Vec<PagePool> {
        vec![PagePool { id: 1, ifindex: Some(1_000_000), ..PagePool::default() }]
    }

    fn page_pool_stats(&mut self) -> Vec<PagePoolStats> {
        vec![PagePoolStats { id: 1, alloc_fast: 9, ..PagePoolStats::default() }]
    }

    fn capture(
        &mut self,
        dev: &str,
        filter: CaptureFilter,
    ) -> Result<Box<dyn FrameSink>, ApiError> {
        let (link, _) = self.dev(dev)?;
        check::captured(filter.channel, link.combined)?;
        self.captures.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(FakeSink { filter, frames: 0, captures: self.captures.clone() }))
    }
}

/// Captures one frame a look, five in all.
#[derive(Debug)]
struct FakeSink {
    filter: CaptureFilter,
    frames: u64,
    captures: Arc<AtomicUsize>,
}

impl FrameSink for FakeSink {
    fn take(&mut self, frames: &mut Vec<CapturedFrame>) -> u64 {
        if self.frames < 5 {
            self.frames += 1;
            let bytes = vec![self.frames as u8; 60.min(self.filter.snaplen as usize)];
            let dropped = self.filter.drops || self.frames.is_multiple_of(2);
            frames.push(CapturedFrame {
                time_ns: 1_700_000_000_123_456_000 + self.frames,
                channel: self.filter.channel.unwrap_or(2),
                direction: if self.frames == 1 {
                    FrameDirection::Outbound
                } else {
                    FrameDirection::Inbound
                },
                len: 60,
                bytes,
                drop_reason: dropped.then_some("too-long"),
            });
        }
        u64::from(self.frames == 3)
    }
}

impl Drop for FakeSink {
    fn drop(&mut self) {
        self.captures.fetch_sub(1, Ordering::Relaxed);
    }
}
