//! `mqnet tc` compared with the real tc.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::process::Command;

use mqnet_testkit::{Folder, Host, Need, World, captured, has, program};
use serde_json::{Value, json};

/// Server of a control socket that reports the qdiscs of a kernel device as those of a netdev of
/// mqnet.
struct Replay {
    socket: String,
}

fn answer(path: &str, dev: &str, qdiscs: &Value) -> Value {
    match path {
        "/v1/instance" => json!({ "version": "0", "pid": 1, "mode": "link", "uptime-ms": 0 }),
        "/v1/links" => json!([]),
        "/v1/netdevs" => json!([{
            "name": dev, "ifindex": 1, "function": "null:", "link": dev, "partner": "p",
            "carrier": true,
        }]),
        _ => qdiscs.clone(),
    }
}

impl Replay {
    fn start(folder: &Folder, name: &str, dev: &str, qdiscs: Value) -> Self {
        let path = folder.file(name);
        let listener = UnixListener::bind(&path).expect("a socket");
        let dev = dev.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(&stream).lines();
                // Skip a connection without a request: a client that only tests whether the process
                // is alive.
                let Some(Ok(first)) = lines.next() else { continue };
                let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
                while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
                let body = answer(&path, &dev, &qdiscs).to_string();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
                let n = body.len();
                let _ = write!(&stream, "{head}\r\nContent-Length: {n}\r\n\r\n{body}");
            }
        });
        Self { socket: path.display().to_string() }
    }

    fn tc(&self, words: &str) -> String {
        let mut command = Command::new(program());
        command.args(["--control", &self.socket, "tc"]).args(words.split(' '));
        let printed = captured(&mut command);
        assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""), "{words}");
        printed.out
    }
}

fn real(host: &Host, words: &str) -> String {
    let words: Vec<&str> = std::iter::once("tc").chain(words.split(' ')).collect();
    host.run(&words)
}

/// Creates a veth pair that has carried traffic and becomes idle.
fn idle_pair(host: &Host) {
    for line in [
        "ip link add v0 numtxqueues 4 type veth peer name v1",
        "ip addr add 10.77.0.1/24 dev v0",
        "ip link set v1 up",
        "ip link set v0 up",
    ] {
        host.run(&line.split(' ').collect::<Vec<_>>());
    }
}

// Goal: from the numbers of `tc -j`, `mqnet tc` prints the same bytes as the installed tc.
#[test]
fn a_kernels_numbers_look_alike() {
    if !has(&[Need::Root, Need::Program("tc")]) {
        return;
    }
    let world = World::create();
    let host = &world.a;
    idle_pair(host);
    let setups = [
        "root handle 1: pfifo limit 7",
        "root handle 1: bfifo limit 10240",
        "root handle 1: bfifo limit 1514000",
        "root handle 1: pfifo_fast",
        "root handle 1: mq",
        "root handle 1: tbf rate 1mbit burst 10kb latency 50ms",
        "root handle 1: tbf rate 1234567 burst 1601 limit 1234567",
        "root handle 1: tbf rate 64gbit burst 10mb limit 300mb",
        "root handle 1: tbf rate 1mbit burst 10kb limit 3000",
        "root noqueue",
        "clsact",
    ];
    for (number, setup) in setups.into_iter().enumerate() {
        real(host, &format!("qdisc add dev v0 {setup}"));
        // Let neighbour discovery end, so that the counters do not change between the calls of tc.
        std::thread::sleep(std::time::Duration::from_millis(200));
        host.run(&["ip", "link", "set", "v1", "down"]);
        let numbers = real(host, "-s -j qdisc show dev v0");
        let numbers = serde_json::from_str(&numbers).expect("JSON");
        let replay = Replay::start(world.folder(), &format!("{number}.sock"), "v0", numbers);
        for words in [
            "qdisc show dev v0",
            "-s qdisc show dev v0",
            "-s -d qdisc show dev v0",
            "-j qdisc show dev v0",
            "-s -j -p qdisc show dev v0",
            "qdisc show dev v0 root",
            "qdisc show dev v0 parent 1:3",
            "qdisc show dev v0 handle 1:",
        ] {
            assert_eq!(replay.tc(words), real(host, words), "{setup}: {words}");
        }
        host.run(&["ip", "link", "set", "v1", "up"]);
        let place = if setup == "clsact" { "clsact" } else { "root" };
        let words = format!("tc qdisc del dev v0 {place}");
        host.command(&words.split(' ').collect::<Vec<_>>()).output().expect("tc");
    }
}
