//! Keys and tags: altered, copied and forged handshakes; nearly valid packets with trailers,
//! symbols with homomorphic tags, and envelopes.

use std::sync::{Arc, LazyLock};

use recoded_gf::Kernel;
use recoded_secure::{
    Admission, Arrived, ENVELOPE_BYTES, Entropy, GRANT_BYTES_MAX, Gate, Grant, GrantReader,
    HANDSHAKE_BYTES_MAX, HEADER_BYTES, HopDigest, HopReceiver, HopSender, Identity, KeyDirection,
    Masks, OneWayReceiver, PresharedKey, PrivateKey, Refused, Scope, Secrets, Session, Space,
    Strength, Suite, TRAILER_BYTES, TagKey, UnitKind, granted_seeds, write_grant,
};

use crate::Input;

/// Longest packet.
const BYTES_MAX: usize = 300;

/// Most symbols of a unit.
const SYMBOLS_MAX: usize = 8;

fn secrets() -> Secrets {
    Secrets::extract(b"fuzz", &[1; 32])
}

struct Side {
    session: Session,
    gate: Gate,
}

fn side(own: u8, peer: u8) -> Side {
    let key = |byte| PrivateKey::generate(&Entropy::new([byte; 64]));
    let psk = PresharedKey::generate(&Entropy::new([9; 64]));
    let identity = Identity { scope: Scope::Hop, private: key(own), peer: key(peer).public(), psk };
    let gate = Gate::new(0, &Entropy::new([own + 10; 64]));
    let session = Session::new(identity, Suite::Aes128Gcm, 0, &Entropy::new([own + 20; 64]));
    Side { session, gate }
}

/// Two sides, and messages between them that arrive unaltered, altered, twice, or never. Both sides
/// derive the same secrets, and only from the two messages of one handshake.
pub fn handshake(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut sides = [side(1, 2), side(2, 1)];
    let mut messages: Vec<Vec<u8>> = vec![input.filled(20)];
    let mut derived = Vec::new();
    let mut now = 0_u64;
    for turn in 0..12_u8 {
        now += u64::from(input.u16()) * 1_000_000;
        let to = input.below(2);
        let entropy = Entropy::new([turn.wrapping_mul(7) ^ 0x80; 64]);
        let mut out = [0; HANDSHAKE_BYTES_MAX];
        let step = if input.below(2) == 0 {
            let packets = u64::from(input.u32());
            sides[to].session.poll(now, now, packets, &entropy, &mut out)
        } else {
            let mut message = messages[input.below(messages.len())].clone();
            change(&mut input, &mut message);
            let Side { session, gate } = &mut sides[to];
            let arrived = Arrived { address: &[to as u8], message: &message };
            let admitted = session.admit(gate, now, &entropy, arrived, &mut out);
            if let Ok(Admission::Reply(length)) = admitted {
                messages.push(out[..length].to_vec());
            }
            let is_genuine = messages.iter().any(|sent| {
                // The second MAC is not read without load.
                sent.len() == message.len() && sent[..sent.len() - 16] == message[..sent.len() - 16]
            });
            let is_cookie = message.get(1) == Some(&3);
            let is_from_peer = session.is_from_peer(&message);
            assert!(!is_from_peer || is_genuine || is_cookie, "a MAC that neither side formed");
            // Regardless of the gate: the session must not rely on it.
            sides[to].session.receive(now, &entropy, &message, &mut out)
        };
        let Ok(step) = step else { continue };
        if step.send > 0 {
            messages.push(out[..step.send].to_vec());
        }
        if let Some(epoch) = step.established {
            if epoch.is_confirmed {
                assert!(derived.contains(epoch.receive.expose()), "the peer has no such secret");
                sides[to].session.confirm(now, epoch.key_id);
            } else {
                derived.push(*epoch.send.expose());
            }
        }
    }
    grants(&mut input);
    let psk = PresharedKey::generate(&Entropy::new([9; 64]));
    let public = |byte| PrivateKey::generate(&Entropy::new([byte; 64])).public();
    let way = KeyDirection { scope: Scope::Hop, sender: public(1), receiver: public(2) };
    let opened = OneWayReceiver::new(psk, way, None).receive(input.bytes(44));
    assert!(opened.is_err(), "an opening that was guessed");
}

/// A grant that arrives unaltered or altered, and invalid bytes.
fn grants(input: &mut Input<'_>) {
    let key = |byte| PrivateKey::generate(&Entropy::new([byte; 64]));
    let mut reader = GrantReader::new(key(1), key(2).public(), 7);
    let place = input.below(4);
    let strength = [Strength::Standard, Strength::Strict][input.below(2)];
    let seeds = granted_seeds(&secrets(), strength, place);
    let epochs = vec![seeds; 1 + input.below(2)];
    let grant = Grant { flow: 7, stamp: 5, strength, epochs: &epochs };
    let mut out = [0; GRANT_BYTES_MAX];
    let entropy = Entropy::new([input.byte(); 64]);
    let bytes = write_grant(&grant, &key(2), &key(1).public(), &entropy, &mut out).expect("room");
    let mut message = out[..bytes].to_vec();
    if change(input, &mut message) {
        assert!(reader.read(&message).is_err(), "a grant that was changed");
    }
    let read = reader.read(&out[..bytes]).expect("nothing has changed");
    assert_eq!(read, (strength, epochs));
    let guessed = input.filled(bytes);
    assert!(reader.read(&guessed).is_err(), "a grant that was guessed");
}

/// Changes up to two bytes, the length, or nothing.
fn change(input: &mut Input<'_>, message: &mut Vec<u8>) -> bool {
    let before = message.clone();
    for _ in 0..input.below(3) {
        let (place, change) = (usize::from(input.u16()), input.byte());
        if let Some(byte) = message.get_mut(place) {
            *byte ^= change;
        }
    }
    if input.below(8) == 7 {
        message.truncate(usize::from(input.byte()));
    }
    *message != before
}

/// Keys that are expensive to compute, computed once.
struct Keys {
    digest: Arc<HopDigest>,
    /// Of eight columns, and of sixteen.
    tags: [TagKey; 2],
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let tags = [Strength::Standard, Strength::Strict].map(|strength| {
        let seeds = secrets().column_seeds(strength);
        TagKey::new(strength, &seeds, BYTES_MAX).expect("all columns")
    });
    Keys { digest: Arc::new(HopDigest::new(&secrets(), BYTES_MAX)), tags }
});

/// Packets of a hop whose body is a combination of tagged symbols: altered ones are refused,
/// unaltered ones are accepted, once.
pub fn tags(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let Keys { digest, tags } = &*KEYS;
    let sender = HopSender::new(&secrets(), 1, 0, digest);
    let receiver = HopReceiver::new(&secrets(), 1, 0, digest, 64);
    let count = 1 + input.below(SYMBOLS_MAX);
    let kind = [UnitKind::Batch, UnitKind::Generation, UnitKind::Stream][input.below(3)];
    let space = Space { flow: input.u32(), shard: input.byte(), kind };
    let unit = u64::from(input.u32()) << 32 | u64::from(input.u32());
    let tags = &tags[input.below(2)];
    let tag_bytes = tags.tag_bytes();
    let mut masks = Masks::new(tags, SYMBOLS_MAX);
    let filled = match kind {
        UnitKind::Stream => masks.fill_stream(tags, space, unit, count),
        _ => masks.fill(tags, space, unit, count),
    };
    filled.expect("room for the largest unit");
    let payload_bytes = 1 + input.below(200);
    let mut sum = vec![0; tag_bytes + payload_bytes];
    let mut vector = Vec::new();
    for index in 0..count {
        let mut symbol = [vec![0; tag_bytes], input.filled(payload_bytes)].concat();
        let (tag, payload) = symbol.split_at_mut(tag_bytes);
        tags.tag(&masks, index, &[], payload, tag).expect("a tag");
        vector.push(input.byte());
        Kernel::best().madd(&mut sum, vector[index], &symbol);
    }
    let mut packet = [&vector[..], &sum, &[0; TRAILER_BYTES]].concat();
    let packet_bytes = count + sum.len();
    sender.seal(&mut packet, 9).expect("room for a trailer");
    // The symbol inside is also verified before the packet counts, as in relays and sinks.
    let take = |packet: &[u8]| -> Result<usize, Refused> {
        let checked = receiver.check(packet, 9)?;
        let (vector, symbol) = packet[..packet.len() - TRAILER_BYTES].split_at(count);
        let (tag, payload) = symbol.split_at(tag_bytes);
        tags.verify(&masks, vector, &[], tag, payload)?;
        receiver.accept(&checked).map(<[u8]>::len)
    };
    let mut changed = packet.clone();
    if change(&mut input, &mut changed) {
        assert!(take(&changed).is_err(), "what was changed was accepted");
    }
    if vector.iter().all(|&c| c == 0) {
        assert_eq!(take(&packet), Err(Refused::ZeroVector));
    } else {
        assert_eq!(take(&packet), Ok(packet_bytes));
        assert_eq!(take(&packet), Err(Refused::Replayed));
    }
    whole(bytes, &mut input);
}

/// Packets covered by a hop tag, and invalid bytes. Each script has another key: with a constant
/// key, a fuzzer that observes comparisons would learn the tag.
fn whole(script: &[u8], input: &mut Input<'_>) {
    let Keys { digest, .. } = &*KEYS;
    let secrets = Secrets::extract(script, &[7; 32]);
    let sender = HopSender::new(&secrets, 1, 0, digest);
    let receiver = HopReceiver::new(&secrets, 1, 0, digest, 64);
    let length = input.byte();
    let mut packet = input.filled(usize::from(length) + TRAILER_BYTES);
    assert!(receiver.check(&packet, 9).is_err(), "a tag that was guessed");
    sender.seal(&mut packet, 9).expect("room for a trailer");
    let mut changed = packet.clone();
    if change(input, &mut changed) {
        assert!(receiver.check(&changed, 9).is_err(), "what was changed was accepted");
    }
    let checked = receiver.check(&packet, 9).expect("as it was sealed");
    receiver.accept(&checked).expect("for the first time");
    let again = receiver.check(&packet, 9).expect("as it was sealed");
    assert_eq!(receiver.accept(&again), Err(Refused::Replayed), "accepted twice");
}

/// Envelopes: altered ones stay closed, unaltered ones open once.
pub fn envelopes(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let suite = Suite::ALL[input.below(2)];
    let (sealer, opener) = (secrets().sealer(suite, 1), secrets().opener(suite, 64));
    let bound = input.bytes(4);
    for _ in 0..4 {
        let length = input.byte();
        let packet = input.filled(usize::from(length));
        let mut envelope = [&[0; HEADER_BYTES], &packet[..], &[0; 16]].concat();
        assert_eq!(envelope.len(), packet.len() + ENVELOPE_BYTES);
        sealer.seal(&mut envelope, bound).expect("room");
        let mut changed = envelope.clone();
        if change(&mut input, &mut changed) {
            assert!(opener.open(&mut changed, bound).is_err(), "what was changed was opened");
        }
        let mut copy = envelope.clone();
        assert_eq!(opener.open(&mut copy, bound).map(|opened| opened.to_vec()), Ok(packet));
        assert_eq!(opener.open(&mut envelope, bound).err(), Some(Refused::Replayed));
    }
}
