//! The kernel's `ntb_netdev` as the peer of `mqnet link`.

use std::time::Duration;

use mqnet_guest::{Guest, Kernel};
use mqnet_ntb::hw::vfio_user::qemu_device;
use mqnet_testkit::{LinkProcess, Need, World, has};

use super::there_with_ntb;

pub(super) const NEEDS: [Need; 3] = [Need::Root, Need::Program("ping"), Need::Program("python3")];

/// Shell functions of the scripts. `setup QUEUE-PAIRS MTU` loads the drivers.
pub(super) const SETUP: &str = r#"
fail() { echo "FAIL $*"; report; exit 1; }
setup() {
    insmod /ntb/ntb.ko && insmod /ntb/ntb_hw_epf.ko || fail insmod
    insmod /ntb/ntb_transport.ko max_num_clients=$1 $transport_options &&
        insmod /ntb/ntb_netdev.ko || fail insmod
    for i in $(seq 50); do [ -e /sys/class/net/eth0 ] && break; sleep 0.1; done
    ip link set eth0 mtu $2 || fail mtu
    ip addr add 10.0.0.2/24 dev eth0
    ip -6 addr add fd00::2/64 dev eth0 nodad
    ip link set eth0 up
    carrier
}
carrier() {
    for i in $(seq 100); do [ "$(cat /sys/class/net/eth0/carrier)" = 1 ] && return; sleep 0.1; done
    fail carrier
}
pings() { ping -c 5 -i 0.2 -W 5 "$@" || fail ping "$@"; }
report() {
    dmesg | grep -i -E 'ntb|qp [0-9]' | grep -v -i -E 'taint|verification|Freeing item'
    grep ntb_epf /proc/interrupts | awk '$2 > 0 { print $1, $2 }'
    ip -s link show eth0
}
# Sends a file and compares the digest that comes back; receives a file that begins with its digest.
upload() {
    local size=$(stat -c %s $1)
    local theirs=$({ printf %016d $size; cat $1; } | nc 10.0.0.1 7001)
    [ "$theirs" = "$(sha256sum < $1 | cut -d' ' -f1)" ] || fail upload "$theirs"
}
download() {
    nc 10.0.0.1 7002 < /dev/null > /tmp/down.$1 || fail download
    [ "$(head -c 64 /tmp/down.$1)" = "$(tail -c +65 /tmp/down.$1 | sha256sum | cut -d' ' -f1)" ] ||
        fail download $(stat -c %s /tmp/down.$1)
}
"#;

/// Server on the host for `upload` and `download`, and counter of boots. Its arguments are the
/// address and the number of bytes to send.
const SERVER: &str = "import hashlib, os, socket, sys, threading
data = os.urandom(int(sys.argv[2]))
def whole(s, n):
    parts = []
    while n:
        part = s.recv(min(n, 1 << 20))
        if not part: raise EOFError(n)
        parts.append(part)
        n -= len(part)
    return b''.join(parts)
def take(s):
    size = int(whole(s, 16))
    s.sendall(hashlib.sha256(whole(s, size)).hexdigest().encode())
    s.close()
def give(s):
    s.sendall(hashlib.sha256(data).hexdigest().encode() + data)
    s.close()
def serve(port, what):
    listener = socket.create_server((sys.argv[1], port), backlog=16)
    print('ready', flush=True)
    while True:
        threading.Thread(target=what, args=(listener.accept()[0],), daemon=True).start()
boots = iter(range(1, 10000))
def count(s):
    s.sendall(str(next(boots)).encode())
    s.close()
threading.Thread(target=serve, args=(7001, take), daemon=True).start()
threading.Thread(target=serve, args=(7003, count), daemon=True).start()
serve(7002, give)
";

/// Process that is killed at the end of the test.
pub(super) struct Process(std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail only if the child has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the server in host `a`.
pub(super) fn serve(world: &World, bytes: usize) -> Process {
    use std::io::{BufRead, BufReader};
    let bytes = bytes.to_string();
    let mut command = world.a.command(&["python3", "-c", SERVER, "0.0.0.0", &bytes]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("python3");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    assert_eq!(output.lines().map_while(Result::ok).take(3).count(), 3);
    Process(child)
}

pub(super) fn link(world: &World, tap: &str, ntb: &str) -> LinkProcess {
    let mut command = world.folder().program();
    command.args(["link", "--json"]);
    let addresses = "address=10.0.0.1/24,address=fd00::1/64";
    command.arg(format!("tap:a,netns={},{addresses}{tap}", world.a.name()));
    command.arg(format!("ntb:vfio-user={}{ntb}", world.file("ntb.sock").display()));
    let link = LinkProcess::spawn(command);
    mqnet_testkit::until("the socket", || world.file("ntb.sock").exists().then_some(()));
    link
}

pub(super) fn guest(world: &World, name: &str, script: &str) -> Guest {
    let name = &name.replace([',', '='], "-");
    let device = qemu_device(&world.file("ntb.sock"));
    let guest = Guest::new(Kernel::V7_3, name).bare().with_ntb().memory(512).cpus(1);
    let guest = guest.qemu(&["-device", &device]).limit(Duration::from_secs(300));
    guest.script("test", &format!("{SETUP}{script}"))
}

/// Runs the guest to its end and returns the output of its script. A failure shows the output of
/// mqnet.
pub(super) fn run(link: &LinkProcess, guest: Guest) -> String {
    let outcome = guest.run();
    let passed = outcome.and_then(|outcome| Ok(outcome.passed("test")?.output.clone()));
    match passed {
        Ok(output) => output,
        Err(e) => {
            let events: Vec<_> = ["up", "down", "changed"].map(|event| link.events(event)).into();
            panic!("{e}\n{}\n{events:#?}", link.text());
        }
    }
}

const PING: &str = r#"
setup 4 1500
pings 10.0.0.1
pings fd00::1
ethtool -L eth0 combined 4 || fail channels
pings 10.0.0.1
report
"#;

fn pings(device: &str) {
    if !has(&NEEDS) || !there_with_ntb() {
        return;
    }
    let world = World::create();
    let link = link(&world, "", &format!(",device={device}"));
    let output = run(&link, guest(&world, &format!("ntb-ping-{device}"), PING));
    for pair in 0..4 {
        assert!(output.contains(&format!("qp {pair}: Link Up")), "{output}");
    }
    let changed = link.events("changed");
    assert!(changed.iter().any(|text| text.contains("4 channels")), "{changed:?}");
    let table = link.stop();
    assert_eq!((table.out().drops, table.back().drops), (0, 0));
}

// Rule: a stock ntb_netdev and a TAP exchange IPv4 and IPv6 packets over one and over four queue
// pairs on the device `rcar`. `ethtool -L` in the guest changes the channels of the link.
#[test]
fn stock_ntb_netdev_pings_through_rcar() {
    pings("rcar");
}

// Rule: pings and channel changes work on the device `imx8` with its maximum number of windows.
#[test]
fn stock_ntb_netdev_pings_through_imx8() {
    pings("imx8,windows=2");
}

// Rule: pings and channel changes work on the device `j721e` with its maximum number of windows.
#[test]
fn stock_ntb_netdev_pings_through_j721e() {
    pings("j721e,windows=4");
}

const TRAFFIC: &str = r#"
setup 4 MTU
ethtool -L eth0 combined 4 || fail channels
ping -c 3 -i 0.2 -W 5 -M do -s $((MTU - 28)) 10.0.0.1 || fail jumbo
head -c 4000000 /dev/urandom > /tmp/up
for i in 1 2 3; do
    upload /tmp/up
    download 0
done
for i in 1 2 3 4; do
    upload /tmp/up & uploads="$uploads $!"
    download $i & uploads="$uploads $!"
done
for job in $uploads; do wait $job || fail job; done
report
echo DONE
"#;

fn carries(mtu: u32) {
    if !has(&NEEDS) || !there_with_ntb() {
        return;
    }
    let world = World::create();
    let link = link(&world, &format!(",mtu={mtu}"), "");
    let _server = serve(&world, 4_000_000);
    let script = TRAFFIC.replace("MTU", &mtu.to_string());
    let output = run(&link, guest(&world, &format!("ntb-traffic-{mtu}"), &script));
    assert!(output.contains("DONE"), "{output}");
    let table = link.stop();
    assert_eq!((table.out().drops, table.back().drops), (0, 0));
}

// Rule: TCP in both directions over four queue pairs transfers every byte with an MTU of 1500.
#[test]
fn tcp_is_whole_with_mtu_1500() {
    carries(1500);
}

// Rule: TCP in both directions over four queue pairs transfers every byte with an MTU of 9000.
#[test]
fn tcp_is_whole_with_mtu_9000() {
    carries(9000);
}

// Rule: TCP in both directions over four queue pairs transfers every byte with an MTU of 65510.
#[test]
fn tcp_is_whole_with_mtu_65510() {
    carries(65510);
}
