//! What the tests of this crate share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::client::Client;
use crate::fake::FakeHost;
use crate::socket::{Address, ControlSocket, Options, Places, Role};

/// A folder of one test.
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

    pub(crate) fn options(&self, name: &str) -> Options {
        let address = Address::file(&self.0.join(name)).unwrap();
        Options { address: Some(address), ..Options::default() }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server on a thread of its own, as in the program.
pub(crate) struct Server {
    pub(crate) socket: String,
    pub(crate) host: Arc<Mutex<FakeHost>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(options: &Options, host: FakeHost) -> Self {
        let places = Places::only(Path::new("/nowhere"));
        let socket = ControlSocket::open(options, Role::Daemon, &places).unwrap();
        let address = socket.address().to_owned();
        let host = host.shared();
        let served = FakeHost::serve(host.clone());
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

/// Waits for something, at most 10 s.
pub(crate) fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_true() {
        assert!(Instant::now() < end, "waited 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
