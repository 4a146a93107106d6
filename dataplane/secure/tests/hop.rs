//! Tags of hops: a sent packet is accepted once, in any order; a changed one is not.

#![forbid(unsafe_code)]

use std::sync::Arc;

use proptest::prelude::*;
use recoded_secure::{HopDigest, HopReceiver, HopSender, Refused, Secrets, TRAILER_BYTES};

const PORT: u16 = 49_152;
const BYTES_MAX: usize = 1500;

fn lane(secret: u8, lane: u16) -> (HopSender, HopReceiver) {
    let secrets = Secrets::extract(b"salt", &[secret; 32]);
    let digest = Arc::new(HopDigest::new(&secrets, BYTES_MAX));
    let receiver = HopReceiver::new(&secrets, 7, lane, &digest, 256);
    (HopSender::new(&secrets, 7, lane, &digest), receiver)
}

fn sealed(sender: &mut HopSender, packet: &[u8]) -> Vec<u8> {
    let mut buffer = [packet, &[0; TRAILER_BYTES]].concat();
    sender.seal(&mut buffer, PORT).expect("a packet of a fit length");
    buffer
}

/// Verifies and accepts.
fn take<'a>(receiver: &mut HopReceiver, packet: &'a [u8]) -> Result<&'a [u8], Refused> {
    let checked = receiver.check(packet, PORT)?;
    receiver.accept(&checked)
}

proptest! {
    //= docs/protocol §2.11(d)
    #[test]
    fn packets_in_any_order_with_copies_are_accepted_once(
        order in proptest::collection::vec(0..60_usize, 1..300)
    ) {
        let (mut sender, mut receiver) = lane(1, 0);
        let packets: Vec<_> =
            (0..60_u8).map(|number| sealed(&mut sender, &[number; 90])).collect();
        let mut accepted = [false; 60];
        for number in order {
            let taken = take(&mut receiver, &packets[number]);
            if accepted[number] {
                prop_assert_eq!(taken, Err(Refused::Replayed));
            } else {
                prop_assert_eq!(taken, Ok(&packets[number][..90]));
            }
            accepted[number] = true;
        }
    }

    #[test]
    fn any_changed_byte_is_refused_and_the_original_still_accepted(
        packet in proptest::collection::vec(any::<u8>(), 0..BYTES_MAX),
        place in any::<prop::sample::Index>(),
        change in 1..=255_u8,
    ) {
        let (mut sender, mut receiver) = lane(1, 0);
        let original = sealed(&mut sender, &packet);
        let mut changed = original.clone();
        changed[place.index(original.len())] ^= change;
        prop_assert!(take(&mut receiver, &changed).is_err());
        prop_assert!(take(&mut receiver, &original[1..]).is_err());
        prop_assert_eq!(take(&mut receiver, &original), Ok(&packet[..]));
    }

    //= docs/protocol §2.11(d)
    #[test]
    fn junk_does_not_move_the_window(
        payload in proptest::collection::vec(any::<u8>(), 1..BYTES_MAX),
        place in any::<prop::sample::Index>(),
        change in 1..=255_u8,
    ) {
        let (mut sender, mut receiver) = lane(1, 0);
        let packet = sealed(&mut sender, &payload);
        let next = sealed(&mut sender, &payload);
        let newest = receiver.newest();
        let mut junk = next.clone();
        junk[place.index(payload.len())] ^= change;
        prop_assert_eq!(take(&mut receiver, &junk), Err(Refused::Tag));
        prop_assert_eq!(receiver.newest(), newest);
        prop_assert_eq!(take(&mut receiver, &packet), Ok(&payload[..]));
        prop_assert_eq!(take(&mut receiver, &packet), Err(Refused::Replayed));
    }
}

#[test]
fn another_port_lane_or_key_is_refused() {
    let (mut sender, receiver) = lane(1, 0);
    let packet = sealed(&mut sender, &[5; 64]);
    assert!(receiver.check(&packet, PORT).is_ok());
    assert_eq!(receiver.check(&packet, PORT + 1).expect_err("port"), Refused::Tag);
    for other in [lane(1, 1).1, lane(2, 0).1] {
        assert_eq!(other.check(&packet, PORT).expect_err("key"), Refused::Tag);
    }
}

#[test]
fn packets_longer_than_the_digest_are_refused() {
    let (sender, _) = lane(1, 0);
    let refused = sender.seal(&mut [0; 3000], PORT);
    assert_eq!(refused, Err(Refused::Long));
    assert_eq!(sender.packets(), 0);
}
