//! The handshakes with one peer, as a state machine: messages, times and entropy in; messages and
//! secrets out. Allocates for each handshake, never for a packet.

use snow::HandshakeState;
use std::collections::VecDeque;

use super::cookie::{Admission, Arrived, Gate, Stamps};
use super::marks::{Marked, Marks};
use super::message::{
    FIRST_BYTE, HEADER, INITIATION, INITIATION_BYTES, INITIATION_PAYLOAD, MACS, MARKS_BYTES,
    Message, RESPONSE, RESPONSE_BYTES, RESPONSE_PAYLOAD, parse,
};
use super::noise::{self, Split};
pub use super::noise::{Identity, Scope};
use super::timing::{
    EPOCH_NANOS_MAX, INITIATION_NANOS_MIN, INITIATIONS_KNOWN, REKEY_NANOS, REKEY_RESPONDER_NANOS,
    RETRY_NANOS, RETRY_NANOS_MAX, RETRY_ROUND, STALE_NANOS, STALE_PAUSE_NANOS, START_NANOS,
};
use crate::REKEY_PACKETS;
use crate::derive::Secrets;
use crate::envelope::Suite;
use crate::error::Refused;
use crate::keys::Entropy;
use crate::profile::Profile;
use crate::ring::{Epoch, Ring};

/// Requests of a [`Session`] to its caller.
#[derive(Debug, Default)]
pub struct Step {
    /// Bytes of the buffer to send to the peer; 0 for nothing.
    pub send: usize,
    /// A new epoch, for the caller's own [`Ring`].
    pub established: Option<Established>,
    /// Why there is none, although the peer is the right one and gets an answer.
    pub refusal: Option<Refused>,
}

/// A finished handshake.
#[derive(Debug)]
pub struct Established {
    /// Key id of these keys in packets from the peer.
    pub key_id: u8,
    /// Key id of these keys in packets to the peer.
    pub peer_key_id: u8,
    /// Secret of the direction to the peer.
    pub send: Secrets,
    /// Secret of the direction from the peer.
    pub receive: Secrets,
    /// The AEAD that both ends use, and the strength of their tags.
    pub profile: Profile,
    /// True: [`Ring::install`] it, and send the peer a packet at once, empty if need be, so that it
    /// sees that its response arrived. False: [`Ring::propose`] it, and call [`Session::confirm`]
    /// once a packet of it has been verified.
    pub is_confirmed: bool,
}

/// The handshakes with one peer. Create a new one at every start, with fresh keys.
pub struct Session {
    identity: Identity,
    profile: Profile,
    path: u8,
    stamps: Stamps,
    marks: Marks,
    ring: Ring<Began>,
    pending: Option<Pending>,
    /// Earlier initiations, the newest first.
    earlier: VecDeque<Pending>,
    /// Time from an initiation to its response, for the newest response; 0 before.
    round_trip: u64,
    /// When the next initiation is sent, unless a packet changes that.
    next_initiation: u64,
    retries: u32,
    last_id: u8,
    last_stamp: u64,
    /// Newest stamp of the peer's initiations, and when it arrived.
    peer_stamp: Option<(u64, u64)>,
    /// When the peer last sent a far too old initiation.
    stale_at: Option<u64>,
}

/// Which side began an epoch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Began {
    Here,
    There,
}

/// An initiation that waits for its response.
struct Pending {
    key_id: u8,
    sent_at: u64,
    state: HandshakeState,
}

impl Session {
    /// `entropy` is not that of a handshake.
    #[must_use]
    pub fn new(
        identity: Identity,
        profile: impl Into<Profile>,
        now: u64,
        entropy: &Entropy,
    ) -> Self {
        let waits = identity.private.public() > identity.peer;
        let wait = if waits { START_NANOS } else { 0 };
        Self {
            stamps: Stamps::new(&identity, now),
            marks: Marks::new(entropy),
            identity,
            profile: profile.into(),
            path: 0,
            ring: Ring::default(),
            pending: None,
            earlier: VecDeque::new(),
            round_trip: 0,
            next_initiation: now.saturating_add(wait),
            retries: 0,
            last_id: entropy.extra::<1>(0)[0],
            last_stamp: 0,
            peer_stamp: None,
            stale_at: None,
        }
    }

    /// The handshakes over one of several paths to the peer. Path 0 is the only one otherwise.
    #[must_use]
    pub const fn over(mut self, path: u8) -> Self {
        self.path = path;
        self
    }

    /// Their path.
    #[must_use]
    pub const fn path(&self) -> u8 {
        self.path
    }

    /// Begins a handshake when it is time. `stamp` is the wall clock in nanoseconds, or another
    /// number that grows from start to start of this node; `packets` is how many the newest epoch
    /// has sent. `out` has room for [`HANDSHAKE_BYTES_MAX`](super::HANDSHAKE_BYTES_MAX) bytes.
    ///
    /// # Errors
    /// The buffer is too short.
    pub fn poll(
        &mut self,
        now: u64,
        stamp: u64,
        packets: u64,
        entropy: &Entropy,
        out: &mut [u8],
    ) -> Result<Step, Refused> {
        self.ring.expire(now, EPOCH_NANOS_MAX);
        if packets >= REKEY_PACKETS && self.pending.is_none() {
            self.next_initiation = self.next_initiation.min(now);
        }
        if now < self.next_initiation {
            return Ok(Step::default());
        }
        self.last_stamp = stamp.max(self.last_stamp + 1);
        self.last_id = self.free_id();
        let header = [FIRST_BYTE, INITIATION, self.last_id, self.path];
        let mut state = noise::initiator(&self.identity, &header, entropy)?;
        let mut payload = [0; INITIATION_PAYLOAD];
        payload[..8].copy_from_slice(&self.last_stamp.to_be_bytes());
        payload[8] = self.profile.code();
        payload[9..].copy_from_slice(&self.marks.make(entropy).bytes());
        let message = out.get_mut(..INITIATION_BYTES).ok_or(Refused::Long)?;
        write(&mut state, &header, &payload, message)?;
        self.stamps.write(now, message);
        let pending = Pending { key_id: self.last_id, sent_at: now, state };
        self.earlier.truncate(INITIATIONS_KNOWN - 1);
        self.pending
            .replace(pending)
            .into_iter()
            .for_each(|before| self.earlier.push_front(before));
        let wait = retry_wait(self.retries, self.round_trip, entropy);
        self.next_initiation = now.saturating_add(wait);
        self.retries = self.retries.saturating_add(1);
        Ok(Step { send: INITIATION_BYTES, ..Step::default() })
    }

    /// Whether the peer formed this message for this node, now or before: its first MAC is right,
    /// or it is a cookie, which has none. No state changes.
    #[must_use]
    pub fn is_from_peer(&self, message: &[u8]) -> bool {
        self.stamps.is_from_peer(message)
    }

    /// Whether a message may be read: its first MAC is right, and there are fewer than
    /// [`HANDSHAKES_PER_SECOND`](super::timing::HANDSHAKES_PER_SECOND), or it has the MAC of a
    /// cookie of `gate`. `out` has room for [`HANDSHAKE_BYTES_MAX`](super::HANDSHAKE_BYTES_MAX)
    /// bytes. Cookies need no MAC; they are for the session that waits for one.
    ///
    /// # Errors
    /// It is not a handshake message, or its MAC is wrong.
    pub fn admit(
        &mut self,
        gate: &mut Gate,
        now: u64,
        entropy: &Entropy,
        arrived: Arrived<'_>,
        out: &mut [u8],
    ) -> Result<Admission, Refused> {
        self.stamps.admit(gate, now, entropy, arrived, out)
    }

    /// Reads a message that [`Session::admit`] passed. A refused message changes nothing,
    /// with one exception: a far too old initiation of the peer makes this side begin a handshake,
    /// at most once a second. Either the peer's clock went back while it restarted, or the
    /// initiation is a recorded one.
    ///
    /// # Errors
    /// It is not a message of this peer, or it is unexpected or a replay.
    pub fn receive(
        &mut self,
        now: u64,
        entropy: &Entropy,
        message: &[u8],
        out: &mut [u8],
    ) -> Result<Step, Refused> {
        match parse(message).ok_or(Refused::Malformed)? {
            Message::Initiation { header, noise } => self.respond(now, entropy, header, noise, out),
            Message::Response { path, .. } if path != self.path => Err(Refused::OtherPath),
            Message::Response { receiver, noise, .. } => self.finish(now, receiver, noise),
            Message::Cookie { answered, nonce, sealed } => {
                self.stamps.read_cookie(now, answered, nonce, sealed)?;
                self.hurry(now);
                Ok(Step::default())
            }
        }
    }

    /// Notes that a packet under these keys has been verified: the peer has them. Only then can
    /// this side skip a handshake of its own: the initiation may have been a recorded one.
    pub fn confirm(&mut self, now: u64, key_id: u8) {
        if self.ring.confirm(key_id) {
            // The peer is up and does not answer: this side's stamps are too old for it.
            if self.retries > RETRY_ROUND {
                self.pending = None;
                self.retries = 0;
            }
            self.plan_rekey(now, REKEY_RESPONDER_NANOS);
        }
    }

    /// Marks for another message to the peer that the keys authenticate.
    pub fn marks(&mut self, entropy: &Entropy) -> [u8; MARKS_BYTES] {
        self.marks.make(entropy).bytes()
    }

    /// Reads the marks of another message of the peer that the keys authenticate.
    ///
    /// # Errors
    /// [`Refused::SetBack`] if they show that this session was set back.
    pub fn read_marks(&mut self, now: u64, marks: &[u8; MARKS_BYTES]) -> Result<(), Refused> {
        self.marks.read(now, &Marked::read(marks))
    }

    /// Begins a handshake with the next [`Session::poll`], unless one is pending.
    pub fn renew(&mut self, now: u64) {
        if self.pending.is_none() {
            self.next_initiation = self.next_initiation.min(now);
        }
    }

    /// The newest stamp of the peer's initiations; 0 before the first.
    #[must_use]
    pub fn peer_stamp(&self) -> u64 {
        self.peer_stamp.map_or(0, |(stamp, _)| stamp)
    }

    /// Initiations without a response.
    #[must_use]
    pub const fn retries(&self) -> u32 {
        self.retries
    }

    /// Time from an initiation to its response, for the newest response; 0 before.
    #[must_use]
    pub const fn round_trip(&self) -> u64 {
        self.round_trip
    }

    /// When [`Session::poll`] has work.
    #[must_use]
    pub const fn wake(&self) -> u64 {
        self.next_initiation
    }

    fn respond(
        &mut self,
        now: u64,
        entropy: &Entropy,
        header: &[u8; HEADER],
        noise: &[u8],
        out: &mut [u8],
    ) -> Result<Step, Refused> {
        if self.peer_stamp.is_some_and(|(_, at)| now.saturating_sub(at) < INITIATION_NANOS_MIN) {
            return Err(Refused::TooSoon);
        }
        let mut state = noise::responder(&self.identity, header, entropy)?;
        let mut payload = [0; INITIATION_PAYLOAD];
        read(&mut state, noise, &mut payload)?;
        if state.get_remote_static() != Some(self.identity.peer.bytes()) {
            return Err(Refused::OtherPeer);
        }
        // The peer wrote it: the prologue includes the header.
        if header[3] != self.path {
            return Err(Refused::OtherPath);
        }
        let (start, marks): ([u8; 9], _) = split_marks(&payload);
        let [stamp @ .., code] = start;
        let stamp = u64::from_be_bytes(stamp);
        self.marks.check(&marks)?;
        if let Some((newest, _)) = self.peer_stamp.filter(|(newest, _)| stamp <= *newest) {
            if newest - stamp > STALE_NANOS {
                self.begin_instead(now);
            }
            return Err(Refused::Stale);
        }
        let agreed = self.agree(code);
        // The answer carries the profile, so that the peer can refuse it, too.
        let answer = match agreed {
            Ok(profile) => profile,
            Err(Refused::Strength) => self.profile,
            Err(reason) => return Err(reason),
        };
        let key_id = self.free_id();
        let message = out.get_mut(..RESPONSE_BYTES).ok_or(Refused::Long)?;
        let response = [FIRST_BYTE, RESPONSE, self.path, header[2]];
        let mut payload = [0; RESPONSE_PAYLOAD];
        payload[..2].copy_from_slice(&[key_id, answer.code()]);
        payload[2..].copy_from_slice(&self.marks.make(entropy).bytes());
        write(&mut state, &response, &payload, message)?;
        self.stamps.write(now, message);
        self.marks.note(now, &marks);
        self.peer_stamp = Some((stamp, now));
        let profile = match agreed {
            Ok(profile) => profile,
            Err(reason) => {
                return Ok(Step { send: RESPONSE_BYTES, established: None, refusal: Some(reason) });
            }
        };
        self.last_id = key_id;
        self.ring.propose(Epoch { key_id, since: now, keys: Began::There });
        let Split { send, receive } = noise::split(&mut state);
        let established = Established {
            key_id,
            peer_key_id: header[2],
            send,
            receive,
            profile,
            is_confirmed: false,
        };
        Ok(Step { send: RESPONSE_BYTES, established: Some(established), refusal: None })
    }

    /// Sends the next initiation, with the cookie that arrived, once no response to the pending one
    /// can be in flight. An attacker who reads the link can forge cookies, and a response is read
    /// only while its initiation is the newest: a cookie shortens the longer waits, no others. The
    /// peer begins again if one answers a response.
    fn hurry(&mut self, now: u64) {
        let Some(pending) = &self.pending else { return };
        let end = pending.sent_at.saturating_add(shortest_wait(self.round_trip));
        let again = now.saturating_add(INITIATION_NANOS_MIN).max(end);
        self.next_initiation = self.next_initiation.min(again);
    }

    /// Begins a handshake to replace one that the peer began with too old a stamp.
    fn begin_instead(&mut self, now: u64) {
        if self.stale_at.is_none_or(|at| now.saturating_sub(at) >= STALE_PAUSE_NANOS) {
            self.stale_at = Some(now);
            self.next_initiation = self.next_initiation.min(now);
        }
    }

    fn finish(&mut self, now: u64, receiver: u8, noise: &[u8]) -> Result<Step, Refused> {
        let pending = self.pending.as_mut().filter(|pending| pending.key_id == receiver);
        let Some(Pending { key_id, sent_at, state }) = pending else {
            self.learn(now, receiver, noise)?;
            return Ok(Step::default());
        };
        let mut payload = [0; RESPONSE_PAYLOAD];
        read(state, noise, &mut payload)?;
        let key_id = *key_id;
        let ([peer_key_id, code], marks) = split_marks(&payload);
        let Split { send, receive } = noise::split(state);
        self.round_trip = now.saturating_sub(*sent_at);
        // The handshake is complete, regardless of the payload: snow reads a response once.
        self.pending = None;
        self.earlier.clear();
        self.marks.read(now, &marks)?;
        let profile = self.agree(code)?;
        self.retries = 0;
        self.ring.install(Epoch { key_id, since: now, keys: Began::Here });
        self.plan_rekey(now, REKEY_NANOS);
        let established =
            Established { key_id, peer_key_id, send, receive, profile, is_confirmed: true };
        Ok(Step { established: Some(established), ..Step::default() })
    }

    /// Reads a response that came too late: the awaited one will take as long.
    fn learn(&mut self, now: u64, receiver: u8, noise: &[u8]) -> Result<(), Refused> {
        let place = self.earlier.iter().position(|earlier| earlier.key_id == receiver);
        let place = place.ok_or(Refused::Unexpected)?;
        let mut payload = [0; RESPONSE_PAYLOAD];
        read(&mut self.earlier[place].state, noise, &mut payload)?;
        self.round_trip = now.saturating_sub(self.earlier[place].sent_at);
        self.earlier.remove(place);
        let (_, marks): ([u8; 2], _) = split_marks(&payload);
        self.marks.read(now, &marks)?;
        if let Some(pending) = &self.pending {
            let end = pending.sent_at.saturating_add(shortest_wait(self.round_trip));
            self.next_initiation = self.next_initiation.max(end);
        }
        Ok(())
    }

    /// Schedules the next handshake by the age of this one. A pending handshake continues: it may
    /// have been begun because the peer lost its keys.
    fn plan_rekey(&mut self, now: u64, after: u64) {
        if self.pending.is_none() {
            self.next_initiation = now.saturating_add(after);
        }
    }

    /// AES if both prefer it; tags must match.
    fn agree(&self, code: u8) -> Result<Profile, Refused> {
        let theirs = Profile::required(code, self.profile.strength)?;
        let suite = if theirs == self.profile { theirs.suite } else { Suite::ChaCha20Poly1305 };
        Ok(Profile { suite, ..theirs })
    }

    /// An id that no epoch and no pending handshake has.
    fn free_id(&self) -> u8 {
        let is_taken = |id: u8| {
            let mut pending = self.earlier.iter().chain(&self.pending);
            self.ring.holds(id) || pending.any(|pending| pending.key_id == id)
        };
        let mut id = self.last_id.wrapping_add(1);
        while is_taken(id) {
            id = id.wrapping_add(1);
        }
        id
    }
}

/// Writes header and noise message, and leaves room for the MACs.
fn write(
    state: &mut HandshakeState,
    header: &[u8; HEADER],
    payload: &[u8],
    message: &mut [u8],
) -> Result<(), Refused> {
    let end = message.len() - MACS;
    message[..HEADER].copy_from_slice(header);
    let written = state.write_message(payload, &mut message[HEADER..end]);
    match written {
        Ok(length) if HEADER + length == end => Ok(()),
        _ => Err(Refused::Handshake),
    }
}

/// Reads a noise message with a payload of exactly this length.
fn read<const N: usize>(
    state: &mut HandshakeState,
    noise: &[u8],
    payload: &mut [u8; N],
) -> Result<(), Refused> {
    match state.read_message(noise, payload) {
        Ok(length) if length == N => Ok(()),
        _ => Err(Refused::Handshake),
    }
}

/// The start of a payload, and the marks behind it.
fn split_marks<const N: usize, const START: usize>(payload: &[u8; N]) -> ([u8; START], Marked) {
    const { assert!(N == START + MARKS_BYTES) };
    let start = payload.first_chunk().expect("shorter than the payload");
    let marks = payload.last_chunk().expect("shorter than the payload");
    (*start, Marked::read(marks))
}

/// The shortest wait for a response over a path of this round trip.
fn shortest_wait(round_trip: u64) -> u64 {
    (round_trip + round_trip / 4).clamp(RETRY_NANOS, RETRY_NANOS_MAX)
}

/// How long to wait for a response after this many initiations without one.
fn retry_wait(retries: u32, round_trip: u64, entropy: &Entropy) -> u64 {
    let short = shortest_wait(round_trip);
    let round = retries / RETRY_ROUND + 1;
    let long = RETRY_NANOS.checked_shl(round.min(8)).unwrap_or(RETRY_NANOS_MAX);
    let is_short = retries % RETRY_ROUND + 1 < RETRY_ROUND && long < RETRY_NANOS_MAX;
    let wait = if is_short { short } else { long.clamp(short, RETRY_NANOS_MAX) };
    let chance = u64::from(u16::from_be_bytes(entropy.extra(24)));
    wait + wait / 4 * chance / u64::from(u16::MAX)
}
