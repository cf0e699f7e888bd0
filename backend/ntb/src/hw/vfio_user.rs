//! Emulated NTB endpoint for the driver `ntb_hw_epf` of a guest's kernel.
//!
//! QEMU's `vfio-user-pci` connects to this end's socket. The guest's window BARs are memory files
//! of this process. This end stores frames into guest memory, which QEMU passes as descriptors.
//! Registers and doorbells are mapped memory too, because QEMU waits for a reply at each trapped
//! access. A thread therefore polls the command register and the scratchpads (module `watch`). A
//! doorbell is trapped only while a worker sleeps (module `doorbell`).

mod doorbell;
mod function;
mod layout;
#[cfg(test)]
mod tests;
mod watch;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::listen::Access;
use mqnet_sysio::timer::Timer;
use mqnet_vfio_user::{Status, VfioUserServer};

use super::{
    Doorbell, DoorbellTrap, Doorbells, Hw, HwLink, MemoryWindow, MemoryWindows, TransportHw,
};
use doorbell::Peer;
use function::Function;
pub use layout::{BoardModel, VECTORS, WINDOW};
use layout::{FIRST_VECTOR, SPADS};
use watch::Watcher;

/// Poll period while a client is connected, because pending commands and delays cause no event.
const POLL: Duration = Duration::from_millis(10);
/// Poll period after [`QUIET`] without a change of commands, scratchpads and link state, in case
/// the watcher missed a change.
const POLL_IDLE: Duration = Duration::from_millis(100);
/// Time without a change after which the poll period is [`POLL_IDLE`].
const QUIET: Duration = Duration::from_secs(1);

/// Configuration of an emulated endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VfioUserConfig {
    /// Path of the socket to listen at.
    pub path: PathBuf,
    /// Permissions of the socket.
    pub access: Access,
    /// Emulated endpoint.
    pub endpoint: BoardModel,
    /// Number of windows: 1 to [`BoardModel::windows_max`].
    pub windows: usize,
    /// Bytes of each window: a power of two within [`WINDOW`].
    pub window: u32,
    /// Number of interrupt vectors, within [`VECTORS`].
    pub vectors: u16,
}

impl VfioUserConfig {
    fn check(&self) -> Result<(), String> {
        let (endpoint, most) = (self.endpoint, self.endpoint.windows_max());
        if !(1..=most).contains(&self.windows) {
            return Err(format!(
                "{} windows: allowed are 1 to {most} with {endpoint}",
                self.windows
            ));
        }
        if !self.window.is_power_of_two() || !WINDOW.contains(&self.window) {
            let (least, most) = (WINDOW.start() >> 10, WINDOW.end() >> 20);
            return Err(format!(
                "window of {} bytes: allowed are powers of two from {least}K to {most}M",
                self.window
            ));
        }
        if !VECTORS.contains(&self.vectors) {
            let (least, most) = (VECTORS.start(), VECTORS.end());
            return Err(format!("{} vectors: allowed are {least} to {most}", self.vectors));
        }
        Ok(())
    }
}

/// Value of QEMU's option `-device` for the endpoint at this socket.
pub fn qemu_device(path: &Path) -> String {
    let path = path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "{{\"driver\":\"vfio-user-pci\",\"rombar\":0,\"socket\":{{\"type\":\"unix\",\
         \"path\":\"{path}\"}}}}"
    )
}

/// Locations of an endpoint's memory, as the driver reads them from the registers. Only the fuzz
/// target uses them, because it has no guest's driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// BAR of the peer's scratchpads; `None` if they are in BAR 0.
    pub(crate) spad_bar: Option<usize>,
    /// Offset of the peer's scratchpads in BAR 0.
    pub(crate) spads_at: u32,
    /// BAR of window 0; `window_at` is the offset in that BAR.
    pub(crate) window_bar: usize,
    pub(crate) window_at: u32,
    /// BAR of the doorbells.
    pub(crate) doorbell_bar: usize,
}

/// Locations for an endpoint with windows of `window` bytes.
pub(crate) fn places(endpoint: BoardModel, window: u32) -> Places {
    let bars = endpoint.bars();
    Places {
        spad_bar: bars.peer_spads,
        spads_at: layout::register::OWN_SPADS + 4 * SPADS as u32,
        window_bar: bars.windows[0],
        window_at: bars.first_window_at(window),
        doorbell_bar: bars.doorbells,
    }
}

/// Provider of an emulated endpoint.
pub struct VfioUser {
    server: VfioUserServer,
    function: Function,
    timer: Timer,
    is_timed: bool,
    /// Event that the watcher signals at a new command or a changed scratchpad.
    written: Arc<EventFd>,
    watcher: Option<Watcher>,
    session: u64,
    /// Time of the last change of [`Function::mark`], and the value since then.
    changed: (Duration, u64),
}

impl VfioUser {
    /// Endpoint that accepts clients from its first poll on. `Err` if the configuration is invalid
    /// or a resource cannot be created.
    pub fn new(config: &VfioUserConfig) -> io::Result<Self> {
        config.check().map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let (mut function, model) = Function::new(config)?;
        let server = VfioUserServer::new(&config.path, config.access, model)?;
        function.connect(server.interrupts().clone());
        let (timer, written) = (Timer::new()?, Arc::new(EventFd::new()?));
        Ok(Self {
            server,
            function,
            timer,
            is_timed: false,
            written,
            watcher: None,
            session: 0,
            changed: (Duration::ZERO, 0),
        })
    }

    /// Number of completed commands of the driver, by command number; failed commands included.
    pub fn commands(&self) -> [u64; 7] {
        self.function.commands
    }

    /// The vfio-user server.
    pub fn server(&self) -> &VfioUserServer {
        &self.server
    }

    /// Reads scratchpad `pad` of the driver's own set, also while the link is down; `None` if
    /// there is no such scratchpad.
    pub fn driver_spad(&self, pad: usize) -> Option<u32> {
        (pad < SPADS).then(|| u32::from_le(self.function.own_spad(pad).load(Ordering::Acquire)))
    }

    /// Starts the watcher and sets the timer's period, or stops both if no client is connected.
    fn set_timer(&mut self, is_connected: bool, now: Duration) -> Result<(), String> {
        let failed = |e: io::Error| format!("watching registers: {e}");
        if !is_connected {
            self.watcher = None;
            if std::mem::take(&mut self.is_timed) {
                self.timer.stop().map_err(failed)?;
            }
            return Ok(());
        }
        if self.watcher.is_none() {
            let watched = self.function.watched().map_err(failed)?;
            self.watcher = Some(Watcher::start(watched, self.written.clone()).map_err(failed)?);
        }
        let mark = self.function.mark();
        if mark != self.changed.1 {
            self.changed = (now, mark);
        }
        let is_quiet = now >= self.changed.0 + QUIET;
        self.is_timed = true;
        self.timer.repeat(if is_quiet { POLL_IDLE } else { POLL }).map_err(failed)
    }

    fn pad_exists(&self, pad: usize) -> bool {
        pad < SPADS && self.function.is_up()
    }
}

impl Hw for VfioUser {
    fn poll_link(&mut self, now: Duration) -> HwLink {
        // Drain the event before the poll: a later write of the driver signals the event again.
        self.written.drain();
        let status = self.server.poll(now, &mut self.function);
        let was_up = self.function.is_up();
        let state = self.function.poll(now, self.server.dma());
        if let Err(why) = self.set_timer(matches!(status, Status::Connected(_)), now) {
            return HwLink::Down(why);
        }
        match (status, state) {
            (Status::Waiting(why), _) | (_, Err(why)) => HwLink::Down(why),
            _ if self.server.is_pending() => HwLink::Down("the guest was reset".to_owned()),
            _ => {
                self.session += u64::from(!was_up);
                HwLink::Up(self.session)
            }
        }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = self.server.events();
        fds.extend([self.timer.as_fd(), self.written.as_fd()]);
        fds
    }

    fn windows(&self) -> Option<MemoryWindows> {
        None
    }

    fn spad_read(&self, pad: usize) -> u32 {
        if !self.pad_exists(pad) {
            return 0;
        }
        u32::from_le(self.function.peer_spad(pad).load(Ordering::Acquire))
    }

    fn peer_spad_write(&self, pad: usize, value: u32) {
        if self.pad_exists(pad) {
            self.function.own_spad(pad).store(value.to_le(), Ordering::Release);
        }
    }

    fn peer_doorbell(&self, bit: usize) -> Option<Arc<dyn Doorbell>> {
        let is_there = self.function.is_up() && bit < self.function.doorbell_count();
        let vector = usize::from(FIRST_VECTOR) + bit;
        let interrupts = self.server.interrupts().clone();
        is_there.then(|| Arc::new(Peer { interrupts, vector }) as Arc<dyn Doorbell>)
    }

    fn doorbell_event(&self, bit: usize) -> Option<Arc<EventFd>> {
        self.function.doorbells.get(bit).map(|own| own.event.clone())
    }

    fn reset(&mut self, now: Duration, retry_after: Duration) {
        self.function.rest_until(now + retry_after);
    }

    fn window_len(&self) -> u32 {
        self.function.window_len
    }

    fn is_second(&self) -> bool {
        false
    }

    fn transport(&self) -> Option<&dyn TransportHw> {
        Some(self)
    }
}

impl TransportHw for VfioUser {
    fn window_count(&self) -> usize {
        self.function.window_count()
    }

    fn window_size(&self, _index: usize) -> u32 {
        self.function.window_len
    }

    fn window(&self, index: usize) -> Option<MemoryWindow> {
        self.function.window(index)
    }

    fn spad_count(&self) -> usize {
        SPADS
    }

    fn spad_swap(&self, pad: usize, value: u32) -> u32 {
        if !self.pad_exists(pad) {
            return 0;
        }
        u32::from_le(self.function.peer_spad(pad).swap(value.to_le(), Ordering::AcqRel))
    }

    fn peer_spad_read(&self, pad: usize) -> u32 {
        if self.pad_exists(pad) { self.driver_spad(pad).unwrap_or(0) } else { 0 }
    }

    fn doorbells(&self) -> Doorbells {
        Doorbells { link: None, first_pair: 0, count: self.function.doorbell_count() }
    }

    fn vectors(&self) -> u16 {
        self.function.vectors()
    }

    fn doorbell_trap(&self, bit: usize) -> Option<Arc<dyn DoorbellTrap>> {
        self.function.doorbells.get(bit).map(|own| own.clone() as Arc<dyn DoorbellTrap>)
    }
}
