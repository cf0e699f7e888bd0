//! Conditions that must hold at the end of a round, when no frame is in flight.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mqnet_netdev::LaneCounters;
use mqnet_netdev::stats::{LaneCounter, Unit};
use mqnet_testkit::{DEADLINE, Host, Tally};
use serde_json::Value;

use crate::rig::Site;
use crate::schedule::Round;
use crate::shape::{Path, Rig};
use crate::testpmd::{self, Counted};

/// Maximum number of duplicated frames: for each channel, a killed device may have processed one
/// burst without publishing its completion.
const TWICE_MAX: u64 = 64 * 8;

const DIRECTIONS: [&str; 2] = ["a-to-b", "b-to-a"];

/// Counters of all links while no frame is in flight.
pub(crate) struct Snapshot {
    /// Statistics by name of the link.
    stats: BTreeMap<&'static str, Value>,
    /// Restart count of each process at the time of the snapshot.
    lives: Vec<u64>,
    /// Frames dropped by the kernels of both hosts, for each path.
    kernel: Vec<u64>,
    /// Datagrams and segments with wrong checksums, at both hosts.
    corrupt: u64,
    /// Counters of testpmd; `None` in rigs without testpmd.
    foreign: Option<Counted>,
}

fn number(lane: &Value, key: &str) -> u64 {
    lane[key].as_u64().unwrap_or(0)
}

fn drops(lane: &Value) -> u64 {
    let list = lane["drops"].as_array().map_or(&[][..], Vec::as_slice);
    list.iter().map(|drop| number(drop, "frames")).sum()
}

/// Number of frames in flight according to the conservation check.
fn frames_in_flight(lane: &Value) -> i128 {
    LaneCounters::read(|row| number(lane, &row.json())).in_flight(drops(lane).into())
}

/// Counters of testpmd; `None` in rigs without testpmd.
#[track_caller]
fn counted(site: &Site) -> Option<Counted> {
    let has = site.shape.rig == Rig::Testpmd;
    has.then(|| testpmd::counted(&site.lives[testpmd::PROCESS].running))
}

/// Asserts that the conservation check holds with no frame in flight, and that the counters of the
/// channels add up to those of the lane.
#[track_caller]
fn assert_conserved(link: &str, stats: &Value) {
    for way in DIRECTIONS {
        let lane = &stats[way];
        assert!(lane.is_object(), "{link}: no {way} in {stats}");
        let flight = frames_in_flight(lane);
        assert_eq!(flight, 0, "{link} {way}: frames in = frames out + drops: {lane}");
        assert_eq!(lane["in-flight"], 0, "{link} {way}: in flight at rest: {lane}");
        let channels = stats["channels"].as_array().expect("channels");
        let stable = |row: &&LaneCounter| matches!(row.unit, Unit::Frames | Unit::Bytes);
        for key in LaneCounters::TABLE.iter().filter(stable).map(LaneCounter::json) {
            let sum: u64 = channels.iter().map(|channel| number(&channel[way], &key)).sum();
            assert_eq!(sum, number(lane, &key), "{link} {way}: the channels do not add up: {key}");
        }
        for channel in channels {
            let state = &channel[way]["state"];
            assert_ne!(
                *state, "stopped",
                "{link} {way}: stopped with nothing under way: {channel}"
            );
        }
    }
}

/// Number of frames received by each lane. Equal lists of two samples show that no frame moved
/// between them.
fn moved(stats: &BTreeMap<&'static str, Value>) -> Vec<u64> {
    let of = |stats: &Value| DIRECTIONS.map(|way| number(&stats[way], "rx-packets"));
    stats.values().flat_map(of).collect()
}

fn at_rest(stats: &BTreeMap<&'static str, Value>) -> bool {
    let stopped = |channel: &Value| DIRECTIONS.iter().any(|way| channel[way]["state"] == "stopped");
    stats.values().all(|stats| {
        let channels = stats["channels"].as_array().map_or(&[][..], Vec::as_slice);
        DIRECTIONS.iter().all(|way| frames_in_flight(&stats[*way]) == 0)
            && !channels.iter().any(stopped)
    })
}

fn kernel_drops(host: &Host, devices: &[&str]) -> u64 {
    let of = |device: &&str| {
        let c = host.counters(device);
        c.rx_dropped + c.tx_dropped + c.qdisc_dropped
    };
    devices.iter().map(of).sum()
}

impl Snapshot {
    /// Waits until no frame is in flight, and reads all counters.
    #[track_caller]
    pub(crate) fn take(site: &Site) -> Self {
        let start = Instant::now();
        let mut last = None;
        let (stats, foreign) = loop {
            let (stats, foreign) = (site.stats(), counted(site));
            let now = Some((moved(&stats), foreign));
            if now == last && at_rest(&stats) {
                break (stats, foreign);
            }
            last = now;
            if start.elapsed() > DEADLINE {
                // Report the failed conservation check, if any; otherwise frames are still moving.
                stats.iter().for_each(|(link, stats)| assert_conserved(link, stats));
                panic!("the links do not come to rest");
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let hosts = [&site.world.a, &site.world.b];
        let full: u64 = hosts.iter().map(|host| host.protocol("UdpRcvbufErrors")).sum();
        let of = |path: &Path| {
            let pairs = hosts.iter().zip(path.devices);
            pairs.map(|(host, devices)| kernel_drops(host, devices)).sum::<u64>() + full
        };
        let wrong =
            |host: &&Host| host.protocol("UdpInCsumErrors") + host.protocol("TcpInCsumErrors");
        Self {
            stats,
            lives: site.lives.iter().map(|life| life.number).collect(),
            kernel: site.shape.paths.iter().map(of).collect(),
            corrupt: hosts.iter().map(wrong).sum(),
            foreign,
        }
    }

    /// Sum of the drops that the links of a path, testpmd and the kernels have counted.
    fn counted(&self, path: usize, links: &[(&'static str, bool)]) -> u64 {
        let of = |(link, _): &(&'static str, bool)| {
            let stats = &self.stats[link];
            let lanes: u64 = DIRECTIONS
                .iter()
                .map(|way| drops(&stats[*way]) + number(&stats[*way], "tx-lost"))
                .sum();
            lanes + number(stats, "dropped-outside-a") + number(stats, "dropped-outside-b")
        };
        let foreign =
            self.foreign.map_or(0, |Counted(ports)| ports.iter().map(|p| p.dropped).sum());
        self.kernel[path] + links.iter().map(of).sum::<u64>() + foreign
    }
}

/// Checks a round: the counters before and after it, and the datagrams of each path.
///
/// Order is required only in calm rounds: after a restart, the queues of a TAP contain frames that
/// no steering program has distributed. Two exceptions are rounds with an abandoned change of an
/// indirection table, and moved flows of virtio devices. A virtio device does not observe when its
/// driver has read a ring. Frames of a flow that moves to another ring may therefore overtake
/// earlier ones, as with every NIC. With testpmd this applies to both directions, because testpmd
/// may still hold frames from the old ring.
#[track_caller]
pub(crate) fn round(
    site: &Site,
    plan: &Round,
    before: &Snapshot,
    after: &Snapshot,
    tallies: &[[Tally; 2]],
) {
    for (link, stats) in &after.stats {
        assert_conserved(link, stats);
    }
    assert_eq!(before.corrupt, after.corrupt, "wrong checksums arrived");
    let calm = !plan.is_rough() && before.lives == after.lives;
    for (at, path) in site.shape.paths.iter().enumerate() {
        for (way, tally) in tallies[at].iter().enumerate() {
            let what = format!("{} {}: {tally:?}", path.kind, ["there", "back"][way]);
            assert_eq!(tally.wrong, 0, "{what}");
            let blind = matches!(path.kind, "vhost-resize" | "testpmd")
                || (path.kind == "vhost" && way == 0);
            let told = site.gave_up.get();
            let in_order = calm && !told && !(blind && plan.moves_flows(&site.shape, at));
            assert!(tally.reordered == 0 || !in_order, "{what}");
            let virtio = path.kind.starts_with("vhost") || path.kind == "testpmd";
            let twice = if virtio && !calm { TWICE_MAX } else { 0 };
            assert!(tally.doubled <= twice, "{what}");
        }
        if calm {
            let [now, then] = [after, before].map(|rest| rest.counted(at, path.links));
            let counted = now.saturating_sub(then);
            let lost: u64 = tallies[at].iter().map(Tally::lost).sum();
            let kind = path.kind;
            assert!(lost <= counted, "{kind}: {lost} datagrams missing, {counted} drops counted");
            assert_monotonic(path, before, after);
            across(path, before, after);
        }
    }
}

/// Asserts that no counter of the path's links has decreased during the round.
#[track_caller]
fn assert_monotonic(path: &Path, before: &Snapshot, after: &Snapshot) {
    for (link, _) in path.links {
        let (then, now) = (&before.stats[link], &after.stats[link]);
        for way in DIRECTIONS {
            for key in LaneCounters::TABLE.iter().map(LaneCounter::json) {
                let (then, now) = (number(&then[way], &key), number(&now[way], &key));
                assert!(now >= then, "{link} {way}: {key} went back from {then} to {now}");
            }
        }
    }
}

/// Asserts that each frame that one process of the path sent during the round was received by the
/// other process. testpmd between them must have forwarded each frame or counted its drop.
#[track_caller]
fn across(path: &Path, before: &Snapshot, after: &Snapshot) {
    let [(a, _), (b, _)] = path.links else { return };
    let foreign = before.foreign.zip(after.foreign);
    for (way, (from, to)) in [(a, b), (b, a)].into_iter().enumerate() {
        let grown = |link: &str, way: &str, key: &str| {
            number(&after.stats[link][way], key) - number(&before.stats[link][way], key)
        };
        let (sent, taken) =
            (grown(from, "a-to-b", "tx-packets"), grown(to, "b-to-a", "rx-packets"));
        let Some((Counted(then), Counted(now))) = foreign else {
            assert_eq!(sent, taken, "{from} sent so many frames to {to}, and that took so many");
            continue;
        };
        let (come, left) = (way, 1 - way);
        let received = now[come].received - then[come].received;
        let passed = now[left].sent - then[left].sent;
        let dropped = now[left].dropped - then[left].dropped;
        assert_eq!(sent, received, "{from} sent so many, and testpmd took so many");
        assert_eq!(received, passed + dropped, "testpmd took so many, sent {passed}");
        assert_eq!(passed, taken, "testpmd sent so many, and {to} took so many");
    }
}
