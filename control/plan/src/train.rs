//! Packet trains: sent at a given pace, and summarised at the receiver in a [`Summary`] of fixed
//! size.
//!
//! ```text
//!  sent    0 1 2 3 4 5 6 7 8 9        at the pace asked for, never in a flood to catch up
//!  came    0 1 . . 4 5 . 7 8 9        runs of losses: 2, of length 2 and 1
//!          |<- span: 9 packets ->|    9 packets in the time between first and last arrival: what
//!                                     the path carries where it is slower than the pace
//! ```
//!
//! The clocks of both ends may have any offset: only differences of one-way times are used.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::packet::{BYTES_MAX, Body, Packet, Token};
use crate::summary::{RUN_BINS, SPAN_MAX_NANOS, Summary};

/// Most packets of a train: bounds a receiver's memory to half a megabyte.
pub const PACKETS_MAX: u32 = 16_384;

/// Longest train. The sender receives nothing until its end.
pub const LENGTH_MAX: Duration = Duration::from_millis(600);

/// Largest payload.
pub const PAYLOAD_BYTES_MAX: usize = 9216;

/// Backlog that a late sender catches up at once, in time or packets, whichever is more; the rest
/// of the delay stays.
const CATCH_UP_NANOS: u64 = 5_000_000;
const CATCH_UP_PACKETS: u64 = 3;

/// Parameters of a train.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TrainPlan {
    /// Number of the train.
    pub train: u32,
    /// Packets.
    pub packets: u32,
    /// UDP payload of each packet.
    pub payload_bytes: usize,
    /// Interval between packets.
    pub interval_nanos: u64,
}

impl TrainPlan {
    /// Limits it in memory and time, and to a rate in packets a second.
    #[must_use]
    pub fn bounded(self, packets_per_second_max: f64) -> TrainPlan {
        let least = (1e9 / packets_per_second_max.max(1.0)).ceil() as u64;
        let interval_nanos = self.interval_nanos.max(least).max(1_000);
        let in_time = LENGTH_MAX.as_nanos() as u64 / interval_nanos;
        let most = u32::try_from(in_time).unwrap_or(PACKETS_MAX).clamp(1, PACKETS_MAX);
        TrainPlan {
            packets: self.packets.min(most),
            payload_bytes: self.payload_bytes.clamp(64, PAYLOAD_BYTES_MAX),
            interval_nanos,
            ..self
        }
    }

    /// Its duration.
    #[must_use]
    pub fn length(&self) -> Duration {
        let nanos = self.interval_nanos.saturating_mul(u64::from(self.packets));
        Duration::from_nanos(nanos).min(LENGTH_MAX)
    }
}

/// Sends a train and returns the number of packets sent. Waits if buffers are full. A late sender
/// catches up at most five milliseconds, or three packets.
///
/// # Errors
/// Linux does not send.
pub fn send(
    plan: &TrainPlan,
    token: Token,
    mut send: impl FnMut(&[u8]) -> io::Result<usize>,
) -> io::Result<u32> {
    let mut bytes = [0; PAYLOAD_BYTES_MAX];
    let length = plan.payload_bytes.clamp(BYTES_MAX.min(64), PAYLOAD_BYTES_MAX);
    let catch_up = CATCH_UP_NANOS.max(CATCH_UP_PACKETS.saturating_mul(plan.interval_nanos));
    let started = Instant::now();
    let (mut due, mut number, mut refused) = (0_u64, 0, 0);
    while number < plan.packets {
        let now = started.elapsed().as_nanos() as u64;
        if now < due {
            std::thread::sleep(Duration::from_nanos(due - now));
            continue;
        }
        due = due.max(now.saturating_sub(catch_up));
        let body = Body::Data { train: plan.train, number, at: wall_nanos() };
        if (Packet { token, body }).write(&mut bytes).is_none() {
            break;
        }
        match send(&bytes[..length]) {
            Ok(_) => (number, refused) = (number + 1, 0),
            Err(error) if is_full(&error) && refused < REFUSED_MAX => refused += 1,
            Err(error) => return Err(error),
        }
        due += plan.interval_nanos;
    }
    Ok(number)
}

/// Retries on a full buffer.
const REFUSED_MAX: u32 = 1000;

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || error.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32)
}

/// Makes this thread wake on time, as far as this user may: timers without slack, and a priority
/// above that of other programs.
pub fn be_prompt() {
    let _ = nix::sys::prctl::set_timerslack(1_000);
    let _ = rustix::process::nice(NICE);
}

/// Requires privileges.
const NICE: i32 = -15;

/// Nanoseconds of the wall clock, which Linux also uses for arrival timestamps.
#[must_use]
pub fn wall_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Arrivals of one train, by packet. Allocates only when it is created.
#[derive(Debug)]
pub struct Arrivals {
    train: u32,
    /// One-way time and arrival time, by number.
    came: Vec<Option<(i64, u64)>>,
    /// All numbers that arrived are below this.
    end: usize,
    highest: Option<u32>,
    duplicates: u32,
    overtaken: u32,
    overrun: u32,
    scratch: Vec<u64>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Arrivals {
            train: 0,
            came: vec![None; PACKETS_MAX as usize],
            end: 0,
            highest: None,
            duplicates: 0,
            overtaken: 0,
            overrun: 0,
            scratch: Vec::with_capacity(PACKETS_MAX as usize),
        }
    }
}

impl Arrivals {
    /// Clears everything and begins with this train.
    pub fn begin(&mut self, train: u32) {
        self.came[..self.end].fill(None);
        (self.train, self.end, self.highest) = (train, 0, None);
        (self.duplicates, self.overtaken, self.overrun) = (0, 0, 0);
    }

    /// Number of the train.
    #[must_use]
    pub fn train(&self) -> u32 {
        self.train
    }

    /// Whether any packet arrived.
    #[must_use]
    pub fn any(&self) -> bool {
        self.highest.is_some()
    }

    /// Records a packet of this train, with its send time by the sender's clock and its arrival
    /// time by the local clock; `overrun` counts packets dropped because the socket was full since
    /// the previous one.
    pub fn note(&mut self, number: u32, sent_at: u64, came_at: u64, overrun: u32) {
        self.overrun = self.overrun.saturating_add(overrun);
        let Some(slot) = self.came.get_mut(number as usize) else { return };
        if slot.is_some() {
            self.duplicates = self.duplicates.saturating_add(1);
            return;
        }
        *slot = Some((came_at.wrapping_sub(sent_at).cast_signed(), came_at));
        self.end = self.end.max(number as usize + 1);
        self.overtaken += u32::from(self.highest.is_some_and(|highest| number < highest));
        self.highest = self.highest.max(Some(number));
    }

    /// Summarises the arrivals of a train of `sent` packets.
    pub fn summary(&mut self, sent: u32) -> Summary {
        let sent = sent.min(PACKETS_MAX);
        let came = &self.came[..sent as usize];
        let mut summary = Summary {
            train: self.train,
            sent,
            duplicates: self.duplicates,
            overrun: self.overrun,
            ..Summary::default()
        };
        runs(came, &mut summary);
        summary.overtaken = self.overtaken.min(summary.received);
        let Some(least) = came.iter().flatten().map(|(way, _)| *way).min() else { return summary };
        summary.way_min_nanos = least;
        let queued = |way: i64| way.saturating_sub(least).unsigned_abs().min(SPAN_MAX_NANOS - 1);
        let quarter = (summary.received as usize).div_ceil(4);
        let ways = || came.iter().flatten().map(|(way, _)| queued(*way));
        let mut quantile = |take: &mut dyn Iterator<Item = u64>, share: f64| {
            self.scratch.clear();
            self.scratch.extend(take);
            self.scratch.sort_unstable();
            let at = (self.scratch.len() as f64 * share) as usize;
            self.scratch.get(at.min(self.scratch.len().saturating_sub(1))).copied().unwrap_or(0)
        };
        summary.queue_median_nanos = quantile(&mut ways(), 0.5);
        summary.queue_p99_nanos = quantile(&mut ways(), 0.99);
        summary.queue_max_nanos = quantile(&mut ways(), 1.0);
        summary.queue_early_nanos = quantile(&mut ways().take(quarter), 0.5);
        summary.queue_late_nanos = quantile(&mut ways().rev().take(quarter), 0.5);
        summary
    }
}

/// Losses and spans.
fn runs(came: &[Option<(i64, u64)>], summary: &mut Summary) {
    let (mut run, half) = (0_u32, came.len() / 2);
    let end = |run: u32, summary: &mut Summary| {
        if run > 0 {
            let bin = RUN_BINS.iter().position(|longest| run <= *longest);
            summary.runs += 1;
            summary.runs_by_length[bin.unwrap_or(RUN_BINS.len())] += 1;
        }
    };
    let mut first = None;
    for (number, slot) in (0_u32..).zip(came) {
        let Some((way, at)) = slot else {
            run += 1;
            summary.lost_late += u32::from(number as usize >= half);
            continue;
        };
        end(run, summary);
        run = 0;
        summary.received += 1;
        let sent_at = at.wrapping_sub(way.cast_unsigned());
        let (first, first_at, first_sent) = *first.get_or_insert((number, *at, sent_at));
        let span = |later: u64, earlier: u64| later.saturating_sub(earlier).min(SPAN_MAX_NANOS - 1);
        summary.span_packets = number - first;
        summary.span_came_nanos = span(*at, first_at);
        summary.span_sent_nanos = span(sent_at, first_sent);
    }
    end(run, summary);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLI: u64 = 1_000_000;

    /// One packet per millisecond with a one-way delay of 20 ms, without the lost ones.
    fn arrivals(sent: u32, lost: &[u32]) -> Arrivals {
        let mut arrivals = Arrivals::default();
        arrivals.begin(3);
        for number in (0..sent).filter(|number| !lost.contains(number)) {
            let at = u64::from(number) * MILLI;
            arrivals.note(number, at, at + 20 * MILLI, 0);
        }
        arrivals
    }

    #[test]
    fn losses_are_counted_by_runs_at_the_ends_as_well() {
        let summary = arrivals(20, &[0, 4, 5, 9, 10, 11, 18, 19]).summary(20);
        assert_eq!((summary.sent, summary.received, summary.lost()), (20, 12, 8));
        assert_eq!((summary.runs, summary.runs_by_length), (4, [1, 2, 1, 0, 0, 0, 0, 0]));
        assert_eq!((summary.lost_late, summary.span_packets), (4, 16));
        assert_eq!(summary.span_came_nanos, 16 * MILLI);
        assert_eq!(summary.plausible(3, 20), Some(summary));
    }

    #[test]
    fn nothing_that_came_is_all_lost_and_no_rate() {
        let summary = arrivals(8, &[0, 1, 2, 3, 4, 5, 6, 7]).summary(8);
        assert_eq!((summary.received, summary.runs, summary.packets_per_second()), (0, 1, None));
        assert_eq!(summary.plausible(3, 8), Some(summary));
    }

    #[test]
    fn queue_and_rate_of_a_slower_path_are_seen_whatever_the_clocks() {
        let mut arrivals = Arrivals::default();
        arrivals.begin(1);
        for number in 0..100 {
            let at = u64::from(number) * MILLI;
            // The other clock is a day behind; the path takes 1.5 ms per packet.
            arrivals.note(number, at, (u64::from(number) * 3 / 2 * MILLI).wrapping_sub(1 << 46), 0);
        }
        let summary = arrivals.summary(100);
        let rate = summary.packets_per_second().expect("a rate");
        assert!((rate - 667.0).abs() < 15.0, "{rate}");
        assert!(summary.queue_late_nanos > summary.queue_early_nanos + 30 * MILLI);
        assert_eq!(summary.queue_max_nanos, 49 * MILLI);
    }

    #[test]
    fn packets_that_come_again_or_late_or_have_numbers_of_no_train_are_counted_once() {
        let mut arrivals = arrivals(10, &[4]);
        arrivals.note(4, 0, 30 * MILLI, 2);
        arrivals.note(4, 0, 31 * MILLI, 0);
        arrivals.note(u32::MAX, 0, 0, 0);
        arrivals.note(PACKETS_MAX, u64::MAX, 0, 0);
        let summary = arrivals.summary(10);
        assert_eq!((summary.received, summary.duplicates, summary.overtaken), (10, 1, 1));
        assert_eq!(summary.overrun, 2);
        arrivals.begin(4);
        assert_eq!(arrivals.summary(u32::MAX).received, 0);
        assert_eq!(arrivals.summary(u32::MAX).sent, PACKETS_MAX);
    }

    proptest! {
        #[test]
        fn any_arrivals_make_a_plausible_summary(
            packets in proptest::collection::vec(any::<(u32, u64, u64, u32)>(), 0..200), sent: u32,
        ) {
            let mut arrivals = Arrivals::default();
            for (number, sent_at, came_at, overrun) in packets {
                arrivals.note(number % 300, sent_at, came_at, overrun);
            }
            let summary = arrivals.summary(sent);
            prop_assert_eq!(summary.plausible(0, sent.min(PACKETS_MAX)), Some(summary));
        }
    }

    #[test]
    fn trains_are_bounded_in_packets_time_and_rate() {
        let asked =
            TrainPlan { train: 1, packets: u32::MAX, payload_bytes: 65_535, interval_nanos: 0 };
        let plan = asked.bounded(10_000.0);
        assert_eq!(plan.interval_nanos, 100_000);
        assert!(plan.length() <= LENGTH_MAX && plan.packets <= PACKETS_MAX);
        assert_eq!(plan.payload_bytes, PAYLOAD_BYTES_MAX);
        let slow = TrainPlan { interval_nanos: u64::MAX, ..asked }.bounded(f64::NAN);
        assert_eq!(slow.packets, 1);
    }

    /// A sender that was not scheduled for a while.
    #[test]
    fn late_sender_does_not_flood() {
        let plan = TrainPlan { train: 1, packets: 80, payload_bytes: 100, interval_nanos: MILLI };
        let (mut at, started) = (Vec::new(), Instant::now());
        let sent = send(&plan, [0; 16], |_| {
            if at.len() == 10 {
                std::thread::sleep(Duration::from_millis(40));
            }
            at.push(started.elapsed());
            Ok(100)
        });
        assert_eq!(sent.expect("sent"), 80);
        // Only 5 ms of the delay of 40 ms are caught up.
        assert!(started.elapsed() >= Duration::from_millis(110));
    }
}
