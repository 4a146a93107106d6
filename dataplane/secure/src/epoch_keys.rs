//! Keys of an epoch, shared by all workers: per hop, and end to end.
//!
//! Tags of symbols do not carry the number of their key: all symbols of a unit are under one, and a
//! verifier tries all valid ones, the present one first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use recoded_wire::unit::{Formed, TaggedUnit};

use crate::association::EpochKeys;
use crate::derive::Secrets;
use crate::envelope::{ENVELOPE_BYTES, Opener, Sealer};
use crate::error::Refused;
use crate::grant::{GrantedSeeds, granted_seeds};
use crate::handshake::Established;
use crate::homomorphic::TagKey;
use crate::hop::{HopDigest, HopReceiver, HopSender};
use crate::profile::Profile;
use crate::ring::Ring;
use crate::units::UnitMasks;

/// Lanes of a direction: as many as a flow has shards, which have consecutive source ports. A lane
/// is handled by one worker at each end, as long as NICs keep their tables.
pub const LANES: usize = 16;

/// Longest packet with a tag: the largest frame of the dataplane. On links with a smaller MTU, the
/// rest of the keys takes memory and no time.
pub(crate) const PACKET_BYTES_MAX: usize = 9536;

/// How late a packet of a hop may be, in packets of its lane: 16 ms of 1 Mpps.
const HOP_WINDOW: usize = 1 << 14;

/// How late a packet may be end to end, in packets of all shards: 4 s of 256 kpps.
const EDGE_WINDOW: usize = 1 << 20;

/// Tags of a hop, in both directions, or in one if there is no other.
pub struct HopKeys {
    senders: Option<[HopSender; LANES]>,
    receivers: Option<[HopReceiver; LANES]>,
    is_confirmed: AtomicBool,
}

fn hop_senders(secrets: &Secrets, key_id: u8) -> [HopSender; LANES] {
    let digest = Arc::new(HopDigest::new(secrets, PACKET_BYTES_MAX));
    std::array::from_fn(|lane| HopSender::new(secrets, key_id, lane as u16, &digest))
}

fn hop_receivers(secrets: &Secrets, key_id: u8) -> [HopReceiver; LANES] {
    let digest = Arc::new(HopDigest::new(secrets, PACKET_BYTES_MAX));
    let receiver = |lane| HopReceiver::new(secrets, key_id, lane as u16, &digest, HOP_WINDOW);
    std::array::from_fn(receiver)
}

impl EpochKeys for HopKeys {
    fn new(established: &Established) -> Self {
        let Established { key_id, peer_key_id, send, receive, .. } = established;
        let senders = Some(hop_senders(send, *peer_key_id));
        let receivers = Some(hop_receivers(receive, *key_id));
        Self { senders, receivers, is_confirmed: AtomicBool::new(false) }
    }

    fn to_send(secrets: &Secrets, key_id: u8, _: Profile) -> Self {
        let senders = Some(hop_senders(secrets, key_id));
        Self { senders, receivers: None, is_confirmed: AtomicBool::new(false) }
    }

    fn to_receive(secrets: &Secrets, key_id: u8, _: Profile) -> Self {
        let receivers = Some(hop_receivers(secrets, key_id));
        Self { senders: None, receivers, is_confirmed: AtomicBool::new(false) }
    }

    fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Relaxed)
    }

    fn packets(&self) -> u64 {
        self.senders.iter().flatten().map(HopSender::packets).max().unwrap_or(0)
    }

    fn heard(&self) -> Option<u64> {
        let receivers = self.receivers.as_ref()?.iter();
        Some(receivers.map(HopReceiver::newest).fold(0, u64::wrapping_add))
    }
}

impl HopKeys {
    /// Writes the tag into the last bytes of `buffer`; see [`HopSender::seal`].
    ///
    /// # Errors
    /// As for [`HopSender::seal`].
    #[inline]
    pub fn seal(&self, buffer: &mut [u8], source_port: u16) -> Result<(), Refused> {
        let senders = self.senders.as_ref().ok_or(Refused::UnknownKey)?;
        senders[lane(source_port)].seal(buffer, source_port)
    }
}

/// A packet of a neighbour.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Received<'a> {
    /// Without its tag.
    pub packet: &'a [u8],
    /// Whether all earlier packets of its lane, under its keys, were sent before it. False for any
    /// copy of a packet, and for a packet that another one overtook.
    pub is_newest: bool,
}

/// Verifies a packet of a neighbour, once.
///
/// # Errors
/// The neighbour did not send it, or it was already received.
#[inline]
pub fn open_hop<'a>(
    ring: &mut Ring<Arc<HopKeys>>,
    packet: &'a [u8],
    source_port: u16,
) -> Result<Received<'a>, Refused> {
    let key_id = HopReceiver::key_id_of(packet).ok_or(Refused::Malformed)?;
    let epoch = ring.by_id(key_id).ok_or(Refused::UnknownKey)?;
    let receivers = epoch.keys.receivers.as_ref().ok_or(Refused::UnknownKey)?;
    let receiver = &receivers[lane(source_port)];
    let checked = receiver.check(packet, source_port)?;
    let (packet, is_newest) = receiver.accept_in_order(&checked)?;
    confirm(&epoch.keys.is_confirmed);
    ring.confirm(key_id);
    Ok(Received { packet, is_newest })
}

/// Envelopes between source and sink, and tags of the symbols that carry them, in both directions,
/// or in one if there is no other.
pub struct EdgeKeys {
    to_send: Option<EdgeSender>,
    to_receive: Option<EdgeReceiver>,
    is_confirmed: AtomicBool,
}

struct EdgeSender {
    sealer: Sealer,
    tags: TagKey,
    /// Secrets that the columns of the tags are derived from.
    secrets: Secrets,
}

struct EdgeReceiver {
    opener: Opener,
    tags: TagKey,
}

impl EdgeSender {
    fn new(secrets: &Secrets, key_id: u8, profile: Profile) -> Self {
        let sealer = secrets.sealer(profile.suite, key_id);
        Self { sealer, tags: all_columns(secrets, profile), secrets: secrets.clone() }
    }
}

impl EdgeReceiver {
    fn new(secrets: &Secrets, profile: Profile) -> Self {
        let opener = secrets.opener(profile.suite, EDGE_WINDOW);
        Self { opener, tags: all_columns(secrets, profile) }
    }
}

fn all_columns(secrets: &Secrets, Profile { strength, .. }: Profile) -> TagKey {
    let seeds = secrets.column_seeds(strength);
    let key = TagKey::new(strength, &seeds, PACKET_BYTES_MAX);
    key.expect("seeds of all columns, in order")
}

impl EpochKeys for EdgeKeys {
    fn new(established: &Established) -> Self {
        let Established { peer_key_id, send, receive, profile, .. } = established;
        Self {
            to_send: Some(EdgeSender::new(send, *peer_key_id, *profile)),
            to_receive: Some(EdgeReceiver::new(receive, *profile)),
            is_confirmed: AtomicBool::new(false),
        }
    }

    fn to_send(secrets: &Secrets, key_id: u8, profile: Profile) -> Self {
        let to_send = Some(EdgeSender::new(secrets, key_id, profile));
        Self { to_send, to_receive: None, is_confirmed: AtomicBool::new(false) }
    }

    fn to_receive(secrets: &Secrets, _: u8, profile: Profile) -> Self {
        let to_receive = Some(EdgeReceiver::new(secrets, profile));
        Self { to_send: None, to_receive, is_confirmed: AtomicBool::new(false) }
    }

    fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Relaxed)
    }

    fn packets(&self) -> u64 {
        self.to_send.as_ref().map_or(0, |it| it.sealer.packets())
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
    /// As for [`Sealer::seal`], and if these keys are for receiving.
    #[inline]
    pub fn seal(&self, buffer: &mut [u8], bound: &[u8]) -> Result<(), Refused> {
        self.to_send.as_ref().ok_or(Refused::UnknownKey)?.sealer.seal(buffer, bound)
    }

    /// Decrypts a packet sealed by [`EdgeKeys::seal`]; see [`Sealer::open_own`].
    ///
    /// # Errors
    /// As for [`Sealer::open_own`], and if these keys are for receiving.
    pub fn open_own(
        &self,
        envelope: &[u8],
        bound: &[u8],
        packet: &mut [u8],
    ) -> Result<(), Refused> {
        let sender = self.to_send.as_ref().ok_or(Refused::UnknownKey)?;
        sender.sealer.open_own(envelope, bound, packet)
    }

    /// Authenticates a report to the other end; see [`Sealer::seal_report`].
    ///
    /// # Errors
    /// As for [`Sealer::seal_report`], and if these keys are for receiving.
    pub fn seal_report(&self, report: &[u8]) -> Result<[u8; ENVELOPE_BYTES], Refused> {
        self.to_send.as_ref().ok_or(Refused::UnknownKey)?.sealer.seal_report(report)
    }

    /// Whether the other end can send anything under these keys.
    #[must_use]
    pub fn can_receive(&self) -> bool {
        self.to_receive.is_some()
    }

    /// Key that this end tags symbols with; `None` if these keys are for receiving.
    #[must_use]
    pub fn tag_key(&self) -> Option<&TagKey> {
        self.to_send.as_ref().map(|it| &it.tags)
    }

    /// Key that symbols of the other end are verified with; `None` if these keys are for sending.
    #[must_use]
    pub fn peer_tag_key(&self) -> Option<&TagKey> {
        self.to_receive.as_ref().map(|it| &it.tags)
    }

    /// The columns of these tags granted to the relay at this place of the list; `None` if these
    /// keys are for receiving.
    #[must_use]
    pub fn granted_seeds(&self, place: usize) -> Option<GrantedSeeds> {
        let granted = |it: &EdgeSender| granted_seeds(&it.secrets, it.tags.strength(), place);
        self.to_send.as_ref().map(granted)
    }
}

/// Verifies a symbol, tag and payload, under the keys of any valid epoch. Returns the serial number
/// of the key: later epochs have greater ones.
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
) -> Result<u64, Refused> {
    let keys = ring.epochs().filter_map(|epoch| epoch.keys.peer_tag_key());
    masks.verify_by_any(keys, unit, formed, symbol)
}

/// Opens an envelope in place, once.
///
/// # Errors
/// The other end did not make it, or it was already received.
#[inline]
pub fn open_edge<'a>(
    ring: &mut Ring<Arc<EdgeKeys>>,
    envelope: &'a mut [u8],
    bound: &[u8],
) -> Result<&'a mut [u8], Refused> {
    let key_id = Opener::key_id_of(envelope).ok_or(Refused::Malformed)?;
    let epoch = ring.by_id(key_id).ok_or(Refused::UnknownKey)?;
    let receiver = epoch.keys.to_receive.as_ref().ok_or(Refused::UnknownKey)?;
    let packet = receiver.opener.open(envelope, bound)?;
    confirm(&epoch.keys.is_confirmed);
    ring.confirm(key_id);
    Ok(packet)
}

/// Verifies a report of the other end by its seal, once.
///
/// # Errors
/// The other end did not make it, or it was already received.
pub fn open_report(
    ring: &mut Ring<Arc<EdgeKeys>>,
    seal: &[u8],
    report: &[u8],
) -> Result<(), Refused> {
    let key_id = Opener::key_id_of(seal).ok_or(Refused::Malformed)?;
    let epoch = ring.by_id(key_id).ok_or(Refused::UnknownKey)?;
    let receiver = epoch.keys.to_receive.as_ref().ok_or(Refused::UnknownKey)?;
    receiver.opener.open_report(seal, report)?;
    confirm(&epoch.keys.is_confirmed);
    ring.confirm(key_id);
    Ok(())
}

fn lane(source_port: u16) -> usize {
    usize::from(source_port) % LANES
}

/// Written once: otherwise workers would contend for the cache line.
#[inline]
fn confirm(flag: &AtomicBool) {
    if !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Relaxed);
    }
}
