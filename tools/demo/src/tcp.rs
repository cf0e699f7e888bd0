//! TCP streams. Each stream carries an endless pattern in both directions, and each receiver
//! verifies every byte.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mqnet_traffic::{Pattern, ReceivedStream, SendOrder, SentStream};

use super::protocol::{Side, StreamReport, now};

const PORT: u16 = 7000;
/// Interval at which a blocked end checks the shared flags.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Minimum length of a recorded pause in nanoseconds: shorter pauses are attributed to the
/// scheduler.
const GAP_MIN: u64 = 2_000_000;
const GAPS_MAX: usize = 1000;

/// Result of a receiver, and its latest pauses: start and end.
type Arrivals = (ReceivedStream, Vec<(u64, u64)>);

/// State shared by the ends of all streams of this host.
#[derive(Debug, Default)]
struct Shared {
    /// True while the senders may send.
    running: AtomicBool,
    /// True if the senders must end their streams.
    finish: AtomicBool,
    streams: Mutex<Vec<Stream>>,
}

#[derive(Debug)]
struct Stream {
    id: u32,
    verified: Arc<AtomicU64>,
    ends: Option<(JoinHandle<SentStream>, JoinHandle<Arrivals>)>,
}

/// The TCP streams of one host.
#[derive(Debug)]
pub(super) struct Streams {
    side: Side,
    shared: Arc<Shared>,
}

impl Streams {
    pub(super) fn new(side: Side) -> Self {
        Self { side, shared: Arc::default() }
    }

    /// Listens on the TCP port; every accepted connection becomes a stream.
    pub(super) fn listen(&self) -> Result<(), String> {
        let at = (self.side.address(), PORT);
        let listener = TcpListener::bind(at)
            .map_err(|e| format!("listening at TCP {}:{PORT}: {e}", self.side.address()))?;
        let (side, shared) = (self.side, self.shared.clone());
        // The thread ends with the process.
        thread::spawn(move || {
            while let Ok((mut socket, _)) = listener.accept() {
                let mut id = [0; 4];
                let known = socket.read_exact(&mut id).map(|()| u32::from_le_bytes(id));
                // Ignore a connection without an id: it does not belong to the demo. The other host
                // detects lost connections.
                if let Ok(id) = known.and_then(|id| shared.add(side, id, socket).map(|()| id)) {
                    tracing::debug!("stream {id} accepted");
                }
            }
        });
        Ok(())
    }

    /// Opens additional streams; returns the new total.
    pub(super) fn connect(&self, streams: u32) -> Result<u32, String> {
        let peer: Ipv4Addr = self.side.other().address();
        let first = self.shared.lock().len() as u32;
        for id in first..first + streams {
            let fail = |e: std::io::Error| format!("connecting to TCP {peer}:{PORT}: {e}");
            let to = (peer, PORT).into();
            let mut socket =
                TcpStream::connect_timeout(&to, Duration::from_secs(10)).map_err(fail)?;
            socket.write_all(&id.to_le_bytes()).map_err(fail)?;
            self.shared.add(self.side, id, socket).map_err(fail)?;
        }
        Ok(first + streams)
    }

    /// Starts the senders, or pauses them after the current block.
    pub(super) fn run(&self, on: bool) {
        self.shared.running.store(on, Ordering::Relaxed);
    }

    /// Verified bytes of each stream since the start.
    pub(super) fn progress(&self) -> Vec<u64> {
        self.shared.lock().iter().map(|s| s.verified.load(Ordering::Relaxed)).collect()
    }

    /// Ends all streams and waits until both directions of each stream have ended. Returns the
    /// reports by id.
    pub(super) fn finish(&self) -> Vec<StreamReport> {
        self.shared.finish.store(true, Ordering::Relaxed);
        let streams = std::mem::take(&mut *self.shared.lock());
        let mut reports: Vec<StreamReport> = streams.into_iter().map(Stream::report).collect();
        reports.sort_by_key(|r| r.id);
        reports
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Stream>> {
        // A poisoned lock is usable: streams are only added, or taken all together.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(self: &Arc<Self>, side: Side, id: u32, socket: TcpStream) -> std::io::Result<()> {
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        let verified = Arc::new(AtomicU64::new(0));
        let (reader, count) = (socket.try_clone()?, verified.clone());
        let shared = self.clone();
        let sender = thread::spawn(move || send(&socket, &pattern(id, side), &shared));
        let receiver = thread::spawn(move || receive(&reader, &pattern(id, side.other()), &count));
        self.lock().push(Stream { id, verified, ends: Some((sender, receiver)) });
        Ok(())
    }
}

/// Pattern that the host `from` sends on a stream.
fn pattern(id: u32, from: Side) -> Pattern {
    Pattern::new(u64::from(id) << 1 | from as u64)
}

impl Stream {
    fn report(mut self) -> StreamReport {
        let died = || Some("a thread of the demo panicked".to_owned());
        let Some((sender, receiver)) = self.ends.take() else { return StreamReport::default() };
        let sent =
            sender.join().unwrap_or_else(|_| SentStream { error: died(), ..SentStream::default() });
        let (got, gaps) = receiver.join().unwrap_or_else(|_| {
            (ReceivedStream { error: died(), ..ReceivedStream::default() }, Vec::new())
        });
        StreamReport {
            id: self.id,
            sent: sent.bytes,
            verified: got.verified,
            wrong_at: got.wrong_at,
            error: sent.error.or(got.error),
            gaps,
        }
    }
}

/// Sends while the senders of this host may send.
fn send(socket: &TcpStream, pattern: &Pattern, shared: &Shared) -> SentStream {
    mqnet_traffic::send(socket, pattern, || {
        while !shared.running.load(Ordering::Relaxed) && !shared.finish.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(2));
        }
        if shared.finish.load(Ordering::Relaxed) { SendOrder::End } else { SendOrder::Send }
    })
}

/// Receives a stream; returns its result, and its latest pauses.
fn receive(socket: &TcpStream, pattern: &Pattern, count: &AtomicU64) -> Arrivals {
    let mut gaps = Vec::new();
    let mut last = now();
    let received = mqnet_traffic::receive(socket, pattern, |received| {
        let at = now();
        if at - last >= GAP_MIN {
            // Discard the oldest pauses.
            if gaps.len() == GAPS_MAX {
                gaps.remove(0);
            }
            gaps.push((last, at));
        }
        last = at;
        count.store(received.verified, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    (received, gaps)
}
