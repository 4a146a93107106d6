//! Serves the segments of a store. Datagrams and the time in, datagrams out: no socket, no clock.
//!
//! ```text
//!  hello without cookie --> challenge, shorter than the hello         no state
//!  hello with cookie ----> welcome: a place in the table              or refused: shorter, too
//!  request --------------> demands; poll sends blocks within the peer's token bucket
//! ```
//!
//! Peers and their demands are bounded, and so is the work for each datagram.

mod ahead;
mod peers;

use std::sync::Arc;

use ahead::Ahead;
use peers::{Budget, Peers, RequestLimits};

pub use peers::Path;

use crate::checks::{COLUMNS, checks_bytes, sealed_part};
use crate::error::Drop;
use crate::keys::{
    Cookies, DatagramKey, KeyPair, MAC_BYTES, SealPlace, SessionKeys, authenticate, authenticated,
};
use crate::manifest::ContentId;
use crate::random::Random;
use crate::store::{BUNDLE, Combination, Segment, Store, combine};
use crate::wire::{
    Block, Coding, Hello, Message, PART_BYTES, Refusal, Request, Welcome, block_head,
    block_head_bytes,
};

/// Bytes of one run of datagrams: below the length of an IP packet, as segmentation requires.
const RUN_BYTES_MAX: usize = 60_000;

/// Takes datagrams to send.
pub trait Outbox {
    /// Sends `bytes` as datagrams of `datagram_bytes` each to the peer of a path.
    fn send(&mut self, path: &Path, bytes: &[u8], datagram_bytes: usize);
}

/// Limits of a server.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Most peers at a time.
    pub peers: usize,
    /// Most peers at one IPv4 address or in one IPv6 /64, so that one host cannot fill the table.
    pub peers_per_host: usize,
    /// Most bytes a second for each peer, datagrams with their headers.
    pub rate_bytes: u64,
    /// Most bytes at once for each peer.
    pub burst_bytes: u64,
    /// Segments whose combinations are made ahead; 0 makes each on demand.
    pub segments_ahead: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            peers: 4096,
            peers_per_host: 256,
            rate_bytes: 2_500_000,
            burst_bytes: 16 << 10,
            segments_ahead: 16,
        }
    }
}

/// Keys of a server.
#[derive(Clone, Default)]
pub struct ServerKeys {
    /// The key of the source, which issues checks. Peers that recode have none.
    pub source: Option<KeyPair>,
    /// The pre-shared key of all datagrams.
    pub datagrams: Option<DatagramKey>,
}

/// Events since the start.
#[derive(Copy, Clone, Default, Debug)]
pub struct Counters {
    /// Dropped datagrams by reason.
    pub drops: [u64; Drop::COUNT],
    /// Blocks sent.
    pub blocks: u64,
    /// Bytes sent in datagrams.
    pub bytes: u64,
    /// Combinations computed.
    pub combinations: u64,
    /// Sessions created.
    pub sessions: u64,
    /// Peers with a session at the last poll.
    pub peers: u64,
    /// Datagrams that Linux did not take.
    pub unsent: u64,
}

impl Counters {
    /// Adds those of another worker.
    pub fn add(&mut self, other: &Self) {
        self.drops.iter_mut().zip(other.drops).for_each(|(sum, drops)| *sum += drops);
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.combinations += other.combinations;
        self.sessions += other.sessions;
        self.peers += other.peers;
        self.unsent += other.unsent;
    }
}

/// A server of one content.
pub struct Server {
    store: Arc<Store>,
    id: ContentId,
    keys: ServerKeys,
    limits: Limits,
    cookies: Cookies,
    random: Random,
    peers: Peers,
    ahead: Ahead,
    run: Vec<u8>,
    head: Vec<u8>,
    next: usize,
    counters: Counters,
}

impl Server {
    /// A server. `seed` has 32 unpredictable bytes.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        keys: ServerKeys,
        limits: Limits,
        seed: &[u8; 32],
        now: u64,
    ) -> Self {
        let mut random = Random::new(seed);
        Self {
            id: store.manifest().id(),
            store,
            keys,
            limits,
            cookies: Cookies::new(&mut random, now),
            random,
            peers: Peers::new(limits.peers, limits.peers_per_host),
            ahead: Ahead::new(limits.segments_ahead),
            run: Vec::with_capacity(RUN_BYTES_MAX),
            head: Vec::with_capacity(512),
            next: 0,
            counters: Counters::default(),
        }
    }

    /// Events since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Processes a datagram.
    pub fn handle(&mut self, now: u64, path: Path, datagram: &[u8], outbox: &mut impl Outbox) {
        if let Err(reason) = self.dispatch(now, path, datagram, outbox) {
            self.counters.drops[reason as usize] += 1;
        }
    }

    fn dispatch(
        &mut self,
        now: u64,
        path: Path,
        datagram: &[u8],
        outbox: &mut impl Outbox,
    ) -> Result<(), Drop> {
        let message = authenticated(self.keys.datagrams.as_ref(), datagram);
        let message = Message::parse(message.ok_or(Drop::Unauthenticated)?);
        match message.map_err(|_| Drop::Malformed)? {
            Message::Hello(hello) => self.hello(now, path, &hello, outbox),
            Message::ManifestRequest { session, offset } => {
                let place = self.place(now, &path, session)?;
                let store = Arc::clone(&self.store);
                let rest = store.manifest_bytes().get(offset as usize..);
                let bytes = rest.filter(|bytes| !bytes.is_empty()).ok_or(Drop::Unexpected)?;
                let bytes = &bytes[..bytes.len().min(PART_BYTES)];
                self.reply(now, place, &Message::ManifestPart { session, offset, bytes }, outbox)
            }
            Message::ChecksRequest { session, segment, part } => {
                let place = self.place(now, &path, session)?;
                self.checks(now, place, SealPlace { segment, part }, outbox)
            }
            Message::Request(request) => {
                let place = self.place(now, &path, request.session)?;
                self.request(now, place, &request, outbox)
            }
            Message::Bye { session } => {
                let place = self.place(now, &path, session)?;
                self.peers.remove(place);
                Ok(())
            }
            _ => Err(Drop::Unexpected),
        }
    }

    /// Place of a session, which exists only at its own address.
    /// Any message keeps it alive.
    fn place(&mut self, now: u64, path: &Path, session: u64) -> Result<usize, Drop> {
        let place = self.peers.find(&path.remote).ok_or(Drop::NoSession)?;
        let peer = self.peers.get(place).filter(|peer| peer.session == session);
        peer.ok_or(Drop::NoSession)?.heard_at = now;
        Ok(place)
    }

    fn hello(
        &mut self,
        now: u64,
        path: Path,
        hello: &Hello,
        outbox: &mut impl Outbox,
    ) -> Result<(), Drop> {
        let nonce = hello.nonce;
        if hello.content != self.id.0 {
            let refused = Message::Refused { nonce, reason: Refusal::OtherContent };
            self.send(&path, &refused, outbox);
            return Err(Drop::OtherContent);
        }
        self.cookies.rotate(&mut self.random, now);
        if !self.cookies.is_valid(&path.remote, &hello.cookie) {
            let cookie = self.cookies.make(&path.remote);
            self.send(&path, &Message::Challenge { nonce, cookie }, outbox);
            // The first hello has none, and is not dropped.
            return if hello.cookie == [0; 16] { Ok(()) } else { Err(Drop::Cookie) };
        }
        let Some(session) = self.session(now, path, hello) else {
            self.send(&path, &Message::Refused { nonce, reason: Refusal::Full }, outbox);
            return Err(Drop::Full);
        };
        let welcome = Message::Welcome(Welcome {
            nonce,
            session,
            manifest_bytes: self.store.manifest_bytes().len() as u32,
            is_source: self.keys.source.is_some(),
        });
        self.send(&path, &welcome, outbox);
        Ok(())
    }

    /// The session of an address that is proven, created if it has none with this public key.
    fn session(&mut self, now: u64, path: Path, hello: &Hello) -> Option<u64> {
        if let Some(place) = self.peers.find(&path.remote) {
            let peer = self.peers.get(place)?;
            if peer.public_key == hello.public_key {
                return Some(peer.session);
            }
            self.peers.remove(place);
        }
        let session = self.random.number();
        let Limits { rate_bytes, burst_bytes, .. } = self.limits;
        self.peers.add(now, path, hello, session, Budget { rate_bytes, burst_bytes })?;
        self.counters.sessions += 1;
        Some(session)
    }

    fn checks(
        &mut self,
        now: u64,
        place: usize,
        wanted: SealPlace,
        outbox: &mut impl Outbox,
    ) -> Result<(), Drop> {
        let source = self.keys.source.as_ref().ok_or(Drop::Unexpected)?;
        let peer = self.peers.get(place).ok_or(Drop::NoSession)?;
        // Spent before the work is done.
        let layout = *self.store.layout();
        let bytes = checks_bytes(layout.blocks_of(wanted.segment), wanted.part);
        let work = COLUMNS * layout.block_bytes as usize;
        if !peer.spend_in_advance(now, bytes.ok_or(Drop::Unexpected)?, work) {
            return Err(Drop::Budget);
        }
        let keys =
            SessionKeys { receiver: &peer.public_key, source: source.public(), content: self.id };
        let shared =
            peer.shared.get_or_insert_with(|| source.shared(&peer.public_key, keys)).clone();
        let (path, session) = (peer.path, peer.session);
        let store = Arc::clone(&self.store);
        let content = store.read(wanted.segment).ok_or(Drop::Unexpected)?;
        let Segment::Complete(blocks) = &*content else { return Err(Drop::Unexpected) };
        let sealed = sealed_part(&shared, wanted, blocks, store.layout().block_bytes as usize);
        let sealed = &sealed.ok_or(Drop::Unexpected)?;
        let SealPlace { segment, part } = wanted;
        self.send(&path, &Message::Checks { session, segment, part, sealed }, outbox);
        Ok(())
    }

    fn request(
        &mut self,
        now: u64,
        place: usize,
        request: &Request,
        outbox: &mut impl Outbox,
    ) -> Result<(), Drop> {
        let store = Arc::clone(&self.store);
        let layout = store.layout();
        let limits = RequestLimits {
            rate_bytes: self.limits.rate_bytes,
            segments: layout.segments(),
            pending_max: 2 * u32::from(layout.blocks),
        };
        let peer = self.peers.get(place).ok_or(Drop::NoSession)?;
        if !peer.adopt(now, request, limits) {
            return Err(Drop::Stale);
        }
        let (session, count) = (peer.session, peer.demand_count);
        for index in 0..count {
            let Some(peer) = self.peers.get(place) else { break };
            let demand = &mut peer.demands[index];
            let segment = demand.segment;
            let has_some = store.read(segment).is_some_and(|content| content.rank(layout) > 0);
            if demand.pending() > 0 && !has_some {
                demand.total = demand.sent;
                self.reply(now, place, &Message::Unavailable { session, segment }, outbox)?;
            }
        }
        Ok(())
    }

    /// Sends blocks that peers want and can be sent now. To be called every few milliseconds.
    pub fn poll(&mut self, now: u64, outbox: &mut impl Outbox) {
        let places = self.peers.places();
        for offset in 0..places {
            let place = (self.next + offset) % places;
            self.peers.expire(now, place);
            self.serve(now, place, outbox);
        }
        self.next = (self.next + 1) % places.max(1);
        self.counters.peers = self.peers.count() as u64;
    }

    /// Sends what one peer can be sent.
    fn serve(&mut self, now: u64, place: usize, outbox: &mut impl Outbox) {
        let store = Arc::clone(&self.store);
        let layout = store.layout();
        loop {
            let Some(peer) = self.peers.get(place) else { return };
            let Some(index) =
                peer.demands[..peer.demand_count].iter().position(|d| d.pending() > 0)
            else {
                return;
            };
            let demand = peer.demands[index];
            let blocks = layout.blocks_of(demand.segment);
            let Some(content) = store.read(demand.segment) else { return };
            let rank = content.rank(layout);
            let head_bytes = match &*content {
                Segment::Complete(_) => block_head_bytes(&Coding::Seed(0)),
                _ => block_head_bytes(&Coding::Vector(&[0; 256][..blocks])),
            };
            let mac_bytes = if self.keys.datagrams.is_some() { MAC_BYTES } else { 0 };
            let datagram_bytes = head_bytes + layout.block_bytes as usize + mac_bytes;
            let count = peer.affordable(now, datagram_bytes).min(demand.pending() as usize);
            let count = count.min(BUNDLE).min(RUN_BYTES_MAX / datagram_bytes);
            if rank == 0 {
                peer.demands[index].total = demand.sent;
                continue;
            }
            if count == 0 || !peer.spend(now, count * datagram_bytes) {
                return;
            }
            peer.demands[index].sent += count as u32;
            let (path, offset) = (peer.path, peer.offset);
            let run = Run {
                session: peer.session,
                segment: demand.segment,
                number: demand.sent,
                rank: rank as u16,
                blocks,
                head_bytes,
                datagram_bytes,
            };
            self.write_run(&content, run, count, offset, layout.block_bytes as usize);
            self.counters.blocks += count as u64;
            self.counters.bytes += self.run.len() as u64;
            outbox.send(&path, &self.run, datagram_bytes);
        }
    }

    /// Writes `count` blocks as datagrams of equal length.
    fn write_run(
        &mut self,
        content: &Segment,
        run: Run,
        count: usize,
        offset: u32,
        block_bytes: usize,
    ) {
        let Self { random, ahead, run: bytes, head, keys, counters, .. } = self;
        let payload = run.head_bytes..run.head_bytes + block_bytes;
        bytes.resize(count * run.datagram_bytes, 0);
        let pool = ahead.pool(run.segment, content, count, block_bytes, random);
        counters.combinations += pool.map_or(0, |(_, made)| made as u64);
        let last = run.number + count as u32 - 1;
        let pool = pool.map(|(pool, _)| pool);
        let pool = pool.filter(|&pool| ahead.ready(pool, offset, last, block_bytes).is_some());
        let mut combinations = [Combination::EMPTY; BUNDLE];
        if pool.is_none() {
            let mut payloads: [&mut [u8]; BUNDLE] = Default::default();
            let datagrams = bytes.chunks_exact_mut(run.datagram_bytes);
            for (place, datagram) in payloads.iter_mut().zip(datagrams) {
                *place = &mut datagram[payload.clone()];
            }
            let (combinations, payloads) = (&mut combinations[..count], &mut payloads[..count]);
            combine(content, run.blocks, random, combinations, payloads);
            counters.combinations += count as u64;
        }
        let datagrams = bytes.chunks_exact_mut(run.datagram_bytes).zip(&combinations);
        for (number, (datagram, combination)) in (run.number..).zip(datagrams) {
            let mut coding = combination.coding();
            if let Some(ready) = pool.and_then(|p| ahead.ready(p, offset, number, block_bytes)) {
                coding = Coding::Seed(ready.seed);
                datagram[payload.clone()].copy_from_slice(ready.payload);
            }
            let Run { session, segment, rank, .. } = run;
            head.clear();
            block_head(head, &Block { session, segment, number, rank, coding, payload: &[] });
            datagram[..run.head_bytes].copy_from_slice(head);
            if let Some(key) = &keys.datagrams {
                let (message, mac) = datagram.split_at_mut(payload.end);
                mac.copy_from_slice(&key.mac(message));
            }
        }
    }

    /// Sends a message within the budget of a peer.
    fn reply(
        &mut self,
        now: u64,
        place: usize,
        message: &Message<'_>,
        outbox: &mut impl Outbox,
    ) -> Result<(), Drop> {
        let peer = self.peers.get(place).ok_or(Drop::NoSession)?;
        let bytes = match message {
            Message::ManifestPart { bytes, .. } => bytes.len() + 64,
            _ => 64,
        };
        if !peer.spend(now, bytes) {
            return Err(Drop::Budget);
        }
        let path = peer.path;
        self.send(&path, message, outbox);
        Ok(())
    }

    fn send(&mut self, path: &Path, message: &Message<'_>, outbox: &mut impl Outbox) {
        self.run.clear();
        message.write(&mut self.run);
        authenticate(self.keys.datagrams.as_ref(), &mut self.run);
        self.counters.bytes += self.run.len() as u64;
        outbox.send(path, &self.run, self.run.len());
    }
}

/// Blocks for one peer that are sent together.
#[derive(Copy, Clone)]
struct Run {
    session: u64,
    segment: u32,
    number: u32,
    rank: u16,
    /// Blocks of the segment.
    blocks: usize,
    head_bytes: usize,
    datagram_bytes: usize,
}
