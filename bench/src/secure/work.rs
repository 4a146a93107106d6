//! Ours: each contestant checks its own results before it is timed.

use std::hint::black_box;
use std::sync::Arc;

use recoded_secure::{
    HEADER_BYTES, HopDigest, HopReceiver, HopSender, Masks, Opener, SUBSET_MIN, Sealer, Secrets,
    Space, Strength, Suite, TRAILER_BYTES, TagKey, UnitKind,
};

use super::PACKETS;

/// Something that is done to packets.
pub trait PacketWork {
    /// Name in the table.
    fn name(&self) -> &str;
    /// Processes packet `packet`, below [`PACKETS`].
    fn run(&mut self, packet: usize);
}

/// A name and a routine.
pub struct Named<F>(pub String, pub F);

impl<F: FnMut(usize)> PacketWork for Named<F> {
    fn name(&self) -> &str {
        &self.0
    }

    fn run(&mut self, packet: usize) {
        (self.1)(packet);
    }
}

/// A contestant.
pub fn named(name: impl Into<String>, run: impl FnMut(usize) + 'static) -> Box<dyn PacketWork> {
    Box::new(Named(name.into(), run))
}

/// Per-packet work of a relay.
pub const RELAY: &str = "relay: tag in, 4 columns verified, tag out";

/// The same for a strict flow, whose symbols have tags of twice the size.
const RELAY_STRICT: &str = "relay of a strict flow: tag in, 4 of 16 columns verified, tag out";

/// Header of a generation of 16 symbols with its coding vector, as in `dataplane/wire`.
const HEAD_BYTES: usize = 20 + GENERATION;
const GENERATION: usize = 16;
const PORT: u16 = 49_152;
/// Feedback, reports, requests.
const SHORT_BYTES: usize = 60;

/// Packets of bytes that repeat nowhere.
pub fn packets(bytes: usize) -> Vec<Vec<u8>> {
    let byte = |packet: usize, place: usize| (packet * 31 + place * 7 + packet * place / 13) as u8;
    (0..PACKETS).map(|packet| (0..bytes).map(|place| byte(packet, place)).collect()).collect()
}

pub fn secrets() -> Secrets {
    Secrets::extract(b"bench", &[7; 32])
}

/// Everything that `recoded-secure` does to a packet.
pub fn ours(bytes: usize) -> Vec<Box<dyn PacketWork>> {
    let mut all = vec![
        relay(RELAY, bytes, Strength::Standard),
        relay(RELAY_STRICT, bytes, Strength::Strict),
        verify(bytes, Strength::Standard, SUBSET_MIN),
        verify(bytes, Strength::Standard, 8),
        verify(bytes, Strength::Strict, 16),
    ];
    for bytes in [bytes, SHORT_BYTES] {
        all.extend([tag_out(bytes), tag_in(bytes)]);
    }
    all.push(fill(bytes));
    for suite in Suite::ALL {
        all.extend([seal(bytes, suite), seal_and_open(bytes, suite)]);
    }
    all
}

/// Coded packets: header, vector, tag of 8 or 16 bytes, payload, room for the trailer of a hop.
struct Coded {
    /// With the verifier's number of columns.
    key: TagKey,
    masks: Masks,
    packets: Vec<Vec<u8>>,
    /// Offset of the payload.
    payload: usize,
}

impl Coded {
    fn new(bytes: usize, strength: Strength, columns: usize) -> Self {
        let seeds = secrets().column_seeds(strength);
        let space = Space { flow: 1, shard: 0, kind: UnitKind::Generation };
        let made = |seeds| {
            let key = TagKey::new(strength, seeds, bytes).expect("a key");
            let mut masks = Masks::new(&key, GENERATION);
            masks.fill(&key, space, 1, GENERATION).expect("room");
            (key, masks)
        };
        let (all, masks) = made(&seeds);
        let payload = HEAD_BYTES + all.tag_bytes();
        let mut packets = packets(bytes + TRAILER_BYTES);
        for (index, packet) in packets.iter_mut().enumerate() {
            // Source symbols, with vectors as long as any other.
            packet[20..HEAD_BYTES].fill(0);
            packet[20 + index % GENERATION] = 1;
            let (tag, rest) = packet[HEAD_BYTES..].split_at_mut(all.tag_bytes());
            let symbol = &rest[..bytes - payload];
            all.tag(&masks, index % GENERATION, &[], symbol, tag).expect("a tag");
        }
        let (key, masks) = made(&seeds[..columns]);
        Self { key, masks, packets, payload }
    }

    /// Verifies the symbol of a packet without its trailer.
    fn verify(&self, packet: &[u8]) {
        let (head, payload) = packet.split_at(self.payload);
        let (vector, tag) = head[20..].split_at(GENERATION);
        let verified = self.key.verify(&self.masks, vector, &[], tag, payload);
        black_box(verified).expect("verifies");
    }
}

fn verify(bytes: usize, strength: Strength, columns: usize) -> Box<dyn PacketWork> {
    let coded = Coded::new(bytes, strength, columns);
    let of = strength.columns();
    let name = format!("homomorphic tag of {of} columns, {columns} verified");
    named(name, move |number| coded.verify(&coded.packets[number][..bytes]))
}

fn digest(bytes: usize) -> Arc<HopDigest> {
    Arc::new(HopDigest::new(&secrets(), bytes))
}

fn tag_out(bytes: usize) -> Box<dyn PacketWork> {
    let digest = digest(bytes);
    let mut sender = HopSender::new(&secrets(), 1, 0, &digest);
    let mut packets = packets(bytes + TRAILER_BYTES);
    named(format!("hop tag of {bytes} bytes, out"), move |number| {
        if sender.packets() == recoded_secure::PACKETS_MAX {
            sender = HopSender::new(&secrets(), 1, 0, &digest);
        }
        let packet = &mut packets[number];
        sender.seal(packet, PORT).expect("sealed");
        black_box(&packet[bytes..]);
    })
}

/// Verified without moving the window, so that the same packets can be repeated.
fn tag_in(bytes: usize) -> Box<dyn PacketWork> {
    let digest = digest(bytes);
    let sender = HopSender::new(&secrets(), 1, 0, &digest);
    let receiver = HopReceiver::new(&secrets(), 1, 0, &digest, 2048);
    let mut packets = packets(bytes + TRAILER_BYTES);
    for packet in &mut packets {
        sender.seal(packet, PORT).expect("sealed");
    }
    named(format!("hop tag of {bytes} bytes, in"), move |number| {
        let _ = black_box(receiver.check(&packets[number], PORT)).expect("verifies");
    })
}

/// A relay's work per packet without recoding: incoming tag, verification, outgoing tag.
fn relay(name: &str, bytes: usize, strength: Strength) -> Box<dyn PacketWork> {
    let mut coded = Coded::new(bytes, strength, SUBSET_MIN);
    let digest = digest(bytes);
    let upstream = HopSender::new(&secrets(), 1, 0, &digest);
    let receiver = HopReceiver::new(&secrets(), 1, 0, &digest, 2048);
    for packet in &mut coded.packets {
        upstream.seal(packet, PORT).expect("sealed");
    }
    let mut outgoing = coded.packets.clone();
    let mut downstream = HopSender::new(&secrets(), 2, 1, &digest);
    named(name, move |number| {
        let packet = &coded.packets[number];
        let _ = black_box(receiver.check(packet, PORT)).expect("verifies");
        coded.verify(&packet[..bytes]);
        if downstream.packets() == recoded_secure::PACKETS_MAX {
            downstream = HopSender::new(&secrets(), 2, 1, &digest);
        }
        let packet = &mut outgoing[number];
        downstream.seal(packet, PORT).expect("sealed");
        black_box(&packet[bytes..]);
    })
}

/// Once per unit, so a packet costs a sixteenth of it.
fn fill(bytes: usize) -> Box<dyn PacketWork> {
    let Coded { key, mut masks, .. } = Coded::new(bytes, Strength::Standard, 8);
    let space = Space { flow: 1, shard: 0, kind: UnitKind::Generation };
    let mut unit = 0;
    named("masks of a generation of 16, 8 columns", move |_| {
        masks.fill(&key, space, unit, GENERATION).expect("room");
        unit += 1;
    })
}

pub fn suite_name(suite: Suite) -> &'static str {
    match suite {
        Suite::Aes128Gcm => "AES-128-GCM",
        Suite::ChaCha20Poly1305 => "ChaCha20-Poly1305",
    }
}

pub fn ends(suite: Suite) -> (Sealer, Opener) {
    (secrets().sealer(suite, 1), secrets().opener(suite, 1 << 16))
}

fn seal(bytes: usize, suite: Suite) -> Box<dyn PacketWork> {
    let (mut sealer, _) = ends(suite);
    let mut packets = packets(bytes);
    named(format!("envelope by {}, sealed", suite_name(suite)), move |number| {
        if sealer.packets() == recoded_secure::PACKETS_MAX {
            sealer = ends(suite).0;
        }
        sealer.seal(&mut packets[number], &[1; 4]).expect("sealed");
        black_box(&packets[number][HEADER_BYTES]);
    })
}

fn seal_and_open(bytes: usize, suite: Suite) -> Box<dyn PacketWork> {
    let (mut sealer, mut opener) = ends(suite);
    let mut packets = packets(bytes);
    named(format!("envelope by {}, sealed and opened", suite_name(suite)), move |number| {
        if sealer.packets() == recoded_secure::PACKETS_MAX {
            (sealer, opener) = ends(suite);
        }
        sealer.seal(&mut packets[number], &[1; 4]).expect("sealed");
        black_box(opener.open(&mut packets[number], &[1; 4]).expect("opens").len());
    })
}
