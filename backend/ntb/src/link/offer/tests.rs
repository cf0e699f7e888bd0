use super::*;
use crate::layout::DEPTH_DEFAULT;
use proptest::prelude::*;

fn offer(generation: u32, channels: u16, window: u32, mtu: Option<u32>) -> Offer {
    let caps = Caps {
        layer: Layer::Ethernet,
        channels: CHANNELS_MAX,
        wanted: Some(channels),
        mtu,
        mtu_found: None,
        mtu_max: MTU_MAX,
        frame_max: FRAME_MAX,
        rx_offloads: Offloads::ALL,
        tx_offloads: Offloads::ALL,
        rx_fixed: Offloads::NONE,
    };
    Offer {
        versions: (VERSION_MIN, VERSION_MAX),
        generation,
        window,
        caps,
        rings: RequestedRings::default(),
        membership: None,
    }
}

proptest! {
    // Rule: any scratchpads are decoded to an offer, or refused with a text. If one end agrees to
    // an offer, the other end computes the same agreement.
    #[test]
    fn any_scratchpads_are_answered(
        pads in prop::array::uniform16(any::<u32>()),
        patch in prop::collection::vec((0usize..PADS, any::<u32>()), 0..3),
        (channels, window) in (1u16..=64, 1u32..8 << 20),
    ) {
        let ours = offer(3, 4, 2 << 20, None);
        let mut near = offer(5, channels, window, None).encode();
        for (at, value) in patch {
            near[at] = value;
        }
        for pads in [pads, near] {
            let refusal = match Offer::decode(&pads, window) {
                Ok(theirs) => match agree(&ours, &theirs, 1) {
                    Ok(a) => {
                        let b = agree(&theirs, &ours, 1).unwrap();
                        prop_assert_eq!(a.generation, b.generation);
                        prop_assert_eq!(&a.plan, &b.plan.mirrored());
                        prop_assert_eq!((a.inbound, a.outbound), (b.outbound, b.inbound));
                        prop_assert!(a.plan.frame_max <= a.inbound.frame_max());
                        prop_assert!(a.plan.frame_max <= a.outbound.frame_max());
                        prop_assert!(a.generation != 0);
                        continue;
                    }
                    Err(refusal) => refusal,
                },
                Err(refusal) => refusal,
            };
            let (code, a, b) = refusal.encode();
            prop_assert!(!OfferError::text(code, a, b, true).is_empty());
            prop_assert!(!OfferError::text(code, a, b, false).is_empty());
        }
    }
}

// Goal: an offer is unchanged by encoding and decoding.
#[test]
fn offers_round_trip() {
    let o = offer(7, 64, 1 << 20, Some(9000));
    assert_eq!(Offer::decode(&o.encode(), 1 << 20), Ok(o.clone()));
    let o = Offer { membership: Some(GroupMembership { number: 7, of: 8, group: 0xff_ffff }), ..o };
    assert_eq!(Offer::decode(&o.encode(), 1 << 20), Ok(o));
}

// Rule: two ends agree only if their member numbers and group sizes are equal; the group's
// identifier does not matter. A refusal names the member of each end.
#[test]
fn windows_that_are_crossed_are_refused() {
    let membership = |number, of, group| Offer {
        membership: Some(GroupMembership { number, of, group }),
        ..offer(1, 4, 1 << 20, None)
    };
    assert!(agree(&membership(1, 2, 3), &membership(1, 2, 4), 0).is_ok());
    let refusal = agree(&membership(0, 2, 3), &membership(1, 2, 4), 0).unwrap_err();
    let (code, a, b) = refusal.encode();
    let what = "list the same windows in the same order at both ends";
    let text =
        format!("member 0 of a group of 2 here, member 1 of a group of 2 at the peer: {what}");
    assert_eq!(OfferError::text(code, a, b, true), text);
    assert!(OfferError::text(code, a, b, false).starts_with("member 1 of a group of 2 here"));
    assert!(agree(&membership(0, 2, 3), &membership(0, 3, 4), 0).is_err());
    let (code, a, b) =
        agree(&membership(0, 2, 3), &offer(2, 4, 1 << 20, None), 0).unwrap_err().encode();
    assert!(OfferError::text(code, a, b, true).contains("not a member of a group at the peer"));
    assert_eq!(decode_membership(0x109 << 4), None);
}

// Rule: the smaller requested number of queue pairs applies, also to the layout of both windows.
#[test]
fn the_smaller_count_wins() {
    let a = agree(&offer(1, 8, 2 << 20, None), &offer(2, 2, 1 << 20, None), 0).unwrap();
    assert_eq!(a.plan.channels, 2);
    assert_eq!((a.inbound.queue_pairs, a.outbound.queue_pairs), (2, 2));
    assert_eq!(a.generation, 3);
}

// Rule: the text of a refusal assigns the values to the right ends, at both ends. A window of the
// recommended size is accepted.
#[test]
fn refusals_are_text_on_both_sides() {
    let (code, a, b) = OfferError::Mtu(9000, 1500).encode();
    assert!(OfferError::text(code, a, b, true).starts_with("mtu 9000 here and 1500 at the peer"));
    assert!(OfferError::text(code, a, b, false).starts_with("mtu 1500 here and 9000 at the peer"));

    let refused = agree(&offer(1, 4, 64 << 10, Some(65521)), &offer(2, 4, 2 << 20, None), 0);
    let Err(refusal @ OfferError::Window(..)) = refused else { panic!("{refused:?}") };
    let (code, a, b) = refusal.encode();
    let text = OfferError::text(code, a, b, true);
    let need = Geometry::window_for(4, frame_of_mtu(65521));
    assert!(text.contains(&format!("window={need}")), "{text}");
    let enough = agree(&offer(1, 4, need as u32, Some(65521)), &offer(2, 4, 2 << 20, None), 0);
    assert!(enough.is_ok());
}

// Goal: an offer with only older or only newer versions is refused for its version, regardless of
// its other fields.
#[test]
fn version_comes_first() {
    for (versions, text) in [(9 << 16 | 6, "6 to 9"), (4 << 16 | 4, "4 to 4")] {
        let mut pads = [0xffff_ffff; PADS];
        pads[pad::MAGIC] = MAGIC;
        pads[pad::VERSION] = versions;
        let Err(OfferError::Version(ours, theirs)) = Offer::decode(&pads, 0) else { panic!() };
        let message = OfferError::text(1, ours, theirs, true);
        assert!(message.contains(&format!("here 5 to 5, at the peer {text}")), "{message}");
    }
}

// Goal: small rings lower the largest frame; the link is not refused.
#[test]
fn small_windows_carry_small_frames() {
    let a = agree(&offer(1, 64, 2 << 20, None), &offer(2, 64, 2 << 20, None), 0).unwrap();
    assert_eq!(a.plan.channels, 64);
    assert!(a.plan.frame_max < FRAME_MAX && a.plan.frame_max >= frame_of_mtu(1500));
}

// Rule: of the ring sizes that both ends request for a ring, the smaller one applies at both ends.
// The largest frame follows the depth.
#[test]
fn rings_are_agreed() {
    let (mut a, mut b) = (offer(1, 2, 8 << 20, None), offer(2, 2, 8 << 20, None));
    assert_eq!(agree(&a, &b, 3).unwrap().inbound.depth, DEPTH_DEFAULT);
    a.rings.rx = Some(256 << 10);
    b.rings.tx = Some(16 << 10);
    let (near, far) = (agree(&a, &b, 3).unwrap(), agree(&b, &a, 3).unwrap());
    assert_eq!((near.inbound.depth, near.outbound.depth), (16 << 10, DEPTH_DEFAULT));
    assert_eq!((far.inbound, far.outbound), (near.outbound, near.inbound));
    assert!(near.plan.frame_max < 16 << 10 && !near.is_like(&agree(&a, &a, 3).unwrap()));
    assert_eq!(near.words_generation(), far.words_generation());
}
