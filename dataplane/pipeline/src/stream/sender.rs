//! The sending side of one hop of a stream: queued symbols, pacing, and retransmission of losses.

mod expiry;
mod keepalives;
mod open_loop;
mod path;
mod retransmission;

use crate::base::time::earlier;
use crate::config::params::Nanos;
use crate::config::report::{HeardHop, HopLoss, Planned};
use crate::hop::rate::sample::AROUND_BYTES;
use crate::hop::send::in_flight::{Carried, InFlight, Outcome};
use crate::hop::send::link_sender::LinkSender;
use crate::hop::send::liveness::Liveness;
use crate::hop::send::repair::RepairBudget;
use crate::hop::send::round_trip::{UNKNOWN_NANOS, smoothed};
use crate::stream::fec_scheduler::FecScheduler;
use crate::stream::store::Store;
use recoded_wire::link::{LinkReport, Missing};
use recoded_wire::stream::{COMBINATION_BYTES, Combination, STREAM_BYTES, STREAM_LOG2_MAX};
use retransmission::RetransmissionBudget;
use std::collections::VecDeque;

/// Packets allowed beyond those that the rate sends during a round trip and a queue.
const SPARE_PACKETS: f64 = 32.0;

/// Smallest size assumed of packets in flight: a few large ones may follow many small ones. With
/// that of full packets, 600 of 3000 acknowledgements of TCP a second left over 33 ms.
const PACKET_BYTES_LEAST: usize = 96;

/// Delay of reports in addition to the round trip.
const REPORT_NANOS: Nanos = 2_000_000;

/// A symbol is retransmitted until this long, plus round trips, after it was first seen.
const AGAIN_NANOS: Nanos = 1_000_000_000;
const AGAIN_ROUND_TRIPS: Nanos = 4;

/// Newest places whose numbers are kept: those in flight, and more than are combined.
const PLACES: usize = 1 << STREAM_LOG2_MAX;

/// Margin after which a reported symbol counts as missing, beyond a round trip and the longer of
/// its last combination and a quarter of the round trip; the second constant caps this quarter.
const MISSING_NANOS: Nanos = 2_000_000;
const MISSING_QUEUE_NANOS: Nanos = 30_000_000;

/// The next packet to send.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Symbol {
        number: u32,
        place: u32,
        is_repair: bool,
    },
    /// A combination of symbols, by places and key.
    Combination(Combination),
    Keepalive,
    /// A keepalive of this many bytes, to probe whether they arrive.
    Probe(u16),
}

impl Next {
    /// Whether it is the symbol with this number.
    pub(crate) fn is_symbol(&self, wanted: u32) -> bool {
        matches!(self, Next::Symbol { number, .. } if *number == wanted)
    }
}

/// One hop of a stream.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Its index among the next hops, and its bit in the store.
    hop: usize,
    receiver: usize,
    /// Whether it is one of several paths to a receiver.
    is_path: bool,
    /// How long a symbol is sent after it was first seen, excluding round trips.
    patience: Nanos,
    /// Its budget is for requests of the sinks behind it.
    pub(crate) link: LinkSender,
    /// Mean queueing delay of the link.
    queued: Nanos,
    /// Time of the last report, and how many in a row resolved no packet in flight.
    reported_at: Nanos,
    empty_reports: u32,
    /// Numbers to send; numbers and places to retransmit.
    fresh: VecDeque<u32>,
    /// Mean bytes of symbols sent.
    mean_bytes: usize,
    again: VecDeque<(u32, u32)>,
    /// Reported lost, and not recovered by received combinations. Oldest first.
    open: VecDeque<(u32, u32)>,
    /// The newest places.
    placed: Box<[Placed]>,
    next_place: u32,
    has_begun: bool,
    fec: FecScheduler,
    next_key: u16,
    /// Symbols too large for the link; symbols that waited too long.
    given_up: u64,
    lagged: u64,
    /// When the neighbour was last heard, or first had anything to report.
    heard_at: Nanos,
    liveness: Liveness,
    /// When the last keepalive was sent.
    asked_at: Nanos,
    budget: RetransmissionBudget,
}

/// The symbol at a place.
#[derive(Copy, Clone, Default, Debug)]
struct Placed {
    number: u32,
    /// Whether the neighbour reported the symbol itself as received since it was last sent.
    has_come: bool,
    sent_at: Nanos,
}

impl Sender {
    /// Creates the sender to the next hop with this index and bit of the store, for a window of
    /// `symbols`.
    pub(crate) fn new(hop: usize, receiver: usize, is_path: bool, symbols: usize) -> Self {
        Self {
            hop,
            receiver,
            is_path,
            patience: AGAIN_NANOS,
            link: LinkSender::new(2 * symbols, RepairBudget::new()),
            queued: 0,
            reported_at: 0,
            empty_reports: 0,
            fresh: VecDeque::with_capacity(symbols),
            mean_bytes: 0,
            again: VecDeque::with_capacity(symbols),
            open: VecDeque::with_capacity(symbols),
            placed: vec![Placed::default(); PLACES].into_boxed_slice(),
            next_place: 0,
            has_begun: false,
            fec: FecScheduler::new(),
            next_key: 0,
            given_up: 0,
            lagged: 0,
            heard_at: 0,
            liveness: Liveness::default(),
            asked_at: 0,
            budget: RetransmissionBudget::new(),
        }
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(symbols: usize) -> usize {
        // One number, and two pairs of number and place.
        InFlight::memory_bytes(2 * symbols)
            + 5 * symbols * size_of::<u32>()
            + PLACES * size_of::<Placed>()
    }

    pub(crate) fn hop(&self) -> usize {
        self.hop
    }

    /// The state reported by the neighbour, once there is a report, and not in an open loop.
    pub(crate) fn heard(&self) -> Option<HeardHop> {
        if self.is_open_loop() {
            return None;
        }
        let (at, queue_nanos) = (self.reported_at, self.queued);
        let loss =
            self.link.in_flight.measured_loss(self.link.rate.usual_loss()).map(|link| link.loss);
        let round_trip = self.link.round_trip.known();
        round_trip.map(|round_trip_nanos| HeardHop { at, round_trip_nanos, queue_nanos, loss })
    }

    /// How long the neighbour has not answered.
    pub(crate) fn silence(&self) -> Nanos {
        self.liveness.silence()
    }

    /// Whether an IP packet to be sent is too large to arrive.
    pub(crate) fn refuses(&mut self, packet_bytes: usize) -> bool {
        let bytes = (STREAM_BYTES + packet_bytes) as u16;
        self.link.in_flight.sizes_mut().wish(bytes);
        self.link.sizes().exceeds(bytes)
    }

    /// Proactive redundancy planned.
    pub(crate) fn planned(&self) -> Planned {
        self.fec.planned()
    }

    /// Queues a symbol. If more than a window wait, the oldest is dropped.
    pub(crate) fn queue(&mut self, number: u32, symbols: usize) {
        if self.fresh.len() >= symbols {
            self.fresh.pop_front();
        }
        self.fresh.push_back(number);
    }

    /// Queues a symbol requested by the sink, ahead of the others.
    pub(crate) fn queue_first(&mut self, number: u32) {
        if self.fresh.len() < self.fresh.capacity() {
            self.fresh.push_front(number);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.fresh.is_empty() && self.again.is_empty()
    }

    /// Whether nothing is due right after a packet.
    pub(crate) fn is_at_rest(&self, now: Nanos) -> bool {
        self.is_idle() && self.fec.due_at().is_none_or(|at| at > now)
    }

    /// The packet to send now.
    pub(crate) fn next(&mut self, store: &mut Store, now: Nanos) -> Option<Next> {
        if let Some(bytes) = self.link.probe(now) {
            return Some(Next::Probe(bytes));
        }
        if let Err(at) = self.opens_at(now) {
            self.link.is_full |= at.is_none() && self.link.rate.has_sample();
            self.expire(store, now);
            return self.due_keepalive(now);
        }
        while let Some((number, place)) = self.again.pop_front() {
            if self.is_wanted(store, number, now) && self.may_retransmit(store, number) {
                return Some(Next::Symbol { number, place, is_repair: true });
            }
        }
        if self.fec.due_at().is_some_and(|at| at <= now) {
            self.fec.spend();
            if let Some(combination) = self.combination(store) {
                return Some(Next::Combination(combination));
            }
        }
        while let Some(number) = self.fresh.pop_front() {
            if self.is_wanted(store, number, now) {
                if !std::mem::replace(&mut self.has_begun, true) {
                    // Numbers begin at random, so another life has other places.
                    self.next_place = number.wrapping_mul(0x9E37_79B1);
                }
                let place = self.next_place;
                self.placed[place as usize % PLACES].number = number;
                self.next_place = place.wrapping_add(1);
                if self.is_open_loop() {
                    store.set_done(number, self.receiver);
                }
                return Some(Next::Symbol { number, place, is_repair: false });
            }
        }
        self.due_keepalive(now)
    }

    /// Whether a symbol still has to be sent. One that is too large is dropped.
    fn is_wanted(&mut self, store: &mut Store, number: u32, now: Nanos) -> bool {
        let is_missing = store.is_known(number) && !store.is_done(number, self.receiver);
        if !is_missing || store.heard_at(number) + self.patience() <= now {
            self.let_go(store, number);
            return false;
        }
        let is_too_large = self.refuses(store.packet_bytes(number));
        if is_too_large {
            self.given_up += 1;
            store.set_done(number, self.receiver);
        }
        !is_too_large
    }

    /// A combination of the newest symbols still stored.
    fn combination(&mut self, store: &Store) -> Option<Combination> {
        let most = self.fec.symbols() as u32;
        let known = |back: &u32| {
            let number = self.number_at(self.next_place.wrapping_sub(*back));
            let bytes = store.coded_bytes(number).map(|bytes| COMBINATION_BYTES + bytes);
            bytes.is_some_and(|bytes| !self.link.sizes().exceeds(bytes as u16))
        };
        let count = (1..=most).take_while(known).count() as u16;
        if count == 0 {
            return None;
        }
        let first = self.next_place.wrapping_sub(u32::from(count));
        self.next_key = self.next_key.wrapping_add(1);
        Some(Combination { first, count, key: self.next_key })
    }

    /// Number of the symbol at one of the newest places.
    pub(crate) fn number_at(&self, place: u32) -> u32 {
        self.placed[place as usize % PLACES].number
    }

    /// Most packets in flight.
    fn window(&self) -> usize {
        let round_trip = self.link.round_trip.known().unwrap_or(UNKNOWN_NANOS);
        let nanos =
            2 * self.link.rate.target(round_trip) + round_trip + round_trip / 4 + REPORT_NANOS;
        let bytes = self.link.rate.bytes_per_second() * nanos as f64 * 1e-9;
        let packet_bytes = (self.mean_bytes + AROUND_BYTES).max(PACKET_BYTES_LEAST) as f64;
        ((bytes / packet_bytes + SPARE_PACKETS) as usize).min(self.link.in_flight.capacity() - 1)
    }

    /// Whether the next packet has to wait for a report.
    fn is_full(&self) -> bool {
        self.link.in_flight.on_their_way() >= self.window()
    }

    /// Whether a packet may leave now; otherwise when, if that is known.
    pub(crate) fn opens_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        if self.is_open_loop() {
            return Ok(());
        }
        if self.is_full() {
            return Err(None);
        }
        let at = self.link.opens_at();
        if at > now { Err(Some(at)) } else { Ok(()) }
    }

    /// Records a packet sent under a link sequence number.
    pub(crate) fn left(&mut self, what: Next, sequence: u32, bytes: usize, now: Nanos) {
        let carried = match what {
            Next::Symbol { number, place, .. } => Carried::Symbol { number, place },
            Next::Combination(Combination { first, count, .. }) => {
                Carried::Combination { first, count }
            }
            Next::Keepalive => Carried::Nothing,
            Next::Probe(_) => Carried::Probe,
        };
        if self.is_open_loop() {
            return self.left_in_open_loop(what, now);
        }
        let is_unanswered = self.liveness.is_asked();
        self.liveness.sent(now);
        if self.link.in_flight.on_their_way() == 0 {
            // Nothing was outstanding.
            self.heard_at = now;
        }
        if what == Next::Keepalive && self.is_stalled(now) {
            self.link.in_flight.ran_dry();
        }
        let takes = self.link.sent(sequence, carried, bytes, now);
        match what {
            Next::Symbol { .. } | Next::Combination(_) => {
                if let Next::Symbol { place, is_repair, .. } = what {
                    let mean = if self.mean_bytes == 0 { bytes } else { self.mean_bytes };
                    self.mean_bytes = (7 * mean + bytes) / 8;
                    let placed = &mut self.placed[place as usize % PLACES];
                    (placed.sent_at, placed.has_come) = (now, false);
                    if is_repair {
                        self.budget.spend(bytes);
                    }
                }
                if matches!(what, Next::Symbol { is_repair: false, .. }) {
                    let way = self.link.round_trip.base().unwrap_or(0);
                    self.fec.earn(self.loss(), way, takes, now);
                }
                self.ask_soon(now);
            }
            // Later packets reveal whether it arrived.
            Next::Probe(_) if self.link.keepalive.due.is_none() => self.ask_soon(now),
            Next::Probe(_) => {}
            Next::Keepalive => self.left_keepalive(is_unanswered, now),
        }
    }

    /// When the sender is due next, even without arrivals.
    pub(crate) fn due(&self, now: Nanos) -> Option<Nanos> {
        let waits_until = if self.is_idle() { self.fec.due_at() } else { Some(now) };
        let opens = waits_until.and_then(|until| match self.opens_at(now) {
            Ok(()) => Some(until.max(now)),
            Err(at) => at.map(|at| at.max(until)),
        });
        let asks = if self.is_stuck() { Some(now) } else { self.link.keepalive.due };
        earlier(earlier(opens, asks), self.link.probe_due())
    }

    /// Processes a report. Passes symbols that the neighbour received but does not forward to
    /// `came`. `is_suspended`: the sink lacks symbols of this path.
    pub(crate) fn hear(
        &mut self,
        store: &mut Store,
        report: &LinkReport,
        payload: &[u8],
        is_suspended: bool,
        mut came: impl FnMut(u32),
        now: Nanos,
    ) {
        if self.is_open_loop() {
            return;
        }
        // Other paths have taken over the symbols that are not forwarded.
        let is_lost_behind = self.is_path && (is_suspended || self.is_stuck_behind());
        self.budget.hear(payload.len());
        let mut acknowledged = 0;
        let Self { receiver, link, open, given_up, placed, .. } = self;
        let hop = *receiver;
        let on_their_way = link.in_flight.on_their_way();
        let heard = link.resolve(report, payload, now, |carried, outcome| {
            match (carried, outcome) {
                (Carried::Symbol { number, .. }, Outcome::Came) if is_lost_behind => came(number),
                (_, Outcome::Came) if is_lost_behind => {}
                (Carried::Symbol { number, place }, Outcome::Came) => {
                    acknowledged += 1;
                    store.set_done(number, hop);
                    let placed = &mut placed[place as usize % PLACES];
                    placed.has_come |= placed.number == number;
                }
                (Carried::Symbol { number, place }, Outcome::Lost)
                    if !store.is_done(number, hop) && open.len() < open.capacity() =>
                {
                    open.push_back((number, place));
                }
                (Carried::Symbol { number, .. }, Outcome::TooLarge) => {
                    *given_up += u64::from(!store.is_done(number, hop));
                    store.set_done(number, hop);
                }
                (Carried::Combination { first, count }, Outcome::Came) => {
                    acknowledged += 1;
                    // It recovers the oldest of its symbols that is still open.
                    let is_in = |at: &(u32, u32)| at.1.wrapping_sub(first) < u32::from(count);
                    if let Some(index) = open.iter().position(is_in) {
                        let made_good = open.remove(index);
                        made_good.into_iter().for_each(|(number, _)| store.set_done(number, hop));
                    }
                }
                _ => {}
            }
        });
        self.note_acknowledged(acknowledged);
        self.link.rate.note_vanishing(self.link.in_flight.sizes_mut().take_vanishing());
        self.send_open_again(now);
        self.send_missing(store, &report.missing, now);
        let Some(heard) = heard else { return };
        (self.heard_at, self.reported_at) = (now, now);
        self.empty_reports = match self.link.in_flight.on_their_way() < on_their_way {
            true => 0,
            false => self.empty_reports.saturating_add(1),
        };
        self.liveness.heard();
        self.queued = smoothed(self.queued, heard.waited);
        self.link.measure(report, &heard, now);
        let has_all = report.missing.places().is_empty();
        if self.link.in_flight.on_their_way() == 0 && self.is_idle() && has_all {
            self.link.keepalive.due = None;
        }
    }

    /// Loss of the link itself, without drops of its queue.
    fn loss(&self) -> HopLoss {
        self.link.in_flight.loss(self.link.rate.usual_loss())
    }

    /// Retransmits losses that combinations in flight will not recover.
    fn send_open_again(&mut self, now: Nanos) {
        let arrive = 1.0 - self.loss().loss;
        let expected = (self.link.in_flight.combinations_on_their_way() as f64 * arrive) as usize;
        // No combination in flight covers older symbols than these.
        let reach = (self.link.in_flight.on_their_way() + self.fec.symbols()) as u32;
        while let Some((_, place)) = self.open.front() {
            let is_out_of_reach = self.next_place.wrapping_sub(*place) > reach;
            let is_unmatched = is_out_of_reach || self.open.len() > expected;
            if !is_unmatched || self.again.len() == self.again.capacity() {
                return;
            }
            if let Some((number, place)) = self.open.pop_front() {
                // The same report may also list it as missing.
                self.placed[place as usize % PLACES].sent_at = now;
                self.again.push_back((number, place));
            }
        }
    }

    /// Retransmits symbols still missing at the neighbour after a round trip, although received
    /// combinations should have recovered them.
    fn send_missing(&mut self, store: &mut Store, missing: &Missing, now: Nanos) {
        let (trip, span) = (self.link.round_trip.mean(), self.fec.span());
        let patience = trip + span.max(MISSING_QUEUE_NANOS.min(trip / 4)) + MISSING_NANOS;
        for low in missing.places() {
            let back = (self.next_place as u16).wrapping_sub(*low);
            if back == 0 || usize::from(back) > PLACES {
                continue;
            }
            let place = self.next_place.wrapping_sub(u32::from(back));
            let number = self.number_at(place);
            let is_over = store.heard_at(number) + self.patience() <= now;
            if is_over || self.refuses(store.packet_bytes(number)) {
                continue;
            }
            let placed = &mut self.placed[place as usize % PLACES];
            if placed.sent_at + patience >= now || self.again.len() == self.again.capacity() {
                continue;
            }
            let bytes = STREAM_BYTES + store.packet_bytes(number);
            if placed.has_come && !self.budget.claims(bytes) {
                continue;
            }
            placed.sent_at = now;
            store.set_undone(number, self.receiver);
            self.again.push_back((number, place));
        }
    }
}
