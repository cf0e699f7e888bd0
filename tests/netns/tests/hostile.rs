//! Hostile peers and clients. A hostile peer affects only its own link of the daemon, and a hostile
//! client no link.
//!
//! A daemon has a good link under numbered traffic and gets requests of every verb. The longest
//! response time and the longest delay of a datagram are measured first without the hostile
//! program, and then with it.

mod fuse;
mod ivshmem;
mod verbs;
mod vmm;

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mqnet_sysio::memory::{memory_file, seal_size};
use mqnet_sysio::process;
use mqnet_sysio::socket::{SeqSocket, StreamSocket};
use mqnet_testkit::{Control, Flows, Need, Running, World, has, until};
use nix::sys::eventfd::{EfdFlags, EventFd};

use self::fuse::Fuse;
use self::verbs::Verbs;
use self::vmm::Vmm;
use crate::control_daemon::tap_to_tap;

/// Duration of a measurement.
const SPAN: Duration = Duration::from_secs(3);
/// Interval of control requests.
const ASKING: Duration = Duration::from_millis(20);
/// Upper bound of the allowed delays of responses and datagrams, regardless of the quiet run.
const LIMIT: Duration = Duration::from_secs(1);
/// Delay that a busy machine may cause without a hostile program: a limit is at least 10 times this
/// value.
const NOISE: Duration = Duration::from_millis(20);

/// Longest delays of one measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    /// Responses to read requests.
    answer: Duration,
    /// Changes of the good link; the response waits for the kernel.
    change: Duration,
    datagram: Duration,
}

struct Bench {
    control: Control,
    daemon: Running,
    flows: Flows,
    quiet: Worst,
    verbs: Verbs,
    world: World,
}

impl Bench {
    /// Starts a daemon with the good link and `more` links, under traffic, and measures without a
    /// hostile program. `bad` names the netdevs of `more`.
    fn start(bad: &[&'static str], more: impl FnOnce(&World, &Control) -> String) -> Self {
        let (world, control) = (World::create(), Control::create());
        let text = tap_to_tap(&world, "good", 1) + "channels = 2\n" + &more(&world, &control);
        let file = control.write("mqnet.toml", &text).display().to_string();
        let daemon = control.start(&["daemon", "-f", &file]);
        control.wait_up("good");
        let flows = Flows::start(&world.a, &world.b, "10.9.1.2", 8, Duration::from_millis(4));
        flows.wait_more(100);
        let nothing = Worst::default();
        let verbs = Verbs::new(bad.to_vec());
        let mut bench = Self { control, daemon, flows, quiet: nothing, verbs, world };
        bench.quiet = bench.measure(|_| {});
        bench
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.control.file(name)
    }

    /// Measures while `hostile` runs; the argument of `hostile` becomes true at the end of the
    /// measurement.
    fn measure(&self, hostile: impl FnOnce(&AtomicBool) + Send) -> Worst {
        let over = AtomicBool::new(false);
        self.flows.take_worst();
        let mut delays = Worst::default();
        std::thread::scope(|scope| {
            let program = scope.spawn(|| hostile(&over));
            let (begin, mut requests) = (Instant::now(), 0);
            // A measurement lasts at least `SPAN` and one round of all verbs.
            while begin.elapsed() < SPAN || requests < self.verbs.count() {
                let (took, is_change) = self.verbs.ask(&self.control.runtime("ctl.sock"));
                let longest = if is_change { &mut delays.change } else { &mut delays.answer };
                *longest = took.max(*longest);
                requests += 1;
                std::thread::sleep(ASKING);
            }
            over.store(true, Ordering::Relaxed);
            program.join().expect("the hostile program");
        });
        let worst = self.flows.take_worst();
        Worst { datagram: worst.delay.max(worst.silence), ..delays }
    }

    /// Measures while `hostile` runs. No delay may exceed 10 times the larger of the quiet delay
    /// and `NOISE`, or `LIMIT`.
    fn endure(&self, hostile: impl FnOnce(&AtomicBool) + Send) {
        let (quiet, worst) = (self.quiet, self.measure(hostile));
        let most = |quiet: Duration| (10 * quiet.max(NOISE)).min(LIMIT);
        assert!(worst.answer <= most(quiet.answer), "{worst:?}, quiet {quiet:?}");
        // A change may take twice its quiet time, because on a busy machine the kernel alone can
        // exceed the limit.
        let most_of_change = most(quiet.change).max(2 * quiet.change);
        assert!(worst.change <= most_of_change, "{worst:?}, quiet {quiet:?}");
        assert!(worst.datagram <= most(quiet.datagram), "{worst:?}, quiet {quiet:?}");
    }

    /// Ends the daemon and returns its log. Fails if the end takes longer than 3 s or the good link
    /// lost a datagram.
    fn end(self) -> String {
        let Self { control, mut daemon, flows, world, .. } = self;
        flows.finish().assert_perfect("the good link");
        process::terminate(daemon.pid()).expect("SIGTERM");
        let begin = Instant::now();
        let status = daemon.wait();
        assert!(begin.elapsed() < Duration::from_secs(3), "SIGTERM took {:?}", begin.elapsed());
        assert!(status.success(), "{status}: {}", daemon.err());
        let log = daemon.err();
        drop((control, world));
        log
    }
}

/// Complete response to one request; empty if the connection or the response fails.
fn request(socket: &Path, method: &str, path: &str, body: &str) -> String {
    let Ok(mut socket) = UnixStream::connect(socket) else { return String::new() };
    socket.set_read_timeout(Some(Duration::from_secs(9))).expect("a timeout");
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\
         \r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    if socket.write_all(text.as_bytes()).is_ok() {
        let _ = socket.read_to_string(&mut answer);
    }
    answer
}

/// Blocking eventfd with its maximum count: a write blocks without end.
fn full_event() -> OwnedFd {
    let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC).expect("an eventfd");
    event.write(u64::MAX - 1).expect("a full counter");
    event.into()
}

/// Bench with a link `bad`; the hostile program connects to its first end.
fn with_end(kind: &str, socket: &str) -> Bench {
    Bench::start(&["bad"], |_, control| {
        let path = control.file(socket);
        format!("[link.bad]\na = '{kind}{},name=bad'\nb = 'null:'\n", path.display())
    })
}

fn with_card() -> Bench {
    with_end("vhost-user:", "card.sock")
}

fn with_bridge() -> Bench {
    with_end("ntb:", "bridge.sock")
}

fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

const NEEDS: [Need; 1] = [Need::Root];

/// Goal: an NTB peer with doorbell eventfds that block causes no delay, and can be detached at any
/// time.
#[test]
fn full_doorbells_block_nothing() {
    if !has(&NEEDS) {
        return;
    }
    let bench = with_bridge();
    let socket = bench.socket("bridge.sock");
    bench.endure(|over| {
        while !over.load(Ordering::Relaxed) {
            let Ok(peer) = SeqSocket::connect(&socket) else {
                pause();
                continue;
            };
            let window = 1 << 20;
            let memory = memory_file("peer", window + 4096, false).expect("memory");
            seal_size(memory.as_fd()).expect("seals");
            let doorbells = [full_event(), full_event()];
            let fds: Vec<BorrowedFd<'_>> =
                [&memory, &doorbells[0], &doorbells[1]].map(|fd| fd.as_fd()).into();
            let word = |n: u32| n.to_le_bytes();
            let hello = [b"mqnetntb".as_slice(), &word(1), &word(window as u32), &word(2)].concat();
            let _ = peer.send(&hello, &fds);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    bench.end();
}

/// Goal: a vhost-user front end with call eventfds that block causes no delay while frames cause
/// interrupts.
#[test]
fn full_interrupts_block_nothing() {
    if !has(&NEEDS) {
        return;
    }
    let bench = Bench::start(&["card"], |world, control| {
        let (path, netns) = (control.file("card.sock"), world.a.name());
        let tap = format!("tap:card,netns={netns},address=10.77.0.1/24");
        format!("[link.bad]\na = 'vhost-user:{}'\nb = '{tap}'\n", path.display())
    });
    let sender = bench.world.a.within(|| UdpSocket::bind("0.0.0.0:0").expect("a socket"));
    sender.set_broadcast(true).expect("broadcasts");
    let mut told = 0;
    bench.endure(|over| {
        while !over.load(Ordering::Relaxed) {
            let mut vmm = Vmm::connect(&bench.socket("card.sock"));
            vmm.start_rings(full_event);
            for _ in 0..60 {
                // Sending fails while the device has no carrier.
                let _ = sender.send_to(&[7; 100], "10.77.0.255:9");
                pause();
            }
            told += vmm.received();
        }
    });
    assert!(told > 0, "no frame has arrived, and no interrupt was due");
    bench.end();
}

/// Goal: guest memory, eventfds and logs on a file system that does not answer delay neither the
/// daemon's responses nor its end. Only the connection that sent such descriptors is lost.
#[test]
fn files_that_do_not_answer_block_nothing() {
    if !has(&[Need::Root]) {
        return;
    }
    let bench = with_card();
    let fuse = Fuse::mount();
    bench.endure(|over| {
        for what in vmm::DESCRIPTORS.into_iter().cycle() {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let mut vmm = Vmm::connect(&bench.socket("card.sock"));
            vmm.send_descriptor(what, fuse.file().as_fd());
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    // The connections have used up the limit for such descriptors, and the link reports this limit.
    let ctl = bench.control.runtime("ctl.sock");
    let links = request(&ctl, "GET", "/v1/links", "");
    assert!(links.contains("the link accepts no more peers"), "{links}");
    let answer = request(&ctl, "DELETE", "/v1/links/bad", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    bench.end();
    drop(fuse);
}

/// Goal: guest memory as large as the address space is refused, and other links can still be
/// created.
#[test]
fn huge_memory_is_refused() {
    if !has(&NEEDS) {
        return;
    }
    let bench = with_card();
    bench.endure(|over| {
        let mut more = 0;
        while !over.load(Ordering::Relaxed) {
            let mut vmm = Vmm::connect(&bench.socket("card.sock"));
            vmm.share_memory(1 << 46);
            more += 1;
            let body = format!("{{\"a\": \"tap:more{more}\", \"b\": \"null:\"}}");
            let path = format!("/v1/links/more{more}");
            let answer = request(&bench.control.runtime("ctl.sock"), "PUT", &path, &body);
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let answer = request(&bench.control.runtime("ctl.sock"), "DELETE", &path, "");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    });
    let log = bench.end();
    assert!(log.contains("allowed are"), "{log}");
}

/// Goal: requests with paths that block on `open` are refused within a bounded time.
#[test]
fn paths_that_do_not_open_are_refused() {
    if !has(&NEEDS) {
        return;
    }
    let bench = Bench::start(&[], |_, _| String::new());
    let fifo = bench.socket("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    bench.endure(|over| {
        while !over.load(Ordering::Relaxed) {
            let fifo = fifo.display();
            let body = format!("{{\"a\": \"tap:x,netns={fifo}\", \"b\": \"null:\"}}");
            let ctl = bench.control.runtime("ctl.sock");
            let answer = request(&ctl, "PUT", "/v1/links/x", &body);
            assert!(answer.contains("not a network namespace"), "{answer}");
        }
    });
    bench.end();
}

/// Goal: silent connections to the control socket delay no other client.
#[test]
fn silent_clients_delay_no_other_client() {
    if !has(&NEEDS) {
        return;
    }
    let bench = Bench::start(&[], |_, _| String::new());
    bench.endure(|over| {
        let mut silent = std::collections::VecDeque::new();
        while !over.load(Ordering::Relaxed) {
            silent.extend(UnixStream::connect(bench.control.runtime("ctl.sock")));
            while silent.len() > 400 {
                silent.pop_front();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    bench.end();
}

/// Goal: thousands of short connections neither fill the log nor use much of the daemon's CPU time.
#[test]
fn connection_floods_write_few_lines() {
    if !has(&NEEDS) {
        return;
    }
    let bench = with_card();
    let mut connections = 0;
    bench.endure(|over| {
        while !over.load(Ordering::Relaxed) {
            if let Ok(socket) = StreamSocket::connect(&bench.socket("card.sock")) {
                connections += 1;
                // Unknown request.
                let _ = socket.send(&[0xff; 12], &[]);
                std::thread::sleep(Duration::from_micros(200));
            } else {
                pause();
            }
        }
    });
    let log = bench.end();
    assert!(connections > 100, "{connections}");
    assert!(log.len() < 20_000, "{} bytes of log for {connections} connections", log.len());
}

/// Goal: if a message carries too many descriptors, the daemon closes those that it received.
#[test]
fn descriptors_of_cut_messages_are_closed() {
    if !has(&NEEDS) {
        return;
    }
    let bench = with_bridge();
    let socket = bench.socket("bridge.sock");
    let count = || {
        let folder = format!("/proc/{}/fd", bench.daemon.pid());
        std::fs::read_dir(folder).expect("descriptors of the daemon").count()
    };
    let before = count();
    bench.endure(|over| {
        let event = full_event();
        let many = vec![event.as_fd(); 200];
        while !over.load(Ordering::Relaxed) {
            if let Ok(peer) = SeqSocket::connect(&socket) {
                let _ = peer.send(&[0; 20], &many);
            }
            pause();
        }
    });
    until("descriptors of the peer are closed", || (count() <= before + 20).then_some(()));
    bench.end();
}

/// Goal: an ivshmem server that sends nothing, partial messages, memory that does not answer or
/// eventfds that block causes no delay.
#[test]
fn ivshmem_servers_block_nothing() {
    if !has(&NEEDS) {
        return;
    }
    let fuse = Fuse::mount();
    let links = ["bad0", "bad1", "bad2", "bad3", "bad4"];
    let bench = Bench::start(&links, |_, control| {
        let link = |name: &&str| {
            let path = control.file(name);
            format!(
                "[link.{name}]\na = 'ntb:ivshmem={},name={name}'\nb = 'null:'\n",
                path.display()
            )
        };
        links.iter().map(link).collect()
    });
    let server = |(name, attack)| ivshmem::Server::listen(&bench.socket(name), attack);
    let servers: Vec<_> = links.into_iter().zip(ivshmem::ATTACKS).map(server).collect();
    let mut clients = vec![0; servers.len()];
    bench.endure(|over| {
        while !over.load(Ordering::Relaxed) {
            let serve = |server: &ivshmem::Server| server.serve(fuse.file().as_fd(), full_event);
            let connections: Vec<_> = servers.iter().map(serve).collect();
            std::thread::sleep(Duration::from_millis(200));
            for (count, connection) in clients.iter_mut().zip(connections) {
                *count += u32::from(connection.is_some());
            }
        }
    });
    assert!(clients.iter().all(|count| *count > 0), "connections of each link: {clients:?}");
    bench.end();
    drop(fuse);
}

/// Asserts that a stopped peer process affects only its own link, also during changes of that link.
fn stopped_peers(kind: &str, of_peer: &str) {
    let bench = with_end(kind, "peer.sock");
    let address = format!("{of_peer}:{}", bench.socket("peer.sock").display());
    let peer = bench.control.start(&["link", &address, "null:", "--channels", "2"]);
    bench.control.wait_up("bad");
    bench.endure(|over| {
        for channels in ["2", "1"].into_iter().cycle() {
            if over.load(Ordering::Relaxed) {
                break;
            }
            process::freeze(peer.pid()).expect("SIGSTOP");
            // The change is refused if the peer does not answer in time.
            let body = format!("{{\"combined\": {channels}}}");
            let socket = bench.control.runtime("ctl.sock");
            std::thread::scope(|scope| {
                scope.spawn(|| request(&socket, "PATCH", "/v1/netdevs/bad/channels", &body));
                std::thread::sleep(Duration::from_secs(1));
                process::thaw(peer.pid()).expect("SIGCONT");
            });
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    peer.stop();
    bench.end();
}

/// Goal: a stopped virtio device delays no other link.
#[test]
fn stopped_devices_delay_no_other_link() {
    if has(&NEEDS) {
        stopped_peers("virtio-user:", "vhost-user");
    }
}

/// Goal: a stopped vhost-user front end delays no other link.
#[test]
fn stopped_drivers_delay_no_other_link() {
    if has(&NEEDS) {
        stopped_peers("vhost-user:", "virtio-user");
    }
}

/// Goal: the stopped other end of a bridge delays no other link.
#[test]
fn stopped_bridges_delay_no_other_link() {
    if has(&NEEDS) {
        stopped_peers("ntb:", "ntb");
    }
}

/// Goal: a request may add only links to targets that the daemon's policy allows. Links of the
/// configuration are not limited.
#[test]
fn requests_outside_the_policy_are_refused() {
    if !has(&NEEDS) {
        return;
    }
    let control = Control::create();
    let text = format!(
        "[policy]\nkinds = ['tap', 'ntb']\npaths = ['{}']\nnamespaces = []\n[limits]\nlinks = \
         2\n[link.own]\na = 'null:'\nb = 'tap:mqpol0'\n",
        control.file("vms").display()
    );
    std::fs::create_dir(control.file("vms")).expect("a folder");
    std::os::unix::fs::symlink("/tmp", control.file("vms/out")).expect("a link");
    let file = control.write("mqnet.toml", &text).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("own");
    let put = |a: &str, b: &str| {
        let body = format!("{{\"a\": \"{a}\", \"b\": \"{b}\"}}");
        request(&control.runtime("ctl.sock"), "PUT", "/v1/links/x", &body)
    };
    let vms = control.file("vms").display().to_string();
    for (a, b, why) in [
        ("tap:mqpol1", "null:", "kind null; allowed: tap, ntb"),
        ("tap:mqpol1", "ntb:/run/x.sock", "path /run/x.sock; allowed: "),
        ("tap:mqpol1,netns=blue", "tap:mqpol2", "namespace /run/netns/blue; allowed: none"),
        ("tap:mqpol1", &format!("ntb:{vms}/out/x.sock"), "leads to /tmp/x.sock"),
    ] {
        let answer = put(a, b);
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains(why), "{answer}");
    }
    let answer = put("tap:mqpol1", "tap:mqpol2");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let body = "{\"a\": \"tap:mqpol3\", \"b\": \"tap:mqpol4\"}";
    let answer = request(&control.runtime("ctl.sock"), "PUT", "/v1/links/y", body);
    assert!(answer.contains("2 links exist, the limit: raise links in [limits]"), "{answer}");
    daemon.stop();
}

/// Name, effective capabilities and seccomp mode of each thread of a process.
fn threads(pid: u32) -> Vec<(String, u64, u32)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let thread = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        let capabilities = u64::from_str_radix(&field("CapEff:"), 16).expect("a mask");
        Some((field("Name:"), capabilities, field("Seccomp:").parse().expect("a mode")))
    };
    tasks.filter_map(thread).collect()
}

/// Goal: threads of vhost-user peers have at most CAP_DAC_OVERRIDE, and the control thread has at
/// most the capabilities of its endpoints. All other threads have none. All threads have a seccomp
/// filter, except with `--no-seccomp`.
#[test]
fn privileges_are_dropped() {
    const DAC_OVERRIDE: u64 = 1 << 1;
    /// CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_NET_ADMIN, CAP_SYS_CHROOT, CAP_SYS_ADMIN and
    /// CAP_BPF.
    const LINK: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 12 | 1 << 18 | 1 << 21 | 1 << 39;
    if !has(&NEEDS) {
        return;
    }
    let control = Control::create();
    // Mode of the test itself: a container may already have a seccomp filter.
    let own = threads(std::process::id()).first().map_or(0, |(.., mode)| *mode);
    let address = format!("vhost-user:{}", control.file("card.sock").display());
    for more in [&[][..], &["--no-seccomp"]] {
        let words = [&["link", &address, "tap:mqpriv0"], more].concat();
        let link = control.start(&words);
        let seen = until("the control socket and the threads", || {
            let seen = threads(link.pid());
            let has = |name: &str| seen.iter().any(|(found, ..)| found == name);
            let is_ready = has("mqnet-server") && has("vhost-user");
            // The capabilities of the first thread are reduced last.
            let main = seen.first().is_some_and(|(_, capabilities, _)| *capabilities <= LINK);
            (is_ready && main).then_some(seen)
        });
        for (name, capabilities, mode) in seen {
            let allowed = match &*name {
                "vhost-user" => DAC_OVERRIDE,
                "mqnet" => LINK,
                _ => 0,
            };
            assert_eq!(capabilities & !allowed, 0, "{name}: {capabilities:x}");
            assert_eq!(mode, if more.is_empty() { 2 } else { own }, "{name}");
        }
        link.stop();
    }
}
