use super::*;

// Rule: the server has one client at a time. After its disconnection, everything that the client
// set up is removed, and the next client is served.
#[test]
fn clients_follow_each_other() {
    let mut world = World::connected("clients");
    assert_eq!(world.poll(), Status::Connected(1));
    let file = memory_file("test", 0x1000, false).unwrap();
    world.request(DMA_MAP, &dma([32, 3], &[0, 0, 0x1000]), &[file.as_fd()]);
    let event = EventFd::new().unwrap();
    world.request(SET_IRQS, &body(&[20, 0x24, 2, 0, 1]), &[event.as_fd()]);
    let second = StreamSocket::connect(&world.path).unwrap();
    assert_eq!(world.poll(), Status::Connected(1));
    assert_eq!(second.receive_bytes(&mut [0]).unwrap(), Some(0), "the second is closed");
    world.client = second;
    // Expect that the first client is disconnected.
    assert_eq!(world.poll(), Status::Waiting("the client closed the connection".to_owned()));
    assert_eq!((world.server.dma().ranges(), world.device.resets), (0, 1));
    assert_eq!(world.device.unmapped, [(0, u64::MAX)]);
    assert!(!world.server.interrupts().is_set(0));
    world.client = StreamSocket::connect(&world.path).unwrap();
    assert_eq!(world.poll(), Status::Waiting("a VMM is connecting".to_owned()));
    world.request(VERSION, &[0; 4], &[]);
    assert_eq!(world.poll(), Status::Connected(2));
}

// Rule: the version is negotiated first and once. Earlier commands, other message types and unknown
// commands are rejected, and the connection continues.
#[test]
fn order_of_commands_is_kept() {
    let mut world = World::new("order");
    for (command, message) in [(GET_INFO, [0u8; 16]), (RESET, [0; 16])] {
        assert!(world.refused(command, &message, &[]).1.contains("version not negotiated"));
    }
    assert!(world.refused(VERSION, &[1, 0, 0, 0], &[]).1.contains("version 1.0"));
    assert!(world.refused(VERSION, &[0; 3], &[]).1.contains("too short"));
    assert_eq!(world.request(VERSION, &[0, 0, 9, 0], &[]).error, 0);
    assert!(world.refused(VERSION, &[0; 4], &[]).1.contains("once per connection"));
    for command in [0, 11, 12, 14, 15, 16, u16::MAX] {
        assert_eq!(world.refused(command, &[0; 64], &[]).0, 38, "ENOSYS");
    }
    world.send(GET_INFO, 1, &[0; 16], &[]);
    world.poll();
    assert_eq!(world.receive().unwrap().error, EINVAL);
    assert_eq!(world.server.last_refusal(), Some(&MessageError::Type(1)));
    assert_eq!(world.request(GET_INFO, &[0; 16], &[]).error, 0);
}

// Rule: an invalid message size ends the connection with a reason; a message that arrives in parts
// is assembled.
#[test]
fn streams_are_divided() {
    for size in [0u32, 15, 16 + 16 + (64 << 10) + 1, u32::MAX] {
        let mut world = World::new("sizes");
        let mut bytes = vec![1, 0, 4, 0];
        bytes.extend(size.to_le_bytes());
        bytes.extend([0; 8]);
        world.client.send(&bytes, &[]).unwrap();
        let Status::Waiting(why) = world.poll() else { panic!("{size}") };
        assert!(why.contains(&format!("message of {size} bytes")), "{why}");
        assert!(world.is_closed());
    }
    let mut world = World::new("pieces");
    let message = [7, 0, 1, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for byte in message {
        assert!(world.receive().is_none());
        world.client.send(&[byte], &[]).unwrap();
        world.poll();
    }
    assert_eq!(world.receive().unwrap().id, 7);
    // Check that a client that negotiates no version is disconnected.
    let mut world = World::new("silent");
    world.poll();
    world.now += Duration::from_secs(6);
    let Status::Waiting(why) = world.poll() else { panic!() };
    assert!(why.contains("did not negotiate"), "{why}");
}

// Rule: a client that does not read its replies is closed, and the server never blocks.
#[test]
fn unread_replies_end_the_connection() {
    let mut world = World::connected("unread");
    let mut why = String::new();
    for _ in 0..1000 {
        let big = access(0, 2, 0x2000, &[]);
        let mut bytes = vec![1, 0, 9, 0];
        bytes.extend((16 + big.len() as u32).to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(&big);
        if world.client.send(&bytes, &[]).is_err() {
            break;
        }
        if let Status::Waiting(text) = world.poll() {
            why = text;
            break;
        }
    }
    assert!(why.contains("does not read its replies"), "{why}");
}

/// Pseudorandom numbers of a test.
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

    /// Returns a number that is often at a boundary.
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

// Rule: no message makes the server panic, and each complete command receives a reply.
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
