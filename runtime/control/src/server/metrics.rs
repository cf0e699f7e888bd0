//! Prometheus text format, with names as in node_exporter.

mod qdiscs;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use mqnet_control_api::{
    ApiError, Code, Instance, LaneStats, LinkInfo, LinkState, LinkStats, NetdevInfo, NetdevRequest,
    ObjectName, QdiscEntry, Reply, Request,
};
use mqnet_host::names;
use mqnet_netdev::LaneCounters;
use mqnet_netdev::stats::{LaneCounter, LaneSide, Unit, WorkerTotals};
use prometheus::{
    CounterVec, IntCounterVec, IntGaugeVec, Opts, Registry, TEXT_FORMAT, TextEncoder,
};

use super::answer::{Refusal, wrong_reply};
use crate::calls::HostHandle;
use qdiscs::Qdiscs;

/// Data of one scrape.
struct Seen {
    instance: Instance,
    links: Vec<LinkInfo>,
    stats: Vec<LinkStats>,
    qdiscs: Vec<(Labels, Vec<QdiscEntry>)>,
}

/// Labels of a netdev: its name, its link, and its side of the link. Devices of the same name in
/// two network namespaces differ in link or side.
type Labels = [String; 3];

/// All counters in the Prometheus text format.
#[utoipa::path(get, path = "/metrics", tag = "metrics",
    responses((status = 200, description = "Prometheus text format", body = String,
        content_type = "text/plain")))]
pub(super) async fn metrics(State(host): State<HostHandle>) -> Result<Response, Refusal> {
    let (Reply::Instance(instance), Reply::Links(links)) =
        (host.request(Request::Instance).await?, host.request(Request::Links).await?)
    else {
        return Err(wrong_reply().into());
    };
    let mut seen = Seen { instance, links, stats: Vec::new(), qdiscs: Vec::new() };
    // Omit links that were deleted after the list was read.
    for link in &seen.links {
        let name = ObjectName { name: link.name.clone(), netns: None };
        if let Ok(Reply::LinkStats(stats)) = host.request(Request::LinkStats(name)).await {
            seen.stats.push(*stats);
        }
    }
    let named = names::of_links(&seen.links);
    for (at, side) in (0..named.len()).zip(["a", "b"].into_iter().cycle()) {
        let name = ObjectName { name: names::reference(at, &named), netns: None };
        let request = Request::Netdev(name, NetdevRequest::Qdiscs);
        if let Ok(Reply::Qdiscs(all)) = host.request(request).await {
            let labels = [named[at].name, named[at].link, side].map(str::to_owned);
            seen.qdiscs.push((labels, all));
        }
    }
    let text = text(&seen).map_err(|e| ApiError::new(Code::Failed, format!("metrics: {e}")))?;
    Ok(([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response())
}

fn text(seen: &Seen) -> prometheus::Result<String> {
    // Each scrape uses a new registry, because the links keep the counters.
    let registry = Registry::new();
    let build = gauge(&registry, "build_info", "The version that runs, as a label.", &["version"])?;
    build.with_label_values(&[&*seen.instance.version]).set(1);
    let board = Board::new(&registry)?;
    seen.links.iter().for_each(|link| board.link(link));
    seen.stats.iter().for_each(|stats| board.stats(stats));
    let of_devices = Qdiscs::new(&registry)?;
    seen.qdiscs.iter().for_each(|(device, all)| of_devices.of_device(device, all));
    TextEncoder::new().encode_to_string(&registry.gather())
}

fn gauge(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntGaugeVec> {
    let made = IntGaugeVec::new(Opts::new(name, help).namespace("mqnet"), labels)?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

fn counter(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    let made = IntCounterVec::new(Opts::new(name, help).namespace("mqnet"), labels)?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

/// Metric family of one row of the counter table.
enum Family {
    Count(IntCounterVec),
    Seconds(CounterVec),
}

impl Family {
    fn new(registry: &Registry, row: &LaneCounter) -> prometheus::Result<Self> {
        if row.unit != Unit::Nanoseconds {
            return counter(registry, row.metric, row.help, &QUEUE).map(Self::Count);
        }
        let made = CounterVec::new(Opts::new(row.metric, row.help).namespace("mqnet"), &QUEUE)?;
        registry.register(Box::new(made.clone()))?;
        Ok(Self::Seconds(made))
    }

    fn add(&self, labels: &[&str], value: u64) {
        match self {
            Self::Count(family) => family.with_label_values(labels).inc_by(value),
            Self::Seconds(family) => family.with_label_values(labels).inc_by(value as f64 / 1e9),
        }
    }
}

/// Labels of a queue.
const QUEUE: [&str; 4] = ["device", "link", "side", "channel"];

/// Metric families of links, workers, lanes and functions.
struct Board {
    up: IntGaugeVec,
    channels: IntGaugeVec,
    /// Families of the worker counters, in the order of the table.
    workers: Vec<IntCounterVec>,
    outside: IntCounterVec,
    drops: IntCounterVec,
    in_flight: IntGaugeVec,
    /// Families of the lane counters, in the order of the table.
    lanes: Vec<Family>,
    locality: IntCounterVec,
    queue_pairs: QueuePairs,
}

/// Metric families of queue pairs with a kernel's `ntb_transport`.
struct QueuePairs {
    open: IntGaugeVec,
    slots: IntGaugeVec,
    in_use: IntGaugeVec,
}

impl QueuePairs {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let pair = ["device", "link", "side", "pair"];
        let [device, link, side, number] = pair;
        let ring = [device, link, side, number, "direction"];
        let open = "1 while the far end has the queue pair open.";
        let slots = "Slots of a queue pair with an ntb_transport.";
        let in_use = "Slots with frames that the receiver has not consumed.";
        Ok(Self {
            open: gauge(registry, "queue_pair_open", open, &pair)?,
            slots: gauge(registry, "queue_pair_slots", slots, &ring)?,
            in_use: gauge(registry, "queue_pair_slots_in_use", in_use, &ring)?,
        })
    }

    fn of_device(&self, device: &NetdevInfo, side: &str) {
        let pairs = device.slot_rings.iter().flat_map(|rings| &rings.queue_pairs);
        for pair in pairs {
            let number = pair.id.to_string();
            let labels = [&*device.name, &*device.link, side, &*number];
            self.open.with_label_values(&labels).set(pair.open.into());
            for (direction, slots, in_use) in [
                ("receive", pair.rx_slots, pair.rx_waiting),
                ("transmit", pair.tx_slots, pair.tx_in_use),
            ] {
                let [device, link, side, number] = labels;
                let ring = [device, link, side, number, direction];
                self.slots.with_label_values(&ring).set(slots.into());
                self.in_use.with_label_values(&ring).set(in_use.into());
            }
        }
    }
}

impl Board {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let worker = ["link", "worker"];
        let workers = WorkerTotals::TABLE.iter();
        let workers = workers.map(|row| counter(registry, row.pattern, row.help, &worker));
        let lanes = LaneCounters::TABLE.iter().map(|row| Family::new(registry, row));
        Ok(Self {
            up: gauge(registry, "link_up", "1 while traffic flows.", &["link"])?,
            channels: gauge(registry, "link_channels", "Channels in use.", &["link"])?,
            workers: workers.collect::<prometheus::Result<_>>()?,
            outside: counter(
                registry,
                "netdev_receive_outside_drops_total",
                "Frames that the system dropped before the device saw them.",
                &["device", "link", "side"],
            )?,
            drops: counter(
                registry,
                "drops_total",
                "Frames that a device received and that were dropped before its partner.",
                &["device", "link", "side", "channel", "direction", "reason"],
            )?,
            in_flight: gauge(
                registry,
                "in_flight_frames",
                "Frames received, or segments of received frames, that are neither sent nor \
                 dropped yet.",
                &QUEUE,
            )?,
            lanes: lanes.collect::<prometheus::Result<_>>()?,
            locality: counter(
                registry,
                "function_bytes_total",
                "Bytes of a function, by whether its channel's worker runs on the same NUMA node.",
                &["device", "link", "function", "node", "locality"],
            )?,
            queue_pairs: QueuePairs::new(registry)?,
        })
    }

    fn link(&self, link: &LinkInfo) {
        let name = link.name.as_str();
        self.up.with_label_values(&[name]).set((link.state != LinkState::Down).into());
        self.channels.with_label_values(&[name]).set(link.channels.into());
        for (device, side) in link.netdevs.iter().zip(["a", "b"]) {
            self.queue_pairs.of_device(device, side);
        }
        for worker in &link.workers {
            let labels = [name, &worker.id.to_string()];
            for (family, (_, value)) in self.workers.iter().zip(worker.totals().iter()) {
                family.with_label_values(&labels).inc_by(value);
            }
        }
    }

    fn stats(&self, stats: &LinkStats) {
        let link = &*stats.link;
        for (device, side, dropped) in
            [(&stats.a, "a", stats.dropped_outside_a), (&stats.b, "b", stats.dropped_outside_b)]
        {
            if let Some(dropped) = dropped {
                self.outside.with_label_values(&[&**device, link, side]).inc_by(dropped);
            }
        }
        for one in &stats.locality {
            let (function, node) = (one.function.to_string(), one.node.to_string());
            for (name, bytes) in [("local", one.local_bytes), ("cross", one.cross_bytes)] {
                let labels = [&*one.netdev, link, &*function, &*node, name];
                self.locality.with_label_values(&labels).inc_by(bytes);
            }
        }
        for channel in &stats.channels {
            let id = channel.id.to_string();
            self.lane(&channel.a_to_b, [link, "a", "b"], &id, "a-to-b");
            self.lane(&channel.b_to_a, [link, "b", "a"], &id, "b-to-a");
        }
    }

    /// Adds the counters of a lane. Counters of the RX queue, drops and frames in flight have the
    /// labels of `from`; counters of the TX queue have the labels of `to`.
    fn lane(&self, lane: &LaneStats, place: [&str; 3], channel: &str, direction: &str) {
        let [link, from_side, to_side] = place;
        let from = [&*lane.from, link, from_side, channel];
        let to = [&*lane.to, link, to_side, channel];
        for (family, (row, value)) in self.lanes.iter().zip(lane.counters().iter()) {
            family.add(if row.side == LaneSide::Rx { &from } else { &to }, value);
        }
        self.in_flight.with_label_values(&from).set(lane.in_flight);
        for drop in &lane.drops {
            let labels = [&*lane.from, link, from_side, channel, direction, &drop.reason];
            self.drops.with_label_values(&labels).inc_by(drop.frames);
        }
    }
}
