//! Ends with tags of equal strength agree on keys, and others report why they do not.

#![forbid(unsafe_code)]

mod chance;

use std::convert::Infallible;

use chance::Chance;
use recoded_secure::{
    Association, CONTEXT_BYTES, EdgeKeys, Formed, GroupReceiver, GroupSender, HANDSHAKE_BYTES_MAX,
    Identity, KeyDirection, OPENING_BYTES, OneWayKeys, PresharedKey, PrivateKey, Profile, Refused,
    Scope, Space, Strength, Suite, TaggedUnit, Turn, UnitKind, UnitMasks, timing, verify_symbol,
};

const FLOW: u32 = 5;
const MILLI: u64 = 1_000_000;
const STRENGTHS: [Strength; 2] = [Strength::Standard, Strength::Strict];

fn profile(strength: Strength) -> Profile {
    Profile { suite: Suite::Aes128Gcm, strength }
}

/// Both ends of a flow, before any message.
fn ends(strengths: [Strength; 2], chance: &mut Chance) -> [Association<EdgeKeys>; 2] {
    let keys = [0, 1].map(|_| PrivateKey::generate(&chance.entropy()));
    [0, 1].map(|side: usize| {
        let (private, peer) = (keys[side].clone(), keys[1 - side].public());
        let scope = Scope::Edge(FLOW);
        let identity = Identity { scope, private, peer, psk: PresharedKey::none() };
        Association::new(identity, profile(strengths[side]), 0, &chance.entropy())
    })
}

/// Results of both ends from a handshake that the first one begins.
fn handshake(
    [source, sink]: &mut [Association<EdgeKeys>; 2],
    now: u64,
    chance: &mut Chance,
) -> [Result<Turn, Refused>; 2] {
    let (mut there, mut back) = ([0; HANDSHAKE_BYTES_MAX], [0; HANDSHAKE_BYTES_MAX]);
    let sent = source.poll(now, now, &chance.entropy(), &mut there).expect("room").send;
    let answer = sink.receive(now, &chance.entropy(), &there[..sent], &mut back);
    let answered = answer.expect("the right peer");
    let end = source.receive(now, &chance.entropy(), &back[..answered.send], &mut there);
    [end, Ok(answered)]
}

fn unit() -> TaggedUnit {
    let space = Space { flow: FLOW, shard: 0, kind: UnitKind::Generation };
    TaggedUnit { space, number: 7, context: [1; CONTEXT_BYTES] }
}

#[test]
fn ends_of_one_strength_tag_and_verify_by_as_many_columns() {
    for strength in STRENGTHS {
        let mut chance = Chance(3);
        let mut ends = ends([strength; 2], &mut chance);
        for turn in handshake(&mut ends, timing::START_NANOS, &mut chance) {
            assert_eq!(turn.expect("agreed").refusal, None);
        }
        let [source, sink] = &ends;
        let keys = &source.ring().sending().expect("keys").keys;
        let key = keys.tag_key().expect("both ways");
        assert_eq!((key.strength(), key.tag_bytes()), (strength, strength.columns()));
        let mut symbol = vec![9; strength.columns() + 50];
        let mut masks = UnitMasks::new(key, 4);
        masks.tag(key, &unit(), 2, &mut symbol).expect("room");
        let mut verify = |symbol: &[u8]| {
            let serial = verify_symbol(sink.ring(), &mut masks, &unit(), Formed::Source(2), symbol);
            serial.map(|_| ())
        };
        assert_eq!(verify(&symbol), Ok(()));
        for byte in 0..symbol.len() {
            symbol[byte] ^= 1;
            assert_eq!(verify(&symbol), Err(Refused::Tag), "byte {byte}");
            symbol[byte] ^= 1;
        }
    }
}

#[test]
fn ends_of_other_strengths_both_say_so_and_have_no_keys() {
    for [here, there] in [STRENGTHS, [STRENGTHS[1], STRENGTHS[0]]] {
        let mut chance = Chance(4);
        let mut ends = ends([here, there], &mut chance);
        let mut now = timing::START_NANOS;
        for _ in 0..5 {
            let [source, sink] = handshake(&mut ends, now, &mut chance);
            assert_eq!(source, Err(Refused::Strength));
            assert_eq!(sink.expect("an answer").refusal, Some(Refused::Strength));
            now = ends[0].wake().max(now + 100 * MILLI);
        }
        for end in &ends {
            assert_eq!((end.ring().epochs().count(), end.agreed()), (0, 0), "{here:?} {there:?}");
        }
    }
    assert!(Refused::Strength.to_string().contains("edge_profile"), "what to change");
}

//= docs/protocol §3.1(f)
#[test]
fn openings_and_tellings_of_another_strength_are_refused_in_words() {
    for (told, required) in STRENGTHS.iter().flat_map(|one| STRENGTHS.map(|other| (*one, other))) {
        let mut chance = Chance(5);
        let (source, sink) = (chance.entropy(), chance.entropy());
        let (source, sink) = (PrivateKey::generate(&source), PrivateKey::generate(&sink));
        let expected = if told == required { Ok(true) } else { Err(Refused::Strength) };
        let mut kept = 0;
        let mut keep = |_: &_, _| {
            kept += 1;
            true
        };

        let scope = Scope::Edge(FLOW);
        let way = KeyDirection { scope, sender: source.public(), receiver: sink.public() };
        let psk = PresharedKey::generate(&chance.entropy());
        let sender = OneWayKeys::<EdgeKeys>::new();
        let mut sender = sender.sending(&psk, way, profile(told), true, None, &chance.entropy());
        let mut receiver = OneWayKeys::<EdgeKeys>::new().receiving(&psk, way, None);
        receiver = receiver.requiring(required);
        let mut opening = [0; OPENING_BYTES];
        sender.poll(0, 1, &chance.entropy(), &mut opening, &mut |_, _| true).expect("room");
        assert_eq!(receiver.receive(0, &opening, &mut keep), expected, "{told:?} {required:?}");

        let (sinks, entropy) = (vec![sink.public()], chance.entropy());
        let mut sender =
            GroupSender::new(source.clone(), FLOW, sinks, profile(told), None, &entropy);
        let entropy = std::cell::RefCell::new(chance);
        let fresh = || Ok::<_, Infallible>(entropy.borrow_mut().entropy());
        let turn = sender.poll(0, 1, fresh, &mut |_, _| true).expect("random bytes");
        assert!(turn.expect("room").send > 0);
        let mut receiver = GroupReceiver::new(sink, source.public(), FLOW, None);
        receiver = receiver.requiring(required);
        let telling = &sender.tellings()[0];
        assert_eq!(receiver.receive(0, telling, &mut keep), expected, "{told:?} {required:?}");
        assert_eq!(kept, if told == required { 2 } else { 0 }, "a refused profile is not stored");
    }
}
