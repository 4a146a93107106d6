//! A box joins with a secret of the hub; without it, or with recorded messages, it does not.

#![forbid(unsafe_code)]

use recoded_secure::{
    Entropy, Invitation, JOIN_PAYLOAD_BYTES_MAX, JoinRequest, PresharedKey, PrivateKey, Refused,
};

fn entropy(seed: u8) -> Entropy {
    Entropy::new([seed; 64])
}

fn private(seed: u8) -> PrivateKey {
    PrivateKey::generate(&entropy(seed))
}

fn secret(seed: u8) -> PresharedKey {
    PresharedKey::generate(&entropy(seed))
}

#[test]
fn box_with_the_secret_joins_and_both_know_the_other_one() {
    let (hub, own) = (private(1), private(2));
    let (request, first) =
        JoinRequest::begin(&own, &hub.public(), &secret(3), &entropy(4)).expect("keys");
    let invitation = Invitation::new(hub, secret(3));
    let joining = invitation.receive(&first, &entropy(5)).expect("it has the secret");
    assert_eq!(joining.key(), own.public());
    let (answer, mut at_hub) = joining.answer(b"offer").expect("short");
    let (payload, mut at_box) = request.finish(&answer).expect("of this hub");
    assert_eq!(&payload[..], b"offer");
    let accepted = at_box.seal(b"accepted").expect("short");
    assert_eq!(&at_hub.open(&accepted).expect("the next one")[..], b"accepted");
    assert!(matches!(at_hub.open(&accepted), Err(Refused::Tag)), "a replay");
    let done = at_hub.seal(b"done").expect("short");
    assert_eq!(&at_box.open(&done).expect("the next one")[..], b"done");
    let long = vec![0; JOIN_PAYLOAD_BYTES_MAX + 1];
    assert!(matches!(at_box.seal(&long), Err(Refused::Long)));
}

#[test]
fn others_are_refused_and_every_changed_byte_is_found() {
    let (hub, own) = (private(1), private(2));
    let begin = |hub: &PrivateKey, seed| {
        JoinRequest::begin(&own, &hub.public(), &secret(seed), &entropy(4)).expect("keys").1
    };
    let first = begin(&hub, 3);
    let (another, of_another_hub) = (begin(&hub, 6), begin(&private(7), 3));
    let invitation = Invitation::new(hub, secret(3));
    let refused = |message: &[u8]| invitation.receive(message, &entropy(5)).err();
    assert_eq!(refused(&another), Some(Refused::Handshake), "another secret");
    assert_eq!(refused(&of_another_hub), Some(Refused::Handshake), "another hub");
    assert_eq!(refused(&[0; 10_000]), Some(Refused::Long));
    for cut in 0..first.len() {
        assert_eq!(refused(&first[..cut]), Some(Refused::Handshake), "{cut}");
        let mut changed = first.clone();
        changed[cut] ^= 1;
        assert_eq!(refused(&changed), Some(Refused::Handshake), "{cut}");
    }
}

/// The first message alone shows nothing to a third party that recorded it.
#[test]
fn recorded_first_message_gets_an_answer_that_only_its_box_can_use() {
    let (hub, own) = (private(1), private(2));
    let (request, first) =
        JoinRequest::begin(&own, &hub.public(), &secret(3), &entropy(4)).expect("keys");
    let (public, invitation) = (hub.public(), Invitation::new(hub, secret(3)));
    let answer = |seed| {
        let joining = invitation.receive(&first, &entropy(seed)).expect("its own words");
        joining.answer(b"offer").expect("short")
    };
    let ((one, _), (other, mut at_hub)) = (answer(5), answer(6));
    assert_ne!(one, other);
    let (_, mut at_box) = request.finish(&one).expect("the first answer");
    let accepted = at_box.seal(b"accepted").expect("short");
    assert!(matches!(at_hub.open(&accepted), Err(Refused::Tag)), "of another run");
    // The holder of the token alone has not the key of the box either.
    let (thief, _) =
        JoinRequest::begin(&private(8), &public, &secret(3), &entropy(9)).expect("keys");
    assert!(matches!(thief.finish(&other), Err(Refused::Handshake)));
}
