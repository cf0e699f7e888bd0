//! Seeded random messages and byte streams.

use super::*;

/// Numbers of a test, from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// A number that is often at an edge.
    fn edge(&mut self) -> u64 {
        const EDGES: [u64; 12] = [
            0,
            1,
            4,
            16,
            0xfff,
            0x1000,
            0x2000,
            64 << 10,
            1 << 31,
            u32::MAX as u64,
            1 << 40,
            u64::MAX,
        ];
        match self.below(4) {
            0 => self.next(),
            1 => self.below(10),
            _ => EDGES[self.below(EDGES.len() as u64) as usize]
                .wrapping_add(self.below(3))
                .wrapping_sub(1),
        }
    }
}

// Rule: no message makes the server panic, and each complete command is answered.
#[test]
fn any_message_is_answered() {
    let file = memory_file("test", 0x4000, false).unwrap();
    let event = EventFd::new().unwrap();
    for seed in 1u64..=40 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed));
        let mut world = World::connected("random");
        for _ in 0..500 {
            let command = random.below(17) as u16;
            let mut bytes = Vec::new();
            for _ in 0..random.below(8) {
                match random.below(3) {
                    0 => bytes.extend(random.edge().to_le_bytes()),
                    _ => bytes.extend((random.edge() as u32).to_le_bytes()),
                }
            }
            bytes.truncate(bytes.len().saturating_sub(random.below(6) as usize / 4));
            let fd = if random.below(2) == 0 { file.as_fd() } else { event.as_fd() };
            let fds = vec![fd; [0, 0, 1, 1, 2, 3][random.below(6) as usize]];
            world.device.busy = (random.below(8) / 7) as u32;
            // A header alone cannot carry descriptors of an empty stream.
            let id = world.send(command, 0, &bytes, &fds);
            world.poll();
            world.poll();
            let reply = world.receive().unwrap_or_else(|| panic!("seed {seed}: command {command}"));
            assert_eq!((reply.id, reply.command), (id, command));
            let _ = world.server.dma().segments(random.edge(), random.edge() % 0x10_0000);
        }
    }
}

// Rule: no byte stream makes the server panic.
#[test]
fn any_stream_is_survived() {
    for seed in 1u64..=200 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed));
        let mut world = World::new("stream");
        for _ in 0..50 {
            let len = random.below(64) as usize;
            let bytes: Vec<u8> = (0..len).map(|_| (random.edge() & 0xff) as u8).collect();
            if !bytes.is_empty() && world.client.send(&bytes, &[]).is_err() {
                break;
            }
            world.poll();
            world.now += Duration::from_millis(200);
        }
    }
}
