//! Channels of `ntb:vfio-user=` that change under traffic, channels that several queue pairs share,
//! and a stopped guest. One boot serves all tests, with two endpoints of one daemon.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mqnet_guest::Kernel;
use mqnet_ntb::hw::vfio_user::qemu_device;
use mqnet_sysio::process;
use mqnet_testkit::{Control, EndTable, Host, Lane, Need, Stream, World, has};
use serde_json::Value;

use super::netdev::{NEEDS, SETUP, serve};
use super::{shown, there_with_ntb};

const PROGRAMS: [Need; 3] =
    [Need::Program("ethtool"), Need::Program("curl"), Need::Program("tshark")];
/// Numbers of channels, in the order of the changes.
const STEPS: &str = "3 8 5 2 7 4 6 1";
/// Numbers of channels that never remove queues 0 and 1.
const KEPT_STEPS: &str = "3 8 5 2 7 4 6 2";
const STEP_COUNT: usize = 8;
/// Number of senders of numbered datagrams, and pause of a sender after each datagram, in
/// microseconds.
const SENDERS: &str = "6";
const PAUSE_US: &str = "4000";
/// Seconds for which the senders run.
const SECONDS: &str = "5";
/// Time without a datagram after which a receiver ends.
const SILENCE_MS: &str = "3000";
/// Queue pairs that share two channels.
const SHARING: u64 = 4;

const SCRIPT: &str = r#"
say() { echo "$1" > /dev/ttyS0; }
transport_options=transport_mtu=4096
setup 8 1500
ip addr add 10.0.1.2/24 dev eth1; ip link set eth1 up
for i in $(seq 100); do [ "$(cat /sys/class/net/eth1/carrier)" = 1 ] && break; sleep 0.1; done
pings 10.0.0.1 > /dev/null
ping -c 5 -i 0.2 -W 5 10.0.1.1 > /dev/null || fail ping eth1

# Changes the number of channels while the process runs.
steps() {
    local n=0
    while kill -0 $1 2> /dev/null; do
        for channels in $3; do
            ethtool -L eth0 combined $channels || fail channels $channels
            n=$((n + 1))
            sleep 0.4
        done
    done
    echo "STEPS $2 $n"
}
numbered() {
    guest-flood receive 10.0.0.2:9002 SILENCE > /tmp/received & local receiver=$!
    while ! grep -q ":232A " /proc/net/udp; do sleep 0.1; done
    say "STAGE $1"
    sleep 1
    guest-flood send 10.0.0.1:9001 SENDERS SECONDS PAUSE > /tmp/sent & local sender=$!
    sleep 1
    steps $sender $1 "$2"
    wait $sender; wait $receiver
    echo "SENT $1 $(cat /tmp/sent)"
    echo "RECEIVED $1 $(cat /tmp/received)"
}
# All frames to queue 1, which is never removed.
ethtool -L eth0 combined 2
modprobe -aq cls_matchall act_skbedit sch_ingress
tc qdisc add dev eth0 clsact &&
    tc filter add dev eth0 egress matchall action skbedit queue_mapping 1 || fail tc
sleep 0.5
numbered kept "KEPT_STEPS"
tc qdisc del dev eth0 clsact
ethtool -L eth0 combined 8
sleep 0.5
numbered spread "STEPS"

tcp() {
    for i in 1 2 3; do
        upload /tmp/up & local jobs="$jobs $!"
        download $i & jobs="$jobs $!"
    done
    for job in $jobs; do wait $job || exit 1; done
}
head -c 2000000 /dev/urandom > /tmp/up
tcp & job=$!
steps $job tcp "STEPS"
wait $job || fail tcp

ethtool -L eth1 combined 4 || fail channels eth1
sleep 0.5
sent() { tc -s class show dev eth1 | sed -n 's/^ Sent \([0-9]*\) bytes.*/\1/p' | head -4; }
before=($(sent))
say "STAGE shared"
sleep 1
echo "SENT shared $(guest-flood send 10.0.1.1:9001 32 2 20000)"
after=($(sent))
for pair in 0 1 2 3; do echo "PAIR $((after[pair] - before[pair]))"; done

ethtool -L eth0 combined 4 || true
sleep 0.5
say "STAGE stopped"
for i in 1 2 3; do download $i; done
pings 10.0.0.1 > /dev/null
report
sleep 2
for way in rx tx; do echo "FRAMES $way $(cat /sys/class/net/eth0/statistics/${way}_packets)"; done
say "STAGE shown"
sleep 15
echo DONE
"#;

/// Counts of one direction of numbered datagrams.
#[derive(Debug)]
struct Count {
    sent: u64,
    received: u64,
    /// Number of datagrams that were late or duplicated.
    wrong: u64,
}

/// Program on the host that prints a JSON object.
struct Counting(Child);

impl Counting {
    fn start(host: &Host, words: &[&str]) -> Self {
        let mut command: Command = host.command(words);
        Self(command.stdout(Stdio::piped()).spawn().expect("guest-flood"))
    }

    fn finish(self) -> Value {
        let output = self.0.wait_with_output().expect("its output");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

struct Rig {
    world: World,
    control: Control,
    flood: String,
}

impl Rig {
    fn config(&self) -> String {
        let (a, b) = (self.world.a.name(), self.world.b.name());
        let socket = |name: &str| self.control.file(name).display().to_string();
        format!(
            "[link.eight]\na = 'tap:a,netns={a},address=10.0.0.1/24'\n\
             b = 'ntb:vfio-user={},queues=8,transport-mtu=4096,name=n'\n\
             [link.two]\na = 'xdp:nic,netns={a}'\n\
             b = 'ntb:vfio-user={},queues=8,transport-mtu=4096,name=m'\n\
             [link.good]\na = 'tap:x,netns={a},address=10.9.1.1/24'\n\
             b = 'tap:y,netns={b},address=10.9.1.2/24'\n",
            socket("n.sock"),
            socket("m.sock"),
        )
    }

    /// Creates a NIC with two queues; its peer is in host `b`.
    fn make_nic(&self) {
        let queues = "numrxqueues 2 numtxqueues 2";
        let b = self.world.b.name();
        let words = format!("ip link add nic {queues} type veth peer name peer {queues} netns {b}");
        self.world.a.run(&words.split(' ').collect::<Vec<_>>());
        self.world.a.run(&["ip", "link", "set", "nic", "up"]);
        self.world.b.run(&["ethtool", "-K", "peer", "tx", "off"]);
        self.world.b.run(&["ip", "addr", "add", "10.0.1.1/24", "dev", "peer"]);
        self.world.b.run(&["ip", "link", "set", "peer", "up"]);
    }

    /// Counters of a running link, in the format of the final table.
    fn stats(&self, dev: &str) -> EndTable {
        let mut stats = self.control.json(&["stats", "-j", dev])[0].clone();
        for direction in ["a-to-b", "b-to-a"] {
            let drops = stats[direction]["drops"].as_array().expect("a list of drops").clone();
            let by_reason = |drop: &Value| {
                let reason = drop["reason"].as_str().expect("a reason").to_owned();
                (reason, drop["frames"].clone())
            };
            stats[direction]["drops"] = drops.iter().map(by_reason).collect();
        }
        EndTable(stats)
    }

    /// Sends numbered datagrams to the guest and receives the guest's datagrams. Returns the JSON
    /// of the host's sender and of the host's receiver.
    fn numbered(&self) -> (Value, Value) {
        let a = &self.world.a;
        let receiver = Counting::start(a, &[&self.flood, "receive", "10.0.0.1:9001", SILENCE_MS]);
        let words = [&*self.flood, "send", "10.0.0.2:9002", SENDERS, SECONDS, PAUSE_US];
        let sender = Counting::start(a, &words);
        (sender.finish(), receiver.finish())
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn count(sent: &Value, received: &Value) -> Count {
    let [wrong, received] = ["wrong", "received"].map(|key| number(received, key));
    Count { sent: number(sent, "sent"), received, wrong }
}

/// JSON object that the guest printed after these words.
fn printed(output: &str, words: &str) -> Value {
    let line = output.lines().find_map(|line| line.trim().strip_prefix(words));
    serde_json::from_str(line.unwrap_or_else(|| panic!("no {words} in {output}"))).expect("JSON")
}

/// Frames that mqnet dropped, except those for a queue pair that the guest has closed.
fn dropped_inside(table: &EndTable) -> u64 {
    let closed = |direction: &str| {
        let drops = &table.0[direction]["drops"];
        drops["device-down"].as_u64().unwrap_or_default()
    };
    let all = table.out().drops + table.back().drops;
    all - closed("a-to-b") - closed("b-to-a")
}

/// Stops QEMU while frames are sent to the guest. Asserts that another link of the daemon keeps at
/// least a tenth of its throughput during 1.5 s, and that mqnet drops no frame.
fn stop_guest(rig: &Rig, qemu: u32) -> Lane {
    const SPAN: Duration = Duration::from_millis(1500);
    let stream = Stream::start(&rig.world.a, &rig.world.b, "10.9.1.2");
    let bytes = || {
        let before = stream.received();
        std::thread::sleep(SPAN);
        stream.received() - before
    };
    let with_guest = bytes();
    process::freeze(qemu).expect("SIGSTOP");
    let flood = [&*rig.flood, "send", "10.0.0.2:9003", "4", "1"];
    let flood = Counting::start(&rig.world.a, &flood);
    let stopped = bytes();
    flood.finish();
    let table = rig.stats("a");
    process::thaw(qemu).expect("SIGCONT");
    println!("other link: {with_guest} bytes with the guest, {stopped} while it is stopped");
    assert!(stopped * 10 >= with_guest, "{with_guest} bytes before, {stopped} while stopped");
    assert!(stream.finish() > 0);
    assert_eq!(dropped_inside(&table), 0, "{}", table.0);
    table.out()
}

fn judge(output: &str, stage: &str, host: &(Value, Value)) -> [Count; 2] {
    let from_guest = count(&printed(output, &format!("SENT {stage} ")), &host.1);
    let to_guest = count(&host.0, &printed(output, &format!("RECEIVED {stage} ")));
    println!("{stage}: from the guest {from_guest:?}, to the guest {to_guest:?}");
    assert!(from_guest.received > 0 && to_guest.received > 0, "{stage}");
    // The guest's kernel may reorder a flow that it moves to another queue. In the stage `kept` no
    // flow moves.
    assert!(stage != "kept" || from_guest.wrong == 0, "{stage}: {from_guest:?}");
    assert_eq!(to_guest.wrong, 0, "{stage}: {to_guest:?}");
    [from_guest, to_guest]
}

/// Asserts that each stage of traffic had the expected number of channel changes.
fn assert_steps(output: &str) {
    for stage in ["kept", "spread", "tcp"] {
        let words = format!("STEPS {stage} ");
        let steps: usize = output
            .lines()
            .find_map(|line| line.trim().strip_prefix(&words)?.parse().ok())
            .expect("a number of steps");
        assert!(steps >= STEP_COUNT, "{stage}: {steps} changes");
    }
}

// Rule: a guest changes its channels from 1 to 8 under numbered datagrams and TCP. mqnet loses only
// frames of a queue pair that the guest closes, and counts them. Frames of flows that keep their
// queue are neither lost nor reordered; frames to the guest are not reordered. Four queue pairs
// share two channels of another netdev. A stopped guest stalls its own link and no other.
#[test]
fn channels_change_under_traffic() {
    if !has(&NEEDS) || !has(&PROGRAMS) || !there_with_ntb() {
        return;
    }
    let flood = mqnet_guest::build_one("mqnet-guest", "guest-flood").unwrap();
    let rig = Rig { world: World::create(), control: Control::create(), flood: String::new() };
    let rig = Rig { flood: install(&rig.control, &flood), ..rig };
    rig.make_nic();
    let file = rig.control.write("mqnet.toml", &rig.config()).display().to_string();
    let daemon = rig.control.start(&["daemon", "-f", &file]);
    rig.control.wait_up("good");
    let _server = serve(&rig.world, 2_000_000);
    let mut script = format!("{SETUP}{SCRIPT}");
    for (word, value) in [
        ("KEPT_STEPS", KEPT_STEPS.to_owned()),
        ("\"STEPS\"", format!("\"{STEPS}\"")),
        (" SILENCE ", format!(" {SILENCE_MS} ")),
        (" SENDERS SECONDS PAUSE", format!(" {SENDERS} {SECONDS} {PAUSE_US}")),
    ] {
        script = script.replace(word, &value);
    }
    let guest = mqnet_guest::Guest::new(Kernel::V7_3, "ntb-channels").bare().with_ntb();
    let guest = guest.memory(512).cpus(1).limit(Duration::from_secs(300));
    let devices = ["n.sock", "m.sock"].map(|name| qemu_device(&rig.control.file(name)));
    let guest = guest.qemu(&["-device", &devices[0], "-device", &devices[1]]);
    let guest = guest.file("bin/guest-flood", flood).script("test", &script);
    let mut running = guest.start().unwrap().boots().unwrap();
    let mut stage = |name: &str| {
        running.says(&format!("STAGE {name}")).unwrap_or_else(|e| panic!("{e}\n{}", daemon.err()));
    };
    stage("kept");
    let kept = rig.numbered();
    stage("spread");
    let spread = rig.numbered();
    stage("shared");
    let receiver = [&*rig.flood, "receive", "10.0.1.1:9001", SILENCE_MS];
    let shared = Counting::start(&rig.world.b, &receiver).finish();
    let show = rig.control.json(&["show", "--json", "two"]);
    assert_eq!(show[0]["channels"], 2, "{show}");
    stage("stopped");
    let qemu = running.pid();
    let lane = stop_guest(&rig, qemu);
    running.says("STAGE shown").unwrap();
    let (eight, two) = (rig.stats("a"), rig.stats("nic"));
    shown::check(&rig.control, &rig.world.a);
    let outcome = running.wait().unwrap();
    let output = &outcome.passed("test").unwrap().output;
    assert!(output.contains("DONE"), "{output}");
    assert_steps(output);
    let [from_guest, to_guest] = judge(output, "kept", &kept);
    assert_eq!(from_guest.sent, from_guest.received, "a flow that keeps its queue");
    println!("to the guest: {} lost", to_guest.sent - to_guest.received);
    judge(output, "spread", &spread);
    let shared = count(&printed(output, "SENT shared "), &shared);
    assert_eq!((shared.received, shared.wrong), (shared.sent, 0), "{shared:?}");
    let pairs: Vec<&str> =
        output.lines().filter_map(|line| line.trim().strip_prefix("PAIR ")).collect();
    assert_eq!(pairs.len() as u64, SHARING, "{output}");
    assert!(pairs.iter().all(|bytes| *bytes != "0"), "{pairs:?}");
    assert!(lane.tx_stop > 0, "a full ring stops its source: {lane:?}");
    assert_bridge(output, &eight);
    for table in [&eight, &two] {
        assert_eq!(dropped_inside(table), 0, "{}", table.0);
    }
    let back = eight.back();
    assert!(back.merged > 0 && back.tx_packets < back.rx_packets, "{back:?}");
    daemon.stop();
}

/// Asserts that mqnet received all frames that the guest put into slots. Frames to the guest may be
/// lost only in slots of a queue pair that the guest closes.
fn assert_bridge(output: &str, table: &EndTable) {
    let frames = |way: &str| -> u64 {
        let words = format!("FRAMES {way} ");
        let line = output.lines().find_map(|line| line.trim().strip_prefix(&words));
        line.and_then(|number| number.parse().ok()).expect("a number of frames")
    };
    let (out, back) = (table.out(), table.back());
    let closed = table.0["a-to-b"]["drops"]["device-down"].as_u64().unwrap_or_default();
    println!(
        "to the guest: {} frames, {} taken by its driver, {} lost in slots and {closed} dropped, \
         of pairs that it closed",
        out.rx_packets,
        frames("rx"),
        out.tx_lost
    );
    // The guest's kernel sends further frames (ARP, neighbour discovery) after it has counted.
    let sent = frames("tx")..=frames("tx") + 64;
    assert!(sent.contains(&back.rx_packets), "{} of {sent:?}", back.rx_packets);
    // A driver that closes a queue pair discards the frames in its slots without counting them.
    assert!(frames("rx") <= out.tx_packets, "{} of {}", frames("rx"), out.tx_packets);
}

/// Writes the program for the host; returns its path.
fn install(control: &Control, program: &[u8]) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = control.file("guest-flood");
    std::fs::write(&path, program).expect("a program");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    path.display().to_string()
}
