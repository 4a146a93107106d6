//! Rate control towards a neighbour: as fast as packets also leave the link, with a queue of a few
//! milliseconds in front of it and no more.
//!
//! Loss is a weak signal here: lossy links lose packets that they had room for. So the rate follows
//! the received rate, divided by the share that usually arrives, and the queueing delay:
//!
//! ```text
//!  rate = capacity * gain(queue)      capacity = received / (1 - usual loss)
//!  gain:  1 + k at no queue, 1 at the target, 1/2 at most below that
//! ```
//!
//! `k` shrinks where round trips are longer than the target, so that the loop does not oscillate.
//! Capacity is the maximum of the newest samples: one with pauses is only a lower bound. At the
//! start the rate runs ahead of the sent rate, until there is a queue.
//!
//! A backlog at the neighbour, caused by slower links behind it, counts as part of the queue. Then
//! the rate is the forwarding rate of the neighbour, times that gain.
//!
//! From time to time a standing queue is drained. If it does not shrink, it is not due to this
//! sender: from then on it counts as part of the base delay, or others have more than their share
//! of the link, and the sender competes with them ([`standing_queue`]). A policed link, which drops
//! the excess without a queue, is detected by a received rate that does not grow with the sent
//! rate.

use crate::config::params::Nanos;
use crate::hop::rate::competition::Competition;
use crate::hop::rate::headroom::Headroom;
use crate::hop::rate::jitter::Jitter;
use crate::hop::rate::link_share::LinkShare;
use crate::hop::rate::policed::{Policed, Rates};
use crate::hop::rate::sample::{Round, Sample, deviation};
use crate::hop::send::path_mtu::Vanishing;
use drain_rate::{DrainRate, STALLED_NANOS};
use queue_sample::{FACTOR_LEAST, QueueSample, unscaled_own, unscaled_target};
use standing_queue::{Drain, EMPTY, Rival};

/// Rates, in bytes per second: initial, minimum, maximum.
const FIRST: f64 = 12.5e6;
const LEAST: f64 = 25_000.0;
const MOST: f64 = 12.5e9;

/// Maximum rate as a multiple of the pace of the local link. The excess is dropped at once; a lower
/// limit would leave part of the pace unused when headers are shorter than assumed, or packets
/// pause.
const PACE_PARTS: f64 = 1.25;

/// The target applies at this rate, in bytes per second. Slower senders aim at more, as in Swift
/// (SIGCOMM 2020, 3.5): of two on one link, the slower one keeps its rate when the faster one slows
/// down.
const TARGET_RATE: f64 = 37.5e6;
const TARGET_SCALE: (f64, f64) = (0.75, 4.0);
const TARGET_SCALED_MAX_NANOS: f64 = 16e6;

/// Fraction of the best samples that counts as equally good.
const NEARLY: f64 = 0.9;

/// Divisor of the rate: when less than this part of it arrives, the queue is due to others.
const OTHERS: f64 = 8.0;

/// Gain at no queue.
const GAIN: f64 = 0.25;
const GAIN_MOST: f64 = 0.5;
const GAIN_LEAST: f64 = 0.03;

/// Most doublings of the gain by consecutive calm rounds; [`GAIN_MOST`] limits the result.
const GAIN_STEPS_MAX: u32 = 5;
/// The longer the round trip, the smaller the gain: any excess stays queued for two of them.
const GAIN_ROUND_TRIP_NANOS: f64 = 8e6;

/// Consecutive calm rounds after which the link counts as faster than when it last had a queue.
const FASTER: u32 = 8;

/// Growth of the received rate per round trip of a start, and consecutive round trips below it
/// after which the link rate is known.
const GROWS: f64 = 1.25;
const LAGGING: u32 = 3;

/// Weight of a sample in the recent mean.
const RECENT_WEIGHT: f64 = 0.1;

/// A first start that loses more than this sends at most [`startup_gain::AHEAD`] times what the
/// link carried: a link slower than [`FIRST`] drops bursts that leave at that rate, and its queue
/// is empty between them. Half of it slows starts over lossy links, twice of it wastes a third of
/// a link of 2 Mbit/s.
const START_LOSS: f64 = 0.03;

/// The minimum rate of such a start, in bytes per second: what arrives may be a ping.
const FIRST_LOSSY: f64 = 1.25e6;

/// Samples per period.
const PERIOD: u32 = 6;

/// Weight of a sample in the usual loss.
const LOSS_WEIGHT: f64 = 1.0 / 16.0;

/// Fraction of the rate before an outage at which sending resumes.
const RETURN: f64 = 0.5;

#[derive(Copy, Clone, PartialEq, Debug)]
enum Phase {
    /// Faster every round trip.
    Startup,
    Steady,
}

/// The rate towards one neighbour.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    bytes_per_second: f64,
    /// The maximum given by the pace of the local link.
    limit: f64,
    phase: Phase,
    /// The initial rate of a start, and the minimum rate at its end.
    first: f64,
    first_least: f64,
    headroom: Headroom,
    /// Fraction lost when there is no queue, and whether two consecutive steps without a queue
    /// measured it: drops of a start in a queue are no loss of the link.
    usual_loss: Option<f64>,
    is_loss_known: bool,
    round: Round,
    /// The capacity by the newest step.
    capacity: f64,
    /// Maximum samples of the current and the previous period, and the number of samples in the
    /// current one.
    most: [f64; 2],
    samples: u32,
    jitter: Jitter,
    /// Consecutive samples without a queue.
    calm: u32,
    /// The capacity when there was last a queue.
    ceiling: Option<f64>,
    drain: Option<Drain>,
    /// Whether the previous sample had no queue either.
    was_calm: bool,
    /// Startup: whether data never ran out, the maximum a round trip earlier, and round trips
    /// without growth.
    was_limited: bool,
    before: f64,
    lagging: u32,
    /// Mean loss of the newest samples: a single one may be of few packets.
    recent_loss: Option<f64>,
    policed: Policed,
    /// The rate when the neighbour last had no backlog; and before it fell silent or stalled, while
    /// that lasts.
    unhindered: f64,
    before_silence: Option<f64>,
    before_stall: Option<f64>,
    /// The rate before larger packets began to vanish, if known.
    before_doubt: Option<f64>,
    /// Forwarding rate of the neighbour while it has a backlog.
    onward: DrainRate,
    /// When there was last no queue, the capacity then, and the minimum and maximum queue since.
    empty_at: Nanos,
    empty_rate: f64,
    since_empty: (f64, f64),
    contest: Option<Competition>,
    /// Whether the neighbour forwards at once: a backlog is then in the queue of a link.
    pub(crate) passes: bool,
    rival: Option<Rival>,
    /// When the last step without a contest was.
    stepped_at: Nanos,
    own: LinkShare,
}

/// How to handle a standing queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Fine,
    /// It is part of the base delay.
    NotOurs,
}

impl Rate {
    pub(crate) fn new() -> Self {
        Self {
            bytes_per_second: FIRST,
            limit: MOST,
            phase: Phase::Startup,
            first: FIRST,
            first_least: LEAST,
            headroom: Headroom::new(FIRST),
            usual_loss: None,
            is_loss_known: false,
            round: Round::default(),
            capacity: 0.0,
            most: [0.0; 2],
            samples: 0,
            jitter: Jitter::default(),
            calm: 0,
            ceiling: None,
            drain: None,
            was_calm: false,
            was_limited: false,
            recent_loss: None,
            lagging: 0,
            before: 0.0,
            policed: Policed::default(),
            unhindered: FIRST,
            before_silence: None,
            before_stall: None,
            before_doubt: None,
            onward: DrainRate::default(),
            empty_at: 0,
            empty_rate: 0.0,
            since_empty: (f64::MAX, 0.0),
            contest: None,
            passes: false,
            rival: None,
            stepped_at: 0,
            own: LinkShare::default(),
        }
    }

    /// Creates the rate to a neighbour that holds nothing back.
    pub(crate) fn beside_passing() -> Self {
        Self { passes: true, ..Self::new() }
    }

    /// Bytes per second.
    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.bytes_per_second
    }

    /// Fraction lost when there is no queue; until that is measured, at most the loss of the first
    /// sample.
    pub(crate) fn usual_loss(&self) -> Option<f64> {
        self.usual_loss
    }

    /// Whether any arrival has been reported.
    pub(crate) fn has_sample(&self) -> bool {
        self.usual_loss.is_some()
    }

    /// Transmission time of this many bytes.
    pub(crate) fn nanos(&self, bytes: usize) -> Nanos {
        (bytes as f64 * 1e9 / self.bytes_per_second) as Nanos
    }

    /// Transmission time of a probe of this many bytes. While larger packets may be vanishing, the
    /// link still carries its previous rate.
    pub(crate) fn nanos_of_probe(&self, bytes: usize) -> Nanos {
        let before = self.before_doubt.unwrap_or(0.0);
        (bytes as f64 * 1e9 / self.bytes_per_second.max(before)) as Nanos
    }

    /// Sends this many bytes; returns their transmission time.
    pub(crate) fn spend(&mut self, bytes: usize) -> Nanos {
        let (known, bytes) = (self.known(), bytes as f64);
        let rate = self.headroom.spend(bytes, self.bytes_per_second, known);
        (bytes * 1e9 / rate) as Nanos
    }

    /// The known rate of the link; at a start, the assumed one.
    fn known(&self) -> f64 {
        let most = match self.phase {
            Phase::Startup => self.first.max(self.most()),
            Phase::Steady => self.most(),
        };
        let is_alone = self.contest.is_none() && self.rival.is_none();
        // A report may claim no arrivals.
        self.headroom.known(most).filter(|_| is_alone).map_or(MOST, |known| known.max(LEAST))
    }

    /// Applies the pace of the local link in bytes per second, if it has one. Its drops look like
    /// loss of the link: the more there are, the faster the link would appear.
    pub(crate) fn limit(&mut self, pace: Option<f64>) {
        self.limit = pace.map_or(MOST, |pace| (PACE_PARTS * pace).clamp(LEAST, MOST));
        self.set(self.bytes_per_second);
    }

    /// The target queue.
    pub(crate) fn target(&self, round_trip: Nanos) -> Nanos {
        self.scaled(unscaled_target(round_trip)) as Nanos
    }

    /// Scales a queue to the current rate.
    fn scaled(&self, nanos: f64) -> f64 {
        let (least, most) = TARGET_SCALE;
        let scale = (TARGET_RATE / self.bytes_per_second).sqrt().clamp(least, most);
        (nanos * scale).min(TARGET_SCALED_MAX_NANOS)
    }

    /// Records the current queueing delay of the link: a queue ends a start at once.
    pub(crate) fn queue(&mut self, waited: Nanos, round_trip: Nanos) {
        // If less is sent than possible, the queue is due to others.
        if self.phase == Phase::Startup && self.was_limited && waited > self.target(round_trip) {
            self.end_start();
        }
    }

    /// Ends a start at the measured rate. After an outage, that is based on few packets and
    /// unreliable.
    fn end_start(&mut self) {
        self.phase = Phase::Steady;
        self.set(self.bytes_per_second.min(self.most()).max(self.first_least));
    }

    /// Halves the rate after a long silence.
    pub(crate) fn silence(&mut self) {
        self.before_silence.get_or_insert(self.bytes_per_second);
        self.set(self.bytes_per_second / 2.0);
    }

    /// Resumes after a silence, once the neighbour reports.
    pub(crate) fn heard(&mut self) {
        let before = self.before_silence.take();
        self.resume(before);
    }

    /// Records whether large packets vanish. If they did, only small ones arrived meanwhile, and
    /// the link carries its previous rate.
    pub(crate) fn note_vanishing(&mut self, vanishing: Vanishing) {
        match vanishing {
            Vanishing::No => self.before_doubt = None,
            Vanishing::InDoubt => {
                self.before_doubt.get_or_insert(self.bytes_per_second);
            }
            Vanishing::Shown => {
                // Random loss runs end here, too: they leave the rate unchanged.
                let before = self.before_doubt.take();
                self.resume(before.filter(|before| before * RETURN > self.bytes_per_second));
            }
        }
    }

    /// A recovered path likely has its previous rate: starts from there.
    fn resume(&mut self, before: Option<f64>) {
        if let Some(before) = before {
            (self.phase, self.before, self.lagging) = (Phase::Startup, 0.0, 0);
            (self.round, self.most) = (Round::default(), [0.0; 2]);
            (self.contest, self.drain) = (None, None);
            self.set(self.bytes_per_second.max(before * RETURN));
            self.first = self.bytes_per_second;
            self.first_least = self.first / 2.0;
            self.headroom = Headroom::new(self.first);
        }
    }

    /// Processes a sample; takes one step per round trip.
    pub(crate) fn sample(&mut self, sample: &Sample, round_trip: Nanos, now: Nanos) -> Verdict {
        let is_spread = self.jitter.holds_back(sample) && self.phase == Phase::Steady;
        let sample = &Sample { is_spread, ..*sample };
        let usual = self.learn_loss(sample, round_trip);
        let carried = sample.carried(usual);
        self.most[0] = self.most[0].max(carried);
        let all = self.round.add(sample, carried);
        self.headroom.queue(sample.queue as f64);
        if self.phase == Phase::Startup {
            self.was_limited = sample.is_limited;
            let target = self.target(round_trip);
            if sample.is_limited && (sample.is_stretched() || sample.queue > target) {
                // A burst may end before the round trip does.
                self.end_start();
            } else if all.queue <= target {
                // Stay ahead of senders that are about to send more.
                let ahead = startup_gain::of(carried, sample.is_limited, round_trip);
                self.set(self.bytes_per_second.max(ahead));
            }
        }
        // No sample covers the time between two samples.
        if all.nanos + all.nanos / 4 < round_trip {
            return Verdict::Fine;
        }
        // The best of them slightly exceeds the capacity.
        let best = std::mem::take(&mut self.round).limited;
        let limited = if all.is_limited { best.map(|_| all.carried(usual)) } else { best };
        let filled = limited.filter(|_| all.is_limited);
        let known = self.known().min(self.bytes_per_second);
        self.headroom.round(filled, sample.queue as f64, known, round_trip);
        self.step(&all, limited, round_trip, now)
    }

    /// Slows a first start that loses packets. A start after an outage has a measured rate, and the
    /// losses of that outage.
    pub(crate) fn slow_lossy_start(&mut self, sample: &Sample) {
        let is_first = self.phase == Phase::Startup && self.first_least <= LEAST;
        let most_lost = START_LOSS + 2.0 * deviation(START_LOSS, sample.sent);
        if is_first && sample.loss() > most_lost {
            self.before_doubt.get_or_insert(self.bytes_per_second);
            let most = (startup_gain::AHEAD * self.most()).max(FIRST_LOSSY);
            self.set(self.bytes_per_second.min(most));
        }
    }

    /// Updates the loss of the link from a sample until it is known; returns the loss that accounts
    /// for the difference of carried and received rate.
    fn learn_loss(&mut self, sample: &Sample, round_trip: Nanos) -> f64 {
        let loss = sample.loss();
        let usual = self.usual_loss.get_or_insert(loss);
        if self.is_loss_known {
            return *usual;
        }
        if *usual > start_loss::most(loss, sample.sent) {
            *usual = loss;
        }
        let usual = *usual;
        let is_calm = !sample.is_stretched() && 2 * sample.queue < self.target(round_trip);
        if is_calm { usual } else { 0.0 }
    }

    /// Takes a step from the merged samples of a round trip, and the link rate when data never ran
    /// out.
    fn step(
        &mut self,
        sample: &Sample,
        limited: Option<f64>,
        round_trip: Nanos,
        now: Nanos,
    ) -> Verdict {
        let (received, loss) = (sample.received(), sample.loss());
        let target = self.target(round_trip) as f64;
        let link_queue = self.jitter.standing(sample.link_queue(), target);
        let queue = link_queue + sample.backlog as f64;
        let own = self.scaled(unscaled_own(round_trip));
        self.own.note(sample, self.usual_loss.unwrap_or(loss), queue > target / 2.0);
        let usual = self.usual_loss.get_or_insert(loss);
        // Drops of a queue are reported after it has ended. And burst losses in a queue are not
        // losses of the link, which never exceed those with a queue.
        let is_calm = queue < target / 2.0 && !sample.is_stretched();
        let was_calm = std::mem::replace(&mut self.was_calm, is_calm);
        let is_less = loss < *usual - 2.0 * deviation(*usual, sample.sent);
        if is_calm && was_calm || is_less {
            *usual += LOSS_WEIGHT * (loss - *usual);
        }
        self.is_loss_known |= is_calm && was_calm;
        let known = if self.is_loss_known || is_calm { *usual } else { 0.0 };
        self.capacity = limited.unwrap_or(received / (1.0 - known).max(0.05));
        // When little was sent, arrivals are only a lower bound of the capacity.
        if sample.is_limited || queue > target {
            self.samples += 1;
            if self.samples > PERIOD {
                (self.most, self.samples) = ([self.capacity, self.most[0]], 1);
            }
        }
        let is_steady = self.phase == Phase::Steady && self.was_calm;
        if sample.is_limited && is_steady && self.is_policed(received, loss, now) {
            return Verdict::Fine;
        }
        let (least, most) = self.since_empty;
        self.since_empty = (least.min(queue), most.max(queue));
        if queue < own * EMPTY {
            self.was_empty(now);
        }
        let is_limited = limited.is_some();
        // If much less is sent than possible, the queue is due to others.
        let is_ours = is_limited || self.capacity > self.bytes_per_second / OTHERS;
        let seen = QueueSample { queue, link_queue, target, own, round_trip, is_limited, is_ours };
        // A backlog at the neighbour is due to this sender, however small it is.
        if queue > target && 2.0 * sample.backlog as f64 > queue {
            self.calm = 0;
            // It does not indicate a standing queue on the path.
            self.empty_at = if self.passes { now } else { self.empty_at };
            if sample.backlog > STALLED_NANOS {
                self.before_stall.get_or_insert(self.unhindered);
            }
            let fast = if is_limited { self.most() } else { self.capacity };
            let own = if self.passes { own / 4.0 } else { own };
            let onward = self.onward.note(sample.backlog, own, received, now);
            let kept = (1.0 - self.usual_loss.unwrap_or(0.0)).max(0.05);
            let onward = onward.filter(|_| is_limited).map(|onward| onward / kept);
            self.ceiling = onward.or(self.ceiling);
            let most = onward.map_or(fast, |onward| onward.min(fast));
            self.set(most * seen.factor().max(if self.passes { 0.0 } else { FACTOR_LEAST }));
            return Verdict::Fine;
        }
        self.onward = DrainRate::default();
        let before = self.before_stall.take();
        self.resume(before);
        self.unhindered = self.bytes_per_second;
        match self.phase {
            Phase::Startup => {
                self.start(&seen);
                Verdict::Fine
            }
            Phase::Steady => {
                let recent = self.recent_loss.get_or_insert(loss);
                *recent += RECENT_WEIGHT * (loss - *recent);
                // Many consecutive samples with less loss, with or without a queue.
                let usual = self.usual_loss.get_or_insert(loss);
                if *recent < *usual - deviation(*usual, sample.sent) {
                    *usual += LOSS_WEIGHT * (*recent - *usual);
                }
                self.steer(&seen, now)
            }
        }
    }

    /// The maximum of the newest samples.
    fn most(&self) -> f64 {
        self.most[0].max(self.most[1])
    }

    /// One step of a start.
    fn start(&mut self, seen: &QueueSample) {
        if seen.queue > seen.target {
            if seen.is_ours {
                self.end_start();
            }
            return;
        }
        let grows = self.most() > GROWS * self.before;
        self.before = self.most();
        self.lagging = if grows || !seen.is_limited { 0 } else { self.lagging + 1 };
        if self.lagging >= LAGGING {
            self.phase = Phase::Steady;
            self.set(self.most());
        }
    }

    /// One step of the loop.
    fn steer(&mut self, seen: &QueueSample, now: Nanos) -> Verdict {
        match self.look_at_queue(seen, now) {
            Some(verdict) => return verdict,
            None if seen.queue < seen.target => self.rise(seen),
            None => self.fall(seen),
        }
        Verdict::Fine
    }

    fn rise(&mut self, seen: &QueueSample) {
        let (queue, round_trip) = (seen.queue / seen.target, seen.round_trip.max(1) as f64);
        self.calm = if queue < 0.25 { self.calm + 1 } else { 0 };
        if !seen.is_limited {
            return;
        }
        let slow = (seen.target / (2.0 * round_trip)).min(1.0);
        let boost = f64::from(1u32 << self.calm.min(GAIN_STEPS_MAX));
        // Any excess stays queued for two round trips.
        let part = if self.calm < FASTER { 2.0 } else { 1.0 };
        let most = (GAIN_ROUND_TRIP_NANOS / (part * round_trip)).clamp(GAIN_LEAST, GAIN_MOST);
        let gain = (GAIN * slow * boost).min(most) * (1.0 - queue);
        // Never far below the current rate while there is room.
        let least = self.bytes_per_second.min(2.0 * self.capacity);
        let next = (self.capacity * (1.0 + gain)).max(least);
        if self.calm >= FASTER {
            self.ceiling = None;
        }
        // Near the rate at which a queue formed, rise slowly: the response takes a round trip.
        let careful = self.ceiling.map(|at| at.max(self.bytes_per_second) * (1.0 + GAIN * slow));
        self.set(next.min(careful.unwrap_or(next)));
    }

    fn fall(&mut self, seen: &QueueSample) {
        self.calm = 0;
        // The maximum of a period is then soon outdated.
        self.samples += if seen.is_flooded() { 2 } else { 0 };
        if seen.is_limited {
            self.ceiling = Some(self.most());
            // A busy neighbour looks like a queue, and little arrives meanwhile. The best of many
            // samples is slightly too high; a value far below it is only a share of the link.
            let most = self.most();
            let mean = self.headroom.mean().filter(|_| self.rival.is_none());
            let mean = mean.filter(|mean| *mean > NEARLY * most);
            let carries = mean.map_or(most, |mean| mean.min(most));
            self.set(carries * seen.factor());
        } else if seen.is_ours {
            self.set(self.bytes_per_second.max(self.capacity) * seen.factor());
        }
    }

    /// Whether the rate is kept unchanged on a policed link.
    fn is_policed(&mut self, received: f64, loss: f64, now: Nanos) -> bool {
        let flow = Rates { sent: received / (1.0 - loss).max(0.05), received };
        if let Some(before) = self.policed.note(flow, now) {
            self.phase = Phase::Steady;
            self.set(before.sent);
            self.usual_loss = Some((1.0 - before.received / before.sent).max(0.0));
            self.is_loss_known = true;
        }
        self.policed.is_quiet(now)
    }

    fn set(&mut self, bytes_per_second: f64) {
        self.bytes_per_second = bytes_per_second.clamp(LEAST, self.limit);
    }
}

mod burst;
mod competition;
mod drain_rate;
mod drain_schedule;
pub(crate) mod headroom;
mod jitter;
mod link_share;
pub(crate) mod policed;
mod queue_sample;
pub(crate) mod sample;
#[cfg(test)]
mod shared_link;
mod standing_queue;
mod start_loss;
mod startup_gain;
#[cfg(test)]
mod tests;
