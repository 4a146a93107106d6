//! Receives a content from several peers. Datagrams and the time in, datagrams out: no socket, no
//! clock.
//!
//! ```text
//!  hello, challenge, hello, welcome      a session with each peer
//!  manifest                              from any peer; its hash is the content id
//!  checks of a segment                   from the source, sealed for this client
//!  grants --> blocks --> verify --> eliminate --> decode --> SHA-256 --> Store
//! ```
//!
//! A peer that sends a wrong block is banned. With checks that is certain for each block. Without a
//! source, a segment is decoded from one peer only, so that a wrong SHA-256 accuses the right one.

mod decoder;
mod manifest;
mod peer;
mod schedule;

use std::sync::Arc;

use decoder::{Decoder, Trust, Verdict};
use manifest::{Fetch, Fetched};
use peer::Peer;

pub use peer::PeerState;

use crate::bounds::BLOCKS_MAX;
use crate::error::ManifestError;
use crate::keys::{
    DatagramKey, KeyPair, SealPlace, SessionKeys, SharedKey, authenticate, authenticated,
};
use crate::manifest::ContentId;
use crate::random::{Random, expand};
use crate::store::{Segment, Store};
use crate::wire::{Block, Coding, Hello, Message, Refusal};

const MILLI: u64 = 1_000_000;

/// Redundant blocks in a row after which a complete peer is paused.
const REDUNDANT_MAX: u32 = 8;

/// How long a peer that had nothing new is not asked for the same segment.
const PAUSE_NANOS: u64 = 250 * MILLI;

/// Challenges with new cookies that a peer may answer hellos with before one times out.
const CHALLENGES_MAX: u32 = 4;

/// Windows of segments that may be complete before the first missing one is. At half, one slow
/// segment stops the others earlier; at twice, a receiver needs twice the memory.
const AHEAD: u32 = 4;

/// Limits of a client.
#[derive(Copy, Clone, Debug)]
pub struct ClientLimits {
    /// Most kbit/s in all.
    pub rate_kbit: u32,
    /// Segments that are decoded at the same time.
    pub window: usize,
    /// Whether partial segments are kept in the store, for a server.
    pub is_sharing: bool,
}

/// State of a transfer.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// Complete segments.
    pub segments: u32,
    /// Innovative blocks.
    pub innovative: u64,
    /// Blocks that brought nothing new.
    pub redundant: u64,
    /// Wrong blocks, checks and manifests. Each banned a peer.
    pub forged: u64,
    /// Segments that did not match their SHA-256.
    pub wrong_segments: u64,
    /// Segments that did not match their SHA-256 though checks verified all their blocks.
    pub contradictions: u32,
    /// Parts of the manifest, and ranks that segments reached for the first time. It stops growing
    /// if restarts only repeat what was received before.
    pub advance: u64,
    /// Datagrams that were not understood, or not of this session.
    pub dropped: u64,
}

/// A client of one content.
pub struct Client {
    id: ContentId,
    key: Option<DatagramKey>,
    limits: ClientLimits,
    random: Random,
    session_key: KeyPair,
    peers: Vec<Peer>,
    fetch: Option<Fetch>,
    next_fetch: usize,
    store: Option<Arc<Store>>,
    shared: Option<SharedKey>,
    decoders: Vec<Decoder>,
    next_segment: u32,
    /// The first segment that is not complete.
    first_missing: u32,
    is_complete: Vec<bool>,
    progress: Progress,
    fault: Option<ManifestError>,
}

impl Client {
    /// A client that fetches a content from `peers` peers, numbered from 0. `seed` has 32
    /// unpredictable bytes.
    #[must_use]
    pub fn new(
        id: ContentId,
        key: Option<DatagramKey>,
        limits: ClientLimits,
        peers: usize,
        seed: &[u8; 32],
    ) -> Self {
        let mut random = Random::new(seed);
        Self {
            id,
            key,
            limits,
            session_key: KeyPair::new(random.array()),
            next_fetch: random.number() as usize % peers.max(1),
            random,
            peers: std::iter::repeat_with(Peer::new).take(peers).collect(),
            fetch: None,
            store: None,
            shared: None,
            decoders: Vec::with_capacity(limits.window),
            next_segment: 0,
            first_missing: 0,
            is_complete: Vec::new(),
            progress: Progress::default(),
            fault: None,
        }
    }

    /// The segments, once the manifest is known.
    #[must_use]
    pub const fn store(&self) -> Option<&Arc<Store>> {
        self.store.as_ref()
    }

    /// Whether a segment has been decoded and verified.
    #[must_use]
    pub fn is_complete(&self, segment: u32) -> bool {
        self.is_complete.get(segment as usize).is_some_and(|&is_complete| is_complete)
    }

    /// Whether all segments have been decoded and verified.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.store.is_some() && self.is_complete.iter().all(|&is_complete| is_complete)
    }

    /// The reason why the manifest of this content cannot be used.
    #[must_use]
    pub const fn fault(&self) -> Option<&ManifestError> {
        self.fault.as_ref()
    }

    /// The state of the transfer.
    #[must_use]
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    /// States of the peers, and blocks that each has sent.
    pub fn peers(&self) -> impl Iterator<Item = (PeerState, u64)> {
        self.peers.iter().map(|peer| (peer.state, peer.blocks))
    }

    /// The content of a complete segment, without padding. It is removed unless it is shared.
    #[must_use]
    pub fn take(&self, segment: u32) -> Option<Vec<u8>> {
        let store = self.store.as_ref().filter(|_| self.is_complete(segment))?;
        let range = store.layout().range(segment);
        let mut bytes = match &*store.read(segment)? {
            Segment::Complete(bytes) => bytes.clone(),
            _ => return None,
        };
        bytes.truncate((range.end - range.start) as usize);
        if !self.limits.is_sharing {
            store.set(segment, Segment::Absent);
        }
        Some(bytes)
    }

    /// Processes a datagram of a peer.
    pub fn handle(&mut self, now: u64, peer: usize, datagram: &[u8]) {
        let message = authenticated(self.key.as_ref(), datagram);
        let message = message.and_then(|message| Message::parse(message).ok());
        let is_used = match (message, self.peers.get(peer)) {
            (Some(message), Some(known)) if known.state != PeerState::Banned => {
                self.dispatch(now, peer, message)
            }
            _ => false,
        };
        self.progress.dropped += u64::from(!is_used);
    }

    fn dispatch(&mut self, now: u64, number: usize, message: Message<'_>) -> bool {
        let peer = &mut self.peers[number];
        let is_its = |session| peer.is_open() && session == peer.session;
        match message {
            Message::Challenge { nonce, cookie } if nonce == peer.nonce && !peer.is_open() => {
                // The same cookie again is no reason to send another hello at once.
                if peer.cookie != cookie && peer.challenges < CHALLENGES_MAX {
                    peer.challenges += 1;
                    peer.measure_rtt(now);
                    peer.cookie = cookie;
                    peer.hello_at = None;
                }
            }
            // Repeated, it would pass for progress.
            Message::Welcome(welcome) if welcome.nonce == peer.nonce && !peer.is_open() => {
                peer.measure_rtt(now);
                peer.manifest_bytes = welcome.manifest_bytes;
                peer.is_source = welcome.is_source;
                peer.open(now, welcome.session);
            }
            Message::Refused { nonce, reason } if nonce == peer.nonce && !peer.is_open() => {
                peer.state = match reason {
                    Refusal::Full => PeerState::Full,
                    Refusal::OtherContent => PeerState::OtherContent,
                };
            }
            Message::ManifestPart { session, offset, bytes } if is_its(session) => {
                self.manifest_part(number, offset, bytes);
            }
            Message::Checks { session, segment, part, sealed } if is_its(session) => {
                self.checks(number, SealPlace { segment, part }, sealed);
            }
            Message::Block(block) if is_its(block.session) => {
                return self.block(now, number, &block);
            }
            Message::Unavailable { session, segment } if is_its(session) => {
                if let Some(grant) = peer.grant(segment) {
                    grant.pause(now + 2 * PAUSE_NANOS);
                }
            }
            Message::Bye { session } if is_its(session) => peer.state = PeerState::Connecting,
            _ => return false,
        }
        true
    }

    fn ban(&mut self, number: usize) {
        self.progress.forged += 1;
        self.peers[number].ban();
    }

    fn manifest_part(&mut self, number: usize, offset: u32, bytes: &[u8]) {
        let Some(fetch) = self.fetch.as_mut().filter(|fetch| fetch.peer == number) else { return };
        match fetch.take(self.id, offset, bytes) {
            Fetched::Incomplete { is_new } => self.progress.advance += u64::from(is_new),
            Fetched::Invalid(fault) => {
                self.fetch = None;
                self.fault = Some(fault);
            }
            Fetched::Forged => {
                self.fetch = None;
                self.ban(number);
            }
            Fetched::Complete(manifest) => {
                self.fetch = None;
                self.progress.advance += 1;
                let keys = SessionKeys {
                    receiver: self.session_key.public(),
                    source: &manifest.source,
                    content: self.id,
                };
                self.shared = Some(self.session_key.shared(&manifest.source, keys));
                self.is_complete = vec![false; manifest.layout.segments() as usize];
                self.store = Some(Arc::new(Store::empty(manifest)));
            }
        }
    }

    fn checks(&mut self, number: usize, place: SealPlace, sealed: &[u8]) {
        let decoder = self.decoders.iter_mut().find(|d| d.segment == place.segment);
        let (Some(decoder), Some(key)) = (decoder, &self.shared) else { return };
        if let Trust::Checked(checks) = &mut decoder.trust {
            if checks.take(key, place, sealed) {
                (decoder.checks_at, decoder.checks_tries) = (None, 0);
                let peer = &mut self.peers[number];
                (peer.has_checked, peer.checks_unanswered) = (true, 0);
            } else {
                self.ban(number);
            }
        }
    }

    fn block(&mut self, now: u64, number: usize, block: &Block<'_>) -> bool {
        let Some(index) = self.decoders.iter().position(|d| d.segment == block.segment) else {
            return false;
        };
        let peer = &mut self.peers[number];
        if !peer.arrive(now, block.segment, block.number) {
            return false;
        }
        let decoder = &mut self.decoders[index];
        let blocks = decoder.blocks();
        let mut expanded = [0; BLOCKS_MAX as usize];
        let vector = match block.coding {
            Coding::Vector(vector) => vector,
            Coding::Seed(seed) => {
                expand(seed, &mut expanded[..blocks]);
                &expanded[..blocks]
            }
        };
        match decoder.insert(number, vector, block.payload) {
            Verdict::Innovative => {
                self.progress.innovative += 1;
                self.progress.advance += u64::from(decoder.grow(now));
                if let Some(grant) = peer.grant(block.segment) {
                    grant.redundant = 0;
                }
                let is_checked = matches!(decoder.trust, Trust::Checked(_));
                if let Some(store) = self.store.as_ref().filter(|_| self.limits.is_sharing)
                    && is_checked
                {
                    store.add(block.segment, vector, block.payload);
                }
                if decoder.missing() == 0 {
                    self.finish(index);
                }
            }
            Verdict::Redundant => {
                self.progress.redundant += 1;
                if let Some(grant) = peer.grant(block.segment) {
                    grant.redundant += 1;
                    let is_partial = usize::from(block.rank) < blocks;
                    if is_partial || grant.redundant >= REDUNDANT_MAX {
                        grant.pause(now + PAUSE_NANOS);
                    }
                }
            }
            Verdict::Forged => self.ban(number),
            Verdict::Ignored => {}
        }
        true
    }

    /// Decodes and verifies a segment of full rank.
    fn finish(&mut self, index: usize) {
        let Some(store) = &self.store else { return };
        let decoder = &mut self.decoders[index];
        let segment = decoder.segment;
        let range = store.layout().range(segment);
        let content_bytes = (range.end - range.start) as usize;
        let Some(mut bytes) = decoder.decode() else { return };
        if store.manifest().is_segment(segment, &bytes[..content_bytes]) {
            bytes[content_bytes..].fill(0);
            store.set(segment, Segment::Complete(bytes));
            self.is_complete[segment as usize] = true;
            self.progress.segments += 1;
            while self.is_complete(self.first_missing) {
                self.first_missing += 1;
            }
            self.decoders.swap_remove(index);
            self.peers.iter_mut().for_each(|peer| peer.revoke(segment));
            return;
        }
        self.progress.wrong_segments += 1;
        store.set(segment, Segment::Absent);
        decoder.restart();
        if let Trust::Checked(_) = &decoder.trust {
            self.progress.contradictions += 1;
        }
        if let Trust::Alone(alone) = &mut decoder.trust
            && let Some(number) = alone.take()
        {
            self.ban(number);
        }
    }

    /// Sends what is due. To be called every few milliseconds.
    pub fn poll(&mut self, now: u64, mut send: impl FnMut(usize, &[u8])) {
        let mut out = Vec::with_capacity(256);
        let key = self.key.clone();
        let mut send = |number: usize, message: &Message<'_>| {
            out.clear();
            message.write(&mut out);
            authenticate(key.as_ref(), &mut out);
            send(number, &out);
        };
        self.hellos(now, &mut send);
        if self.fault.is_some() {
            return;
        }
        if self.store.is_none() {
            return self.fetch_manifest(now, &mut send);
        }
        let eligible = self.peers.iter().filter(|peer| peer.is_open()).count();
        self.peers.iter_mut().for_each(|peer| peer.expire(now, eligible > 1));
        self.open_segments();
        self.request_checks(now, &mut send);
        self.grant(now);
        let shares = self.shares(now);
        for (number, (peer, share)) in self.peers.iter_mut().zip(shares).enumerate() {
            if let Some(request) = peer.request(now, share) {
                send(number, &Message::Request(request));
            }
        }
    }

    /// Ends all sessions.
    pub fn leave(&self, mut send: impl FnMut(usize, &[u8])) {
        for (number, peer) in self.peers.iter().enumerate().filter(|(_, peer)| peer.is_open()) {
            let mut out = Vec::new();
            Message::Bye { session: peer.session }.write(&mut out);
            authenticate(self.key.as_ref(), &mut out);
            send(number, &out);
        }
    }

    fn hellos(&mut self, now: u64, send: &mut impl FnMut(usize, &Message<'_>)) {
        for (number, peer) in self.peers.iter_mut().enumerate() {
            if peer.is_hello_due(now) {
                peer.nonce = self.random.number();
                // A hello with a new cookie follows at once, and is no further try.
                let is_try = peer.hello_at.is_some() || peer.hello_tries == 0;
                peer.hello_tries += u32::from(is_try);
                peer.hello_at = Some(now);
                // A cookie that is not answered may be old.
                if is_try && peer.hello_tries.is_multiple_of(4) {
                    (peer.cookie, peer.challenges) = ([0; 16], 0);
                }
                let hello = Hello {
                    content: self.id.0,
                    nonce: peer.nonce,
                    cookie: peer.cookie,
                    public_key: *self.session_key.public(),
                };
                send(number, &Message::Hello(hello));
            }
        }
    }

    fn fetch_manifest(&mut self, now: u64, send: &mut impl FnMut(usize, &Message<'_>)) {
        if let Some(fetch) = &self.fetch {
            let is_alone = self.peers.iter().filter(|peer| peer.is_open()).count() < 2;
            let peer = &mut self.peers[fetch.peer];
            if fetch.is_stuck(is_alone) {
                peer.reconnect();
            }
            if !peer.is_open() {
                self.fetch = None;
            }
        }
        if self.fetch.is_none() {
            let count = self.peers.len();
            let numbers = (0..count).map(|offset| (self.next_fetch + offset) % count.max(1));
            let Some(number) = numbers.into_iter().find(|&n| self.peers[n].is_open()) else {
                return;
            };
            self.next_fetch = number + 1;
            self.fetch = Fetch::new(number, self.peers[number].manifest_bytes);
            if self.fetch.is_none() {
                return self.ban(number);
            }
        }
        if let Some(fetch) = &mut self.fetch {
            let peer = &self.peers[fetch.peer];
            let session = peer.session;
            for offset in fetch.requests(now, 2 * peer.rtt + 100 * MILLI) {
                send(fetch.peer, &Message::ManifestRequest { session, offset });
            }
        }
    }

    fn open_segments(&mut self) {
        let Some(store) = &self.store else { return };
        let layout = store.layout();
        // Segments that wait for an earlier one are in memory.
        let end = self.first_missing.saturating_add(AHEAD * self.limits.window as u32);
        let end = end.min(layout.segments());
        while self.decoders.len() < self.limits.window && self.next_segment < end {
            let (segment, block_bytes) = (self.next_segment, layout.block_bytes as usize);
            self.decoders.push(Decoder::new(segment, layout.blocks_of(segment), block_bytes));
            self.next_segment += 1;
        }
        self.decoders.sort_unstable_by_key(|decoder| decoder.segment);
    }
}
