//! Results of a run: numbers, verdict and table.

use std::fmt::Write;

use mqnet_command::si;
use serde::Serialize;

use super::protocol::{KernelCounters, Side, StreamReport, millis};
use super::script::{Played, RUN_BEFORE, RUN_FAST, RUN_KILL};
use super::world::{Counters, HostState, Life};

/// Width of the output in columns.
const COLUMNS: usize = 80;

/// All numbers of a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    verified: bool,
    /// Deviations from the expected result.
    problems: Vec<String>,
    seconds: f64,
    tcp_streams: u32,
    /// Results from left to right, then from right to left.
    directions: [Direction; 2],
    heal: Heal,
    links: Vec<LinkReport>,
}

/// One direction of the traffic.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Direction {
    from: Side,
    tcp_gb_per_s: f64,
    tcp_bytes_verified: u64,
    tcp_segments_sent_again: u64,
    /// Frames dropped because the TAP ring of the sender was full, in the whole run.
    dropped_outside: u64,
    udp_frames_per_s: f64,
    udp_fast: Datagrams,
    /// Datagrams while the link was killed and recovered: one per flow every 2 ms.
    udp_through_the_kill: Datagrams,
}

/// One run of datagrams in one direction.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Datagrams {
    sent: u64,
    received: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    corrupt: u64,
    /// Frames dropped during the run because the TAP ring of the sender was full.
    dropped_outside: u64,
    /// Datagrams dropped because the socket buffer of the receiver was full.
    socket_full: u64,
    bad_checksum: u64,
    /// Datagrams that the sender's kernel refused while the link was down.
    refused: u64,
}

/// Outage of the link. Times in milliseconds are relative to SIGKILL.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Heal {
    /// Time of SIGKILL, in seconds after the start.
    killed_at_s: f64,
    restarted_ms: f64,
    up_ms: f64,
    /// Time at which the first TCP stream in either direction received bytes again;
    /// `all_streams_ms` is the time at which all streams had received bytes again.
    first_bytes_ms: f64,
    all_streams_ms: f64,
    /// Frames that the surviving link had handed over and the killed link had not taken.
    peer_lost: u64,
    why_down: String,
}

/// One link process.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct LinkReport {
    host: Side,
    life: usize,
    ended: String,
    killed: bool,
    /// Result of the conservation check in both directions; none if the counters were lost with the
    /// process.
    conserved: Option<bool>,
    kicks_per_frame: f64,
    counters: Counters,
    series: Vec<Sample>,
}

/// Bytes of each channel at one time: from the TAP to the NTB, and from the NTB to the TAP.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Sample {
    at_s: f64,
    tap_to_ntb: Vec<u64>,
    ntb_to_tap: Vec<u64>,
}

impl Sample {
    fn new(started: u64, (at, counters): &(u64, Counters)) -> Self {
        Self {
            at_s: millis(started, *at) / 1e3,
            tap_to_ntb: counters.channels.iter().map(|c| c.a_to_b.rx_bytes).collect(),
            ntb_to_tap: counters.channels.iter().map(|c| c.b_to_a.rx_bytes).collect(),
        }
    }
}

impl Report {
    pub(super) fn new(played: &Played, world: &[HostState; 2]) -> Self {
        let links = links(played.started, world);
        let directions = Side::BOTH.map(|from| Direction::new(from, played, world));
        let mut problems = stream_problems(world);
        for direction in &directions {
            direction.problems(played, &mut problems);
        }
        for link in &links {
            link.problems(&mut problems);
        }
        Self {
            verified: problems.is_empty(),
            problems,
            seconds: millis(played.started, played.ended) / 1e3,
            tcp_streams: played.streams,
            directions,
            heal: Heal::new(played, world),
            links,
        }
    }

    pub(super) fn problems(&self) -> &[String] {
        &self.problems
    }
}

fn links(started: u64, world: &[HostState; 2]) -> Vec<LinkReport> {
    let lives = world.iter().zip(Side::BOTH).flat_map(|(host, side)| {
        host.lives.iter().enumerate().map(move |(i, life)| (side, i, life))
    });
    lives.map(|(host, life, state)| LinkReport::new(started, host, life, state)).collect()
}

impl LinkReport {
    fn new(started: u64, host: Side, life: usize, state: &Life) -> Self {
        let counters = state.last().cloned().unwrap_or_default();
        let sums = [&counters.sums.a_to_b, &counters.sums.b_to_a];
        let frames: u64 = sums.iter().map(|s| s.tx_packets).sum();
        let kicks: u64 = sums.iter().map(|s| s.kicks).sum();
        let conserved = sums.iter().all(|s| s.in_flight == 0);
        Self {
            host,
            life,
            ended: state.status.clone().unwrap_or_else(|| "no end seen".into()),
            killed: state.killed.is_some(),
            conserved: state.end.is_some().then_some(conserved),
            kicks_per_frame: kicks as f64 / frames.max(1) as f64,
            series: state.samples.iter().map(|s| Sample::new(started, s)).collect(),
            counters,
        }
    }

    /// Name of the host and number of the process.
    fn name(&self) -> String {
        format!("{} {}", self.host.name(), self.life + 1)
    }

    fn problems(&self, problems: &mut Vec<String>) {
        let name = format!("{} link, process {}", self.host.name(), self.life + 1);
        if self.killed {
            return;
        }
        if !self.ended.ends_with("status: 0") {
            problems.push(format!("{name}: ended with {}", self.ended));
        }
        match self.conserved {
            Some(true) => {}
            Some(false) => problems.push(format!("{name}: frames in flight at the end")),
            None => problems.push(format!("{name}: printed no counters at its end")),
        }
    }
}

/// Problems of the TCP streams: different numbers of streams, errors, wrong or missing bytes.
fn stream_problems(world: &[HostState; 2]) -> Vec<String> {
    let mut problems = Vec::new();
    let none = Vec::new();
    let [left, right] = [0, 1].map(|i| world[i].tcp_done.as_ref().unwrap_or(&none));
    let ids = |streams: &[StreamReport]| streams.iter().map(|s| s.id).collect::<Vec<_>>();
    if left.is_empty() || ids(left) != ids(right) {
        problems.push(format!("TCP: {} streams left, {} right", left.len(), right.len()));
    }
    for (from, to, side) in left
        .iter()
        .zip(right)
        .map(|(l, r)| (l, r, Side::Left))
        .chain(right.iter().zip(left).map(|(r, l)| (r, l, Side::Right)))
    {
        let name = format!("TCP stream {} from the {}", from.id, side.name());
        if let Some(error) = &from.error {
            problems.push(format!("{name}: {error}"));
        }
        if let Some(at) = to.wrong_at {
            problems.push(format!("{name}: a wrong byte at {at}"));
        }
        if from.sent != to.verified {
            problems.push(format!("{name}: {} bytes sent, {} verified", from.sent, to.verified));
        }
    }
    problems
}

impl Direction {
    fn new(from: Side, played: &Played, world: &[HostState; 2]) -> Self {
        let (sender, receiver) = (&world[from as usize], &world[from.other() as usize]);
        let run = |number, before| Datagrams::new(sender, receiver, number, before);
        let fast = run(RUN_FAST, RUN_BEFORE);
        let seconds = sender.udp_run(RUN_FAST).nanos.max(1) as f64 / 1e9;
        Self {
            from,
            tcp_gb_per_s: receiver.tcp_rate(played.tcp.0, played.tcp.1) * 8.0 / 1e9,
            tcp_bytes_verified: receiver.tcp_done.iter().flatten().map(|s| s.verified).sum(),
            tcp_segments_sent_again: sender.udp_run(RUN_KILL).kernel().retransmitted,
            dropped_outside: sender.udp_run(RUN_KILL).kernel().tap_dropped,
            udp_frames_per_s: fast.received as f64 / seconds,
            udp_fast: fast,
            udp_through_the_kill: run(RUN_KILL, RUN_FAST),
        }
    }

    fn problems(&self, played: &Played, problems: &mut Vec<String>) {
        let fast = &self.udp_fast;
        for run in [fast, &self.udp_through_the_kill] {
            let name = format!("UDP from the {}", self.from.name());
            if run.corrupt + run.duplicated > 0 {
                let (corrupt, double) = (run.corrupt, run.duplicated);
                problems.push(format!("{name}: {corrupt} corrupt, {double} duplicated"));
            }
            if run.sent == 0 || run.received == 0 {
                problems.push(format!("{name}: {} sent, {} received", run.sent, run.received));
            }
        }
        // The fast run has no kill, so a counter must account for every lost datagram.
        let known = fast.dropped_outside + fast.socket_full + fast.bad_checksum + played.given_up;
        if fast.lost > known {
            let (lost, from) = (fast.lost, self.from.name());
            problems.push(format!("UDP from the {from}: {lost} lost, only {known} accounted for"));
        }
    }
}

impl Datagrams {
    fn new(sender: &HostState, receiver: &HostState, number: u32, before: u32) -> Self {
        let (sent, came) = (sender.udp_run(number), receiver.udp_run(number));
        let tally = came.tally();
        let since = |host: &HostState, of: fn(&KernelCounters) -> u64| {
            let [now, then] = [number, before].map(|n| of(&host.udp_run(n).kernel()));
            now.saturating_sub(then)
        };
        Self {
            sent: sent.sent(),
            received: tally.received,
            lost: tally.lost_of(sent.sent()),
            duplicated: tally.duplicated,
            reordered: tally.reordered,
            corrupt: tally.corrupt,
            dropped_outside: since(sender, |k| k.tap_dropped),
            socket_full: since(receiver, |k| k.socket_full),
            bad_checksum: since(receiver, |k| k.bad_checksum),
            refused: sent.refused,
        }
    }

    /// Known reasons of losses with their counts, as text.
    fn reasons(&self) -> String {
        let mut out = String::new();
        for (n, reason) in [
            (self.dropped_outside, "dropped-outside (the kernel's ring)"),
            (self.socket_full, "socket buffer full"),
            (self.bad_checksum, "bad checksum"),
            (self.refused, "refused by the kernel"),
        ] {
            if n > 0 {
                let _ = write!(out, ", {n} {reason}");
            }
        }
        out
    }
}

/// Milliseconds from the kill until a stream received bytes again; 0 if its pause was too short to
/// be recorded.
fn resumed(stream: &StreamReport, played: &Played) -> f64 {
    // The last pause that began before the link was up again counts: frames in flight at the kill
    // may have split the outage into two pauses.
    let during = stream.gaps.iter().rev().find(|g| g.1 >= played.killed && g.0 <= played.up);
    during.map_or(0.0, |g| millis(played.killed, g.1))
}

impl Heal {
    fn new(played: &Played, world: &[HostState; 2]) -> Self {
        let streams = world.iter().flat_map(|h| h.tcp_done.iter().flatten());
        let times: Vec<f64> = streams.map(|s| resumed(s, played)).collect();
        let survivor = world[0].lives.first();
        let lost = survivor.and_then(Life::last).map_or(0, |c| c.sums.a_to_b.tx_lost);
        let down = survivor.and_then(|l| l.downs.iter().find(|d| d.0 >= played.killed));
        Self {
            killed_at_s: millis(played.started, played.killed) / 1e3,
            restarted_ms: millis(played.killed, played.restarted),
            up_ms: millis(played.killed, played.up),
            first_bytes_ms: times.iter().copied().reduce(f64::min).unwrap_or_default(),
            all_streams_ms: times.iter().copied().reduce(f64::max).unwrap_or_default(),
            peer_lost: lost,
            why_down: down.map(|d| d.1.clone()).unwrap_or_default(),
        }
    }
}

impl Report {
    /// Final table.
    pub(super) fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_traffic(&mut out);
        let _ = self.write_heal(&mut out);
        let _ = self.write_links(&mut out);
        let _ = self.write_check(&mut out);
        out
    }

    fn row(out: &mut String, name: &str, values: [String; 2]) -> std::fmt::Result {
        writeln!(out, "{name:<38} {:>18} {:>18}", values[0], values[1])
    }

    fn write_traffic(&self, out: &mut String) -> std::fmt::Result {
        let each =
            |f: &dyn Fn(&Direction) -> String| [f(&self.directions[0]), f(&self.directions[1])];
        let streams = self.tcp_streams;
        writeln!(out)?;
        Self::row(out, "traffic", ["left -> right", "right -> left"].map(str::to_owned))?;
        let name = format!("TCP, {streams} streams");
        Self::row(out, &name, each(&|d| format!("{:.2} Gb/s", d.tcp_gb_per_s)))?;
        Self::row(out, "  verified", each(&|d| si(d.tcp_bytes_verified as f64) + "B"))?;
        let again = each(&|d| d.tcp_segments_sent_again.to_string());
        Self::row(out, "  segments sent again", again)?;
        let outside = each(&|d| d.dropped_outside.to_string());
        Self::row(out, "  dropped-outside (the kernel's ring)", outside)?;
        Self::row(
            out,
            "UDP, frames of 66 to 1514 B",
            each(&|d| si(d.udp_frames_per_s) + "frames/s"),
        )?;
        let tally = |f: &Datagrams| format!("{} of {}", f.lost, f.sent);
        Self::row(out, "  lost", each(&|d| tally(&d.udp_fast)))?;
        let other = |f: &Datagrams| format!("{} / {} / {}", f.duplicated, f.reordered, f.corrupt);
        Self::row(out, "  duplicated / reordered / corrupt", each(&|d| other(&d.udp_fast)))?;
        Self::row(
            out,
            "UDP while the link was down: lost",
            each(&|d| tally(&d.udp_through_the_kill)),
        )?;
        let quiet = each(&|d| other(&d.udp_through_the_kill));
        Self::row(out, "  duplicated / reordered / corrupt", quiet)?;
        for direction in &self.directions {
            let runs = [("", &direction.udp_fast), (" (kill)", &direction.udp_through_the_kill)];
            for (name, run) in runs {
                let reasons = run.reasons();
                if let Some(reasons) = reasons.strip_prefix(", ") {
                    writeln!(out, "  from the {}{name}: {reasons}", direction.from.name())?;
                }
            }
        }
        Ok(())
    }

    fn write_heal(&self, out: &mut String) -> std::fmt::Result {
        let heal = &self.heal;
        writeln!(out, "\nSIGKILL of the right link, times after the signal")?;
        Self::step(out, "new process started", heal.restarted_ms)?;
        Self::step(out, "link up", heal.up_ms)?;
        Self::step(out, "first TCP stream receives bytes again", heal.first_bytes_ms)?;
        Self::step(out, "all TCP streams (same connections)", heal.all_streams_ms)?;
        let name = "  frames lost with the process (peer-lost)";
        writeln!(out, "{name:<46} {:>10}", heal.peer_lost)?;
        write_wrapped(out, &format!("  reason shown by the left link: {}", heal.why_down))
    }

    fn step(out: &mut String, name: &str, millis: f64) -> std::fmt::Result {
        writeln!(out, "  {name:<44} {millis:>10.0} ms")
    }

    fn write_links(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\n{:<7} {:<10} {:>2} {:>10} {:>9} {:>10} {:>6} {:>5} {:>6} {:>6}",
            "process",
            "direction",
            "ch",
            "rx-packets",
            "rx-bytes",
            "tx-packets",
            "drops",
            "lost",
            "stops",
            "kicks"
        )?;
        for link in &self.links {
            for (i, lanes) in link.counters.channels.iter().enumerate() {
                for (lane, direction) in
                    [(&lanes.a_to_b, "tap -> ntb"), (&lanes.b_to_a, "ntb -> tap")]
                {
                    writeln!(
                        out,
                        "{:<7} {direction:<10} {i:>2} {:>10} {:>9} {:>10} {:>6} {:>5} {:>6} {:>6}",
                        link.name(),
                        lane.rx_packets,
                        si(lane.rx_bytes as f64).trim_end(),
                        lane.tx_packets,
                        lane.dropped(),
                        lane.tx_lost,
                        lane.tx_stop,
                        lane.kicks
                    )?;
                }
            }
        }
        Ok(())
    }

    fn write_check(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\nconservation check (frames in = frames out + drops + in flight)")?;
        for link in &self.links {
            let name = link.name();
            if link.killed {
                let ended = &link.ended;
                let text = format!(
                    "  {name}: killed ({ended}), no final counters; the table shows its last report"
                );
                write_wrapped(out, &text)?;
                continue;
            }
            let sums = &link.counters.sums;
            for (lane, direction) in [(&sums.a_to_b, "tap -> ntb"), (&sums.b_to_a, "ntb -> tap")] {
                let holds = if lane.in_flight == 0 { "holds" } else { "BROKEN" };
                let equation = lane.equation();
                write_wrapped(out, &format!("  {name} {direction}: {holds}: {equation}"))?;
            }
        }
        let verdict = if self.verified { "every byte verified" } else { "NOT VERIFIED" };
        writeln!(out, "\n{verdict}, in {:.1} s", self.seconds)
    }
}

/// Writes one paragraph in lines of at most [`COLUMNS`] columns, indented from the second line on.
fn write_wrapped(out: &mut String, text: &str) -> std::fmt::Result {
    let options = textwrap::Options::new(COLUMNS).subsequent_indent("      ");
    textwrap::wrap(text, options).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Three commands to try after the demo; `program` is the path of the running program.
pub(super) fn next_steps(program: &str) -> String {
    // A longer path leaves no space for the meaning within 80 columns.
    let program = if program.len() <= 20 { program } else { "mqnet" };
    let steps = [
        ("doctor", "check this kernel and user"),
        ("demo --plot demo.svg", "draw the throughput"),
        ("link --help", "join endpoints of your own"),
    ];
    let line = |(command, meaning)| format!("  {program} {command:<22} # {meaning}\n");
    "\nTry next:\n".to_owned() + &steps.map(line).concat()
}

#[cfg(test)]
mod tests {
    use mqnet_daemon::status::DirectionSums;

    use super::*;
    use crate::world::Lanes;

    const MS: u64 = 1_000_000;

    fn stream(sent: u64, verified: u64) -> StreamReport {
        StreamReport { sent, verified, ..StreamReport::default() }
    }

    fn problems(left: StreamReport, right: StreamReport) -> String {
        let host = |s| HostState { tcp_done: Some(vec![s]), ..HostState::default() };
        stream_problems(&[host(left), host(right)]).join("; ")
    }

    // Goal: a stream passes only if each end verified exactly the bytes that the other end sent.
    #[test]
    fn streams_must_match() {
        assert_eq!(problems(stream(10, 20), stream(20, 10)), "");
        assert!(problems(stream(10, 20), stream(20, 9)).contains("10 bytes sent, 9 verified"));
        let wrong = StreamReport { wrong_at: Some(7), ..stream(20, 10) };
        assert!(problems(stream(10, 20), wrong).contains("from the left: a wrong byte at 7"));
        let broken = StreamReport { error: Some("reset".into()), ..stream(10, 20) };
        assert!(problems(broken, stream(20, 10)).contains("reset"));
        assert!(!stream_problems(&Default::default()).is_empty());
    }

    // Goal: the end of the outage is the end of the pause that the kill caused, not of another
    // pause.
    #[test]
    fn outage_is_the_silence_of_the_kill() {
        let played = Played { killed: 100 * MS, up: 130 * MS, ..Played::default() };
        let gaps = vec![(10, 20), (99, 105), (106, 300), (500, 900)];
        let gaps = gaps.into_iter().map(|(from, to)| (from * MS, to * MS)).collect();
        let with = StreamReport { gaps, ..StreamReport::default() };
        assert!((resumed(&with, &played) - 200.0).abs() < 1e-9);
        assert!(resumed(&StreamReport::default(), &played).abs() < 1e-9);
    }

    // Goal: a loss without a counter is reported as a problem; a loss with a counter is not.
    #[test]
    fn losses_need_a_reason() {
        let world: [HostState; 2] = Default::default();
        let played = Played::default();
        let mut direction = Direction::new(Side::Left, &played, &world);
        for run in [&mut direction.udp_fast, &mut direction.udp_through_the_kill] {
            (run.sent, run.received, run.lost) = (10, 8, 2);
        }
        let of = |direction: &Direction| {
            let mut problems = Vec::new();
            direction.problems(&played, &mut problems);
            problems.join("; ")
        };
        assert!(of(&direction).contains("2 lost, only 0 accounted for"));
        direction.udp_fast.dropped_outside = 2;
        assert_eq!(of(&direction), "");
        direction.udp_through_the_kill.corrupt = 1;
        assert!(of(&direction).contains("1 corrupt"));
    }

    // Goal: the output fits a terminal of 80 columns, also with large numbers and long reasons.
    #[test]
    fn output_fits_80_columns() {
        let mut world: [HostState; 2] = Default::default();
        for (host, killed) in world.iter_mut().zip([None, Some(MS)]) {
            let lane: DirectionSums = serde_json::from_value(serde_json::json!({
                "rx-packets": 9_876_543_210_u64, "rx-bytes": 1_u64 << 40, "tx-packets": 1,
                "tx-stop": 987_654, "tx-lost": 12_345, "kicks": 654_321,
                "drops": {"sink-full": 123_456, "no-buffer": 7}, "in-flight": 99,
            }))
            .unwrap();
            let lanes = Lanes { a_to_b: lane.clone(), b_to_a: lane };
            let counters = Counters { channels: vec![lanes.clone()], sums: lanes };
            let samples = vec![(0, counters)];
            let status = Some("signal: 9 (SIGKILL) (core dumped)".into());
            let life = Life { samples, status, killed, ..Life::default() };
            host.lives.push(life);
        }
        let mut report = Report::new(&Played::default(), &world);
        report.heal.why_down = "the peer closed its connection without a reason, ".repeat(4);
        let text = report.table() + &next_steps("target/release/mqnet");
        assert!(text.contains("right 1: killed") && text.contains("9876543210"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
        assert_eq!(text.trim_end().lines().rev().take_while(|l| l.starts_with("  ")).count(), 3);
    }
}
