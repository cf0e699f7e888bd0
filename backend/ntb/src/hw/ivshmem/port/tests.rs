use super::super::wake::Via;
use super::*;

/// Device without doorbells that reports the peers in `left` as gone.
#[derive(Default)]
struct Board {
    left: Vec<u32>,
}

impl Bus for Board {
    fn poll(&mut self, _now: Duration) -> Result<(u64, &Attachment), String> {
        Err("not called".to_owned())
    }

    fn has(&self, id: u32) -> Option<bool> {
        self.left.contains(&id).then_some(false)
    }

    fn via(&self, _id: Option<u32>, _vector: u32, of: u32) -> Result<Via, String> {
        if of == 0 { Ok(Via::Nothing) } else { Err(format!("{of} vectors")) }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

fn memory() -> [Arc<Region>; 2] {
    [0, 1].map(|_| Arc::new(Region::shared("test", 512 << 10, false).unwrap()))
}

fn port(halves: &[Arc<Region>; 2], id: Option<u32>, side: Option<u8>, seed: u64) -> Port {
    let at = Attachment { halves: halves.clone(), size: 1 << 20, id, vectors: Vec::new() };
    Port::new(at, side, seed).unwrap()
}

/// Time that only the test advances.
struct Clock(Duration);

impl Clock {
    fn tick(&mut self) -> Duration {
        self.0 += Duration::from_millis(20);
        self.0
    }

    /// Polls both sides until both are up; returns how often each side reported a new session.
    fn meet(&mut self, a: &mut Port, b: &mut Port, board: &Board) -> [u32; 2] {
        let mut fresh = [0; 2];
        for _ in 0..500 {
            let now = self.tick();
            let standing = [a.poll(now, board), b.poll(now, board)];
            for (n, standing) in fresh.iter_mut().zip(&standing) {
                *n += u32::from(*standing == Standing::Up { fresh: true });
            }
            if standing.iter().all(|s| matches!(s, Standing::Up { .. })) {
                return fresh;
            }
        }
        panic!("they do not meet: {} / {}", a.why_out, b.why_out);
    }

    /// Polls a side until it is down; returns the reason.
    fn lose(&mut self, port: &mut Port, board: &Board) -> String {
        for _ in 0..500 {
            if let Standing::Down(why) = port.poll(self.tick(), board) {
                return why;
            }
        }
        panic!("it stays up");
    }
}

// Rule: two sides that start at the same moment take different halves, with or without a requested
// half. Each side's outbound window and scratchpads are the other side's inbound ones.
#[test]
fn two_meet() {
    for (wants_a, wants_b) in [(None, None), (Some(1), None), (None, Some(1)), (Some(1), Some(0))] {
        let (halves, board) = (memory(), Board::default());
        let (mut a, mut b) = (port(&halves, None, wants_a, 1), port(&halves, None, wants_b, 2));
        assert_eq!(Clock(Duration::ZERO).meet(&mut a, &mut b, &board), [1, 1]);
        assert_eq!(a.side + b.side, 1);
        assert!(wants_a.is_none_or(|side| usize::from(side) == a.side));
        a.peer_spad_write(3, 0xabcd);
        assert_eq!((b.spad_read(3), a.spad_read(3)), (0xabcd, 0));
        let (a, b) = (a.windows().unwrap(), b.windows().unwrap());
        assert!(Arc::ptr_eq(&a.inbound, &b.outbound) && Arc::ptr_eq(&a.outbound, &b.inbound));
    }
}

// Rule: a third process is refused, and the reason names the owners of the halves, with or without
// a requested half. The link of the two owners is not affected.
#[test]
fn a_third_is_refused() {
    let (halves, board, mut clock) = (memory(), Board::default(), Clock(Duration::ZERO));
    let (mut a, mut b) = (port(&halves, Some(4), None, 1), port(&halves, Some(7), None, 2));
    clock.meet(&mut a, &mut b, &board);
    let mut third = port(&halves, Some(9), None, 3);
    let mut picky = port(&halves, Some(9), Some(1), 4);
    for _ in 0..400 {
        let now = clock.tick();
        let Standing::Down(why) = third.poll(now, &board) else { panic!("a third is up") };
        assert!(why.contains("both sides") && why.contains("(peer 4)"), "{why}");
        let Standing::Down(why) = picky.poll(now, &board) else { panic!("it is up") };
        assert!(why.starts_with("side 1 is in use (peer ") && why.ends_with("side=0"), "{why}");
        assert_eq!(a.poll(now, &board), Standing::Up { fresh: false });
        assert_eq!(b.poll(now, &board), Standing::Up { fresh: false });
    }
}

// Rule: a peer without a heartbeat is lost with a reason. A process that then takes the peer's half
// is a new peer, which finds cleared scratchpads.
#[test]
fn silence_is_an_end() {
    let (halves, board, mut clock) = (memory(), Board::default(), Clock(Duration::ZERO));
    let (mut a, mut b) = (port(&halves, None, Some(0), 1), port(&halves, None, Some(1), 2));
    clock.meet(&mut a, &mut b, &board);
    b.peer_spad_write(3, 5);
    // Simulate a killed process, which clears nothing.
    std::mem::forget(b);
    assert_eq!(clock.lose(&mut a, &board), "the peer does not update its heartbeat");
    let mut next = port(&halves, None, Some(1), 3);
    assert_eq!(clock.meet(&mut a, &mut next, &board), [1, 1]);
    assert_eq!(a.spad_read(3), 0);
}

// Rule: if the device reports that a peer has left, the link is lost before the heartbeat limit. A
// process that returns under the same number takes its former half immediately.
#[test]
fn the_device_knows_better() {
    let (halves, mut board, mut clock) = (memory(), Board::default(), Clock(Duration::ZERO));
    let (mut a, mut b) = (port(&halves, Some(0), None, 1), port(&halves, Some(1), None, 2));
    clock.meet(&mut a, &mut b, &board);
    let side = b.side;
    std::mem::forget(b);
    board.left = vec![1];
    let before = clock.0;
    assert_eq!(clock.lose(&mut a, &board), "the peer 1 has left the device");
    board.left.clear();
    let mut b = port(&halves, Some(1), None, 3);
    clock.meet(&mut a, &mut b, &board);
    assert_eq!(b.side, side);
    assert!(clock.0 - before < STALE, "an end waited for the heartbeat limit");
}

// Rule: if an end restarts before its peer notices the loss, each side reports exactly one new
// session.
#[test]
fn a_new_life_is_noticed() {
    let (halves, board, mut clock) = (memory(), Board::default(), Clock(Duration::ZERO));
    let (mut a, mut b) = (port(&halves, Some(0), None, 1), port(&halves, Some(1), None, 2));
    clock.meet(&mut a, &mut b, &board);
    for seed in 10..20 {
        std::mem::forget(b);
        b = port(&halves, Some(1), None, seed);
        while !matches!(b.stage, Stage::In) {
            b.poll(clock.tick(), &board);
        }
        assert_eq!(clock.lose(&mut a, &board), "the peer was restarted");
        assert_eq!(clock.meet(&mut a, &mut b, &board), [1, 1]);
    }
    drop(b);
    assert_eq!(clock.lose(&mut a, &board), "the peer closed the link");
}

// Rule: a peer with vectors that this side cannot signal, or with another memory size, is refused
// with a reason. The peer is accepted once its card is usable.
#[test]
fn impossible_peers_are_named() {
    let (halves, board, mut clock) = (memory(), Board::default(), Clock(Duration::ZERO));
    let mut a = port(&halves, None, Some(0), 1);
    let other = Card { id: Some(3), vectors: 4, size: 1 << 20, incarnation: 0, echo: 0 };
    let mut said = |change: &dyn Fn(&mut Card)| {
        let mut card = other;
        change(&mut card);
        card::write(&halves[1], &card);
        card::set_echo(&halves[1], card::incarnation(&halves[0]));
        card::set_incarnation(&halves[1], 77);
        for _ in 0..8 {
            a.poll(clock.tick(), &board);
            card::set_echo(&halves[1], card::incarnation(&halves[0]));
        }
        a.poll(clock.tick(), &board)
    };
    assert_eq!(said(&|_| ()), Standing::Down("4 vectors".to_owned()));
    let Standing::Down(why) = said(&|card| card.size = 2 << 20) else { panic!("it is up") };
    assert_eq!(why, "the shared memory has 2097152 bytes at the peer, 1048576 here");
    assert!(matches!(said(&|card| card.vectors = 0), Standing::Up { .. }));
}
