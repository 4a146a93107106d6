//! Streams, whose hops each make up for their own losses: the packets that a link carries for each
//! symbol, and the delay that losses add.
//!
//! A hop sends what is reported lost again a *turn* later: a round trip, the time until a packet
//! arrives that shows the gap, and until a report arrives that tells of it. With losses of the
//! Gilbert-Elliott model, a symbol takes k turns more with probability
//!
//! ```text
//!  f c^(k-1) (1 - c)      c = e + (1 - e) r^n      f = e (1 - r^n)      r = 1 - p - q
//! ```
//!
//! for n packets of the link in a turn and p, q from good to bad and back. c is the probability
//! that a packet n after a lost one is lost as well. f, the share of symbols lost at first, follows
//! from conservation: of all packets a share 1 - e brings a symbol, so that there are 1 / (1 - e)
//! packets per symbol, whatever the bursts.
//!
//! In advance, a hop sends `rho` combinations per symbol. What the next node lacks is then the
//! queue of [`super::window`], without an end of the window: all of it becomes known when the queue
//! is empty. The sender knows how many combinations on their way will arrive, C = rho (1 - e)
//! symbols per turn, and sends again what exceeds them: the queue has C places, and what it refuses
//! is sent again. (Without combinations, C = 0, that is the case above.) What is still missing
//! after a turn and a quarter is sent again in any case.
//!
//! Delays of hops are independent and add up, but for this: while a hop waits for combinations, the
//! next one gets what arrives, a share 1 - e, and the rest at once later. Its own combinations,
//! which come with symbols, come that much more slowly when they are needed.
//!
//! Against the pipeline itself in virtual time
//! (`dataplane/pipeline/tests/pipeline/stream_theory.rs`) the packets per symbol are right within a
//! point of a hundred, and so is the share of symbols by any time, that being known to 0.3 ms and a
//! twentieth of a round trip; mean delays within a fifth.
//! Bursts are an exception where they and the round trip are as short as one another: reports that
//! are lost in a row hold the sender up, which is not counted in.

mod plan;

pub use plan::{Plan, StreamProfile};

use super::LossModel;
use super::chain::Channel;
use super::window::{Deficit, WindowCode};

/// A receiver reports so long after the first packet that it has not reported yet.
const REPORT_SECONDS: f64 = 0.0005;

/// What combinations did not give is sent again after so many round trips, and seconds.
const PATIENCE_ROUND_TRIPS: f64 = 1.25;
const PATIENCE_SECONDS: f64 = 0.002;

/// Resolution of delays.
const TICK_SECONDS: f64 = 1e-4;

/// Probabilities below this are not carried on.
const VANISHING: f64 = 1e-6;

/// Probabilities of single ticks below this count as none.
const NOTHING: f64 = 1e-9;

/// Symbols after which the queue is in equilibrium: its relaxation time is variance over drift
/// squared, some hundred symbols for bursts of 8 and 3 % above the losses.
const SETTLING_SYMBOLS: usize = 4096;

/// Symbols over which delays are averaged, since it matters how soon a combination follows.
const PHASES_MAX: f64 = 32.0;

/// Share of combinations over GF(256) that say nothing new of one missing symbol.
const REDUNDANT: f64 = 1.0 / 256.0;

/// Limits of what can be asked for, which may come from measurements.
const LOSS_MAX: f64 = 0.5;
const BURST_MAX: f64 = 64.0;
const ROUND_TRIP_MAX_SECONDS: f64 = 2.0;
const RATE: (f64, f64) = (1.0, 1e6);
const RHO_MAX: f64 = 2.0;

/// One hop of a stream.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct StreamHop {
    /// What its link loses, in either direction.
    loss: LossModel,
    /// Seconds there and back.
    round_trip: f64,
    /// Symbols per second. Keepalives, which show a gap when none follow, are not counted in.
    rate: f64,
    /// Combinations per symbol, sent in advance.
    rho: f64,
}

impl StreamHop {
    /// A hop of these figures, as near to them as can be asked for.
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

    /// A hop that sends in advance what [`Plan`] says.
    #[must_use]
    pub fn planned(loss: LossModel, round_trip: f64, rate: f64, profile: StreamProfile) -> Self {
        let plan = Plan::new(loss, (rate, false), round_trip, profile);
        Self::new(loss, round_trip, rate, plan.rho)
    }

    /// Packets that leave over the link for each symbol.
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
        delay.add_turns(&turn, (first, again));
        delay
    }

    /// From sending a symbol that is lost to sending it again.
    fn turn(&self) -> Delay {
        let Channel { loss, bad_to_good, .. } = self.channel();
        let spacing = 1.0 / self.rate;
        let shown = Delay::geometric(spacing * (1.0 - loss), bad_to_good);
        // Of the packets that one report covers, any may show the gap.
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
        delay.add_turns(&Delay::of(patience), (left, self.channel().loss));
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

/// What the next node lacks and nothing but a combination will bring, and what the sender does
/// about it.
#[derive(Clone)]
struct Queue {
    deficit: Deficit,
    rho: f64,
    credit: f64,
    /// Its places.
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

    /// A symbol is sent, and the combinations that are due then. Returns how many are still lacking
    /// for which there is no place.
    fn symbol(&mut self) -> f64 {
        self.deficit.source();
        self.credit += self.rho;
        while self.credit >= 1.0 {
            self.credit -= 1.0;
            self.deficit.repair();
        }
        // One report tells of the symbol and of these.
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

    /// The seconds that a share of all symbols does not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sum = 0.0;
        let reaches = |probability: &f64| {
            sum += probability;
            sum >= share
        };
        seconds(self.ticks.iter().position(reaches).unwrap_or(self.ticks.len()))
    }

    /// Share of symbols that it takes no longer than so many seconds.
    #[must_use]
    pub fn within(&self, seconds: f64) -> f64 {
        let ticks = ((seconds / TICK_SECONDS).floor() + 1.0).max(0.0) as usize;
        self.ticks.iter().take(ticks).sum()
    }

    /// The delay in order, where each of `rate` symbols per second waits for all before it. They
    /// are taken to be independent of each other: that is right for independent losses that are
    /// sent again. Bursts and combinations end many waits at once, and the delay is less.
    #[must_use]
    pub fn in_order(&self, rate: f64) -> Self {
        let (mut until, all) = (self.ticks.clone(), self.ticks.iter().sum::<f64>());
        let mut sum = 0.0;
        for probability in &mut until {
            sum += *probability;
            *probability = f64::min(sum / all, 1.0);
        }
        // What is negligible is not to keep others for ever.
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

    /// Always the same.
    fn of(seconds: f64) -> Self {
        let mut delay = Self::default();
        delay.add(seconds, 1.0);
        delay
    }

    /// As many steps as it takes until something of this probability happens.
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

    /// Adds turns until one succeeds: `first` is the probability that it takes any, `again` that it
    /// takes one more after each.
    fn add_turns(&mut self, turn: &Self, (first, again): (f64, f64)) {
        let (mut turns, mut lost) = (turn.clone(), first);
        while lost > VANISHING {
            self.mix(&turns, lost * (1.0 - again));
            lost *= again;
            turns = turns.then(turn);
        }
    }

    /// Adds a share of another one.
    fn mix(&mut self, other: &Self, share: f64) {
        self.ticks.resize(self.ticks.len().max(other.ticks.len()), 0.0);
        self.ticks.iter_mut().zip(&other.ticks).for_each(|(tick, more)| *tick += share * more);
    }

    fn scale(&mut self, share: f64) {
        self.ticks.iter_mut().for_each(|tick| *tick *= share);
    }
}

/// Those that are worth counting, with their ticks.
fn present(ticks: &[f64]) -> impl Iterator<Item = (usize, f64)> {
    ticks.iter().copied().enumerate().filter(|(_, probability)| *probability > NOTHING)
}

fn seconds(tick: usize) -> f64 {
    tick as f64 * TICK_SECONDS
}

#[cfg(test)]
mod tests;
