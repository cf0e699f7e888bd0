//! Host and server for tests: real links between null functions, with a server on a thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mqnet_control_api::{
    ApiError, CaptureFilter, CapturedFrame, FrameDirection, FrameSink, Host, NetdevRequest,
    Outcome, Reply, Request,
};
use mqnet_host::LinkHost;
use mqnet_host::testing::two_links;

use crate::calls::{HostHandle, calls};

/// Pause between two control steps.
const PAUSE: Duration = Duration::from_micros(500);

/// Host with real links, and with a process id and captured frames for tests.
pub struct TestHost {
    /// The links.
    pub links: LinkHost,
    pid: u32,
    captures: Arc<AtomicUsize>,
    is_held: bool,
}

impl Default for TestHost {
    fn default() -> Self {
        let pid = std::process::id();
        Self { links: two_links(), pid, captures: Arc::default(), is_held: false }
    }
}

impl TestHost {
    /// Creates a host with the links of [`two_links`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps only the first link. Sets name and network namespace of its first netdev.
    #[must_use]
    pub fn named(mut self, device: &str, netns: Option<u64>) -> Self {
        self.links.entries.truncate(1);
        let dev = &mut self.links.entries[0].netdevs[0];
        (dev.name, dev.netns) = (device.to_owned(), netns);
        self
    }

    /// Sets the process id that the host reports.
    #[must_use]
    pub fn with_pid(mut self, pid: u32) -> Self {
        self.pid = pid;
        self
    }

    /// Suspends the control steps, so that no change completes, or resumes them.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Number of running captures.
    pub fn captures(&self) -> usize {
        self.captures.load(Ordering::Relaxed)
    }

    /// Runs a control step unless the control steps are suspended.
    pub fn step(&mut self) {
        if !self.is_held {
            self.links.turn(|_, _| {}).unwrap_or_else(|e| panic!("{e}"));
            // The host has no configuration, so a reload completes without a change.
            if let Some(ticket) = self.links.reload_wanted.take() {
                ticket.settle(Ok(Outcome::default()));
            }
        }
    }

    /// Serves a host on a new thread, which ends when no handle is left.
    pub fn serve(host: Arc<Mutex<Self>>) -> HostHandle {
        let (handle, mut calls) = calls();
        std::thread::spawn(move || {
            loop {
                let mut host = host.lock().unwrap_or_else(PoisonError::into_inner);
                if !calls.run_waiting(&mut *host) {
                    return;
                }
                host.step();
                drop(host);
                std::thread::sleep(PAUSE);
            }
        });
        handle
    }
}

impl Host for TestHost {
    fn request(&mut self, request: Request) -> Result<Reply, ApiError> {
        let filter = match &request {
            Request::Netdev(_, NetdevRequest::Capture(filter)) => *filter,
            _ => CaptureFilter::default(),
        };
        Ok(match self.links.request(request)? {
            Reply::Instance(mut instance) => {
                instance.pid = self.pid;
                Reply::Instance(instance)
            }
            // Null functions receive no frames, so a fake sink replaces the capture.
            Reply::Capture(_) => {
                self.captures.fetch_add(1, Ordering::Relaxed);
                let captures = self.captures.clone();
                Reply::Capture(Box::new(FiveFrames { filter, frames: 0, captures }))
            }
            reply => reply,
        })
    }
}

/// Sink with five fake frames, one per call.
struct FiveFrames {
    filter: CaptureFilter,
    frames: u64,
    captures: Arc<AtomicUsize>,
}

impl FrameSink for FiveFrames {
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

impl Drop for FiveFrames {
    fn drop(&mut self) {
        self.captures.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) use server::{Folder, Server, wait_for};

#[cfg(test)]
mod server {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    use tokio::sync::oneshot;

    use super::TestHost;
    use crate::client::Client;
    use crate::socket::{ControlSocket, Places, Role, SocketAddress, SocketOptions};

    /// Temporary folder of one test.
    pub(crate) struct Folder(PathBuf);

    impl Folder {
        pub(crate) fn new(name: &str) -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("mqnet-control-{}-{number}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }

        pub(crate) fn options(&self, name: &str) -> SocketOptions {
            let address = SocketAddress::file(&self.0.join(name)).unwrap();
            SocketOptions { address: Some(address), ..SocketOptions::default() }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Server on a thread with a host.
    pub(crate) struct Server {
        pub(crate) socket: String,
        pub(crate) host: Arc<Mutex<TestHost>>,
        stop: Option<oneshot::Sender<()>>,
        thread: Option<JoinHandle<()>>,
    }

    impl Server {
        pub(crate) fn start(options: &SocketOptions, host: TestHost) -> Self {
            let places = Places::only(Path::new("/nowhere"));
            let socket = ControlSocket::open(options, Role::Daemon, &places).unwrap();
            let address = socket.address().to_owned();
            let host = Arc::new(Mutex::new(host));
            let served = TestHost::serve(host.clone());
            let (stop, stopped) = oneshot::channel::<()>();
            let thread = std::thread::spawn(move || {
                crate::client::runtime("test").unwrap().block_on(async {
                    tokio::select! {
                        () = crate::serve(socket.listener().unwrap(), served) => {}
                        _ = stopped => {}
                    }
                });
            });
            Self { socket: address, host, stop: Some(stop), thread: Some(thread) }
        }

        pub(crate) fn client(&self) -> Client {
            Client::connect(&self.socket).unwrap()
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            drop(self.stop.take());
            if let Some(thread) = self.thread.take() {
                thread.join().unwrap();
            }
        }
    }

    /// Waits until a condition is true. Panics after 10 s.
    pub(crate) fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !is_true() {
            assert!(Instant::now() < end, "waited 10 s: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
