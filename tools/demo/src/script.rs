//! Phases of the demo.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use mqnet_command::{Failure, si};
use mqnet_sysio::signal::StopSignals;

use super::peer::{Folder, Host, Progress};
use super::protocol::{CHANNELS, Event, INTERVAL_MS, Order, Side, millis, now};
use super::world::{HostState, Received};

/// Time limit of any step, for a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
/// Number of streams opened per attempt, until every channel has traffic.
const STREAMS: u32 = 4;
const STREAMS_MAX: u32 = 16;
/// Share of the frames below which a channel is regarded as idle.
const IDLE_SHARE: f64 = 0.05;
/// Number of the datagram run for warm-up. The fast run and the run during the kill follow.
pub(super) const RUN_BEFORE: u32 = 0;
pub(super) const RUN_FAST: u32 = 1;
pub(super) const RUN_KILL: u32 = 2;
/// Interval between datagrams of a flow during the kill.
const KILL_PACE_US: u64 = 2000;

/// Times of the run (nanoseconds of the monotonic clock).
#[derive(Clone, Debug, Default)]
pub(super) struct Played {
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) tcp: (u64, u64),
    pub(super) udp: (u64, u64),
    pub(super) kill: (u64, u64),
    pub(super) killed: u64,
    /// Time at which the new process was started; `up` is the time at which both ends had reported
    /// "up".
    pub(super) restarted: u64,
    pub(super) up: u64,
    /// Frames dropped by the links during the fast datagram run.
    pub(super) given_up: u64,
    pub(super) streams: u32,
}

/// Hosts and their state.
pub(super) struct Script {
    hosts: Vec<Host>,
    events: Receiver<(Side, Option<Event>)>,
    world: [HostState; 2],
    signals: StopSignals,
    show: Progress,
    // The folder is the last field: it must be removed after the hosts have ended.
    _folder: Folder,
}

impl Script {
    pub(super) fn start() -> Result<Self, Failure> {
        // The signals are blocked before the first thread starts, so that no thread receives one.
        let signals = StopSignals::take()?;
        let folder = Folder::new().map_err(Failure::Broken)?;
        let (sender, events) = channel();
        let mut hosts = Vec::new();
        for side in Side::BOTH {
            let host = Host::start(side, &folder.socket(), sender.clone());
            hosts.push(host.map_err(Failure::Broken)?);
        }
        let (world, show) = (Default::default(), Progress::new());
        Ok(Self { hosts, events, world, signals, show, _folder: folder })
    }

    /// Runs all phases.
    pub(super) fn play(&mut self, seconds: u64) -> Result<Played, Failure> {
        let part = |share: f64| Duration::from_secs(seconds).mul_f64(share);
        let mut played = Played { started: now(), ..Played::default() };
        self.build()?;
        self.tcp(&mut played, part(0.4))?;
        self.udp(&mut played, part(0.25))?;
        self.kill(&mut played, part(0.35))?;
        self.finish()?;
        played.ended = now();
        Ok(played)
    }

    /// Ends the hosts and returns their state.
    pub(super) fn end(mut self) -> [HostState; 2] {
        self.hosts.iter_mut().for_each(Host::dismiss);
        std::mem::take(&mut self.world)
    }

    fn send(&mut self, side: Side, order: &Order) -> Result<(), Failure> {
        self.hosts[side as usize].send(order).map_err(Failure::Broken)
    }

    fn send_both(&mut self, order: &Order) -> Result<(), Failure> {
        Side::BOTH.into_iter().try_for_each(|side| self.send(side, order))
    }

    fn host(&self, side: Side) -> &HostState {
        &self.world[side as usize]
    }

    /// Waits for an event until `until`, at most 50 ms, and processes all queued events. A stop
    /// signal or the end of a host is an error.
    fn listen(&mut self, until: Instant) -> Result<(), Failure> {
        if self.signals.pending() {
            return Err(Failure::Broken("interrupted".into()));
        }
        let wait = until.saturating_duration_since(Instant::now()).min(Duration::from_millis(50));
        let mut next = match self.events.recv_timeout(wait) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(e) => return Err(e.into()),
        };
        while let Some((side, event)) = next {
            let host = &mut self.world[side as usize];
            let gone = || Err("process ended unexpectedly".to_owned());
            let done = event.map_or_else(gone, |event| host.take(event));
            done.map_err(|what| Failure::Broken(format!("{} host: {what}", side.name())))?;
            next = self.events.try_recv().ok();
        }
        let world = &self.world;
        self.show.live(|| live_text(world));
        Ok(())
    }

    fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.listen(until)?;
        }
        Ok(())
    }

    /// Waits until a condition holds; an error after [`LIMIT`].
    fn wait(&mut self, what: &str, done: impl Fn(&[HostState; 2]) -> bool) -> Result<(), Failure> {
        let until = Instant::now() + LIMIT;
        while !done(&self.world) {
            if Instant::now() > until {
                let limit = LIMIT.as_secs();
                return Err(Failure::Broken(format!("{what}: not done after {limit} s")));
            }
            self.listen(until)?;
        }
        Ok(())
    }

    /// Waits until no data has been received for three report intervals.
    fn settle(&mut self, what: &str) -> Result<(), Failure> {
        let silence = 3 * INTERVAL_MS * 1_000_000;
        let from = now();
        self.wait(what, |world| {
            let last = world.iter().map(|h| h.now().at).max().unwrap_or_default();
            now() - last.max(from) > silence
        })
    }

    fn build(&mut self) -> Result<(), Failure> {
        self.show.phase("start two hosts");
        let start = now();
        self.wait("entering the namespaces", |w| w.iter().all(|h| h.ready))?;
        self.send_both(&Order::LinkStart)?;
        let up = |h: &HostState| h.lives.first().is_some_and(|l| !l.ups.is_empty());
        self.wait("the link comes up", |w| w.iter().all(up))?;
        self.send(Side::Left, &Order::Sockets { listen: false })?;
        self.send(Side::Right, &Order::Sockets { listen: true })?;
        self.wait("opening the sockets", |w| w.iter().all(|h| h.sockets))?;
        // The kernel uses a device only some time after its carrier is up. TCP repeats a connection
        // request lost before that time after a second. Send datagrams first, until they arrive.
        self.send_both(&Order::UdpStart { run: RUN_BEFORE, pace_us: Some(KILL_PACE_US) })?;
        self.wait("the hosts reach each other", |w| w.iter().all(|h| h.now().udp > 0))?;
        self.udp_stop(RUN_BEFORE)?;
        self.show.done(&format!("link up after {:.0} ms", millis(start, now())));
        Ok(())
    }

    fn tcp(&mut self, played: &mut Played, time: Duration) -> Result<(), Failure> {
        self.show.phase("TCP in both directions");
        let mut wanted = 0;
        while wanted < STREAMS_MAX {
            wanted += STREAMS;
            self.send(Side::Left, &Order::Connect { streams: STREAMS })?;
            self.wait("connecting", |w| w[Side::Left as usize].streams >= wanted)?;
            let accepted = |h: &HostState| h.now().tcp.len() as u32 >= wanted;
            self.send_both(&Order::TcpRun { on: true })?;
            self.wait("accepting", |w| w.iter().all(accepted))?;
            let before = self.frames();
            self.pass(Duration::from_millis(5 * INTERVAL_MS))?;
            let frames: Vec<u64> = self.frames().iter().zip(before).map(|(n, b)| n - b).collect();
            // The kernel distributes flows over the queues by a hash that cannot be predicted, so
            // more streams are opened until no channel is idle.
            let least = frames.iter().min().map_or(0.0, |&n| n as f64);
            if least >= IDLE_SHARE * frames.iter().sum::<u64>() as f64 && least > 0.0 {
                break;
            }
        }
        played.streams = wanted;
        played.tcp.0 = now();
        self.pass(time)?;
        played.tcp.1 = now();
        let rates = self.tcp_rates(played.tcp);
        self.rest("the TCP streams finish")?;
        let [right, left] = rates.map(|r| r * 8.0 / 1e9);
        self.show.done(&format!("{right:.2} / {left:.2} Gb/s, {wanted} streams"));
        Ok(())
    }

    /// Stops the TCP senders and waits until all their data has been received.
    fn rest(&mut self, what: &str) -> Result<(), Failure> {
        self.send_both(&Order::TcpRun { on: false })?;
        self.settle(what)
    }

    /// TCP bytes per second received by each host, left to right first.
    fn tcp_rates(&self, (from, to): (u64, u64)) -> [f64; 2] {
        [Side::Right, Side::Left].map(|side| self.host(side).tcp_rate(from, to))
    }

    /// Received frames of each channel of the left link, both directions together.
    fn frames(&self) -> Vec<u64> {
        let link = self.host(Side::Left).link();
        let of = |i: u16| {
            let channel = link?.channels.get(usize::from(i))?;
            Some(channel.a_to_b.rx_packets + channel.b_to_a.rx_packets)
        };
        (0..CHANNELS).map(|i| of(i).unwrap_or_default()).collect()
    }

    fn given_up(&self) -> u64 {
        self.world.iter().filter_map(HostState::link).map(|l| l.given_up()).sum()
    }

    fn udp_report(&mut self, run: u32) -> Result<(), Failure> {
        self.send_both(&Order::UdpReport { run })?;
        let reported = |h: &HostState| h.udp.get(&run).is_some_and(|r| r.report.is_some());
        self.wait("the report of the datagrams", |w| w.iter().all(reported))
    }

    fn udp_stop(&mut self, run: u32) -> Result<(), Failure> {
        self.send_both(&Order::UdpStop)?;
        let sent = |h: &HostState| h.udp.get(&run).is_some_and(|r| r.sent.is_some());
        self.wait("the UDP senders stop", |w| w.iter().all(sent))
    }

    fn udp(&mut self, played: &mut Played, time: Duration) -> Result<(), Failure> {
        self.show.phase("UDP in both directions");
        self.udp_report(RUN_BEFORE)?;
        let before = self.given_up();
        self.send_both(&Order::UdpStart { run: RUN_FAST, pace_us: None })?;
        played.udp.0 = now();
        self.pass(time)?;
        played.udp.1 = now();
        self.udp_stop(RUN_FAST)?;
        self.settle("the datagrams arrive")?;
        self.udp_report(RUN_FAST)?;
        played.given_up = self.given_up() - before;
        let runs = Side::BOTH.map(|side| self.host(side).udp_run(RUN_FAST));
        let sent: u64 = runs.iter().map(|r| r.sent()).sum();
        let received: u64 = runs.iter().map(|r| r.tally().received).sum();
        let rate = sent as f64 * 1e9 / runs[0].nanos.max(1) as f64;
        let lost = sent.saturating_sub(received);
        self.show.done(&format!("{}frames/s, {lost} of {sent} lost", si(rate)));
        Ok(())
    }

    fn kill(&mut self, played: &mut Played, time: Duration) -> Result<(), Failure> {
        self.show.phase("SIGKILL the right link");
        played.kill.0 = now();
        self.send_both(&Order::TcpRun { on: true })?;
        self.send_both(&Order::UdpStart { run: RUN_KILL, pace_us: Some(KILL_PACE_US) })?;
        self.pass(time.mul_f64(0.3))?;
        self.send(Side::Right, &Order::LinkKill)?;
        self.send(Side::Right, &Order::LinkStart)?;
        let up_again = |w: &[HostState; 2]| {
            let restarted = w[1].lives.get(1).is_some_and(|l| !l.ups.is_empty());
            restarted && w[0].lives[0].ups.len() >= 2
        };
        self.wait("the link comes up after SIGKILL", up_again)?;
        let [left, right] = &self.world;
        let lives = &right.lives;
        played.killed = lives[0].killed.unwrap_or_default();
        played.restarted = lives[1].started;
        played.up = left.lives[0].ups[1].max(lives[1].ups[0]);
        let before = [left.now(), right.now()];
        let all_flow = |w: &[HostState; 2]| {
            let grew = |(h, b): (&HostState, &Received)| {
                h.now().tcp.iter().zip(&b.tcp).all(|(now, then)| now > then)
            };
            w.iter().zip(&before).all(grew)
        };
        self.wait("every TCP stream receives bytes again", all_flow)?;
        self.pass(time.mul_f64(0.7))?;
        played.kill.1 = now();
        self.udp_stop(RUN_KILL)?;
        self.rest("the TCP streams finish")?;
        self.udp_report(RUN_KILL)?;
        let outage = millis(played.killed, played.up);
        self.show.done(&format!("link up after {outage:.0} ms, all streams continue"));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.show.phase("stop the links");
        let start = now();
        self.send_both(&Order::TcpFinish)?;
        self.wait("the TCP streams end", |w| w.iter().all(|h| h.tcp_done.is_some()))?;
        self.pass(Duration::from_millis(2 * INTERVAL_MS))?;
        for side in Side::BOTH {
            self.send(side, &Order::LinkStop)?;
            let ended = |h: &HostState| h.lives.last().is_some_and(|l| l.status.is_some());
            self.wait("the link ends", |w| ended(&w[side as usize]))?;
        }
        self.show.done(&format!("done after {:.0} ms", millis(start, now())));
        Ok(())
    }
}

/// Text with the current throughput, from the last two reports of each host.
fn live_text(world: &[HostState; 2]) -> String {
    let rate = |host: &HostState| {
        let [.., before, last] = &host.received[..] else { return (0.0, 0.0) };
        let seconds = (last.at - before.at).max(1) as f64 / 1e9;
        // A host without new data sends no report, so its rate is 0.
        if millis(last.at, now()) > 4.0 * INTERVAL_MS as f64 {
            return (0.0, 0.0);
        }
        let tcp = last.tcp_sum().saturating_sub(before.tcp_sum()) as f64 * 8.0 / 1e9;
        (tcp / seconds, last.udp.saturating_sub(before.udp) as f64 / seconds)
    };
    let [(back, frames_back), (there, frames_there)] = [rate(&world[0]), rate(&world[1])];
    format!(
        "TCP {there:.2} / {back:.2} Gb/s, UDP {} / {} frames/s",
        si(frames_there).trim_end(),
        si(frames_back).trim_end()
    )
}
