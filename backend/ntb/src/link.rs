//! States of a link with mqnet at both ends: the allowed transitions, and the forbidden transitions
//! with the reason.
//!
//! The result of a handshake is a pure function of the two offers ([`Offer`], [`agree`]). The
//! network function exchanges the offers.

mod offer;

pub use offer::{Agreement, Offer, OfferError, agree};

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No handshake: there is no peer, or the delay before the next session has not ended.
    Down,
    /// Offer of this end published; the peer's offer has not been received.
    Offered,
    /// Offer of the peer accepted; the peer has not yet accepted this end's offer.
    Accepted,
    /// Traffic may flow.
    Up,
    /// One end refused the other end's offer; both ends know the reason.
    Refused,
}

/// Event of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Happening {
    /// The hardware found a peer.
    HwUp,
    /// The hardware lost the peer.
    HwDown,
    /// A valid offer of the peer was received.
    GoodOffer,
    /// An offer of the peer was received and refused.
    BadOffer,
    /// The peer accepted this end's offer.
    PeerAccepts,
    /// The peer refused this end's offer.
    PeerRefuses,
    /// The peer broke the protocol, closed the link, or did not answer in time.
    Fault,
}

use Happening::*;
use State::*;

/// All states.
pub const STATES: [State; 5] = [Down, Offered, Accepted, Up, Refused];
/// All events.
pub const HAPPENINGS: [Happening; 7] =
    [HwUp, HwDown, GoodOffer, BadOffer, PeerAccepts, PeerRefuses, Fault];

/// Allowed transitions.
const MOVES: &[(State, Happening, State)] = &[
    (Down, HwUp, Offered),
    (Down, HwDown, Down),
    (Offered, HwDown, Down),
    (Offered, GoodOffer, Accepted),
    (Offered, BadOffer, Refused),
    (Offered, PeerRefuses, Refused),
    (Offered, Fault, Down),
    (Accepted, HwDown, Down),
    (Accepted, PeerAccepts, Up),
    (Accepted, PeerRefuses, Refused),
    (Accepted, Fault, Down),
    (Up, HwDown, Down),
    (Up, Fault, Down),
    (Refused, HwDown, Down),
    (Refused, Fault, Down),
    (Refused, PeerRefuses, Refused),
];

/// Forbidden transitions, with the reason. A peer that causes a forbidden event is at fault.
const FORBIDDEN: &[(State, Happening, &str)] = &[
    (Down, GoodOffer, "an offer without a peer: a stale scratchpad"),
    (Down, BadOffer, "an offer without a peer: a stale scratchpad"),
    (Down, PeerAccepts, "an acceptance without a peer: a stale scratchpad"),
    (Down, PeerRefuses, "a refusal without a peer: a stale scratchpad"),
    (Down, Fault, "a violation without a peer"),
    (Offered, HwUp, "a second peer while the first is there"),
    (Offered, PeerAccepts, "the peer accepted before it made an offer"),
    (Accepted, HwUp, "a second peer while the first is there"),
    (Accepted, GoodOffer, "a second offer after the first was accepted"),
    (Accepted, BadOffer, "a second offer after the first was accepted"),
    (Up, HwUp, "a second peer while the first is there"),
    (Up, GoodOffer, "a second offer: the rings are laid out already"),
    (Up, BadOffer, "a second offer: the rings are laid out already"),
    (Up, PeerAccepts, "a second acceptance"),
    (Up, PeerRefuses, "a refusal after the acceptance: the peer should close the link"),
    (Refused, HwUp, "a second peer while the first is there"),
    (Refused, GoodOffer, "an offer after the refusal: the peer should reconnect"),
    (Refused, BadOffer, "an offer after the refusal: the peer should reconnect"),
    (Refused, PeerAccepts, "an acceptance after the refusal"),
];

/// State after an event; `Err` with the reason if the event is forbidden.
pub fn next(state: State, happening: Happening) -> Result<State, &'static str> {
    if let Some((_, _, to)) = MOVES.iter().find(|(s, h, _)| (*s, *h) == (state, happening)) {
        return Ok(*to);
    }
    let forbidden = FORBIDDEN.iter().find(|(s, h, _)| (*s, *h) == (state, happening));
    Err(forbidden.map_or("no such transition", |(_, _, why)| why))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every pair of state and event is in exactly one of the two tables.
    #[test]
    fn tables_are_complete_and_disjoint() {
        for state in STATES {
            for happening in HAPPENINGS {
                let here = |s: &State, h: &Happening| (*s, *h) == (state, happening);
                let allowed = MOVES.iter().filter(|(s, h, _)| here(s, h)).count();
                let forbidden = FORBIDDEN.iter().filter(|(s, h, _)| here(s, h)).count();
                assert_eq!(allowed + forbidden, 1, "{state:?} {happening:?}");
            }
        }
    }

    // Goal: traffic begins only after both ends have accepted, and the loss of the peer ends
    // every state.
    #[test]
    fn up_needs_both_ends() {
        for (from, happening, to) in MOVES {
            if *to == Up {
                assert_eq!((*from, *happening), (Accepted, PeerAccepts));
            }
            if *to == Accepted {
                assert_eq!((*from, *happening), (Offered, GoodOffer));
            }
        }
        assert!(STATES.iter().all(|s| next(*s, HwDown) == Ok(Down)));
    }
}
