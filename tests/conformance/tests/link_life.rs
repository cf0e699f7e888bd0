//! Seeded simulation of a bridge. Two ends are polled, closed, restarted and resized in any order
//! with simulated time. After every history the link comes up.

use std::time::Duration;

use mqnet_conformance::rigs::Folder;
use mqnet_engine::{Link, LinkConfig};
use mqnet_netdev::loopback::Loopback;
use mqnet_netdev::{Caps, Function, LinkStatus};
use mqnet_ntb::{NtbConfig, NtbFunction};
use proptest::prelude::*;

/// Event at one of the ends.
#[derive(Clone, Copy, Debug)]
enum Event {
    Poll,
    /// Normal close, or close after a fault.
    Close,
    /// End of the process without a close, followed by a new process.
    Restart,
    /// Restart with another number of channels.
    Resize(u16),
}

struct End {
    function: NtbFunction,
    channels: u16,
    lives: u64,
}

struct World {
    folder: Folder,
    ends: [Option<End>; 2],
    now: Duration,
}

impl World {
    fn new() -> Self {
        let mut world = Self { folder: Folder::new(), ends: [None, None], now: Duration::ZERO };
        for side in 0..2 {
            world.start(side, 2, 0);
        }
        world
    }

    fn start(&mut self, side: usize, channels: u16, lives: u64) {
        let path = self.folder.0.join("x.sock");
        let config = NtbConfig { path, window: 1 << 20, mtu: None };
        let mut function = NtbFunction::memfd(&config, lives * 2 + side as u64);
        let caps = Loopback::new(64).caps();
        function.set_partner(&Caps { wanted: Some(channels), ..caps });
        self.ends[side] = Some(End { function, channels, lives });
    }

    fn poll(&mut self, side: usize) -> Option<LinkStatus> {
        self.now += Duration::from_millis(7);
        let now = self.now;
        self.ends[side].as_mut().map(|end| end.function.poll_link(now))
    }

    fn apply(&mut self, side: usize, event: Event) {
        match event {
            Event::Poll => drop(self.poll(side)),
            Event::Close => {
                if let Some(end) = &mut self.ends[side] {
                    end.function.close("as the test wants");
                }
            }
            Event::Restart | Event::Resize(_) => {
                let (channels, lives) =
                    self.ends[side].as_ref().map_or((2, 0), |e| (e.channels, e.lives));
                // Drop the old function before the new one is created, as in a restart of the
                // process.
                self.ends[side] = None;
                let channels = if let Event::Resize(n) = event { n } else { channels };
                self.start(side, channels, lives + 1);
            }
        }
    }
}

fn event() -> impl Strategy<Value = (usize, Event)> {
    let event = prop_oneof![
        8 => Just(Event::Poll),
        1 => Just(Event::Close),
        1 => Just(Event::Restart),
        1 => (1u16..=64).prop_map(Event::Resize),
    ];
    (0usize..2, event)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // Goal: after any history of closes and restarts, the two ends complete a handshake with equal
    // plan and generation, and can open every channel.
    #[test]
    fn link_recovers_after_every_history(history in prop::collection::vec(event(), 0..80)) {
        let mut world = World::new();
        for (side, event) in history {
            world.apply(side, event);
        }
        let mut up = false;
        for _ in 0..600 {
            let status = [world.poll(0), world.poll(1)];
            if let [Some(LinkStatus::Up { .. }), Some(LinkStatus::Up { .. })] = &status {
                up = true;
                break;
            }
        }
        prop_assert!(up, "the ends did not find each other again");
        let channels = world.ends.iter().flatten().map(|e| e.channels).min().unwrap();
        let generations: Vec<u32> = world
            .ends
            .iter()
            .flatten()
            .map(|end| end.function.agreement().expect("up").generation)
            .collect();
        prop_assert_eq!(generations[0], generations[1]);
        for end in world.ends.iter_mut().flatten() {
            let plan = end.function.agreement().expect("up").plan.clone();
            prop_assert_eq!(plan.channels, channels);
            prop_assert_eq!(end.function.open(&plan).unwrap().len(), usize::from(channels));
        }
    }
}

// Goal: a peer that starts soon is detected immediately; while a peer stays absent, polls become
// rare.
#[test]
fn absent_peer_is_polled_less_often() {
    let folder = Folder::new();
    let config = |path: &str| NtbConfig { path: folder.0.join(path), window: 1 << 20, mtu: None };
    let bridge = Box::new(NtbFunction::memfd(&config("x.sock"), 1));
    let config = LinkConfig { workers: Some(1), ..LinkConfig::default() };
    let mut link = Link::new(Box::new(Loopback::new(64)), bridge, config).unwrap();
    let start = Duration::from_secs(100);
    let mut after = |seconds: u64| {
        let notice = link.turn(start + Duration::from_secs(seconds)).unwrap();
        (notice.is_some(), link.patience().as_millis())
    };
    assert_eq!(after(0), (true, 25), "the reason is output");
    assert_eq!(after(2), (false, 25));
    assert_eq!(after(3), (false, 100));
    assert_eq!(after(1000), (false, 100));
}
