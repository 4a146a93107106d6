//! Finds the rate of a path with trains that each fill a queue by at most some 20 ms.
//!
//! Trains of 30 ms, or of 24 packets if that takes longer, are sent at increasing rates until less
//! arrives than was sent. Steps are small enough that the previous train limits the queue: at 1.6
//! times a rate that was carried, 30 ms leave at most 18 ms in a queue, which drains before the
//! next train. Then five trains are sent a quarter above the arrival rate; the result is the median
//! of their arrival rates.
//!
//! The rate of a path is the highest send rate at which no queue grows. Packets that the path loses
//! count as carried, since they took their share of it. If losses increase at higher rates and no
//! queue grows, a policer drops the excess, and the arrival rate is the rate.

use crate::summary::Summary;

/// First rate, in Mbit/s.
const START_MBIT: f64 = 1.0;

/// Steps: below and above a rate at which 24 packets take 30 ms.
const STEP_SLOW: f64 = 2.5;
const STEP: f64 = 1.6;
const SLOW_MBIT: f64 = 10.0;

const TRAIN_SECONDS: f64 = 0.03;
const TRAIN_PACKETS_MIN: f64 = 24.0;

/// A train that arrives at this share of its rate, or faster, counts as carried.
const CARRIED: f64 = 0.86;

/// Attempts of a train: a path that pauses makes any train look slow.
const TRIES: usize = 3;

/// Share of the nominal rate below which the sender was too late for a valid result; below,
/// attempts of a train, including those of late senders.
const ON_TIME: f64 = 0.93;
const LATE_TRIES: usize = 15;

/// Trains for the final median, and the factor of their rate above the estimate.
const REFINING: usize = 5;
const ABOVE: f64 = 1.25;

/// Times that an estimate may prove too low.
const GUESSES: usize = 4;

/// Excess over the path's losses, in standard deviations, that counts as significant.
const DEVIATIONS: f64 = 4.0;

/// Parameters of a train.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct TrainShape {
    /// Its rate, including Ethernet headers.
    pub mbit: f64,
    /// Packets.
    pub packets: u32,
}

/// The result.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Rate {
    /// Mbit/s, including Ethernet, IP and UDP headers.
    pub mbit: f64,
    /// The path may carry more: the configured limit was reached.
    pub is_least: bool,
}

/// Losses below saturation.
#[derive(Copy, Clone, Default, Debug)]
pub struct Losses {
    sent: f64,
    lost: f64,
    runs: f64,
}

impl Losses {
    /// Adds a train.
    pub fn add(&mut self, summary: &Summary) {
        self.sent += f64::from(summary.sent);
        self.lost += f64::from(summary.lost());
        self.runs += f64::from(summary.runs);
    }

    /// Share lost.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.sent > 0.0 { self.lost / self.sent } else { 0.0 }
    }

    /// Whether a train lost more than chance explains.
    #[must_use]
    pub fn is_exceeded_by(&self, sent: u32, lost: u32) -> bool {
        let (sent, lost) = (f64::from(sent), f64::from(lost));
        let burst = if self.runs > 0.0 { (self.lost / self.runs).max(1.0) } else { 1.0 };
        let share = self.share();
        let uncertain = (self.sent.max(1.0).recip() + sent.max(1.0).recip()).min(1.0);
        let variance = (share * (1.0 - share) + self.sent.max(1.0).recip()) * (2.0 * burst - 1.0);
        let allowed = share + DEVIATIONS * (variance * uncertain).sqrt() + 3.0 * burst / sent;
        lost / sent.max(1.0) > allowed
    }
}

/// Finds the rate, up to `cap_mbit`, with packets of `packet_bits` bits. `run` sends a train and
/// returns its summary. Returns `None` if nothing arrives.
///
/// # Errors
/// Those of `run`.
pub fn find<E>(
    cap_mbit: f64,
    packet_bits: f64,
    losses: &mut Losses,
    mut run: impl FnMut(TrainShape) -> Result<Summary, E>,
) -> Result<Option<Rate>, E> {
    let cap = cap_mbit.max(0.1);
    let (mut mbit, mut guesses) = (START_MBIT.min(cap), 0);
    loop {
        let guess = match step(mbit, packet_bits, losses, &mut run)? {
            Step::Nothing => return Ok(None),
            Step::Late(mbit) => return Ok(Some(Rate { mbit: mbit.min(cap), is_least: true })),
            Step::Carried if mbit >= cap => return Ok(Some(Rate { mbit: cap, is_least: true })),
            Step::Carried => {
                mbit = (mbit * if mbit < SLOW_MBIT { STEP_SLOW } else { STEP }).min(cap);
                continue;
            }
            Step::TooMuch(guess) => guess,
        };
        let (faster, median) = refine(guess, packet_bits, losses, &mut run)?;
        guesses += 1;
        if median < CARRIED * faster || guesses >= GUESSES {
            let mbit = median.min(cap);
            return Ok(Some(Rate { mbit, is_least: median >= cap }));
        }
        // The estimate stemmed from a pause of the path.
        mbit = (faster * STEP).min(cap);
    }
}

/// Outcome of a rate.
enum Step {
    /// Nothing arrives.
    Nothing,
    /// The sender could only send at this rate, which was carried.
    Late(f64),
    /// It was carried.
    Carried,
    /// It exceeded the path, which carried this much.
    TooMuch(f64),
}

fn step<E>(
    mbit: f64,
    packet_bits: f64,
    losses: &mut Losses,
    run: &mut impl FnMut(TrainShape) -> Result<Summary, E>,
) -> Result<Step, E> {
    let (mut best, mut sent, mut failed): (Option<f64>, f64, usize) = (None, 0.0, 0);
    for _ in 0..LATE_TRIES {
        let summary = run(shape(mbit, packet_bits))?;
        let Some(carried) = carried(&summary, packet_bits, losses) else {
            failed += 1;
            if failed >= TRIES {
                break;
            }
            continue;
        };
        if carried >= CARRIED * mbit {
            losses.add(&summary);
            return Ok(Step::Carried);
        }
        let own = sent_mbit(&summary, packet_bits).unwrap_or(mbit);
        if own < ON_TIME * mbit {
            // All that was sent was carried, according to the summary.
            sent = sent.max(own.min(carried));
            continue;
        }
        best = best.max_by(Some(carried));
        failed += 1;
        if failed >= TRIES {
            break;
        }
    }
    Ok(match best {
        Some(best) => Step::TooMuch(best),
        None if sent > 0.0 => Step::Late(sent),
        None => Step::Nothing,
    })
}

/// The send rate of five trains above an estimate, and the median of their arrival rates.
fn refine<E>(
    guess: f64,
    packet_bits: f64,
    losses: &Losses,
    run: &mut impl FnMut(TrainShape) -> Result<Summary, E>,
) -> Result<(f64, f64), E> {
    let faster = ABOVE * guess;
    let mut carried_mbit = Vec::with_capacity(REFINING);
    for _ in 0..LATE_TRIES {
        let mut shape = shape(faster, packet_bits);
        shape.packets *= 2;
        let summary = run(shape)?;
        // A queue that ran empty because the sender paused yields too low a rate.
        let is_on_time =
            sent_mbit(&summary, packet_bits).is_none_or(|sent| sent >= ON_TIME * faster);
        if is_on_time {
            carried_mbit.extend(carried(&summary, packet_bits, losses));
        }
        if carried_mbit.len() == REFINING {
            break;
        }
    }
    carried_mbit.sort_by(f64::total_cmp);
    Ok((faster, carried_mbit.get(carried_mbit.len() / 2).copied().unwrap_or(guess)))
}

/// The rate at which the arrived packets were sent.
fn sent_mbit(summary: &Summary, packet_bits: f64) -> Option<f64> {
    let is_enough = summary.span_packets > 0 && summary.span_sent_nanos > 0;
    let rate = f64::from(summary.span_packets) * packet_bits * 1e3;
    is_enough.then(|| rate / summary.span_sent_nanos as f64)
}

fn shape(mbit: f64, packet_bits: f64) -> TrainShape {
    let packets = (mbit * 1e6 * TRAIN_SECONDS / packet_bits).max(TRAIN_PACKETS_MIN);
    TrainShape { mbit, packets: packets as u32 }
}

/// Arrival rate in Mbit/s, including the packets that the path always loses.
#[must_use]
pub fn carried(summary: &Summary, packet_bits: f64, losses: &Losses) -> Option<f64> {
    let mbit = summary.packets_per_second()? * packet_bits / 1e6;
    if summary.sent == 0 || !losses.is_exceeded_by(summary.sent, summary.lost()) {
        return Some(mbit);
    }
    let arrived = f64::from(summary.received) / f64::from(summary.sent);
    Some(mbit * (arrived / (1.0 - losses.share()).max(0.05)).min(1.0))
}

/// The larger of two numbers, each of them optional.
trait MaxBy {
    fn max_by(self, other: Self) -> Self;
}

impl MaxBy for Option<f64> {
    fn max_by(self, other: Self) -> Self {
        match (self, other) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::convert::Infallible;

    use crate::train::Arrivals;

    const BITS: f64 = 1514.0 * 8.0;

    /// A link with a queue, or one with a policer.
    struct Link {
        mbit: f64,
        loss: f64,
        queue_seconds: f64,
        jitter_seconds: f64,
        random: SmallRng,
        longest_queue: f64,
    }

    impl Link {
        fn new(mbit: f64, loss: f64) -> Link {
            let random = SmallRng::seed_from_u64(7);
            Link {
                mbit,
                loss,
                // At least as long as a packet on a slow link.
                queue_seconds: (32.0 * BITS / mbit / 1e6).max(0.025),
                jitter_seconds: 0.0,
                random,
                longest_queue: 0.0,
            }
        }

        fn run(&mut self, shape: TrainShape) -> Result<Summary, Infallible> {
            let mut arrivals = Arrivals::default();
            let (interval, airtime) = (BITS / shape.mbit / 1e6, BITS / self.mbit / 1e6);
            let mut free = 0.0_f64;
            for number in 0..shape.packets {
                let at = f64::from(number) * interval;
                let wait = (free - at).max(0.0);
                if wait > self.queue_seconds {
                    continue;
                }
                free = at + wait + airtime;
                self.longest_queue = self.longest_queue.max(wait);
                if self.random.random_bool(self.loss) {
                    continue;
                }
                let late = self.random.random_range(0.0..=self.jitter_seconds);
                let came = free + 0.02 + late;
                arrivals.note(number, (at * 1e9) as u64, (came * 1e9) as u64, 0);
            }
            Ok(arrivals.summary(shape.packets))
        }

        fn find(&mut self, cap: f64) -> Option<Rate> {
            let Ok(rate) = find(cap, BITS, &mut Losses::default(), |shape| self.run(shape));
            rate
        }
    }

    #[test]
    fn rate_of_a_link_is_found_whatever_it_loses() {
        for mbit in [0.4, 1.0, 7.0, 40.0, 100.0, 300.0, 900.0] {
            for loss in [0.0, 0.01, 0.1, 0.3] {
                let rate = Link::new(mbit, loss).find(2000.0).expect("a rate");
                assert!((rate.mbit / mbit - 1.0).abs() < 0.1, "{rate:?} of {mbit}, {loss}");
                assert!(!rate.is_least);
            }
        }
    }

    #[test]
    fn no_queue_gets_longer_than_a_step_allows() {
        for mbit in [20.0, 100.0, 300.0] {
            let mut link = Link { queue_seconds: 10.0, ..Link::new(mbit, 0.05) };
            link.find(2000.0);
            assert!(link.longest_queue < 0.03, "{} at {mbit}", link.longest_queue);
        }
    }

    #[test]
    fn limit_is_kept_and_said() {
        let mut link = Link::new(300.0, 0.1);
        let mut fastest = 0.0_f64;
        let mut run = |shape: TrainShape| {
            fastest = fastest.max(shape.mbit);
            link.run(shape)
        };
        let Ok(rate) = find(50.0, BITS, &mut Losses::default(), &mut run);
        assert_eq!(rate, Some(Rate { mbit: 50.0, is_least: true }));
        assert!(fastest <= 50.0);
    }

    /// Without a queue the excess is lost, and the rest arrives immediately.
    #[test]
    fn links_that_drop_what_exceeds_their_rate_are_known_by_their_losses() {
        for loss in [0.0, 0.05] {
            let mut link = Link { queue_seconds: 1e-4, ..Link::new(100.0, loss) };
            let rate = link.find(2000.0).expect("a rate");
            assert!((rate.mbit / 100.0 - 1.0).abs() < 0.15, "{rate:?} at {loss}");
        }
    }

    #[test]
    fn jitter_of_milliseconds_changes_little() {
        let mut link = Link { jitter_seconds: 0.003, ..Link::new(100.0, 0.02) };
        let rate = link.find(2000.0).expect("a rate");
        assert!((rate.mbit / 100.0 - 1.0).abs() < 0.15, "{rate:?}");
    }

    /// A sender on a shared machine: every other train has a pause in it, or all.
    #[test]
    fn late_senders_say_nothing_of_the_path() {
        for (every, expected) in [(2, 100.0), (1, 6.0)] {
            let (mut link, mut count) = (Link::new(100.0, 0.05), 0);
            let mut run = |shape: TrainShape| {
                count += 1;
                let mut late = shape;
                if count % every == 0 && shape.mbit > 6.0 {
                    late.mbit = 6.0;
                }
                link.run(late)
            };
            let Ok(rate) = find(2000.0, BITS, &mut Losses::default(), &mut run);
            let rate = rate.expect("a rate");
            assert!((rate.mbit / expected - 1.0).abs() < 0.15, "{rate:?}");
            assert_eq!(rate.is_least, every == 1);
        }
    }

    #[test]
    fn path_that_carries_nothing_has_no_rate() {
        assert_eq!(Link::new(100.0, 1.0).find(1000.0), None);
    }
}
