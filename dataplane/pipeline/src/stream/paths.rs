//! Several next hops as paths to one receiver: which of them gets a symbol, and who sends what one
//! of them had when it falls silent.
//!
//! Losses are mended by each hop for itself, so a path is known by what it makes of a symbol: how
//! long that takes, and whether it can take one now. What the paths carry together is then the sum
//! of what each carries, and the receiver puts it in order.

use crate::params::{Nanos, PeerId, Spread};
use crate::peer::shares::Shares;
use crate::report::Branch;
use crate::stream::sender::Sender;
use crate::stream::store::Store;

/// A path is full when a symbol would wait for longer before it leaves: enough for bursts, so that
/// they do not take the longer way; too little to delay what follows.
const WAIT_MAX_NANOS: Nanos = 3_000_000;

/// Shorter symbols go where they arrive first, also where that path is full: they are of calls and
/// games, and fill none.
const SHORT_BYTES: usize = 512;

/// When a path that is full is looked at again.
const AGAIN_NANOS: Nanos = 1_000_000;

/// What a path had for longer before it fell silent has arrived: so long, and halves of the round
/// trips of its hops. A relay takes that and one and a quarter of its own to find that the next
/// node is silent; the symbol and the report take one of those before. What was sent again before
/// that, the sink asks for: with 100 ms and two round trips, an ordered stream waited twice as long
/// while the other path carried what had arrived.
const LATELY_NANOS: Nanos = 25_000_000;
const LATELY_HALF_TRIPS: Nanos = 3;

/// A node that did not run for so long reads for so long what came meanwhile, before it takes a
/// path for silent.
const PAUSE_NANOS: Nanos = 10_000_000;
const READ_NANOS: Nanos = 5_000_000;

/// Others take over what a path had this often at most, whatever reports say; and what is
/// confirmed besides.
const TAKE_OVER_NANOS: Nanos = 100_000_000;
const TAKE_CONFIRMED_NANOS: Nanos = 1_000_000_000;

/// Beside the path that has a symbol: it came to the first hop, and did not go on from there.
const CAME: u8 = 0x80;

/// One next hop.
type Hop = (PeerId, Sender);

/// Which path has which symbol.
#[derive(Debug)]
pub(crate) struct Paths {
    spread: Spread,
    /// By number, modulo their count, which is a power of two; and [`CAME`].
    carriers: Box<[u8]>,
    /// Paths that are in doubt, a bit each, and those of them whose first hop answers.
    doubted: (u8, u8),
    /// Those to whose first hop symbols came that did not go on from there.
    halted: u8,
    /// When others may take over again, and what is confirmed.
    again_at: (Nanos, Nanos),
    /// When it was looked at them last, and until when reports are read that came before.
    watched_at: Nanos,
    reads_until: Nanos,
    /// Whether any was in doubt then.
    has_doubts: bool,
    /// Which paths symbols took.
    shares: Shares,
}

impl Paths {
    /// For a window of so many symbols, a power of two.
    pub(crate) fn new(spread: Spread, symbols: usize) -> Self {
        let carriers = vec![0; Self::memory_bytes(spread, symbols)].into_boxed_slice();
        Self {
            spread,
            carriers,
            doubted: (0, 0),
            halted: 0,
            again_at: (0, 0),
            watched_at: 0,
            reads_until: 0,
            has_doubts: false,
            shares: Shares::default(),
        }
    }

    /// For a window of so many symbols from now on, a power of two, before number `end`.
    pub(crate) fn resize(&mut self, symbols: usize, end: u32) {
        let new = vec![0; Self::memory_bytes(self.spread, symbols)].into_boxed_slice();
        let old = std::mem::replace(&mut self.carriers, new);
        for back in 1..=old.len().min(self.carriers.len()) as u32 {
            let number = end.wrapping_sub(back) as usize;
            self.carriers[number & (self.carriers.len() - 1)] = old[number & (old.len() - 1)];
        }
    }

    /// Bytes that it allocates.
    pub(crate) fn memory_bytes(spread: Spread, symbols: usize) -> usize {
        if spread == Spread::Every { 0 } else { symbols }
    }

    pub(crate) fn spread(&self) -> Spread {
        self.spread
    }

    /// How the path at a place is beside the others.
    pub(crate) fn branch(&self, place: usize) -> Branch {
        if self.spread == Spread::Every {
            return Branch::default();
        }
        let is_in_doubt = (self.doubted.0 | self.doubted.1) & 1 << place != 0;
        Branch { share: self.shares.of(place), is_in_doubt, waits_since: None }
    }

    /// Whether some of several paths to one receiver do not answer, and others carry what they did.
    pub(crate) fn lacks_some(&self, hops: &[Hop]) -> bool {
        let lost = (self.doubted.0 | self.doubted.1).count_ones() as usize;
        self.spread != Spread::Every && (1..hops.len()).contains(&lost)
    }

    fn carrier_mut(&mut self, number: u32) -> &mut u8 {
        let mask = self.carriers.len() - 1;
        &mut self.carriers[number as usize & mask]
    }

    /// The path that has a number.
    fn carrier(&mut self, number: u32) -> usize {
        usize::from(*self.carrier_mut(number) & !CAME)
    }

    /// Notes that a symbol came to the neighbour on the path at a place, from where nothing goes
    /// on: if that is over before another path has it, it is as good as there.
    pub(crate) fn note_came(&mut self, place: usize, number: u32) {
        if self.carrier(number) == place {
            *self.carrier_mut(number) |= CAME;
            note(&mut self.halted, place, true);
        }
    }

    /// What came to the neighbour on the path at a place goes on from there.
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

    /// The path that shall have a symbol of so many bytes; that is noted. `again` says that the one
    /// that had it is to be avoided, as it did not arrive.
    pub(crate) fn assign(
        &mut self,
        hops: &mut [Hop],
        (number, bytes): (u32, usize),
        again: bool,
        now: Nanos,
    ) -> usize {
        let avoid = if again { Some(self.carrier(number)) } else { None };
        let backup = self.spread == Spread::Backup;
        // The least of: who does not answer, who would lose it, who had it, who is full, when it
        // arrives.
        let worth = |(place, (_, sender)): (usize, &mut Hop)| {
            let unfit = (sender.is_in_doubt(now), sender.refuses(bytes), avoid == Some(place));
            let arrives = if backup { 0 } else { sender.arrives_after(now) };
            let is_full = bytes > SHORT_BYTES && is_full(sender, now);
            (unfit, !backup && is_full, arrives, place)
        };
        let place = hops.iter_mut().enumerate().map(worth).min().map_or(0, |(.., place)| place);
        *self.carrier_mut(number) = place as u8;
        self.shares.note(place);
        if hops.get(place).is_some_and(|(_, sender)| sender.is_in_doubt(now)) {
            // All are: once another one answers, that takes it over.
            note(&mut self.doubted.0, place, false);
            note(&mut self.doubted.1, place, false);
        }
        place
    }

    /// Whether a symbol that comes now can leave soon; otherwise when to ask again.
    pub(crate) fn opens_at(&self, hops: &[Hop], now: Nanos) -> Result<(), Option<Nanos>> {
        let in_use = |hop: &&Hop| !hop.1.is_in_doubt(now);
        let are_all_in_doubt = hops.iter().filter(in_use).count() == 0;
        let candidates = hops.iter().filter(|hop| are_all_in_doubt || in_use(hop));
        let most = if self.spread == Spread::Backup { 1 } else { hops.len() };
        let mut at: Option<Nanos> = None;
        for (_, sender) in candidates.take(most) {
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

    /// Lets others send what a path had that fell silent just now. A node that is part of one of
    /// several paths asks on: whether it is in doubt is what it tells the nodes before it.
    pub(crate) fn watch(
        &mut self,
        hops: &mut [Hop],
        store: &mut Store,
        (is_part, now): (bool, Nanos),
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
            // After a pause in which this node did not run, all seem to be silent: then it is news
            // until one answers.
            let has_other = hops.iter().any(|(_, other)| !other.is_in_doubt(now));
            if is_news && (now < self.again_at.0 || !has_other) {
                continue;
            }
            note(&mut self.doubted.0, place, is_in_doubt);
            note(&mut self.doubted.1, place, is_stuck);
            if is_news {
                self.again_at.0 = now + TAKE_OVER_NANOS;
                self.take_over(hops, place, store, now);
            }
        }
    }

    /// Whether reports may wait to be read that came while this node did not run.
    pub(crate) fn is_reading(&self, now: Nanos) -> bool {
        now < self.reads_until
    }

    /// When [`Paths::watch`] is to look again, whatever comes.
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

    /// Lets others send what the path at a place had lately.
    fn take_over(&mut self, hops: &mut [Hop], place: usize, store: &mut Store, now: Nanos) {
        let sender = &mut hops[place].1;
        sender.hand_over();
        // What its neighbour has may be lost behind that.
        let is_lost_behind = sender.is_stuck_behind() && now >= self.again_at.1;
        if is_lost_behind {
            self.again_at.1 = now + TAKE_CONFIRMED_NANOS;
        }
        let lately = LATELY_NANOS + LATELY_HALF_TRIPS * sender.path_round_trip() / 2;
        let receiver = sender.receiver();
        let count = store.end().wrapping_sub(store.start());
        for step in 0..count {
            let number = store.start().wrapping_add(step);
            let is_here = store.is_known(number) && self.carrier(number) == place;
            if !is_here {
                continue;
            }
            if is_lost_behind && store.heard_at(number) + lately > now {
                store.set_undone(number, receiver);
            }
            if !store.is_done(number, receiver) {
                let about = (number, store.packet_bytes(number));
                let other = self.assign(hops, about, true, now);
                hops[other].1.queue(number, store.symbols());
            }
        }
    }
}

/// Sets or clears the bit of a path.
fn note(bits: &mut u8, place: usize, on: bool) {
    *bits = *bits & !(1 << place) | u8::from(on) << place;
}

/// Whether a symbol would have to wait for long before it leaves.
fn is_full(sender: &Sender, now: Nanos) -> bool {
    let waits = match sender.opens_at(now) {
        Ok(()) => 0,
        Err(Some(at)) => at.saturating_sub(now),
        Err(None) => Nanos::MAX,
    };
    waits.max(sender.waits(now)) > WAIT_MAX_NANOS
}
