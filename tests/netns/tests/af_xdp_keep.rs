//! Frames of an `xdp:` interface that are detached with their memory, as by a program that keeps
//! frames without a copy.

use std::collections::VecDeque;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use mqnet_af_xdp::{AfXdpConfig, AfXdpFunction};
use mqnet_netdev::{
    Burst, Channel, DetachedFrame, Function, KernelInterface, LinkStatus, OwningRx, Plan, Rx,
};
use mqnet_pktbuf::Returner;
use mqnet_sysio::clock;
use mqnet_testkit::{Host, Need, World, has, until};

use crate::af_xdp::wire;

/// Chunks of each queue.
const RING: u16 = 128;

/// Bytes of Ethernet, IPv4 and UDP headers in front of the payload.
const HEADERS: usize = 42;

/// Payload of a datagram.
fn payload(number: u32) -> Vec<u8> {
    let len = [60, 1400, 100, 5000, 8900][number as usize % 5];
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((4..len).map(|at: u32| (at.wrapping_mul(number | 1) >> 3) as u8));
    bytes
}

/// Kept frame, its channel and its number.
struct Held {
    channel: usize,
    number: u32,
    kept: DetachedFrame,
}

/// Checks the bytes of a kept datagram and returns its number; `None` for a frame that is not a
/// test datagram.
fn number_of(kept: &DetachedFrame, returner: &Returner) -> Option<u32> {
    let mut bytes = vec![0; kept.len() as usize];
    let mut at = 0;
    for piece in kept.pieces() {
        at += piece.span(returner).read_header(&mut bytes[at..]);
    }
    let output = bytes.get(HEADERS..)?;
    let number = u32::from_le_bytes(output.get(..4)?.try_into().ok()?);
    // Test datagrams have UDP port 9 ("discard"); other frames have no number.
    if bytes[36..38] != [0, 9] {
        return None;
    }
    assert!(output == payload(number), "datagram {number} is damaged");
    Some(number)
}

/// RX queues of an interface, and their returners.
struct Queues {
    rx: Vec<Box<dyn OwningRx>>,
    returners: Vec<Returner>,
}

impl Queues {
    fn open(function: &mut AfXdpFunction) -> Self {
        until("the interface is up", || {
            let status = function.poll_link(clock::monotonic());
            matches!(status, LinkStatus::Up { .. }).then_some(())
        });
        let caps = function.caps();
        let plan = Plan::join(&caps, &caps).expect("a plan");
        let (mut rx, mut returners) = (Vec::new(), Vec::new());
        for Channel { rx: one, .. } in function.open(&plan).expect("channels") {
            let Rx::Owning(mut one) = one else { panic!("it owns its memory") };
            returners.push(one.returner().expect("a returner"));
            rx.push(one);
        }
        assert_eq!(rx.len(), 4);
        Self { rx, returners }
    }

    /// Detaches up to 64 ready frames of each queue; returns those with test datagrams.
    fn keep(&mut self) -> Vec<Held> {
        let mut all = Vec::new();
        for (channel, (rx, returner)) in self.rx.iter_mut().zip(&mut self.returners).enumerate() {
            rx.peek(&mut Burst::new(), 64).expect("peek");
            while let Some(kept) = rx.detach().expect("keep") {
                match number_of(&kept, returner) {
                    Some(number) => all.push(Held { channel, number, kept }),
                    None => kept.free(returner),
                }
            }
        }
        all
    }

    /// Checks the held frames again and releases them to their pools, on another thread.
    fn give_back(&self, held: impl IntoIterator<Item = Held, IntoIter: Send>) {
        let (mut returners, held) = (self.returners.clone(), held.into_iter());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for Held { channel, number, kept } in held {
                    let returner = &mut returners[channel];
                    assert_eq!(number_of(&kept, returner), Some(number), "it changed");
                    kept.free(returner);
                }
            });
        });
    }
}

/// Sender of numbered datagrams to an interface that sends no replies.
struct Sender {
    socket: UdpSocket,
    sent: u32,
}

impl Sender {
    fn new(host: &Host) -> Self {
        let add = ["ip", "neigh", "replace", "10.7.1.1", "lladdr", "02:00:00:00:00:01"];
        host.run(&[&add[..], &["nud", "permanent", "dev", "peer"]].concat());
        let socket = host.within(|| UdpSocket::bind("10.7.1.2:0").expect("a socket"));
        Self { socket, sent: 0 }
    }

    fn send(&mut self) {
        let sent = self.socket.send_to(&payload(self.sent), "10.7.1.1:9");
        sent.expect("a datagram is sent");
        self.sent += 1;
    }

    /// Sends `count` datagrams and holds up to `hold` of the received frames. Fails unless every
    /// datagram arrives in order. Returns the frames still held.
    fn carry(&mut self, queues: &mut Queues, count: u32, hold: usize) -> VecDeque<Held> {
        let mut held = VecDeque::new();
        let (mut expected, end) = (self.sent, self.sent + count);
        let deadline = Instant::now() + Duration::from_secs(60);
        while expected < end {
            assert!(Instant::now() < deadline, "datagram {expected} has not come");
            if expected == self.sent {
                (0..8).for_each(|_| self.send());
            }
            for one in queues.keep() {
                assert_eq!(one.number, expected, "out of order");
                expected += 1;
                held.push_back(one);
            }
            let over = held.len().saturating_sub(hold);
            queues.give_back(held.drain(..over).collect::<Vec<_>>());
        }
        held
    }
}

/// NIC with its peer in another namespace, the NIC's function, and a sender at the peer; `None` if
/// the test is skipped.
fn rig() -> Option<(World, AfXdpFunction, Sender)> {
    if !has(&[Need::Root, Need::Program("ethtool")]) {
        return None;
    }
    let world = World::create();
    wire(&world.a, "nic", &world.b, "10.7.1.2/24", 9000);
    let netns = Some(format!("/run/netns/{}", world.a.name()).into());
    let config =
        AfXdpConfig { interface: "nic".into(), netns, ring: Some(RING), ..AfXdpConfig::default() };
    let function = AfXdpFunction::new(config).expect("an interface");
    let sender = Sender::new(&world.b);
    Some((world, function, sender))
}

/// Waits until the interface is down and closes the function. Returns the returners of its queues.
fn wait_down(function: &mut AfXdpFunction, queues: Queues) -> Vec<Returner> {
    until("the interface is down", || {
        let status = function.poll_link(clock::monotonic());
        matches!(status, LinkStatus::Down(_)).then_some(())
    });
    function.close("it is down");
    queues.returners
}

// Goal: frames in one and in several chunks are held while the rings wrap many times, and another
// thread releases them. No frame is missing or damaged, and the sockets drop nothing for lack of
// memory.
#[test]
fn frames_leave_with_their_memory() {
    let Some((_world, mut function, mut sender)) = rig() else { return };
    let mut queues = Queues::open(&mut function);
    let held = sender.carry(&mut queues, 20 * u32::from(RING), 16);
    assert!(held.iter().any(|one| one.kept.more.len() > 1), "none is in several chunks");
    assert!(held.iter().all(|one| one.kept.head.headroom() > 0), "no room for a header");
    queues.give_back(held);
    assert_eq!(function.dropped_outside(), Some(0));
}

// Goal: kept frames outlive a down interface, a new attach, the deletion of the interface, and the
// function. Memory that is released later is used again, or freed if its pool is gone.
#[test]
fn kept_frames_outlive_the_interface() {
    let Some((world, mut function, mut sender)) = rig() else { return };
    let set = |state: &str| world.a.run(&["ip", "link", "set", "nic", state]);
    let mut queues = Queues::open(&mut function);
    let held = sender.carry(&mut queues, 100, 16);
    set("down");
    let returners = wait_down(&mut function, queues);
    let check = |held: &VecDeque<Held>, returners: &[Returner]| {
        for one in held {
            assert_eq!(
                number_of(&one.kept, &returners[one.channel]),
                Some(one.number),
                "it changed"
            );
        }
    };
    check(&held, &returners);
    set("up");
    // The sockets are the same, so frames kept earlier belong to the current pools.
    let mut queues = Queues::open(&mut function);
    let more = sender.carry(&mut queues, 10 * u32::from(RING), 8);
    check(&held, &returners);
    queues.give_back(held);
    check(&more, &queues.returners);
    let new = sender.carry(&mut queues, 10 * u32::from(RING), 16);
    queues.give_back(new);
    // Another MTU needs new sockets and new pools.
    for (host, device) in [(&world.a, "nic"), (&world.b, "peer")] {
        host.run(&["ip", "link", "set", device, "mtu", "9100"]);
    }
    let returners = wait_down(&mut function, queues);
    check(&more, &returners);
    let mut queues = Queues::open(&mut function);
    let last = sender.carry(&mut queues, 100, 16);
    check(&more, &returners);
    let old = Queues { rx: Vec::new(), returners };
    old.give_back(more);
    world.a.run(&["ip", "link", "del", "nic"]);
    let returners = wait_down(&mut function, queues);
    drop(function);
    check(&last, &returners);
    Queues { rx: Vec::new(), returners }.give_back(last);
}

// Goal: `detach` returns no frame on a channel of several queues, because a returner belongs to one
// queue. Peek and release work on such a channel.
#[test]
fn a_channel_of_several_queues_keeps_nothing() {
    let Some((_world, mut function, mut sender)) = rig() else { return };
    drop(Queues::open(&mut function));
    function.close("for another number of channels");
    let mut caps = function.caps();
    caps.channels = 1;
    let plan = Plan::join(&function.caps(), &caps).expect("a plan");
    let mut channels = function.open(&plan).expect("a channel");
    let [Channel { rx: Rx::Owning(rx), .. }] = &mut channels[..] else { panic!("one channel") };
    assert!(rx.returner().is_none());
    sender.send();
    until("a frame is shown", || {
        let mut burst = Burst::new();
        rx.peek(&mut burst, 64).expect("peek");
        (!burst.frames().is_empty()).then_some(())
    });
    assert!(rx.detach().expect("keep").is_none());
    rx.release(1).expect("release");
}
