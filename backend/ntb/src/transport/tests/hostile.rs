use std::sync::atomic::Ordering::SeqCst;

use super::*;

/// Takes the link down after a fault and returns the reason. Checks that the reason is reported
/// until the peer is back, and that the link comes up again.
fn fault(world: &mut World, fault: Fault) -> String {
    world.take_down();
    assert_eq!(world.board.resets.load(SeqCst), 1, "the hardware link is reset");
    let LinkStatus::Down(why) = world.poll() else { panic!("up") };
    let what = fault.what;
    assert_eq!(why, format!("the peer broke the protocol: {what}"), "the reason stays");
    world.board.link_up();
    world.kernel.relink();
    world.settle(1);
    what
}

// Rule: an invalid length or packet number in a header is a fault that names the value; valid
// values are no fault.
#[test]
fn headers_are_checked() {
    let values = [0, 1, 2, 59, 65_523, 65_524, 65_525, 65_536, 1 << 31, u32::MAX];
    for value in values {
        for field in [0, 4] {
            let mut world = World::up(Shape::default(), 1);
            world.kernel.send(0, &frame(1, 60)).unwrap();
            world.kernel.write_header(0, 0, field, value);
            let (good, named) = match field {
                0 => (value == 0, format!("packet number {value}, expected 0")),
                _ => ((1..=65_524).contains(&value), format!("frame of {value} bytes")),
            };
            match world.receive(0) {
                Ok(frames) => {
                    let longest = world.plan().frame_max;
                    assert!(good, "{field} {value}");
                    assert_eq!(frames.len(), usize::from(field == 0 || value <= longest));
                }
                Err(e) => {
                    let text = fault(&mut world, e);
                    assert!(!good && text.contains(&named), "{text}");
                }
            }
        }
    }
}

// Rule: the delay before the next session doubles with each violation soon after the last, up to 16
// s.
#[test]
fn repeated_violations_rest_longer() {
    let mut world = World::up(Shape::default(), 1);
    for expected in [1, 2, 4, 8, 16, 16] {
        world.kernel.send(0, &frame(1, 60)).unwrap();
        world.kernel.write_header(0, 0, 0, 77);
        world.receive(0).unwrap_err();
        world.take_down();
        assert_eq!(world.board.rested.load(SeqCst), expected * 1000);
        world.board.link_up();
        world.kernel.relink();
        world.settle(1);
    }
}

// Rule: a credit is accepted if it returns published slots, or none. Any other credit is a fault.
#[test]
fn credits_are_checked() {
    for credit in (0..9).chain([1 << 31, u32::MAX]) {
        let mut world = World::up(Shape::default(), 1);
        let frames: Vec<_> = (0..7).map(|n| frame(n, 60)).collect();
        assert_eq!(world.send(0, &frames[..3]).unwrap(), 3);
        world.kernel.write_credit(0, credit);
        // The credit is read when no slot is free.
        let result = world.send(0, &frames).and_then(|_| world.send(0, &frames));
        // Valid credits: 0 to 2, because these slots are published, and 6, because no slot was
        // consumed.
        let good = credit <= 2 || credit == 6;
        match result {
            Ok(_) => assert!(good, "{credit}"),
            Err(e) => {
                let text = fault(&mut world, e);
                assert!(text.contains(&format!("credit {credit}")), "{text}");
                assert!(!good || credit <= 2, "{text}");
            }
        }
    }
}

// Rule: unknown flags have no effect. A complete slot with the link-down flag ends the pair.
#[test]
fn flags_are_checked() {
    for flags in [0, 1, 2, 3, 4, 7, 0xfe, 0x100, u32::MAX] {
        let mut world = World::up(Shape::default(), 2);
        world.kernel.send(0, &frame(1, 60)).unwrap();
        world.kernel.write_header(0, 0, 8, flags);
        let got = world.receive(0).unwrap();
        assert_eq!(got.len(), usize::from(flags & 3 == 1), "{flags:#x}");
        let status = world.poll();
        world.follow(&status);
        assert_eq!(world.channels.len(), if flags & 3 == 3 { 1 } else { 2 }, "{flags:#x}");
    }
}

// Goal: another transport_mtu of the peer is a fault with that reason, and with the peer's value
// if it can be derived.
#[test]
fn another_transport_mtu_is_a_fault() {
    for (theirs, named) in [(0x4000, "(the peer's seems to be 16384)"), (0x2_0000, "131072")] {
        let mut world = World::up(Shape::default(), 1);
        world.kernel.mtu = theirs;
        let mut result = Ok(Vec::new());
        for n in 0..2 {
            let _ = world.kernel.send(0, &frame(n, 60));
            let _ = world.kernel.send(0, &frame(n, 60));
            result = world.receive(0);
        }
        let result = result.and_then(|_| world.channels[0].rx.queue().arm(0).map(drop));
        let text = fault(&mut world, result.unwrap_err());
        assert!(text.contains("transport_mtu") && text.contains(named), "{text}");
    }
}

// Goal: with any value in a scratchpad, before or after the handshake, the function is up, or
// down with a reason.
#[test]
fn scratchpads_are_checked() {
    let values = [0, 1, 2, 3, 4, 5, 29, 30, 31, 32, 33, 1 << 21, 1 << 31, u32::MAX];
    for at in 0..16 {
        for value in values {
            let mut world = World::new(Shape::default());
            world.board.link_up();
            world.kernel.tick();
            world.kernel.write_pad(at, value);
            for _ in 0..3 {
                let status = world.poll();
                if let LinkStatus::Down(why) = &status {
                    assert!(!why.is_empty());
                }
                world.follow(&status);
            }
            let mut world = World::up(Shape::default(), 2);
            world.kernel.write_pad(at, value);
            let status = world.poll();
            let same = world.kernel.handshake_writes().contains(&(at, value)) || at == 1 || at > 5;
            match status {
                LinkStatus::Up { .. } => assert!(same, "{at} {value:#x}"),
                LinkStatus::Down(why) => assert!(why.starts_with("peer: ") && !same, "{at}: {why}"),
            }
        }
    }
}

// Rule: peer memory behind a window that is smaller than the announced size is refused.
#[test]
fn short_memory_is_refused() {
    for lens in [&[1u64 << 20][..], &[4096]] {
        let mut world = World::new(Shape::default());
        world.board.link_up();
        world.kernel.tick();
        world.poll();
        world.board.map(0, lens);
        world.kernel.linked = true;
        let LinkStatus::Down(why) = world.poll() else { panic!() };
        assert!(why.contains("bytes, but 2097152 were announced"), "{why}");
    }
}
