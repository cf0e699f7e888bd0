//! Control thread of a link that joins a port and another function.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mqnet_engine::{Link, LinkConfig, LinkError, Notice};
use mqnet_netdev::{Function, Plan, QueuePairStats};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::{clock, poll};

use crate::error::Error;
use crate::function::{Closer, PortFunction};
use crate::stats::{DirectionStats, Stats};

/// Reason why a link is not up.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// Error of the engine.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The link is down; the string is the reason.
    #[error("{0}")]
    Down(String),
    /// A thread or a descriptor cannot be created.
    #[error("the control thread: {0}")]
    System(#[from] std::io::Error),
}

/// State of a driver's thread: a link, and data of its owner.
pub trait Steered {
    /// Returns the link.
    fn link(&mut self) -> &mut Link;

    /// Hook that runs after each control step of the link.
    fn stepped(&mut self) {}
}

impl Steered for Link {
    fn link(&mut self) -> &mut Link {
        self
    }
}

/// Function to run on the link's thread.
type Task<L> = Box<dyn FnOnce(&mut L) + Send>;

/// Plan in force, as seen from the link's first function.
#[derive(Clone, Debug)]
struct PlanInForce(Arc<Mutex<Plan>>);

impl PlanInForce {
    fn get(&self) -> Plan {
        // Recover from poisoning: every change under the lock is one statement, so a panic leaves
        // no partial state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, plan: Plan) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }
}

/// Running link with its control thread. Dropping the driver shuts the link down in order, also
/// during a change. Senders and receivers then get [`Error::Closed`], or the failure if the link
/// had failed before.
pub struct LinkDriver<L = Link> {
    /// Sender of tasks; `None` only during the drop.
    tasks: Option<Sender<Task<L>>>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    stats: [Vec<Arc<QueuePairStats>>; 2],
    plan: PlanInForce,
    closer: Closer,
}

/// Result of the start: the first plan, or the reason why the link is not up.
type Started = Result<PlanInForce, DriverError>;

/// State of the control thread.
struct Body<L> {
    tasks: Receiver<Task<L>>,
    wake: Arc<EventFd>,
    closer: Closer,
    /// Plan in force; `None` until the link is up.
    plan: Option<PlanInForce>,
}

impl LinkDriver<Link> {
    /// Joins `device`, the first function of the link, with a port. Returns when the link is up.
    /// Fails with the reason if the link does not come up. The link runs until the driver is
    /// dropped or the link fails.
    pub fn start(
        device: Box<dyn Function>,
        port: PortFunction,
        config: LinkConfig,
    ) -> Result<Self, DriverError> {
        Self::start_with(device, port, config, |link| link)
    }
}

impl<L: Steered + 'static> LinkDriver<L> {
    /// Starts the link as [`start`](LinkDriver::start) does. `wrap` runs on the control thread and
    /// creates the state of that thread.
    pub fn start_with(
        device: Box<dyn Function>,
        port: PortFunction,
        config: LinkConfig,
        wrap: impl FnOnce(Link) -> L + Send + 'static,
    ) -> Result<Self, DriverError> {
        let stats = [device.stats().to_vec(), port.stats().to_vec()];
        let (closer, wake) = (port.closer(), Arc::new(EventFd::new()?));
        let (sender, tasks) = channel();
        let (ready, first) = sync_channel(1);
        let body = Body { tasks, wake: wake.clone(), closer: closer.clone(), plan: None };
        let thread = std::thread::Builder::new().name("mqnet-control".to_owned()).spawn(
            // The control thread creates and drops the link.
            move || match Link::new(device, Box::new(port), config) {
                Ok(link) => body.run(wrap(link), &ready),
                Err(e) => drop(ready.send(Err(e.into()))),
            },
        )?;
        match first.recv() {
            Ok(Ok(plan)) => {
                Ok(Self { tasks: Some(sender), wake, thread: Some(thread), stats, plan, closer })
            }
            Ok(Err(e)) => Err(e),
            Err(_) => Err(DriverError::Down("the control thread ended".to_owned())),
        }
    }

    /// Returns the plan in force, as seen from the device. Each change replaces the plan.
    pub fn plan(&self) -> Plan {
        self.plan.get()
    }

    /// Runs `task` on the control thread and returns its result. Returns `None` if the link has
    /// ended.
    pub fn call<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut L) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, result) = channel();
        let task: Task<L> = Box::new(move |link| drop(answer.send(task(link))));
        self.tasks.as_ref()?.send(task).ok()?;
        let _ = self.wake.ring();
        result.recv().ok()
    }

    /// Returns the counters of both directions.
    pub fn stats(&self) -> Stats {
        let [device, port] = &self.stats;
        let outside = self.call(|link| link.link().functions()[0].dropped_outside());
        Stats {
            to_program: DirectionStats::of(device, port),
            to_device: DirectionStats::of(port, device),
            dropped_outside: outside.flatten(),
        }
    }
}

impl<L> fmt::Debug for LinkDriver<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("plan", &self.plan.get()).finish_non_exhaustive()
    }
}

impl<L> Drop for LinkDriver<L> {
    fn drop(&mut self) {
        self.closer.close_senders();
        self.tasks = None;
        let _ = self.wake.ring();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already printed a panic of the control thread.
            let _ = thread.join();
        }
    }
}

impl<L: Steered> Body<L> {
    fn run(mut self, mut link: L, ready: &SyncSender<Started>) {
        let ended = self.turn(&mut link, ready);
        let error = ended.map_or_else(Error::Failed, |()| Error::Closed);
        // Frames for the program stay in the rings of the port, so the shutdown needs no waiting
        // time.
        let _ = link.link().shut_down("closed by the program", Duration::ZERO);
        self.closer.close(error);
    }

    /// Runs control steps until the owner is dropped (`Ok`) or the link is down or fails (`Err`).
    fn turn(&mut self, link: &mut L, ready: &SyncSender<Started>) -> Result<(), String> {
        loop {
            match link.link().turn(clock::monotonic()) {
                Ok(Some(Notice::Up(plan) | Notice::Changed { plan, .. })) => self.show(plan, ready),
                Ok(Some(Notice::Down(why))) => {
                    let _ = ready.try_send(Err(DriverError::Down(why.clone())));
                    return Err(why);
                }
                Ok(_) => {}
                Err(e) => {
                    let why = e.to_string();
                    let _ = ready.try_send(Err(e.into()));
                    return Err(why);
                }
            }
            link.stepped();
            self.wake.drain();
            let mut tasks = 0;
            loop {
                match self.tasks.try_recv() {
                    Ok(task) => task(link),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
                tasks += 1;
            }
            let link = link.link();
            // A task may have requested a change, which begins at the next control step.
            let patience = if tasks == 0 { link.patience() } else { Duration::ZERO };
            let mut fds = link.events();
            fds.push(self.wake.as_fd());
            poll::wait_readable(&fds, patience).map_err(|e| format!("waiting: {e}"))?;
        }
    }

    /// Publishes the plan in force. The first plan completes the start.
    fn show(&mut self, plan: Plan, ready: &SyncSender<Started>) {
        match &self.plan {
            Some(shown) => shown.set(plan),
            None => {
                let shown = PlanInForce(Arc::new(Mutex::new(plan)));
                self.plan = Some(shown.clone());
                // Ignore errors: the channel has space for the first plan, for which the owner
                // waits.
                let _ = ready.try_send(Ok(shown));
            }
        }
    }
}
