//! A worker's use of keys: tags on every packet of a hop, envelopes around the packets of sealed
//! flows, tags on the symbols of tagged flows. Keys come from `keyer`, under one lock when they
//! change. Packets take no lock except that of a replay window, which is contended only where a
//! card sends one lane to two workers.
//!
//! ```text
//!  received:  known neighbour? -> handshake? ------------------------> keyer
//!                              -> its keys? -> tag right, first time? -> pipeline
//!             one that roams?  ------------------^     (announcement? -> keyer)
//!  to send:   keys for the hop? -> tag behind the packet -> headers -> socket
//! ```
//!
//! The configuration decides whether a hop has keys: packets without a tag are dropped there,
//! whatever they claim, and nothing leaves without one.

use crate::keyring::{Keyring, Letter, Rings};
use crate::mailbox::{Kind as MailKind, Mailbox};
use crate::report::LinkCounters;
use crate::roaming::{LinkAddress, Near};
use recoded_pipeline::egress::{
    ENVELOPE_BYTES, Formed, KeySerial, STRICT_TAG_BYTES, TAG_BYTES, TaggedUnit,
};
use recoded_pipeline::params::{Nanos, PeerId};
use recoded_secure::{
    EdgeKeys, HEADER_BYTES as ENVELOPE_HEADER_BYTES, Received, Refused, Ring, Strength,
    TRAILER_BYTES, TagKey, UnitMasks, open_edge, open_hop, open_report, verify_at_relay,
    verify_symbol,
};
use recoded_wire::header::{Flags, HEADER_BYTES, Header, PacketType};
use recoded_wire::shard::source_port_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A worker's keys.
pub(crate) struct Guard {
    keyring: Arc<Keyring>,
    rings: Rings,
    seen: u64,
    mail: Mailbox,
    /// For the units at hand, by [`masks_of`]; set once a flow of that strength has keys.
    masks: [Option<UnitMasks>; 2],
    /// The same for flows relayed here; set once one has columns.
    relay_masks: Option<UnitMasks>,
    /// By flow: the newest key that tagged symbols of other numbers than the present ones.
    retired: Vec<(u32, u64)>,
    /// The last report of a neighbour's place, and its time.
    told: Option<(PeerId, LinkAddress, Nanos)>,
}

/// Interval at which the same report is repeated until it takes effect.
const TELL_AGAIN_NANOS: Nanos = 10_000_000;

/// Units with masks at a worker: more than are ever open at once, interleaved batches included.
const UNITS: usize = 256;

/// The result of admitting a received packet.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Admitted {
    /// Bytes of it for the pipeline, without the tag; `None` if it ends here and was counted.
    pub(crate) packet: Option<usize>,
    /// Whether the neighbour sent it after all earlier arrivals, as its tag shows.
    pub(crate) is_newest: bool,
}

impl Admitted {
    const ENDED: Admitted = Admitted { packet: None, is_newest: false };
}

impl Guard {
    /// Without keys until they are adopted.
    pub(crate) fn new(keyring: Arc<Keyring>, mail: Mailbox) -> Guard {
        let mut guard = Guard {
            keyring,
            rings: Rings::default(),
            seen: 0,
            mail,
            masks: [None, None],
            relay_masks: None,
            retired: Vec::new(),
            told: None,
        };
        guard.adopt();
        guard
    }

    /// A guard that keeps only the keys, for other numbers of units. Counters of keys are shared
    /// and continue. Under one key numbers of units only grow, so these keys tag nothing more here;
    /// others follow soon.
    pub(crate) fn renewed(&self) -> Guard {
        self.keyring.has_new_numbers.store(true, Ordering::Relaxed);
        let newest = |flow: u32, ring: &Ring<Arc<EdgeKeys>>| {
            let keys = ring.epochs().filter_map(|epoch| epoch.keys.tag_key());
            keys.map(TagKey::serial).max().or(self.retired(flow))
        };
        let edges = self.rings.edges.iter();
        let retired = edges.filter_map(|(flow, ring)| Some((*flow, newest(*flow, ring)?)));
        let retired = retired.collect();
        Guard { retired, ..Guard::new(self.keyring.clone(), self.mail.clone()) }
    }

    fn retired(&self, flow: u32) -> Option<u64> {
        let place = self.retired.binary_search_by_key(&flow, |(id, _)| *id).ok()?;
        Some(self.retired[place].1)
    }

    /// Adopts new keys. Returns whether there were any.
    #[inline]
    pub(crate) fn adopt(&mut self) -> bool {
        let Some(rings) = self.keyring.rings.newer(&mut self.seen) else { return false };
        self.rings = rings.as_ref().clone();
        for epoch in self.rings.edges.iter().flat_map(|(_, ring)| ring.epochs()) {
            if let Some(key) = epoch.keys.tag_key().or(epoch.keys.peer_tag_key()) {
                let masks = &mut self.masks[masks_of(key.strength())];
                masks.get_or_insert_with(|| UnitMasks::new(key, UNITS));
            }
        }
        let mut columns = self.rings.columns.iter().flat_map(|(_, keys)| keys);
        if let Some(key) = columns.next().filter(|_| self.relay_masks.is_none()) {
            self.relay_masks = Some(UnitMasks::new(key, UNITS));
        }
        true
    }

    /// Where neighbours are, if that changed since `seen`.
    #[inline]
    pub(crate) fn near(&self, seen: &mut u64) -> Option<Arc<Near>> {
        self.keyring.near.newer(seen)
    }

    /// Numbers of the keys that a neighbour sends under.
    pub(crate) fn key_ids(&self, peer: PeerId) -> impl Iterator<Item = u8> + '_ {
        let ring = self.rings.hops.get(usize::from(peer.0)).and_then(Option::as_ref);
        ring.into_iter().flat_map(Ring::epochs).map(|epoch| epoch.key_id)
    }

    /// Checks a packet of a neighbour.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        peer: PeerId,
        payload: &[u8],
        counters: &mut LinkCounters,
    ) -> Admitted {
        let has_keys = self.rings.hops.get(usize::from(peer.0)).is_some_and(Option::is_some);
        if !has_keys && !is_letter(payload) {
            return Admitted { packet: Some(payload.len()), is_newest: false };
        }
        self.examine(peer, payload, counters)
    }

    fn examine(&mut self, peer: PeerId, payload: &[u8], counters: &mut LinkCounters) -> Admitted {
        let hop = self.rings.hops.get_mut(usize::from(peer.0)).and_then(Option::as_mut);
        let is_message = is_hop_message(payload, hop.is_some());
        let (packet, is_newest) = match hop {
            Some(ring) if !is_message => match open_hop(ring, payload, port_of(payload)) {
                Ok(Received { packet, is_newest }) => (packet, is_newest),
                Err(reason) => {
                    count(reason, counters);
                    return Admitted::ENDED;
                }
            },
            // The pipeline counts messages that a node without keys cannot answer.
            None if is_message => {
                return Admitted { packet: Some(payload.len()), is_newest: false };
            }
            _ => (payload, false),
        };
        Admitted { packet: self.sort(peer, packet, is_message, counters), is_newest }
    }

    /// Which of these roaming neighbours sent a packet that is not a message between neighbours.
    ///
    /// # Errors
    /// No neighbour sent it, or it is a replay: the reason from the first one that has a key for
    /// it.
    pub(crate) fn recognise(
        &mut self,
        roaming: impl Iterator<Item = PeerId>,
        payload: &[u8],
        counters: &mut LinkCounters,
    ) -> Result<(PeerId, Admitted), Refused> {
        let mut first = Refused::UnknownKey;
        for peer in roaming {
            let hop = self.rings.hops.get_mut(usize::from(peer.0)).and_then(Option::as_mut);
            let Some(ring) = hop else { continue };
            match open_hop(ring, payload, port_of(payload)) {
                Ok(Received { packet, is_newest }) => {
                    let packet = self.sort(peer, packet, false, counters);
                    return Ok((peer, Admitted { packet, is_newest }));
                }
                Err(Refused::Replayed) => return Err(Refused::Replayed),
                Err(reason) if first == Refused::UnknownKey => first = reason,
                Err(_) => {}
            }
        }
        Err(first)
    }

    /// Passes messages to the key thread; returns the bytes meant for the pipeline.
    fn sort(
        &self,
        peer: PeerId,
        packet: &[u8],
        is_message: bool,
        counters: &mut LinkCounters,
    ) -> Option<usize> {
        if is_type(packet, PacketType::Announcement) {
            counters.rx_announcements += 1;
            self.post(MailKind::Talk, Letter::new(peer, packet));
            return None;
        }
        if !is_handshake(packet) {
            return Some(packet.len());
        }
        counters.rx_handshakes += 1;
        // A hello consists of a header only.
        if packet.len() > HEADER_BYTES {
            let kind = if is_message { MailKind::Hop } else { MailKind::Edge };
            let is_sent = self.post(kind, Letter::new(peer, packet));
            counters.rx_handshakes_refused += u64::from(!is_sent);
        }
        None
    }

    /// Passes on a handshake message that may be from any roaming neighbour.
    pub(crate) fn ask(&self, place: LinkAddress, packet: &[u8], counters: &mut LinkCounters) {
        counters.rx_handshakes += 1;
        let is_sent = self.post(MailKind::Elsewhere, Letter::from_elsewhere(place, packet));
        counters.rx_handshakes_refused += u64::from(!is_sent);
    }

    /// Reports the place of a neighbour's newest packet to the key thread.
    #[cold]
    pub(crate) fn relocate(&mut self, peer: PeerId, place: LinkAddress, now: Nanos) {
        let is_told = |(told, at, when)| {
            (told, at) == (peer, place) && now.saturating_sub(when) < TELL_AGAIN_NANOS
        };
        if self.told.is_some_and(is_told) {
            return;
        }
        if self.post(MailKind::Talk, Some(Letter::moved(peer, place))) {
            self.told = Some((peer, place, now));
        }
    }

    /// Passes a packet to the key thread if there is room. Returns whether it did.
    fn post(&self, kind: MailKind, letter: Option<Letter>) -> bool {
        letter.is_some_and(|letter| self.mail.post(kind, letter))
    }

    /// Bytes that a tag adds to packets to this neighbour.
    #[inline]
    pub(crate) fn trailer_bytes(&self, peer: PeerId) -> usize {
        match self.rings.hops.get(usize::from(peer.0)) {
            Some(Some(_)) => TRAILER_BYTES,
            _ => 0,
        }
    }

    /// Writes the tag into the last [`TRAILER_BYTES`] bytes of `buffer`. False without keys for it.
    #[inline]
    pub(crate) fn tag(&self, peer: PeerId, buffer: &mut [u8]) -> bool {
        let ring = self.rings.hops.get(usize::from(peer.0)).and_then(Option::as_ref);
        let keys = ring.and_then(|ring| ring.sending());
        // The port of the shard, which middleboxes cannot change: UDP sockets send from another
        // port, and NAT rewrites that again.
        let source_port = port_of(buffer);
        keys.is_some_and(|epoch| epoch.keys.seal(buffer, source_port).is_ok())
    }

    /// Whether a packet needs no tag although there are keys: a handshake message.
    #[inline]
    pub(crate) fn is_untagged(payload: &[u8]) -> bool {
        is_handshake(payload) && is_hop_message(payload, false)
    }

    /// Whether packets of a source cannot leave yet: its flow, or every next hop, lacks keys.
    pub(crate) fn lacks_keys(&self, flow: u32, next_hops: &[PeerId]) -> bool {
        let edge = self.rings.edge(flow).map(|place| &self.rings.edges[place].1);
        let lacks_hop = |hop: &PeerId| {
            let ring = self.rings.hops.get(usize::from(hop.0)).and_then(Option::as_ref);
            ring.is_some_and(|ring| ring.sending().is_none())
        };
        edge.is_some_and(|ring| ring.sending().is_none()) || next_hops.iter().all(lacks_hop)
    }

    /// Encrypts an IP packet of a source into `out`, which is [`ENVELOPE_BYTES`] longer.
    ///
    /// # Errors
    /// There are no keys, or they are exhausted.
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

    /// Decrypts an envelope that [`Guard::seal`] made, under any key that is still valid.
    ///
    /// # Errors
    /// The keys are gone, or the envelope was not sealed here.
    #[cold]
    pub(crate) fn open_own(
        &self,
        flow: u32,
        sealed: &[u8],
        packet: &mut [u8],
    ) -> Result<(), Refused> {
        let place = self.rings.edge(flow).ok_or(Refused::UnknownKey)?;
        let (_, ring) = &self.rings.edges[place];
        // The sink chose the key numbers: those of two sessions may collide.
        let mut opened =
            ring.epochs().map(|epoch| epoch.keys.open_own(sealed, &flow.to_be_bytes(), packet));
        opened.find(Result::is_ok).unwrap_or(Err(Refused::UnknownKey))
    }

    /// Decrypts in place an envelope from the other end of a flow; returns the packet within.
    ///
    /// # Errors
    /// There are no keys for it, it is not from the other end, or it is a replay.
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

    /// Authenticates a report of the sink of a flow to its source.
    ///
    /// # Errors
    /// There are no keys for it, or they are exhausted.
    pub(crate) fn seal_report(
        &self,
        flow: u32,
        report: &[u8],
    ) -> Result<[u8; ENVELOPE_BYTES], Refused> {
        let place = self.rings.edge(flow).ok_or(Refused::UnknownKey)?;
        let (_, ring) = &self.rings.edges[place];
        ring.sending().ok_or(Refused::UnknownKey)?.keys.seal_report(report)
    }

    /// Verifies a report of the sink of a flow by the seal of its packet, once. Without keys from
    /// the sink to the source, as with several sinks, all are accepted.
    ///
    /// # Errors
    /// The sink did not write it, it was received before, or there are no keys yet.
    pub(crate) fn verify_report(
        &mut self,
        flow: u32,
        report: &[u8],
        seal: Option<&[u8]>,
    ) -> Result<(), Refused> {
        let Some(place) = self.rings.edge(flow) else { return Ok(()) };
        let (_, ring) = &mut self.rings.edges[place];
        let mut epochs = ring.epochs().peekable();
        let has_keys = epochs.peek().is_some();
        if has_keys && !epochs.any(|epoch| epoch.keys.can_receive()) {
            return Ok(());
        }
        drop(epochs);
        open_report(ring, seal.ok_or(Refused::UnknownKey)?, report)
    }

    /// The key that symbols of a flow are tagged with from the next unit on; `None` without keys,
    /// or until there are newer ones than before [`Guard::renewed`].
    #[inline]
    pub(crate) fn tag_key(&self, flow: u32) -> Option<u8> {
        let key_id = self.rings.tagging(flow)?;
        let Some(retired) = self.retired(flow) else { return Some(key_id) };
        let (_, ring) = &self.rings.edges[self.rings.edge(flow)?];
        let epoch = ring.epochs().find(|epoch| epoch.key_id == key_id)?;
        let serial = epoch.keys.tag_key()?.serial();
        (serial > retired).then_some(key_id)
    }

    /// Tags symbol `index` of a unit under one of the valid keys.
    ///
    /// # Errors
    /// The key is no longer valid, or there is no such symbol.
    #[inline]
    pub(crate) fn tag_symbol(
        &mut self,
        key_id: u8,
        unit: &TaggedUnit,
        index: usize,
        symbol: &mut [u8],
    ) -> Result<(), Refused> {
        let place = self.rings.edge(unit.space.flow).ok_or(Refused::UnknownKey)?;
        let (_, ring) = &mut self.rings.edges[place];
        let epoch = ring.by_id(key_id).ok_or(Refused::UnknownKey)?;
        let key = epoch.keys.tag_key().ok_or(Refused::UnknownKey)?;
        let masks = self.masks[masks_of(key.strength())].as_mut().ok_or(Refused::UnknownKey)?;
        masks.tag(key, unit, index, symbol)
    }

    /// Verifies a symbol that the source of a flow tagged and relays combined: by all columns where
    /// the flow ends here, by the granted columns where it is relayed. Returns the key.
    ///
    /// # Errors
    /// There are no keys, or the symbol is not authentic.
    #[inline]
    pub(crate) fn verify_symbol(
        &mut self,
        unit: &TaggedUnit,
        formed: Formed<'_>,
        symbol: &[u8],
    ) -> Result<KeySerial, Refused> {
        if let Some(keys) = self.rings.columns(unit.space.flow) {
            let masks = self.relay_masks.as_mut().ok_or(Refused::UnknownKey)?;
            return verify_at_relay(keys, masks, unit, formed, symbol).map(KeySerial);
        }
        let place = self.rings.edge(unit.space.flow).ok_or(Refused::UnknownKey)?;
        let (_, ring) = &self.rings.edges[place];
        // All keys of a flow are of one strength.
        let key = ring.epochs().find_map(|epoch| epoch.keys.peer_tag_key());
        let masks = key.and_then(|key| self.masks[masks_of(key.strength())].as_mut());
        let masks = masks.ok_or(Refused::UnknownKey)?;
        let verified = verify_symbol(ring, masks, unit, formed, symbol);
        let is_fresh = || self.rings.fresh.contains(&unit.space.flow);
        let refusal = |reason| if is_fresh() { Refused::UnknownKey } else { reason };
        verified.map(KeySerial).map_err(refusal)
    }

    /// Whether there are keys for a flow that begins or ends here.
    #[cold]
    pub(crate) fn has_keys(&self, flow: u32) -> bool {
        let place = self.rings.edge(flow);
        place.is_some_and(|place| self.rings.edges[place].1.epochs().next().is_some())
    }

    /// Requests other keys with a neighbour that sent too many symbols with wrong tags.
    #[cold]
    pub(crate) fn distrust(&self, peer: PeerId) {
        // Without room, others are named; this neighbour will be named again.
        let _ = self.keyring.distrusted.push(peer);
    }

    /// A packet of the key thread to send, for the first worker.
    pub(crate) fn outgoing(&self) -> Option<Letter> {
        self.keyring.outgoing.pop()
    }
}

// The pipeline reserves as much room as is used.
const _: () = assert!(ENVELOPE_BYTES == recoded_secure::ENVELOPE_BYTES);
const _: () = assert!(TAG_BYTES == Strength::Standard.columns());
const _: () = assert!(STRICT_TAG_BYTES == Strength::Strict.columns());

/// Index of the masks for all columns of such tags.
const fn masks_of(strength: Strength) -> usize {
    match strength {
        Strength::Standard => 0,
        Strength::Strict => 1,
    }
}

/// Source port of the shard of a tagged packet.
#[inline]
fn port_of(tagged: &[u8]) -> u16 {
    source_port_of(&tagged[..tagged.len().saturating_sub(TRAILER_BYTES)])
}

#[inline]
fn is_handshake(payload: &[u8]) -> bool {
    is_type(payload, PacketType::Handshake)
}

/// Whether the key thread reads it.
#[inline]
fn is_letter(payload: &[u8]) -> bool {
    is_handshake(payload) || is_type(payload, PacketType::Announcement)
}

#[inline]
fn is_type(payload: &[u8], packet_type: PacketType) -> bool {
    payload.first().is_some_and(|first| first & 15 == packet_type as u8)
}

/// Whether it is a message between neighbours. One without content, tagged or not, is a hello.
fn is_hop_message(payload: &[u8], is_tagged: bool) -> bool {
    let hello = HEADER_BYTES + if is_tagged { TRAILER_BYTES } else { 0 };
    let header = Header::parse(payload).ok();
    let header = header.filter(|header| header.packet_type == PacketType::Handshake);
    header.is_some_and(|header| !header.flags.has(Flags::EDGE) && payload.len() > hello)
}

/// Counts a packet without a valid tag of its neighbour.
pub(crate) fn count(reason: Refused, counters: &mut LinkCounters) {
    match reason {
        Refused::UnknownKey => counters.rx_no_keys += 1,
        Refused::Replayed => counters.rx_copies += 1,
        _ => counters.rx_wrong_tag += 1,
    }
}

#[cfg(test)]
mod tests;
