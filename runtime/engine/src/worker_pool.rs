//! Worker pool of a link, and the assignment of lanes to workers.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use mqnet_sysio::clock;
use mqnet_topology::{
    CpuListEnd, FunctionLocation, PlacementRequest, Topology, plan, round_robin, worker_of,
};

use crate::config::{Cpus, LinkConfig};
use crate::error::LinkError;
use crate::idle::IdlePolicy;
use crate::lane::{Lane, LaneId};
use crate::worker::{Edit, FaultLine, Leave, REPLY_TIMEOUT, Worker};
use mqnet_netdev::stats::WorkerStats;

/// Description of a worker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerView<'a> {
    /// CPU to which the worker is pinned; `None`: not pinned.
    pub cpu: Option<usize>,
    /// NUMA node of that CPU; `None`: unknown.
    pub node: Option<u32>,
    /// Thread id; `None` until the thread runs.
    pub thread: Option<u32>,
    /// Counters of the worker.
    pub stats: &'a WorkerStats,
}

/// Worker pool of a link.
pub(crate) struct WorkerPool {
    topology: Topology,
    workers: Vec<Worker>,
    side: CpuListEnd,
    /// Locations of the link's devices; channel i belongs to device i modulo their number. Empty:
    /// unknown.
    locations: Vec<FunctionLocation>,
    config: LinkConfig,
    line: FaultLine,
}

impl WorkerPool {
    pub(crate) fn new(
        topology: Topology,
        side: CpuListEnd,
        config: LinkConfig,
        line: FaultLine,
    ) -> Self {
        Self { topology, workers: Vec::new(), side, locations: Vec::new(), config, line }
    }

    /// Creates the missing workers for `channels` channels: one per channel, at most one per CPU,
    /// unless the number is configured. The pool never shrinks, and a channel never moves to
    /// another worker. Therefore the counters of a channel have one writer, and its old and new
    /// lanes never run concurrently. For the same reason, `side` and `locations` of the first call
    /// stay in force.
    pub(crate) fn grow(
        &mut self,
        channels: u16,
        side: CpuListEnd,
        locations: Vec<FunctionLocation>,
    ) -> io::Result<()> {
        if self.workers.is_empty() {
            (self.side, self.locations) = (side, locations);
        }
        let cpus = self.topology.cpus.len().max(1);
        let wanted = self.config.workers.unwrap_or(usize::from(channels).min(cpus)).max(1);
        let most = self.config.workers.unwrap_or(cpus).max(1);
        let placed = match &self.config.cpus {
            Cpus::Auto => self.places(most),
            Cpus::Float => Vec::new(),
            Cpus::List(list) => list.iter().copied().cycle().take(most).collect(),
        };
        for number in self.workers.len()..wanted {
            let cpu = placed.get(number).copied();
            let worker = Worker::spawn(number, cpu, self.config.idle, self.line.clone())?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// CPU of each possible worker. Worker n serves channel n first.
    fn places(&self, most: usize) -> Vec<usize> {
        let channels = u16::try_from(most).unwrap_or(u16::MAX);
        let request = PlacementRequest::new(&self.topology, &self.locations, channels);
        let request = PlacementRequest { workers: Some(most), side: self.side, ..request };
        plan(&request).places.iter().map(|place| place.cpu).collect()
    }

    /// Number of the worker that polls a channel; `None` without workers.
    pub(crate) fn worker_of(&self, channel: u16) -> Option<usize> {
        worker_of(channel, self.locations.len().max(1), self.workers.len(), round_robin)
    }

    /// NUMA node for a channel's memory: the node of its worker, or the nearest node with memory.
    /// `None` if the worker is not pinned or the node is unknown.
    pub(crate) fn memory_of(&self, channel: u16) -> Option<u32> {
        let cpu = self.workers[self.worker_of(channel)?].cpu?;
        self.topology.node_of(cpu).map(|node| self.topology.memory_near(node))
    }

    fn worker(&self, lane: LaneId) -> Option<&Worker> {
        self.workers.get(self.worker_of(lane.channel)?)
    }

    pub(crate) fn attach(&self, mut lane: Lane) {
        if let Some(worker) = self.worker(lane.id()) {
            lane.close_intake(false);
            worker.attach(lane);
        }
    }

    /// Runs an edit of a lane on the lane's worker.
    pub(crate) fn edit(&self, lane: LaneId, edit: Edit) {
        if let Some(worker) = self.worker(lane) {
            worker.edit(lane, edit);
        }
    }

    /// Requests lanes back. The receiver gets each lane when it may leave.
    pub(crate) fn detach(&self, lanes: &[LaneId], leave: Leave) -> Receiver<Lane> {
        let (reply, detached) = channel();
        for (number, worker) in self.workers.iter().enumerate() {
            let mine = |lane: &&LaneId| self.worker_of(lane.channel) == Some(number);
            let mine: Vec<LaneId> = lanes.iter().filter(mine).copied().collect();
            if !mine.is_empty() {
                worker.detach(mine, leave, &reply);
            }
        }
        detached
    }

    /// Takes lanes back when no frame waits in them. Fails if a worker does not reply in time.
    pub(crate) fn take(&self, lanes: &[LaneId]) -> Result<Vec<Lane>, LinkError> {
        self.take_when(lanes, Leave::Settled)
    }

    /// Takes lanes back immediately, with the frames in them. The caller attaches the lanes again,
    /// or drops them.
    pub(crate) fn take_immediately(&self, lanes: &[LaneId]) -> Result<Vec<Lane>, LinkError> {
        self.take_when(lanes, Leave::Immediately)
    }

    /// Takes lanes back when their condition holds. Fails if a lane does not arrive in time.
    pub(crate) fn take_when(&self, lanes: &[LaneId], leave: Leave) -> Result<Vec<Lane>, LinkError> {
        let detached = self.detach(lanes, leave);
        let mut back = Vec::with_capacity(lanes.len());
        while back.len() < lanes.len() {
            back.push(detached.recv_timeout(REPLY_TIMEOUT).map_err(|_| LinkError::Stuck)?);
        }
        Ok(back)
    }

    /// Takes lanes back within `limit`. If not all of them can leave, the others stay attached, and
    /// the inner error contains the lanes that have left.
    pub(crate) fn take_within(
        &self,
        lanes: &[LaneId],
        leave: Leave,
        limit: Duration,
    ) -> Result<Result<Vec<Lane>, Vec<Lane>>, LinkError> {
        let detached = self.detach(lanes, leave);
        let begin = clock::monotonic();
        let mut back = Vec::with_capacity(lanes.len());
        while back.len() < lanes.len() {
            let left = limit.saturating_sub(clock::monotonic().saturating_sub(begin));
            let Ok(lane) = detached.recv_timeout(left) else { break };
            back.push(lane);
        }
        if back.len() == lanes.len() {
            return Ok(Ok(back));
        }
        let (answer, answers) = channel();
        self.workers.iter().for_each(|worker| worker.stay(lanes.to_vec(), &answer));
        for _ in &self.workers {
            answers.recv_timeout(REPLY_TIMEOUT).map_err(|_| LinkError::Stuck)?;
        }
        back.extend(detached.try_iter());
        Ok(Err(back))
    }

    /// Takes all lanes back immediately. Fails if a worker does not reply in time.
    pub(crate) fn take_all(&self) -> Result<Vec<Lane>, LinkError> {
        let mut all = Vec::new();
        for worker in &self.workers {
            all.extend(worker.detach_all().ok_or(LinkError::Stuck)?);
        }
        Ok(all)
    }

    /// Changes the idle policy of the workers.
    pub(crate) fn set_policy(&mut self, policy: IdlePolicy) {
        self.config.idle = policy;
        for worker in &self.workers {
            worker.set_policy(policy);
        }
    }

    pub(crate) fn policy(&self) -> IdlePolicy {
        self.config.idle
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = WorkerView<'_>> {
        self.workers.iter().map(|w| WorkerView {
            cpu: w.cpu,
            node: w.cpu.and_then(|cpu| self.topology.node_of(cpu)),
            thread: w.thread_id(),
            stats: w.stats(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mqnet_sysio::eventfd::EventFd;

    use super::*;

    // Goal: workers run on the nodes of the devices that they serve, in the order of the devices.
    // Without known devices, workers run on distinct cores from the preferred end.
    #[test]
    fn workers_follow_devices() {
        let (sender, _faults) = channel();
        let line = FaultLine { sender, wake: Arc::new(EventFd::new().unwrap()) };
        let machine = mqnet_topology::synthetic("2x2x2").unwrap();
        let mut workers = WorkerPool::new(machine, CpuListEnd::Low, LinkConfig::default(), line);
        assert_eq!(workers.places(6), [0, 1, 2, 3, 4, 5]);
        workers.side = CpuListEnd::High;
        assert_eq!(workers.places(3), [7, 6, 5]);
        workers.side = CpuListEnd::Low;
        workers.locations =
            [1, 0].map(|node| FunctionLocation { node: Some(node), vectors: None }).to_vec();
        assert_eq!(workers.places(5), [2, 0, 3, 1, 6]);
        assert_eq!(workers.worker_of(0), None);
    }
}
