//! The control thread of a link that joins a port with another function.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use mqnet_engine::{Link, LinkConfig, LinkError, Notice};
use mqnet_netdev::{ChannelStats, Function, Plan};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::{clock, poll};

use crate::end::Error;
use crate::function::{Closer, PortFunction};
use crate::stats::{Direction, Stats};

/// The link could not be brought up.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// What the engine says.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The two functions could not be joined.
    #[error("{0}")]
    Down(String),
    /// No thread, or no descriptor.
    #[error("the control thread: {0}")]
    System(#[from] std::io::Error),
}

/// State of a driver's thread: a link, and data that belongs to it.
pub trait Steered {
    /// The link.
    fn link(&mut self) -> &mut Link;

    /// Called after each control step of the link.
    fn stepped(&mut self) {}
}

impl Steered for Link {
    fn link(&mut self) -> &mut Link {
        self
    }
}

/// Something to be done with the link by its thread.
type Task<L> = Box<dyn FnOnce(&mut L) + Send>;

/// A running link and its thread. Dropped, it ends the link in good order: senders and receivers
/// hear that it was closed.
pub struct Driver<L = Link> {
    /// `None` in the drop.
    tasks: Option<Sender<Task<L>>>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    stats: [Vec<Arc<ChannelStats>>; 2],
    plan: Plan,
    closer: Closer,
}

/// What the thread works with.
struct Body<L> {
    tasks: Receiver<Task<L>>,
    wake: Arc<EventFd>,
    closer: Closer,
}

impl Driver<Link> {
    /// Joins `device` (the link's first function) with a port and runs the link until the driver
    /// is dropped or the link fails. Returns when traffic flows.
    pub fn start(
        device: Box<dyn Function>,
        port: PortFunction,
        config: LinkConfig,
    ) -> Result<Self, DriverError> {
        Self::start_with(device, port, config, |link| link)
    }
}

impl<L: Steered + 'static> Driver<L> {
    /// The same; `wrap` runs on the thread of the link and makes what that thread owns.
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
        let body = Body { tasks, wake: wake.clone(), closer: closer.clone() };
        let thread = std::thread::Builder::new().name("mqnet-control".to_owned()).spawn(
            // The link lives and ends on its own thread.
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
            Err(_) => Err(DriverError::Down("the control thread has ended".to_owned())),
        }
    }

    /// What the two functions agreed on, as the device sees it.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Does something with the link on its thread and returns the result; `None` when the link has
    /// ended.
    pub fn ask<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut L) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, result) = channel();
        let task: Task<L> = Box::new(move |link| drop(answer.send(task(link))));
        self.tasks.as_ref()?.send(task).ok()?;
        let _ = self.wake.ring();
        result.recv().ok()
    }

    /// What was moved so far.
    pub fn stats(&self) -> Stats {
        let [device, port] = &self.stats;
        let outside = self.ask(|link| link.link().functions()[0].dropped_outside());
        Stats {
            to_program: Direction::of(device, port),
            to_device: Direction::of(port, device),
            dropped_outside: outside.flatten(),
        }
    }
}

impl<L> fmt::Debug for Driver<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl<L> Drop for Driver<L> {
    fn drop(&mut self) {
        self.closer.close(Error::Closed);
        self.tasks = None;
        let _ = self.wake.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of the control thread has been printed by its hook.
            let _ = thread.join();
        }
    }
}

impl<L: Steered> Body<L> {
    fn run(self, mut link: L, ready: &SyncSender<Result<Plan, DriverError>>) {
        let ended = self.turn(&mut link, ready);
        // Senders first: what they were told "sent" is still taken while traffic flows.
        let error = ended.map_or_else(Error::Failed, |()| Error::Closed);
        // Frames for the program lie where it can read them also later, if it still wants them.
        let _ = link.link().shut_down("closed by the program", Duration::ZERO);
        self.closer.close(error);
    }

    /// Turns the link until the owner is gone or the link fails.
    fn turn(
        &self,
        link: &mut L,
        ready: &SyncSender<Result<Plan, DriverError>>,
    ) -> Result<(), String> {
        loop {
            match link.link().turn(clock::monotonic()) {
                Ok(Some(Notice::Up(plan))) => drop(ready.try_send(Ok(plan))),
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
            loop {
                match self.tasks.try_recv() {
                    Ok(task) => task(link),
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
                }
            }
            let link = link.link();
            let mut fds = link.events();
            fds.push(self.wake.as_fd());
            poll::wait_readable(&fds, link.patience()).map_err(|e| format!("waiting: {e}"))?;
        }
    }
}
