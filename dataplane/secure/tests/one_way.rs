//! Paths without a way back: openings are believed once, in the order of their stamps.

#![forbid(unsafe_code)]

use recoded_secure::{Entropy, OPENING_BYTES, OneWayReceiver, OneWaySender, PresharedKey, Refused};

fn psk(byte: u8) -> PresharedKey {
    PresharedKey::generate(&Entropy::new([byte; 64]))
}

fn sender(stamp: u64) -> OneWaySender {
    OneWaySender::new(&psk(1), stamp, &Entropy::new([stamp as u8; 64]))
}

#[test]
fn both_ends_derive_the_same_secrets_once_per_opening() {
    let mut receiver = OneWayReceiver::new(psk(1), None);
    let first = sender(5);
    let opened = receiver.receive(&first.opening).expect("an opening").expect("a new one");
    assert_eq!((opened.key_id, opened.secrets), (first.key_id, first.secrets));
    assert!(receiver.receive(&first.opening).expect("the same").is_none());
    let second = sender(6);
    assert!(receiver.receive(&second.opening).expect("an opening").is_some());
    assert_eq!(receiver.receive(&first.opening).expect_err("over"), Refused::Stale);
}

#[test]
fn a_restarted_receiver_that_remembers_accepts_nothing_recorded() {
    let first = sender(5);
    let opened = OneWayReceiver::new(psk(1), None).receive(&first.opening);
    let remembered = opened.expect("an opening").expect("a new one").remembered;
    let mut restarted = OneWayReceiver::new(psk(1), Some(remembered));
    assert!(restarted.receive(&first.opening).expect("known").is_none());
    assert_eq!(restarted.receive(&sender(4).opening).expect_err("older"), Refused::Stale);
    assert!(restarted.receive(&sender(6).opening).expect("newer").is_some());
}

#[test]
fn any_changed_byte_and_another_key_are_refused() {
    let opening = sender(5).opening;
    for place in 0..OPENING_BYTES {
        let mut changed = opening;
        changed[place] ^= 0x10;
        let refused = OneWayReceiver::new(psk(1), None).receive(&changed);
        assert!(refused.is_err(), "byte {place}");
    }
    assert!(OneWayReceiver::new(psk(2), None).receive(&opening).is_err());
    assert!(OneWayReceiver::new(psk(1), None).receive(&opening[1..]).is_err());
}
