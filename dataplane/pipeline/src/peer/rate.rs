//! How fast to send to a neighbour: as fast as what is sent also leaves the link, with a queue of a
//! few milliseconds in front of it and no more.
//!
//! Loss says little here: lossy links lose what they would have carried. So the rate follows what
//! arrives, divided by the share that usually arrives, and the time that packets wait on the way:
//!
//! ```text
//!  rate = capacity * gain(queue)      capacity = received / (1 - usual loss)
//!  gain:  1 + k at no queue, 1 at the target, 1/2 at most below that
//! ```
//!
//! `k` shrinks where round trips are longer than the target, so that the loop does not swing. A
//! queue that stays although less is sent is not ours: it counts as part of the way from then on,
//! which also keeps others from starving this sender. A link that drops what exceeds its rate
//! without a queue is told by what arrives: it does not grow with what is sent.

use crate::params::Nanos;

/// Rates, in bytes per second: the first, the least, the most.
const FIRST: f64 = 2.5e6;
const LEAST: f64 = 25_000.0;
const MOST: f64 = 12.5e9;

/// Bytes around a UDP payload on the wire: Ethernet, IPv4, UDP.
pub(crate) const AROUND_BYTES: usize = 42;

/// Shortest time that a sample covers: a burst of a worker that slept is part of it. One of few
/// packets covers more.
pub(crate) const SAMPLE_NANOS: Nanos = 10_000_000;
pub(crate) const SAMPLE_PACKETS: u32 = 32;
pub(crate) const SPARSE_NANOS: Nanos = 200_000_000;

/// A queue to aim at, and what a round trip adds to it.
const TARGET_NANOS: f64 = 4e6;
const TARGET_PART: f64 = 1.0 / 16.0;
const TARGET_MAX_NANOS: f64 = 8e6;

/// Gain at no queue.
const GAIN: f64 = 0.25;
const GAIN_MOST: f64 = 0.5;
const GAIN_LEAST: f64 = 0.05;

/// What calm rounds in a row may multiply it by, and how far: a quarter faster a round where round
/// trips are long.
const GAIN_STEPS_MAX: u32 = 5;
const GAIN_ROUND_TRIP_NANOS: f64 = 8e6;

/// Part of what arrives that is sent at least, however long the queue.
const FACTOR_LEAST: f64 = 0.75;

/// Targets beyond which a link has become slower.
const FLOODED: f64 = 3.0;

/// Part of a rate that arrives while the link takes it.
const FOLLOWS: f64 = 0.7;

/// Samples in a row with less, after which it does not take it.
const LAGGING: u32 = 2;

/// Loss beyond the usual one that is that of a queue.
const OVERFLOW: f64 = 0.03;

/// Weight of a sample in the mean of the newest.
const RECENT_WEIGHT: f64 = 0.1;

/// A queue that was never empty for so long is emptied, at this part of what arrives.
const FULL_NANOS: Nanos = 2_000_000_000;
const DRAIN: f64 = 0.6;

/// Part of the target that is no queue.
const EMPTY: f64 = 0.2;

/// Samples of a period.
const PERIOD: u32 = 6;

/// Samples with more than the target in a row, and nothing gained by sending less, after which a
/// queue is taken for part of the way.
const STUBBORN: u32 = 30;

/// It has become shorter when this part of it is left.
const SHORTER: f64 = 0.75;

/// Weight of a sample in the usual loss.
const LOSS_WEIGHT: f64 = 1.0 / 16.0;

/// How long a link that drops what exceeds its rate is left alone.
const POLICED_NANOS: Nanos = 1_000_000_000;

/// What a neighbour said it received, since it said so before.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Sample {
    /// What arrived.
    pub bytes: u32,
    pub packets: u32,
    /// What was sent to make that arrive.
    pub sent: u32,
    /// How long it took to arrive.
    pub nanos: Nanos,
    /// The least queue seen, that of the neighbour included, and the least of the neighbour alone.
    pub queue: Nanos,
    pub backlog: Nanos,
    /// Whether there was always more to send.
    pub is_limited: bool,
}

#[derive(Copy, Clone, PartialEq, Debug)]
enum Phase {
    /// Twice as fast every round.
    Startup,
    Steady,
}

/// What was sent and what arrived of it, in bytes per second.
#[derive(Copy, Clone, Debug)]
struct Anchor {
    sent: f64,
    received: f64,
}

/// The rate towards one neighbour.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    bytes_per_second: f64,
    phase: Phase,
    /// Share that is lost where there is no queue.
    usual_loss: Option<f64>,
    /// What the link carries, by the newest sample.
    capacity: f64,
    /// The most by the samples of the present period and the one before, and the samples in it.
    most: [f64; 2],
    samples: u32,
    /// Samples in a row without a queue, and with one that is too long.
    calm: u32,
    stubborn: u32,
    /// The queue when these began.
    stubborn_queue: f64,
    /// Whether the sample of before had no queue either.
    was_calm: bool,
    /// Startup: whether there was always more to send, and the rate before the present one.
    was_limited: bool,
    /// Mean loss of the newest samples: one alone may be of few packets.
    recent_loss: f64,
    lagging: u32,
    before: f64,
    anchor: Option<Anchor>,
    quiet_until: Nanos,
    /// When there was no queue last.
    empty_at: Nanos,
}

/// What is to be done about a queue that stays.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Fine,
    /// It is part of the way.
    NotOurs,
}

impl Rate {
    pub(crate) fn new() -> Self {
        Self {
            bytes_per_second: FIRST,
            phase: Phase::Startup,
            usual_loss: None,
            capacity: 0.0,
            most: [0.0; 2],
            samples: 0,
            calm: 0,
            stubborn: 0,
            stubborn_queue: 0.0,
            was_calm: false,
            was_limited: false,
            recent_loss: 0.0,
            lagging: 0,
            before: 0.0,
            anchor: None,
            quiet_until: 0,
            empty_at: 0,
        }
    }

    /// Bytes per second.
    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.bytes_per_second
    }

    /// Share that is lost where there is no queue, once that is known.
    pub(crate) fn usual_loss(&self) -> Option<f64> {
        self.usual_loss
    }

    /// How long so many bytes take.
    pub(crate) fn nanos(&self, bytes: usize) -> Nanos {
        (bytes as f64 * 1e9 / self.bytes_per_second) as Nanos
    }

    /// The queue to aim at.
    pub(crate) fn target(round_trip: Nanos) -> Nanos {
        (TARGET_NANOS + TARGET_PART * round_trip as f64).min(TARGET_MAX_NANOS) as Nanos
    }

    /// Notes how long packets wait on the link now: a start ends at once when they do.
    pub(crate) fn queue(&mut self, waited: Nanos, round_trip: Nanos) {
        // Where less is sent than could be, the queue is of others.
        if self.phase == Phase::Startup && self.was_limited && waited > Self::target(round_trip) {
            self.phase = Phase::Steady;
            self.set(self.bytes_per_second.min(2.0 * self.capacity) / 2.0);
        }
    }

    /// Nothing was heard for long: half as fast.
    pub(crate) fn silence(&mut self) {
        self.set(self.bytes_per_second / 2.0);
    }

    /// Takes in a sample.
    pub(crate) fn sample(&mut self, sample: &Sample, round_trip: Nanos, now: Nanos) -> Verdict {
        let seconds = sample.nanos.max(1) as f64 * 1e-9;
        let bytes = f64::from(sample.bytes) + f64::from(sample.packets) * AROUND_BYTES as f64;
        let received = bytes / seconds;
        let loss = 1.0 - (f64::from(sample.packets) / f64::from(sample.sent.max(1))).min(1.0);
        let (queue, target) = (sample.queue as f64, Self::target(round_trip) as f64);
        let usual = self.usual_loss.get_or_insert(loss);
        // What was dropped before a queue ended is told after it.
        let is_calm = queue < target / 2.0;
        if is_calm && std::mem::replace(&mut self.was_calm, is_calm) {
            *usual += LOSS_WEIGHT * (loss - *usual);
        }
        self.was_calm = is_calm;
        let arrives = (1.0 - *usual).max(0.05);
        self.capacity = received / arrives;
        if self.samples >= PERIOD {
            (self.most, self.samples) = ([0.0, self.most[0]], 0);
        }
        self.samples += 1;
        self.most[0] = self.most[0].max(self.capacity);
        let is_steady = self.phase == Phase::Steady && self.was_calm;
        if sample.is_limited && is_steady && self.is_policed(received, loss, now) {
            return Verdict::Fine;
        }
        if queue < target * EMPTY {
            self.empty_at = now;
        }
        // What waits in the neighbour is ours, however little that is.
        let is_behind = queue > target && 2 * sample.backlog > sample.queue;
        let is_limited = sample.is_limited || is_behind;
        match self.phase {
            // The neighbour has yet to find its own rate.
            Phase::Startup if queue > target => {
                if is_limited {
                    self.set(self.capacity);
                }
            }
            Phase::Startup => {
                // What arrives is a round trip old: the rate of then.
                let follows = self.capacity > FOLLOWS * self.before;
                self.lagging = if follows { 0 } else { self.lagging + 1 };
                if sample.is_limited && self.was_limited && self.lagging >= LAGGING {
                    self.phase = Phase::Steady;
                    self.set(self.most[0].max(self.most[1]));
                } else if sample.is_limited {
                    self.before = self.bytes_per_second;
                    self.set(self.bytes_per_second.min(2.0 * self.capacity) * 2.0);
                }
                self.was_limited = sample.is_limited;
            }
            Phase::Steady if sample.is_limited && now > self.empty_at + FULL_NANOS => {
                // Without a look at the way itself, a queue that stays becomes part of it.
                self.set(self.most[0].max(self.most[1]) * DRAIN);
            }
            Phase::Steady => {
                self.recent_loss += RECENT_WEIGHT * (loss - self.recent_loss);
                let overflows = self.recent_loss > 1.0 - arrives + OVERFLOW;
                let is = (is_limited, overflows, is_behind);
                return self.steer(is, queue / target, target, round_trip);
            }
        }
        Verdict::Fine
    }

    /// One step of the loop; `queue` is in targets.
    fn steer(
        &mut self,
        (is_limited, overflows, is_behind): (bool, bool, bool),
        queue: f64,
        target: f64,
        round_trip: Nanos,
    ) -> Verdict {
        let slow = (target / (2.0 * (round_trip as f64).max(1.0))).min(1.0);
        let gain = GAIN * slow;
        if queue < 1.0 {
            self.stubborn = 0;
            self.calm = if queue < 0.25 && is_limited { self.calm + 1 } else { 0 };
            if !is_limited {
                return Verdict::Fine;
            }
            let boost = f64::from(1u32 << self.calm.min(GAIN_STEPS_MAX));
            let most =
                (GAIN_ROUND_TRIP_NANOS / round_trip.max(1) as f64).clamp(GAIN_LEAST, GAIN_MOST);
            let gain = (gain * boost).min(most) * (1.0 - queue);
            // Never much less than before where there is room.
            let least = self.bytes_per_second.min(2.0 * self.capacity);
            self.set((self.capacity * (1.0 + gain)).max(least));
            return Verdict::Fine;
        }
        self.calm = 0;
        if queue < SHORTER * self.stubborn_queue || self.stubborn == 0 {
            (self.stubborn, self.stubborn_queue) = (0, queue);
        }
        self.stubborn += 1;
        // Half of what is too much goes within a round trip.
        let excess = (queue - 1.0) * target / (2.0 * round_trip.max(SAMPLE_NANOS) as f64);
        let is_flooded = queue > FLOODED && !is_behind;
        let factor = (1.0 - excess).max(if is_flooded { 0.5 } else { FACTOR_LEAST });
        // Then what a period saw is soon out of date.
        self.samples += if is_flooded { 2 } else { 0 };
        if is_limited {
            // A neighbour that is busy looks like a queue, and little arrives meanwhile.
            self.set(self.most[0].max(self.most[1]) * factor);
        } else if self.capacity > self.bytes_per_second / 4.0 {
            // Where much less is sent than could be, the queue is of others.
            self.set(self.bytes_per_second * factor);
        }
        if self.stubborn >= STUBBORN {
            self.stubborn = 0;
            // A queue that overflows is shortened by sending less, in time.
            if !overflows {
                return Verdict::NotOurs;
            }
        }
        Verdict::Fine
    }

    /// Whether more was sent, and no more arrived: the rate of before is gone back to.
    fn is_policed(&mut self, received: f64, loss: f64, now: Nanos) -> bool {
        let sent = received / (1.0 - loss).max(0.05);
        let anchor = *self.anchor.get_or_insert(Anchor { sent, received });
        if sent > 1.25 * anchor.sent {
            if received < 1.05 * anchor.received {
                self.phase = Phase::Steady;
                self.quiet_until = now + POLICED_NANOS;
                self.set(anchor.sent);
                self.usual_loss = Some((1.0 - anchor.received / anchor.sent).max(0.0));
                return true;
            }
            self.anchor = Some(Anchor { sent, received });
        } else {
            let blend = |old: f64, new: f64| old + LOSS_WEIGHT * (new - old);
            let (sent, received) = (blend(anchor.sent, sent), blend(anchor.received, received));
            self.anchor = Some(Anchor { sent, received });
        }
        now < self.quiet_until
    }

    fn set(&mut self, bytes_per_second: f64) {
        self.bytes_per_second = bytes_per_second.clamp(LEAST, MOST);
    }
}
