//! Keys without a return path: openings are accepted once, in the order of their stamps, and
//! packets sent under them arrive, over changes of keys, losses and restarts.

#![forbid(unsafe_code)]

mod chance;

use std::collections::{BTreeMap, VecDeque};

use chance::Chance;
use recoded_secure::{
    EdgeKeys, Entropy, HopKeys, KeyDirection, ONE_WAY_EPOCH_NANOS, OPENING_BYTES, OneWayKeys,
    OneWayReceiver, OneWaySender, PresharedKey, PrivateKey, PublicKey, Refused, Remembered, Scope,
    Suite, TRAILER_BYTES, open_edge, open_hop,
};

const MILLI: u64 = 1_000_000;
const PORT: u16 = 49_155;
const SUITE: Suite = Suite::ChaCha20Poly1305;

fn psk(byte: u8) -> PresharedKey {
    PresharedKey::generate(&Entropy::new([byte; 64]))
}

fn public(byte: u8) -> PublicKey {
    PrivateKey::generate(&Entropy::new([byte; 64])).public()
}

fn way() -> KeyDirection {
    KeyDirection { scope: Scope::Hop, sender: public(1), receiver: public(2) }
}

fn sender(stamp: u64) -> OneWaySender {
    let entropy = Entropy::new([stamp as u8; 64]);
    OneWaySender::new(&psk(1), &way(), SUITE, stamp as u8, stamp, &entropy)
}

fn receiver(newest: Option<Remembered>) -> OneWayReceiver {
    OneWayReceiver::new(psk(1), way(), newest)
}

#[test]
fn both_ends_derive_the_same_secrets_once_per_opening() {
    let mut receiver = receiver(None);
    let first = sender(5);
    let opened = receiver.receive(&first.opening).expect("an opening").expect("a new one");
    assert_eq!(opened.remembered, first.remembered());
    assert_eq!(
        (opened.key_id, opened.profile, opened.secrets),
        (first.key_id, SUITE.into(), first.secrets)
    );
    assert!(receiver.receive(&first.opening).expect("the same").is_none());
    let second = sender(6);
    assert!(receiver.receive(&second.opening).expect("an opening").is_some());
    assert_eq!(receiver.receive(&first.opening).expect_err("over"), Refused::Stale);
}

//= docs/protocol §3.3(e)
#[test]
fn a_restarted_receiver_that_remembers_accepts_nothing_recorded() {
    let first = sender(5);
    let opened = receiver(None).receive(&first.opening);
    let remembered = opened.expect("an opening").expect("a new one").remembered;
    let mut restarted = receiver(Some(remembered));
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
        assert!(receiver(None).receive(&changed).is_err(), "byte {place}");
    }
    assert!(OneWayReceiver::new(psk(2), way(), None).receive(&opening).is_err());
    assert!(receiver(None).receive(&opening[1..]).is_err());
}

/// One pre-shared key for several nodes or flows, or an opening with its direction reversed.
#[test]
fn openings_of_one_way_mean_nothing_on_another() {
    let opening = sender(5).opening;
    let back = KeyDirection { sender: public(2), receiver: public(1), ..way() };
    let ways = [
        back,
        KeyDirection { receiver: public(3), ..way() },
        KeyDirection { sender: public(3), ..way() },
        KeyDirection { scope: Scope::Edge(0), ..way() },
    ];
    for other in ways {
        let refused = OneWayReceiver::new(psk(1), other, None).receive(&opening);
        assert_eq!(refused.expect_err("another way"), Refused::Tag, "{other:?}");
        assert_ne!(other.id(), way().id());
    }
    let id = |way: &KeyDirection| OneWaySender::new(&psk(1), way, SUITE, 7, 7, &entropy(7)).key_id;
    assert_ne!(id(&way()), id(&back), "both may stand in one list");
}

fn entropy(byte: u8) -> Entropy {
    Entropy::new([byte; 64])
}

/// A node, and its stored state.
struct End {
    keys: OneWayKeys<HopKeys>,
    kept: BTreeMap<[u8; 16], Remembered>,
    can_keep: bool,
}

impl End {
    fn new(own: u8, other: u8, chance: &mut Chance) -> End {
        let end = End { keys: OneWayKeys::new(), kept: BTreeMap::new(), can_keep: true };
        end.restarted(own, other, chance)
    }

    fn restarted(mut self, own: u8, other: u8, chance: &mut Chance) -> End {
        let there =
            KeyDirection { scope: Scope::Hop, sender: public(own), receiver: public(other) };
        let back = KeyDirection { sender: there.receiver, receiver: there.sender, ..there };
        let [out, coming] = [there, back].map(|way| self.kept.get(&way.id()).copied());
        let keys = OneWayKeys::new();
        let keys = keys.sending(&psk(1), there, SUITE, false, out, &chance.entropy());
        self.keys = keys.receiving(&psk(1), back, coming);
        self
    }

    fn poll(&mut self, now: u64, stamp: u64, chance: &mut Chance) -> Option<[u8; OPENING_BYTES]> {
        let mut out = [0; OPENING_BYTES];
        let End { keys, kept, .. } = self;
        let mut keep = |way: &KeyDirection, it| kept.insert(way.id(), it).is_none_or(|_| true);
        let turn = keys.poll(now, stamp, &chance.entropy(), &mut out, &mut keep).expect("room");
        (turn.send > 0).then_some(out)
    }

    fn receive(&mut self, now: u64, opening: &[u8]) -> Result<bool, Refused> {
        let End { keys, kept, can_keep } = self;
        let mut keep =
            |way: &KeyDirection, it| *can_keep && kept.insert(way.id(), it).is_none_or(|_| true);
        keys.receive(now, opening, &mut keep)
    }

    fn packet(&self, number: u64) -> Option<Vec<u8>> {
        let epoch = self.keys.ring().sending()?;
        let mut packet = [&number.to_be_bytes()[..], &[0; TRAILER_BYTES]].concat();
        epoch.keys.seal(&mut packet, PORT).ok()?;
        Some(packet)
    }

    fn takes(&self, packet: &[u8]) -> Result<(), Refused> {
        open_hop(&mut self.keys.ring().clone(), packet, PORT).map(|_| ())
    }
}

/// A minute with a third of all openings lost: every packet that is sent is accepted, also late
/// ones.
#[test]
fn change_of_keys_loses_nothing_though_openings_are_lost() {
    let seed = 0x0e11_50de;
    println!("seed {seed:#x}");
    let mut chance = Chance(seed);
    let (mut source, mut sink) = (End::new(1, 2, &mut chance), End::new(2, 1, &mut chance));
    let (mut late, mut taken) = (VecDeque::new(), 0);
    for milli in 0..60_000 {
        let now = milli * MILLI;
        if let Some(opening) = source.poll(now, now + 1, &mut chance)
            && chance.below(3) > 0
        {
            sink.receive(now, &opening).expect("an opening");
        }
        match source.packet(milli) {
            Some(packet) if milli % 100 == 0 => late.push_back((milli + 9000, packet)),
            Some(packet) if milli > 100 => {
                sink.takes(&packet).expect("its keys are known");
                assert_eq!(sink.takes(&packet), Err(Refused::Replayed));
                taken += 1;
            }
            _ => {}
        }
        while late.front().is_some_and(|(at, _)| *at == milli) {
            let (_, packet) = late.pop_front().expect("there is one");
            sink.takes(&packet).expect("late by nine seconds");
        }
    }
    let (begun, told) = (source.keys.epochs().0, sink.keys.epochs().1);
    assert_eq!((begun, begun - told), (6, 0), "one every ten seconds");
    assert!(taken > 59_000, "{taken}");
    assert!(late.len() < 100, "those of the last nine seconds");
    assert!(source.takes(&source.packet(0).expect("keys")).is_err(), "its own come back");
}

/// A restarted receiver refuses everything recorded, and accepts packets again with the next epoch.
/// A restarted sender whose clock went back is accepted at once.
#[test]
fn restarts_of_either_side_take_nothing_that_was_recorded() {
    let mut chance = Chance(77);
    let (mut source, mut sink) = (End::new(1, 2, &mut chance), End::new(2, 1, &mut chance));
    let (mut openings, mut packets) = (Vec::new(), Vec::new());
    let mut play = |source: &mut End, sink: &mut End, from: u64, to: u64, clock: u64| {
        let mut taken = Vec::new();
        for milli in from..to {
            let now = milli * MILLI;
            if let Some(opening) = source.poll(now, clock, &mut chance) {
                let _ = sink.receive(now, &opening);
                openings.push(opening);
            }
            if let Some(packet) = source.packet(milli) {
                taken.push((milli, sink.takes(&packet)));
                packets.push(packet);
            }
        }
        (taken, openings.clone(), packets.clone())
    };
    play(&mut source, &mut sink, 0, 15_000, 1 << 60);
    let mut chance = Chance(78);
    let mut sink = sink.restarted(2, 1, &mut chance);
    let (taken, ..) = play(&mut source, &mut sink, 15_000, 15_400, 1 << 60);
    assert!(taken.iter().all(|(_, it)| *it == Err(Refused::UnknownKey)), "its epoch is over");
    let (taken, openings, packets) = play(&mut source, &mut sink, 15_400, 40_000, 1 << 60);
    let first = taken.iter().find(|(_, it)| it.is_ok()).expect("its packets are accepted again").0;
    assert!(first * MILLI <= 15_000 * MILLI + ONE_WAY_EPOCH_NANOS, "{first} ms");
    // The clock of the sender went back to 1970: its stored state counts.
    let mut source = source.restarted(1, 2, &mut chance);
    let mut again = sink.restarted(2, 1, &mut chance);
    for opening in &openings {
        assert!(!again.receive(41_000 * MILLI, opening).is_ok_and(|is_new| is_new));
    }
    assert!(packets.iter().all(|packet| again.takes(packet).is_err()));
    let (taken, ..) = play(&mut source, &mut again, 41_000, 41_200, 0);
    assert!(taken.iter().all(|(_, it)| it.is_ok()), "{taken:?}");
    assert!(packets.iter().all(|packet| again.takes(packet).is_err()));
}

//= docs/protocol §3.3(d)
#[test]
fn what_cannot_be_kept_is_not_believed() {
    let mut chance = Chance(79);
    let (mut source, mut sink) = (End::new(1, 2, &mut chance), End::new(2, 1, &mut chance));
    sink.can_keep = false;
    let opening = source.poll(0, 1, &mut chance).expect("an opening");
    assert_eq!(sink.receive(0, &opening), Err(Refused::NotKept));
    sink.can_keep = true;
    assert_eq!(sink.receive(0, &opening), Ok(true), "with the next copy");
}

/// An end-to-end flow in one direction: work begun under keys may be finished under them.
#[test]
fn edges_seal_one_way_and_keep_keys_of_units() {
    let way = KeyDirection { scope: Scope::Edge(9), ..way() };
    let source = OneWayKeys::<EdgeKeys>::new();
    let mut source = source.sending(&psk(1), way, SUITE, true, None, &entropy(3));
    let mut sink = OneWayKeys::<EdgeKeys>::new().receiving(&psk(1), way, None);
    let (mut keep, mut out) = (|_: &KeyDirection, _| true, [0; OPENING_BYTES]);
    let mut numbers = Vec::new();
    for milli in 0..25_000 {
        let entropy = Entropy::new([milli as u8; 64]);
        let turn = source.poll(milli * MILLI, milli + 1, &entropy, &mut out, &mut keep);
        if turn.expect("room").send > 0 {
            sink.receive(milli * MILLI, &out, &mut keep).expect("an opening");
        }
        numbers.extend(source.ring().sending().map(|epoch| epoch.key_id));
        let Some(epoch) = source.ring().sending() else { continue };
        let mut envelope = [5; 60];
        epoch.keys.seal(&mut envelope, b"flow").expect("keys to send with");
        open_edge(&mut sink.ring().clone(), &mut envelope, b"flow").expect("its keys are known");
        assert!(sink.ring().sending().is_none(), "a sink seals nothing");
    }
    numbers.dedup();
    assert_eq!(numbers.len(), 3);
    assert!(source.ring().holds(numbers[0]), "units that were begun under it");
    let keys = &source.ring().sending().expect("keys").keys;
    assert!(keys.peer_tag_key().is_none() && keys.granted_seeds(0).is_some());
}
