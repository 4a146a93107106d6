//! What a worker does with keys: tags on every packet of a hop, envelopes around the packets of
//! sealed flows, tags of the symbols of tagged ones. Keys come from `keyer`, by one lock when they
//! change; packets take none but that of a replay window, which another worker holds only where a
//! card sends one lane to both.
//!
//! ```text
//!  received:  known neighbour? -> handshake? ------------------------> keyer
//!                              -> its keys? -> tag right, first time? -> pipeline
//!                                                      (announcement? -> keyer)
//!  to send:   keys for the hop? -> tag behind the packet -> headers -> socket
//! ```
//!
//! Whether a hop has keys is what the configuration says: packets without a tag are dropped there,
//! whatever they say, and nothing leaves without one.

use crate::keyer::{MAIL, MAIL_OF_HOPS, MAIL_OF_TALK};
use crate::keyring::{Keyring, Letter, Rings};
use crate::report::LinkCounters;
use crossbeam::channel::Sender;
use recoded_pipeline::egress::{self, ENVELOPE_BYTES, TAG_BYTES};
use recoded_pipeline::params::{PeerId, ShardId};
use recoded_secure::{
    CONTEXT_BYTES, Formed, HEADER_BYTES as ENVELOPE_HEADER_BYTES, Kind, Refused, Space, Strength,
    TRAILER_BYTES, TaggedUnit, UnitMasks, open_edge, open_hop, verify_symbol,
};
use recoded_wire::header::{Flags, HEADER_BYTES, Header, PacketType};
use std::sync::Arc;

/// A worker's keys.
pub(crate) struct Guard {
    keyring: Arc<Keyring>,
    rings: Rings,
    seen: u64,
    mail: Sender<Letter>,
    /// Of the units at hand; once there are keys of a flow.
    masks: Option<UnitMasks>,
}

/// Units that a worker has masks of: more than are ever open at once, interleaved batches included.
const UNITS: usize = 256;

/// What becomes of a received packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Admitted {
    /// It is of the neighbour; so many bytes of it, without the tag.
    Packet(usize),
    /// It ends here, and was counted.
    Ended,
}

impl Guard {
    /// Without keys until they are adopted.
    pub(crate) fn new(keyring: Arc<Keyring>, mail: Sender<Letter>) -> Guard {
        let mut guard = Guard { keyring, rings: Rings::default(), seen: 0, mail, masks: None };
        guard.adopt();
        guard
    }

    /// Takes new keys over.
    #[inline]
    pub(crate) fn adopt(&mut self) {
        if let Some(rings) = self.keyring.rings.newer(&mut self.seen) {
            self.rings = rings.as_ref().clone();
            let mut epochs = self.rings.edges.iter().flat_map(|(_, ring)| ring.epochs());
            if let Some(epoch) = epochs.next().filter(|_| self.masks.is_none()) {
                self.masks = Some(UnitMasks::new(epoch.keys.tag_key(), UNITS));
            }
        }
    }

    /// Looks at a packet of a neighbour.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        (peer, source_port): (PeerId, u16),
        payload: &[u8],
        counters: &mut LinkCounters,
    ) -> Admitted {
        let has_keys = self.rings.hops.get(usize::from(peer.0)).is_some_and(Option::is_some);
        if !has_keys && !is_letter(payload) {
            return Admitted::Packet(payload.len());
        }
        self.examine((peer, source_port), payload, counters)
    }

    fn examine(
        &mut self,
        (peer, source_port): (PeerId, u16),
        payload: &[u8],
        counters: &mut LinkCounters,
    ) -> Admitted {
        let hop = self.rings.hops.get_mut(usize::from(peer.0)).and_then(Option::as_mut);
        let is_message = is_hop_message(payload, hop.is_some());
        let len = match hop {
            Some(ring) if !is_message => match open_hop(ring, payload, source_port) {
                Ok(packet) => packet.len(),
                Err(reason) => {
                    count(reason, counters);
                    return Admitted::Ended;
                }
            },
            // The pipeline counts what a node without keys cannot answer.
            None if is_message => return Admitted::Packet(payload.len()),
            _ => payload.len(),
        };
        let packet = &payload[..len];
        if is_type(packet, PacketType::Announcement) {
            counters.rx_announcements += 1;
            self.post((peer, source_port), packet, MAIL_OF_TALK);
            return Admitted::Ended;
        }
        if !is_handshake(packet) {
            return Admitted::Packet(len);
        }
        counters.rx_handshakes += 1;
        // What is left of a hello is its header.
        if len > HEADER_BYTES {
            let room = if is_message { MAIL_OF_HOPS } else { MAIL };
            let is_sent = self.post((peer, source_port), packet, room);
            counters.rx_handshakes_refused += u64::from(!is_sent);
        }
        Admitted::Ended
    }

    /// Hands a packet to the thread of keys, where fewer than `room` wait. Whether it did.
    fn post(&self, (peer, source_port): (PeerId, u16), packet: &[u8], room: usize) -> bool {
        let letter = Letter::new(peer, source_port, packet);
        let letter = letter.filter(|_| self.mail.len() < room);
        letter.is_some_and(|letter| self.mail.try_send(letter).is_ok())
    }

    /// Bytes that a tag adds to packets to this neighbour.
    #[inline]
    pub(crate) fn trailer_bytes(&self, peer: PeerId) -> usize {
        match self.rings.hops.get(usize::from(peer.0)) {
            Some(Some(_)) => TRAILER_BYTES,
            _ => 0,
        }
    }

    /// Writes the tag into the last [`TRAILER_BYTES`] bytes of `buffer`. False when there are no
    /// keys for it.
    #[inline]
    pub(crate) fn tag(&self, peer: PeerId, buffer: &mut [u8], source_port: u16) -> bool {
        let ring = self.rings.hops.get(usize::from(peer.0)).and_then(Option::as_ref);
        let keys = ring.and_then(|ring| ring.sending());
        keys.is_some_and(|epoch| epoch.keys.seal(buffer, source_port).is_ok())
    }

    /// Whether a packet goes without a tag where there are keys: a message by which keys come.
    #[inline]
    pub(crate) fn is_untagged(payload: &[u8]) -> bool {
        is_handshake(payload) && is_hop_message(payload, false)
    }

    /// Encrypts an IP packet of a source into `out`, which is [`ENVELOPE_BYTES`] longer.
    ///
    /// # Errors
    /// There are no keys, or they are used up.
    #[inline]
    pub(crate) fn seal(&self, flow: u32, packet: &[u8], out: &mut [u8]) -> Result<(), Refused> {
        let place = self.rings.edge(flow).ok_or(Refused::UnknownKey)?;
        let (_, ring) = &self.rings.edges[place];
        let epoch = ring.sending().ok_or(Refused::UnknownKey)?;
        let end = ENVELOPE_HEADER_BYTES + packet.len();
        let place = out.get_mut(ENVELOPE_HEADER_BYTES..end).ok_or(Refused::Malformed)?;
        place.copy_from_slice(packet);
        epoch.keys.seal(out, &flow.to_be_bytes())
    }

    /// Decrypts what the other end of a flow sealed, in place; the packet within.
    ///
    /// # Errors
    /// There are no keys for it, it is not of the other end, or it came before.
    #[inline]
    pub(crate) fn unseal<'a>(
        &mut self,
        flow: u32,
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], Refused> {
        let place = self.rings.edge(flow).ok_or(Refused::UnknownKey)?;
        let (_, ring) = &mut self.rings.edges[place];
        open_edge(ring, sealed, &flow.to_be_bytes())
    }

    /// The key that symbols of a flow are tagged with from the next unit on.
    #[inline]
    pub(crate) fn tag_key(&self, flow: u32) -> Option<u8> {
        let (_, ring) = &self.rings.edges[self.rings.edge(flow)?];
        ring.sending().map(|epoch| epoch.key_id)
    }

    /// Tags symbol `index` of a unit under one of the keys that are valid.
    ///
    /// # Errors
    /// There is no such key any more, or no such symbol.
    #[inline]
    pub(crate) fn tag_symbol(
        &mut self,
        key_id: u8,
        unit: &egress::TaggedUnit,
        index: usize,
        symbol: &mut [u8],
    ) -> Result<(), Refused> {
        let place = self.rings.edge(unit.shard.flow).ok_or(Refused::UnknownKey)?;
        let (_, ring) = &mut self.rings.edges[place];
        let epoch = ring.by_id(key_id).ok_or(Refused::UnknownKey)?;
        let masks = self.masks.as_mut().ok_or(Refused::UnknownKey)?;
        masks.tag(epoch.keys.tag_key(), &unit_of(unit), index, symbol)
    }

    /// Verifies a symbol that the other end of a flow tagged, and relays combined.
    ///
    /// # Errors
    /// There are no keys, or it is no such symbol.
    #[inline]
    pub(crate) fn verify_symbol(
        &mut self,
        unit: &egress::TaggedUnit,
        formed: egress::Formed<'_>,
        symbol: &[u8],
    ) -> Result<(), Refused> {
        let place = self.rings.edge(unit.shard.flow).ok_or(Refused::UnknownKey)?;
        let (_, ring) = &self.rings.edges[place];
        let masks = self.masks.as_mut().ok_or(Refused::UnknownKey)?;
        let formed = match formed {
            egress::Formed::Source(index) => Formed::Source(index),
            egress::Formed::Combination(coefficients) => Formed::Combination(coefficients),
        };
        verify_symbol(ring, masks, &unit_of(unit), formed, symbol)
    }

    /// Has the keys of a neighbour changed, which sent too many symbols with wrong tags.
    #[cold]
    pub(crate) fn distrust(&self, peer: PeerId) {
        // Where there is no room, others are named: it will be again.
        let _ = self.keyring.distrusted.push(peer);
    }

    /// A packet that the thread of keys wants sent, for the first worker.
    pub(crate) fn outgoing(&self) -> Option<Letter> {
        self.keyring.outgoing.pop()
    }
}

// The pipeline leaves as much room as is taken.
const _: () = assert!(ENVELOPE_BYTES == recoded_secure::ENVELOPE_BYTES);
const _: () = assert!(TAG_BYTES == Strength::Standard.columns());
const _: () = assert!(egress::CONTEXT_BYTES == CONTEXT_BYTES);

fn unit_of(unit: &egress::TaggedUnit) -> TaggedUnit {
    let ShardId { flow, shard } = unit.shard;
    let kind = match unit.kind {
        egress::UnitKind::Generation => Kind::Generation,
        egress::UnitKind::Batch => Kind::Batch,
        egress::UnitKind::Stream => Kind::Stream,
    };
    let space = Space { flow, shard, kind };
    TaggedUnit { space, number: unit.number, context: unit.context }
}

#[inline]
fn is_handshake(payload: &[u8]) -> bool {
    is_type(payload, PacketType::Handshake)
}

/// Whether the thread of keys reads it.
#[inline]
fn is_letter(payload: &[u8]) -> bool {
    is_handshake(payload) || is_type(payload, PacketType::Announcement)
}

#[inline]
fn is_type(payload: &[u8], packet_type: PacketType) -> bool {
    payload.first().is_some_and(|first| first & 15 == packet_type as u8)
}

/// Whether it is a message between neighbours; one without content, with or without a tag, is a
/// hello.
fn is_hop_message(payload: &[u8], is_tagged: bool) -> bool {
    let hello = HEADER_BYTES + if is_tagged { TRAILER_BYTES } else { 0 };
    let header = Header::parse(payload).ok();
    let header = header.filter(|header| header.packet_type == PacketType::Handshake);
    header.is_some_and(|header| !header.flags.has(Flags::EDGE) && payload.len() > hello)
}

fn count(reason: Refused, counters: &mut LinkCounters) {
    match reason {
        Refused::UnknownKey => counters.rx_no_keys += 1,
        Refused::Replayed => counters.rx_copies += 1,
        _ => counters.rx_wrong_tag += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::LETTER_BYTES;
    use crossbeam::channel::{Receiver, bounded};
    use proptest::prelude::*;
    use recoded_pipeline::egress::UnitKind;
    use recoded_secure::{
        Association, Entropy, EpochKeys, HANDSHAKE_BYTES_MAX, Identity, PresharedKey, PrivateKey,
        Ring, Scope, Suite, timing,
    };
    use recoded_wire::announcement::{Announcement, write_announcement};
    use recoded_wire::handshake::write_handshake;

    const PORT: u16 = 50_000;
    const PEER: PeerId = PeerId(0);

    /// Keys of two nodes that have agreed; the first one began.
    fn agreed<Keys: EpochKeys>(scope: Scope) -> [Ring<Arc<Keys>>; 2] {
        let entropy = |byte| Entropy::new([byte; 64]);
        let private = [1, 2].map(|byte| PrivateKey::generate(&entropy(byte)));
        let mut ends = [(0, 1), (1, 0)].map(|(own, other): (usize, usize)| {
            let (private, peer) = (private[own].clone(), private[other].public());
            let identity = Identity { scope, private, peer, psk: PresharedKey::none() };
            Association::<Keys>::new(identity, Suite::Aes128Gcm, 0, &entropy(3))
        });
        let (mut there, mut back) = ([0; HANDSHAKE_BYTES_MAX], [0; HANDSHAKE_BYTES_MAX]);
        let now = timing::START_NANOS;
        let sent = ends[0].poll(now, 1, &entropy(4), &mut there).unwrap().send;
        let answer = ends[1].receive(now, &entropy(5), &there[..sent], &mut back).unwrap().send;
        ends[0].receive(now, &entropy(6), &back[..answer], &mut there).unwrap();
        ends.map(|end| end.ring().clone())
    }

    /// Two neighbours: of the first there is a key, of the second there is none.
    fn guards() -> [(Guard, Receiver<Letter>); 2] {
        let [here, there] = agreed(Scope::Hop);
        let [source, sink] = agreed(Scope::Edge(7));
        [(here, source), (there, sink)].map(|(hop, edge)| {
            let rings = Rings { hops: vec![Some(hop), None], edges: vec![(7, edge)] };
            let (mail, letters) = bounded(MAIL);
            (Guard::new(Arc::new(Keyring::new(rings)), mail), letters)
        })
    }

    fn tagged(guard: &Guard, packet: &[u8]) -> Vec<u8> {
        let mut packet = [packet, &[0; TRAILER_BYTES]].concat();
        assert!(guard.tag(PEER, &mut packet, PORT));
        packet
    }

    proptest! {
        #[test]
        fn what_has_no_tag_is_a_handshake_or_ends(
            mut packet in prop::collection::vec(any::<u8>(), 0..300),
            is_handshake: bool,
        ) {
            let [_, (mut guard, letters)] = guards();
            if is_handshake && packet.len() >= 16 {
                let flags = packet[1] & Flags::EDGE;
                packet[..4].copy_from_slice(&[0x27, flags, 0, 0]);
            }
            let mut counters = LinkCounters::default();
            let admitted = guard.admit((PEER, PORT), &packet, &mut counters);
            prop_assert_eq!(admitted, Admitted::Ended);
            let refused = counters.rx_no_keys + counters.rx_wrong_tag + counters.rx_copies;
            prop_assert_eq!(refused + counters.rx_handshakes, 1);
            let is_message = is_handshake && packet.len() > 16 + TRAILER_BYTES && packet[1] == 0;
            prop_assert_eq!(counters.rx_handshakes, u64::from(is_message));
            let is_read = is_message && packet.len() <= LETTER_BYTES;
            prop_assert_eq!(letters.len(), usize::from(is_read));
        }

        #[test]
        fn packets_of_the_neighbour_come_once_and_unchanged(
            packet in prop::collection::vec(any::<u8>(), 1..1500), at: usize, bit in 0..8u8,
        ) {
            prop_assume!(!is_letter(&packet));
            let [(sender, _), (mut receiver, _)] = guards();
            let packet_with_tag = tagged(&sender, &packet);
            let mut changed = packet_with_tag.clone();
            changed[at % packet_with_tag.len()] ^= 1 << bit;
            let mut counters = LinkCounters::default();
            let mut admit = |packet: &[u8]| receiver.admit((PEER, PORT), packet, &mut counters);
            prop_assert_eq!(admit(&changed), Admitted::Ended);
            prop_assert_eq!(admit(&packet_with_tag), Admitted::Packet(packet.len()));
            prop_assert_eq!(admit(&packet_with_tag), Admitted::Ended);
            prop_assert_eq!(counters.rx_copies, 1);
        }
    }

    #[test]
    fn hellos_confirm_and_messages_of_edges_need_a_tag() {
        let [(sender, _), (mut receiver, letters)] = guards();
        let mut counters = LinkCounters::default();
        let mut message = [0; LETTER_BYTES];
        let len = write_handshake(7, false, &[], &mut message);
        assert_eq!(receiver.rings.hops[0].as_ref().unwrap().sending().map(|it| it.key_id), None);
        let hello = tagged(&sender, &message[..len]);
        assert_eq!(receiver.admit((PEER, PORT), &hello, &mut counters), Admitted::Ended);
        assert!(receiver.rings.hops[0].as_ref().unwrap().sending().is_some());
        assert_eq!((counters.rx_handshakes, letters.len()), (1, 0));
        let len = write_handshake(7, true, &[9; 60], &mut message);
        let with_tag = tagged(&sender, &message[..len]);
        receiver.admit((PEER, PORT), &message[..len], &mut counters);
        assert_eq!(letters.len(), 0, "without a tag");
        receiver.admit((PEER, PORT), &with_tag, &mut counters);
        assert_eq!(letters.recv().unwrap().packet(), &message[..len]);
    }

    #[test]
    fn neighbours_without_a_key_need_no_tag_and_their_handshakes_are_counted_by_the_pipeline() {
        let [_, (mut guard, letters)] = guards();
        let mut counters = LinkCounters::default();
        let other = (PeerId(1), PORT);
        assert_eq!(guard.admit(other, &[0x22; 40], &mut counters), Admitted::Packet(40));
        let mut message = [0; LETTER_BYTES];
        let len = write_handshake(7, false, &[9; 60], &mut message);
        let admitted = guard.admit(other, &message[..len], &mut counters);
        assert_eq!(admitted, Admitted::Packet(len));
        assert_eq!((counters.rx_handshakes, letters.len()), (0, 0));
        assert_eq!(guard.trailer_bytes(PeerId(1)), 0);
    }

    #[test]
    fn announcements_need_the_tag_that_the_hop_has_and_come_before_the_pipeline() {
        let [(sender, _), (mut receiver, letters)] = guards();
        let mut counters = LinkCounters::default();
        let mut out = [0; LETTER_BYTES];
        let len = write_announcement(&Announcement::default(), &[], &mut out);
        let announcement = &out[..len];
        let with_tag = tagged(&sender, announcement);
        let mut admit = |peer, packet| receiver.admit((peer, PORT), packet, &mut counters);
        assert_eq!(admit(PEER, announcement), Admitted::Ended);
        assert_eq!(letters.len(), 0, "without a tag");
        assert_eq!(admit(PEER, &with_tag), Admitted::Ended);
        assert_eq!(letters.recv().unwrap().packet(), announcement);
        for _ in 0..1000 {
            assert_eq!(admit(PeerId(1), announcement), Admitted::Ended, "no keys, no tag");
        }
        assert_eq!(letters.len(), MAIL_OF_TALK, "there is room for handshakes");
        assert_eq!(counters.rx_announcements, 1001);
    }

    #[test]
    fn a_flood_of_messages_leaves_room_for_those_between_edges() {
        let [(sender, _), (mut receiver, letters)] = guards();
        let mut counters = LinkCounters::default();
        let mut message = [0; LETTER_BYTES];
        let len = write_handshake(7, false, &[9; 60], &mut message);
        for _ in 0..1000 {
            receiver.admit((PEER, PORT), &message[..len], &mut counters);
        }
        assert_eq!(letters.len(), MAIL_OF_HOPS);
        assert_eq!(counters.rx_handshakes_refused, 1000 - MAIL_OF_HOPS as u64);
        let len = write_handshake(7, true, &[9; 60], &mut message);
        let with_tag = tagged(&sender, &message[..len]);
        receiver.admit((PEER, PORT), &with_tag, &mut counters);
        assert_eq!(letters.len(), MAIL_OF_HOPS + 1);
    }

    #[test]
    fn envelopes_open_at_the_other_end_of_their_flow_only() {
        let [(source, _), (mut sink, _)] = guards();
        let mut sealed = [0; 100 + ENVELOPE_BYTES];
        source.seal(7, &[5; 100], &mut sealed).unwrap();
        assert_eq!(source.seal(8, &[5; 100], &mut sealed.clone()), Err(Refused::UnknownKey));
        assert_eq!(sink.unseal(8, &mut sealed.clone()), Err(Refused::UnknownKey));
        assert_eq!(sink.unseal(7, &mut sealed.clone()).unwrap(), [5; 100]);
        assert_eq!(sink.unseal(7, &mut sealed), Err(Refused::Replayed));
    }

    #[test]
    fn symbols_tagged_by_the_source_verify_at_the_sink_also_before_it_uses_the_keys() {
        let [(mut source, _), (mut sink, _)] = guards();
        let shard = ShardId { flow: 7, shard: 2 };
        let context = [3; egress::CONTEXT_BYTES];
        let unit = egress::TaggedUnit { shard, kind: UnitKind::Generation, number: 9, context };
        let mut symbol = [5; 300];
        let key = source.tag_key(7).expect("a key");
        assert_eq!(source.tag_key(8), None);
        source.tag_symbol(key, &unit, 4, &mut symbol).unwrap();
        let unknown = source.tag_symbol(key.wrapping_add(1), &unit, 4, &mut symbol.clone());
        assert_eq!(unknown, Err(Refused::UnknownKey));
        let mut verify = |unit, formed, symbol: &[u8]| sink.verify_symbol(unit, formed, symbol);
        assert_eq!(verify(&unit, egress::Formed::Source(4), &symbol), Ok(()));
        assert_eq!(verify(&unit, egress::Formed::Combination(&[0, 0, 0, 0, 1]), &symbol), Ok(()));
        assert_eq!(verify(&unit, egress::Formed::Source(5), &symbol), Err(Refused::Tag));
        let others = [
            egress::TaggedUnit { shard: ShardId { shard: 3, ..shard }, ..unit },
            egress::TaggedUnit { kind: UnitKind::Batch, ..unit },
            egress::TaggedUnit { number: 10, ..unit },
            egress::TaggedUnit { context: [4; egress::CONTEXT_BYTES], ..unit },
        ];
        for other in &others {
            assert_eq!(verify(other, egress::Formed::Source(4), &symbol), Err(Refused::Tag));
        }
        let other = egress::TaggedUnit { shard: ShardId { flow: 8, ..shard }, ..unit };
        let verdict = verify(&other, egress::Formed::Source(4), &symbol);
        assert_eq!(verdict, Err(Refused::UnknownKey));
        symbol[200] ^= 1;
        assert_eq!(verify(&unit, egress::Formed::Source(4), &symbol), Err(Refused::Tag));
        assert_eq!(verify(&unit, egress::Formed::Source(4), &[]), Err(Refused::Malformed));
    }
}
