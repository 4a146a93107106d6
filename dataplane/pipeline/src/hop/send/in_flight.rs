//! Packets sent to a neighbour, and its reports on them: packets received and lost, delay, and
//! delivery rate.
//!
//! ```text
//!   resolved: came or lost  |  sent, and not reported on  |  to be sent
//!  ----------------------- base ------------------------ next --------->  link sequence number
//! ```
//!
//! A report covers all numbers up to its horizon, so each is resolved once, in order, and the next
//! report makes up for a lost one.

use crate::config::params::Nanos;
use crate::config::report::HopLoss;
use crate::config::segmentation::Comparison;
use crate::hop::rate::sample::{
    SAMPLE_MAX_NANOS, SAMPLE_NANOS, SAMPLE_PACKETS, SAMPLE_RUN_NANOS, SPARSE_NANOS, Sample,
};
use crate::hop::receive::loss::LossTracker;
use crate::hop::send::path_mtu::PathMtu;
use recoded_wire::link::{LINK_GAPS_MAX, LinkGap, LinkReport, link_gaps};

/// The base delay is that of the fastest packet within this period.
const BASE_NANOS: Nanos = 5_000_000_000;

/// Reporting delay in addition to the round trip.
const REPORT_NANOS: Nanos = 2_000_000;

/// Content of a packet.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) enum Carried {
    #[default]
    Nothing,
    /// A symbol, by number and by its place on this hop.
    Symbol { number: u32, place: u32 },
    /// A combination of the symbols of `count` places, from `first` on.
    Combination { first: u32, count: u16 },
    /// A packet of a generation or batch.
    Unit(u32),
    /// Padding, to probe whether packets of its size arrive.
    Probe,
}

/// A packet in flight.
#[derive(Copy, Clone, Default, Debug)]
struct Entry {
    at: Nanos,
    carried: Carried,
    /// Size of its UDP payload; 0 for a packet not recorded here.
    bytes: u16,
    /// How often the sender had run out of data before it.
    pauses: u32,
}

/// Fate of a sent packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Came,
    Lost,
    /// Lost, and larger than the largest size that arrives.
    TooLarge,
}

/// Measurements from a report.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Measurements {
    /// Time from sending the newest packet to the report on it, without the delay at the neighbour.
    pub round_trip: Nanos,
    /// Queueing delay of that packet.
    pub waited: Nanos,
    /// Delivery rate, once enough packets have arrived.
    pub sample: Option<Sample>,
}

/// The packets of one shard in flight to one neighbour.
#[derive(Debug)]
pub(crate) struct InFlight {
    entries: Box<[Entry]>,
    base: u32,
    next: u32,
    way: Way,
    meter: Meter,
    loss: LossTracker,
    /// Consecutive packets lost.
    lost: u32,
    sizes: PathMtu,
    combinations: usize,
    /// How often the sender ran out of data.
    pauses: u32,
    /// Outcomes reported since it was last taken.
    pub(crate) comparison: Comparison,
}

impl InFlight {
    /// Creates room for `packets` in flight, rounded up to a power of two.
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
            sizes: PathMtu::default(),
            combinations: 0,
            pauses: 0,
            comparison: Comparison::default(),
        }
    }

    /// Changes the room to `packets` in flight, rounded up to a power of two: the newest stay.
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

    /// Bytes allocated for this many packets.
    pub(crate) fn memory_bytes(packets: usize) -> usize {
        packets.next_power_of_two() * size_of::<Entry>()
    }

    fn place(&self, number: u32) -> usize {
        number as usize & (self.entries.len() - 1)
    }

    /// Records a packet sent under a link sequence number, its content and its bytes.
    pub(crate) fn note(&mut self, number: u32, carried: Carried, bytes: usize, now: Nanos) {
        if number.wrapping_sub(self.next) as usize >= self.entries.len() {
            // The first packet, or too far ahead of the others.
            (self.base, self.next) = (number, number);
            self.combinations = 0;
        }
        while self.next != number {
            // Packets of another code in between. Their send times are unknown.
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

    /// Packets not yet covered by a report.
    pub(crate) fn on_their_way(&self) -> usize {
        self.next.wrapping_sub(self.base) as usize
    }

    /// When the oldest packet in flight was sent.
    pub(crate) fn oldest_at(&self) -> Option<Nanos> {
        (self.base != self.next).then(|| self.entries[self.place(self.base)].at)
    }

    /// Combinations in flight.
    pub(crate) fn combinations_on_their_way(&self) -> usize {
        self.combinations
    }

    /// Loss of the link, once enough was reported; `usual` excludes drops of its queue.
    pub(crate) fn measured_loss(&self, usual: Option<f64>) -> Option<HopLoss> {
        let all = self.loss.estimate()?;
        Some(HopLoss { loss: all.loss.min(usual.unwrap_or(all.loss)), ..all })
    }

    /// The same, with a default until then: the start of a flow depends on its first packets.
    pub(crate) fn loss(&self, usual: Option<f64>) -> HopLoss {
        let guess = || HopLoss { hop: 0, loss: self.loss.loss(), burst_mean: 1.0 };
        self.measured_loss(usual).unwrap_or_else(guess)
    }

    /// The packet sizes that arrive.
    pub(crate) fn sizes(&self) -> &PathMtu {
        &self.sizes
    }

    /// The same, mutable.
    pub(crate) fn sizes_mut(&mut self) -> &mut PathMtu {
        &mut self.sizes
    }

    /// Most packets that may be in flight.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Drops all packets in flight: no report on them is expected.
    pub(crate) fn forget(&mut self) {
        (self.base, self.combinations) = (self.next, 0);
    }

    /// Notes that the sender ran out of data before the next packet.
    pub(crate) fn ran_dry(&mut self) {
        self.pauses = self.pauses.wrapping_add(1);
    }

    /// Counts a standing queue as part of the base delay from now on.
    pub(crate) fn accept_queue(&mut self) {
        self.way.accept();
    }

    /// Processes a report, and passes the outcome of each packet to `resolve` in order. Returns
    /// `None` if the report covers other packets than those in flight, or if the send time of its
    /// newest packet is unknown.
    pub(crate) fn hear(
        &mut self,
        report: &LinkReport,
        payload: &[u8],
        now: Nanos,
        round_trip: Nanos,
        mut resolve: impl FnMut(Carried, Outcome),
    ) -> Option<Measurements> {
        let on_their_way = self.next.wrapping_sub(self.base);
        let horizon = self.horizon(report, now, round_trip);
        let resolved = horizon.wrapping_sub(self.base);
        let is_old = resolved > on_their_way;
        if !is_old {
            self.resolve(report, payload, horizon, now, &mut resolve);
        }
        // The newest packet may have been resolved before; it must still be in the ring.
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
        let queue = waited + report.backlog_nanos();
        let at = Reported { report: *report, pauses, sent_at, queue };
        let sample = self.meter.note(at, round_trip);
        Some(Measurements { round_trip: round_trip_now, waited, sample })
    }

    /// The horizon up to which a report is accepted. If a neighbour was led to expect numbers not
    /// yet sent, missing packets may still be in flight: then only those that should have arrived
    /// by now.
    fn horizon(&self, report: &LinkReport, now: Nanos, round_trip: Nanos) -> u32 {
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
        report: &LinkReport,
        payload: &[u8],
        horizon: u32,
        now: Nanos,
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
            // Numbers before the range of the report were lost with earlier reports.
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
                    // A probe may be too large: its loss does not count for the link.
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

/// Relative one-way delay, between two clocks with an unknown offset.
#[derive(Debug, Default)]
struct Way {
    /// The minimum differences of the current and the previous period, in microseconds.
    least: Option<(i32, i32)>,
    turned_at: Nanos,
    /// The minimum since a queue was last accepted.
    lately: Option<i32>,
}

impl Way {
    /// Queueing delay of a packet sent and received at these times.
    fn queue(&mut self, arrived_micros: u32, sent_at: Nanos, now: Nanos) -> Nanos {
        let took = arrived_micros.wrapping_sub((sent_at / 1000) as u32).cast_signed();
        let (mut present, mut before) = self.least.unwrap_or((took, took));
        // Restart after a clock jump.
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

/// A report, with the pauses before its newest packet and the send time of that packet.
#[derive(Copy, Clone, Debug)]
struct Reported {
    report: LinkReport,
    pauses: u32,
    sent_at: Nanos,
    /// Queueing delay of that packet, and backlog of the neighbour.
    queue: Nanos,
}

/// The interval from one report to later ones.
#[derive(Copy, Clone, Debug)]
struct Span {
    from: Reported,
    /// The minimum queue since then, and the minimum backlog of the neighbour.
    least: (Nanos, Nanos),
}

impl Span {
    /// Starts at a report, with no queue seen yet.
    fn new(from: Reported) -> Self {
        Self { from, least: (Nanos::MAX, Nanos::MAX) }
    }

    fn see(&mut self, at: &Reported) {
        let (queue, backlog) = self.least;
        self.least = (queue.min(at.queue), backlog.min(at.report.backlog_nanos()));
    }

    /// The arrivals up to a report, if they span at least `least`.
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
            is_spread: false,
        })
    }
}

/// Delivery rate estimator.
#[derive(Debug, Default)]
struct Meter {
    /// Since the last sample.
    whole: Option<Span>,
    /// Since then, or since the last pause.
    run: Option<Span>,
    newest: Option<Reported>,
}

impl Meter {
    /// Processes a report.
    fn note(&mut self, at: Reported, round_trip: Nanos) -> Option<Sample> {
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
            // The arrivals between two pauses show the link rate, if they lasted long enough.
            let sample = run.sample(&before, SAMPLE_NANOS);
            *run = Span::new(at);
            if sample.is_some() {
                self.begin(at);
                return sample;
            }
        }
        whole.see(&at);
        run.see(&at);
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

/// Time between the newest arrivals of two reports.
fn arrived_between(from: &LinkReport, to: &LinkReport) -> Nanos {
    u64::from(to.arrived.wrapping_sub(from.arrived)) * 1000
}

/// Whether one report cannot follow another.
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

    /// A report that all packets up to `latest` arrived, the newest at `arrived_micros`.
    fn report(latest: u32, arrived_micros: u32) -> LinkReport {
        LinkReport {
            header: HEADER,
            from: 0,
            horizon: latest + 1,
            latest,
            arrived: arrived_micros,
            held: 0,
            backlog: 0,
            beyond: 0,
            bytes: 100,
            packets: latest + 1,
            missing: Missing::default(),
        }
    }

    /// Regression: packets in flight were dropped when a packet of another code came in between.
    #[test]
    fn packets_of_other_codes_between_are_passed_over() {
        let mut sent = InFlight::new(64);
        for (number, symbol) in [(10, 1), (11, 2), (14, 3)] {
            sent.note(number, Carried::Symbol { number: symbol, place: 0 }, 100, 0);
        }
        let report = LinkReport { from: 10, packets: 2, ..report(14, 1) };
        let mut payload = [0; LINK_BYTES + 4];
        write_link(&report, [LinkGap { first: 11, count: 3 }].into_iter(), &mut payload);
        let mut outcomes = Vec::new();
        sent.hear(&report, &payload, 1000, 0, |symbol, outcome| {
            outcomes.push((symbol, outcome));
        });
        use Outcome::{Came, Lost};
        let symbol = |number| Carried::Symbol { number, place: 0 };
        let expected = [(symbol(1), Came), (symbol(2), Lost), (symbol(3), Came)];
        let symbols = |(carried, _): &(Carried, Outcome)| *carried != Carried::Nothing;
        assert_eq!(outcomes.into_iter().filter(symbols).collect::<Vec<_>>(), expected);
    }

    /// Regression: such packets counted as sent when the next recorded one was, so that all others
    /// seemed to be queued for the whole length of a long path.
    #[test]
    fn a_packet_that_left_at_an_unknown_time_says_nothing_of_the_way() {
        let mut sent = InFlight::new(64);
        let hear = |sent: &mut InFlight, report: LinkReport, now| {
            let mut payload = [0; LINK_BYTES];
            write_link(&report, [].into_iter(), &mut payload);
            sent.hear(&report, &payload, now, 0, |_, _| {})
        };
        let symbol = |number| Carried::Symbol { number, place: 0 };
        sent.note(0, symbol(0), 100, 0);
        // Packet 1 is sent shortly after, and arrives 10 ms later; packet 2 is sent 30 ms after it.
        sent.note(2, symbol(1), 100, 30_000_000);
        assert!(hear(&mut sent, report(1, 10_000), 31_000_000).is_none());
        let heard = hear(&mut sent, report(2, 40_000), 50_000_000).expect("it is known");
        assert_eq!((heard.waited, heard.round_trip), (0, 20_000_000));
        sent.note(3, symbol(2), 100, 60_000_000);
        let heard = hear(&mut sent, report(3, 70_000), 80_000_000).expect("it is known");
        assert_eq!(heard.waited, 0);
    }

    /// Regression: bursts with pauses between them showed only the sent rate, not the link rate.
    #[test]
    fn what_comes_between_two_pauses_is_a_sample_by_itself() {
        let at = |packets: u32, arrived_ms: u32, sent_ms: u64, pauses: u32| Reported {
            report: LinkReport {
                horizon: packets,
                bytes: 1000 * packets,
                packets,
                ..report(packets, 1000 * arrived_ms)
            },
            pauses,
            sent_at: sent_ms * 1_000_000,
            queue: 0,
        };
        let mut meter = Meter::default();
        let mut note = |reported| meter.note(reported, 100_000_000);
        assert_eq!(note(at(0, 80, 75, 0)), None);
        // A burst of 200 packets sent within 5 ms and received within 15 ms.
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
