//! `secure.json`: keys, tags, envelopes and handshakes. `secure.py` recomputes all of it, from the
//! documents of `dataplane/secure` and the standards they name.

use std::sync::Arc;

use recoded_gf::Kernel;
use recoded_secure::{
    CONTEXT_BYTES, ENVELOPE_BYTES, Entropy, GRANT_BYTES_MAX, Grant, GrantReader, GroupReceiver,
    HEADER_BYTES, HopDigest, HopSender, Identity, KeyDirection, Masks, OneWayReceiver,
    OneWaySender, PresharedKey, PrivateKey, Profile, Scope, Secrets, Session, Space, Strength,
    Suite, TRAILER_BYTES, TagKey, TaggedUnit, UnitKind, UnitMasks, granted_seeds, group_way,
    write_grant, write_group,
};
use serde::{Deserialize, Serialize};

use crate::Hex;
use crate::symbols;

/// The document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// The salt of the secret. All keys but those of handshakes and openings derive from that.
    pub salt: Hex,
    /// That secret.
    pub secret: Hex,
    /// Output of HKDF-Extract for both.
    pub prk: Hex,
    /// Keys by label.
    pub keys: Vec<Key>,
    /// Tags of hops.
    pub hops: Vec<Hop>,
    /// Symbols with homomorphic tags.
    pub units: Vec<Unit>,
    /// Symbols as they leave a source, bound to the fields of their packets.
    pub symbols: Vec<Bound>,
    /// Packets from end to end.
    pub envelopes: Vec<Envelope>,
    /// Seals of reports from end to end.
    pub reports: Vec<Report>,
    /// Handshakes: of a hop, and of the ends of a flow with strict tags.
    pub handshakes: Vec<Handshake>,
    /// A path without a return path.
    pub one_way: OneWay,
    /// Columns for a relay: of 8, and of 16.
    pub grants: Vec<Granted>,
    /// Keys of a group.
    pub group: Group,
}

/// A derived key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Key {
    /// Its label, without the common prefix.
    pub label: String,
    /// Context after the label.
    pub context: Hex,
    /// The key.
    pub key: Hex,
}

/// A packet with its trailer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hop {
    /// The lane.
    pub lane: u16,
    /// The id of the key.
    pub key_id: u8,
    /// Number of packets of the lane before it.
    pub counter: u64,
    /// UDP source port.
    pub source_port: u16,
    /// The packet.
    pub packet: Hex,
    /// The packet and its trailer.
    pub sealed: Hex,
}

/// A generation, a batch, or a window of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unit {
    /// Bytes of a tag.
    pub columns: usize,
    /// The flow.
    pub flow: u32,
    /// The shard.
    pub shard: u8,
    /// 1 batch, 2 generation, 5 stream.
    pub kind: u8,
    /// Number of the unit; for a stream, that of its first symbol here.
    pub unit: u64,
    /// Prefix that is combined with each payload but not sent.
    pub prefix: Hex,
    /// Payloads of the symbols.
    pub payloads: Vec<Hex>,
    /// Their tags.
    pub tags: Vec<Hex>,
    /// Coefficients of a combination.
    pub vector: Hex,
    /// The sum of coefficient times tag, prefix and payload.
    pub combination: Hex,
}

/// A symbol and the data that its tag is bound to: the context of a generation or batch, or fields
/// of a stream's symbol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bound {
    /// Bytes of a tag.
    pub columns: usize,
    /// The flow.
    pub flow: u32,
    /// The shard.
    pub shard: u8,
    /// 1 batch, 2 generation, 5 stream.
    pub kind: u8,
    /// Number of the generation or batch; of a stream, of the symbol.
    pub number: u64,
    /// Which symbol of the generation or batch; 0 of a stream.
    pub index: usize,
    /// For a stream: the distance in numbers to the packet before it.
    pub after: u16,
    /// Of a generation or batch: the context. Of a stream it is number, predecessor and length,
    /// which the reader forms.
    pub context: Hex,
    /// Tag and payload; of a stream payload and tag.
    pub tagged: Hex,
}

/// A source packet and its envelope.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// 1 AES-128-GCM, 2 ChaCha20-Poly1305.
    pub suite: u8,
    /// The id of the key.
    pub key_id: u8,
    /// Number of packets before it.
    pub counter: u64,
    /// Authenticated data that is not sent.
    pub bound: Hex,
    /// The packet.
    pub packet: Hex,
    /// The envelope.
    pub sealed: Hex,
}

/// A report and its seal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// 1 AES-128-GCM, 2 ChaCha20-Poly1305.
    pub suite: u8,
    /// The id of the key.
    pub key_id: u8,
    /// Number of packets and reports before it.
    pub counter: u64,
    /// The sealed bytes: epoch, shard, flow, node, number, items.
    pub report: Hex,
    /// The seal.
    pub seal: Hex,
}

/// Both messages of a handshake, and the secrets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Handshake {
    /// For the ends of a flow: its number. Hops have none.
    pub flow: Option<u32>,
    /// The initiator's private key.
    pub initiator: Hex,
    /// The responder's private key.
    pub responder: Hex,
    /// The pre-shared key.
    pub psk: Hex,
    /// Private ephemeral keys of initiator and responder, before clamping.
    pub ephemerals: [Hex; 2],
    /// The stamp of the initiation.
    pub stamp: u64,
    /// The profile of both: the suite, and 0x80 where tags have 16 columns.
    pub profile: u8,
    /// Key ids of initiator and responder.
    pub key_ids: [u8; 2],
    /// Secrets of the marks of initiator and responder.
    pub mark_secrets: [Hex; 2],
    /// Random bytes of both marks.
    pub mark_randoms: [Hex; 2],
    /// The initiation.
    pub initiation: Hex,
    /// The response.
    pub response: Hex,
    /// The secret of the direction to the responder.
    pub there: Hex,
    /// The secret of the direction to the initiator.
    pub back: Hex,
}

/// An opening and its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OneWay {
    /// The pre-shared key.
    pub psk: Hex,
    /// Private key of the sender, clamped.
    pub sender: Hex,
    /// Private key of the receiver, clamped.
    pub receiver: Hex,
    /// Number of the flow that it is for.
    pub flow: u32,
    /// Number of the epoch, modulo 128.
    pub number: u8,
    /// The opening.
    pub opening: Hex,
    /// The secret.
    pub secret: Hex,
}

/// Keys of a flow to several sinks, sent to one of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Private key of the source, clamped.
    pub source: Hex,
    /// Private key of the sink, clamped.
    pub sink: Hex,
    /// Ephemeral private key.
    pub ephemeral: Hex,
    /// Number of the flow.
    pub flow: u32,
    /// Secret of the group.
    pub secret: Hex,
    /// The opening within, AES-128-GCM and epoch 17.
    pub opening: Hex,
    /// The telling.
    pub message: Hex,
    /// The secret that keys are derived from.
    pub key: Hex,
}

/// Columns that a source grants a relay, of two epochs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Granted {
    /// The source's private key.
    pub source: Hex,
    /// The relay's private key.
    pub relay: Hex,
    /// Private ephemeral key, before clamping.
    pub ephemeral: Hex,
    /// The flow.
    pub flow: u32,
    /// Bytes of a tag.
    pub columns: usize,
    /// The stamp.
    pub stamp: u64,
    /// Place of the relay in the list of the source.
    pub place: usize,
    /// Salts of the secrets of the epochs; the secret itself is that above.
    pub salts: Vec<Hex>,
    /// The grant.
    pub message: Hex,
}

const SALT: [u8; 5] = *b"salt!";

/// Makes the document.
#[must_use]
pub fn document() -> Document {
    let secret = [0x42; 32];
    let secrets = Secrets::extract(&SALT, &secret);
    Document {
        salt: Hex::from(SALT),
        secret: Hex::from(secret),
        prk: Hex::from(*secrets.expose()),
        keys: keys(&secrets),
        hops: hops(&secrets),
        units: units(&secrets),
        symbols: [Strength::Standard, Strength::Strict]
            .into_iter()
            .flat_map(|strength| bound(&secrets, strength))
            .collect(),
        envelopes: envelopes(&secrets),
        reports: reports(&secrets),
        handshakes: vec![
            handshake(Scope::Hop, Strength::Standard),
            handshake(Scope::Edge(0xF10F_0004), Strength::Strict),
        ],
        one_way: one_way(),
        grants: vec![granted(Strength::Standard), granted(Strength::Strict)],
        group: group(),
    }
}

fn keys(secrets: &Secrets) -> Vec<Key> {
    let key = |secrets: &Secrets, label: &str, context: &[u8], bytes| {
        let key = match bytes {
            16 => Hex::from(*secrets.key::<16>(label, context).expose()),
            _ => Hex::from(*secrets.key::<32>(label, context).expose()),
        };
        Key { label: label.into(), context: Hex(context.into()), key }
    };
    vec![
        key(secrets, "hop tag", &[0, 1], 16),
        key(secrets, "hop digest", &[], 16),
        key(secrets, "envelope", &[1], 32),
        key(secrets, "column", &[3], 32),
    ]
}

fn hops(secrets: &Secrets) -> Vec<Hop> {
    let digest = Arc::new(HopDigest::new(secrets, 300));
    let sender = HopSender::new(secrets, 0x81, 1, &digest);
    let source_port = 0xC012;
    // Shorter than a register, of one, not a multiple of one; of odd and even numbers of blocks.
    let lengths = [0, 13, 64, 81, 120, 299];
    let hop = |(counter, bytes): (usize, usize)| {
        let packet = symbols(counter as u32 + 1, 1, bytes).remove(0);
        let mut sealed = [&packet.0[..], &[0; TRAILER_BYTES]].concat();
        sender.seal(&mut sealed, source_port).expect("room for a trailer");
        let counter = counter as u64;
        Hop { lane: 1, key_id: 0x81, counter, source_port, packet, sealed: Hex(sealed) }
    };
    lengths.into_iter().enumerate().map(hop).collect()
}

fn units(secrets: &Secrets) -> Vec<Unit> {
    let generation = Space { flow: 0xF10F_0001, shard: 3, kind: UnitKind::Generation };
    let batch = Space { kind: UnitKind::Batch, ..generation };
    let stream = Space { kind: UnitKind::Stream, ..generation };
    vec![
        unit(secrets, Strength::Standard, generation, 0x1_2345_6789, &[40; 18], &[]),
        unit(secrets, Strength::Strict, batch, 77, &[33; 4], &[]),
        unit(secrets, Strength::Standard, stream, 0x1_0000_000A, &[40, 7, 29, 64], &[9; 8]),
    ]
}

fn unit(
    secrets: &Secrets,
    strength: Strength,
    space: Space,
    unit: u64,
    lengths: &[usize],
    prefix: &[u8],
) -> Unit {
    let key = TagKey::new(strength, &secrets.column_seeds(strength), 100).expect("all columns");
    let mut masks = Masks::new(&key, lengths.len());
    let filled = match space.kind {
        UnitKind::Stream => masks.fill_stream(&key, space, unit, lengths.len()),
        _ => masks.fill(&key, space, unit, lengths.len()),
    };
    filled.expect("room");
    let payloads: Vec<Hex> =
        lengths.iter().map(|&bytes| symbols(bytes as u32, 1, bytes).remove(0)).collect();
    let vector = symbols(99, 1, lengths.len()).remove(0);
    let mut tags = Vec::new();
    let mut combination = Vec::new();
    for (index, payload) in payloads.iter().enumerate() {
        let mut tag = vec![0; key.tag_bytes()];
        key.tag(&masks, index, prefix, &payload.0, &mut tag).expect("a tag");
        let symbol = [&tag[..], prefix, &payload.0].concat();
        combination.resize(combination.len().max(symbol.len()), 0);
        Kernel::best().madd(&mut combination[..symbol.len()], vector.0[index], &symbol);
        tags.push(Hex(tag));
    }
    let (tag, sum) = combination.split_at(key.tag_bytes());
    let verified = key.verify(&masks, &vector.0, &[], tag, sum);
    assert!(verified.is_ok(), "a combination verifies");
    Unit {
        columns: strength.columns(),
        flow: space.flow,
        shard: space.shard,
        kind: space.kind as u8,
        unit,
        prefix: Hex(prefix.into()),
        payloads,
        tags,
        vector,
        combination: Hex(combination),
    }
}

fn bound(secrets: &Secrets, strength: Strength) -> Vec<Bound> {
    let columns = strength.columns();
    let key = TagKey::new(strength, &secrets.column_seeds(strength), 200).expect("all columns");
    let mut masks = UnitMasks::new(&key, 4);
    let mut one = |kind: UnitKind, number: u64, index: usize, after: u16, context: &[u8]| {
        let payload = symbols(number as u32, 1, 61).remove(0);
        let is_stream = kind == UnitKind::Stream;
        let mut tagged = match is_stream {
            true => [&payload.0[..], &vec![0; columns]].concat(),
            false => [&vec![0; columns], &payload.0[..]].concat(),
        };
        let mut padded = [0; CONTEXT_BYTES];
        padded[..context.len()].copy_from_slice(context);
        let (unit, place) = match kind {
            UnitKind::Stream => (number / 16, (number % 16) as usize),
            _ => (number, index),
        };
        let space = Space { flow: 0xF10F_0002, shard: 1, kind };
        let unit = TaggedUnit { space, number: unit, context: padded };
        masks.tag(&key, &unit, place, &mut tagged).expect("room");
        let Space { flow, shard, kind } = space;
        let context = if is_stream { Hex(Vec::new()) } else { Hex::from(padded) };
        let kind = kind as u8;
        Bound { columns, flow, shard, kind, number, index, after, context, tagged: Hex(tagged) }
    };
    let bytes = 61 + columns as u8;
    // Epoch 3, GF(16), 2^4 symbols, no batch, length.
    let generation = [3, 2, 4, 0, 0, bytes];
    // Epoch 9, GF(256), batches of 16; block 77, batch 5, 256 source symbols and their shape.
    let batch = [9, 3, 4, 16, 0, bytes, 0, 77, 0, 5, 1, 0, 8, 1, 8, 0];
    let stream = |number: u32, after: u16| {
        let [after_high, after_low] = after.to_be_bytes();
        let [a, b, c, d] = number.to_be_bytes();
        [a, b, c, d, after_high, after_low, 0, bytes]
    };
    vec![
        one(UnitKind::Generation, 3 << 32 | 0x1234, 5, 0, &generation),
        one(UnitKind::Batch, 9 << 32 | 0x99, 17, 0, &batch),
        one(UnitKind::Stream, 0xFFFF_FFEF, 0, 0, &stream(0xFFFF_FFEF, 0)),
        one(UnitKind::Stream, 0x0102_0304, 0, 515, &stream(0x0102_0304, 515)),
    ]
}

fn envelopes(secrets: &Secrets) -> Vec<Envelope> {
    let mut all = Vec::new();
    for suite in Suite::ALL {
        let sealer = secrets.sealer(suite, 5);
        for (counter, bytes) in [0, 1, 75].into_iter().enumerate() {
            let packet = symbols(bytes as u32, 1, bytes).remove(0);
            let bound = [0xF1, 0x0F, 0, 1];
            let mut sealed = vec![0; bytes + ENVELOPE_BYTES];
            sealed[HEADER_BYTES..][..bytes].copy_from_slice(&packet.0);
            sealer.seal(&mut sealed, &bound).expect("room");
            all.push(Envelope {
                suite: suite.code(),
                key_id: 5,
                counter: counter as u64,
                bound: Hex::from(bound),
                packet,
                sealed: Hex(sealed),
            });
        }
    }
    all
}

fn reports(secrets: &Secrets) -> Vec<Report> {
    let mut all = Vec::new();
    for suite in Suite::ALL {
        let sealer = secrets.sealer(suite, 5);
        for (counter, bytes) in [24, 97].into_iter().enumerate() {
            let report = symbols(bytes as u32, 1, bytes).remove(0);
            let seal = Hex::from(sealer.seal_report(&report.0).expect("a report"));
            let (suite, counter) = (suite.code(), counter as u64);
            all.push(Report { suite, key_id: 5, counter, report, seal });
        }
    }
    all
}

fn half(byte: u8) -> [u8; 32] {
    std::array::from_fn(|place| byte.wrapping_add(place as u8))
}

/// The first half is the key; the second one chooses ids and waits.
fn entropy(byte: u8) -> Entropy {
    let mut bytes = [byte; 64];
    bytes[..32].copy_from_slice(&half(byte));
    Entropy::new(bytes)
}

/// A private key in stored form: clamped.
fn clamped(byte: u8) -> Hex {
    let mut key = half(byte);
    key[0] &= 0xF8;
    key[31] = key[31] & 0x7F | 0x40;
    Hex::from(key)
}

fn handshake(scope: Scope, strength: Strength) -> Handshake {
    let privates = [1, 2].map(|byte| PrivateKey::generate(&entropy(byte)));
    let publics = privates.each_ref().map(PrivateKey::public);
    let [initiator, responder] = [(0, 1), (1, 0)].map(|(own, peer)| {
        let (private, peer): (PrivateKey, _) = (privates[own].clone(), publics[peer]);
        let identity = Identity { scope, private, peer, psk: PresharedKey::generate(&entropy(3)) };
        let profile = Profile { suite: Suite::Aes128Gcm, strength };
        Session::new(identity, profile, 0, &entropy(10 + own as u8))
    });
    let (mut initiator, mut responder) = (initiator, responder);
    let (later, stamp) = (10_000_000_000, 0x0102_0304_0506_0708);
    let (mut initiation, mut response) = ([0; 200], [0; 200]);
    let sent = initiator.poll(later, stamp, 0, &entropy(4), &mut initiation).expect("it is time");
    let initiation = &initiation[..sent.send];
    let answered = responder.receive(later, &entropy(5), initiation, &mut response);
    let answered = answered.expect("an initiation");
    let response = &response[..answered.send];
    let finished = initiator.receive(later, &entropy(6), response, &mut [0; 200]);
    let [ours, theirs] = [finished.expect("a response"), answered].map(|step| step.established);
    let (ours, theirs) = (ours.expect("an epoch"), theirs.expect("an epoch"));
    assert_eq!((&ours.send, &ours.receive), (&theirs.receive, &theirs.send));
    let flow = match scope {
        Scope::Hop => None,
        Scope::Edge(flow) => Some(flow),
    };
    Handshake {
        flow,
        initiator: clamped(1),
        responder: clamped(2),
        psk: Hex::from(half(3)),
        ephemerals: [half(4), half(5)].map(Hex::from),
        stamp,
        profile: ours.profile.code(),
        key_ids: [ours.key_id, theirs.key_id],
        mark_secrets: [half(10), half(11)].map(Hex::from),
        mark_randoms: [[4; 4], [5; 4]].map(Hex::from),
        initiation: Hex(initiation.into()),
        response: Hex(response.into()),
        there: Hex::from(*ours.send.expose()),
        back: Hex::from(*ours.receive.expose()),
    }
}

fn group() -> Group {
    let (source, sink) = (PrivateKey::generate(&entropy(1)), PrivateKey::generate(&entropy(2)));
    let (flow, secret) = (0xF10F_0003, PresharedKey::generate(&entropy(3)));
    let way = group_way(source.public(), flow);
    let (suite, number, stamp) = (Suite::Aes128Gcm, 0x11, 1_700_000_000);
    let sender = OneWaySender::new(&secret, &way, suite, number, stamp, &entropy(8));
    let (receiver, opening) = (sink.public(), &sender.opening);
    let message = write_group(&source, &receiver, flow, &secret, opening, &entropy(9));
    let message = message.expect("keys");
    let mut receiver = GroupReceiver::new(sink, source.public(), flow, None);
    assert_eq!(receiver.receive(0, &message, &mut |_, _| true), Ok(true));
    Group {
        source: clamped(1),
        sink: clamped(2),
        ephemeral: Hex::from(half(9)),
        flow,
        secret: Hex::from(half(3)),
        opening: Hex::from(sender.opening),
        message: Hex(message.into()),
        key: Hex::from(*sender.secrets.expose()),
    }
}

fn granted(strength: Strength) -> Granted {
    let (source, relay) = (PrivateKey::generate(&entropy(1)), PrivateKey::generate(&entropy(2)));
    let (place, salts) = (3, [b"one", b"two"]);
    let secrets = salts.map(|salt| Secrets::extract(salt, &[0x42; 32]));
    let epochs = secrets.map(|secrets| granted_seeds(&secrets, strength, place));
    let (flow, stamp) = (0xF10F_0003, 0x0102_0304_0506_0708);
    let grant = Grant { flow, stamp, strength, epochs: &epochs };
    let mut message = [0; GRANT_BYTES_MAX];
    let written = write_grant(&grant, &source, &relay.public(), &entropy(9), &mut message);
    let bytes = written.expect("room");
    let read = GrantReader::new(relay, source.public(), grant.flow).read(&message[..bytes]);
    assert_eq!(read.expect("a grant for it"), (strength, epochs.to_vec()));
    Granted {
        source: clamped(1),
        relay: clamped(2),
        ephemeral: Hex::from(half(9)),
        flow: grant.flow,
        columns: strength.columns(),
        stamp: grant.stamp,
        place,
        salts: salts.map(|salt| Hex::from(*salt)).into(),
        message: Hex(message[..bytes].into()),
    }
}

fn one_way() -> OneWay {
    let psk = PresharedKey::generate(&entropy(3));
    let public = |byte| PrivateKey::generate(&entropy(byte)).public();
    let flow = 0xF10F_0003;
    let way = KeyDirection { scope: Scope::Edge(flow), sender: public(1), receiver: public(2) };
    let (suite, number, stamp) = (Suite::ChaCha20Poly1305, 0x7E, 1_700_000_000);
    let sender = OneWaySender::new(&psk, &way, suite, number, stamp, &entropy(8));
    let opened = OneWayReceiver::new(psk, way, None).receive(&sender.opening);
    assert_eq!(opened.expect("an opening").expect("a new one").secrets, sender.secrets);
    OneWay {
        psk: Hex::from(half(3)),
        sender: clamped(1),
        receiver: clamped(2),
        flow,
        number,
        opening: Hex::from(sender.opening),
        secret: Hex::from(*sender.secrets.expose()),
    }
}
