//! Open vSwitch with its DPDK datapath between two TAPs.

use std::path::Path;
use std::process::{Command, Stdio};

use super::child::{self, Child, RunFolder};
use super::hosts::{Host, run_short};
use super::hugepages::HugePages;
use super::waiting::{SOON, wait_for_device, wait_for_path};
use super::{Result, peers};

const SWITCH: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Number of 2 MiB huge pages, the only memory of the switch.
const HUGE_PAGES: u64 = 200;
const MEGABYTES: &str = "256";

/// Starts the switch with the TAPs "a" and "b" in the first host. The processes must be dropped
/// before the huge pages.
pub(super) fn start(host: &Host, folder: &RunFolder) -> Result<(Vec<Child>, HugePages)> {
    let package = "openvswitch-switch-dpdk";
    for program in ["ovs-vsctl", "ovsdb-tool", "ovsdb-server"] {
        peers::needs(program, package)?;
    }
    if !Path::new(SWITCH).is_file() {
        return Err(format!("{SWITCH} is missing: apt-get install {package}").into());
    }
    let pages = HugePages::reserve(HUGE_PAGES);
    if !pages.are_there() {
        return Err("it needs 400 MiB of free huge pages of 2 MiB".into());
    }
    let path = folder.path.join("ovs");
    std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let file = |name: &str| path.join(name).to_string_lossy().into_owned();
    run_short("ovsdb-tool", &["create", &file("db"), SCHEMA])?;
    let own = |mut command: Command| {
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, &path);
        }
        command
    };
    let mut command = own(child::guarded("ovsdb-server")?);
    command.arg(file("db")).arg(format!("--remote=punix:{}", file("sock")));
    command.arg(format!("--unixctl={}", file("db.ctl")));
    let database = Child::spawn("ovsdb-server", command, Stdio::null())?;
    wait_for_path(&path.join("sock"), &database)?;
    let socket = format!("unix:{}", file("sock"));
    let (db, control) = (format!("--db={socket}"), format!("--unixctl={}", file("vs.ctl")));
    let timeout = format!("--timeout={}", SOON.as_secs());
    let order = |words: &[&str]| {
        let all = [&[db.as_str(), timeout.as_str()], words].concat();
        run_short("ovs-vsctl", &all)
    };
    order(&["--no-wait", "init"])?;
    let memory = format!("other_config:dpdk-socket-mem={MEGABYTES}");
    let dpdk = ["other_config:dpdk-init=true", "other_config:dpdk-extra=--no-pci", &memory];
    order(&[&["--no-wait", "set", "Open_vSwitch", "."], &dpdk[..]].concat())?;
    let switch = own(host.command(&[SWITCH, &socket, &control])?);
    let switch = Child::spawn("ovs-vswitchd", switch, Stdio::null())?;
    let bridge = ["add-br", "br", "--", "set", "bridge", "br", "datapath_type=netdev"];
    let failed = |error| format!("{error}; the switch: {}", switch.tail());
    order(&bridge).map_err(failed)?;
    for (number, device) in ["a", "b"].into_iter().enumerate() {
        let port = format!("port-{device}");
        let vdev = format!("options:dpdk-devargs=net_tap{number},iface={device}");
        // DPDK's TAP driver needs one RX queue for each sending thread of the switch.
        let kind = ["set", "interface", &port, "type=dpdk", "options:n_rxq=2", &vdev];
        order(&[&["add-port", "br", &port, "--"], &kind[..]].concat()).map_err(failed)?;
        wait_for_device(host, device, &switch)?;
    }
    Ok((vec![switch, database], pages))
}
