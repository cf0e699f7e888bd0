//! Flows of numbered datagrams in both directions; every payload is verified.
//!
//! A fast flow has at most [`WINDOW`] unacknowledged datagrams, so that neither a TAP ring nor a
//! socket buffer overflows on a slow machine.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mqnet_traffic::{Pattern, Tally, Tracker, scatter};

use super::protocol::{FLOWS, Side, now};

const PORT: u16 = 7100;
const WINDOW: u64 = 48;
/// Number of datagrams per acknowledgement.
const ANSWER_EACH: u64 = 8;
/// Time without an acknowledgement after which datagrams in flight are regarded as lost by the
/// sender. The exact count comes from the tracker.
const PATIENCE: Duration = Duration::from_millis(200);
const HEADER: usize = 24;
/// Bytes of the longest datagram, which fits an MTU of 1500.
const LENGTH_MAX: usize = 1472;
const DATA: u32 = 0x6d71_4401;
const ANSWER: u32 = 0x6d71_4402;

#[derive(Debug)]
struct Flow {
    number: u16,
    socket: UdpSocket,
    /// Pattern of the datagrams of the other host; `ours` is the pattern of this host's datagrams.
    theirs: Pattern,
    ours: Pattern,
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Run of the datagrams that `tracker` counts.
    run: u32,
    tracker: Tracker,
    /// Number of this host's run; `arrived` is the number of its datagrams that have arrived or
    /// were overtaken.
    our_run: u32,
    arrived: u64,
}

/// Result of the senders of one run.
#[derive(Debug, Default)]
pub(super) struct SentRun {
    pub(super) run: u32,
    pub(super) sent: Vec<u64>,
    /// Datagrams that the kernel refused (no route while the link is down).
    pub(super) refused: u64,
    pub(super) nanos: u64,
}

/// The UDP flows of one host.
#[derive(Debug, Default)]
pub(super) struct Flows {
    flows: Vec<Arc<Flow>>,
    total: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<(u64, u64)>>,
    run: u32,
    started: u64,
}

impl Flows {
    /// Opens the sockets. From then on, all received datagrams are verified.
    pub(super) fn open(&mut self, side: Side) -> Result<(), String> {
        for number in 0..FLOWS {
            let port = PORT + number;
            let fail = |e| format!("UDP {}:{port}: {e}", side.address());
            let socket = UdpSocket::bind((side.address(), port)).map_err(fail)?;
            socket.connect((side.other().address(), port)).map_err(fail)?;
            let pattern = |from: Side| Pattern::new(1 << 40 | u64::from(number) << 1 | from as u64);
            let flow = Arc::new(Flow {
                number,
                socket,
                theirs: pattern(side.other()),
                ours: pattern(side),
                state: Mutex::default(),
                answered: Condvar::new(),
            });
            let (receiver, total) = (flow.clone(), self.total.clone());
            // The thread ends with the process.
            thread::spawn(move || receiver.receive(&total));
            self.flows.push(flow);
        }
        Ok(())
    }

    /// Counter of the received datagrams.
    pub(super) fn total(&self) -> Arc<AtomicU64> {
        self.total.clone()
    }

    /// Starts the senders of a run; without `pace` they send as soon as acknowledgements arrive.
    pub(super) fn start(&mut self, run: u32, pace: Option<Duration>) {
        self.run = run;
        self.started = now();
        self.stop = Arc::default();
        for flow in &self.flows {
            let (flow, stop) = (flow.clone(), self.stop.clone());
            self.senders.push(thread::spawn(move || match pace {
                None => flow.send_fast(run, &stop),
                Some(pace) => flow.send_paced(run, pace, &stop),
            }));
        }
    }

    /// Stops the senders and returns the numbers of sent and refused datagrams.
    pub(super) fn stop(&mut self) -> Result<SentRun, String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut done = SentRun { run: self.run, ..SentRun::default() };
        for sender in self.senders.drain(..) {
            let (sent, refused) = sender.join().map_err(|_| "a thread of the demo panicked")?;
            done.sent.push(sent);
            done.refused += refused;
        }
        done.nanos = now() - self.started;
        Ok(done)
    }

    /// Statistics of the other host's run, one entry per flow.
    pub(super) fn report(&self, run: u32) -> Vec<Tally> {
        let of = |flow: &Arc<Flow>| {
            let state = flow.lock();
            if state.run == run { state.tracker.tally() } else { Tally::default() }
        };
        self.flows.iter().map(of).collect()
    }
}

fn put(out: &mut [u8], kind: u32, run: u32, flow: u16, len: usize, number: u64) {
    out[..4].copy_from_slice(&kind.to_le_bytes());
    out[4..8].copy_from_slice(&run.to_le_bytes());
    out[8..12].copy_from_slice(&u32::from(flow).to_le_bytes());
    out[12..16].copy_from_slice(&(len as u32).to_le_bytes());
    out[16..24].copy_from_slice(&number.to_le_bytes());
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |n, &b| n << 8 | u32::from(b))
}

/// Length of the datagram with this number. Lengths vary, so that frames of every size occur.
fn length_of(number: u64) -> usize {
    HEADER + (scatter(number) % (LENGTH_MAX - HEADER + 1) as u64) as usize
}

impl Flow {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is usable: every field is always valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, total: &AtomicU64) {
        let mut bytes = [0; 2048];
        loop {
            match self.socket.recv(&mut bytes) {
                Ok(n) => self.take(&bytes[..n], total),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // The kernel reports the error of an earlier send while the link was down.
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn take(&self, bytes: &[u8], total: &AtomicU64) {
        if bytes.len() < HEADER {
            self.lock().tracker.note(0, 0, false);
            return;
        }
        let number = u64::from(word(bytes, 20)) << 32 | u64::from(word(bytes, 16));
        let (kind, run) = (word(bytes, 0), word(bytes, 4));
        let mut state = self.lock();
        if kind == ANSWER {
            if run == state.our_run && number > state.arrived {
                state.arrived = number;
                self.answered.notify_one();
            }
            return;
        }
        if kind == DATA && run < state.run {
            return; // A straggler of a run that has been reported.
        }
        let sound = kind == DATA
            && word(bytes, 8) == u32::from(self.number)
            && word(bytes, 12) as usize == bytes.len()
            && bytes.len() == length_of(number)
            && self.theirs.check(number, &bytes[HEADER..]).is_none();
        if sound && run > state.run {
            state.run = run;
            state.tracker = Tracker::default();
        }
        state.tracker.note(number, bytes.len() as u64, sound);
        total.fetch_add(u64::from(sound), Ordering::Relaxed);
        let next = state.tracker.next();
        drop(state);
        if sound && number % ANSWER_EACH == 0 {
            let mut answer = [0; HEADER];
            put(&mut answer, ANSWER, run, self.number, HEADER, next);
            // Errors are ignored: the next acknowledgement, or the sender's time-out, replaces a
            // lost acknowledgement.
            let _ = self.socket.send(&answer);
        }
    }

    fn send(&self, run: u32, number: u64, buffer: &mut [u8; LENGTH_MAX]) -> bool {
        let out = &mut buffer[..length_of(number)];
        put(out, DATA, run, self.number, out.len(), number);
        self.ours.fill(number, &mut out[HEADER..]);
        self.socket.send(out).is_ok()
    }

    fn begin(&self, run: u32) {
        let mut state = self.lock();
        state.our_run = run;
        state.arrived = 0;
    }

    /// Sends as soon as acknowledgements arrive. Returns the numbers of datagrams sent and of
    /// datagrams refused by this kernel.
    fn send_fast(&self, run: u32, stop: &AtomicBool) -> (u64, u64) {
        self.begin(run);
        let mut buffer = [0; LENGTH_MAX];
        let (mut sent, mut refused, mut given_up) = (0, 0, 0);
        while !stop.load(Ordering::Relaxed) {
            let state = self.lock();
            let full = |s: &mut State| sent - s.arrived.max(given_up) >= WINDOW;
            let waited = self.answered.wait_timeout_while(state, PATIENCE, full);
            if waited.map_or(true, |(_, timeout)| timeout.timed_out()) {
                given_up = sent;
            }
            if self.send(run, sent, &mut buffer) {
                sent += 1;
            } else {
                refused += 1;
                thread::sleep(Duration::from_millis(1));
            }
        }
        (sent, refused)
    }

    /// Sends one datagram every `pace`, without acknowledgements. Returns the numbers of datagrams
    /// sent and of datagrams refused by this kernel.
    fn send_paced(&self, run: u32, pace: Duration, stop: &AtomicBool) -> (u64, u64) {
        self.begin(run);
        let mut buffer = [0; LENGTH_MAX];
        let (mut sent, mut refused) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            if self.send(run, sent, &mut buffer) {
                sent += 1;
            } else {
                refused += 1;
            }
            thread::sleep(pace);
        }
        (sent, refused)
    }
}
