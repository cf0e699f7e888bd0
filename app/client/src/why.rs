//! `mqnet why`: stopped queues with time and cause, frames dropped in the last seconds, and the
//! setting that helps.

use std::fmt::Write as _;
use std::io::Write;
use std::time::{Duration, SystemTime};

use clap::Args;
use mqnet_command::{Failure, json_text, put};
use mqnet_control_api::{
    LaneStats, LinkInfo, LinkState, LinkStats, RecentDrops, RxBufferInfo, StopCause, StopState,
};
use serde::Serialize;

use crate::api::Api;
use crate::drops;
use crate::show::{links, rx_buffers as rx_lines, standing};
use crate::stats::read;
use crate::stats::show::duration;

#[derive(Args, Debug)]
pub struct WhyArgs {
    /// A netdev or a link.
    #[arg(value_name = "DEV")]
    pub(crate) name: String,
    /// Print JSON.
    #[arg(short, long)]
    pub(crate) json: bool,
}

/// One stopped queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Answer {
    channel: u16,
    from: String,
    to: String,
    /// Start of the stop as ISO time.
    since: String,
    for_ns: u64,
    by: String,
    advice: String,
}

/// Report about one link.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    link: String,
    state: LinkState,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    stopped: Vec<Answer>,
    /// Reasons why a device does not operate as configured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// RX queues with a buffer layout other than the requested one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rx_buffers: Vec<String>,
    /// Frames dropped in the last seconds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dropped: Vec<RecentDrops>,
    /// Frames that kernels dropped before mqnet received them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dropped_outside: Vec<Outside>,
}

/// Frames that a kernel device dropped because its ring was full.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Outside {
    netdev: String,
    frames: u64,
    advice: String,
}

/// Runs the command.
pub(crate) fn run(args: &WhyArgs, api: &dyn Api, out: &mut dyn Write) -> Result<(), Failure> {
    run_at(args, api, out, SystemTime::now())
}

fn run_at(
    args: &WhyArgs,
    api: &dyn Api,
    out: &mut dyn Write,
    now: SystemTime,
) -> Result<(), Failure> {
    let mut all = String::new();
    let mut reports = Vec::new();
    for link in links(api, Some(&args.name))? {
        let stats = read(api, Some(&args.name))?;
        let stopped = stats.iter().flat_map(|stats| answers(stats, now)).collect();
        let dropped_outside = stats.iter().flat_map(outside).collect();
        let (name, state, reason) = (link.name.clone(), link.state, link.reason.clone());
        let (rx_buffers, notes) = (overruled(&link), link.notes.clone());
        let dropped = link.recent_drops.clone();
        let report = Report {
            link: name,
            state,
            reason,
            stopped,
            notes,
            rx_buffers,
            dropped,
            dropped_outside,
        };
        all += &text(&link, &report);
        reports.push(report);
    }
    if args.json {
        all = json_text(&reports, true)?;
    }
    put(out, &all)
}

/// Lines for RX queues with a buffer layout other than the requested one.
fn overruled(link: &LinkInfo) -> Vec<String> {
    let is_other = |b: &RxBufferInfo| b.asked != "auto" && b.asked != b.layout;
    let rx_buffers = link.rx_buffers.iter().filter(|b| is_other(b)).cloned().collect();
    rx_lines(&LinkInfo { rx_buffers, ..link.clone() })
}

fn answers(stats: &LinkStats, now: SystemTime) -> Vec<Answer> {
    let lanes = stats.channels.iter().flat_map(|c| [(c.id, &c.a_to_b), (c.id, &c.b_to_a)]);
    let stopped = lanes.filter(|(_, lane)| lane.state == StopState::Stopped);
    stopped.map(|(channel, lane)| answer(channel, lane, now)).collect()
}

fn outside(stats: &LinkStats) -> Vec<Outside> {
    let sides = [(&stats.a, stats.dropped_outside_a), (&stats.b, stats.dropped_outside_b)];
    let dropped = |(netdev, frames): (&String, Option<u64>)| {
        let (netdev, frames) = (netdev.clone(), frames.filter(|&frames| frames > 0)?);
        let advice = format!(
            "make its ring longer (ip link set {netdev} txqueuelen 4000), or use Linux 7.3, where \
             a full ring stops the sender (IFF_BACKPRESSURE, which mqnet sets; it needs a qdisc on \
             {netdev}: tc qdisc replace dev {netdev} root fq_codel)"
        );
        Some(Outside { netdev, frames, advice })
    };
    sides.into_iter().filter_map(dropped).collect()
}

fn answer(channel: u16, lane: &LaneStats, now: SystemTime) -> Answer {
    let (by, cause, for_ns) = match &lane.stopped {
        Some(stopped) => (stopped.by.clone(), stopped.cause, stopped.for_ns),
        None => ("the cause is not known".to_owned(), StopCause::Device, 0),
    };
    let since = now.checked_sub(Duration::from_nanos(for_ns)).unwrap_or(SystemTime::UNIX_EPOCH);
    let since = since.max(SystemTime::UNIX_EPOCH);
    Answer {
        channel,
        from: lane.from.clone(),
        to: lane.to.clone(),
        since: humantime::format_rfc3339_millis(since).to_string(),
        for_ns,
        advice: advice(cause, &lane.to, for_ns),
        by,
    }
}

/// Setting that helps, by cause and duration of the stop.
fn advice(cause: StopCause, to: &str, for_ns: u64) -> String {
    if for_ns < 1_000_000_000 {
        return format!(
            "nothing, if the queue is woken within a second: a slower sink sometimes stops its \
             source (mqnet top {to} shows how often)"
        );
    }
    match cause {
        StopCause::Peer => format!(
            "check the host behind {to}: is its mqnet frozen (kill -CONT), without a CPU, or also \
             stopped (run mqnet why there)?"
        ),
        StopCause::Memory => {
            format!("free memory, or raise the limit of this cgroup: {to} then accepts frames")
        }
        StopCause::Device => {
            format!("find out why {to} does not accept frames (mqnet show {to}, mqnet stats {to})")
        }
    }
}

fn text(link: &LinkInfo, report: &Report) -> String {
    let mut out = format!("link {}: {}\n", link.name, standing(link));
    if link.state == LinkState::Down {
        out += "no frames are moved until it is up again; mqnet retries\n";
    }
    let dropped = drops::lines(link).join("; ");
    if report.stopped.is_empty() && link.state != LinkState::Down {
        out += "nothing is stopped";
        out += if dropped.is_empty() { "\n" } else { "; " };
    }
    if !dropped.is_empty() {
        let _ = writeln!(out, "{dropped}");
    }
    for note in &report.notes {
        let _ = writeln!(out, "{note}");
    }
    for line in &report.rx_buffers {
        let _ = writeln!(out, "{line}");
    }
    for Outside { netdev, frames, advice } in &report.dropped_outside {
        let _ = writeln!(
            out,
            "\n{netdev}: the kernel's ring was full and dropped {frames} frames before mqnet \
             received them\n  do: {advice}",
        );
    }
    for stopped in &report.stopped {
        let _ = writeln!(
            out,
            "\nchannel {}: the TX queue of {} is stopped, so frames of {} wait\n  since {} (for \
             {})\n  by: {}\n  do: {}",
            stopped.channel,
            stopped.to,
            stopped.from,
            stopped.since,
            duration(stopped.for_ns),
            stopped.by,
            stopped.advice
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::stats::fixture::{FakeApi, link, stats};

    fn explain(state: &str, stats: &LinkStats, json: bool) -> String {
        explain_link(link(state), stats, json)
    }

    fn explain_link(link: LinkInfo, stats: &LinkStats, json: bool) -> String {
        let api = FakeApi::default().on("/v1/links", vec![link]).on("/v1/links/ntb0/stats", stats);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let mut out = Vec::new();
        run_at(&WhyArgs { name: "ntb0".into(), json }, &api, &mut out, now).unwrap();
        String::from_utf8(out).unwrap()
    }

    // Goal: a stopped lane is printed with queue, time, cause and setting; other lanes are not
    // printed.
    #[test]
    fn a_stopped_lane() {
        let text = explain("up", &stats(2), false);
        assert_eq!(text.matches("is stopped").count(), 1, "{text}");
        for words in [
            "channel 1: the TX queue of ntb0 is stopped, so frames of vm0 wait",
            "since 2001-09-09T01:46:38.750Z (for 1.25 s)",
            "by: the peer's ring is full",
            "do: check the host behind ntb0",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        for words in [": the kernel's ring was full and dropped 7 frames", "txqueuelen 4000"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let value: Value = serde_json::from_str(&explain("up", &stats(2), true)).unwrap();
        assert_eq!(value[0]["stopped"][0]["channel"], 1);
        assert_eq!(value[0]["stopped"][0]["since"], "2001-09-09T01:46:38.750Z");
    }

    // Goal: the output states that nothing is stopped, or that a link is down.
    #[test]
    fn nothing_stopped_and_down() {
        let mut quiet = stats(2);
        quiet.channels.truncate(1);
        quiet.dropped_outside_a = None;
        assert!(explain("up", &quiet, false).ends_with("nothing is stopped\n"));
        assert!(explain("down", &quiet, false).starts_with("link vm0: down (the peer has ended)"));
    }

    // Goal: recently dropped frames are printed with reason, count and setting, with or without a
    // stopped lane.
    #[test]
    fn drops_of_the_last_seconds() {
        let drops = |netdev: &str, reason: &str, frames| RecentDrops {
            netdev: netdev.into(),
            sends: true,
            reason: reason.into(),
            frames,
        };
        let recent_drops = vec![drops("ntb0", "device-down", 5), drops("vm0", "sink-full", 1)];
        let mut quiet = stats(2);
        quiet.channels.truncate(1);
        let dropping = |state| LinkInfo { recent_drops: recent_drops.clone(), ..link(state) };
        let text = explain_link(dropping("up"), &quiet, false);
        let line = "\nnothing is stopped; 5 frames dropped: device-down (ip link set ntb0 up); \
                    1 frame dropped: sink-full (vm0 was full";
        assert!(text.contains(line), "{text}");
        for text in [
            explain_link(dropping("up"), &stats(2), false),
            explain_link(dropping("down"), &quiet, false),
        ] {
            assert!(text.contains("\n5 frames dropped: device-down"), "{text}");
        }
        let value: Value =
            serde_json::from_str(&explain_link(dropping("up"), &quiet, true)).unwrap();
        assert_eq!(value[0]["dropped"][0]["reason"], "device-down");
    }

    // Goal: a stop that began before the epoch is printed without a panic.
    #[test]
    fn absurd_times() {
        let mut odd = stats(2);
        odd.channels[1].a_to_b.stopped.as_mut().unwrap().for_ns = u64::MAX;
        assert!(explain("up", &odd, false).contains("since 1970-01-01T00:00:00.000Z"));
    }
}
