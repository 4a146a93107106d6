//! Tracks outstanding echoes and round trips. Reads no clock.

use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// Outstanding echoes: number, time sent, whether answered. At most as many as are sent within the
/// time limit for replies.
#[derive(Debug)]
pub struct Session {
    patience: Duration,
    waiting: VecDeque<Waiting>,
    sent: u64,
    answered: u64,
    lost: u64,
    copies: u64,
    late: u64,
    /// Mean and squared deviations from it, by Welford's method, in microseconds.
    mean: f64,
    squares: f64,
    min: f64,
    max: f64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    at: Duration,
    is_answered: bool,
}

/// Classification of a reply.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Answer {
    /// The first reply, with its round trip.
    First(Duration),
    /// A duplicate.
    Copy,
    /// A reply after the time limit, which counts as lost.
    Late,
    /// A reply to an echo that was never sent.
    Foreign,
}

/// Figures of all echoes.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Figures {
    /// Echoes sent; answered in time; not answered in time. At an interrupt, some are neither.
    pub sent: u64,
    /// Answered in time.
    pub answered: u64,
    /// Not answered in time.
    pub lost: u64,
    /// Share lost of the echoes whose fate is known.
    pub loss: Option<f64>,
    /// Duplicate replies.
    pub copies: u64,
    /// Replies after the time limit, which count as lost.
    pub late: u64,
    /// Round trips of answered echoes.
    pub round_trip_us: Option<RoundTrips>,
}

/// Round trips in microseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct RoundTrips {
    /// The shortest.
    pub min: f64,
    /// Their mean.
    pub mean: f64,
    /// The longest.
    pub max: f64,
    /// Their standard deviation.
    pub deviation: f64,
}

impl Session {
    /// No echo sent yet; replies may take up to `patience`.
    pub fn new(patience: Duration) -> Session {
        Session {
            patience,
            waiting: VecDeque::new(),
            sent: 0,
            answered: 0,
            lost: 0,
            copies: 0,
            late: 0,
            mean: 0.0,
            squares: 0.0,
            min: f64::INFINITY,
            max: 0.0,
        }
    }

    /// Records that one was sent; its number, counted from 1, is `sent` afterwards.
    pub fn sent(&mut self, now: Duration) {
        self.sent += 1;
        self.waiting.push_back(Waiting { number: self.sent, at: now, is_answered: false });
    }

    /// The number of the next echo.
    pub fn next(&self) -> u64 {
        self.sent + 1
    }

    /// Records a reply.
    pub fn answer(&mut self, number: u64, now: Duration) -> Answer {
        if number == 0 || number > self.sent {
            return Answer::Foreign;
        }
        let first = self.waiting.front().map_or(self.sent + 1, |first| first.number);
        let found = number.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        let Some(waiting) = found.and_then(|at| self.waiting.get_mut(at)) else {
            self.late += 1;
            return Answer::Late;
        };
        if std::mem::replace(&mut waiting.is_answered, true) {
            self.copies += 1;
            return Answer::Copy;
        }
        let trip = now.saturating_sub(waiting.at);
        self.note(trip.as_secs_f64() * 1e6);
        Answer::First(trip)
    }

    fn note(&mut self, micros: f64) {
        self.answered += 1;
        let off = micros - self.mean;
        self.mean += off / self.answered as f64;
        self.squares += off * (micros - self.mean);
        (self.min, self.max) = (self.min.min(micros), self.max.max(micros));
    }

    /// Numbers whose time limit passed without a reply.
    pub fn expire(&mut self, now: Duration) -> Vec<u64> {
        let mut lost = Vec::new();
        while let Some(first) = self.waiting.front() {
            if now.saturating_sub(first.at) < self.patience {
                break;
            }
            if !first.is_answered {
                lost.push(first.number);
            }
            self.waiting.pop_front();
        }
        self.lost += lost.len() as u64;
        lost
    }

    /// Whether any reply is still outstanding.
    pub fn is_waiting(&self) -> bool {
        self.waiting.iter().any(|waiting| !waiting.is_answered)
    }

    /// Time at which the fate of the oldest is known at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        self.waiting.front().map(|first| first.at + self.patience)
    }

    /// Figures of all echoes so far.
    pub fn figures(&self) -> Figures {
        let known = self.answered + self.lost;
        let deviation = (self.squares / self.answered.max(1) as f64).max(0.0).sqrt();
        let (min, mean, max) = (self.min, self.mean, self.max);
        Figures {
            sent: self.sent,
            answered: self.answered,
            lost: self.lost,
            loss: (known > 0).then(|| self.lost as f64 / known as f64),
            copies: self.copies,
            late: self.late,
            round_trip_us: (self.answered > 0).then_some(RoundTrips { min, mean, max, deviation }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn answers_in_time_have_round_trips_and_the_rest_is_lost_once() {
        let mut session = Session::new(PATIENCE);
        for second in 0..4 {
            assert_eq!(session.next(), second + 1);
            session.sent(at(1000 * second));
        }
        assert_eq!(session.answer(1, at(20)), Answer::First(at(20)));
        assert_eq!(session.answer(1, at(25)), Answer::Copy);
        assert_eq!(session.answer(3, at(2040)), Answer::First(at(40)));
        assert!(session.expire(at(2999)).is_empty());
        assert_eq!(session.expire(at(3000)), [2]);
        assert_eq!(session.answer(2, at(3001)), Answer::Late);
        for foreign in [0, 5, u64::MAX] {
            assert_eq!(session.answer(foreign, at(3001)), Answer::Foreign);
        }
        assert!(session.is_waiting());
        let figures = session.figures();
        assert_eq!((figures.sent, figures.answered, figures.lost), (4, 2, 1));
        assert_eq!((figures.copies, figures.late), (1, 1));
        assert_eq!(session.deadline(), Some(at(4000)));
        assert_eq!(session.expire(at(9000)), [4]);
        assert!(!session.is_waiting() && session.deadline().is_none());
        let figures = session.figures();
        assert_eq!(figures.loss, Some(0.5));
        let RoundTrips { min, mean, max, deviation } = figures.round_trip_us.expect("two");
        assert!((min - 2e4).abs() < 1e-6 && (max - 4e4).abs() < 1e-6, "{min} {max}");
        assert!((mean - 3e4).abs() < 1e-6 && (deviation - 1e4).abs() < 1e-6, "{mean} {deviation}");
    }

    #[test]
    fn nothing_sent_has_no_loss_and_no_round_trip() {
        let figures = Session::new(PATIENCE).figures();
        assert_eq!(figures, Figures::default());
    }

    /// Only the echoes of the last seconds are kept, however many are sent.
    #[test]
    fn memory_is_bounded_by_the_time_an_answer_may_take() {
        let mut session = Session::new(PATIENCE);
        for number in 0..100_000 {
            session.sent(at(10 * number));
            if number % 3 > 0 {
                session.answer(number + 1, at(10 * number + 5));
            }
            session.expire(at(10 * number));
            assert!(session.waiting.len() <= 201);
        }
        let figures = session.figures();
        assert!(figures.loss.is_some_and(|loss| (loss - 1.0 / 3.0).abs() < 1e-3), "{figures:?}");
    }
}
