//! `virtio-user:` with an independent device: passt sends frames without checksums and marks them
//! DATA_VALID.

use std::process::{Child, Command, Stdio};

use mqnet_testkit::{Host, LinkProcess, Need, World, has, skip, until};

const NEEDS: [Need; 3] = [Need::Root, Need::Program("python3"), Need::Program("ping")];

/// Address of the guest, and address at which the guest reaches the host's network (passt's local
/// mode).
const GUEST: &str = "169.254.2.1/16";
const OUTSIDE: &str = "169.254.2.2";

/// Bytes of a TCP stream in each direction.
const BYTES: usize = 100 << 20;

/// Script that accepts one connection and calls `stream`.
const SERVE: &str = "
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
print('ready', flush=True)
stream(s.accept()[0], 1, 2)
";

/// Script that connects and calls `stream`.
const CONNECT: &str = "
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
stream(s, 2, 1)
";

/// Function of the scripts that sends and receives at the same time, and compares the received
/// bytes with the sequence of the other end.
const STREAM: &str = "import hashlib,random,socket,sys,threading
def stream(s, mine, theirs):
    size = int(sys.argv[3])
    s.settimeout(60)
    def blocks(seed):
        r = random.Random(seed)
        for _ in range(size >> 20): yield r.randbytes(1 << 20)
    def send():
        for block in blocks(mine): s.sendall(block)
        s.shutdown(socket.SHUT_WR)
    t = threading.Thread(target=send)
    t.start()
    came, n = hashlib.sha256(), 0
    while data := s.recv(1 << 20):
        came.update(data)
        n += len(data)
    t.join()
    made = hashlib.sha256()
    for block in blocks(theirs): made.update(block)
    assert (n, came.digest()) == (size, made.digest()), (n, size)
    print('equal', flush=True)
";

const ECHO: &str = "import socket,sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
print('ready', flush=True)
while True:
    data, peer = s.recvfrom(4000)
    s.sendto(data, peer)
";

/// Script that sends datagrams of many lengths until each has returned unchanged.
const DATAGRAMS: &str = "import socket,sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], int(sys.argv[2])))
s.settimeout(1)
for n in range(0, 1472, 7):
    data = bytes([n % 256]) * n
    for attempt in range(30):
        s.send(data)
        try:
            while s.recv(4000) != data: pass
            break
        except TimeoutError: pass
    else: sys.exit(f'{n} bytes never came back')
print('equal', flush=True)
";

/// Process that is killed at the end of the test.
struct Process(Child);

impl Process {
    fn start(mut command: Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().expect("a process"))
    }

    /// Starts a Python program and waits until it prints `ready`.
    fn python(host: &Host, script: &str, arguments: &[&str]) -> Self {
        use std::io::{BufRead, BufReader};
        let mut command = host.command(&[&["python3", "-c", script], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("python3");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn wait(mut self) {
        let status = until("the end of a program", || self.0.try_wait().expect("a child"));
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail only if the child has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts passt in host `b`, listening on port 7002 for connections to the guest. Skips the test
/// and returns `None` if passt is not available.
fn passt(world: &World) -> Option<Process> {
    let command = match mqnet_guest::passt::command() {
        Ok(command) => command,
        Err(e) => {
            skip(&format!("passt: {e}"));
            return None;
        }
    };
    let text = |word: &std::ffi::OsStr| word.to_string_lossy().into_owned();
    let mut words = vec![text(command.get_program())];
    words.extend(command.get_args().map(text));
    let socket = world.file("passt.sock").display().to_string();
    words.extend(["--foreground", "--quiet", "--vhost-user", "--socket"].map(str::to_owned));
    words.extend([&socket, "--runas", "0", "--tcp-ports", "7002"].map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // passt drops data at a full socket, and the guest retransmits only after a timeout. The socket
    // buffers therefore exceed the largest window that passt announces to the guest.
    let buffers = "4096 33554432 33554432";
    for set in [
        "net.ipv4.ping_group_range=0 2147483647".to_owned(),
        format!("net.ipv4.tcp_wmem={buffers}"),
        format!("net.ipv4.tcp_rmem={buffers}"),
    ] {
        world.b.run(&["sysctl", "-qw", &set]);
    }
    let process = Process::start(world.b.command(&words));
    until("passt's socket", || world.file("passt.sock").exists().then_some(()));
    Some(process)
}

fn checksum_errors(host: &Host) -> u64 {
    ["TcpInCsumErrors", "UdpInCsumErrors", "IcmpInCsumErrors"]
        .map(|n| host.protocol(n))
        .iter()
        .sum()
}

// Goal: ping, TCP in both directions and UDP work with an independent device that omits checksums
// and marks frames as valid. Every stream and datagram arrives complete, and every checksum is
// correct.
#[test]
fn a_foreign_device_that_leaves_checksums_out() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let Some(_passt) = passt(&world) else { return };
    let mut command = world.folder().program();
    command.args(["link", "--json"]);
    command.arg(format!("tap:a,netns={},address={GUEST}", world.a.name()));
    command.arg(format!("virtio-user:{}", world.file("passt.sock").display()));
    let link = LinkProcess::spawn(command);
    link.wait_up(1);
    world.a.run(&["ping", "-c", "3", "-i", "0.2", "-W", "5", OUTSIDE]);

    let bytes = BYTES.to_string();
    let serve = format!("{STREAM}{SERVE}");
    let connect = format!("{STREAM}{CONNECT}");
    let server = Process::python(&world.b, &serve, &["127.0.0.1", "7001", &bytes]);
    let outgoing = ["python3", "-c", &connect, OUTSIDE, "7001", &bytes];
    assert_eq!(world.a.run(&outgoing), "equal\n");
    server.wait();

    // Incoming connection, with fewer bytes than the outgoing one.
    let few = (8 << 20).to_string();
    let server = Process::python(&world.a, &serve, &["0.0.0.0", "7002", &few]);
    let incoming = ["python3", "-c", &connect, "127.0.0.1", "7002", &few];
    assert_eq!(world.b.run(&incoming), "equal\n");
    server.wait();

    let _echo = Process::python(&world.b, ECHO, &["127.0.0.1", "7003"]);
    assert_eq!(world.a.run(&["python3", "-c", DATAGRAMS, OUTSIDE, "7003"]), "equal\n");

    assert_eq!(checksum_errors(&world.a), 0, "wrong checksums");
    let table = link.stop();
    assert_eq!((table.out().drops, table.back().drops), (0, 0));
    assert!(table.back().tx_packets > 0);
}
