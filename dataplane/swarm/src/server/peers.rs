//! The table of peers: allocated at the start, found by address, bounded.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::keys::SharedKey;
use crate::wire::{GRANTS_MAX, Hello, Request};

/// A session without a message for this long ends. Receivers send one every second; a shorter time
/// would end sessions of paths with outages, a longer one lets those that left fill the table.
const IDLE_NANOS: u64 = 15_000_000_000;

/// A peer's address, and the local one that it knows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// Address of the peer.
    pub remote: SocketAddr,
    /// Source address of answers; `None` leaves the choice to Linux.
    pub local: Option<IpAddr>,
}

/// Blocks of a segment that a peer was sent, and wants.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Demand {
    pub segment: u32,
    pub sent: u32,
    pub total: u32,
}

impl Demand {
    pub(super) const fn pending(&self) -> u32 {
        self.total.saturating_sub(self.sent)
    }
}

/// A session.
pub(super) struct Peer {
    pub path: Path,
    pub session: u64,
    pub public_key: [u8; 32],
    /// Computed at the first request for checks.
    pub shared: Option<SharedKey>,
    pub demands: [Demand; GRANTS_MAX],
    pub demand_count: usize,
    /// Offset in blocks made ahead, so that peers get different ones.
    pub offset: u32,
    /// When the latest message of the session arrived.
    pub heard_at: u64,
    sequence: u32,
    bucket: Bucket,
}

/// A token bucket, in bytes.
struct Bucket {
    rate: u64,
    burst: u64,
    tokens: u64,
    /// Bytes to be filled before there are tokens.
    overdrawn: u64,
    filled_at: u64,
}

impl Bucket {
    fn fill(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.filled_at);
        let added = u128::from(elapsed) * u128::from(self.rate) / 1_000_000_000;
        // Without this, frequent calls would add nothing.
        if added > 0 {
            let added = added.min(u128::from(u64::MAX)) as u64;
            let paid = self.overdrawn.min(added);
            self.overdrawn -= paid;
            self.tokens = self.burst.min(self.tokens.saturating_add(added - paid));
            self.filled_at = now;
        }
    }
}

impl Peer {
    pub(super) fn pending(&self) -> u32 {
        self.demands[..self.demand_count].iter().map(Demand::pending).sum()
    }

    /// Takes `bytes` of the budget. False if less is left.
    pub(super) fn spend(&mut self, now: u64, bytes: usize) -> bool {
        self.bucket.fill(now);
        let bytes = bytes as u64;
        let is_enough = self.bucket.tokens >= bytes;
        if is_enough {
            self.bucket.tokens -= bytes;
        }
        is_enough
    }

    /// Takes the price of an answer of `bytes` whose computation costs as much as sending `work`
    /// bytes. The answer is sent as soon as `bytes` are left; the rest delays later ones.
    pub(super) fn spend_in_advance(&mut self, now: u64, bytes: usize, work: usize) -> bool {
        let is_enough = self.spend(now, bytes);
        if is_enough {
            let rest = work.saturating_sub(bytes) as u64;
            let paid = rest.min(self.bucket.tokens);
            self.bucket.tokens -= paid;
            self.bucket.overdrawn += rest - paid;
        }
        is_enough
    }

    /// Datagrams of this length that may be sent: none before half a burst, or all that are wanted,
    /// can be sent in one system call.
    pub(super) fn affordable(&mut self, now: u64, datagram_bytes: usize) -> usize {
        self.bucket.fill(now);
        let count = self.bucket.tokens as usize / datagram_bytes;
        let run = (self.bucket.burst as usize / datagram_bytes / 2).max(1);
        if count >= run.min(self.pending() as usize) { count } else { 0 }
    }

    /// Adopts a request. False if it is older than the latest one.
    pub(super) fn adopt(&mut self, now: u64, request: &Request, limits: RequestLimits) -> bool {
        if request.sequence <= self.sequence {
            return false;
        }
        self.sequence = request.sequence;
        self.bucket.fill(now);
        let wanted = u64::from(request.rate_kbit) * 125;
        self.bucket.rate =
            if wanted == 0 { limits.rate_bytes } else { wanted.min(limits.rate_bytes) };
        let mut demands = [Demand::default(); GRANTS_MAX];
        let mut count = 0;
        for grant in &request.grants[..request.count.min(GRANTS_MAX)] {
            if grant.segment >= limits.segments {
                continue;
            }
            let known = self.demands[..self.demand_count].iter();
            let sent = known.filter(|d| d.segment == grant.segment).map(|d| d.sent).max();
            let sent = sent.unwrap_or(0);
            let total = grant.total.min(sent.saturating_add(limits.pending_max)).max(sent);
            demands[count] = Demand { segment: grant.segment, sent, total };
            count += 1;
        }
        (self.demands, self.demand_count) = (demands, count);
        true
    }
}

/// Bounds of a request.
#[derive(Copy, Clone)]
pub(super) struct RequestLimits {
    pub rate_bytes: u64,
    pub segments: u32,
    /// Blocks of one segment that may be pending.
    pub pending_max: u32,
}

/// Budget of a new peer.
#[derive(Copy, Clone)]
pub(super) struct Budget {
    pub rate_bytes: u64,
    pub burst_bytes: u64,
}

/// Places of peers, by number.
pub(super) struct Peers {
    by_address: HashMap<SocketAddr, usize>,
    places: Vec<Option<Peer>>,
    free: Vec<usize>,
    /// Places of each host.
    by_host: HashMap<IpAddr, usize>,
    per_host: usize,
}

/// The IPv4 address, or the IPv6 /64, which one host can have all addresses of.
fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

impl Peers {
    pub(super) fn new(count: usize, per_host: usize) -> Self {
        Self {
            by_address: HashMap::with_capacity(count),
            by_host: HashMap::with_capacity(count),
            per_host,
            places: std::iter::repeat_with(|| None).take(count).collect(),
            free: (0..count).rev().collect(),
        }
    }

    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    pub(super) fn count(&self) -> usize {
        self.by_address.len()
    }

    /// Place of the session of an address.
    pub(super) fn find(&self, address: &SocketAddr) -> Option<usize> {
        self.by_address.get(address).copied()
    }

    pub(super) fn get(&mut self, place: usize) -> Option<&mut Peer> {
        self.places.get_mut(place)?.as_mut()
    }

    /// Adds a peer that has proven its address, which has no session. `None` if the table is full,
    /// or the host has its share. The bucket is empty: a new session is no way to a new burst.
    pub(super) fn add(
        &mut self,
        now: u64,
        path: Path,
        hello: &Hello,
        session: u64,
        budget: Budget,
    ) -> Option<usize> {
        let host = host(path.remote.ip());
        if self.by_host.get(&host).is_some_and(|&places| places >= self.per_host) {
            return None;
        }
        let place = self.free.pop()?;
        *self.by_host.entry(host).or_default() += 1;
        let Budget { rate_bytes, burst_bytes } = budget;
        self.places[place] = Some(Peer {
            path,
            session,
            public_key: hello.public_key,
            shared: None,
            demands: [Demand::default(); GRANTS_MAX],
            demand_count: 0,
            offset: session as u32,
            sequence: 0,
            heard_at: now,
            bucket: Bucket {
                rate: rate_bytes,
                burst: burst_bytes,
                tokens: 0,
                overdrawn: 0,
                filled_at: now,
            },
        });
        self.by_address.insert(path.remote, place);
        Some(place)
    }

    pub(super) fn remove(&mut self, place: usize) {
        if let Some(peer) = self.places.get_mut(place).and_then(Option::take) {
            self.by_address.remove(&peer.path.remote);
            let host = host(peer.path.remote.ip());
            if let Some(places) = self.by_host.get_mut(&host) {
                *places -= 1;
                if *places == 0 {
                    self.by_host.remove(&host);
                }
            }
            self.free.push(place);
        }
    }

    /// Removes the peer of a place if it has been silent.
    pub(super) fn expire(&mut self, now: u64, place: usize) {
        let is_idle = |peer: &Peer| now.saturating_sub(peer.heard_at) > IDLE_NANOS;
        if self.places[place].as_ref().is_some_and(is_idle) {
            self.remove(place);
        }
    }
}
