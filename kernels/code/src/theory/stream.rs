//! Streams with per-hop retransmission: packets that a link carries for each symbol, and the delay
//! that losses add.
//!
//! A hop retransmits symbols reported lost a *turn* later: a round trip, the time until a packet
//! arrives that shows the gap, and the time until a report of it arrives. With losses of the
//! Gilbert-Elliott model, a symbol takes k more turns with probability
//!
//! ```text
//!  f c^(k-1) (1 - c)      c = e + (1 - e) r^n      f = e (1 - r^n)      r = 1 - p - q
//! ```
//!
//! for n packets of the link in a turn and p, q from good to bad and back. c is the probability
//! that a packet n after a lost one is lost as well. f, the share of symbols lost at first, follows
//! from conservation: a share 1 - e of all packets delivers a symbol, so that there are 1 / (1 - e)
//! packets per symbol, whatever the bursts.
//!
//! In advance, a hop sends `rho` combinations per symbol. The deficit of the next node is then the
//! queue of [`super::window`], without an end of the window: all of it becomes known when the queue
//! is empty. The sender knows how many combinations in flight will arrive, C = rho (1 - e) symbols
//! per turn, and retransmits symbols beyond that: the queue has C places, and refused symbols are
//! retransmitted. (Without combinations, C = 0 is the case above.) Symbols still missing after a
//! turn and a quarter are always retransmitted.
//!
//! Delays of hops are independent and add up, with one exception: while a hop waits for
//! combinations, the next one gets only the arrivals, a share 1 - e, and the rest at once later.
//! Its own combinations, which are sent with symbols, slow down accordingly when they are needed.
//!
//! Compared with the pipeline itself in virtual time
//! (`dataplane/pipeline/tests/pipeline/stream_theory.rs`), packets per symbol agree within one
//! percentage point, and so does the share of symbols by any time, if that is known to 0.3 ms and a
//! twentieth of a round trip; mean delays agree within a fifth. Bursts as short as the round trip
//! are an exception: consecutive lost reports delay retransmissions, which the model omits.

mod plan;

pub use plan::{Plan, StreamProfile, Traffic};

use super::LossModel;
use super::chain::Channel;
use super::window::{Deficit, WindowCode};

/// Interval after the first unreported packet until a receiver reports it.
const REPORT_SECONDS: f64 = 0.0005;

/// Round trips, and seconds, after which symbols not recovered by combinations are retransmitted.
const PATIENCE_ROUND_TRIPS: f64 = 1.25;
const PATIENCE_SECONDS: f64 = 0.002;

/// Resolution of delays.
const TICK_SECONDS: f64 = 1e-4;

/// Smaller probabilities are dropped.
const VANISHING: f64 = 1e-6;

/// Smaller probabilities of single ticks count as none.
const NOTHING: f64 = 1e-9;

/// Symbols after which the queue is in equilibrium: its relaxation time is variance over drift
/// squared, some hundred symbols for bursts of 8 and 3 % above the losses.
const SETTLING_SYMBOLS: usize = 4096;

/// Symbols over which delays are averaged, since it matters how soon a combination follows.
const PHASES_MAX: f64 = 32.0;

/// Share of combinations over GF(256) that are redundant for one missing symbol.
const REDUNDANT: f64 = 1.0 / 256.0;

/// Limits of the inputs, which may come from measurements.
const LOSS_MAX: f64 = 0.5;
const BURST_MAX: f64 = 64.0;
const ROUND_TRIP_MAX_SECONDS: f64 = 2.0;
const RATE: (f64, f64) = (1.0, 1e6);
const RHO_MAX: f64 = 2.0;

/// One hop of a stream.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct StreamHop {
    /// Loss of its link, in either direction.
    loss: LossModel,
    /// Round-trip time in seconds.
    round_trip: f64,
    /// Symbols per second. Keepalives, which show a gap when no symbols follow, are not counted.
    rate: f64,
    /// Combinations per symbol, sent in advance.
    rho: f64,
}

impl StreamHop {
    /// A hop with these figures, clamped to the supported range.
    #[must_use]
    pub fn new(loss: LossModel, round_trip: f64, rate: f64, rho: f64) -> Self {
        // The first of each pair also replaces NaN.
        let at_most = |loss: f64, most: f64| loss.max(0.0).min(most);
        let LossModel { loss, burst_mean } = loss;
        let (loss, burst_mean) = (at_most(loss, LOSS_MAX), at_most(burst_mean, BURST_MAX));
        Self {
            loss: LossModel { loss, burst_mean },
            round_trip: at_most(round_trip, ROUND_TRIP_MAX_SECONDS),
            rate: rate.max(RATE.0).min(RATE.1),
            rho: at_most(rho, RHO_MAX),
        }
    }

    /// A hop that sends the combinations of a [`Plan`].
    #[must_use]
    pub fn planned(loss: LossModel, round_trip: f64, rate: f64, profile: StreamProfile) -> Self {
        let plan = Plan::new(loss, Traffic::steady(rate), round_trip, profile);
        Self::new(loss, round_trip, rate, plan.rho)
    }

    /// Packets sent over the link for each symbol.
    #[must_use]
    pub fn packets(&self) -> f64 {
        let mut queue = Queue::settled(self);
        let refused: f64 = (0..SETTLING_SYMBOLS).map(|_| queue.symbol()).sum();
        let again = refused / SETTLING_SYMBOLS as f64 / (1.0 - self.channel().loss);
        1.0 + self.rho + again
    }

    /// The delay that the losses of this hop add. Combinations that do not outnumber the losses do
    /// not shorten it, and count as none.
    #[must_use]
    pub fn delay(&self) -> Delay {
        if self.is_ahead() { self.recovered() } else { self.sent_again() }
    }

    fn channel(&self) -> Channel {
        Channel::new(self.loss)
    }

    /// Whether more combinations arrive than symbols are lost.
    fn is_ahead(&self) -> bool {
        let loss = self.channel().loss;
        self.rho * (1.0 - loss) > loss
    }

    fn sent_again(&self) -> Delay {
        let Channel { loss, good_to_bad, bad_to_good } = self.channel();
        let turn = self.turn();
        let between = self.rate * turn.mean() / (1.0 - loss);
        let memory = (1.0 - good_to_bad - bad_to_good).max(0.0).powf(between.max(1.0));
        let (first, again) = (loss * (1.0 - memory), loss + (1.0 - loss) * memory);
        let mut delay = Delay::default();
        delay.add(0.0, 1.0 - first);
        delay.add_turns(&turn, first, again);
        delay
    }

    /// Time from sending a symbol that is lost to its retransmission.
    fn turn(&self) -> Delay {
        let Channel { loss, bad_to_good, .. } = self.channel();
        let spacing = 1.0 / self.rate;
        let shown = Delay::geometric(spacing * (1.0 - loss), bad_to_good);
        // Any of the packets covered by one report may show the gap.
        let mut report = Delay::default();
        let covered = (REPORT_SECONDS / spacing).floor() + 1.0;
        for packet in 0..covered as u32 {
            report.add(REPORT_SECONDS - f64::from(packet) * spacing, 1.0 / covered);
        }
        let mut lost = Delay::none();
        lost.scale(1.0 - loss);
        lost.mix(&Delay::geometric(REPORT_SECONDS + spacing, bad_to_good), loss);
        Delay::of(self.round_trip).then(&shown).then(&report).then(&lost)
    }

    fn recovered(&self) -> Delay {
        let mut queue = Queue::settled(self);
        let patience = PATIENCE_ROUND_TRIPS * self.round_trip + PATIENCE_SECONDS;
        let phases = (1.0 / self.rho).round().clamp(1.0, PHASES_MAX);
        let (mut delay, mut left) = (Delay::default(), 0.0);
        for _ in 0..phases as u32 {
            let mut lost = queue.clone();
            lost.deficit.keep_lost();
            delay.add(0.0, (1.0 - lost.deficit.mass()) / phases);
            for after in 0..(patience * self.rate).ceil() as u32 {
                if lost.deficit.mass() < VANISHING {
                    break;
                }
                lost.symbol();
                delay.add(f64::from(after) / self.rate, lost.deficit.take_complete() / phases);
            }
            left += lost.deficit.mass() / phases;
            queue.symbol();
        }
        delay.add_turns(&Delay::of(patience), left, self.channel().loss);
        delay
    }
}

/// The delay that losses add until behind each of these hops.
#[must_use]
pub fn delays(hops: &[StreamHop]) -> Vec<Delay> {
    let mut slower = 1.0;
    let mut sum = Delay::none();
    let behind = |hop: &StreamHop| {
        let own = StreamHop { rate: hop.rate * slower, ..*hop };
        slower = if hop.is_ahead() { 1.0 - hop.channel().loss } else { 1.0 };
        sum = sum.then(&if hop.is_ahead() { own.delay() } else { hop.delay() });
        sum.clone()
    };
    hops.iter().map(behind).collect()
}

/// The next node's deficit that only combinations can reduce, and the sender's response to it.
#[derive(Clone)]
struct Queue {
    deficit: Deficit,
    rho: f64,
    credit: f64,
    /// Number of its places.
    most: usize,
}

impl Queue {
    fn settled(hop: &StreamHop) -> Self {
        let code = WindowCode { symbols: 0, redundant: REDUNDANT, path: hop.loss };
        let arriving = hop.rho * (1.0 - hop.channel().loss);
        let most = (arriving * hop.rate * hop.round_trip) as usize;
        let mut queue = Self { deficit: Deficit::new(&code), rho: hop.rho, credit: 0.0, most };
        (0..SETTLING_SYMBOLS).for_each(|_| {
            queue.symbol();
        });
        queue
    }

    /// Sends a symbol and the combinations due with it. Returns the missing number without a place.
    fn symbol(&mut self) -> f64 {
        self.deficit.source();
        self.credit += self.rho;
        while self.credit >= 1.0 {
            self.credit -= 1.0;
            self.deficit.repair();
        }
        // One report covers the symbol and these.
        self.deficit.refuse(self.most)
    }
}

/// Distribution of a delay.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Delay {
    /// Probabilities, by ticks.
    ticks: Vec<f64>,
}

impl Delay {
    /// No delay.
    #[must_use]
    pub fn none() -> Self {
        Self::of(0.0)
    }

    /// The sum of this delay and another one that is independent of it.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        let mut ticks = vec![0.0; self.ticks.len() + next.ticks.len()];
        for (first, probability) in present(&self.ticks) {
            for (second, other) in present(&next.ticks) {
                ticks[first + second] += probability * other;
            }
        }
        Self { ticks }
    }

    /// Its mean, in seconds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        present(&self.ticks).map(|(tick, probability)| seconds(tick) * probability).sum()
    }

    /// The delay that a share of all symbols does not exceed, in seconds.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sum = 0.0;
        let reaches = |probability: &f64| {
            sum += probability;
            sum >= share
        };
        seconds(self.ticks.iter().position(reaches).unwrap_or(self.ticks.len()))
    }

    /// Share of symbols with a delay of at most `seconds`.
    #[must_use]
    pub fn within(&self, seconds: f64) -> f64 {
        let ticks = ((seconds / TICK_SECONDS).floor() + 1.0).max(0.0) as usize;
        self.ticks.iter().take(ticks).sum()
    }

    /// The delay in order, where each of `rate` symbols per second waits for all before it. Delays
    /// are assumed to be independent, which is right for independent losses that are retransmitted.
    /// Bursts and combinations end many waits at once, and the delay is less.
    #[must_use]
    pub fn in_order(&self, rate: f64) -> Self {
        let (mut until, all) = (self.ticks.clone(), self.ticks.iter().sum::<f64>());
        let mut sum = 0.0;
        for probability in &mut until {
            sum += *probability;
            *probability = f64::min(sum / all, 1.0);
        }
        // A negligible share must not stall others indefinitely.
        until.last_mut().into_iter().for_each(|last| *last = 1.0);
        // From the last tick backwards: of those sent a tick earlier, a tick more has passed.
        let mut before = 0.0;
        for probability in until.iter_mut().rev() {
            let own = probability.ln();
            *probability = (own + before).exp();
            before += rate * TICK_SECONDS * own;
        }
        let mut last = 0.0;
        for probability in &mut until {
            let sum = *probability;
            *probability = sum - std::mem::replace(&mut last, sum);
        }
        Self { ticks: until }
    }

    /// A constant delay.
    fn of(seconds: f64) -> Self {
        let mut delay = Self::default();
        delay.add(seconds, 1.0);
        delay
    }

    /// The number of steps until an event of this probability happens.
    fn geometric(step_seconds: f64, probability: f64) -> Self {
        let (mut delay, mut rest) = (Self::default(), 1.0);
        let mut steps = 0.0;
        while rest > VANISHING {
            steps += 1.0;
            delay.add(steps * step_seconds, rest * probability);
            rest *= 1.0 - probability;
        }
        delay
    }

    fn add(&mut self, seconds: f64, probability: f64) {
        let tick = (seconds / TICK_SECONDS).round() as usize;
        if tick >= self.ticks.len() {
            self.ticks.resize(tick + 1, 0.0);
        }
        self.ticks[tick] += probability;
    }

    /// Adds turns until one succeeds: `first` is the probability that any are needed, `again` that
    /// one more follows each.
    fn add_turns(&mut self, turn: &Self, first: f64, again: f64) {
        let (mut turns, mut lost) = (turn.clone(), first);
        while lost > VANISHING {
            self.mix(&turns, lost * (1.0 - again));
            lost *= again;
            turns = turns.then(turn);
        }
    }

    /// Adds a share of another delay.
    fn mix(&mut self, other: &Self, share: f64) {
        self.ticks.resize(self.ticks.len().max(other.ticks.len()), 0.0);
        self.ticks.iter_mut().zip(&other.ticks).for_each(|(tick, more)| *tick += share * more);
    }

    fn scale(&mut self, share: f64) {
        self.ticks.iter_mut().for_each(|tick| *tick *= share);
    }
}

/// The probabilities that count, with their ticks.
fn present(ticks: &[f64]) -> impl Iterator<Item = (usize, f64)> {
    ticks.iter().copied().enumerate().filter(|(_, probability)| *probability > NOTHING)
}

fn seconds(tick: usize) -> f64 {
    tick as f64 * TICK_SECONDS
}

#[cfg(test)]
mod tests;
