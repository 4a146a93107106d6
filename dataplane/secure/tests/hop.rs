//! Tags of hops: what was sent is accepted once, in any order; what was changed is not.

#![forbid(unsafe_code)]

use std::sync::Arc;

use proptest::prelude::*;
use recoded_secure::{
    HopDigest, HopReceiver, HopSender, Kind, Masks, Refused, Secrets, Space, Strength,
    TRAILER_BYTES, TagKey,
};

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
    sender.seal_whole(&mut buffer, PORT).expect("a packet of a fit length");
    buffer
}

/// Verifies and accepts.
fn take<'a>(receiver: &mut HopReceiver, packet: &'a [u8]) -> Result<&'a [u8], Refused> {
    let checked = receiver.check_whole(packet, PORT)?;
    receiver.accept(&checked)
}

proptest! {
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

    #[test]
    fn junk_behind_a_true_head_does_not_move_the_window(
        payload in proptest::collection::vec(any::<u8>(), 1..BYTES_MAX),
        place in any::<prop::sample::Index>(),
        change in 1..=255_u8,
    ) {
        let (sender, mut receiver) = lane(1, 0);
        let seeds = Secrets::extract(b"ends", &[9; 32]).column_seeds(Strength::Standard);
        let key = TagKey::new(Strength::Standard, &seeds, BYTES_MAX).expect("a key");
        let mut masks = Masks::new(&key, 16);
        let space = Space { flow: 1, shard: 0, kind: Kind::Generation };
        masks.fill(&key, space, 5, 16).expect("room");
        let mut packet = vec![0xEE; 20];
        packet.resize(28, 0);
        key.tag(&masks, 3, &[], &payload, &mut packet[20..]).expect("a tag");
        packet.extend_from_slice(&payload);
        packet.extend_from_slice(&[0; TRAILER_BYTES]);
        sender.seal_head(&mut packet, 28, PORT).expect("room");
        let take = |receiver: &mut HopReceiver, packet: &[u8]| {
            let head = receiver.check_head(packet, 28, PORT)?;
            let proof = key.verify_source(&masks, 3, &[], &head.head()[20..], head.body())?;
            receiver.accept(&head.with_body(proof)?).map(<[u8]>::len)
        };
        let mut junk = packet.clone();
        junk[28 + place.index(payload.len())] ^= change;
        prop_assert_eq!(take(&mut receiver, &junk), Err(Refused::Tag));
        prop_assert_eq!(take(&mut receiver, &packet), Ok(28 + payload.len()));
        prop_assert_eq!(take(&mut receiver, &packet), Err(Refused::Replayed));
    }
}

#[test]
fn proof_of_another_body_is_refused() {
    let (sender, receiver) = lane(1, 0);
    let seeds = Secrets::extract(b"ends", &[9; 32]).column_seeds(Strength::Standard);
    let key = TagKey::new(Strength::Standard, &seeds, BYTES_MAX).expect("a key");
    let mut masks = Masks::new(&key, 1);
    let space = Space { flow: 1, shard: 0, kind: Kind::Batch };
    masks.fill(&key, space, 5, 1).expect("room");
    let mut packet = vec![0; 8 + 100 + TRAILER_BYTES];
    let elsewhere = [0; 100];
    let (tag, _) = packet.split_first_chunk_mut::<8>().expect("long");
    key.tag(&masks, 0, &[], &elsewhere, tag).expect("a tag");
    sender.seal_head(&mut packet, 8, PORT).expect("room");
    let head = receiver.check_head(&packet, 8, PORT).expect("the head is right");
    let proof = key.verify_source(&masks, 0, &[], head.head(), &elsewhere).expect("verifies");
    assert_eq!(head.with_body(proof).expect_err("not the body"), Refused::OtherSymbol);
}

#[test]
fn another_port_lane_key_or_way_to_cover_is_refused() {
    let (mut sender, receiver) = lane(1, 0);
    let packet = sealed(&mut sender, &[5; 64]);
    assert!(receiver.check_whole(&packet, PORT).is_ok());
    assert_eq!(receiver.check_whole(&packet, PORT + 1).expect_err("port"), Refused::Tag);
    for head in [0, 20, 64] {
        assert_eq!(receiver.check_head(&packet, head, PORT).expect_err("head"), Refused::Tag);
    }
    for other in [lane(1, 1).1, lane(2, 0).1] {
        assert_eq!(other.check_whole(&packet, PORT).expect_err("key"), Refused::Tag);
    }
}

#[test]
fn packets_longer_than_the_digest_are_refused() {
    let (sender, _) = lane(1, 0);
    let refused = sender.seal_whole(&mut [0; 3000], PORT);
    assert_eq!(refused, Err(Refused::Long));
    assert_eq!(sender.packets(), 0);
}
