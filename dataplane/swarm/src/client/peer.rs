//! A peer that serves this client: its session, the blocks it was granted, and its rate.

use crate::wire::{GRANTS_MAX, Grant, Request};

const MILLI: u64 = 1_000_000;

/// First wait for an answer to a hello; doubled up to [`HELLO_NANOS_MAX`].
const HELLO_NANOS: u64 = 250 * MILLI;

/// Longest wait for an answer to a hello. At twice, links that lose half of all datagrams in each
/// direction take half a minute for a session now and then.
const HELLO_NANOS_MAX: u64 = 1_000 * MILLI;

/// Without a block for this long, though some are granted, the session is opened again.
const DEAD_NANOS: u64 = 3_000 * MILLI;

/// Least time without a block of a segment after which its pending blocks count as lost. Servers
/// send bursts: at 768 kbit/s and half a burst of 16 KiB, every 85 ms. Less than that would grant
/// blocks twice; a second would slow down the end of each segment.
const STALL_NANOS: u64 = 500 * MILLI;

/// The same once blocks of a later segment have arrived, which are sent after those.
const PASSED_NANOS: u64 = 50 * MILLI;

/// Time limit for granted blocks to arrive, in addition to four round trips. A peer's pending
/// blocks are limited to its deliveries of about half a second, so twice that is late. At half,
/// slow peers are paused; at twice, a peer that sends rarely holds a segment for longer.
const AGE_NANOS: u64 = 1_500 * MILLI;

/// Time in addition to two round trips after which much faster peers are granted the same number.
const LATE_NANOS: u64 = 100 * MILLI;

/// Pauses double this often while a peer keeps stalling.
const STALLS_MAX: u32 = 3;

/// Longest round trip that is assumed. A peer chooses when it answers, and waits grow with it.
const RTT_MAX_NANOS: u64 = 1_000 * MILLI;

/// Shortest time over which deliveries are counted. Two round trips are added, so that the count
/// does not limit the rate of long paths.
const DELIVERY_NANOS: u64 = 250 * MILLI;

/// Age of a session before its rate is measured: until then it may use an even share of the limit.
const MEASURE_NANOS: u64 = 500 * MILLI;

/// Blocks that a peer may always have pending: 8 KiB, the least burst of a server.
const PENDING_MIN: u32 = 8;

/// Interval of the rate control.
const RATE_NANOS: u64 = 250 * MILLI;

/// First rate of a peer, in kbit/s.
const RATE_FIRST_KBIT: u32 = 8_000;

/// Least rate of a peer, in kbit/s.
const RATE_MIN_KBIT: u32 = 256;

/// State of a peer, as users see it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PeerState {
    /// No answer to hellos yet.
    Connecting,
    /// It has a session.
    Open,
    /// It refused: its table is full.
    Full,
    /// It serves another content.
    OtherContent,
    /// It sent forged blocks, checks or a forged manifest.
    Banned,
}

/// Blocks of one segment that a peer was granted.
#[derive(Copy, Clone, Debug)]
pub(super) struct PeerGrant {
    pub segment: u32,
    /// Blocks granted in all.
    pub total: u32,
    /// Blocks below this number have arrived or are lost.
    pub next: u32,
    pub redundant: u32,
    pub paused_until: u64,
    raised_at: u64,
    arrived_at: u64,
    /// Blocks below this number were granted at `mark_at` or earlier.
    mark: u32,
    mark_at: u64,
}

impl PeerGrant {
    /// Starts another measurement of age if all blocks of the previous one have arrived or are
    /// lost. Whether it did.
    fn set_mark(&mut self, now: u64) -> bool {
        let is_over = self.next >= self.mark;
        if is_over {
            (self.mark, self.mark_at) = (self.total, now);
        }
        is_over
    }

    pub(super) const fn outstanding(&self) -> u32 {
        self.total.saturating_sub(self.next)
    }

    /// Counts pending blocks as lost, and grants nothing until `until`.
    pub(super) fn pause(&mut self, until: u64) {
        self.next = self.total;
        self.paused_until = self.paused_until.max(until);
    }
}

/// Blocks of a segment that are still to come from a peer.
#[derive(Copy, Clone, Default)]
pub(super) struct Pending {
    pub blocks: u32,
    pub is_late: bool,
}

/// A peer.
pub(super) struct Peer {
    pub state: PeerState,
    pub nonce: u64,
    pub cookie: [u8; 16],
    pub hello_at: Option<u64>,
    pub hello_tries: u32,
    pub challenges: u32,
    pub session: u64,
    pub is_source: bool,
    pub manifest_bytes: u32,
    pub rtt: u64,
    pub grants: Vec<PeerGrant>,
    pub is_due: bool,
    pub blocks: u64,
    /// Whether it has sent valid checks: only the source can.
    pub has_checked: bool,
    /// Requests for checks since the last valid ones.
    pub checks_unanswered: u32,
    /// Expirations in a row without a delivery in time.
    stalls: u32,
    opened_at: u64,
    delivery: Delivery,
    requested_at: u64,
    sequence: u32,
    arrived_at: u64,
    rate: Rate,
}

/// Blocks that arrived in the present and in the previous interval.
#[derive(Default)]
struct Delivery {
    since: u64,
    previous: u32,
    current: u32,
}

impl Delivery {
    fn roll(&mut self, now: u64, interval: u64) {
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= interval {
            self.previous = if elapsed < 2 * interval { self.current } else { 0 };
            (self.since, self.current) = (now, 0);
        }
    }
}

/// Loss-based control of the requested rate.
struct Rate {
    kbit: u32,
    measured_at: u64,
    sent: u32,
    received: u32,
}

impl Peer {
    pub(super) fn new() -> Self {
        Self {
            state: PeerState::Connecting,
            nonce: 0,
            cookie: [0; 16],
            hello_at: None,
            hello_tries: 0,
            challenges: 0,
            session: 0,
            is_source: false,
            manifest_bytes: 0,
            rtt: 100 * MILLI,
            grants: Vec::with_capacity(GRANTS_MAX),
            is_due: false,
            blocks: 0,
            has_checked: false,
            checks_unanswered: 0,
            stalls: 0,
            opened_at: 0,
            delivery: Delivery::default(),
            requested_at: 0,
            sequence: 0,
            arrived_at: 0,
            rate: Rate { kbit: RATE_FIRST_KBIT, measured_at: 0, sent: 0, received: 0 },
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == PeerState::Open
    }

    /// Whether a hello is due. Those that are banned or serve another content get none.
    pub(super) fn is_hello_due(&self, now: u64) -> bool {
        let wait = HELLO_NANOS << self.hello_tries.saturating_sub(1).min(3);
        let wait = wait.min(HELLO_NANOS_MAX);
        matches!(self.state, PeerState::Connecting | PeerState::Full)
            && self.hello_at.is_none_or(|at| now.saturating_sub(at) >= wait)
    }

    /// Records the time since the latest hello as round trip.
    pub(super) fn measure_rtt(&mut self, now: u64) {
        let rtt = now.saturating_sub(self.hello_at.unwrap_or(now));
        self.rtt = rtt.clamp(MILLI, RTT_MAX_NANOS);
    }

    /// Abandons the session, which the peer may have forgotten.
    pub(super) fn reconnect(&mut self) {
        self.state = PeerState::Connecting;
        self.hello_at = None;
    }

    /// Further blocks that may be granted: no more are pending than it delivered recently, so a
    /// slow peer does not hold blocks that a fast one could send.
    pub(super) fn allowance(&mut self, now: u64) -> u32 {
        self.delivery.roll(now, DELIVERY_NANOS + 2 * self.rtt);
        let delivered = self.delivered();
        let pending: u32 = self.grants.iter().map(PeerGrant::outstanding).sum();
        delivered.max(PENDING_MIN).saturating_sub(pending)
    }

    /// Blocks that it delivered recently.
    pub(super) const fn delivered(&self) -> u32 {
        self.delivery.previous.saturating_add(self.delivery.current)
    }

    /// Blocks of a segment that are pending, and whether they are later than a fast peer's.
    pub(super) fn pending(&self, now: u64, segment: u32) -> Pending {
        let grant = self.grants.iter().find(|grant| grant.segment == segment);
        let Some(grant) = grant.filter(|_| self.is_open()) else { return Pending::default() };
        let is_late = now.saturating_sub(grant.mark_at) > 2 * self.rtt + LATE_NANOS;
        let blocks = grant.outstanding();
        Pending { blocks, is_late: is_late && blocks > 0 }
    }

    /// Blocks a second that it delivers. `None` until it has had time to reach its rate.
    pub(super) fn blocks_per_second(&mut self, now: u64) -> Option<u64> {
        let interval = DELIVERY_NANOS + 2 * self.rtt;
        self.delivery.roll(now, interval);
        let delivered = u64::from(self.delivered());
        let elapsed = interval + now.saturating_sub(self.delivery.since);
        let is_measured = now.saturating_sub(self.opened_at) > MEASURE_NANOS + 2 * interval;
        is_measured.then_some(delivered * 1_000 * MILLI / elapsed)
    }

    /// A session exists. Grants of another one are void.
    pub(super) fn open(&mut self, now: u64, session: u64) {
        if self.session != session {
            self.grants.clear();
            self.sequence = 0;
        }
        self.session = session;
        self.state = PeerState::Open;
        (self.hello_tries, self.challenges) = (0, 0);
        (self.checks_unanswered, self.stalls) = (0, 0);
        self.is_due = true;
        (self.opened_at, self.arrived_at) = (now, now);
    }

    pub(super) fn ban(&mut self) {
        self.state = PeerState::Banned;
        self.grants.clear();
    }

    pub(super) fn grant(&mut self, segment: u32) -> Option<&mut PeerGrant> {
        self.grants.iter_mut().find(|grant| grant.segment == segment)
    }

    /// Whether blocks of a segment can be granted.
    pub(super) fn is_eligible(&self, now: u64, segment: u32) -> bool {
        let known = self.grants.iter().find(|grant| grant.segment == segment);
        let is_free = known.map_or(self.grants.len() < GRANTS_MAX, |g| g.paused_until <= now);
        self.is_open() && is_free
    }

    /// Grants further blocks.
    pub(super) fn raise(&mut self, now: u64, segment: u32, count: u32) {
        self.is_due = true;
        if let Some(grant) = self.grant(segment) {
            grant.total = grant.total.saturating_add(count);
            grant.raised_at = now;
            grant.set_mark(now);
            return;
        }
        self.grants.push(PeerGrant {
            segment,
            total: count,
            next: 0,
            redundant: 0,
            paused_until: 0,
            raised_at: now,
            arrived_at: now,
            mark: count,
            mark_at: now,
        });
        // Earlier segments are more urgent.
        self.grants.sort_unstable_by_key(|grant| grant.segment);
    }

    /// Ends the grant of a segment.
    pub(super) fn revoke(&mut self, segment: u32) {
        let before = self.grants.len();
        self.grants.retain(|grant| grant.segment != segment);
        self.is_due |= self.grants.len() != before;
    }

    /// Records block `number` of a segment. False if it was not granted.
    pub(super) fn arrive(&mut self, now: u64, segment: u32, number: u32) -> bool {
        let Some(grant) = self.grants.iter_mut().find(|grant| grant.segment == segment) else {
            return false;
        };
        if number >= grant.total {
            return false;
        }
        let passed = (number + 1).saturating_sub(grant.next);
        grant.next += passed;
        grant.arrived_at = now;
        if grant.set_mark(now) {
            self.stalls = 0;
        }
        if passed > 0 {
            self.delivery.roll(now, DELIVERY_NANOS + 2 * self.rtt);
            self.delivery.current = self.delivery.current.saturating_add(1);
        }
        self.rate.sent += passed;
        self.rate.received += 1;
        self.blocks += 1;
        self.arrived_at = now;
        true
    }

    /// Finds blocks that are lost without successors or late, and sessions that are dead.
    /// `may_pause`: others can serve.
    pub(super) fn expire(&mut self, now: u64, may_pause: bool) {
        if !self.is_open() {
            return;
        }
        let rtt = self.rtt;
        let latest = self.grants.iter().filter(|g| g.next > 0 && g.arrived_at == self.arrived_at);
        let latest = latest.map(|grant| grant.segment).max();
        let pause = if may_pause { (2 * STALL_NANOS) << self.stalls.min(STALLS_MAX) } else { 0 };
        let mut is_stalled = false;
        for grant in &mut self.grants {
            if grant.outstanding() == 0 {
                continue;
            }
            let is_late = now.saturating_sub(grant.mark_at) > 4 * rtt + AGE_NANOS;
            let quiet = now.saturating_sub(grant.arrived_at.max(grant.raised_at));
            let is_passed = latest.is_some_and(|latest| latest > grant.segment);
            if is_passed && quiet > 2 * rtt + PASSED_NANOS {
                grant.next = grant.total;
            } else if is_late
                || now.saturating_sub(self.arrived_at.max(grant.raised_at))
                    > (4 * rtt).max(STALL_NANOS)
            {
                grant.pause(now + pause);
                is_stalled = true;
            }
        }
        self.stalls += u32::from(is_stalled);
        let is_waiting = !self.grants.is_empty();
        if is_waiting && now.saturating_sub(self.arrived_at) > DEAD_NANOS {
            self.reconnect();
        }
    }

    /// The request that is due, with at most `rate_kbit`.
    pub(super) fn request(&mut self, now: u64, rate_kbit: u32) -> Option<Request> {
        const REQUEST_NANOS: u64 = 10 * MILLI;
        const KEEPALIVE_NANOS: u64 = 1_000 * MILLI;
        let elapsed = now.saturating_sub(self.requested_at);
        let is_due = self.is_due && elapsed >= REQUEST_NANOS || elapsed >= KEEPALIVE_NANOS;
        if !self.is_open() || !is_due {
            return None;
        }
        self.rate.adapt(now, rate_kbit);
        (self.is_due, self.requested_at) = (false, now);
        self.sequence = self.sequence.saturating_add(1);
        let mut grants = [Grant::default(); GRANTS_MAX];
        for (place, grant) in grants.iter_mut().zip(&self.grants) {
            *place = Grant { segment: grant.segment, total: grant.total };
        }
        Some(Request {
            session: self.session,
            sequence: self.sequence,
            rate_kbit: self.rate.kbit.min(rate_kbit).max(1),
            grants,
            count: self.grants.len().min(GRANTS_MAX),
        })
    }
}

impl Rate {
    /// Grows by half while hardly anything is lost, and by a tenth while less than a fifth is, so
    /// that links that lose 10 % at random keep their rate. Shrinks when more than 30 % is lost: a
    /// bottleneck loses a third when it is exceeded by half.
    fn adapt(&mut self, now: u64, limit_kbit: u32) {
        if now.saturating_sub(self.measured_at) < RATE_NANOS || self.sent < 20 {
            return;
        }
        let lost = self.sent.saturating_sub(self.received);
        if lost * 10 > self.sent * 3 {
            self.kbit = (self.kbit / 10 * 7).max(RATE_MIN_KBIT);
        } else if lost * 5 < self.sent {
            let growth = if lost * 50 < self.sent { self.kbit / 2 } else { self.kbit / 10 };
            // Not far beyond the limit, so that losses take effect at once.
            self.kbit = self.kbit.saturating_add(growth).min(limit_kbit.max(RATE_MIN_KBIT));
        }
        (self.measured_at, self.sent, self.received) = (now, 0, 0);
    }
}
