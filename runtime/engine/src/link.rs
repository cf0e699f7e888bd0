//! A link: two functions joined, kept alive by the control thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use mqnet_netdev::{Caps, Channel, ChannelStats, Function, LinkStatus, Plan};
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::{affinity, clock};
use mqnet_topology::{Side, Topology, place_workers};

use crate::idle::IdlePolicy;
use crate::lane::{Lane, part};
use crate::worker::{FaultLine, LaneFault, Worker, WorkerStats};

/// On which CPUs workers run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cpus {
    /// Distinct cores of the process's cpuset, from the end that the functions prefer.
    #[default]
    Auto,
    /// Wherever the kernel puts them.
    Float,
    /// These, in turn.
    List(Vec<usize>),
}

/// How to run a link.
#[derive(Clone, Debug, Default)]
pub struct LinkConfig {
    /// Number of workers; `None`: one a channel, at most one a CPU.
    pub workers: Option<usize>,
    /// Where they run.
    pub cpus: Cpus,
    /// When they sleep.
    pub idle: IdlePolicy,
}

/// A link cannot go on at all.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A system resource is missing.
    #[error("workers: {0}")]
    System(#[from] io::Error),
    /// A worker hangs.
    #[error("a worker did not answer within 5 s (stuck in a system call?)")]
    Stuck,
}

/// Something that the user wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Traffic flows.
    Up(Plan),
    /// It does not; why.
    Down(String),
}

/// A running link.
#[derive(Debug)]
pub struct Running {
    /// What was agreed, as the first function sees it.
    pub plan: Plan,
    sessions: (u64, u64),
}

/// Two functions joined.
pub struct Link {
    a: Box<dyn Function>,
    b: Box<dyn Function>,
    config: LinkConfig,
    topology: Topology,
    workers: Vec<Worker>,
    running: Option<Running>,
    faults: Receiver<LaneFault>,
    line: FaultLine,
    said: Option<String>,
}

impl Link {
    /// Joins two functions; nothing flows before the first [`turn`](Self::turn).
    pub fn new(
        mut a: Box<dyn Function>,
        mut b: Box<dyn Function>,
        config: LinkConfig,
    ) -> Result<Self, LinkError> {
        a.set_partner(&b.caps());
        b.set_partner(&a.caps());
        let (sender, faults) = channel();
        let line = FaultLine { sender, wake: Arc::new(EventFd::new()?) };
        let topology = Topology::discover(&affinity::allowed_cpus()?);
        let workers = Vec::new();
        Ok(Self { a, b, config, topology, workers, running: None, faults, line, said: None })
    }

    /// Descriptors whose readiness asks for a [`turn`](Self::turn).
    pub fn events(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = vec![self.line.wake.as_fd()];
        fds.extend(self.a.events());
        fds.extend(self.b.events());
        fds
    }

    /// One step of control: notices faults and lost peers, brings the link up when both functions
    /// are. Call it after every event and at least every 100 ms.
    pub fn turn(&mut self, now: Duration) -> Result<Option<Notice>, LinkError> {
        self.line.wake.drain();
        let mut fault = None;
        while let Ok(LaneFault { fault: f }) = self.faults.try_recv() {
            fault.get_or_insert(f);
        }
        if let (Some(fault), true) = (fault, self.running.is_some()) {
            let why = format!("fault: {fault}");
            self.take_down(&why)?;
            return Ok(self.say_down(why));
        }
        let (a, b) = (self.a.poll_link(now), self.b.poll_link(now));
        match (a, b) {
            (
                LinkStatus::Up { session: sa, caps: ca },
                LinkStatus::Up { session: sb, caps: cb },
            ) => match &self.running {
                Some(running) if running.sessions == (sa, sb) => Ok(None),
                Some(_) => {
                    self.take_down("the peer came back with a new session")?;
                    self.bring_up((sa, sb), &ca, &cb)
                }
                None => self.bring_up((sa, sb), &ca, &cb),
            },
            (LinkStatus::Down(why), _) | (_, LinkStatus::Down(why)) => {
                if self.running.is_some() {
                    self.take_down(&why)?;
                }
                Ok(self.say_down(why))
            }
        }
    }

    /// Says why the link is down, once per reason.
    fn say_down(&mut self, why: String) -> Option<Notice> {
        if self.said.as_ref() == Some(&why) {
            return None;
        }
        self.said = Some(why.clone());
        Some(Notice::Down(why))
    }

    fn bring_up(
        &mut self,
        sessions: (u64, u64),
        a: &Caps,
        b: &Caps,
    ) -> Result<Option<Notice>, LinkError> {
        let plan = match Plan::join(a, b) {
            Ok(plan) => plan,
            Err(e) => {
                // The peers must not believe in a link that goes nowhere.
                self.a.close(Vec::new(), "the two functions do not fit");
                self.b.close(Vec::new(), "the two functions do not fit");
                return Ok(self.say_down(e.to_string()));
            }
        };
        self.start_workers(usize::from(plan.channels))?;
        let a_channels = match self.a.open(&plan) {
            Ok(channels) => channels,
            Err(e) => {
                self.b.close(Vec::new(), "the other function could not be opened");
                return Ok(self.say_down(e.to_string()));
            }
        };
        let b_channels = match self.b.open(&plan.mirrored()) {
            Ok(channels) => channels,
            Err(e) => {
                self.a.close(a_channels, "the other function could not be opened");
                return Ok(self.say_down(e.to_string()));
            }
        };
        if let Err(why) = self.attach(a_channels, b_channels, &plan) {
            self.take_down(&why)?;
            return Ok(self.say_down(why));
        }
        self.a.set_carrier(true);
        self.b.set_carrier(true);
        self.said = None;
        self.running = Some(Running { plan: plan.clone(), sessions });
        Ok(Some(Notice::Up(plan)))
    }

    fn attach(&self, a: Vec<Channel>, b: Vec<Channel>, plan: &Plan) -> Result<(), String> {
        for (i, (a, b)) in a.into_iter().zip(b).enumerate() {
            let worker = &self.workers[i % self.workers.len()];
            let node = worker.cpu.and_then(|cpu| self.topology.node_of(cpu));
            let lane = |rx, tx, stats: &[Arc<ChannelStats>]| {
                Lane::new(rx, tx, plan.frame_max, node, stats[i].clone()).map_err(|e| e.to_string())
            };
            let (forth, back) =
                (lane(a.rx, b.tx, self.b.stats())?, lane(b.rx, a.tx, self.a.stats())?);
            worker.attach(forth);
            worker.attach(back);
        }
        Ok(())
    }

    fn start_workers(&mut self, channels: usize) -> io::Result<()> {
        if !self.workers.is_empty() {
            return Ok(());
        }
        let cpus = self.topology.cpus.len().max(1);
        let wanted = self.config.workers.unwrap_or(channels.min(cpus)).max(1);
        let high = self.a.takes_high_cpus() || self.b.takes_high_cpus();
        let side = if high { Side::High } else { Side::Low };
        let placed = match &self.config.cpus {
            Cpus::Auto => place_workers(&self.topology, wanted, side),
            Cpus::Float => Vec::new(),
            Cpus::List(list) => list.iter().copied().cycle().take(wanted).collect(),
        };
        for number in 0..wanted {
            let cpu = placed.get(number).copied();
            let worker = Worker::spawn(number, cpu, self.config.idle, self.line.clone())?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Stops the traffic and gives every queue back to its function.
    fn take_down(&mut self, why: &str) -> Result<(), LinkError> {
        let now = clock::monotonic();
        self.a.set_carrier(false);
        self.b.set_carrier(false);
        self.running = None;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for worker in &self.workers {
            let mut lanes = worker.detach_all().ok_or(LinkError::Stuck)?.into_iter();
            while let (Some(forth), Some(back)) = (lanes.next(), lanes.next()) {
                let (ca, cb) = part(forth, back, now);
                a.push(ca);
                b.push(cb);
            }
        }
        self.a.close(a, why);
        self.b.close(b, why);
        // Faults that the same event caused in other lanes are old news now.
        while self.faults.try_recv().is_ok() {}
        Ok(())
    }

    /// The agreement in force, while traffic flows.
    pub fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    /// The two functions.
    pub fn functions(&mut self) -> [&mut dyn Function; 2] {
        [&mut *self.a, &mut *self.b]
    }

    /// Each worker's CPU and how it spends its time.
    pub fn workers(&self) -> impl Iterator<Item = (Option<usize>, &WorkerStats)> {
        self.workers.iter().map(|w| (w.cpu, w.stats()))
    }

    /// Ends the link in good order: traffic stops, the peer is told. The statistics stay.
    pub fn shut_down(&mut self, why: &str) -> Result<(), LinkError> {
        if self.running.is_some() {
            self.take_down(why)?;
        }
        Ok(())
    }
}
