//! Two NUMA nodes with one NIC each: plans of real topologies, and the resulting interrupt
//! affinity.

use std::collections::BTreeMap;
use std::time::Duration;

use mqnet_guest::{Guest, Kernel};
use mqnet_testkit::{Folder, LinkProcess, Need, has, until};
use serde_json::Value;

use crate::there;

/// CPUs of the nodes.
pub(crate) const CPUS: [[u64; 2]; 2] = [[0, 1], [2, 3]];
const SCRIPT: &str = include_str!("../scripts/numa.sh");

/// Guest with a NIC on the expander bridge of each node; the first NIC is on node 1.
pub(crate) fn guest(folder: &Folder, name: &str, queues: usize) -> Guest {
    let mut guest = Guest::new(Kernel::V6_1, name).cpus(4).limit(Duration::from_secs(300));
    for (node, cpus) in ["0-1", "2-3"].into_iter().enumerate() {
        let memory = format!("memory-backend-memfd,id=m{node},size=512M,share=on");
        let numa = format!("node,nodeid={node},cpus={cpus},memdev=m{node}");
        let bus = 32 + 32 * node;
        let bridge = format!("pxb-pcie,id=p{node},bus_nr={bus},bus=pcie.0,numa_node={node}");
        let slot = node + 1;
        let port = format!("pcie-root-port,id=rp{node},bus=p{node},chassis={slot},slot={slot}");
        guest = guest.qemu(&["-object", &memory, "-numa", &numa]);
        guest = guest.qemu(&["-device", &bridge, "-device", &port]);
    }
    guest = guest.qemu(&["-numa", "dist,src=0,dst=1,val=21"]);
    for card in 0..2 {
        let socket = folder.file(&format!("card{card}"));
        let chardev = format!("socket,id=c{card},path={}", socket.display());
        let netdev = format!("vhost-user,id=n{card},chardev=c{card},queues={queues}");
        let (bus, vectors) = (1 - card, 2 * queues + 2);
        let device = format!("virtio-net-pci,netdev=n{card},mq=on,vectors={vectors},bus=rp{bus}");
        guest = guest.qemu(&["-chardev", &chardev, "-netdev", &netdev, "-device", &device]);
    }
    guest
}

/// Fields after the first word in lines of four words that begin with `kind`.
fn lines<'a>(text: &'a str, kind: &str) -> Vec<[&'a str; 3]> {
    let words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let of_kind = words.filter(|words| words[0] == kind && words.len() == 4);
    of_kind.map(|words| [words[1], words[2], words[3]]).collect()
}

fn check_plan(plan: &Value, nodes: &BTreeMap<&str, u64>) {
    let machine = &plan["machine"];
    assert_eq!(machine["nodes"][0]["distances"]["1"], 21, "{machine}");
    for (node, cpus) in CPUS.iter().enumerate() {
        assert_eq!(machine["nodes"][node]["cpus"], serde_json::json!(cpus), "{machine}");
    }
    for (function, (card, node)) in plan["functions"].as_array().unwrap().iter().zip(nodes) {
        assert_eq!((&function["name"], &function["node"]), (&(*card).into(), &(*node).into()));
    }
    let channels = plan["channels"].as_array().unwrap();
    assert_eq!(channels.len(), 4, "{channels:?}");
    for (number, channel) in channels.iter().enumerate() {
        assert_eq!((&channel["function"], &channel["local"]), (&(number % 2).into(), &true.into()));
        assert_eq!(&channel["xps"][0], &channel["cpu"], "{channel}");
        assert_eq!(&channel["memory"], &channel["home"], "{channel}");
    }
}

// Goal: in a guest with two NUMA nodes and one NIC each, the plan contains the real distances and
// the nodes of the NICs. Each channel is served on the node of its NIC. With --apply, each queue's
// interrupts are on one CPU of that node, and every CPU sends through one queue of each NIC. At the
// end interrupts and XPS are restored.
#[test]
fn the_plan_of_a_guest_with_two_nodes() {
    if !(has(&[Need::Root]) && there(Kernel::V6_1)) {
        return;
    }
    mqnet_guest::build().unwrap();
    let folder = Folder::create();
    let links: Vec<LinkProcess> = (0..2)
        .map(|card| {
            let socket = folder.file(&format!("card{card}"));
            let mut command = folder.program();
            command.args(["link", "--json", "--channels", "2"]);
            command.arg(format!("vhost-user:{}", socket.display())).arg("null:");
            let link = LinkProcess::spawn(command);
            until("a card's socket", || socket.exists().then_some(()));
            link
        })
        .collect();
    let outcome = guest(&folder, "test-numa", 2).script("numa", SCRIPT).run().unwrap();
    let printed = &outcome.passed("numa").unwrap().output;
    println!("{printed}");
    assert!(printed.contains("status 0\n") && printed.ends_with("== done\n"), "{printed}");
    let nics = printed.lines().filter_map(|line| line.strip_prefix("nic ")?.split_once(' '));
    let nodes: BTreeMap<&str, u64> = nics.map(|(nic, n)| (nic, n.parse().unwrap())).collect();
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    let plan: Value = serde_json::from_str(&outcome.text("plan").unwrap()).unwrap();
    check_plan(&plan[0], &nodes);

    let during = outcome.text("during").unwrap();
    let irqs = lines(&during, "irq");
    let of_queues = irqs.iter().filter(|[_, name, _]| name.contains("put."));
    for [nic, name, cpus] in of_queues.clone() {
        let cpu: u64 = cpus.parse().unwrap_or_else(|_| panic!("{name} of {nic} is on {cpus}"));
        assert!(CPUS[nodes[nic] as usize].contains(&cpu), "{name} of {nic} is on CPU {cpu}");
    }
    assert_eq!(of_queues.count(), 8, "{irqs:?}");
    for nic in nodes.keys() {
        let sets = lines(&during, "xps").into_iter().filter(|[of, _, _]| of == nic);
        let masks: Vec<u64> = sets.map(|[_, _, m]| u64::from_str_radix(m, 16).unwrap()).collect();
        // The two masks together contain each of the four CPUs exactly once.
        assert_eq!((masks.len(), masks.iter().sum::<u64>()), (2, 15), "{nic}: {masks:?}");
        assert!(masks.iter().all(|&mask| mask != 0), "{nic}: {masks:?}");
    }
    drop(links);
}
