use std::sync::atomic::Ordering::SeqCst;

use mqnet_netdev::{Bridge, GroupMembership, Peer};
use mqnet_sysio::epoll::{Epoll, Interest};

use super::*;

fn down(status: LinkStatus) -> String {
    match status {
        LinkStatus::Down(why) => why,
        LinkStatus::Up { .. } => panic!("up"),
    }
}

fn session(status: &LinkStatus) -> u64 {
    match status {
        LinkStatus::Up { session } => *session,
        LinkStatus::Down(why) => panic!("{why}"),
    }
}

// Goal: the handshake completes with either end first, and with a poll of this end between any
// two writes of the peer.
#[test]
fn handshake_completes_in_every_order() {
    for early in 0..6 {
        let mut world = World::new(Shape { windows: 2, ..Shape::default() });
        if early == 0 {
            assert_eq!(down(world.poll()), "no guest");
        }
        world.board.link_up();
        if early == 1 {
            assert_eq!(down(world.poll()), "waiting for the peer's ntb_transport");
        }
        // First attempt of the peer, with a poll after its write number `early`.
        for (count, (at, value)) in world.kernel.handshake_writes().into_iter().enumerate() {
            world.kernel.write_pad(at, value);
            if early == count {
                world.poll();
            }
        }
        if early < 4 {
            world.kernel.open(0..2);
        }
        for _ in 0..early {
            let status = world.step();
            world.follow(&status);
        }
        world.kernel.open(0..2);
        world.settle(2);
        assert_eq!(world.function.protocol(), Some("ntb_transport v4"));
        world.kernel.send(1, &frame(7, 60)).unwrap();
        assert_eq!(world.receive(1).unwrap(), [frame(7, 60)]);
    }
}

// Goal: this end's scratchpads have the peer's counts and this end's sizes, regardless of earlier
// contents.
#[test]
fn scratchpads_follow_the_peer() {
    let mut world = World::new(Shape { windows: 2, pairs: 3, ..Shape::default() });
    world.board.link_up();
    for pad in 0..16 {
        world.board.spads[1][pad].store(0xdead, SeqCst);
    }
    world.kernel.tick();
    world.poll();
    let pads: Vec<u32> = (0..16).map(|at| world.board.spads[1][at].load(SeqCst)).collect();
    let size = 2 << 20;
    assert_eq!(pads, [4, 0, 3, 2, 0, size, 0, size, 0, 0, 0, 0, 0, 0, 0, 0]);
}

// Goal: on an endpoint for kernels, scratchpads of mqnet's own bridge are no handshake: this end
// writes nothing, creates no byte ring, and answers a kernel that comes later.
#[test]
fn magic_number_of_the_byte_ring_is_ignored() {
    let mut world = World::new(Shape::default());
    world.board.link_up();
    world.kernel.write_pad(0, crate::layout::MAGIC);
    for _ in 0..20 {
        assert_eq!(down(world.poll()), "waiting for the peer's ntb_transport");
    }
    assert!(world.board.spads[1].iter().all(|pad| pad.load(SeqCst) == 0));
    assert_eq!(world.function.protocol(), None);
    world.kernel.open(0..1);
    world.settle(1);
    assert_eq!(world.function.protocol(), Some("ntb_transport v4"));
}

// Rule: too few slots are refused, with values that would be accepted. A peer with such values is
// accepted.
#[test]
fn too_few_slots_are_refused() {
    let mut world = World::new(Shape { pairs: 8, ..Shape::default() });
    world.board.link_up();
    world.kernel.tick();
    let why = down(world.poll());
    assert_eq!(
        why,
        "refused: queue pair 0: 3 slots of 65536 bytes, at least 6 are needed: use a window of \
         4194304 bytes or more, or at most 5 queue pairs (queues= here, max_num_clients= of \
         ntb_transport)"
    );
    world.kernel = Kernel::new(world.board.clone(), 5, 65536, Cuts::None);
    world.kernel.open(0..1);
    world.settle(1);
}

// Goal: a kernel as the peer of a group's member is refused.
#[test]
fn group_is_refused() {
    let mut world = World::new(Shape::default());
    world.function.join_group(GroupMembership { number: 0, of: 2, group: 5 });
    world.board.link_up();
    world.kernel.open(0..1);
    world.kernel.tick();
    assert!(down(world.poll()).starts_with("refused: the peer is a kernel's ntb_transport, which"));
    assert_eq!(world.board.spads[1][0].load(SeqCst), 0);
}

// Rule: the number of channels follows the pairs that the peer opens and closes. Pair 0, which
// stays open, loses no frame.
#[test]
fn channels_follow_the_peers_pairs() {
    let mut world = World::up(Shape::default(), 1);
    assert!(world.function.peer().is_none(), "a kernel peer decides nothing");
    let fixed = world.function.channels_fixed().unwrap();
    assert!(fixed.contains("ethtool -L DEV combined N"), "{fixed}");
    let mut sent = 0;
    for open in [4, 2, 3, 1, 4] {
        world.kernel.open(0..open);
        (open..4).for_each(|pair| world.kernel.close(pair));
        // Pair 0 carries frames both ways during the change.
        for _ in 0..12 {
            world.kernel.send(0, &frame(sent, 60)).unwrap();
            assert_eq!(world.receive(0).unwrap(), [frame(sent, 60)]);
            assert_eq!(world.send(0, &[frame(sent, 70)]).unwrap(), 1);
            assert_eq!(world.kernel.receive(0, 9), 1);
            assert_eq!(world.kernel.qps[0].got.pop_front(), Some(frame(sent, 70)));
            sent += 1;
            let status = world.step();
            world.follow(&status);
        }
        world.settle(open);
        for pair in 0..open {
            world.kernel.send(pair, &frame(9, 60)).unwrap();
            assert_eq!(world.receive(pair).unwrap(), [frame(9, 60)]);
            assert_eq!(world.send(pair, &[frame(8, 61)]).unwrap(), 1);
            assert_eq!(world.kernel.receive(pair, 9), 1);
            world.kernel.qps[pair].got.clear();
        }
    }
}

// Rule: if the peer's writes echo bits of closed pairs, these pairs stay closed, shortly after the
// opening or later.
#[test]
fn echoes_open_nothing() {
    for wait in [0, 1, 2, 3, 20] {
        let mut world = World::up(Shape::default(), 4);
        for _ in 0..wait {
            let status = world.step();
            world.follow(&status);
        }
        (1..4).for_each(|pair| world.kernel.close(pair));
        for step in 0..150 {
            let status = world.step();
            world.follow(&status);
            assert!(step < 2 || world.channels.len() == 1, "{wait}: {step}");
        }
    }
}

// Goal: a pair that the peer closes and reopens before this end notices carries frames again. The
// kernel does so at a change of its MTU, shortly after an opening or later.
#[test]
fn quick_reopening_is_noticed() {
    for wait in [0, 1, 2, 3, 4, 5, 20] {
        for sent in [0, 1, 3, 6] {
            let mut world = World::up(Shape::default(), 4);
            for pair in 0..4 {
                for n in 0..sent {
                    world.send(pair, &[frame(n, 60)]).unwrap();
                    world.kernel.receive(pair, 9);
                    world.kernel.send(pair, &frame(n, 60)).unwrap();
                    world.receive(pair).unwrap();
                }
                world.kernel.qps[pair].got.clear();
            }
            for _ in 0..wait {
                let status = world.step();
                world.follow(&status);
            }
            (0..4).for_each(|pair| world.kernel.reopen(pair));
            for _ in 0..60 {
                let status = world.step();
                world.follow(&status);
                for channel in 0..world.channels.len() {
                    world.send(channel, &[frame(1, 60)]).unwrap();
                }
                for pair in 0..4 {
                    world.kernel.receive(pair, 99);
                }
            }
            assert_eq!(world.channels.len(), 4, "{wait} {sent}");
            for pair in 0..4 {
                assert!(world.kernel.qps[pair].up && !world.kernel.qps[pair].got.is_empty());
                for n in 0..20 {
                    world.kernel.send(pair, &frame(n, 60)).unwrap();
                    assert_eq!(world.receive(pair).unwrap(), [frame(n, 60)], "{wait} {sent}");
                }
            }
        }
    }
}

// Rule: slots, credits and packet numbers of an earlier session of a pair have no effect in its
// next session.
#[test]
fn reopened_pair_begins_anew() {
    let mut world = World::up(Shape::default(), 2);
    for life in 0..10 {
        // Some frames are unread at both ends when the pair is closed; mqnet still receives the
        // frames sent to it.
        for n in 0..life % 4 {
            world.send(1, &[frame(n, 60)]).unwrap();
            world.kernel.send(1, &frame(n, 60)).unwrap();
        }
        world.kernel.close(1);
        assert_eq!(world.receive(1).unwrap().len(), life as usize % 4);
        world.settle(1);
        world.kernel.open(1..2);
        world.settle(2);
        world.kernel.qps[1].got.clear();
        assert!(world.receive(1).unwrap().is_empty(), "nothing of an earlier life");
        assert_eq!(world.kernel.receive(1, 9), 0);
        for n in 0..20 {
            assert_eq!(world.send(1, &[frame(n, 60)]).unwrap(), 1);
            assert_eq!(world.kernel.receive(1, 9), 1);
            world.kernel.send(1, &frame(n, 60)).unwrap();
            assert_eq!(world.receive(1).unwrap(), [frame(n, 60)]);
        }
    }
}

// Rule: without an open pair the link is down, and the reason names the remedy. After the next
// opening, the link is up with a new session.
#[test]
fn interface_down_is_link_down() {
    let mut world = World::up(Shape::default(), 2);
    let before = session(&world.poll());
    world.kernel.close(0);
    world.kernel.close(1);
    // Each queue reads up to the link-down slot.
    for channel in 0..2 {
        assert!(world.receive(channel).unwrap().is_empty());
    }
    let status = world.step();
    let why = down(status.clone());
    assert!(why.contains("ip link set DEV up in the guest"), "{why}");
    world.follow(&status);
    world.kernel.open(0..2);
    world.settle(2);
    assert_ne!(session(&world.poll()), before);
}

// Rule: when the engine closes the link, the peer's pairs go down by link-down slots. The pairs
// stay down until the engine opens channels again.
#[test]
fn closing_takes_the_peers_carrier() {
    let mut world = World::up(Shape::default(), 3);
    world.send(2, &[frame(1, 60)]).unwrap();
    world.take_down();
    for pair in 0..3 {
        world.kernel.receive(pair, 9);
        assert_eq!((world.kernel.qps[pair].downs, world.kernel.qps[pair].up), (1, false));
    }
    assert_eq!(world.kernel.qps[2].got.len(), 1, "what was sent before arrives");
    assert_eq!(world.board.spads[1][1].load(SeqCst), 0);
    for _ in 0..20 {
        assert!(matches!(world.step(), LinkStatus::Up { .. }), "the peer requests pairs");
        assert!(world.kernel.qps.iter().all(|qp| !qp.up), "and gets none");
    }
    world.settle(3);
}

// Goal: a lost hardware link ends the session, and the next hardware link begins a new one.
#[test]
fn relinking_begins_anew() {
    let mut world = World::up(Shape::default(), 2);
    for _ in 0..5 {
        world.send(0, &[frame(1, 60)]).unwrap();
        world.board.link.fetch_add(0, SeqCst);
        world.board.link_up();
        world.kernel.relink();
        let status = world.poll();
        assert_eq!(down(status.clone()), "waiting for the peer's ntb_transport");
        world.follow(&status);
        world.settle(2);
        world.kernel.send(1, &frame(3, 60)).unwrap();
        assert_eq!(world.receive(1).unwrap(), [frame(3, 60)]);
    }
    assert_eq!(world.board.resets.load(SeqCst), 0);
}

// Goal: after the channels are closed nothing refers to the peer's memory, so the provider may
// unmap it.
#[test]
fn peers_memory_is_released() {
    let mut world = World::up(Shape::default(), 2);
    let map = world.board.outbound.lock().unwrap()[0].as_ref().unwrap().map.clone();
    world.board.link.store(0, SeqCst);
    let status = world.poll();
    world.follow(&status);
    world.board.outbound.lock().unwrap()[0] = None;
    assert_eq!(Arc::strong_count(&map), 1);
}

// Rule: if a queue does not put a recalled ring back, the session number changes, so that the
// engine closes all channels.
#[test]
fn queue_that_does_not_answer_ends_the_session() {
    let mut world = World::up(Shape::default(), 2);
    let before = session(&world.poll());
    world.kernel.send(1, &frame(1, 60)).unwrap();
    world.kernel.close(1);
    // One poll finds the link-down slot; the queue is not polled again.
    assert_eq!(world.receive(1).unwrap().len(), 1);
    let mut sessions: Vec<u64> = (0..40).map(|_| session(&world.poll())).collect();
    sessions.dedup();
    assert!(sessions.len() > 1 && sessions[0] == before, "{sessions:?}");
}

// Rule: the peer may close a pair without a link-down slot, because the ring stayed full for too
// long. Such a pair ends after its frames were read, and the peer can open it again.
#[test]
fn missing_link_down_slot_is_noticed() {
    for wait in [0, 20] {
        let mut world = World::up(Shape::default(), 2);
        (0..wait).for_each(|_| drop(world.step()));
        let full = (0..).take_while(|n| world.kernel.send(1, &frame(*n, 60)).is_ok()).count();
        world.kernel.close(1);
        (0..110).for_each(|_| drop(world.step()));
        assert!(!world.kernel.qps[1].up, "the kernel has given up");
        assert_eq!(world.receive(1).unwrap().len(), full, "{wait}");
        world.settle(1);
        world.kernel.open(1..2);
        world.settle(2);
        world.kernel.send(1, &frame(1, 60)).unwrap();
        assert_eq!(world.receive(1).unwrap(), [frame(1, 60)]);
    }
}

// Rule: a pair that the peer closes without a link-down slot shortly after its opening ends.
// Credits around the closing, and frames from before, do not prevent this.
#[test]
fn late_credits_keep_no_closed_pair_open() {
    for (returned, after, received) in [(3, 0, 0), (1, 2, 0), (0, 0, 4), (2, 1, 3)] {
        let mut world = World::up(Shape { size: 1 << 20, mtu: 4096, ..Shape::default() }, 2);
        let frames: Vec<_> = (0..returned + after).map(|n| frame(n as u32, 60)).collect();
        world.send(1, &frames).unwrap();
        assert_eq!(world.kernel.receive(1, returned), returned);
        for n in 0..received {
            world.kernel.send(1, &frame(n, 60)).unwrap();
        }
        // The kernel still consumes frames for a while after it closes the pair.
        let credit = (returned + after) as u32;
        world.kernel.close_while_opening(1);
        let mut got = 0;
        for step in 0..60 {
            let status = world.step();
            world.follow(&status);
            if step == 4 && after > 0 {
                world.kernel.write_credit(1, credit - 1);
            }
            if step < 6 || world.channels.len() < 2 {
                continue;
            }
            got += world.receive(1).unwrap().len();
            // Send more frames than the ring holds, so that the credit is read.
            for n in 0..40 {
                world.send(1, &[frame(n, 60)]).unwrap();
            }
        }
        assert_eq!(got as u32, received, "{returned} {after} {received}");
        assert_eq!(world.channels.len(), 1, "{returned} {after} {received}");
        world.kernel.open(1..2);
        world.settle(2);
        world.send(1, &[frame(7, 60)]).unwrap();
        assert_eq!(world.kernel.receive(1, 9), 1);
    }
}

// Goal: frames of a new session that overwrite the last session's link-down slot are no
// violation, and the pair is opened again.
#[test]
fn covered_link_down_slot_is_noticed() {
    for (before, after) in [(3, 6), (2, 3), (5, 6), (9, 6), (16, 4)] {
        let mut world = World::up(Shape::default(), 1);
        for n in 0..before {
            world.kernel.send(0, &frame(n, 60)).unwrap();
            assert_eq!(world.receive(0).unwrap().len(), 1);
        }
        world.kernel.reopen(0);
        for n in 0..after {
            world.kernel.send(0, &frame(n, 60)).unwrap();
        }
        assert!(world.receive(0).unwrap().is_empty(), "{before} {after}");
        for _ in 0..20 {
            world.kernel.receive(0, 9);
            let status = world.step();
            world.follow(&status);
        }
        world.settle(1);
        world.kernel.send(0, &frame(8, 60)).unwrap();
        assert_eq!(world.receive(0).unwrap(), [frame(8, 60)]);
    }
}

// Rule: a timer makes the function's events ready without an event of the peer, while pairs change
// and later. A poll clears the event.
#[test]
fn further_steps_are_due_by_a_timer() {
    let mut world = World::up(Shape::default(), 2);
    for quiet in [0, 100] {
        (0..quiet).for_each(|_| drop(world.step()));
        for _ in 0..3 {
            world.poll();
            let epoll = Epoll::new().unwrap();
            for fd in world.function.events() {
                epoll.add(fd, Interest::Readable, 0).unwrap();
            }
            let wait = |time| epoll.wait(Some(Duration::from_millis(time)), |_| ()).unwrap();
            assert_eq!(wait(0), 0);
            assert_eq!(wait(5000), 1);
        }
    }
}

// Rule: frames to the peer use an open queue pair, also after the peer has closed the only open
// pair and opened another one. The number of channels is then unchanged.
#[test]
fn channel_sends_into_another_pair_that_opens() {
    let mut world = World::new(Shape::default());
    world.board.link_up();
    world.kernel.open(1..2);
    world.settle(1);
    let mut before = 1;
    for pair in [0, 3, 1, 0] {
        world.kernel.close(before);
        // Read the link-down slot, so that the next poll finds both the end of the pair and the
        // request.
        assert!(world.receive(0).unwrap().is_empty());
        world.kernel.open(pair..pair + 1);
        world.settle(1);
        let status = world.step();
        world.follow(&status);
        let frames = [frame(1, 60), frame(2, 1000)];
        assert_eq!(world.send(0, &frames).unwrap(), 2);
        assert_eq!(world.kernel.receive(pair, 9), 2, "from pair {before} to {pair}");
        before = pair;
    }
}
