//! Nothing is allocated per packet.

#![forbid(unsafe_code)]

use std::sync::Arc;

use recoded_secure::{
    HopDigest, HopReceiver, HopSender, Masks, Secrets, Space, Strength, Suite, TRAILER_BYTES,
    TagKey, UnitKind,
};

#[test]
fn tags_masks_and_envelopes_allocate_nothing() {
    let secrets = Secrets::extract(b"salt", &[1; 32]);
    let digest = Arc::new(HopDigest::new(&secrets, 1500));
    let sender = HopSender::new(&secrets, 1, 0, &digest);
    let receiver = HopReceiver::new(&secrets, 1, 0, &digest, 1024);
    let seeds = secrets.column_seeds(Strength::Strict);
    let key = TagKey::new(Strength::Strict, &seeds, 1500).expect("a key");
    let mut masks = Masks::new(&key, 64);
    let (sealer, opener) =
        (secrets.sealer(Suite::Aes128Gcm, 1), secrets.opener(Suite::Aes128Gcm, 1024));
    let mut packet = vec![3; 1400 + TRAILER_BYTES];
    let mut envelope = vec![3; 1400];
    let space = Space { flow: 1, shard: 0, kind: UnitKind::Generation };
    let counted = allocation_counter::measure(|| {
        for unit in 0..20 {
            masks.fill(&key, space, unit, 64).expect("room");
            let (tag, payload) = packet[..1400].split_first_chunk_mut::<16>().expect("long");
            key.tag(&masks, 5, &[], payload, tag).expect("a tag");
            key.verify_source(&masks, 5, &[], tag, payload).expect("verifies");
            sender.seal(&mut packet, 9).expect("sealed");
            let checked = receiver.check(&packet, 9).expect("verifies");
            receiver.accept(&checked).expect("fresh");
            sealer.seal(&mut envelope, &[1]).expect("sealed");
            opener.open(&mut envelope, &[1]).expect("opens");
        }
    });
    assert_eq!(counted.count_total, 0);
}
