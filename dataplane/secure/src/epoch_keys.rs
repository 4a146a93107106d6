//! Keys of an epoch, shared by all workers: of a hop, and end to end.
//!
//! Tags of symbols have no number of their key: all symbols of a unit are under one, and who
//! verifies tries those that are valid, the present one first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::association::EpochKeys;
use crate::derive::Secrets;
use crate::envelope::{Opener, Sealer};
use crate::error::Refused;
use crate::grant::{GrantedSeeds, granted_seeds};
use crate::handshake::Established;
use crate::homomorphic::{Strength, TagKey};
use crate::hop::{HopDigest, HopReceiver, HopSender};
use crate::ring::Ring;
use crate::units::{Formed, TaggedUnit, UnitMasks};

/// Lanes of a direction: as many as a flow has shards, which have source ports in a row. A lane is
/// the work of one worker at each end, as long as cards keep their tables.
pub const LANES: usize = 16;

/// Longest packet with a tag: what a frame of the dataplane holds.
pub(crate) const PACKET_BYTES_MAX: usize = 2048;

/// How late a packet of a hop may be, in packets of its lane: 16 ms of 1 Mpps.
const HOP_WINDOW: usize = 1 << 14;

/// How late a packet may be end to end, in packets of all shards: 4 s of 256 kpps.
const EDGE_WINDOW: usize = 1 << 20;

/// Tags of a hop, both ways.
pub struct HopKeys {
    senders: [HopSender; LANES],
    receivers: [HopReceiver; LANES],
    is_confirmed: AtomicBool,
}

impl EpochKeys for HopKeys {
    fn new(established: &Established) -> Self {
        let Established { key_id, peer_key_id, send, receive, .. } = established;
        let digests = [send, receive].map(|secrets| {
            let digest = HopDigest::new(secrets, PACKET_BYTES_MAX);
            Arc::new(digest)
        });
        let sender = |lane| HopSender::new(send, *peer_key_id, lane as u16, &digests[0]);
        let receiver =
            |lane| HopReceiver::new(receive, *key_id, lane as u16, &digests[1], HOP_WINDOW);
        Self {
            senders: std::array::from_fn(sender),
            receivers: std::array::from_fn(receiver),
            is_confirmed: AtomicBool::new(false),
        }
    }

    fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Relaxed)
    }

    fn packets(&self) -> u64 {
        self.senders.iter().map(HopSender::packets).max().unwrap_or(0)
    }

    fn heard(&self) -> Option<u64> {
        Some(self.receivers.iter().map(HopReceiver::newest).fold(0, u64::wrapping_add))
    }
}

impl HopKeys {
    /// Writes the tag into the last bytes of `buffer`; see [`HopSender::seal`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn seal(&self, buffer: &mut [u8], source_port: u16) -> Result<(), Refused> {
        self.senders[lane(source_port)].seal(buffer, source_port)
    }
}

/// A packet of a neighbour.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Received<'a> {
    /// Without its tag.
    pub packet: &'a [u8],
    /// Whether everything that came before it in its lane, under its keys, was sent before it. No
    /// copy of a packet is; a packet that another one overtook is not.
    pub is_newest: bool,
}

/// Verifies a packet of a neighbour, once.
///
/// # Errors
/// The neighbour did not send it, or it came before.
#[inline]
pub fn open_hop<'a>(
    ring: &mut Ring<Arc<HopKeys>>,
    packet: &'a [u8],
    source_port: u16,
) -> Result<Received<'a>, Refused> {
    let key_id = HopReceiver::key_id_of(packet).ok_or(Refused::Malformed)?;
    let epoch = ring.by_id(key_id).ok_or(Refused::UnknownKey)?;
    let receiver = &epoch.keys.receivers[lane(source_port)];
    let checked = receiver.check(packet, source_port)?;
    let (packet, is_newest) = receiver.accept_in_order(&checked)?;
    confirm(&epoch.keys.is_confirmed);
    ring.confirm(key_id);
    Ok(Received { packet, is_newest })
}

/// Envelopes between source and sink, and tags of the symbols that carry them, both ways.
pub struct EdgeKeys {
    sealer: Sealer,
    opener: Opener,
    tags: TagKey,
    peer_tags: TagKey,
    /// What the columns of the tags of this end come from.
    secrets: Secrets,
    is_confirmed: AtomicBool,
}

impl EpochKeys for EdgeKeys {
    fn new(established: &Established) -> Self {
        let Established { peer_key_id, send, receive, suite, .. } = established;
        let [tags, peer_tags] = [send, receive].map(|secrets| {
            let seeds = secrets.column_seeds(Strength::Standard);
            let key = TagKey::new(Strength::Standard, &seeds, PACKET_BYTES_MAX);
            key.expect("seeds of all columns, in order")
        });
        Self {
            tags,
            peer_tags,
            secrets: send.clone(),
            sealer: send.sealer(*suite, *peer_key_id),
            opener: receive.opener(*suite, EDGE_WINDOW),
            is_confirmed: AtomicBool::new(false),
        }
    }

    fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Relaxed)
    }

    fn packets(&self) -> u64 {
        self.sealer.packets()
    }

    fn heard(&self) -> Option<u64> {
        // The sink of a flow sends nothing under them.
        None
    }
}

impl EdgeKeys {
    /// Seals a packet; see [`Sealer::seal`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn seal(&self, buffer: &mut [u8], bound: &[u8]) -> Result<(), Refused> {
        self.sealer.seal(buffer, bound)
    }

    /// What this end tags symbols with.
    #[must_use]
    pub const fn tag_key(&self) -> &TagKey {
        &self.tags
    }

    /// The columns of these tags that the relay in this place of the list gets.
    #[must_use]
    pub fn granted_seeds(&self, place: usize) -> GrantedSeeds {
        granted_seeds(&self.secrets, place)
    }
}

/// Verifies a symbol, tag and payload, under the keys of any valid epoch.
///
/// # Errors
/// The other end formed no such unit, or there are no keys.
#[inline]
pub fn verify_symbol(
    ring: &Ring<Arc<EdgeKeys>>,
    masks: &mut UnitMasks,
    unit: &TaggedUnit,
    formed: Formed<'_>,
    symbol: &[u8],
) -> Result<(), Refused> {
    let keys = ring.epochs().map(|epoch| &epoch.keys.peer_tags);
    masks.verify_by_any(keys, unit, formed, symbol)
}

/// Opens an envelope in place, once.
///
/// # Errors
/// The other end did not make it, or it came before.
#[inline]
pub fn open_edge<'a>(
    ring: &mut Ring<Arc<EdgeKeys>>,
    envelope: &'a mut [u8],
    bound: &[u8],
) -> Result<&'a mut [u8], Refused> {
    let key_id = Opener::key_id_of(envelope).ok_or(Refused::Malformed)?;
    let epoch = ring.by_id(key_id).ok_or(Refused::UnknownKey)?;
    let packet = epoch.keys.opener.open(envelope, bound)?;
    confirm(&epoch.keys.is_confirmed);
    ring.confirm(key_id);
    Ok(packet)
}

fn lane(source_port: u16) -> usize {
    usize::from(source_port) % LANES
}

/// Written once: workers would else take the line from each other.
#[inline]
fn confirm(flag: &AtomicBool) {
    if !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Relaxed);
    }
}
