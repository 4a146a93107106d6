//! The sending side of one hop of a stream: what waits to be sent, at which pace, and what was lost
//! and is sent again.

use crate::io::earlier;
use crate::params::Nanos;
use crate::peer::rate::{AROUND_BYTES, Rate, Verdict};
use crate::peer::sent::{Outcome, Sent};
use crate::stream::store::Store;
use recoded_wire::link::LinkReport;
use std::collections::VecDeque;

/// What may leave at once after a pause: a worker that shares its core may be woken late.
const BURST_NANOS: Nanos = 1_500_000;

/// Packets beyond what the rate puts on the way while a round trip and a queue last.
const SPARE_PACKETS: f64 = 32.0;

/// Time that reports take beside the round trip.
const REPORT_NANOS: Nanos = 2_000_000;

/// A symbol is sent again for so long after it was heard of, and round trips.
const AGAIN_NANOS: Nanos = 1_000_000_000;
const AGAIN_ROUND_TRIPS: Nanos = 4;

/// Waits before the first keepalive after the last packet, and between later ones at most; and
/// while symbols wait.
const KEEPALIVE_MIN_NANOS: Nanos = 1_500_000;
const KEEPALIVE_MAX_NANOS: Nanos = 1_000_000_000;
const KEEPALIVE_WAITING_NANOS: Nanos = 10_000_000;

/// Keepalives without an answer after which there is none at all until there is more to send.
const KEEPALIVES: u32 = 12;

/// Half as fast after so long without a report, and round trips.
const SILENCE_NANOS: Nanos = 100_000_000;

/// Weight of a new round trip in the mean.
const ROUND_TRIP_WEIGHT: u64 = 8;

/// What is to leave next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Symbol { number: u32, is_repair: bool },
    Keepalive,
}

/// Keepalives since something was sent or heard.
#[derive(Debug, Default)]
struct Keepalive {
    due: Option<Nanos>,
    count: u32,
}

/// One hop of a stream.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Its place among the next hops.
    hop: usize,
    sent: Sent,
    rate: Rate,
    round_trip: Option<Nanos>,
    /// Numbers to be sent, and to be sent again.
    fresh: VecDeque<u32>,
    again: VecDeque<u32>,
    /// When the link is free.
    free_at: Nanos,
    /// Whether all that may be on the way was, since something left.
    is_full: bool,
    /// When it was last heard, or there was first something to be heard of.
    heard_at: Nanos,
    keepalive: Keepalive,
}

impl Sender {
    /// For a window of so many symbols.
    pub(crate) fn new(hop: usize, symbols: usize) -> Self {
        Self {
            hop,
            sent: Sent::new(2 * symbols),
            rate: Rate::new(),
            round_trip: None,
            fresh: VecDeque::with_capacity(symbols),
            again: VecDeque::with_capacity(symbols),
            free_at: 0,
            is_full: false,
            heard_at: 0,
            keepalive: Keepalive::default(),
        }
    }

    /// Bytes that it allocates.
    pub(crate) fn memory_bytes(symbols: usize) -> usize {
        Sent::memory_bytes(2 * symbols) + 2 * symbols.next_power_of_two() * size_of::<u32>()
    }

    pub(crate) fn hop(&self) -> usize {
        self.hop
    }

    /// Mean round trip to the neighbour, as far as it is known.
    pub(crate) fn round_trip(&self) -> Nanos {
        self.round_trip.unwrap_or(0)
    }

    /// Queues a symbol. The oldest goes where more wait than a window holds.
    pub(crate) fn queue(&mut self, number: u32, symbols: usize) {
        if self.fresh.len() >= symbols {
            self.fresh.pop_front();
        }
        self.fresh.push_back(number);
    }

    /// Queues a symbol that is to be sent again.
    pub(crate) fn queue_again(&mut self, number: u32) {
        if self.again.len() < self.again.capacity() {
            self.again.push_back(number);
        }
    }

    /// Whether nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.fresh.is_empty() && self.again.is_empty()
    }

    /// How long what is queued now waits until it leaves.
    pub(crate) fn backlog(&self, symbol_bytes: usize, now: Nanos) -> Nanos {
        let waiting = self.fresh.len() + self.again.len();
        let queued = self.rate.nanos(waiting * (symbol_bytes + AROUND_BYTES));
        queued + if waiting > 0 { self.free_at.saturating_sub(now) } else { 0 }
    }

    /// Most packets on the way.
    fn window(&self) -> usize {
        let round_trip = self.round_trip.unwrap_or(100_000_000);
        let nanos = 2 * Rate::target(round_trip) + round_trip + round_trip / 4 + REPORT_NANOS;
        let bytes = self.rate.bytes_per_second() * nanos as f64 * 1e-9;
        ((bytes / 1500.0 + SPARE_PACKETS) as usize).min(self.sent.capacity() - 1)
    }

    /// Whether a packet may leave now; otherwise when, if that is known.
    pub(crate) fn opens_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        if self.sent.on_their_way() >= self.window() {
            return Err(None);
        }
        let at = self.free_at.saturating_sub(BURST_NANOS);
        if at > now { Err(Some(at)) } else { Ok(()) }
    }

    /// What is to leave now.
    pub(crate) fn next(&mut self, store: &Store, now: Nanos) -> Option<Next> {
        if let Err(at) = self.opens_at(now) {
            self.is_full |= at.is_none();
            self.expire(store, now);
            return self.due_keepalive(now);
        }
        let patience = self.patience();
        for is_repair in [true, false] {
            let queue = if is_repair { &mut self.again } else { &mut self.fresh };
            while let Some(number) = queue.pop_front() {
                let is_wanted = store.is_known(number) && !store.is_done(number, self.hop);
                if is_wanted && store.heard_at(number) + patience > now {
                    return Some(Next::Symbol { number, is_repair });
                }
            }
        }
        self.due_keepalive(now)
    }

    /// How long after it was heard of a symbol is still sent.
    fn patience(&self) -> Nanos {
        AGAIN_NANOS + AGAIN_ROUND_TRIPS * self.round_trip()
    }

    /// Lets symbols go that waited too long: nothing waits for a neighbour that is gone.
    fn expire(&mut self, store: &Store, now: Nanos) {
        let patience = self.patience();
        let is_over =
            |number: u32| !store.covers(number) || store.heard_at(number) + patience <= now;
        for queue in [&mut self.again, &mut self.fresh] {
            while queue.front().is_some_and(|number| is_over(*number)) {
                queue.pop_front();
            }
        }
    }

    fn due_keepalive(&mut self, now: Nanos) -> Option<Next> {
        let is_due = match self.keepalive.due {
            Some(due) => due <= now,
            None => self.is_stuck(),
        };
        is_due.then_some(Next::Keepalive)
    }

    /// Whether what waits can only leave after a report, and nothing asks for one.
    fn is_stuck(&self) -> bool {
        self.keepalive.due.is_none() && !self.is_idle() && self.sent.on_their_way() >= self.window()
    }

    /// Notes what left under a link sequence number.
    pub(crate) fn left(&mut self, what: Next, (link, bytes): (u32, usize), now: Nanos) {
        let symbol = match what {
            Next::Symbol { number, .. } => Some(number),
            Next::Keepalive => None,
        };
        if self.sent.on_their_way() == 0 {
            // There was nothing to be heard of.
            self.heard_at = now;
        }
        self.sent.note(link, symbol, now);
        let earliest = now.saturating_sub(BURST_NANOS);
        if self.free_at < earliest && !std::mem::take(&mut self.is_full) {
            // There was nothing to send: what arrives next says nothing of what could.
            self.sent.ran_dry();
        }
        self.free_at = self.free_at.max(earliest) + self.rate.nanos(bytes + AROUND_BYTES);
        match what {
            Next::Symbol { .. } => {
                self.keepalive.count = 0;
                let wait = (self.round_trip() / 4).max(KEEPALIVE_MIN_NANOS);
                self.keepalive.due = Some(now + wait);
            }
            Next::Keepalive => {
                self.keepalive.count += 1;
                let silence = now.saturating_sub(self.heard_at);
                if self.round_trip.is_some() && silence > SILENCE_NANOS + 4 * self.round_trip() {
                    self.heard_at = now;
                    self.rate.silence();
                }
                let shift = self.keepalive.count.min(10);
                let wait = (self.round_trip() * 5 / 4).max(KEEPALIVE_MIN_NANOS) << (shift - 1);
                let is_over = self.keepalive.count >= KEEPALIVES && self.is_idle();
                let most =
                    if self.is_idle() { KEEPALIVE_MAX_NANOS } else { self.waiting_interval() };
                self.keepalive.due = (!is_over).then(|| now + wait.min(most));
                if is_over {
                    // It may be there again: what comes next is sent to see.
                    self.sent.forget();
                }
            }
        }
    }

    /// Between keepalives while symbols wait for a report.
    fn waiting_interval(&self) -> Nanos {
        KEEPALIVE_WAITING_NANOS.max(self.round_trip() * 5 / 4)
    }

    /// When there is something to do without anything coming.
    pub(crate) fn due(&self, now: Nanos) -> Option<Nanos> {
        let waits = !self.is_idle();
        let opens = match self.opens_at(now) {
            Ok(()) if waits => Some(now),
            Err(at) if waits => at,
            _ => None,
        };
        let asks = if self.is_stuck() { Some(now) } else { self.keepalive.due };
        earlier(opens, asks)
    }

    /// Reads what the neighbour reports.
    pub(crate) fn hear(
        &mut self,
        store: &mut Store,
        (report, payload): (&LinkReport, &[u8]),
        now: Nanos,
    ) {
        let Self { hop, sent, again, .. } = self;
        let hop = *hop;
        let round_trip = self.round_trip.unwrap_or(0);
        let heard =
            sent.hear((report, payload), (now, round_trip), |number, outcome| match outcome {
                Outcome::Came => store.set_done(number, hop),
                Outcome::Lost if store.is_known(number) && !store.is_done(number, hop) => {
                    if again.len() < again.capacity() {
                        again.push_back(number);
                    }
                }
                Outcome::Lost => {}
            });
        let Some(heard) = heard else { return };
        self.heard_at = now;
        let mean = self.round_trip.map_or(heard.round_trip, |mean| {
            mean - mean / ROUND_TRIP_WEIGHT + heard.round_trip / ROUND_TRIP_WEIGHT
        });
        self.round_trip = Some(mean);
        self.rate.queue(heard.waited, mean);
        if let Some(sample) = heard.sample
            && self.rate.sample(&sample, mean, now) == Verdict::NotOurs
        {
            self.sent.accept_queue();
        }
        if self.sent.on_their_way() == 0 && self.is_idle() {
            self.keepalive.due = None;
        }
    }

    /// Lets go of everything that waits.
    pub(crate) fn clear(&mut self) {
        self.fresh.clear();
        self.again.clear();
        self.keepalive.due = None;
    }
}
