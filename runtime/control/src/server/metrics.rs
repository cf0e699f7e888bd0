//! Prometheus' text format, named as node_exporter names things.

mod qdiscs;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use mqnet_control_api::{
    ApiError, Code, Host, Instance, LaneStats, LinkInfo, LinkState, LinkStats, Qdisc,
};
use prometheus::{
    CounterVec, IntCounterVec, IntGaugeVec, Opts, Registry, TEXT_FORMAT, TextEncoder,
};

use super::answer::Refusal;
use crate::calls::HostHandle;
use crate::names;
use qdiscs::Qdiscs;

/// What one scrape reads.
struct Seen {
    instance: Instance,
    links: Vec<LinkInfo>,
    stats: Vec<LinkStats>,
    qdiscs: Vec<(Labels, Vec<Qdisc>)>,
}

/// Labels of a netdev: its name, its link, and its side of the link. Two devices of one name in
/// two network namespaces differ in the others.
type Labels = [String; 3];

/// Every counter for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "metrics",
    responses((status = 200, description = "Prometheus text format", body = String,
        content_type = "text/plain")))]
pub(super) async fn metrics(State(host): State<HostHandle>) -> Result<Response, Refusal> {
    let seen = |host: &mut dyn Host| {
        let links = host.links();
        // A link that went away in between has no counters any more.
        let stats = links.iter().filter_map(|link| host.stats(&link.name).ok()).collect();
        let named = names::of_links(&links);
        let sides = ["a", "b"].into_iter().cycle();
        let qdiscs = (0..named.len()).zip(sides).filter_map(|(at, side)| {
            let labels = [named[at].name, named[at].link, side].map(str::to_owned);
            host.qdiscs(&names::reference(at, &named)).ok().map(|all| (labels, all))
        });
        let qdiscs = qdiscs.collect();
        Seen { instance: host.instance(), links, stats, qdiscs }
    };
    let seen = host.call(seen).await?;
    let text = text(&seen).map_err(|e| ApiError::new(Code::Failed, format!("metrics: {e}")))?;
    Ok(([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response())
}

fn text(seen: &Seen) -> prometheus::Result<String> {
    // One registry a scrape: counters live in the links, here they are only written down.
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

/// Every family.
struct Board {
    up: IntGaugeVec,
    channels: IntGaugeVec,
    passes: IntCounterVec,
    sleeps: IntCounterVec,
    received: [IntCounterVec; 2],
    transmitted: [IntCounterVec; 2],
    outside: IntCounterVec,
    drops: IntCounterVec,
    lost: IntCounterVec,
    in_flight: IntGaugeVec,
    stops: IntCounterVec,
    wakes: IntCounterVec,
    stopped: CounterVec,
    kicks: IntCounterVec,
    copies: IntCounterVec,
    syscalls: IntCounterVec,
    segments: IntCounterVec,
    merged: IntCounterVec,
    locality: IntCounterVec,
}

impl Board {
    fn new(registry: &Registry) -> prometheus::Result<Self> {
        let queue = ["device", "link", "side", "channel"];
        let of_queue = |name: &str, help: &str| counter(registry, name, help, &queue);
        let of_worker = |name: &str, help: &str| counter(registry, name, help, &["link", "worker"]);
        let stopped = Opts::new("queue_stopped_seconds_total", "Time that a TX queue was full.");
        let stopped = CounterVec::new(stopped.namespace("mqnet"), &queue)?;
        registry.register(Box::new(stopped.clone()))?;
        Ok(Self {
            up: gauge(registry, "link_up", "1 while traffic flows.", &["link"])?,
            channels: gauge(registry, "link_channels", "Channels in use.", &["link"])?,
            passes: of_worker("worker_passes_total", "Passes of a worker over its lanes.")?,
            sleeps: of_worker("worker_sleeps_total", "Times that a worker slept.")?,
            received: [
                of_queue("netdev_receive_packets_total", "Frames received.")?,
                of_queue("netdev_receive_bytes_total", "Bytes received.")?,
            ],
            transmitted: [
                of_queue("netdev_transmit_packets_total", "Frames sent.")?,
                of_queue("netdev_transmit_bytes_total", "Bytes sent.")?,
            ],
            outside: counter(
                registry,
                "netdev_receive_outside_drops_total",
                "Frames that the system dropped before the device saw them.",
                &["device", "link", "side"],
            )?,
            drops: counter(
                registry,
                "drops_total",
                "Frames that a device received and that were dropped on the way to its partner.",
                &["device", "link", "side", "channel", "direction", "reason"],
            )?,
            lost: of_queue("lost_total", "Frames sent that a lost peer had not taken.")?,
            in_flight: gauge(
                registry,
                "in_flight_frames",
                "Frames received, or made of those, and neither sent nor dropped yet.",
                &queue,
            )?,
            stops: of_queue("queue_stops_total", "Times that a TX queue became full.")?,
            wakes: of_queue("queue_wakes_total", "Times that a full TX queue went on.")?,
            stopped,
            kicks: of_queue("kicks_total", "Doorbells rung.")?,
            copies: of_queue("copies_total", "Frames whose payload was copied.")?,
            syscalls: of_queue("syscalls_total", "System calls that moved its frames.")?,
            segments: of_queue(
                "segments_total",
                "Frames beyond the first that were made of one large frame.",
            )?,
            merged: of_queue(
                "merged_total",
                "Frames sent as a part of the one before them, to a device that takes large ones.",
            )?,
            locality: counter(
                registry,
                "function_bytes_total",
                "Bytes of a function, by whether its channel's worker runs on the same NUMA node.",
                &["device", "link", "function", "node", "locality"],
            )?,
        })
    }

    fn link(&self, link: &LinkInfo) {
        let name = link.name.as_str();
        self.up.with_label_values(&[name]).set((link.state != LinkState::Down).into());
        self.channels.with_label_values(&[name]).set(link.channels.into());
        for worker in &link.workers {
            let labels = [name, &worker.id.to_string()];
            self.passes.with_label_values(&labels).inc_by(worker.passes);
            self.sleeps.with_label_values(&labels).inc_by(worker.sleeps);
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

    /// What a lane takes is received by `from`; stops, wakes, kicks and copies are counted for the
    /// queue of `to`, which is what stops and is written to.
    fn lane(&self, lane: &LaneStats, place: [&str; 3], channel: &str, direction: &str) {
        let [link, from_side, to_side] = place;
        let from = [&*lane.from, link, from_side, channel];
        let to = [&*lane.to, link, to_side, channel];
        self.received[0].with_label_values(&from).inc_by(lane.rx_packets);
        self.received[1].with_label_values(&from).inc_by(lane.rx_bytes);
        self.transmitted[0].with_label_values(&to).inc_by(lane.tx_packets);
        self.transmitted[1].with_label_values(&to).inc_by(lane.tx_bytes);
        self.lost.with_label_values(&to).inc_by(lane.tx_lost);
        self.in_flight.with_label_values(&from).set(lane.in_flight);
        self.stops.with_label_values(&to).inc_by(lane.tx_stop);
        self.wakes.with_label_values(&to).inc_by(lane.tx_wake);
        self.stopped.with_label_values(&to).inc_by(lane.stopped_ns as f64 / 1e9);
        self.kicks.with_label_values(&to).inc_by(lane.kicks);
        self.copies.with_label_values(&to).inc_by(lane.copies);
        self.syscalls.with_label_values(&to).inc_by(lane.syscalls);
        self.segments.with_label_values(&to).inc_by(lane.segments);
        self.merged.with_label_values(&to).inc_by(lane.merged);
        for drop in &lane.drops {
            let labels = [&*lane.from, link, from_side, channel, direction, &drop.reason];
            self.drops.with_label_values(&labels).inc_by(drop.frames);
        }
    }
}
