//! XDP programs on a running link, under traffic of real kernels.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mqnet_testkit::{Flows, Need, World, has, run_command, until};
use serde_json::Value;

use crate::resize::{often, stop_perfect};

pub(crate) const NEEDS: [Need; 2] = [Need::Root, Need::Program("clang")];
const PACE: Duration = Duration::from_millis(2);

/// Compiles a program of `tests/xdp`; returns the path of the object.
pub(crate) fn object(world: &World, name: &str) -> PathBuf {
    let to = world.file(&format!("{}.o", name.replace('/', "-")));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../xdp").join(name);
    let mut clang = std::process::Command::new("clang");
    clang.args(["-O2", "-g", "-w", "-target", "bpf", "-c", "-o"]).arg(&to);
    let output = run_command(clang.arg(source.with_extension("c")));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    to
}

pub(crate) fn attach(world: &World, name: &str) {
    world.tell(&format!("xdp attach a {}", object(world, name).display()));
}

pub(crate) fn program(world: &World) -> Value {
    world.folder().ask_json("xdp show -j a")["program"].clone()
}

pub(crate) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// Frames received by the kernel of host a from its device.
fn received(world: &World) -> u64 {
    let link = world.a.run_json(&["ip", "-j", "-s", "link", "show", "a"]);
    number(&link[0]["stats64"]["rx"], "packets")
}

/// Sends one datagram to port 9 from host a.
pub(crate) fn discard(world: &World) {
    world.a.run(&["bash", "-c", "echo x > /dev/udp/10.0.0.2/9"]);
}

// Goal: a program drops exactly the frames that it selects; the program's map and the statistics
// count them. After the program is detached, every frame passes again.
#[test]
fn a_filter_comes_and_goes() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end.channels(2)));
    let flows = Flows::start(&world.a, &world.b, "10.0.0.2", 16, PACE);
    flows.wait_more(200);
    attach(&world, "drop");
    let before = world.b.protocol("UdpNoPorts");
    flows.wait_more(200);
    (0..5).for_each(|_| discard(&world));
    until("five are dropped", || (number(&program(&world), "drops") == 5).then_some(()));
    let dump = world.folder().ask_json("xdp map dump -j a counts");
    assert_eq!(dump[1]["values"][0], "0500000000000000", "{dump}");
    world.tell("xdp map set a counts 1 7");
    discard(&world);
    until("the map counts on", || {
        let dump = world.folder().ask_json("xdp map dump -j a counts");
        (dump[1]["values"][0] == "0800000000000000").then_some(())
    });
    assert_eq!(world.b.protocol("UdpNoPorts"), before);
    let busy = world.ask(&format!("xdp attach a {}", object(&world, "pass").display()));
    assert!(busy.err.contains("detach it first"), "{}", busy.err);
    world.tell("xdp detach a");
    flows.wait_more(200);
    discard(&world);
    until("it passes", || (world.b.protocol("UdpNoPorts") > before).then_some(()));
    flows.finish().assert_perfect("a to b");
    pair.a.wait_quiet();
    let (a, _) = pair.stop();
    assert_eq!((a.out().drops, a.out().tx_lost, a.out().in_flight), (6, 0, 0), "{}", a.0);
}

// Goal: attaching and detaching programs fifty times causes no loss, duplicates or reordering.
#[test]
fn programs_come_and_go_without_loss() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end.channels(2)));
    let out = Flows::start(&world.a, &world.b, "10.0.0.2", 16, PACE);
    let back = Flows::start(&world.b, &world.a, "10.0.0.1", 16, PACE);
    let object = object(&world, "pass");
    for cycle in 0..50 {
        let mode = if cycle % 2 == 0 { "--jit" } else { "--interpret" };
        world.tell(&format!("xdp attach a {} {mode}", object.display()));
        out.wait_more(100);
        assert!(number(&program(&world), "packets") > 0);
        world.tell("xdp detach a");
        back.wait_more(50);
    }
    out.finish().assert_perfect("a to b");
    back.finish().assert_perfect("b to a");
    stop_perfect(pair);
}

// Goal: frames reinjected by XDP_TX leave through the device of their origin, although the lane of
// that direction sleeps. Each of three rounds attaches the program again, so that the event of a
// later lane may reuse the descriptor number of an earlier one. The conservation check holds in
// both directions.
#[test]
fn reflected_frames_leave_through_their_origin() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end.channels(1)));
    for _ in 0..3 {
        attach(&world, "reflect");
        std::thread::sleep(Duration::from_millis(300));
        let before = received(&world);
        (0..20).for_each(|_| discard(&world));
        let program = until("all are sent back", || {
            let program = program(&world);
            (number(&program, "tx") >= 1).then_some(program)
        });
        until("the device gets them", || (received(&world) > before).then_some(()));
        assert_eq!(number(&program, "drops"), 0, "{program}");
        world.tell("xdp detach a");
    }
    pair.a.wait_quiet();
    let (a, _) = pair.stop();
    assert_eq!((a.out().in_flight, a.back().in_flight), (0, 0), "{}", a.0);
}

// Goal: a program that fails verification is refused with an error of one line, and nothing
// changes.
#[test]
fn invalid_program_is_refused() {
    if !has(&NEEDS) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| often(end.channels(1)));
    let printed = world.ask(&format!("xdp attach a {}", object(&world, "evil/past_end").display()));
    assert_eq!((printed.code, printed.err.lines().count()), (Some(2), 1), "{}", printed.err);
    assert!(
        printed.err.contains("insn ") && printed.err.contains("below data_end"),
        "{}",
        printed.err
    );
    assert_eq!(program(&world), Value::Null);
    pair.stop();
}
