//! The link of a bridge as a table: what moves there are, and which are forbidden and why.
//!
//! The handshake itself is a pure function of what the two ends say ([`Offer`], [`agree`]); the
//! function that owns the hardware carries the words back and forth.

mod offer;

pub use offer::{Agreement, Offer, OfferError, agree};

/// Where a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No peer.
    Down,
    /// Our offer is out; the peer's has not come.
    Offered,
    /// The peer's offer is good; ours has not been accepted yet.
    Accepted,
    /// Traffic may flow.
    Up,
    /// One of the two ends refused; the reason is on both sides.
    Refused,
}

/// What happens to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Happening {
    /// The hardware found a peer.
    HwUp,
    /// The hardware lost it, or the peer said goodbye.
    HwDown,
    /// The peer's offer came and is good.
    GoodOffer,
    /// The peer's offer came and is not.
    BadOffer,
    /// The peer accepted our offer.
    PeerAccepts,
    /// The peer refused our offer.
    PeerRefuses,
    /// A peer broke the protocol, or was silent for too long.
    Fault,
}

use Happening::*;
use State::*;

/// Every state, for enumeration.
pub const STATES: [State; 5] = [Down, Offered, Accepted, Up, Refused];
/// See [`STATES`].
pub const HAPPENINGS: [Happening; 7] =
    [HwUp, HwDown, GoodOffer, BadOffer, PeerAccepts, PeerRefuses, Fault];

/// The moves.
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

/// The moves that must not happen. A peer that causes one is at fault.
const FORBIDDEN: &[(State, Happening, &str)] = &[
    (Down, GoodOffer, "an offer without a peer: a stale scratchpad"),
    (Down, BadOffer, "an offer without a peer: a stale scratchpad"),
    (Down, PeerAccepts, "an acceptance without a peer: a stale scratchpad"),
    (Down, PeerRefuses, "a refusal without a peer: a stale scratchpad"),
    (Down, Fault, "there is no peer that could break a rule"),
    (Offered, HwUp, "a second peer while the first is there"),
    (Offered, PeerAccepts, "the peer accepted before it made an offer"),
    (Accepted, HwUp, "a second peer while the first is there"),
    (Accepted, GoodOffer, "a second offer after the first was accepted"),
    (Accepted, BadOffer, "a second offer after the first was accepted"),
    (Up, HwUp, "a second peer while the first is there"),
    (Up, GoodOffer, "a second offer: the rings are laid out already"),
    (Up, BadOffer, "a second offer: the rings are laid out already"),
    (Up, PeerAccepts, "a second acceptance"),
    (Up, PeerRefuses, "a refusal after the acceptance: the peer should say goodbye"),
    (Refused, HwUp, "a second peer while the first is there"),
    (Refused, GoodOffer, "an offer after the refusal: the peer should reconnect"),
    (Refused, BadOffer, "an offer after the refusal: the peer should reconnect"),
    (Refused, PeerAccepts, "an acceptance after the refusal"),
];

/// The next state, or why there is none.
pub fn next(state: State, happening: Happening) -> Result<State, &'static str> {
    if let Some((_, _, to)) = MOVES.iter().find(|(s, h, _)| (*s, *h) == (state, happening)) {
        return Ok(*to);
    }
    let forbidden = FORBIDDEN.iter().find(|(s, h, _)| (*s, *h) == (state, happening));
    Err(forbidden.map_or("no such move", |(_, _, why)| why))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every pair of state and happening stands in exactly one of the two tables.
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

    // Goal: traffic can begin only after both ends have accepted, and every state but Down can be
    // left by losing the peer.
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
