//! Path MTU discovery towards a neighbour. A link may have a smaller MTU and not signal it: larger
//! packets vanish while smaller ones arrive, a black hole. The limit is found as in RFC 8899, with
//! padded keepalives that carry no user data.
//!
//! ```text
//!            lost, larger than any that came       32 of them lost        limit found
//!  no limit ---------------------------------> doubt -----------> search ------------> rest
//!      ^  <------------------------------------  |                  ^                    |
//!      |           as large a one came                              `- 1 to 5 s, traffic '
//!      `------- the largest that was sent came ------------------------------------------'
//! ```
//!
//! - **Doubt**: losses are counted by size class. Consecutive losses with no arrival in between
//!   count once, so that an outage is no black hole. If neither data nor retransmissions settle it,
//!   probes of the size in doubt alternate with smaller ones.
//! - **Search**: the limit is the largest size that arrived since the doubt began. Probes between
//!   it and the lost size, three of each size, narrow it to within 8 bytes.
//! - **Rest**: after 1, 2, 4 s and then every 5 s, while there is traffic, three slightly larger
//!   probes are sent. If one arrives, the search restarts at the largest size sent.

use crate::base::time::earlier;
use crate::config::params::Nanos;
use crate::config::report::BlackHole;
use recoded_wire::stream::STREAM_OVERHEAD_BYTES;

/// Width of a size class up to `FINE_BYTES`, and precision of the limit: the difference between
/// common MTUs (1492 of PPPoE, 1500). Classes of longer packets are wider.
const CLASS_BYTES: u16 = 8;
const FINE_BYTES: u16 = 2048;
const WIDE_CLASS_BYTES: u16 = 64;

/// Classes of packets up to 9216 bytes, the largest MTU of common network cards.
const CLASSES: usize = (FINE_BYTES / CLASS_BYTES + (9216 - FINE_BYTES) / WIDE_CLASS_BYTES) as usize;

/// UDP payload that is never in doubt: the minimum MTU of a tunnel, 576 bytes (RFC 791), in a
/// stream. Forged reports cannot lower the limit further. Keys add to it ([`PathMtu::set_floor`]).
pub(crate) const FLOOR_BYTES: u16 = 576 + STREAM_OVERHEAD_BYTES as u16;

/// Losses after which larger packets than arrived count as vanishing. A link with 50 % loss loses
/// this many in a row once in 2^32.
const LOST: u8 = 32;

/// Losses after which packets count as having vanished, once one that large arrives again. A link
/// with 50 % loss loses this many in a row once in 2^12.
const VANISHED: u8 = 12;

/// Losses after which probes are sent, if a packet that large arrived before.
const DOUBTED: u8 = 3;

/// Most probes in one doubt: half of them may be lost.
const DOUBT_PROBES: u16 = 4 * LOST as u16;

/// Divisor of the range between floor and the size in doubt: one size fewer is probed.
const STEPS: u16 = 8;

/// Minimum interval between probes, and time in addition to a round trip until one counts as lost.
const PACE_NANOS: Nanos = 2_000_000;
const REPORT_NANOS: Nanos = 10_000_000;

/// Probes of a size until it counts as not passing.
const TRIES: u8 = 3;

/// Interval of probes for a larger limit (RFC 8899 has ten minutes, for many more flows), at first
/// and at last, and the increment. An MTU that just fell may recover soon.
const RAISE_NANOS_MIN: Nanos = 1_000_000_000;
const RAISE_NANOS: Nanos = 5_000_000_000;
const RAISE_BYTES: u16 = 2 * CLASS_BYTES;

/// Whether packets larger than those received vanish. Meanwhile only small packets arrive, so
/// arrivals do not show the rate of the link.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Vanishing {
    No,
    InDoubt,
    /// They did.
    Shown,
}

/// Arrivals and losses by size.
#[derive(Debug)]
pub(crate) struct PathMtu {
    /// By class: losses of packets at least this large since one of them arrived, and the value of
    /// `came` at the last count.
    lost: [u8; CLASSES],
    counted_at: [u32; CLASSES],
    /// Packets received.
    came: u32,
    /// The largest data packet sent, and the largest packet received.
    largest: u16,
    confirmed: u16,
    /// PathMtu up to this one are never in doubt.
    floor: u16,
    doubt: Option<Doubt>,
    limit: Option<Limit>,
    /// Whether larger packets vanished for a while, and this has ended or is confirmed.
    vanished: bool,
}

/// A size with recent losses and no arrival since.
#[derive(Copy, Clone, Debug)]
struct Doubt {
    bytes: u16,
    since: Nanos,
    /// The largest size received since then.
    came: u16,
    probes: u16,
    next_at: Nanos,
}

/// A size above which no packets arrive.
#[derive(Copy, Clone, Debug)]
struct Limit {
    /// The largest size that arrived, or the floor; the smallest that does not.
    came: u16,
    lost: u16,
    phase: ProbePhase,
    /// Probes of the current size.
    tries: u8,
    next_at: Nanos,
    /// Interval before the next attempt to raise it.
    raise_nanos: Nanos,
    /// Whether data was sent since the last attempt to raise it.
    is_used: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ProbePhase {
    /// Probes the largest size sent.
    Largest,
    /// Probes halfway between the arrived and the lost size.
    Search,
    /// Waits, then probes a slightly larger size.
    Rest,
}

impl Default for PathMtu {
    fn default() -> Self {
        Self {
            lost: [0; CLASSES],
            counted_at: [0; CLASSES],
            came: 0,
            largest: 0,
            confirmed: 0,
            floor: FLOOR_BYTES,
            doubt: None,
            limit: None,
            vanished: false,
        }
    }
}

impl PathMtu {
    /// PathMtu up to `bytes` are sent even if they vanish: a tunnel of the minimum MTU needs them,
    /// and has no other packets to show that the path has recovered.
    pub(crate) fn set_floor(&mut self, bytes: u16) {
        self.floor = bytes;
        if let Some(limit) = &mut self.limit {
            limit.came = limit.came.max(bytes);
            limit.lost = limit.lost.max(limit.came);
        }
    }

    /// Records a data packet that is sent, or is dropped as too large.
    pub(crate) fn wish(&mut self, bytes: u16) {
        self.largest = self.largest.max(bytes);
        if let Some(limit) = &mut self.limit {
            limit.is_used = true;
        }
    }

    /// Records an arrival.
    pub(crate) fn came(&mut self, bytes: u16, now: Nanos) {
        self.came = self.came.wrapping_add(1);
        let is_over = |doubt: &Doubt| class(bytes) >= class(doubt.bytes);
        let ended = self.doubt.as_ref().filter(|doubt| is_over(doubt));
        self.vanished |= ended.is_some_and(|doubt| self.times_lost(doubt) >= VANISHED);
        self.lost[..=class(bytes)].fill(0);
        self.confirmed = self.confirmed.max(bytes);
        if let Some(doubt) = &mut self.doubt {
            doubt.came = doubt.came.max(bytes);
            self.doubt = Some(*doubt).filter(|doubt| class(bytes) < class(doubt.bytes));
        }
        if let Some(limit) = &mut self.limit
            && bytes > limit.came
        {
            limit.rise(bytes, self.largest, now);
            self.limit = Some(*limit).filter(|_| bytes < self.largest);
        }
    }

    /// Records a loss.
    pub(crate) fn lost(&mut self, bytes: u16, now: Nanos) {
        if self.exceeds(bytes) {
            return;
        }
        // A loss above the floor does not count for sizes below it.
        let first = if bytes > self.floor { class(self.floor) + 1 } else { 0 };
        for class in first..=class(bytes) {
            if self.lost[class] == 0 || self.counted_at[class] != self.came {
                self.lost[class] = self.lost[class].saturating_add(1);
                self.counted_at[class] = self.came;
            }
        }
        if bytes <= self.floor {
            return;
        }
        let new = Doubt { bytes, since: now, came: 0, probes: 0, next_at: 0 };
        let doubt = match self.doubt {
            Some(doubt) if class(bytes) <= class(doubt.bytes) => doubt,
            Some(doubt) => Doubt { came: doubt.came, ..new },
            None => new,
        };
        self.doubt = Some(doubt);
        if self.times_lost(&doubt) >= LOST {
            self.doubt = None;
            let limit = Limit {
                came: doubt.came.max(self.floor),
                lost: doubt.bytes,
                phase: ProbePhase::Search,
                tries: 0,
                next_at: now,
                raise_nanos: RAISE_NANOS_MIN,
                is_used: true,
            };
            self.confirmed = limit.came;
            self.limit = Some(limit);
            self.vanished = true;
        }
    }

    /// Whether larger packets vanish, or did since the last call.
    pub(crate) fn take_vanishing(&mut self) -> Vanishing {
        match (std::mem::take(&mut self.vanished), &self.doubt) {
            (true, _) => Vanishing::Shown,
            (false, Some(_)) => Vanishing::InDoubt,
            (false, None) => Vanishing::No,
        }
    }

    /// Whether packets of a size were lost, and none of it has arrived since.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Losses of packets larger than any that arrived since the doubt began.
    fn times_lost(&self, doubt: &Doubt) -> u8 {
        self.lost[class(doubt.came.max(self.floor)) + 1..].first().copied().unwrap_or(0)
    }

    /// The largest size that arrives, if larger ones do not.
    pub(crate) fn limit(&self) -> Option<u16> {
        self.limit.map(|limit| limit.came)
    }

    /// Whether a packet exceeds the known limit.
    pub(crate) fn exceeds(&self, bytes: u16) -> bool {
        self.limit.is_some_and(|limit| bytes > limit.came)
    }

    /// PathMtu that do not arrive, if any.
    pub(crate) fn black_hole(&self) -> Option<BlackHole> {
        let needed_bytes = self.floor;
        let limit = |Limit { came, lost, .. }| BlackHole {
            came_bytes: came,
            lost_bytes: lost,
            needed_bytes,
        };
        // There is no search below the floor: consecutive losses are the only evidence there.
        let vanishes = |class: &usize| self.lost[*class] >= LOST;
        let mut vanishing = (1..=class(self.floor)).filter(vanishes);
        let below = vanishing.next().map(|least| BlackHole {
            came_bytes: size(least - 1),
            lost_bytes: size(vanishing.next_back().unwrap_or(least)),
            needed_bytes,
        });
        below.or(self.limit.map(limit))
    }

    /// When a probe is due.
    pub(crate) fn due(&self, round_trip: Nanos) -> Option<Nanos> {
        earlier(self.doubt_due(round_trip), self.limit.as_ref().and_then(Limit::due))
    }

    fn doubt_due(&self, round_trip: Nanos) -> Option<Nanos> {
        let doubt = self.doubt.as_ref().filter(|doubt| doubt.probes < DOUBT_PROBES)?;
        let is_new = class(doubt.bytes) > class(self.confirmed);
        let is_doubted = self.times_lost(doubt) >= if is_new { 1 } else { DOUBTED };
        is_doubted.then(|| doubt.next_at.max(doubt.since + patience(round_trip)))
    }

    /// Bytes of the probe to send now, if one is due.
    pub(crate) fn probe(&mut self, round_trip: Nanos, now: Nanos) -> Option<u16> {
        let is_due = |due: Option<Nanos>| due.is_some_and(|due| due <= now);
        if is_due(self.doubt_due(round_trip)) {
            let floor = self.floor;
            return self.doubt.as_mut().map(|doubt| doubt.probe(floor, round_trip, now));
        }
        let limit = self.limit.as_mut().filter(|limit| is_due(limit.due()))?;
        limit.probe(self.largest, round_trip, now)
    }
}

impl Doubt {
    /// A probe of the size in doubt, alternating with smaller ones above the floor, the largest
    /// first.
    fn probe(&mut self, floor: u16, round_trip: Nanos, now: Nanos) -> u16 {
        let (turn, is_smaller) = (self.probes / 2, self.probes % 2 == 1);
        self.probes += 1;
        self.next_at = now + PACE_NANOS.max(round_trip / 32);
        if !is_smaller {
            return self.bytes;
        }
        let step = STEPS - 1 - turn % (STEPS - 1);
        floor + self.bytes.saturating_sub(floor) / STEPS * step
    }
}

impl Limit {
    fn due(&self) -> Option<Nanos> {
        (self.is_used || self.phase != ProbePhase::Rest).then_some(self.next_at)
    }

    /// Handles the arrival of a larger packet; `largest` is the largest size sent.
    fn rise(&mut self, bytes: u16, largest: u16, now: Nanos) {
        self.came = bytes;
        (self.tries, self.next_at) = (0, now);
        if self.phase == ProbePhase::Rest || bytes >= self.lost {
            (self.phase, self.lost) = (ProbePhase::Largest, largest);
        } else {
            self.phase = ProbePhase::Search;
            self.narrow(now);
        }
    }

    /// Ends a completed search.
    fn narrow(&mut self, now: Nanos) {
        if self.lost.saturating_sub(self.came) <= CLASS_BYTES {
            (self.phase, self.next_at) = (ProbePhase::Rest, now + self.raise_nanos);
        }
    }

    fn probe(&mut self, largest: u16, round_trip: Nanos, now: Nanos) -> Option<u16> {
        if self.tries == TRIES {
            self.tries = 0;
            match self.phase {
                ProbePhase::Largest => (self.phase, self.lost) = (ProbePhase::Search, largest),
                ProbePhase::Search => self.lost = self.size(largest),
                ProbePhase::Rest => {
                    self.raise_nanos = (2 * self.raise_nanos).min(RAISE_NANOS);
                    (self.is_used, self.next_at) = (false, now + self.raise_nanos);
                }
            }
            if self.phase == ProbePhase::Search {
                self.narrow(now);
            }
            if self.phase == ProbePhase::Rest {
                return None;
            }
        }
        self.tries += 1;
        // Spaced to survive a loss burst, but without waiting until the previous one counts as
        // lost.
        let patience = patience(round_trip);
        self.next_at = now + if self.tries < TRIES { patience / 4 } else { patience };
        Some(self.size(largest))
    }

    fn size(&self, largest: u16) -> u16 {
        match self.phase {
            ProbePhase::Largest => largest,
            ProbePhase::Search => self.came + self.lost.saturating_sub(self.came) / 2,
            ProbePhase::Rest => (self.came + RAISE_BYTES).min(largest),
        }
    }
}

/// How long to wait for a packet.
fn patience(round_trip: Nanos) -> Nanos {
    round_trip + round_trip / 4 + REPORT_NANOS
}

/// The smallest size in a class of short packets.
fn size(class: usize) -> u16 {
    class as u16 * CLASS_BYTES
}

fn class(bytes: u16) -> usize {
    let fine = bytes.min(FINE_BYTES) / CLASS_BYTES;
    let wide = bytes.saturating_sub(FINE_BYTES) / WIDE_CLASS_BYTES;
    usize::from(fine + wide).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    const MILLI: Nanos = 1_000_000;
    const ROUND_TRIP: Nanos = 20 * MILLI;

    /// A link that carries packets up to a size, with random loss.
    struct Path {
        sizes: PathMtu,
        carries: u16,
        loss: f64,
        random: ChaCha8Rng,
        now: Nanos,
        probes: usize,
    }

    impl Path {
        fn new(carries: u16, loss: f64) -> Path {
            let random = ChaCha8Rng::seed_from_u64(7);
            Path { sizes: PathMtu::default(), carries, loss, random, now: 0, probes: 0 }
        }

        fn settle(&mut self, bytes: u16) {
            let is_lost = f64::from(self.random.next_u32()) < self.loss * 4_294_967_296.0;
            if bytes <= self.carries && !is_lost {
                self.sizes.came(bytes, self.now);
            } else {
                self.sizes.lost(bytes, self.now);
            }
        }

        /// Sends a packet of each size every 5 ms for `millis`, and the probes that are due.
        fn run(&mut self, millis: u64, data: &[u16]) {
            for turn in 0..millis {
                self.now += MILLI;
                if turn % 5 == 0 {
                    for bytes in data {
                        self.sizes.wish(*bytes);
                        self.settle(*bytes);
                    }
                }
                while let Some(bytes) = self.sizes.probe(ROUND_TRIP, self.now) {
                    assert!(bytes <= self.sizes.largest, "no probe is larger than data");
                    self.probes += 1;
                    self.settle(bytes);
                }
            }
        }
    }

    #[test]
    fn limit_is_found_with_few_probes_whatever_the_loss() {
        for carries in [620, 900, 1252, 1372, 1444] {
            for loss in [0.0, 0.1, 0.3] {
                let mut path = Path::new(carries, loss);
                path.run(1500, &[16, 1448]);
                let limit = path.sizes.limit().expect("there is one");
                println!("{carries}, {loss}: {limit} after {} probes", path.probes);
                let precise = if loss == 0.0 { CLASS_BYTES } else { 2 * CLASS_BYTES };
                assert!((carries - precise..=carries).contains(&limit), "{limit} of {carries}");
                assert!(path.probes < 150, "{} probes", path.probes);
            }
        }
    }

    /// No packet exceeds the limit, as when the tunnel follows it, until the limit is gone.
    #[test]
    fn limit_that_rises_is_noticed_with_three_probes_each_five_seconds() {
        let mut path = Path::new(1372, 0.05);
        path.run(1000, &[16, 1448]);
        path.run(10_000, &[16, 1300]);
        path.probes = 0;
        path.run(60_000, &[16, 1300]);
        assert!((30..=40).contains(&path.probes), "{} probes in a minute", path.probes);
        path.carries = 1420;
        path.run(7000, &[16, 1300]);
        assert!(path.sizes.limit().is_some_and(|limit| (1405..=1420).contains(&limit)));
        path.carries = 2000;
        path.run(7000, &[16, 1300]);
        assert_eq!(path.sizes.limit(), None);
        path.probes = 0;
        path.run(10_000, &[16, 1300, 1448]);
        assert_eq!(path.probes, 0);
    }

    /// From the floor to a common MTU, where jumbo frames are lost.
    #[test]
    fn limit_far_below_what_is_sent_is_found_soon() {
        let mut path = Path::new(1472, 0.0);
        path.run(500, &[16, 8973]);
        let limit = path.sizes.limit().expect("there is one");
        assert!((1472 - CLASS_BYTES..=1472).contains(&limit), "{limit}");
    }

    #[test]
    fn limit_that_falls_again_is_found_again() {
        let mut path = Path::new(1372, 0.05);
        path.run(1000, &[16, 1448]);
        path.carries = 1000;
        path.run(1000, &[16, 1360]);
        assert!(path.sizes.limit().is_some_and(|limit| (980..=1000).contains(&limit)));
    }

    #[test]
    fn one_large_packet_that_comes_settles_a_doubt_without_a_limit() {
        let mut sizes = PathMtu::default();
        for turn in 0..10 * u64::from(LOST) {
            sizes.came(60, turn);
            if turn % u64::from(LOST) == 31 {
                sizes.came(1400, turn);
            } else {
                sizes.lost(1400, turn);
            }
            assert_eq!(sizes.limit(), None);
        }
    }

    #[test]
    fn outage_is_no_limit_and_takes_few_probes() {
        let mut path = Path::new(2000, 0.0);
        path.run(100, &[16, 1448]);
        path.carries = 0;
        path.run(60_000, &[16, 1448]);
        assert_eq!((path.sizes.limit(), path.probes), (None, 0));
    }

    #[test]
    fn flow_that_is_idle_is_not_probed() {
        let mut path = Path::new(1372, 0.0);
        path.run(1000, &[16, 1448]);
        path.run(6000, &[]);
        let due = path.sizes.due(ROUND_TRIP);
        assert!(due.is_none(), "{due:?} at {}", path.now);
    }

    /// Whatever sizes are reported as received or lost.
    #[test]
    fn no_limit_is_below_the_floor() {
        let mut path = Path::new(100, 0.0);
        path.run(20_000, &[16, 400, 1448]);
        assert_eq!(path.sizes.limit(), Some(FLOOR_BYTES));
    }

    #[test]
    fn any_size_has_a_class() {
        let mut sizes = PathMtu::default();
        for bytes in [0, u16::MAX] {
            sizes.wish(bytes);
            (0..=LOST).for_each(|_| sizes.came(0, 0));
            sizes.lost(bytes, 0);
            sizes.probe(0, u64::MAX / 2);
        }
        assert_eq!(sizes.limit(), None);
    }

    /// The MTU of a tunnel cannot fall below the floor: its packets are still sent, and the first
    /// one that arrives shows that the path has recovered. Until then the black hole is reported.
    #[test]
    fn packets_of_the_least_tunnel_go_on_where_they_vanish_and_it_is_said() {
        let floor = FLOOR_BYTES + 35;
        let mut path = Path::new(548, 0.0);
        path.sizes.set_floor(floor);
        path.run(1000, &[200, floor, 1448]);
        assert!(!path.sizes.exceeds(floor) && path.sizes.exceeds(1448));
        let hole = path.sizes.black_hole().expect("it is said");
        assert!((200 - CLASS_BYTES..548).contains(&hole.came_bytes), "{hole:?}");
        assert!((548..=floor).contains(&hole.lost_bytes), "{hole:?}");
        assert_eq!(hole.needed_bytes, floor);
        path.carries = 1448;
        path.run(20, &[200, floor]);
        let hole = path.sizes.black_hole().expect("large ones are not tried yet");
        assert!(hole.came_bytes >= floor, "{hole:?}");
        path.run(2500, &[200, floor, 1448]);
        assert_eq!(path.sizes.black_hole(), None);
    }
}
