//! Inputs of a plan: machine, functions, channels.

use std::path::Path;

use mqnet_address::{CHANNELS, Endpoint};
use mqnet_command::Failure;
use mqnet_control_api::LinkInfo;
use mqnet_sysio::affinity;
use mqnet_sysio::namespace::run_in_sysfs;
use mqnet_topology::{CpuListEnd, FunctionLocation, Topology, nic};

use super::{Job, Member, PlanArgs};

/// Maximum number of functions of a group.
const FUNCTIONS_MAX: usize = 8;

/// Node of a function; `None` if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node(pub(crate) Option<u32>);

/// Parses one word of `--functions`.
pub(super) fn node(text: &str) -> Result<Node, String> {
    match text.trim() {
        "-" => Ok(Node(None)),
        number => match number.parse() {
            Ok(node) => Ok(Node(Some(node))),
            Err(_) => Err("a node number, or - for unknown".to_owned()),
        },
    }
}

fn bad(what: String) -> Failure {
    Failure::BadInput(what)
}

/// Returns two views of the machine: the CPUs for workers, then the CPUs that send.
pub(super) fn machines(args: &PlanArgs) -> Result<(Topology, Topology), Failure> {
    let whole = |topology: Topology| (topology.clone(), topology);
    if let Some(topology) = &args.synthetic {
        return Ok(whole(topology.clone()));
    }
    let Some(folder) = &args.topology else {
        let allowed = affinity::allowed_cpus()?;
        let all = Topology::read(Path::new("/sys/devices/system"), None);
        let mine = Topology::discover(&allowed);
        let all = if all.cpus.is_empty() { mine.clone() } else { all };
        return Ok((mine, all));
    };
    let topology = Topology::read(folder, None);
    if topology.cpus.is_empty() {
        return Err(bad(format!(
            "--topology {}: no CPUs there: it must be a copy of /sys/devices/system, with \
             cpu/online and node/",
            folder.display()
        )));
    }
    Ok(whole(topology))
}

/// Functions of endpoints, each with its number of queues; `root` is `/` except in tests.
fn members(endpoints: &[String], root: &Path) -> Result<Vec<(Member, u16)>, Failure> {
    let mut found = Vec::new();
    for endpoint in endpoints {
        let group = mqnet_address::find_group(endpoint, root).map_err(|e| bad(e.to_string()))?;
        if let Some(group) = &group {
            eprintln!("{endpoint}: {}: {}", group.why, group.address);
        }
        found.push(group.map_or_else(|| endpoint.clone(), |group| group.address));
    }
    let words = found.iter().flat_map(|word| word.split('+'));
    let mut all: Vec<(Member, u16)> = Vec::new();
    for word in words {
        let (kind, target) = word.split_once(':').unwrap_or(("", word));
        let name = target.split(',').next().unwrap_or_default();
        let parsed = || mqnet_address::parse(word).map_err(|e| bad(e.to_string()));
        let netns = match kind {
            "" => None,
            _ => match parsed()? {
                Endpoint::AfXdp(nic) => nic.netns,
                _ => None,
            },
        };
        let found = match kind {
            "" | "xdp" => {
                let asked = run_in_sysfs(netns.as_deref(), || nic::read(root, name));
                let asked =
                    asked.map_err(|e| bad(format!("{word}: its network namespace: {e}")))?;
                Some(asked.ok_or_else(|| {
                    let other = "; 'mqnet link --help' has the other kinds of endpoints";
                    let other = if kind.is_empty() { other } else { "" };
                    let place = if netns.is_some() { "there" } else { "here" };
                    bad(format!("{word}: there is no interface '{name}' {place}{other}"))
                })?)
            }
            _ => None,
        };
        let twice = |(other, _): &(Member, u16)| {
            (other.interface.as_deref(), &other.netns) == (Some(name), &netns)
        };
        if found.is_some() && all.iter().any(twice) {
            return Err(bad(format!("{word}: the interface is named twice")));
        }
        let queues = found.as_ref().map_or(0, |nic| nic.rx_queues);
        let vectors = found.as_ref().map(|nic| nic.rx_queues.max(1));
        let location = FunctionLocation { node: found.as_ref().and_then(|nic| nic.node), vectors };
        let interface = found.map(|nic| nic.name);
        all.push((Member { name: word.to_owned(), location, interface, netns }, queues));
    }
    if all.len() > FUNCTIONS_MAX {
        return Err(bad(format!("{} functions: at most {FUNCTIONS_MAX} in one group", all.len())));
    }
    Ok(all)
}

/// Function with a node only.
fn plain(number: usize, node: Option<u32>) -> Member {
    let location = FunctionLocation { node, vectors: None };
    Member { name: format!("function {number}"), location, interface: None, netns: None }
}

fn by_hand(nodes: &[Node], topology: &Topology) -> Result<Vec<Member>, Failure> {
    if nodes.len() > FUNCTIONS_MAX {
        return Err(bad(format!("--functions: at most {FUNCTIONS_MAX}, not {}", nodes.len())));
    }
    for Node(node) in nodes {
        if let Some(node) = node.filter(|&node| topology.nearest_cpu_node(node).is_none()) {
            let all: Vec<String> = topology.nodes.iter().map(|n| n.id.to_string()).collect();
            let all = if all.is_empty() { "0".to_owned() } else { all.join(", ") };
            return Err(bad(format!("--functions: node {node} does not exist; allowed: {all}")));
        }
    }
    Ok(nodes.iter().enumerate().map(|(number, node)| plain(number, node.0)).collect())
}

/// Functions of a running link, from its description.
fn of_link(link: &LinkInfo) -> Vec<Member> {
    let first = link.placement.first().and_then(|place| place.functions.first());
    let Some(netdev) = first.map(|function| &function.netdev) else {
        let (name, location) = (link.name.clone(), FunctionLocation::default());
        return vec![Member { name, location, interface: None, netns: None }];
    };
    let mut members: Vec<Member> = Vec::new();
    for place in &link.placement {
        for function in place.functions.iter().filter(|function| &function.netdev == netdev) {
            if usize::from(function.function) == members.len() {
                let name = function.interface.as_ref().unwrap_or(netdev).clone();
                let location = FunctionLocation { node: function.node, vectors: None };
                let (interface, netns) = (function.interface.clone(), function.netns.clone());
                members.push(Member { name, location, interface, netns: netns.map(Into::into) });
            }
        }
    }
    members
}

/// Returns the inputs of each plan: the given functions, otherwise each running link that is up,
/// otherwise one function on each node with CPUs.
pub(super) fn jobs(
    args: &PlanArgs,
    topology: &Topology,
    links: &dyn Fn() -> Vec<LinkInfo>,
    root: &Path,
) -> Result<Vec<Job>, Failure> {
    let most = *CHANNELS.end() as u16;
    let one_a_cpu = topology.cpus.len().clamp(1, usize::from(most)) as u16;
    let side = if args.high { CpuListEnd::High } else { CpuListEnd::Low };
    let workers = args.workers.map(usize::from);
    let job = |title: Option<String>, members: Vec<Member>, channels: u16| {
        let channels = args.channels.unwrap_or(channels).clamp(1, most);
        Job { title, members, channels, workers, side }
    };
    if !args.endpoints.is_empty() {
        let found = members(&args.endpoints, root)?;
        let kernel = |(member, _): &&(Member, u16)| member.interface.is_none();
        if let Some((member, _)) = found.iter().find(kernel).filter(|_| args.apply) {
            let what = "--apply: not an interface of the kernel: nothing to set";
            return Err(bad(format!("{}: {what}", member.name)));
        }
        // The member with the fewest queues limits the group, because channels are distributed
        // evenly.
        let queues = found.iter().map(|(_, queues)| *queues).filter(|&q| q > 0).min();
        let channels = queues.map(|q| q.saturating_mul(found.len() as u16));
        let members = found.into_iter().map(|(member, _)| member).collect();
        return Ok(vec![job(None, members, channels.unwrap_or(one_a_cpu))]);
    }
    if !args.functions.is_empty() {
        return Ok(vec![job(None, by_hand(&args.functions, topology)?, one_a_cpu)]);
    }
    let here = args.topology.is_none() && args.synthetic.is_none();
    let running = if here { links() } else { Vec::new() };
    let up = running.iter().filter(|link| link.channels > 0);
    let jobs: Vec<Job> = up
        .map(|link| {
            let asked = link.spec.workers.map(usize::from);
            let title = Some(format!("link {}", link.name));
            Job { workers: workers.or(asked), ..job(title, of_link(link), link.channels) }
        })
        .collect();
    if !jobs.is_empty() {
        return Ok(jobs);
    }
    let nodes = topology.cpu_nodes().into_iter().take(FUNCTIONS_MAX).enumerate();
    Ok(vec![job(None, nodes.map(|(n, node)| plain(n, Some(node))).collect(), one_a_cpu)])
}
