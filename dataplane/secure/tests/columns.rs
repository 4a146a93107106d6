//! Columns of tags for relays: a grant is read only by its relay, once; no genuine symbol is
//! refused while keys change; a lying relay does not deceive the next one.

#![forbid(unsafe_code)]

mod chance;

use std::collections::BTreeMap;
use std::sync::Arc;

use chance::Chance;
use proptest::prelude::*;
use recoded_secure::{
    CONTEXT_BYTES, Entropy, Epoch, Formed, GRANT_BYTES_MAX, Grant, GrantReader, GrantSchedule,
    GrantedSeeds, PrivateKey, PublicKey, Refused, RelayColumns, Ring, Secrets, Space, Strength,
    TagKey, TaggedUnit, UnitKind, UnitMasks, granted_seeds, is_grant, verify_at_relay, write_grant,
};

const FLOW: u32 = 0xF10F;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLI;
const UNIT: TaggedUnit = TaggedUnit {
    space: Space { flow: FLOW, shard: 1, kind: UnitKind::Generation },
    number: 9,
    context: [5; CONTEXT_BYTES],
};

fn private(byte: u8) -> PrivateKey {
    PrivateKey::generate(&Entropy::new([byte; 64]))
}

fn secrets(number: u8) -> Secrets {
    Secrets::extract(&[number], &[7; 32])
}

const STANDARD: Strength = Strength::Standard;
const STRICT: Strength = Strength::Strict;

fn grant(to: &PublicKey, stamp: u64, epochs: &[GrantedSeeds]) -> Vec<u8> {
    grant_of(STANDARD, to, stamp, epochs)
}

fn grant_of(strength: Strength, to: &PublicKey, stamp: u64, epochs: &[GrantedSeeds]) -> Vec<u8> {
    let mut out = [0; GRANT_BYTES_MAX];
    let grant = Grant { flow: FLOW, stamp, strength, epochs };
    let entropy = Entropy::new([stamp as u8; 64]);
    let bytes = write_grant(&grant, &private(1), to, &entropy, &mut out).expect("room");
    out[..bytes].to_vec()
}

#[test]
fn grants_are_read_by_their_relay_alone_and_once() {
    let relays = [2, 3].map(private);
    let source = private(1).public();
    let mut readers = relays.clone().map(|relay| GrantReader::new(relay, source, FLOW));
    let epochs = [1, 2, 3].map(|number| granted_seeds(&secrets(number), STANDARD, 0));
    for count in [1, 2, 3] {
        let message = grant(&relays[0].public(), count as u64, &epochs[..count]);
        assert!(is_grant(&message) && readers[0].is_for_this(&message));
        assert!(!readers[1].is_for_this(&message));
        assert_eq!(readers[1].read(&message), Err(Refused::OtherPeer));
        let read = readers[0].read(&message).expect("a grant for it");
        assert_eq!(read, (STANDARD, epochs[..count].to_vec()));
        assert_eq!(readers[0].read(&message), Err(Refused::Stale));
    }
    let older = grant(&relays[0].public(), 1, &epochs);
    assert_eq!(readers[0].read(&older), Err(Refused::Stale));
    let mut of_another_flow = GrantReader::new(relays[0].clone(), source, FLOW + 1);
    assert_eq!(of_another_flow.read(&older), Err(Refused::OtherPeer));
    let mut of_another_source = GrantReader::new(relays[0].clone(), private(4).public(), FLOW);
    assert_eq!(of_another_source.read(&older), Err(Refused::OtherPeer));
    let none = Grant { flow: FLOW, stamp: 1, strength: STANDARD, epochs: &[] };
    let to = relays[0].public();
    let written = write_grant(&none, &private(1), &to, &Entropy::new([1; 64]), &mut [0; 500]);
    assert_eq!(written, Err(Refused::Malformed));
}

#[test]
fn every_bit_and_byte_of_a_grant_counts() {
    [STANDARD, STRICT].into_iter().for_each(every_bit_and_byte_of_a_grant_of_this_strength_counts);
}

fn every_bit_and_byte_of_a_grant_of_this_strength_counts(strength: Strength) {
    let relay = private(2);
    let seeds = [granted_seeds(&secrets(1), strength, 1)];
    let message = grant_of(strength, &relay.public(), 5, &seeds);
    let mut reader = GrantReader::new(relay.clone(), private(1).public(), FLOW);
    for bit in 0..message.len() * 8 {
        let mut changed = message.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(reader.read(&changed).is_err(), "bit {bit}");
    }
    for bytes in 0..message.len() {
        assert!(reader.read(&message[..bytes]).is_err(), "{bytes} bytes");
    }
    assert!(reader.read(&[&message[..], &[0]].concat()).is_err());
    assert_eq!(reader.read(&message).expect("nothing has changed"), (strength, seeds.to_vec()));
}

/// Four of sixteen columns: the first four relays together hold all of them, and no two hold the
/// same.
#[test]
fn relays_of_strict_tags_hold_quarters_and_read_which() {
    let (relay, source) = (private(2), private(1).public());
    let mut reader = GrantReader::new(relay.clone(), source, FLOW);
    let mut held = Vec::new();
    for place in 0..5 {
        let seeds = granted_seeds(&secrets(1), STRICT, place);
        let message =
            grant_of(STRICT, &relay.public(), place as u64 + 1, std::slice::from_ref(&seeds));
        assert_eq!(reader.read(&message), Ok((STRICT, vec![seeds.clone()])), "place {place}");
        held.extend(seeds.map(|seed| seed.column));
    }
    assert_eq!(held[..16], (0..16).collect::<Vec<u8>>());
    assert_eq!(held[16..], [0, 1, 2, 3], "they come again");
}

/// The first columns are the same, for tags of another length.
#[test]
fn relay_goes_by_the_strength_of_the_newest_grant() {
    let relay = private(2);
    let mut columns = RelayColumns::of(relay.clone(), private(1).public(), FLOW);
    for (stamp, strength) in [(1, STANDARD), (2, STRICT), (3, STANDARD)] {
        let seeds = [granted_seeds(&secrets(1), strength, 0)];
        let message = grant_of(strength, &relay.public(), stamp, &seeds);
        assert_eq!(columns.receive(SECOND, &message), Ok(true));
        let keys = columns.keys();
        assert_eq!((keys.len(), keys[0].strength()), (1, strength));
        for formed in [STANDARD, STRICT] {
            let verdict = verified(&keys, &tagged(formed, &secrets(1), [8; 40]));
            assert_eq!(verdict.is_ok(), formed == strength, "{formed:?} by {strength:?}");
        }
    }
}

/// The order of the serial numbers is that of the epochs, whenever a relay learns of them.
#[test]
fn symbols_under_later_keys_verify_with_greater_serial_numbers() {
    let relay = private(2);
    let seeds = [1, 2, 3].map(|epoch| granted_seeds(&secrets(epoch), STANDARD, 0));
    let symbols = [1, 2, 3].map(|epoch| tagged(STANDARD, &secrets(epoch), [8; 40]));
    // At once, or one after another; the first of them is forgotten and not granted again.
    let cases: [&[&[usize]]; 3] =
        [&[&[0, 1, 2]], &[&[0], &[0, 1], &[0, 1, 2]], &[&[0, 1], &[1, 2]]];
    for grants in cases {
        let mut columns = RelayColumns::of(relay.clone(), private(1).public(), FLOW);
        for (stamp, epochs) in grants.iter().enumerate() {
            let granted: Vec<_> = epochs.iter().map(|epoch| seeds[*epoch].clone()).collect();
            let message = grant(&relay.public(), stamp as u64 + 1, &granted);
            assert_eq!(columns.receive(SECOND, &message), Ok(true));
        }
        let serials = symbols.iter().flat_map(|symbol| serial(&columns.keys(), symbol));
        let serials: Vec<u64> = serials.collect();
        assert!(serials.len() >= 2 && serials.is_sorted_by(|a, b| a < b), "{serials:?}");
    }
}

/// Anyone who knew the relay's public key could once form grants that spent the tries of the
/// neighbour that brought them, and the source's were not read then.
#[test]
fn forged_and_recorded_grants_cost_a_hash_and_displace_none() {
    let relay = private(2);
    let mut columns = RelayColumns::of(relay.clone(), private(1).public(), FLOW);
    let seeds = [granted_seeds(&secrets(1), STANDARD, 0)];
    // From another node, which knows the keys that are public.
    for stamp in 2..100 {
        let mut out = [0; GRANT_BYTES_MAX];
        let grant = Grant { flow: FLOW, stamp, strength: STANDARD, epochs: &seeds };
        let entropy = Entropy::new([3; 64]);
        let bytes = write_grant(&grant, &private(9), &relay.public(), &entropy, &mut out);
        let forged = &out[..bytes.expect("room")];
        assert!(!columns.is_for_this(forged), "it is not from the source");
        assert_eq!(columns.receive(SECOND, forged), Err(Refused::OtherPeer));
    }
    assert!(columns.keys().is_empty());
    let genuine = grant(&relay.public(), 1, &seeds);
    assert_eq!(columns.receive(SECOND, &genuine), Ok(true));
    for _ in 0..100 {
        assert_eq!(columns.receive(SECOND, &genuine), Err(Refused::Stale));
    }
    columns.receive(2 * SECOND, &grant(&relay.public(), 2, &seeds)).expect("a grant");
    assert_eq!(columns.keys().len(), 1);
    assert!(!columns.expire(7 * SECOND - 1) && columns.expire(7 * SECOND));
    assert!(columns.keys().is_empty() && !columns.expire(8 * SECOND));
}

/// A symbol with the right tag under all columns.
fn tagged(strength: Strength, secrets: &Secrets, payload: [u8; 40]) -> Vec<u8> {
    let seeds = secrets.column_seeds(strength);
    let key = TagKey::new(strength, &seeds, 200).expect("all columns");
    let mut symbol = [&vec![0; strength.columns()][..], &payload].concat();
    UnitMasks::new(&key, 1).tag(&key, &UNIT, 3, &mut symbol).expect("room");
    symbol
}

fn verified(keys: &[Arc<TagKey>], symbol: &[u8]) -> Result<(), Refused> {
    serial(keys, symbol).map(|_| ())
}

/// The serial number of the key that verifies a symbol.
fn serial(keys: &[Arc<TagKey>], symbol: &[u8]) -> Result<u64, Refused> {
    let Some(key) = keys.first() else { return Err(Refused::UnknownKey) };
    let mut masks = UnitMasks::new(key, 4);
    verify_at_relay(keys, &mut masks, &UNIT, Formed::Source(3), symbol)
}

/// The relay has some of the columns, and forms symbols that verify under these.
#[test]
fn a_relay_that_lies_deceives_who_holds_its_columns_and_neither_the_next_one_nor_the_sink() {
    for strength in [STANDARD, STRICT] {
        lying_relay_deceives_who_holds_its_columns(strength);
    }
}

fn lying_relay_deceives_who_holds_its_columns(strength: Strength) {
    let secrets = secrets(1);
    let held = |place| {
        let key = TagKey::new(strength, &granted_seeds(&secrets, strength, place), 200);
        [Arc::new(key.expect("a part"))]
    };
    let parts = strength.columns() / 4;
    let (own, next, one_after) = (held(0), held(1), held(parts));
    let good = tagged(strength, &secrets, [8; 40]);
    let mut lie = good.clone();
    lie[30] ^= 1;
    assert_eq!(verified(&own, &lie), Err(Refused::Tag));
    for seed in granted_seeds(&secrets, strength, 0) {
        let column = usize::from(seed.column);
        let key = [Arc::new(TagKey::new(strength, &[seed], 200).expect("one"))];
        let right = (0..=255).find(|byte| {
            lie[column] = *byte;
            verified(&key, &lie).is_ok()
        });
        assert!(right.is_some(), "column {column}");
    }
    assert_eq!(verified(&own, &lie), Ok(()), "it knows these");
    assert_eq!(verified(&one_after, &lie), Ok(()), "and so does who holds the same");
    for other in 1..parts {
        assert_eq!(verified(&held(other), &lie), Err(Refused::Tag));
    }
    let all = TagKey::new(strength, &secrets.column_seeds(strength), 200);
    assert_eq!(verified(&[Arc::new(all.expect("all"))], &lie), Err(Refused::Tag));
    for keys in [own, next] {
        assert_eq!(verified(&keys, &good), Ok(()));
    }
}

/// A source with its key thread and a worker, without handshakes: keys appear at random.
struct Source {
    ring: Ring<(Secrets, Vec<u8>)>,
    schedule: GrantSchedule,
    life: u64,
    ids: u8,
    is_pair: bool,
    rekey: u64,
}

impl Source {
    fn start(life: u64, now: u64, chance: &mut Chance) -> Source {
        let rekey = now + chance.below(SECOND);
        let schedule = GrantSchedule::default();
        Source { ring: Ring::default(), schedule, life, ids: 0, is_pair: false, rekey }
    }

    /// New keys after 5 s to 2 minutes, or after 20 ms. Two changes within 4 s lose retransmissions
    /// under the keys before both.
    fn renew(&mut self, now: u64, chance: &mut Chance) {
        self.ring.expire(now, 180 * SECOND);
        if now < self.rekey {
            return;
        }
        self.ids = self.ids.wrapping_add(1);
        let secrets = Secrets::extract(&chance.next().to_be_bytes(), &[7; 32]);
        let symbol = tagged(STANDARD, &secrets, [9; 40]);
        let epoch = Epoch { key_id: self.ids, since: now, keys: (secrets, symbol) };
        self.ring.install(epoch);
        // Two sides that begin at once make a pair; further changes take seconds.
        self.is_pair = !self.is_pair && chance.below(3) == 0;
        let wait = if self.is_pair { 20 * MILLI } else { 5 * SECOND + chance.below(110 * SECOND) };
        self.rekey = now + wait;
    }

    /// Seeds of the granted columns.
    fn seeds(&self) -> Vec<GrantedSeeds> {
        let of = |id| self.ring.epochs().find(|epoch| epoch.key_id == id);
        let granted = self.schedule.granted().filter_map(of);
        granted.map(|epoch| granted_seeds(&epoch.keys.0, STANDARD, 0)).collect()
    }
}

enum Travelling {
    Grant(Vec<u8>),
    /// A symbol from a run of the source.
    Symbol(Vec<u8>, u64),
}

/// Five minutes of a source and a relay: symbols that arrived, that were not verified, and that
/// were refused.
fn run(seed: u64, loss_percent: u64, grants_late: u64, restarts: &[u64]) -> [u64; 3] {
    let mut chance = Chance(seed);
    let relay = private(2);
    let mut columns = RelayColumns::of(relay.clone(), private(1).public(), FLOW);
    let mut source = Source::start(0, 0, &mut chance);
    let mut wire: BTreeMap<(u64, u64), Travelling> = BTreeMap::new();
    let (mut order, mut counts, mut granted_life) = (0, [0; 3], 0);
    for tick in 0..60_000 {
        let now = tick * 5 * MILLI;
        if restarts.contains(&(now / SECOND)) && now.is_multiple_of(SECOND) {
            source = Source::start(source.life + 1, now, &mut chance);
        }
        source.renew(now, &mut chance);
        let turn = source.schedule.poll(now, &source.ring);
        let mut send = |chance: &mut Chance, late: u64, what: Travelling| {
            if chance.below(100) >= loss_percent {
                order += 1;
                wire.insert((now + 40 * MILLI + late, order), what);
            }
        };
        if turn.copies > 0 {
            let message = grant(&relay.public(), now + 1, &source.seeds());
            for _ in 0..turn.copies {
                let late = chance.below(grants_late + 1);
                send(&mut chance, late, Travelling::Grant(message.clone()));
            }
        }
        let epoch = source.schedule.tagging().filter(|_| u64::is_multiple_of(tick, 4));
        let epoch = epoch.and_then(|id| source.ring.epochs().find(|epoch| epoch.key_id == id));
        if let Some(epoch) = epoch {
            // One in eight is retransmitted, up to four seconds later.
            let late = if chance.below(8) == 0 { chance.below(4 * SECOND) } else { 0 };
            let symbol = Travelling::Symbol(epoch.keys.1.clone(), source.life);
            send(&mut chance, late, symbol);
        }
        columns.expire(now);
        while let Some(first) = wire.first_entry().filter(|first| first.key().0 <= now) {
            match first.remove() {
                Travelling::Grant(message) => {
                    if columns.receive(now, &message).is_ok() {
                        granted_life = source.life;
                    }
                }
                // Remaining symbols of an earlier run arrive under keys that are no longer granted.
                Travelling::Symbol(_, life) if life < granted_life => {}
                Travelling::Symbol(symbol, _) => {
                    counts[0] += 1;
                    match verified(&columns.keys(), &symbol) {
                        Ok(()) => {}
                        Err(Refused::UnknownKey) => counts[1] += 1,
                        Err(_) => counts[2] += 1,
                    }
                }
            }
        }
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn no_good_symbol_is_refused_while_keys_change_and_nearly_all_are_verified(
        seed: u64, loss_percent in 0..31_u64, late in 0..20_u64,
    ) {
        let [came, unverified, refused] = run(seed, loss_percent, late * MILLI, &[]);
        prop_assert_eq!(refused, 0, "of {}", came);
        prop_assert!(came > 9000 && unverified < came / 20, "{} of {}", unverified, came);
    }

    #[test]
    fn a_source_that_starts_again_is_verified_by_its_new_keys(
        seed: u64, loss_percent in 0..20_u64, at in 20..280_u64,
    ) {
        let [came, unverified, refused] = run(seed, loss_percent, MILLI, &[at, at + 9]);
        prop_assert_eq!(refused, 0, "of {}", came);
        prop_assert!(came > 9000 && unverified < came / 20, "{} of {}", unverified, came);
    }
}
