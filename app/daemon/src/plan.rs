//! `mqnet plan`: CPU, node, memory and interrupt of each channel, with reasons.

pub(crate) mod apply;
pub(crate) mod follow;
mod picture;
mod request;
mod show;
mod svg;

use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use mqnet_command::{Failure, json_text, put};
use mqnet_control_api::LinkInfo;
use mqnet_sysio::poll;
use mqnet_sysio::signal::StopSignals;
use mqnet_topology::{
    CpuListEnd, FunctionLocation, Placement, PlacementRequest, Topology, plan, round_robin,
};

use crate::leftovers;
use apply::{Applied, Wanted};

#[derive(Args, Debug, Default)]
pub struct PlanArgs {
    /// Endpoints or interfaces, joined by + or as separate words: xdp:eth0+xdp:eth1, eth0 eth1
    /// [default: the running links, otherwise one function on each node with CPUs].
    #[arg(value_name = "ENDPOINT", conflicts_with = "functions")]
    pub(crate) endpoints: Vec<String>,
    /// Number of channels [default: the number of queues, otherwise one per CPU, at most 64].
    #[arg(short, long, value_parser = crate::args::channels())]
    pub(crate) channels: Option<u16>,
    /// Maximum number of workers [default: one per CPU].
    #[arg(short, long, value_parser = crate::args::workers())]
    pub(crate) workers: Option<u16>,
    /// Functions given by the node of each, - for an unknown node, as in 0,1 or 0,-.
    #[arg(long, value_name = "NODE,...", value_delimiter = ',', value_parser = request::node)]
    pub(crate) functions: Vec<request::Node>,
    /// Plan for another machine: folder with a copy of its /sys/devices/system.
    #[arg(long, value_name = "FOLDER", conflicts_with = "synthetic")]
    pub(crate) topology: Option<PathBuf>,
    /// Plan for a synthetic machine: NODESxCORES[xTHREADS], joined by + for nodes that differ.
    #[arg(long, value_name = "MACHINE", value_parser = machine)]
    pub(crate) synthetic: Option<Topology>,
    /// Take the highest CPU numbers first, as the second end of a bridge on one machine does.
    #[arg(long)]
    pub(crate) high: bool,
    /// Print JSON.
    #[arg(short, long)]
    pub(crate) json: bool,
    /// Print the table without the picture.
    #[arg(long, conflicts_with = "json")]
    pub(crate) no_picture: bool,
    /// Also write the picture to an SVG file.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Set interrupts and XPS of the interfaces, and restore them when the program ends.
    #[arg(long, requires = "endpoints", conflicts_with_all = ["topology", "synthetic"])]
    pub(crate) apply: bool,
}

fn machine(text: &str) -> Result<Topology, String> {
    mqnet_topology::synthetic(text).map_err(|e| e.to_string())
}

/// A function and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) location: FunctionLocation,
    pub(crate) interface: Option<String>,
    /// Network namespace of the interface, if it differs from this process's.
    pub(crate) netns: Option<PathBuf>,
}

/// A plan with its inputs.
#[derive(Debug)]
pub(crate) struct Made {
    /// Heading, if there are several plans.
    pub(crate) title: Option<String>,
    pub(crate) topology: Topology,
    pub(crate) senders: Topology,
    pub(crate) members: Vec<Member>,
    pub(crate) placement: Placement,
}

/// Inputs of one plan.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) title: Option<String>,
    pub(crate) members: Vec<Member>,
    pub(crate) channels: u16,
    pub(crate) workers: Option<usize>,
    pub(crate) side: CpuListEnd,
}

impl Job {
    /// Returns the inputs of the planner for a job.
    fn request<'a>(
        &self,
        topology: &'a Topology,
        senders: &'a Topology,
        locations: &'a [FunctionLocation],
    ) -> PlacementRequest<'a> {
        let Self { channels, workers, side, .. } = *self;
        PlacementRequest {
            topology,
            senders,
            functions: locations,
            channels,
            map: round_robin,
            workers,
            side,
        }
    }

    fn locations(&self) -> Vec<FunctionLocation> {
        self.members.iter().map(|member| member.location).collect()
    }

    pub(crate) fn make(self, topology: &Topology, senders: &Topology) -> Made {
        let placement = plan(&self.request(topology, senders, &self.locations()));
        let (topology, senders) = (topology.clone(), senders.clone());
        Made { title: self.title, topology, senders, members: self.members, placement }
    }
}

impl Made {
    /// Interrupt and XPS settings for the kernel's interfaces. Interrupt CPUs come from the common
    /// plan. Sender CPUs are computed for each interface separately, because the network stack of
    /// one interface does not use the queues of the others.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        let locations: Vec<FunctionLocation> =
            self.members.iter().map(|member| member.location).collect();
        let request = PlacementRequest {
            senders: &self.senders,
            ..PlacementRequest::new(&self.topology, &locations, 0)
        };
        let mut wanted = Vec::new();
        for (function, member) in self.members.iter().enumerate() {
            let Some(interface) = &member.interface else { continue };
            for (queue, senders) in self.placement.senders_of(function, &request) {
                let mut places = self.placement.places.iter();
                let first = places.find(|p| (p.function, p.vector) == (function, queue));
                let Some(irq_cpu) = first.map(|place| place.irq_cpu) else { continue };
                let (interface, netns) = (interface.clone(), member.netns.clone());
                wanted.push(Wanted { interface, netns, queue, irq_cpu, senders });
            }
        }
        wanted
    }
}

/// Runs the command. `links` returns the running links; called only for a plan of this machine
/// without given functions.
pub fn run(
    args: &PlanArgs,
    links: &dyn Fn() -> Vec<LinkInfo>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    // Signals are blocked before any setting is changed, so that a signal cannot leave settings
    // behind.
    let signals = if args.apply { Some(StopSignals::take()?) } else { None };
    let (topology, senders) = request::machines(args)?;
    let jobs = request::jobs(args, &topology, links, Path::new("/"))?;
    let made: Vec<Made> = jobs.into_iter().map(|job| job.make(&topology, &senders)).collect();
    if let Some(file) = &args.svg {
        let [one] = &made[..] else {
            let what = "--svg: several links run, and a picture shows one: name endpoints";
            return Err(Failure::BadInput(what.to_owned()));
        };
        svg::draw(file, one)
            .map_err(|e| Failure::Broken(format!("--svg {}: {e}", file.display())))?;
    }
    if args.json {
        let values: Vec<_> = made.iter().map(show::json).collect();
        put(out, &json_text(&values, true)?)?;
    } else {
        let text: Vec<String> = made.iter().map(|one| show::text(one, !args.no_picture)).collect();
        put(out, &text.join("\n"))?;
    }
    match (signals, &made[..]) {
        (Some(signals), [one]) => hold(one, &signals, out),
        _ => Ok(()),
    }
}

/// Applies the settings of the plan, waits for a signal, and restores the old settings.
fn hold(made: &Made, signals: &StopSignals, out: &mut dyn Write) -> Result<(), Failure> {
    leftovers::take_care();
    let mut applied = Applied::apply(Path::new("/"), &made.wanted());
    let lines: String = applied.lines.iter().map(|line| format!("{line}\n")).collect();
    put(out, &format!("\n{lines}set; Ctrl-C restores it\n"))?;
    while !signals.pending() {
        poll::wait_readable(&[signals.as_fd()], Duration::from_secs(3600))?;
    }
    let lines: String = applied.put_back().iter().map(|line| format!("{line}\n")).collect();
    put(out, &format!("{lines}restored\n"))?;
    if applied.failed > 0 {
        let what = format!("{} of {} could not be set", applied.failed, applied.lines.len());
        return Err(Failure::Broken(what));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
