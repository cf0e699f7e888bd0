//! Client side of QEMU's client-server protocol (docs/specs/ivshmem-spec.rst). A server sends
//! 64-bit little-endian numbers, some with a descriptor:
//!
//! 1. the version, this client's number, and -1 with the descriptor of the memory;
//! 2. a peer's number with an event of the peer, once per vector in order; this client's own
//!    events come with its own number;
//! 3. a number without a descriptor for a peer that has left.

use std::collections::BTreeMap;

use super::card::DOORBELLS;

/// Version of the protocol; there is no other.
pub(super) const VERSION: i64 = 0;
/// Number that accompanies the descriptor of the memory.
pub(super) const MEMORY: i64 = -1;

/// Largest number of events of all peers together; each event holds a descriptor of this process.
const EVENTS_MAX: usize = 4096;

/// Meaning of a number that the server has sent.
#[derive(Debug, PartialEq, Eq)]
enum Message<F> {
    Nothing,
    Memory(F),
    Event(u16, F),
    Left(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    Version,
    OwnId,
    Memory,
    Peers,
}

/// State that a server has sent so far. `F` is a descriptor, `E` an event.
#[derive(Debug)]
pub(super) struct Roster<F, E> {
    awaits: Awaits,
    bytes: Vec<u8>,
    /// Descriptor received with a number that is not complete yet.
    with: Option<F>,
    /// Number of this client.
    pub(super) id: Option<u16>,
    /// Memory, until the client takes it.
    pub(super) memory: Option<F>,
    /// Events of each peer, including this client.
    pub(super) peers: BTreeMap<u16, Vec<E>>,
}

impl<F, E> Roster<F, E> {
    pub(super) fn new() -> Self {
        Self {
            awaits: Awaits::Version,
            bytes: Vec::new(),
            with: None,
            id: None,
            memory: None,
            peers: BTreeMap::new(),
        }
    }

    /// Number of missing bytes of the next number, and the longest allowed read. A longer read
    /// could return descriptors of two numbers together.
    pub(super) fn missing(&self) -> usize {
        8 - self.bytes.len()
    }

    /// Handles received bytes, at most [`missing`](Self::missing), and the descriptors received
    /// with them. `event` converts a descriptor to an event, or returns `None` if it is no
    /// eventfd. `Err` for a violation of the protocol.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        with: impl IntoIterator<Item = F>,
        event: impl Fn(F) -> Option<E>,
    ) -> Result<(), String> {
        for one in with {
            if self.with.replace(one).is_some() {
                return Err("the ivshmem server sent two descriptors at a time".to_owned());
            }
        }
        self.bytes.extend_from_slice(bytes);
        let Ok(number) = <[u8; 8]>::try_from(&self.bytes[..]) else { return Ok(()) };
        self.bytes.clear();
        let with = self.with.take();
        match self.understand(i64::from_le_bytes(number), with)? {
            Message::Nothing => Ok(()),
            Message::Memory(memory) => {
                self.memory = Some(memory);
                Ok(())
            }
            Message::Event(peer, one) => {
                let one = event(one).ok_or_else(|| {
                    format!(
                        "the ivshmem server sent a descriptor for peer {peer} that is not an \
                         eventfd"
                    )
                })?;
                self.add(peer, one)
            }
            Message::Left(peer) if Some(peer) == self.id => {
                Err("the ivshmem server removed this end".to_owned())
            }
            Message::Left(peer) => {
                self.peers.remove(&peer);
                Ok(())
            }
        }
    }

    fn understand(&mut self, number: i64, with: Option<F>) -> Result<Message<F>, String> {
        let bare = with.is_none();
        let peer = |what: &str| {
            u16::try_from(number).map_err(|_| {
                format!("the ivshmem server sent {what} {number}, allowed: 0 to 65535")
            })
        };
        match (self.awaits, with) {
            (Awaits::Version, None) if number == VERSION => self.awaits = Awaits::OwnId,
            (Awaits::Version, None) => {
                return Err(format!(
                    "the ivshmem server has protocol version {number}, supported: {VERSION}"
                ));
            }
            (Awaits::OwnId, None) => {
                self.id = Some(peer("the own id")?);
                self.awaits = Awaits::Memory;
            }
            (Awaits::Memory, Some(memory)) if number == MEMORY => {
                self.awaits = Awaits::Peers;
                return Ok(Message::Memory(memory));
            }
            (Awaits::Peers, Some(event)) => return Ok(Message::Event(peer("a peer")?, event)),
            (Awaits::Peers, None) => return Ok(Message::Left(peer("a peer")?)),
            (awaits, _) => {
                let (what, with) = match awaits {
                    Awaits::Memory => ("the shared memory", if bare { "out" } else { "" }),
                    Awaits::Version => ("its version", ""),
                    _ => ("the own id", ""),
                };
                return Err(format!(
                    "the ivshmem server sent {number} with{with} a descriptor instead of {what}"
                ));
            }
        }
        Ok(Message::Nothing)
    }

    fn add(&mut self, peer: u16, event: E) -> Result<(), String> {
        if self.peers.values().map(Vec::len).sum::<usize>() >= EVENTS_MAX {
            return Err(format!("the ivshmem server sent more than {EVENTS_MAX} events"));
        }
        let events = self.peers.entry(peer).or_default();
        // A link uses one event per doorbell; further events are dropped.
        if events.len() < DOORBELLS {
            events.push(event);
        }
        Ok(())
    }

    /// Events of this client.
    pub(super) fn own(&self) -> &[E] {
        self.id.and_then(|id| self.peers.get(&id)).map_or(&[], Vec::as_slice)
    }

    /// True if there is a peer with number `id`. `None` if this client has no events: a server
    /// without vectors announces no peers.
    pub(super) fn has(&self, id: u32) -> Option<bool> {
        if self.own().is_empty() {
            return None;
        }
        Some(u16::try_from(id).is_ok_and(|id| self.peers.contains_key(&id)))
    }
}

/// Feeds any bytes to the parser, for fuzzing. The bytes also choose the lengths of the reads and
/// their descriptors.
pub(crate) fn check_stream(mut data: &[u8]) {
    let mut roster = Roster::<u8, u8>::new();
    while let Some((&how, rest)) = data.split_first() {
        let n = (1 + usize::from(how & 7)).min(roster.missing()).min(rest.len());
        let with = (0..how >> 3 & 3).map(|_| how);
        if roster.take(&rest[..n], with, |fd| (fd < 250).then_some(fd)).is_err() {
            return;
        }
        assert!(roster.missing() >= 1);
        assert!(roster.peers.values().all(|events| events.len() <= DOORBELLS));
        assert!(roster.has(1 << 16) != Some(true));
        data = &rest[n..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Toy = Roster<u32, u32>;

    fn feed(roster: &mut Toy, number: i64, with: Option<u32>) -> Result<(), String> {
        roster.take(&number.to_le_bytes(), with, |fd| (fd != 666).then_some(fd))
    }

    fn greeted() -> Toy {
        let mut roster = Toy::new();
        for (number, with) in [(0, None), (3, None), (-1, Some(9))] {
            feed(&mut roster, number, with).unwrap();
        }
        roster
    }

    // Goal: the client's number, the memory, and peers that join and leave are read from the
    // stream.
    #[test]
    fn a_server_is_understood() {
        let mut roster = greeted();
        assert_eq!((roster.id, roster.memory), (Some(3), Some(9)));
        assert_eq!(roster.has(1), None);
        for (peer, event) in [(1, 10), (1, 11), (3, 30), (3, 31), (0, 5)] {
            feed(&mut roster, peer, Some(event)).unwrap();
        }
        assert_eq!(roster.own(), [30, 31]);
        assert_eq!(roster.peers[&1], [10, 11]);
        assert_eq!((roster.has(0), roster.has(2)), (Some(true), Some(false)));
        feed(&mut roster, 1, None).unwrap();
        feed(&mut roster, 7, None).unwrap();
        assert_eq!(roster.has(1), Some(false));
    }

    // Goal: each violation of the protocol is an error with a separate text.
    #[test]
    fn nonsense_is_refused_in_words() {
        type Answers = (i64, Option<u32>);
        let refused = |answers: &[Answers]| {
            let mut roster = Toy::new();
            answers
                .iter()
                .find_map(|&(number, with)| feed(&mut roster, number, with).err())
                .unwrap()
        };
        let cases: &[(&[Answers], &str)] = &[
            (&[(1, None)], "protocol version 1, supported: 0"),
            (&[(0, Some(1))], "instead of its version"),
            (&[(0, None), (70_000, None)], "the own id 70000"),
            (&[(0, None), (-1, None)], "the own id -1"),
            (&[(0, None), (1, None), (-1, None)], "-1 without a descriptor instead of the shared"),
            (&[(0, None), (1, None), (1, Some(1))], "1 with a descriptor instead of the shared"),
            (&[(0, None), (1, None), (-1, Some(1)), (-1, Some(1))], "a peer -1"),
            (&[(0, None), (1, None), (-1, Some(1)), (1, None)], "removed this end"),
            (
                &[(0, None), (1, None), (-1, Some(1)), (2, Some(666))],
                "peer 2 that is not an eventfd",
            ),
        ];
        for (answers, words) in cases {
            let text = refused(answers);
            assert!(text.contains(words), "{answers:?}: {text}");
        }
        let mut roster = greeted();
        assert!(roster.take(&[0; 8], [1, 2], Some).unwrap_err().contains("two descriptors"));
    }

    // Rule: a server that sends more than `EVENTS_MAX` events is refused, so that it cannot exhaust
    // the descriptors of the process.
    #[test]
    fn events_have_a_limit() {
        let mut roster = greeted();
        let refused = (0..1 << 16).find_map(|n| feed(&mut roster, n, Some(1)).err());
        assert!(refused.unwrap().contains("more than 4096 events"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        // Goal: no stream of a server causes a panic, with any lengths of reads and any
        // descriptors.
        #[test]
        fn any_stream_is_survived(data in prop::collection::vec(any::<u8>(), 0..400)) {
            check_stream(&data);
        }

        // Goal: the result does not depend on the lengths of the reads.
        #[test]
        fn pieces_make_no_difference(cuts in prop::collection::vec(1usize..8, 0..60)) {
            let mut roster = Toy::new();
            let mut cuts = cuts.into_iter();
            let answers = [(0, None), (3, None), (-1, Some(9)), (1, Some(10)), (3, Some(30))];
            for (number, with) in answers {
                let (bytes, mut with) = (i64::to_le_bytes(number), with);
                loop {
                    let at = 8 - roster.missing();
                    let n = cuts.next().unwrap_or(8).min(8 - at);
                    roster.take(&bytes[at..at + n], with.take(), Some).unwrap();
                    if at + n == 8 {
                        break;
                    }
                }
            }
            prop_assert_eq!((roster.id, roster.own(), roster.peers.len()), (Some(3), &[30][..], 2));
        }
    }
}
