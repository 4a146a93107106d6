//! Keys of a flow to several sinks: drawn by its source, and sent to each sink individually.
//!
//! ```text
//! telling  = 0x27, 6, 0, 0 || stamp (64) || noise || mac1 (128)
//! noise    = Noise_K_25519_ChaChaPoly_BLAKE2s of the source to the sink, payload:
//!            secret of the group (256) || opening, see `one_way`
//! prologue = "recoded v2" || header and stamp || "group" || flow (32)
//! mac1     = as of handshakes between source and sink: only these two can form it
//! ```
//!
//! The opening is that of a path without a return path. It uses the secret of the group instead of
//! a pre-shared key, and the way from the source to itself. Each epoch has a secret of its own, so
//! a sink that does not receive the next one cannot read that epoch. Epochs change as described in
//! `one_way_keys`, and at once when the sinks change; a removed sink can still read for one second,
//! while the next secret is announced.
//!
//! No sink answers, so this needs no return path, and has no forward secrecy: an attacker who
//! learns the private key of a sink can read traffic recorded for it. All sinks have all keys: a
//! lying sink on the path to another one can send in the name of the source.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::association::{EpochKeys, Turn};
use crate::epoch_keys::EdgeKeys;
use crate::error::Refused;
use crate::handshake::timing::EPOCH_NANOS_MAX;
use crate::handshake::{FIRST_BYTE, GROUP, MAC, Mac1, Scope, noise};
use crate::homomorphic::Strength;
use crate::keys::{Entropy, PresharedKey, PrivateKey, PublicKey};
use crate::one_way::{KeyDirection, OPENING_BYTES, OneWayReceiver, Remembered};
use crate::one_way_keys::{Keep, OneWayKeys};
use crate::profile::Profile;
use crate::ring::{Epoch, Ring};

const HEAD: usize = 12;
const SECRET: usize = 32;
const PAYLOAD: usize = SECRET + OPENING_BYTES;
const NOISE: usize = 32 + PAYLOAD + 16;

/// Bytes of a group message, a *telling*.
pub const GROUP_BYTES: usize = HEAD + NOISE + MAC;

/// Maximum sinks of a flow: each is sent 28 messages in ten seconds.
pub const GROUP_SINKS_MAX: usize = 64;

/// Whether a message is a group message, for any sink.
#[must_use]
pub fn is_group(message: &[u8]) -> bool {
    message.first_chunk() == Some(&[FIRST_BYTE, GROUP])
}

/// The way of a group of this source.
#[must_use]
pub const fn group_way(source: PublicKey, flow: u32) -> KeyDirection {
    KeyDirection { scope: Scope::Edge(flow), sender: source, receiver: source }
}

/// Writes the message that announces an epoch to a sink.
///
/// # Errors
/// Noise fails, which it does for no key of [`PublicKey`].
pub fn write_group(
    source: &PrivateKey,
    sink: &PublicKey,
    flow: u32,
    secret: &PresharedKey,
    opening: &[u8; OPENING_BYTES],
    entropy: &Entropy,
) -> Result<[u8; GROUP_BYTES], Refused> {
    let mut message = [0; GROUP_BYTES];
    let (before, tag) = message.split_last_chunk_mut::<MAC>().ok_or(Refused::Long)?;
    let (head, sealed) = before.split_at_mut(HEAD);
    head[..4].copy_from_slice(&[FIRST_BYTE, GROUP, 0, 0]);
    head[4..].copy_from_slice(&stamp_of(opening).to_be_bytes());
    let mut payload = Zeroizing::new([0; PAYLOAD]);
    payload[..SECRET].copy_from_slice(secret.bytes());
    payload[SECRET..].copy_from_slice(opening);
    noise::seal_for(source, sink, &prologue(head, flow), entropy, &*payload, sealed)?;
    *tag = Mac1::to(source, sink, Scope::Edge(flow)).of(before);
    Ok(message)
}

fn stamp_of(opening: &[u8; OPENING_BYTES]) -> u64 {
    let stamp = opening[20..].first_chunk().expect("an opening has a stamp");
    u64::from_be_bytes(*stamp)
}

fn prologue(head: &[u8], flow: u32) -> Vec<u8> {
    [noise::PROLOGUE, head, b"group", &flow.to_be_bytes()].concat()
}

/// The source of a flow to several sinks.
pub struct GroupSender {
    private: PrivateKey,
    flow: u32,
    sinks: Vec<PublicKey>,
    keys: OneWayKeys<EdgeKeys>,
    /// Message for each sink, for the epoch with this opening.
    tellings: Vec<[u8; GROUP_BYTES]>,
    opening: [u8; OPENING_BYTES],
}

impl GroupSender {
    /// Begins with epochs newer than the one that an earlier start stored.
    #[must_use]
    pub fn new(
        private: PrivateKey,
        flow: u32,
        sinks: Vec<PublicKey>,
        profile: impl Into<Profile>,
        newest: Option<Remembered>,
        entropy: &Entropy,
    ) -> Self {
        let way = group_way(private.public(), flow);
        let keys = OneWayKeys::new().drawing(way, profile.into(), newest, entropy);
        let opening = [0; OPENING_BYTES];
        Self { private, flow, sinks, keys, tellings: Vec::new(), opening }
    }

    /// The epochs that are valid.
    #[must_use]
    pub const fn ring(&self) -> &Ring<Arc<EdgeKeys>> {
        self.keys.ring()
    }

    /// Epochs that were begun.
    #[must_use]
    pub const fn epochs(&self) -> u64 {
        self.keys.epochs().0
    }

    /// Sets other sinks, under new keys, from now on. Returns whether that is a change.
    pub fn set_sinks(&mut self, now: u64, sinks: Vec<PublicKey>) -> bool {
        let is_change = sinks != self.sinks;
        if is_change {
            self.sinks = sinks;
            self.tellings.clear();
            self.keys.begin_anew(now);
        }
        is_change
    }

    /// Announces new keys soon; the present ones stay valid meanwhile.
    pub fn renew(&mut self, now: u64) {
        self.keys.renew(now);
    }

    /// Performs due work, like [`OneWayKeys::poll`]. If `send` is not 0, [`GroupSender::tellings`]
    /// must be sent.
    ///
    /// # Errors
    /// `fresh` gives no random bytes.
    pub fn poll<E>(
        &mut self,
        now: u64,
        stamp: u64,
        fresh: impl Fn() -> Result<Entropy, E>,
        keep: Keep<'_>,
    ) -> Result<Result<Turn, Refused>, E> {
        let mut opening = [0; OPENING_BYTES];
        let turn = match self.keys.poll(now, stamp, &fresh()?, &mut opening, keep) {
            Ok(turn) => turn,
            Err(reason) => return Ok(Err(reason)),
        };
        if turn.send > 0 && (opening != self.opening || self.tellings.len() != self.sinks.len()) {
            self.opening = opening;
            self.tellings.clear();
            for sink in &self.sinks {
                let Some(secret) = self.keys.drawn() else { break };
                let entropy = fresh()?;
                match write_group(&self.private, sink, self.flow, secret, &opening, &entropy) {
                    Ok(telling) => self.tellings.push(telling),
                    Err(reason) => return Ok(Err(reason)),
                }
            }
        }
        Ok(Ok(turn))
    }

    /// Messages that announce the newest epoch to each sink.
    #[must_use]
    pub fn tellings(&self) -> &[[u8; GROUP_BYTES]] {
        &self.tellings
    }

    /// When [`GroupSender::poll`] has work.
    #[must_use]
    pub fn wake(&self) -> u64 {
        self.keys.wake()
    }
}

/// One of the sinks.
pub struct GroupReceiver {
    private: PrivateKey,
    way: KeyDirection,
    mac1: Mac1,
    strength: Strength,
    newest: Option<Remembered>,
    ring: Ring<Arc<EdgeKeys>>,
    told: u64,
    heard: Option<u64>,
}

impl GroupReceiver {
    /// For the sink with this private key. `newest` is the state of [`group_way`] that an earlier
    /// start stored.
    #[must_use]
    pub fn new(
        private: PrivateKey,
        source: PublicKey,
        flow: u32,
        newest: Option<Remembered>,
    ) -> Self {
        let way = group_way(source, flow);
        let mac1 = Mac1::from(&private, &source, way.scope);
        let (strength, ring) = (Strength::Standard, Ring::default());
        Self { private, way, mac1, strength, newest, ring, told: 0, heard: None }
    }

    /// Accepts only epochs with tags of this strength; the default is [`Strength::Standard`].
    #[must_use]
    pub fn requiring(mut self, strength: Strength) -> Self {
        self.strength = strength;
        self
    }

    /// The epochs that are valid.
    #[must_use]
    pub const fn ring(&self) -> &Ring<Arc<EdgeKeys>> {
        &self.ring
    }

    /// Epochs that were announced.
    #[must_use]
    pub const fn epochs(&self) -> u64 {
        self.told
    }

    /// When the newest one arrived, while it is valid.
    #[must_use]
    pub fn heard(&self, now: u64) -> Option<u64> {
        self.heard.filter(|heard| now.saturating_sub(*heard) < EPOCH_NANOS_MAX)
    }

    /// Whether the source formed a group message for this sink, now or before. Takes a hash.
    #[must_use]
    pub fn is_for_this(&self, message: &[u8]) -> bool {
        self.mac1.verifies(message)
    }

    /// Reads a group message. Returns whether workers need a new copy of [`GroupReceiver::ring`].
    ///
    /// # Errors
    /// It is not from this source for this sink and flow, belongs to an epoch that is over, or
    /// could not be stored. No state has changed then.
    pub fn receive(&mut self, now: u64, message: &[u8], keep: Keep<'_>) -> Result<bool, Refused> {
        let message: &[u8; GROUP_BYTES] = message.try_into().map_err(|_| Refused::Malformed)?;
        let (head, rest) = message.split_first_chunk::<HEAD>().ok_or(Refused::Malformed)?;
        let [FIRST_BYTE, GROUP, 0, 0, stamp @ ..] = *head else { return Err(Refused::Malformed) };
        if !self.is_for_this(message) {
            return Err(Refused::OtherPeer);
        }
        let stamp = u64::from_be_bytes(stamp);
        match self.newest {
            Some(newest) if newest.stamp == stamp => return Ok(false),
            Some(newest) if newest.stamp > stamp => return Err(Refused::Stale),
            _ => {}
        }
        let Scope::Edge(flow) = self.way.scope else { return Err(Refused::Malformed) };
        let mut payload = Zeroizing::new([0; PAYLOAD]);
        let (source, prologue) = (&self.way.sender, prologue(head, flow));
        noise::open_from(&self.private, source, &prologue, &rest[..NOISE], &mut *payload)?;
        let (secret, opening) = payload.split_first_chunk().ok_or(Refused::Malformed)?;
        let secret = PresharedKey::of_group(*secret);
        let receiver = OneWayReceiver::new(secret, self.way, self.newest);
        let opened = receiver.requiring(self.strength).receive(opening)?.ok_or(Refused::Stale)?;
        if opened.remembered.stamp != stamp {
            return Err(Refused::Malformed);
        }
        if !keep(&self.way, opened.remembered) {
            return Err(Refused::NotKept);
        }
        self.newest = Some(opened.remembered);
        let keys = Arc::new(EdgeKeys::to_receive(&opened.secrets, opened.key_id, opened.profile));
        self.ring.admit(Epoch { key_id: opened.key_id, since: now, keys });
        (self.told, self.heard) = (self.told + 1, Some(now));
        Ok(true)
    }

    /// Forgets expired epochs. Returns whether there were any.
    pub fn expire(&mut self, now: u64) -> bool {
        self.ring.expire(now, EPOCH_NANOS_MAX)
    }
}
