//! Tests of frames that are detached with their memory.

use mqnet_netdev::{Armed, Burst, Function, Rx, RxBuffers};

use super::worlds;

// Goal: detached frames leave the ring with their memory, which is reused only after another
// thread has returned it. Such returns are counted.
#[test]
fn kept_frames_leave_with_their_memory() {
    for (device, function, mut channel) in worlds("kept") {
        let mut vring = device.vring(0);
        let Rx::Owning(rx) = &mut channel.rx else { panic!("virtio owns its memory") };
        let mut returner = rx.returner().unwrap();
        for round in 0..40u8 {
            for n in 0..64 {
                vring.send(1, [0; 10], &[round ^ n; 200]);
            }
            rx.peek(&mut Burst::new(), 64).unwrap();
            let mut kept = Vec::new();
            while let Some(frame) = rx.detach().unwrap() {
                kept.push(frame);
            }
            assert_eq!(kept.len(), 64);
            let giver = std::thread::spawn(move || {
                for (n, frame) in (0u8..).zip(kept) {
                    let bytes = frame.head.span(&returner).header::<200>().unwrap();
                    assert_eq!(bytes, [round ^ n; 200]);
                    frame.free(&mut returner);
                }
                returner.flush();
                returner
            });
            returner = giver.join().unwrap();
        }
        let memory = function.rx_memory().remove(0);
        assert!((1500..=2560).contains(&memory.buffers.foreign), "{}", memory.buffers.foreign);
        assert!(
            memory.buffers.pages <= 512,
            "{} pages are in use: memory was lost",
            memory.buffers.pages
        );
        assert_eq!(function.stats()[0].rx.packets.get(), 40 * 64);
    }
}

// Goal: a queue does not sleep while all its memory is detached, because the device has no buffer
// and the return of memory wakes no queue. After the return the device gets buffers, and the queue
// sleeps.
#[test]
fn a_queue_without_memory_does_not_sleep() {
    for (device, _function, mut channel) in worlds("starved") {
        let mut vring = device.vring(0);
        let Rx::Owning(rx) = &mut channel.rx else { panic!("virtio owns its memory") };
        let mut returner = rx.returner().unwrap();
        let mut kept = Vec::new();
        loop {
            let mut came = 0;
            while came < 64
                && let Some((id, at, _)) = vring.take()
            {
                vring.write(at, &[0; 112]);
                vring.write(at + 10, &1u16.to_le_bytes());
                vring.give(id.into(), 112);
                came += 1;
            }
            if came == 0 {
                break;
            }
            rx.peek(&mut Burst::new(), 64).unwrap();
            while let Some(frame) = rx.detach().unwrap() {
                kept.push(frame);
            }
            assert!(kept.len() < 1 << 16, "the memory has no end");
        }
        assert_eq!(rx.arm(1).unwrap(), Armed::MoreWork, "{} frames are kept", kept.len());
        kept.drain(..).for_each(|frame| frame.free(&mut returner));
        returner.flush();
        assert_eq!(rx.arm(1).unwrap(), Armed::Sleep);
        assert!(vring.take().is_some(), "the driver gives buffers again");
    }
}
