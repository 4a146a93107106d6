//! End-to-end envelopes: opened once, and only as they were sealed.

#![forbid(unsafe_code)]

use proptest::prelude::*;
use recoded_secure::{ENVELOPE_BYTES, HEADER_BYTES, Opener, Refused, Sealer, Secrets, Suite};

const FLOW: [u8; 4] = [0, 0, 0, 9];

fn pair(suite: Suite) -> (Sealer, Opener) {
    let secrets = Secrets::extract(b"salt", &[4; 32]);
    (secrets.sealer(suite, 3), secrets.opener(suite, 1024))
}

fn sealed(sealer: &mut Sealer, packet: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; packet.len() + ENVELOPE_BYTES];
    buffer[HEADER_BYTES..][..packet.len()].copy_from_slice(packet);
    sealer.seal(&mut buffer, &FLOW).expect("room");
    buffer
}

proptest! {
    #[test]
    fn packets_come_out_once_and_changed_ones_do_not(
        suite in prop_oneof![Just(Suite::Aes128Gcm), Just(Suite::ChaCha20Poly1305)],
        packet in proptest::collection::vec(any::<u8>(), 0..1500),
        place in any::<prop::sample::Index>(),
        change in 1..=255_u8,
    ) {
        let (mut sealer, opener) = pair(suite);
        let original = sealed(&mut sealer, &packet);
        let mut changed = original.clone();
        changed[place.index(original.len())] ^= change;
        prop_assert!(opener.open(&mut changed, &FLOW).is_err());
        let open = |bound: &[u8]| {
            let mut envelope = original.clone();
            opener.open(&mut envelope, bound).map(|packet| packet.to_vec())
        };
        prop_assert_eq!(open(&[]), Err(Refused::Tag));
        prop_assert_eq!(open(&FLOW), Ok(packet));
        prop_assert_eq!(open(&FLOW), Err(Refused::Replayed));
    }

    #[test]
    fn envelopes_in_any_order_are_opened_once(
        order in proptest::collection::vec(0..40_usize, 1..200)
    ) {
        let (mut sealer, opener) = pair(Suite::Aes128Gcm);
        let envelopes: Vec<_> = (0..40_u8).map(|n| sealed(&mut sealer, &[n; 30])).collect();
        let mut opened = [false; 40];
        for number in order {
            let result = opener.open(&mut envelopes[number].clone(), &FLOW).is_ok();
            prop_assert_eq!(result, !opened[number]);
            opened[number] = true;
        }
    }

    #[test]
    fn any_bytes_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (_, opener) = pair(Suite::ChaCha20Poly1305);
        prop_assert!(opener.open(&mut bytes, &FLOW).is_err());
    }
}

#[test]
fn associated_data_that_does_not_fit_is_refused() {
    let (sealer, _) = pair(Suite::Aes128Gcm);
    assert_eq!(sealer.seal(&mut [0; 100], &[0; 24]), Err(Refused::Long));
    assert_eq!(sealer.seal(&mut [0; 24], &FLOW), Err(Refused::Malformed));
    assert_eq!(sealer.packets(), 0);
}
