//! What was sent to a neighbour and what it reports of it: which packets came, which were lost, how
//! long they took, how fast they arrived.
//!
//! ```text
//!   resolved: came or lost  |  sent, and not reported on  |  to be sent
//!  ----------------------- base ------------------------ next --------->  link sequence number
//! ```
//!
//! A report speaks of all numbers up to its horizon, so each is resolved once, in order, and a
//! report that is lost is made good by the next.

use crate::params::Nanos;
use crate::peer::loss::LossTracker;
use crate::peer::sample::{
    SAMPLE_MAX_NANOS, SAMPLE_NANOS, SAMPLE_PACKETS, SAMPLE_RUN_NANOS, SPARSE_NANOS, Sample,
};
use crate::peer::sizes::Sizes;
use crate::report::HopLoss;
use crate::segmentation::Comparison;
use recoded_wire::link::{LINK_GAPS_MAX, LinkGap, LinkReport, link_gaps};

/// The way is taken to be what the fastest packet of so long needed.
const BASE_NANOS: Nanos = 5_000_000_000;

/// Time that reports take beside the round trip.
const REPORT_NANOS: Nanos = 2_000_000;

/// What a packet carries.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) enum Carried {
    #[default]
    Nothing,
    /// A symbol, by number and by its place on this hop.
    Symbol { number: u32, place: u32 },
    /// A combination of the symbols of so many places, from the first on.
    Combination { first: u32, count: u16 },
    /// A packet of a generation or batch.
    Unit(u32),
    /// A source packet of a window flow, by its ESI.
    Source(u32),
    /// Nothing, to see whether as large a packet comes.
    Probe,
}

/// A packet on its way.
#[derive(Copy, Clone, Default, Debug)]
struct Entry {
    at: Nanos,
    carried: Carried,
    /// Of its UDP payload; 0 where nothing is known of it.
    bytes: u16,
    /// Times that there was nothing to send, before it.
    pauses: u32,
}

/// What became of a packet that was sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Came,
    Lost,
    /// Lost, and larger than packets that come.
    TooLarge,
}

/// What a report says besides.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Heard {
    /// From the sending of the packet that came last to the report on it, without the time that the
    /// neighbour took.
    pub round_trip: Nanos,
    /// How long that packet waited on the way.
    pub waited: Nanos,
    /// How fast packets arrive, once enough have.
    pub sample: Option<Sample>,
}

/// The packets of one shard on their way to one neighbour.
#[derive(Debug)]
pub(crate) struct Sent {
    entries: Box<[Entry]>,
    base: u32,
    next: u32,
    way: Way,
    meter: Meter,
    loss: LossTracker,
    /// Packets lost in a row.
    lost: u32,
    sizes: Sizes,
    combinations: usize,
    /// Times that there was nothing to send.
    pauses: u32,
    /// Reported since it was taken last.
    pub(crate) comparison: Comparison,
}

impl Sent {
    /// Room for `packets` on their way, rounded up to a power of two.
    pub(crate) fn new(packets: usize) -> Self {
        let packets = packets.next_power_of_two();
        Self {
            entries: vec![Entry::default(); packets].into_boxed_slice(),
            base: 0,
            next: 0,
            way: Way::default(),
            meter: Meter::default(),
            loss: LossTracker::default(),
            lost: 0,
            sizes: Sizes::default(),
            combinations: 0,
            pauses: 0,
            comparison: Comparison::default(),
        }
    }

    /// Room for `packets` on their way from now on, rounded up to a power of two: the newest stay.
    pub(crate) fn resize(&mut self, packets: usize) {
        let new = vec![Entry::default(); packets.next_power_of_two()].into_boxed_slice();
        let old = std::mem::replace(&mut self.entries, new);
        for back in 1..=old.len().min(self.entries.len()) as u32 {
            let number = self.next.wrapping_sub(back);
            let place = self.place(number);
            self.entries[place] = old[number as usize & (old.len() - 1)];
        }
        let on_their_way = self.on_their_way().min(self.entries.len()) as u32;
        self.base = self.next.wrapping_sub(on_their_way);
        let carried = (0..on_their_way)
            .map(|number| self.entries[self.place(self.base.wrapping_add(number))].carried);
        self.combinations =
            carried.filter(|carried| matches!(carried, Carried::Combination { .. })).count();
    }

    /// Bytes that it allocates for so many packets.
    pub(crate) fn memory_bytes(packets: usize) -> usize {
        packets.next_power_of_two() * size_of::<Entry>()
    }

    fn place(&self, number: u32) -> usize {
        number as usize & (self.entries.len() - 1)
    }

    /// Notes that a packet leaves under a link sequence number, what it carries, and its bytes.
    pub(crate) fn note(&mut self, number: u32, (carried, bytes): (Carried, usize), now: Nanos) {
        if number.wrapping_sub(self.next) as usize >= self.entries.len() {
            // This is the first, or as good as that.
            (self.base, self.next) = (number, number);
            self.combinations = 0;
        }
        while self.next != number {
            // Packets of another code came between. When they left is not known.
            let place = self.place(self.next);
            self.entries[place] = Entry { at: now, pauses: self.pauses, ..Entry::default() };
            self.next = self.next.wrapping_add(1);
        }
        self.combinations += usize::from(matches!(carried, Carried::Combination { .. }));
        self.next = number.wrapping_add(1);
        let place = self.place(number);
        if self.on_their_way() > self.entries.len() {
            self.base = self.next.wrapping_sub(self.entries.len() as u32);
            let was_combination =
                matches!(self.entries[place].carried, Carried::Combination { .. });
            self.combinations = self.combinations.saturating_sub(usize::from(was_combination));
        }
        let (bytes, pauses) = (bytes as u16, self.pauses);
        if carried != Carried::Probe {
            self.sizes.wish(bytes);
        }
        self.entries[place] = Entry { at: now, carried, bytes, pauses };
    }

    /// Packets sent that no report has spoken of.
    pub(crate) fn on_their_way(&self) -> usize {
        self.next.wrapping_sub(self.base) as usize
    }

    /// When the oldest of them was sent.
    pub(crate) fn oldest_at(&self) -> Option<Nanos> {
        (self.base != self.next).then(|| self.entries[self.place(self.base)].at)
    }

    /// Combinations among them.
    pub(crate) fn combinations_on_their_way(&self) -> usize {
        self.combinations
    }

    /// What the link loses, once enough was reported; what its queue drops is no part of `usual`.
    pub(crate) fn measured_loss(&self, usual: Option<f64>) -> Option<HopLoss> {
        let all = self.loss.estimate()?;
        Some(HopLoss { loss: all.loss.min(usual.unwrap_or(all.loss)), ..all })
    }

    /// The same, and a guess at first: the first packets of a flow are those that its start depends
    /// on.
    pub(crate) fn loss(&self, usual: Option<f64>) -> HopLoss {
        let guess = || HopLoss { hop: 0, loss: self.loss.loss(), burst_mean: 1.0 };
        self.measured_loss(usual).unwrap_or_else(guess)
    }

    /// Which sizes come.
    pub(crate) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// The same, to be told of them or asked once.
    pub(crate) fn sizes_mut(&mut self) -> &mut Sizes {
        &mut self.sizes
    }

    /// Bytes of the probe that leaves now, if one is due.
    pub(crate) fn probe(&mut self, round_trip: Nanos, now: Nanos) -> Option<u16> {
        self.sizes.probe(round_trip, now)
    }

    /// Most packets that may be on their way.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Nothing is expected to be reported of what was sent so far.
    pub(crate) fn forget(&mut self) {
        (self.base, self.combinations) = (self.next, 0);
    }

    /// There was nothing to send for a while, before what leaves next.
    pub(crate) fn ran_dry(&mut self) {
        self.pauses = self.pauses.wrapping_add(1);
    }

    /// A queue that stays is part of the way from now on.
    pub(crate) fn accept_queue(&mut self) {
        self.way.accept();
    }

    /// Reads a report; `resolve` is told what became of each packet, in order. `None` when it is of
    /// other packets than those on their way, or when its newest left is not known.
    pub(crate) fn hear(
        &mut self,
        (report, payload): (&LinkReport, &[u8]),
        (now, round_trip): (Nanos, Nanos),
        mut resolve: impl FnMut(Carried, Outcome),
    ) -> Option<Heard> {
        let on_their_way = self.next.wrapping_sub(self.base);
        let horizon = self.horizon(report, (now, round_trip));
        let resolved = horizon.wrapping_sub(self.base);
        let is_old = resolved > on_their_way;
        if !is_old {
            self.resolve((report, payload), (horizon, now), &mut resolve);
        }
        // What came last may have been resolved before; it lies within what the ring remembers.
        let age = self.next.wrapping_sub(report.latest).wrapping_sub(1) as usize;
        if age >= self.entries.len() || (is_old && resolved < 1 << 31) {
            return None;
        }
        let Entry { at: sent_at, pauses, bytes, .. } = self.entries[self.place(report.latest)];
        if bytes == 0 {
            return None;
        }
        let held = u64::from(report.held) * 1000;
        let round_trip_now = now.saturating_sub(sent_at).saturating_sub(held);
        let waited = self.way.queue(report.arrived, sent_at, now);
        let backlog = report.backlog_nanos();
        let at = Reported { report: *report, pauses, sent_at };
        let sample = self.meter.note(at, (waited + backlog, backlog), round_trip);
        Some(Heard { round_trip: round_trip_now, waited, sample })
    }

    /// How far a report is believed. Where the neighbour was led to expect numbers that are yet to
    /// be sent, what is missing may still be on its way: as far as it should have come by now.
    fn horizon(&self, report: &LinkReport, (now, round_trip): (Nanos, Nanos)) -> u32 {
        let ahead = report.horizon.wrapping_sub(self.next) as usize;
        if !(1..self.entries.len()).contains(&ahead) {
            return report.horizon;
        }
        let patience = round_trip + round_trip / 4 + REPORT_NANOS;
        let mut end = self.base;
        while end != self.next && self.entries[self.place(end)].at + patience <= now {
            end = end.wrapping_add(1);
        }
        end
    }

    fn resolve(
        &mut self,
        (report, payload): (&LinkReport, &[u8]),
        (horizon, now): (u32, Nanos),
        resolve: &mut impl FnMut(Carried, Outcome),
    ) {
        let mut gaps = [LinkGap { first: 0, count: 0 }; LINK_GAPS_MAX];
        let mut count = 0;
        for (place, gap) in gaps.iter_mut().zip(link_gaps(report, payload)) {
            *place = gap;
            count += 1;
        }
        let mut gaps = gaps[..count].iter().peekable();
        while self.base != horizon {
            let number = self.base;
            let behind =
                |gap: &&LinkGap| number.wrapping_sub(gap.first) as i32 >= i32::from(gap.count);
            while gaps.next_if(behind).is_some() {}
            let is_missing = gaps
                .peek()
                .is_some_and(|gap| number.wrapping_sub(gap.first) < u32::from(gap.count));
            // What it does not speak of any more was lost with the reports that did.
            let is_unsaid = (number.wrapping_sub(report.from) as i32) < 0;
            self.base = number.wrapping_add(1);
            let Entry { at, carried, bytes, .. } = self.entries[self.place(number)];
            let outcome = match is_missing || is_unsaid {
                false => Outcome::Came,
                true if self.sizes.exceeds(bytes) => Outcome::TooLarge,
                true => Outcome::Lost,
            };
            if bytes > 0 && carried != Carried::Probe && outcome != Outcome::TooLarge {
                self.comparison.note(at, outcome == Outcome::Lost);
            }
            match outcome {
                Outcome::Came => {
                    self.loss.arrived(0, std::mem::take(&mut self.lost));
                    self.sizes.came(bytes, now);
                }
                Outcome::Lost => {
                    // What may be too large says nothing of the link.
                    self.lost += u32::from(carried != Carried::Probe);
                    self.sizes.lost(bytes, now);
                }
                Outcome::TooLarge => {}
            }
            if matches!(carried, Carried::Combination { .. }) {
                self.combinations = self.combinations.saturating_sub(1);
            }
            resolve(carried, outcome);
        }
    }
}

/// How long packets take, by two clocks that differ by an unknown time.
#[derive(Debug, Default)]
struct Way {
    /// The least differences of the present period and the one before, in microseconds.
    least: Option<(i32, i32)>,
    turned_at: Nanos,
    /// The least since the last time a queue was accepted or a period began.
    lately: Option<i32>,
}

impl Way {
    /// How long a packet waited that was sent and arrived at these times.
    fn queue(&mut self, arrived_micros: u32, sent_at: Nanos, now: Nanos) -> Nanos {
        let took = arrived_micros.wrapping_sub((sent_at / 1000) as u32).cast_signed();
        let (mut present, mut before) = self.least.unwrap_or((took, took));
        // Clocks that jump begin anew.
        if took.wrapping_sub(present.min(before)).unsigned_abs() > 10_000_000 {
            (present, before) = (took, took);
        }
        if now >= self.turned_at + BASE_NANOS {
            (present, before) = (took, present);
            self.turned_at = now;
        }
        present = present.min(took);
        self.least = Some((present, before));
        self.lately = Some(self.lately.map_or(took, |least| least.min(took)));
        let waited = took.wrapping_sub(present.min(before)).max(0).unsigned_abs();
        u64::from(waited) * 1000
    }

    fn accept(&mut self) {
        if let Some(lately) = self.lately.take() {
            self.least = Some((lately, lately));
        }
    }
}

/// A report, and what is known of the packet that came last by it: the pauses before it, and when
/// it was sent.
#[derive(Copy, Clone, Debug)]
struct Reported {
    report: LinkReport,
    pauses: u32,
    sent_at: Nanos,
}

/// From one report to later ones.
#[derive(Copy, Clone, Debug)]
struct Span {
    from: Reported,
    /// The least queue since, and the least of the neighbour alone.
    least: (Nanos, Nanos),
}

impl Span {
    /// From a report on, of which nothing is seen yet.
    fn new(from: Reported) -> Self {
        Self { from, least: (Nanos::MAX, Nanos::MAX) }
    }

    fn see(&mut self, (queue, backlog): (Nanos, Nanos)) {
        self.least = (self.least.0.min(queue), self.least.1.min(backlog));
    }

    /// What came until a report, if that took so long.
    fn sample(&self, until: &Reported, least: Nanos) -> Option<Sample> {
        let (from, to) = (&self.from.report, &until.report);
        let nanos = arrived_between(from, to);
        let sent = to.latest.wrapping_sub(from.latest);
        let enough = if sent < SAMPLE_PACKETS { SPARSE_NANOS } else { least };
        if nanos < enough || sent == 0 {
            return None;
        }
        let (queue, backlog) = self.least;
        Some(Sample {
            bytes: to.bytes.wrapping_sub(from.bytes),
            packets: to.packets.wrapping_sub(from.packets),
            sent,
            nanos,
            took: until.sent_at.saturating_sub(self.from.sent_at),
            queue,
            backlog,
            is_limited: self.from.pauses == until.pauses,
        })
    }
}

/// How fast packets arrive.
#[derive(Debug, Default)]
struct Meter {
    /// Since the last sample.
    whole: Option<Span>,
    /// Since then, or since the last pause.
    run: Option<Span>,
    newest: Option<Reported>,
}

impl Meter {
    /// Takes in a report, and the queue and the backlog it tells of.
    fn note(&mut self, at: Reported, seen: (Nanos, Nanos), round_trip: Nanos) -> Option<Sample> {
        let before = self.newest.replace(at);
        let (Some(whole), Some(run), Some(before)) = (&mut self.whole, &mut self.run, before)
        else {
            self.begin(at);
            return None;
        };
        if is_strange(&before.report, &at.report) || is_strange(&whole.from.report, &at.report) {
            self.begin(at);
            return None;
        }
        if at.pauses != before.pauses {
            // What came between two pauses tells how fast the link is, if it took long enough.
            let sample = run.sample(&before, SAMPLE_NANOS);
            *run = Span::new(at);
            if sample.is_some() {
                self.begin(at);
                return sample;
            }
        }
        whole.see(seen);
        run.see(seen);
        let sample = run
            .sample(&at, SAMPLE_NANOS.max(round_trip.min(SAMPLE_RUN_NANOS)))
            .or_else(|| whole.sample(&at, SAMPLE_NANOS.max(round_trip.min(SAMPLE_MAX_NANOS))));
        if sample.is_some() {
            self.begin(at);
        }
        sample
    }

    fn begin(&mut self, at: Reported) {
        (self.whole, self.run) = (Some(Span::new(at)), Some(Span::new(at)));
    }
}

/// Time between the packets that came last by two reports.
fn arrived_between(from: &LinkReport, to: &LinkReport) -> Nanos {
    u64::from(to.arrived.wrapping_sub(from.arrived)) * 1000
}

/// Whether one report does not follow another.
fn is_strange(from: &LinkReport, to: &LinkReport) -> bool {
    let sent = to.latest.wrapping_sub(from.latest);
    let packets = to.packets.wrapping_sub(from.packets);
    arrived_between(from, to) > 1 << 41 || sent > 1 << 20 || packets > sent.saturating_add(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_wire::header::{Flags, Header, PacketType};
    use recoded_wire::link::{LINK_BYTES, Missing, write_link};

    const HEADER: Header = Header {
        packet_type: PacketType::Link,
        flags: Flags(0),
        epoch: 0,
        shard: 0,
        flow: 0,
        link_sequence: 0,
        hop_index: 0,
    };

    /// What was on the way was once forgotten when a packet of another code came between.
    #[test]
    fn packets_of_other_codes_between_are_passed_over() {
        let mut sent = Sent::new(64);
        for (number, symbol) in [(10, 1), (11, 2), (14, 3)] {
            sent.note(number, (Carried::Symbol { number: symbol, place: 0 }, 100), 0);
        }
        let (from, horizon, latest) = (10, 15, 14);
        let (arrived, held, backlog, bytes, packets) = (1, 0, 0, 100, 2);
        let report = LinkReport {
            header: HEADER,
            from,
            horizon,
            latest,
            arrived,
            held,
            backlog,
            beyond: 0,
            bytes,
            packets,
            missing: Missing::default(),
        };
        let mut payload = [0; LINK_BYTES + 4];
        write_link(&report, [LinkGap { first: 11, count: 3 }].into_iter(), &mut payload);
        let mut outcomes = Vec::new();
        sent.hear((&report, &payload), (1000, 0), |symbol, outcome| {
            outcomes.push((symbol, outcome));
        });
        use Outcome::{Came, Lost};
        let symbol = |number| Carried::Symbol { number, place: 0 };
        let expected = [(symbol(1), Came), (symbol(2), Lost), (symbol(3), Came)];
        let symbols = |(carried, _): &(Carried, Outcome)| *carried != Carried::Nothing;
        assert_eq!(outcomes.into_iter().filter(symbols).collect::<Vec<_>>(), expected);
    }

    /// Such packets once were taken to have left when the next one of ours did: all others seemed
    /// to wait then, for the whole length of a long way.
    #[test]
    fn a_packet_that_left_at_an_unknown_time_says_nothing_of_the_way() {
        let mut sent = Sent::new(64);
        let report = |latest: u32, arrived| LinkReport {
            header: HEADER,
            from: 0,
            horizon: latest + 1,
            latest,
            arrived,
            held: 0,
            backlog: 0,
            beyond: 0,
            bytes: 100,
            packets: latest + 1,
            missing: Missing::default(),
        };
        let hear = |sent: &mut Sent, report: LinkReport, now| {
            let mut payload = [0; LINK_BYTES];
            write_link(&report, [].into_iter(), &mut payload);
            sent.hear((&report, &payload), (now, 0), |_, _| {})
        };
        let left = |number| (Carried::Symbol { number, place: 0 }, 100);
        sent.note(0, left(0), 0);
        // Packet 1 left soon after, and arrives 10 ms later; packet 2 leaves 30 ms after it.
        sent.note(2, left(1), 30_000_000);
        assert!(hear(&mut sent, report(1, 10_000), 31_000_000).is_none());
        let heard = hear(&mut sent, report(2, 40_000), 50_000_000).expect("it is known");
        assert_eq!((heard.waited, heard.round_trip), (0, 20_000_000));
        sent.note(3, left(2), 60_000_000);
        let heard = hear(&mut sent, report(3, 70_000), 80_000_000).expect("it is known");
        assert_eq!(heard.waited, 0);
    }

    /// Bursts with pauses between them once told only how much was sent, not how fast the link is.
    #[test]
    fn what_comes_between_two_pauses_is_a_sample_by_itself() {
        let at = |packets: u32, arrived_ms: u32, sent_ms: u64, pauses: u32| Reported {
            report: LinkReport {
                header: HEADER,
                from: 0,
                horizon: packets,
                latest: packets,
                arrived: 1000 * arrived_ms,
                held: 0,
                backlog: 0,
                beyond: 0,
                bytes: 1000 * packets,
                packets,
                missing: Missing::default(),
            },
            pauses,
            sent_at: sent_ms * 1_000_000,
        };
        let mut meter = Meter::default();
        let mut note = |reported| meter.note(reported, (0, 0), 100_000_000);
        assert_eq!(note(at(0, 80, 75, 0)), None);
        // A burst of 200 packets that leaves within 5 ms and arrives within 15.
        assert_eq!(note(at(10, 100, 95, 1)), None);
        assert_eq!(note(at(110, 107, 97, 1)), None);
        assert_eq!(note(at(210, 115, 100, 1)), None);
        let sample = note(at(220, 145, 140, 2)).expect("the burst is over");
        assert!(sample.is_limited && sample.is_stretched());
        let expected = (200, 200, 200_000, 15_000_000, 5_000_000);
        let Sample { packets, sent, bytes, nanos, took, .. } = sample;
        assert_eq!((packets, sent, bytes, nanos, took), expected);
    }
}
