//! Several next hops as paths to one receiver: assigns symbols to paths, and lets other paths take
//! over the symbols of one that falls silent.
//!
//! Each hop recovers its own losses, so a path is characterised by how long a symbol takes and
//! whether it can take one now. Together the paths carry the sum of their rates, and the receiver
//! restores the order.

mod arrivals;

use crate::config::params::{NEXT_HOPS_MAX, Nanos, PeerId, Spread};
use crate::config::report::Branch;
use crate::hop::receive::shares::Shares;
use crate::stream::paths::arrivals::{PathArrivals, PathState, Use};
use crate::stream::sender::Sender;
use crate::stream::store::Store;
use recoded_wire::feedback::ArrivalReport;

/// A path is full when a symbol would queue for longer than this: enough for bursts to stay off the
/// longer path, too little to delay later packets.
const WAIT_MAX_NANOS: Nanos = 3_000_000;

/// Smaller symbols take the path with the earliest arrival, even if it is full: they belong to
/// calls and games, and fill none.
const SHORT_BYTES: usize = 512;

/// When a full path is checked again.
const AGAIN_NANOS: Nanos = 1_000_000;

/// Symbols sent on a path longer before it fell silent count as delivered: this time plus this many
/// halves of the round trip of the path. A relay takes that time and one and a quarter of its own
/// round trip to detect that the next node is silent; the symbol and the report take one of the
/// earlier hops. The sink requests older symbols that were lost in a retransmission. With 100 ms
/// and two round trips, an ordered stream waited twice as long while the other path carried symbols
/// that had already arrived.
const LATELY_NANOS: Nanos = 25_000_000;
const LATELY_HALF_TRIPS: Nanos = 3;

/// After a pause of this length, a node reads the backlog of reports for this long before it
/// considers a path silent.
const PAUSE_NANOS: Nanos = 10_000_000;
const READ_NANOS: Nanos = 5_000_000;

/// Minimum interval between takeovers, whatever reports claim; and between those that include
/// confirmed symbols.
const TAKE_OVER_NANOS: Nanos = 100_000_000;
const TAKE_CONFIRMED_NANOS: Nanos = 1_000_000_000;

/// Interval of judgements of paths by the sink's reports, which are 20 ms apart.
const JUDGE_NANOS: Nanos = 5_000_000;

/// Flag on a carrier: the symbol reached the first hop, but was not forwarded from there.
const CAME: u8 = 0x80;

/// One next hop.
type Hop = (PeerId, Sender);

/// Assignment of symbols to paths.
#[derive(Debug)]
pub(crate) struct Paths {
    spread: Spread,
    /// By number, modulo their count, which is a power of two; with [`CAME`].
    carriers: Box<[u8]>,
    /// Bitmap of paths in doubt, and of those whose first hop answers.
    doubted: (u8, u8),
    /// Paths whose first hop received symbols that it did not forward.
    halted: u8,
    /// When the next takeover is allowed, and the next with confirmed symbols.
    again_at: (Nanos, Nanos),
    /// Time of the last check, and until when reports received earlier are read.
    watched_at: Nanos,
    reads_until: Nanos,
    /// Whether any path was in doubt then.
    has_doubts: bool,
    /// Distribution of symbols over the paths.
    shares: Shares,
    /// Symbols that arrived over each path, by the sink's reports, and when paths are judged by
    /// them next. Used at the source.
    arrivals: PathArrivals,
    judges_at: Nanos,
}

impl Paths {
    /// Creates the state for a window of this many symbols, a power of two.
    pub(crate) fn new(spread: Spread, symbols: usize) -> Self {
        let symbols = Self::symbols(spread, symbols);
        Self {
            spread,
            carriers: vec![0; symbols].into_boxed_slice(),
            arrivals: PathArrivals::new(symbols),
            judges_at: 0,
            doubted: (0, 0),
            halted: 0,
            again_at: (0, 0),
            watched_at: 0,
            reads_until: 0,
            has_doubts: false,
            shares: Shares::default(),
        }
    }

    /// Resizes the window to this many symbols, a power of two, ending before number `end`.
    pub(crate) fn resize(&mut self, symbols: usize, end: u32) {
        let symbols = Self::symbols(self.spread, symbols);
        self.arrivals.resize(symbols);
        let new = vec![0; symbols].into_boxed_slice();
        let old = std::mem::replace(&mut self.carriers, new);
        for back in 1..=old.len().min(self.carriers.len()) as u32 {
            let number = end.wrapping_sub(back) as usize;
            self.carriers[number & (self.carriers.len() - 1)] = old[number & (old.len() - 1)];
        }
    }

    /// Symbols whose path is recorded.
    fn symbols(spread: Spread, symbols: usize) -> usize {
        if spread == Spread::Every { 0 } else { symbols }
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(spread: Spread, symbols: usize) -> usize {
        let symbols = Self::symbols(spread, symbols);
        symbols + PathArrivals::memory_bytes(symbols)
    }

    pub(crate) fn spread(&self) -> Spread {
        self.spread
    }

    /// State of the path at `place` relative to the others.
    pub(crate) fn branch(&self, place: usize) -> Branch {
        if self.spread == Spread::Every {
            return Branch::default();
        }
        let is_in_doubt = self.lost() & 1 << place != 0;
        Branch { share: self.shares.of(place), is_in_doubt, waits_since: None }
    }

    /// Bitmap of the paths that others have taken over from.
    fn lost(&self) -> u8 {
        let paths =
            (0..NEXT_HOPS_MAX).filter(|place| self.arrivals.is_avoided(*place, self.watched_at));
        paths.fold(self.doubted.0 | self.doubted.1, |bits, place| bits | 1 << place)
    }

    /// Whether the path at `place` is suspended: its next hop confirms nothing.
    pub(crate) fn is_suspended(&self, place: usize, now: Nanos) -> bool {
        self.arrivals.is_suspended(place, now)
    }

    /// Whether some of several paths to one receiver deliver nothing, and others have taken over.
    pub(crate) fn lacks_some(&self, hops: &[Hop]) -> bool {
        let lost = self.lost().count_ones() as usize;
        self.spread != Spread::Every && (1..hops.len()).contains(&lost)
    }

    fn carrier_mut(&mut self, number: u32) -> &mut u8 {
        let mask = self.carriers.len() - 1;
        &mut self.carriers[number as usize & mask]
    }

    /// The path that a number is assigned to.
    fn carrier(&mut self, number: u32) -> usize {
        usize::from(*self.carrier_mut(number) & !CAME)
    }

    /// Notes that a symbol reached the neighbour on the path at `place` while nothing is forwarded
    /// there: if forwarding resumes before another path takes the symbol, it counts as delivered.
    pub(crate) fn note_came(&mut self, place: usize, number: u32) {
        if self.carrier(number) == place {
            *self.carrier_mut(number) |= CAME;
            note(&mut self.halted, place, true);
        }
    }

    /// The neighbour on the path at `place` forwards again, including the symbols that it holds.
    fn go_on(&mut self, place: usize, store: &mut Store, receiver: usize) {
        note(&mut self.halted, place, false);
        for step in 0..store.end().wrapping_sub(store.start()) {
            let number = store.start().wrapping_add(step);
            let carrier = self.carrier_mut(number);
            if *carrier == place as u8 | CAME {
                *carrier = place as u8;
                store.set_done(number, receiver);
            }
        }
    }

    /// Chooses and records the path for a symbol of this many bytes. With `again`, avoids the
    /// previous path, since the symbol did not arrive over it.
    pub(crate) fn assign(
        &mut self,
        hops: &mut [Hop],
        number: u32,
        bytes: usize,
        again: bool,
        now: Nanos,
    ) -> usize {
        let avoid = if again { Some(self.carrier(number)) } else { None };
        let backup = self.spread == Spread::Backup;
        let arrivals = &self.arrivals;
        // Sort key, best first: answers, delivers, carries this size, is not the previous path, is
        // not full, arrives first.
        let worth = |(place, (_, sender)): (usize, &mut Hop)| {
            let is_previous = avoid == Some(place);
            let usage = match arrivals.usage(place, number, now) {
                Use::Trial if again || is_full(sender, now) => Use::Avoid,
                usage => usage,
            };
            let unfit = (sender.is_in_doubt(now), usage, sender.refuses(bytes), is_previous);
            let arrives = if backup { 0 } else { sender.arrives_after(now) };
            let is_full = bytes > SHORT_BYTES && is_full(sender, now);
            (unfit, !backup && is_full, arrives, place)
        };
        let place = hops.iter_mut().enumerate().map(worth).min().map_or(0, |(.., place)| place);
        *self.carrier_mut(number) = place as u8;
        self.arrivals.note_moved(number);
        self.shares.note(place);
        if hops.get(place).is_some_and(|(_, sender)| sender.is_in_doubt(now)) {
            // All are in doubt: once another path answers, it takes over.
            note(&mut self.doubted.0, place, false);
            note(&mut self.doubted.1, place, false);
        }
        place
    }

    /// Whether a new symbol can leave soon; otherwise when to check again.
    pub(crate) fn opens_at(&self, hops: &[Hop], now: Nanos) -> Result<(), Option<Nanos>> {
        let in_use = |(place, (_, sender)): &(usize, &Hop)| {
            !sender.is_in_doubt(now) && !self.arrivals.is_avoided(*place, now)
        };
        let is_none_in_use = !hops.iter().enumerate().any(|hop| in_use(&hop));
        let candidates = hops.iter().enumerate().filter(|hop| is_none_in_use || in_use(hop));
        let most = if self.spread == Spread::Backup { 1 } else { hops.len() };
        let mut at: Option<Nanos> = None;
        for (_, (_, sender)) in candidates.take(most) {
            if !is_full(sender, now) {
                return Ok(());
            }
            let opens = match sender.opens_at(now) {
                Ok(()) => Some(now + AGAIN_NANOS),
                Err(opens) => opens,
            };
            at = [at, opens].into_iter().flatten().min();
        }
        Err(at)
    }

    /// Notes that a symbol left over the path at `place` of the source.
    pub(crate) fn note_left(&mut self, place: usize, number: u32, now: Nanos) {
        self.arrivals.note_left(place, number, now);
    }

    /// Notes that the sink requested a symbol.
    pub(crate) fn note_requested(&mut self, number: u32) {
        self.arrivals.note_requested(number);
    }

    /// Notes that the sink sent a report when it had the symbol `newest`; `end` is the next number.
    pub(crate) fn note_heard(&mut self, newest: u32, end: u32, now: Nanos) {
        self.arrivals.note_heard(newest, end, now);
    }

    /// Processes the sink's report on symbols that arrived, sent when it had the symbol `newest`.
    /// They need not be sent any more, whatever next hops report.
    pub(crate) fn hear_arrivals(
        &mut self,
        hops: &mut [Hop],
        store: &mut Store,
        report: &ArrivalReport<'_>,
        newest: u32,
        now: Nanos,
    ) {
        if self.spread == Spread::Every {
            return;
        }
        let receiver = hops.first().map_or(0, |(_, sender)| sender.receiver());
        let end = store.end();
        self.arrivals.hear(report, newest, &states(hops, now), end, |number, came| {
            let is_acknowledged = store.is_done(number, receiver);
            if came {
                store.set_done(number, receiver);
            }
            is_acknowledged
        });
    }

    /// Suspends paths whose symbols do not arrive, and lets others send the recent ones.
    fn judge(&mut self, hops: &mut [Hop], store: &mut Store, now: Nanos) {
        let paths = states(hops, now);
        let count = hops.len().min(NEXT_HOPS_MAX);
        while let Some(place) = self.arrivals.judge(&paths[..count], now) {
            self.take_over(hops, place, store, Some(paths[place].patience()), now);
        }
    }

    /// Lets other paths send the symbols of one that just fell silent. A node on one of several
    /// paths keeps probing, since it reports upstream whether it is in doubt. `is_source`: only the
    /// source receives the sink's reports as they were sent.
    pub(crate) fn watch(
        &mut self,
        hops: &mut [Hop],
        store: &mut Store,
        is_part: bool,
        is_source: bool,
        now: Nanos,
    ) {
        if self.spread == Spread::Every && !is_part {
            return;
        }
        if now > self.watched_at + PAUSE_NANOS && !self.has_doubts {
            self.reads_until = now + READ_NANOS;
        }
        self.watched_at = now;
        if self.is_reading(now) {
            return;
        }
        let doubted = hops.iter_mut().filter(|(_, sender)| sender.is_in_doubt(now));
        self.has_doubts = doubted.map(|(_, sender)| sender.ask_anew(now)).count() > 0;
        if self.spread == Spread::Every {
            return;
        }
        if is_source && now >= self.judges_at {
            self.judges_at = now + JUDGE_NANOS;
            self.judge(hops, store, now);
        }
        for place in 0..hops.len() {
            let sender = &mut hops[place].1;
            let (is_in_doubt, is_stuck) = (sender.is_in_doubt(now), sender.is_stuck_behind());
            let bit = 1 << place;
            if !is_stuck && self.halted & bit != 0 {
                let receiver = sender.receiver();
                self.go_on(place, store, receiver);
            }
            let is_known = (self.doubted.0 & bit != 0, self.doubted.1 & bit != 0);
            let is_news = is_in_doubt && !is_known.0 || is_stuck && !is_known.1;
            // After a pause of this node, all paths appear silent: the change stays pending until
            // one answers.
            let has_other = hops.iter().any(|(_, other)| !other.is_in_doubt(now));
            if is_news && (now < self.again_at.0 || !has_other) {
                continue;
            }
            note(&mut self.doubted.0, place, is_in_doubt);
            note(&mut self.doubted.1, place, is_stuck);
            if is_news {
                //= docs/protocol §4.2(a)
                self.again_at.0 = now + TAKE_OVER_NANOS;
                let confirmed = self.takes_confirmed(&hops[place].1, now);
                self.take_over(hops, place, store, confirmed, now);
            }
        }
    }

    /// Whether reports received during a pause of this node may still be unread.
    pub(crate) fn is_reading(&self, now: Nanos) -> bool {
        now < self.reads_until
    }

    /// When [`Paths::watch`] is due next, even without arrivals.
    pub(crate) fn due(&self, hops: &[Hop], now: Nanos) -> Option<Nanos> {
        if self.spread == Spread::Every {
            return None;
        }
        let doubts = |(_, sender): &Hop| {
            let earliest = self.again_at.0.max(self.reads_until);
            sender.doubted_at().map(|at| at.max(earliest)).filter(|at| *at > now)
        };
        hops.iter().filter_map(doubts).min()
    }

    /// Age of symbols that the neighbour of a path received and that may be lost behind it; `None`
    /// if none is, or some were taken over recently.
    fn takes_confirmed(&mut self, sender: &Sender, now: Nanos) -> Option<Nanos> {
        if !sender.is_stuck_behind() || now < self.again_at.1 {
            return None;
        }
        self.again_at.1 = now + TAKE_CONFIRMED_NANOS;
        Some(LATELY_NANOS + LATELY_HALF_TRIPS * sender.link.path_round_trip() / 2)
    }

    /// Lets other paths send the recent symbols of the path at `place`: those that its neighbour
    /// lacks, and those up to the age of `confirmed`.
    fn take_over(
        &mut self,
        hops: &mut [Hop],
        place: usize,
        store: &mut Store,
        confirmed: Option<Nanos>,
        now: Nanos,
    ) {
        let sender = &mut hops[place].1;
        sender.hand_over();
        let receiver = sender.receiver();
        let count = store.end().wrapping_sub(store.start());
        for step in 0..count {
            let number = store.start().wrapping_add(step);
            let is_here = store.is_known(number) && self.carrier(number) == place;
            if !is_here {
                continue;
            }
            if confirmed.is_some_and(|lately| store.heard_at(number) + lately > now) {
                store.set_undone(number, receiver);
            }
            if !store.is_done(number, receiver) {
                let other = self.assign(hops, number, store.packet_bytes(number), true, now);
                hops[other].1.queue(number, store.symbols());
            }
        }
    }
}

/// State of each path.
fn states(hops: &[Hop], now: Nanos) -> [PathState; NEXT_HOPS_MAX] {
    let mut states = [PathState::default(); NEXT_HOPS_MAX];
    for (state, (_, sender)) in states.iter_mut().zip(hops) {
        *state = PathState {
            answers: !sender.is_in_doubt(now),
            round_trip: sender.link.path_round_trip(),
            backlog: sender.link.backlog,
        };
    }
    states
}

/// Sets or clears the bit of a path.
fn note(bits: &mut u8, place: usize, on: bool) {
    *bits = *bits & !(1 << place) | u8::from(on) << place;
}

/// Whether a symbol would queue for long.
fn is_full(sender: &Sender, now: Nanos) -> bool {
    let waits = match sender.opens_at(now) {
        Ok(()) => 0,
        Err(Some(at)) => at.saturating_sub(now),
        Err(None) => Nanos::MAX,
    };
    waits.max(sender.waits(now)) > WAIT_MAX_NANOS
}
