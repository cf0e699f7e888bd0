//! Commands with the replies of Linux 6.18 and iproute2 6.1, recorded on a veth with four queues.

use super::*;

/// Runs each command and compares the error with the text after `|`; without a text, the command
/// must succeed. Lines with `=` are the expected result of `shown`.
fn replay(tree: &mut Tree, script: &str) {
    let mut expected: Vec<&str> = Vec::new();
    let lines: Vec<&str> = script.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    for (at, line) in lines.iter().enumerate() {
        if let Some(line) = line.strip_prefix('=') {
            expected.push(line.trim());
            if lines.get(at + 1).is_none_or(|next| !next.starts_with('=')) {
                assert_eq!(shown(tree, 4), expected, "before {:?}", lines.get(at + 1));
                expected.clear();
            }
            continue;
        }
        let (text, answer) = line.split_once('|').unwrap_or((line, ""));
        let got = tc(tree, text).map_or_else(|e| e.message, |_| String::new());
        assert_eq!(got, answer.trim(), "{text}");
    }
}

// Goal: roots are added, changed, replaced and deleted as in the kernel, with the kernel's texts,
// handles and reference counts.
#[test]
fn roots() {
    replay(
        &mut tree(""),
        "= noqueue 0: root refcnt 2
        qdisc del root | Cannot delete qdisc with handle of zero
        qdisc change root pfifo | Qdisc not found. To create specify NLM_F_CREATE flag
        qdisc change parent 1:1 pfifo | Failed to find specified qdisc
        qdisc del clsact | Cannot find specified qdisc on specified device
        qdisc add root handle 1: mq
        qdisc add root handle 1: mq | Exclusivity flag on, cannot modify
        qdisc add root handle 1: pfifo | Exclusivity flag on, cannot modify
        qdisc add root pfifo
        = pfifo 8001: root refcnt 5 limit 1000p
        qdisc add root pfifo | Exclusivity flag on, cannot modify
        qdisc add root handle 1: pfifo | NLM_F_REPLACE needed to override
        qdisc change root handle 1: pfifo | NLM_F_REPLACE needed to override
        qdisc change root mq
        qdisc replace root handle 1: pfifo
        qdisc replace root handle 1: mq | Invalid qdisc name: must match existing qdisc
        = pfifo 1: root refcnt 5 limit 1000p
        qdisc add root bfifo
        = bfifo 8003: root refcnt 5 limit 1514000b
        qdisc change root pfifo limit 3
        = pfifo 8004: root refcnt 5 limit 3p
        qdisc replace root pfifo limit 4
        qdisc replace root pfifo
        = pfifo 8004: root refcnt 5 limit 4p
        qdisc replace parent 2:5 pfifo | Failed to find specified qdisc
        qdisc replace parent 8004:5 pfifo | Parent qdisc is not classful
        qdisc del parent 8004:5 | Parent qdisc is not classful
        qdisc del parent 9:9 | Failed to find qdisc with specified classid
        qdisc del root handle 2: | Invalid handle
        qdisc del root handle 0:
        = noqueue 0: root refcnt 2
        qdisc add root handle 1:1 pfifo
        = pfifo 1: root refcnt 5 limit 1000p
        qdisc del root
        qdisc add root foo | Specified qdisc kind is unknown
        qdisc add root | Specified qdisc kind is unknown
        qdisc add root noqueue
        = noqueue 8005: root refcnt 5",
    );
}

// Goal: leaves of mq and the child of tbf have the kernel's error texts, order and handles.
#[test]
fn leaves() {
    let mut tree = tree("");
    // Use the recorded handles: the order of the kernel's table depends on the handles.
    tree.state.auto_handle = 0x801e;
    replay(
        &mut tree,
        "qdisc replace root handle 1: mq
        = mq 1: root
        = pfifo_fast 0: parent 1:4
        = pfifo_fast 0: parent 1:3
        = pfifo_fast 0: parent 1:2
        = pfifo_fast 0: parent 1:1
        qdisc replace parent 1:3 pfifo limit 10
        qdisc replace parent 1:2 handle 20: tbf rate 1mbit burst 10k latency 50ms
        qdisc replace parent 1:5 pfifo limit 10 | Specified class not found
        qdisc replace parent 2:5 pfifo limit 10 | Failed to find specified qdisc
        qdisc add parent 1:1 handle 20: pfifo | Cannot move an existing qdisc to a different parent
        qdisc add parent 1:2 handle 20: pfifo | Exclusivity flag on, cannot modify
        qdisc add parent 1:2 handle 21: pfifo | NLM_F_REPLACE needed to override
        qdisc add parent 1:2 pfifo
        qdisc add clsact
        = mq 1: root
        = pfifo_fast 0: parent 1:4
        = pfifo_fast 0: parent 1:1
        = pfifo 8020: parent 1:2 limit 1000p
        = pfifo 801f: parent 1:3 limit 10p
        = clsact ffff: parent ffff:fff1
        qdisc change parent 1:2 handle 21: pfifo | NLM_F_REPLACE needed to override
        qdisc change parent 1:2 pfifo
        qdisc replace parent 1:2 handle 20: tbf rate 1mbit burst 10k latency 50ms
        qdisc change parent 1:2 tbf rate 2mbit burst 10k latency 50ms
        qdisc change parent 1:3 pfifo limit 20
        = mq 1: root
        = pfifo_fast 0: parent 1:4
        = pfifo_fast 0: parent 1:1
        = tbf 20: parent 1:2 rate 250000
        = pfifo 801f: parent 1:3 limit 20p
        = clsact ffff: parent ffff:fff1",
    );
    let shown = ["mq 1:1 root", "mq 1:2 root leaf 20:", "mq 1:3 root leaf 801f:", "mq 1:4 root"];
    assert_eq!(classes(&tree, 4)[..4], shown);
    assert_eq!(classes(&tree, 4)[4..], ["tbf 20:1 parent 20:"]);
}

// Goal: leaves are deleted and attached by handle as in the kernel; invalid children of a class are
// rejected with the kernel's texts.
#[test]
fn leaves_below_leaves() {
    let mut tree = tree("");
    tree.state.auto_handle = 0x801e;
    replay(
        &mut tree,
        "qdisc replace root handle 1: mq
        qdisc replace parent 1:3 pfifo limit 10
        qdisc replace parent 1:2 handle 20: tbf rate 2mbit burst 10k latency 50ms
        qdisc add clsact
        qdisc del parent 1:3 handle 99: | Invalid handle
        qdisc del parent 1:3
        qdisc del parent 1:3 | Cannot delete qdisc with handle of zero
        qdisc del parent 1:9 | Specified class not found
        qdisc add parent 20: handle 30: bfifo
        qdisc add parent 20:1 handle 31: bfifo | NLM_F_REPLACE needed to override
        qdisc replace parent 20:1 handle 1: bfifo \
         | Cannot move an existing qdisc to a different parent
        qdisc replace parent 20:1 handle 30: bfifo limit 3000
        qdisc replace parent 20:1 handle 30: pfifo | Invalid qdisc name: must match existing qdisc
        = mq 1: root
        = pfifo_fast 0: parent 1:4
        = pfifo_fast 0: parent 1:3
        = pfifo_fast 0: parent 1:1
        = bfifo 30: parent 20:1 limit 3000b
        = tbf 20: parent 1:2 rate 250000
        = clsact ffff: parent ffff:fff1
        qdisc replace parent 1:3 mq | Operation not supported
        qdisc replace parent 1:3 noqueue | Cannot assign noqueue to a class
        qdisc del parent 20:1
        qdisc del parent 1:2
        class add parent 1: classid 1:9 drr quantum 3 | Operation not supported
        class del classid 1:1 | Operation not supported
        class del classid 7:1 | No such file or directory
        class add parent 7: classid 7:1 drr | No such file or directory
        qdisc del root
        = noqueue 0: root refcnt 2
        = clsact ffff: parent ffff:fff1",
    );
}

// Goal: clsact is added and deleted as in the kernel.
#[test]
fn clsact() {
    replay(
        &mut tree(""),
        "qdisc add handle ffff: clsact
        qdisc add handle 3: clsact | Exclusivity flag on, cannot modify
        qdisc add clsact | Exclusivity flag on, cannot modify
        qdisc replace clsact
        qdisc change clsact
        qdisc del clsact
        filter add egress matchall action drop | Parent Qdisc doesn't exists
        = noqueue 0: root refcnt 2",
    );
}

// Goal: classes are added, changed and deleted with the kernel's texts (recorded with htb, which
// has the same code path).
#[test]
fn classes_of_drr() {
    let mut tree = tree("");
    replay(
        &mut tree,
        "qdisc add root handle 1: drr
        class add parent 1: classid 1:1 drr quantum 3000
        class add parent 1: classid 1:1 drr | File exists
        class add parent 1: classid 2:1 drr | Invalid argument
        class add parent 2: classid 1:1 drr | Invalid argument
        class add parent 1: drr | Invalid argument
        class add classid 1:5 drr
        class change parent 1: classid 1:8 drr | No such file or directory
        class del classid 1:8 | No such file or directory
        class add parent 1: classid 1:9 drr quantum 0 | Specified DRR quantum cannot be zero
        class replace parent 1: classid 1:1 drr quantum 2000
        qdisc add parent 1:5 handle 50: pfifo
        filter add parent 1: protocol ip prio 1 flower dst_port 80 classid 1:5 \
         | Illegal \"dst_port\": it needs ip_proto tcp, udp or sctp
        filter add parent 1: protocol ip prio 1 flower ip_proto tcp dst_port 80 classid 1:5
        class del classid 1:5 | DRR class is in use
        filter del parent 1: prio 1",
    );
    let shown = ["drr 1:1 root quantum 2000", "drr 1:5 root leaf 50: quantum 1514"];
    assert_eq!(classes(&tree, 4), shown);
    replay(&mut tree, "class del classid 1:5");
    assert_eq!(classes(&tree, 4), shown[..1]);
}

// Goal: filters are added, changed and deleted by priority, protocol and handle as in the kernel,
// with the kernel's texts and automatic priorities.
#[test]
fn filters() {
    let mut tree = tree("");
    replay(
        &mut tree,
        "qdisc add root handle 1: prio
        filter add parent 1: flower classid 1:1
        filter add parent 1: protocol ip flower classid 1:1
        filter add parent 1: protocol ip prio 49152 flower classid 1:1 \
         | Protocol mismatch for filter with specified priority
        filter add parent 1: protocol ipv6 prio 5 flower classid 1:1
        filter add parent 1: protocol ip prio 5 flower classid 1:1 \
         | Protocol mismatch for filter with specified priority
        filter add parent 1: protocol ip prio 0 flower classid 1:1
        filter add protocol ip prio 7 flower classid 1:1
        filter add parent 2: protocol ip prio 7 flower classid 1:1 | Parent Qdisc doesn't exists",
    );
    let prios = |tree: &Tree| tree.filters().iter().map(|f| f.pref).collect::<Vec<_>>();
    assert_eq!(prios(&tree), [5, 7, 49150, 49151, 49152]);
    replay(
        &mut tree,
        "filter del parent 1: prio 99 | Filter with specified priority/protocol not found
        filter del parent 1: prio 5 handle 801 | Must specify filter type when using \"handle\"
        filter del parent 1: prio 5 handle 801 flower | Specified filter handle not found
        filter del parent 1: prio 5 handle 1 fw | Specified filter kind does not match existing one
        filter del parent 1: prio 5 protocol ip \
         | Protocol mismatch for filter with specified priority
        filter del parent 1: prio 5
        filter del parent 1: protocol ip \
         | Cannot flush filters with protocol, handle or kind set
        filter del parent 1:
        filter del parent 1:
        filter del parent 3: | Parent Qdisc doesn't exists
        filter del parent 3: prio 3 | Parent Qdisc doesn't exists
        filter change parent 1: prio 99 flower | Filter kind and protocol must be specified
        filter change parent 1: flower | Invalid filter command with priority of zero
        filter replace parent 1: prio 9 flower classid 1:1
        filter replace parent 1: prio 9 handle 1 flower classid 1:2
        filter add parent 1: prio 9 handle 1 flower classid 1:2 | Filter already exists
        filter add parent 1: prio 9 flower classid 1:2 | File exists
        filter add parent 1: nosuch | TC classifier not found
        filter add parent 1: | Filter kind and protocol must be specified",
    );
    assert_eq!(prios(&tree), [9]);
    assert_eq!(tree.filters()[0].class, Some(Handle::new(1, 2)));
}

// Goal: on a single queue mq is rejected and noqueue is accepted.
#[test]
fn one_queue() {
    let mut tree = tree("");
    let e = tree.apply(&command("qdisc add root mq"), 1, 1).unwrap_err();
    assert_eq!((e.errno, &*e.message), (Errno::NotSupported, "Operation not supported"));
    assert_eq!(tree.apply(&command("qdisc replace root pfifo"), 1, 1), Ok(true));
    assert_eq!(shown(&tree, 1), ["pfifo 8001: root refcnt 2 limit 1000p"]);
    assert_eq!(tree.apply(&command("qdisc add root noqueue"), 1, 1), Ok(true));
    assert_eq!(shown(&tree, 1), ["noqueue 8002: root refcnt 2"]);
}
