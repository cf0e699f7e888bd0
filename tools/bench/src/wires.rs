//! Connections of two hosts: mqnet, devices of the kernel, and common relays.

use std::process::Stdio;

use mqnet_sysio::process;
use serde_json::Value;

use super::child::{self, Child, RunFolder};
use super::hosts::Host;
use super::hugepages::HugePages;
use super::waiting::{SOON, wait_for_device, wait_for_path};
use super::{Result, ovs, peers, slices, testpmd};

/// Address of the first host; the second host has the next address.
pub(super) const CLIENT: &str = "10.91.0.1/24";
pub(super) const SERVER: &str = "10.91.0.2/24";

const RELAY: &str = include_str!("../peers/relay.c");

/// Connection of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// TAP, NTB link, TAP: two processes.
    Mqnet,
    /// TAP to TAP in one mqnet process.
    MqnetDirect,
    /// Minimal C program between two TAPs.
    Relay,
    /// One veth pair.
    Veth,
    /// Two veth pairs and a bridge of the kernel.
    Bridge,
    /// socat between two TAPs.
    Socat,
    /// A `vde_switch` with one TAP for each host.
    Vde,
    /// Open vSwitch with its DPDK datapath and DPDK's TAPs.
    OvsDpdk,
    /// DPDK's testpmd between two of DPDK's TAPs.
    TestpmdTap,
}

impl Wire {
    pub(super) fn who(self) -> &'static str {
        match self {
            Self::Mqnet => "mqnet",
            Self::MqnetDirect => "mqnet-one-process",
            Self::Relay => "relay",
            Self::Veth => "veth",
            Self::Bridge => "bridge",
            Self::Socat => "socat",
            Self::Vde => "vde2",
            Self::OvsDpdk => "ovs-dpdk",
            Self::TestpmdTap => "testpmd-tap",
        }
    }
}

/// Two hosts and their connection.
pub(super) struct World {
    pub(super) wire: Vec<Child>,
    // The hosts are dropped after the processes in their namespaces.
    pub(super) hosts: [Host; 2],
    _middle: Option<Host>,
    _pages: Option<HugePages>,
    /// True if the processes never sleep and must be stopped while other contenders are measured.
    spins: bool,
}

impl World {
    /// Starts two hosts and their connection; `link_args` are arguments of the mqnet processes.
    pub(super) fn start(wire: Wire, folder: &RunFolder, link_args: &str) -> Result<Self> {
        if !process::is_root() {
            return Err("needs root (network namespaces)".into());
        }
        peers::needs("ip", "iproute2")?;
        let hosts = [Host::create(wire.who(), "a")?, Host::create(wire.who(), "b")?];
        let spins = matches!(wire, Wire::OvsDpdk | Wire::TestpmdTap);
        let (mut middle, mut pages) = (None, None);
        let wire = match wire {
            Wire::Mqnet => start_links(&hosts, folder, link_args)?,
            Wire::MqnetDirect => start_direct(&hosts, folder, link_args)?,
            Wire::Relay => vec![start_relay(&hosts, folder)?],
            Wire::Socat => vec![start_socat(&hosts)?],
            Wire::Vde => start_vde(&hosts, folder)?,
            Wire::OvsDpdk => {
                let (processes, reserved) = ovs::start(&hosts[0], folder)?;
                pages = Some(reserved);
                spread(&hosts)?;
                processes
            }
            Wire::TestpmdTap => {
                let (forwarder, reserved) = testpmd::between_taps(&hosts[0])?;
                pages = Some(reserved);
                spread(&hosts)?;
                vec![forwarder]
            }
            Wire::Veth => {
                join_by_veth(&hosts[0], "a", &hosts[1], "b")?;
                set_up(&hosts)?;
                Vec::new()
            }
            Wire::Bridge => {
                middle = Some(join_by_bridge(&hosts)?);
                Vec::new()
            }
        };
        let world = Self { wire, hosts, _middle: middle, _pages: pages, spins };
        world.sleep()?;
        Ok(world)
    }

    /// Stops the spinning processes until [`wake`](Self::wake).
    pub(super) fn sleep(&self) -> Result<()> {
        slices::freeze(&self.who_spins())
    }

    /// Resumes the spinning processes.
    pub(super) fn wake(&self) -> Result<()> {
        slices::thaw(&self.who_spins())
    }

    fn who_spins(&self) -> Vec<u32> {
        self.wire.iter().filter(|_| self.spins).map(Child::pid).collect()
    }

    /// Ends both links; returns the kicks per frame of each link.
    pub(super) fn kicks(&mut self) -> Result<[f64; 2]> {
        let mut kicks = [0.0; 2];
        for (link, kicks) in self.wire.iter_mut().zip(&mut kicks) {
            process::terminate(link.pid()).map_err(|error| format!("cannot stop it: {error}"))?;
            let (_, output) = link.finish(SOON)?;
            let per_frame = output.lines().rev().find_map(kicks_per_frame);
            *kicks = per_frame.ok_or_else(|| format!("no counters: {}", link.tail()))?;
        }
        Ok(kicks)
    }
}

/// Assigns addresses to both hosts.
fn set_up([a, b]: &[Host; 2]) -> Result<()> {
    a.set_up("a", CLIENT)?;
    b.set_up("b", SERVER)
}

/// Starts an mqnet process.
fn start_mqnet(folder: &RunFolder, ends: [&str; 2], more: &str) -> Result<Child> {
    let mut command = child::own(&["link", "--json", ends[0], ends[1]])?;
    command.args(more.split_whitespace()).env("MQNET_RUNTIME_DIR", &folder.path);
    Child::spawn("mqnet link", command, Stdio::null())
}

fn wait_until_up(link: &Child) -> Result<()> {
    link.wait_for(0, SOON, |output| output.lines().any(is_up).then_some(()))
}

fn taps(hosts: &[Host; 2]) -> [String; 2] {
    let tap = |host: &Host, device: &str, address: &str| {
        format!("tap:{device},netns={},address={address}", host.name)
    };
    [tap(&hosts[0], "a", CLIENT), tap(&hosts[1], "b", SERVER)]
}

/// Starts both ends of a link and waits until they are up. The second end starts after the first
/// one has created its socket, so that the placement of workers does not vary. The worker of the
/// first end is on the first CPU, where the client runs.
fn start_links(hosts: &[Host; 2], folder: &RunFolder, more: &str) -> Result<Vec<Child>> {
    // Each pair of hosts in a run has a separate socket.
    let socket = folder.path.join(format!("{}.sock", hosts[0].name));
    let ntb = format!("ntb:{}", socket.display());
    let [a, b] = taps(hosts);
    let first = start_mqnet(folder, [&a, &ntb], more)?;
    wait_for_path(&socket, &first)?;
    let links = vec![first, start_mqnet(folder, [&b, &ntb], more)?];
    links.iter().try_for_each(wait_until_up)?;
    Ok(links)
}

/// Starts one process that joins both TAPs.
fn start_direct(hosts: &[Host; 2], folder: &RunFolder, more: &str) -> Result<Vec<Child>> {
    let [a, b] = taps(hosts);
    let link = start_mqnet(folder, [&a, &b], more)?;
    wait_until_up(&link)?;
    Ok(vec![link])
}

fn start_relay(hosts: &[Host; 2], folder: &RunFolder) -> Result<Child> {
    let program = peers::build_plain(folder, "relay", RELAY)?;
    let mut command = child::guarded(program)?;
    command.args(hosts.iter().map(|host| &host.name));
    let relay = Child::spawn("the relay", command, Stdio::null())?;
    relay.wait_for(0, SOON, |output| output.lines().any(|line| line == "ready").then_some(()))?;
    set_up(hosts)?;
    Ok(relay)
}

fn join_by_veth(from: &Host, near: &str, to: &Host, far: &str) -> Result<()> {
    let words = ["link", "add", "name", near, "type", "veth", "peer", "name", far];
    from.ip(&[&words[..], &["netns", &to.name]].concat())
}

fn join_by_bridge(hosts: &[Host; 2]) -> Result<Host> {
    let middle = Host::create(Wire::Bridge.who(), "m")?;
    middle.ip(&["link", "add", "name", "br", "type", "bridge"])?;
    for (host, device) in hosts.iter().zip(["a", "b"]) {
        join_by_veth(&middle, device, host, device)?;
        middle.ip(&["link", "set", "dev", device, "master", "br", "up"])?;
    }
    middle.ip(&["link", "set", "dev", "br", "up"])?;
    set_up(hosts)?;
    Ok(middle)
}

/// Moves the TAP "b" from the first host to the second, and assigns both addresses.
fn spread(hosts: &[Host; 2]) -> Result<()> {
    hosts[0].ip(&["link", "set", "dev", "b", "netns", &hosts[1].name])?;
    set_up(hosts)
}

fn start_socat(hosts: &[Host; 2]) -> Result<Child> {
    peers::needs("socat", "socat")?;
    let tap = |name: &str| format!("TUN,tun-name={name},tun-type=tap,iff-no-pi");
    let command = hosts[0].command(&["socat", "-b", "65536", &tap("a"), &tap("b")])?;
    let socat = Child::spawn("socat", command, Stdio::null())?;
    for device in ["a", "b"] {
        wait_for_device(&hosts[0], device, &socat)?;
    }
    spread(hosts)?;
    Ok(socat)
}

fn start_vde(hosts: &[Host; 2], folder: &RunFolder) -> Result<Vec<Child>> {
    for program in ["vde_switch", "vde_plug2tap"] {
        peers::needs(program, "vde2")?;
    }
    let path = folder.path.join("vde");
    let socket = path.to_string_lossy();
    let mut command = child::guarded("vde_switch")?;
    command.args(["--sock", &socket]);
    // vde_switch ends when its standard input is closed.
    let switch = Child::spawn("vde_switch", command, Stdio::piped())?;
    wait_for_path(&path.join("ctl"), &switch)?;
    let mut all = Vec::new();
    for (host, device) in hosts.iter().zip(["a", "b"]) {
        let command = host.command(&["vde_plug2tap", "--sock", &socket, device])?;
        let plug = Child::spawn("vde_plug2tap", command, Stdio::null())?;
        wait_for_device(host, device, &plug)?;
        all.push(plug);
    }
    all.push(switch);
    set_up(hosts)?;
    Ok(all)
}

/// True for the event of `mqnet link --json` that reports a link as up.
pub(super) fn is_up(line: &str) -> bool {
    serde_json::from_str(line).is_ok_and(|value: Value| value["event"] == "up")
}

pub(super) fn without_prefix(address: &str) -> &str {
    address.split('/').next().unwrap_or(address)
}

/// Kicks per frame, both directions together; `None` if the line is not the final object of a link.
fn kicks_per_frame(line: &str) -> Option<f64> {
    let end: Value = serde_json::from_str(line).ok()?;
    let sum = |what: &str| -> Option<u64> {
        Some(end["a-to-b"][what].as_u64()? + end["b-to-a"][what].as_u64()?)
    };
    (end["event"] == "end").then_some(())?;
    Some(sum("kicks")? as f64 / sum("tx-packets")?.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the result is the kicks of both directions divided by their frames, from the end object
    // only.
    #[test]
    fn kicks_come_from_the_end_object() {
        let lanes = r#""a-to-b": {"kicks": 3, "tx-packets": 90},
                       "b-to-a": {"kicks": 2, "tx-packets": 10}}"#;
        assert_eq!(kicks_per_frame(&format!(r#"{{"event": "end", {lanes}"#)), Some(0.05));
        assert_eq!(kicks_per_frame(&format!(r#"{{"link": "up", {lanes}"#)), None);
        assert_eq!(kicks_per_frame("not JSON"), None);
        assert!(is_up(r#"{"event": "up", "text": "a <-> b"}"#) && !is_up(r#"{"link": "up"}"#));
    }
}
