//! Two processes that share the memory of mqnet's ivshmem server, as two guests do.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use mqnet_testkit::{EndSpec, Need, Stream, World, has, until};

use crate::load::Load;
use crate::resize::{often, stop_perfect, wait_channels};

/// Minimum number of bytes after which a flow counts as established.
const UNDER_WAY: u64 = 1 << 20;

struct Server(Child);

impl Server {
    fn start(world: &World, words: &[&str]) -> Self {
        let mut command: Command = world.folder().program();
        command.arg("ivshmem-server").arg(world.socket()).args(words).stdout(Stdio::null());
        let server = Self(command.spawn().expect("mqnet ivshmem-server"));
        until("the server", || world.socket().exists().then_some(()));
        server
    }

    fn kill(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn at(socket: &Path) -> impl Fn(EndSpec) -> EndSpec + use<> {
    let device = format!("ntb:ivshmem={}", socket.display());
    move |end| often(end).meeting_at(&device)
}

fn resizes(vectors: &str) {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let _server = Server::start(&world, &["--size", "8M", "--vectors", vectors]);
    let pair = world.pair(at(&world.socket()));
    let mut load = Load::start(&world.a, &world.b, true);
    for channels in [8, 2, 1, 4] {
        let output = load.during(200, || world.tell(&format!("ethtool -L a combined {channels}")));
        assert_eq!(output, "", "resize to {channels}");
        wait_channels(&world, channels);
    }
    load.finish_perfect(&format!("ivshmem with {vectors} vectors"));
    stop_perfect(pair);
}

// Goal: with an interrupt vector for each queue pair, traffic of every kind crosses while channels
// are added and removed, without loss, duplicates or reordering.
#[test]
fn a_vector_for_each_queue_pair() {
    resizes("9");
}

// Goal: with three vectors shared by all queue pairs, traffic of every kind crosses resizes without
// loss, duplicates or reordering.
#[test]
fn shared_vectors() {
    resizes("3");
}

// Goal: with one vector for all events, traffic of every kind crosses resizes without loss,
// duplicates or reordering.
#[test]
fn one_vector_for_all() {
    resizes("1");
}

// Goal: without vectors both ends poll, and traffic of every kind crosses resizes without loss,
// duplicates or reordering.
#[test]
fn no_vectors_at_all() {
    resizes("0");
}

// Goal: a TCP stream survives the kill of an end, which returns with another peer id, and the kill
// of the server, which returns with new memory.
#[test]
fn ends_and_server_are_killed() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let mut server = Server::start(&world, &["--vectors", "5"]);
    let meet = at(&world.socket());
    let survivor = meet(world.end_a().tap("persist").channels(2)).spawn();
    let mut victim = meet(world.end_b().tap("persist").channels(2)).spawn();
    survivor.wait_up(1);
    let flow = Stream::start(&world.a, &world.b, "10.0.0.2");
    for kill in 1..=3 {
        flow.wait_more(UNDER_WAY);
        victim.kill();
        let why = survivor.wait_lost(kill);
        assert!(why.contains("has left the device"), "{why}");
        victim.restart();
        survivor.wait_up(kill + 1);
    }
    flow.wait_more(UNDER_WAY);
    server.kill();
    let why = survivor.wait_lost(4);
    // Either the loss of the server is reported, or the close by the other end if that end noticed
    // the loss first.
    let reasons = ["the ivshmem server disconnected", "the peer closed the link"];
    assert!(reasons.iter().any(|reason| why.contains(reason)), "{why}");
    let _server = Server::start(&world, &["--vectors", "5"]);
    survivor.wait_up(5);
    flow.wait_more(UNDER_WAY);
    flow.finish();
    survivor.wait_quiet();
    survivor.stop().assert_conserved();
    victim.stop().assert_conserved();
}

// Goal: a peer that is frozen for longer than the timeout is disconnected although its process is
// alive, and the link comes up when the peer resumes.
#[test]
fn a_frozen_end_thaws() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let _server = Server::start(&world, &[]);
    let pair = world.pair(at(&world.socket()));
    let flow = Stream::start(&world.a, &world.b, "10.0.0.2");
    flow.wait_more(UNDER_WAY);
    pair.b.freeze();
    let why = pair.a.wait_lost(1);
    assert!(why.contains("does not update its heartbeat"), "{why}");
    pair.b.thaw();
    pair.a.wait_up(2);
    pair.b.wait_up(2);
    flow.wait_more(UNDER_WAY);
    flow.finish();
    pair.a.wait_quiet();
    for end in [pair.a, pair.b] {
        end.stop().assert_conserved();
    }
}

// Goal: two ends in the file of an ivshmem-plain device, without a server, carry traffic of every
// kind while channels come and go. The kill of an end is detected without a notification, and a new
// end replaces it.
#[test]
fn a_file_for_both() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let file = world.file("memory");
    std::fs::File::create(&file).expect("a file").set_len(8 << 20).expect("its size");
    let mut pair = world.pair(at(&file));
    let mut load = Load::start(&world.a, &world.b, true);
    for channels in [4, 1] {
        let output = load.during(200, || world.tell(&format!("ethtool -L a combined {channels}")));
        assert_eq!(output, "", "resize to {channels}");
        wait_channels(&world, channels);
    }
    load.finish_perfect("a file");
    pair.b.restart();
    let why = pair.a.wait_lost(1);
    assert!(
        why.contains("does not update its heartbeat") || why.contains("the peer was restarted"),
        "{why}"
    );
    pair.b.wait_up(1);
    let flow = Stream::start(&world.a, &world.b, "10.0.0.2");
    flow.wait_more(UNDER_WAY);
    flow.finish();
    for end in [pair.a, pair.b] {
        end.wait_quiet();
        end.stop().assert_conserved();
    }
}
