//! The sending side of a hop of generations or batches that makes up for its own losses: which unit
//! each packet on its way belongs to, what the next node reports of them, what is sent in advance
//! and what in their place.
//!
//! ```text
//!  unit at this node: rank r  |  packets of it: sent s, lost l  |  wanted: s - l >= r
//! ```
//!
//! A packet that arrives is innovative at the next node as long as that has less rank than this
//! one, so a unit arrives as whole as it is here once `s - l` packets of it came. The role that
//! holds the unit counts `s` and `l`; numbers that are reported lost come from here. What said
//! nothing new there is reported lost as well.
//!
//! Where the rule for streams says that to wait for reports takes too long, a share is sent in
//! advance when a generation ends, so many that a few in a thousand wait for a report. Measured in
//! virtual time, four hops of 10 % and 10 ms, 150 Mbit/s, generations of 16 (packets per symbol;
//! median and 99 % of the delay in order, 40 ms of which are the way): so 1.44, 41 / 78 ms; as many
//! as arrive on average 1.19, 93 / 121 ms; nothing in advance 1.12, 122 / 192 ms. The others take
//! fewer packets, but TCP inside goes by the round trip: with 1.19 it carried 77 to 102 Mbit/s of
//! 245, with 1.44 it had carried 150.
//!
//! Without reports, as on a path without a way back, it is off: then what the source plans for a
//! hop is sent.

use crate::context::Context;
use crate::egress::Egress;
use crate::layout::{payload_of, symbol_offset};
use crate::params::{Nanos, PeerId};
use crate::peer::gate::Gate;
use crate::peer::path_size::PathSize;
use crate::peer::repair::RepairBudget;
use crate::peer::sent::{Carried, Outcome, Sent};
use crate::peer::tally::Tallied;
use crate::report::{Branch, FlowCounters, FlowReport, HopLoss, NextHop, Planned};
use crate::segmentation::Comparison;
use crate::table::Table;
use crate::time::earlier;
use advance::{LOSS_MAX, ahead, sure};
use recoded_code::theory::LossModel;
use recoded_code::theory::stream::{Plan, StreamProfile};
use recoded_wire::feedback::{HopReport, SizeReport};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, PacketType};
use recoded_wire::link::LinkReport;
use recoded_wire::stream::{KEEPALIVE_BYTES, STREAM_LOG2_NONE, StreamHeader};

/// Packets sent in the place of lost ones, for each other packet: half of all may be lost.
const BUDGET_SHARE: f64 = 1.0;

/// Packets that may be on their way: at least those of a short round trip, at most as many as a
/// receiver tells apart.
const PACKETS: (usize, usize) = (256, 1 << 14);

/// The next node is silent when it has not reported on a packet for so long, and round trips.
const SILENCE_NANOS: Nanos = 100_000_000;
const SILENCE_ROUND_TRIPS: Nanos = 4;

/// Wait before the first keepalive after a packet, at least, and between two at most: a damaged
/// report may tell of any round trip. Keepalives after which they become rarer, since losses in a
/// row take several, and after which the next node is taken to be gone.
const KEEPALIVE_MIN_NANOS: Nanos = 1_500_000;
const KEEPALIVE_MAX_NANOS: Nanos = 1_000_000_000;
const KEEPALIVES_SOON: u32 = 6;
const KEEPALIVES: u32 = 12;

/// The first report may take so long.
const UNKNOWN_NANOS: Nanos = 600_000_000;

/// While nothing is heard, every so many packets are followed by a keepalive: far fewer than a
/// receiver believes to be missing at once. As many leave in the place of lost ones for each report
/// while it is doubted whether large ones come.
const UNHEARD: u32 = 16;

/// The way without a queue is the least round trip of so long.
const LEAST_NANOS: Nanos = 5_000_000_000;

/// Weight of a new round trip in the mean.
const ROUND_TRIP_WEIGHT: u64 = 8;

/// Over longer round trips than this nothing waits for a report: sinks do not hold what follows for
/// so long, tables do not keep units for so long at high rates, and what has to stay in order would
/// stand still. Measured in virtual time, one hop of 2 %: over 270 ms hops that waited for reports
/// lost 0.3 to 1.5 % of generations for good, and five in six blocks of BATS at 100 Mbit/s; over 75
/// ms (round trip 150 ms) nearly nothing. Several hops of 50 ms carry blocks with fewer packets if
/// they wait.
const FAR_NANOS: Nanos = 160_000_000;

/// How often the share is planned, and the weight of such a period in the rate of symbols.
const PLAN_NANOS: Nanos = 100_000_000;
const RATE_WEIGHT: f64 = 0.3;

/// One hop.
#[derive(Debug)]
pub(crate) struct Mender {
    sent: Sent,
    gate: Gate,
    budget: RepairBudget,
    /// When the first packet left.
    begun_at: Option<Nanos>,
    /// Mean round trip, once the next node reports.
    round_trip: Option<Nanos>,
    /// Sum of the round trips of the hops behind it, by what the next node says.
    beyond: Nanos,
    /// The least of the present period and the one before, and when that began.
    least: (Nanos, Nanos),
    least_at: Nanos,
    /// When the next keepalive is due, and how many there were since something was sent or heard.
    keepalive_at: Option<Nanos>,
    keepalives: u32,
    /// Link sequence number of the first packet since something was heard, or since a keepalive.
    asked: Option<u32>,
    /// Packets in the place of lost ones since then, while it is doubted whether large ones come.
    doubted: u32,
    pace: Pace,
    is_slow: bool,
    /// What the next node says that the link loses: without packets that say nothing new there,
    /// which reports call missing as well.
    link: Option<HopLoss>,
    /// How large packets are that come through the hops behind the next one.
    path: PathSize,
    /// Share of a packet that is still to be sent in advance.
    credit: f64,
}

/// How fast symbols come.
#[derive(Debug, Default)]
struct Pace {
    /// Symbols a second; and since the last plan.
    rate: f64,
    symbols: usize,
    planned_at: Nanos,
}

impl Mender {
    /// For `packets` of all units that are held at once.
    pub(crate) fn new(packets: usize) -> Self {
        Self {
            sent: Sent::new(room(packets)),
            gate: Gate::new(),
            begun_at: None,
            budget: RepairBudget::of_share(BUDGET_SHARE),
            round_trip: None,
            beyond: 0,
            least: (Nanos::MAX, Nanos::MAX),
            least_at: 0,
            keepalive_at: None,
            keepalives: 0,
            asked: None,
            doubted: 0,
            pace: Pace::default(),
            is_slow: false,
            link: None,
            path: PathSize::default(),
            credit: 0.0,
        }
    }

    /// Bytes that it allocates.
    pub(crate) fn memory_bytes(packets: usize) -> usize {
        Sent::memory_bytes(room(packets))
    }

    /// Whether the next node reports, so that what is lost can be sent again.
    pub(crate) fn is_on(&self, now: Nanos) -> bool {
        let Some(round_trip) = self.round_trip else { return false };
        let patience = SILENCE_NANOS + SILENCE_ROUND_TRIPS * round_trip;
        self.sent.oldest_at().is_none_or(|at| at + patience > now)
    }

    /// Notes `count` packets of a unit, of so many bytes each, that left under consecutive link
    /// sequence numbers.
    pub(crate) fn left(&mut self, (unit, bytes): (u32, usize), numbers: (u32, u64), now: Nanos) {
        self.left_with((Carried::Unit(unit), bytes), numbers, now);
    }

    /// As [`Mender::left`], of packets that carry something else.
    pub(crate) fn left_with(
        &mut self,
        (carried, bytes): (Carried, usize),
        (first, count): (u32, u64),
        now: Nanos,
    ) {
        self.begun_at.get_or_insert(now);
        for number in (0..count).map(|place| first.wrapping_add(place as u32)) {
            self.gate.spend(bytes, &mut self.sent, now);
            self.sent.note(number, (carried, bytes), now);
        }
        let unheard = first.wrapping_sub(*self.asked.get_or_insert(first));
        // Generations and batches do without a way back, if there never was one.
        let asks = matches!(carried, Carried::Source(_)) || self.round_trip.is_some();
        if asks && unheard >= UNHEARD && !self.is_on(now) {
            // All that leaves may be too large for the link.
            (self.asked, self.keepalive_at) = (Some(first), Some(now));
            return;
        }
        if let Some(round_trip) = self.round_trip.filter(|_| count > 0) {
            self.keepalives = 0;
            self.keepalive_at = Some(now + (round_trip / 4).max(KEEPALIVE_MIN_NANOS));
        }
    }

    /// Reads what the next node reports: the units it lacks packets of count them as lost.
    pub(crate) fn hear<T: Tallied>(
        &mut self,
        about: (&LinkReport, &[u8]),
        now: Nanos,
        units: &mut Table<T>,
    ) {
        self.hear_each(about, now, |carried, outcome| {
            if let Carried::Unit(unit) = carried {
                note(units, unit, outcome);
            }
        });
    }

    /// Reads what the next node reports; `resolve` is told what became of each packet.
    pub(crate) fn hear_each(
        &mut self,
        about: (&LinkReport, &[u8]),
        now: Nanos,
        resolve: impl FnMut(Carried, Outcome),
    ) {
        let round_trip = self.round_trip.unwrap_or(0);
        let was_on = self.is_on(now);
        let heard = self.sent.hear(about, (now, round_trip), resolve);
        let Some(heard) = heard else { return };
        self.path.age(now);
        self.beyond = about.0.beyond_nanos();
        (self.asked, self.doubted) = (None, 0);
        if !was_on && self.round_trip.is_some() {
            self.gate.begin_again();
        }
        let mean = self.round_trip.map_or(heard.round_trip, |mean| {
            mean - mean / ROUND_TRIP_WEIGHT + heard.round_trip / ROUND_TRIP_WEIGHT
        });
        self.round_trip = Some(mean);
        self.gate.hear((about.0, &heard), &mut self.sent, (mean, now));
        if now >= self.least_at + LEAST_NANOS {
            (self.least, self.least_at) = ((Nanos::MAX, self.least.0), now);
        }
        self.least.0 = self.least.0.min(heard.round_trip);
        if self.sent.on_their_way() == 0 {
            self.keepalive_at = None;
        }
    }

    /// Takes in the pace of the link, and returns the fates of packets that were reported since the
    /// last call.
    pub(crate) fn settle(&mut self, pace: Option<f64>) -> Comparison {
        self.gate.limit(pace);
        std::mem::take(&mut self.sent.comparison)
    }

    /// Notes what the next node says that the link to it loses.
    pub(crate) fn hear_loss(&mut self, report: HopReport) {
        let HopReport { hop, loss, burst_mean } = report;
        self.link = Some(HopLoss { hop, loss: f64::from(loss), burst_mean: f64::from(burst_mean) });
    }

    /// Notes that a unit of so many symbols ends, and plans anew where that is due.
    pub(crate) fn unit(&mut self, symbols: usize, now: Nanos) {
        self.budget.earn(symbols as u64);
        let way = self.way() as f64 * 1e-9;
        let pace = &mut self.pace;
        pace.symbols += symbols;
        let since = now.saturating_sub(pace.planned_at);
        if since < PLAN_NANOS {
            return;
        }
        let rate = pace.symbols as f64 * 1e9 / since as f64;
        pace.rate += RATE_WEIGHT * (rate - pace.rate);
        (pace.planned_at, pace.symbols) = (now, 0);
        let loss = self.sent.loss(None);
        let loss = LossModel { loss: loss.loss, burst_mean: loss.burst_mean };
        self.is_slow = Plan::new(loss, (pace.rate, false), way, StreamProfile::Balanced).rho > 0.0;
    }

    /// Whether to wait for reports takes too long.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow || self.is_far()
    }

    /// Whether it takes so long that nothing does: what is sent in advance has to suffice.
    pub(crate) fn is_far(&self) -> bool {
        self.round_trip.is_some() && self.way() > FAR_NANOS
    }

    /// The round trip without a queue.
    fn way(&self) -> Nanos {
        self.least.0.min(self.least.1)
    }

    /// Whether it takes too long to wait for reports on a path as if it were one hop that loses so
    /// much.
    pub(crate) fn is_path_slow(&self, path: LossModel) -> bool {
        let round_trip = self.path_round_trip() as f64 * 1e-9;
        Plan::new(path, (self.pace.rate, false), round_trip, StreamProfile::Balanced).rho > 0.0
    }

    /// Packets to be sent in advance for a generation or batch of so many symbols: for a generation
    /// so many that it seldom waits, or never where the hop is far; for a batch, of whose rank a
    /// block does without some, as many as arrive on average.
    pub(crate) fn share(&mut self, symbols: usize, is_batch: bool) -> u16 {
        if !self.is_slow() {
            return 0;
        }
        let reported = self.sent.loss(None);
        let loss = self.link.unwrap_or(reported);
        if self.is_far() && !is_batch {
            return sure(loss, symbols);
        }
        self.credit += match is_batch {
            true => symbols as f64 / (1.0 - loss.loss.clamp(0.0, LOSS_MAX)) - symbols as f64,
            false => ahead(reported, symbols),
        };
        let whole = self.credit as u16;
        self.credit -= f64::from(whole);
        whole
    }

    /// Packets to be sent with one that is new after its generation ended here.
    pub(crate) fn late_share(&self) -> u16 {
        let loss = self.link.unwrap_or(self.sent.loss(None));
        if self.is_far() { sure(loss, 1) } else { 0 }
    }

    /// Packets to send in the place of what a unit lacks, as far as the pace allows now and the
    /// budget grants them. Where reports take too long, so many that what lacks arrives on average:
    /// another round costs more.
    pub(crate) fn spend(&mut self, lacks: u16, counters: &mut FlowCounters, now: Nanos) -> usize {
        let through = 1.0 - self.sent.loss(None).loss.min(LOSS_MAX);
        let again = if self.is_slow { (f64::from(lacks) / through).ceil() } else { lacks.into() };
        let again = again as usize;
        let paced = self.gate.mends(again);
        let granted = self.budget.spend(paced);
        self.gate.spend_mends(granted);
        counters.repairs_refused += (paced - granted) as u64;
        if granted == paced && paced < again {
            self.ask_for_more(now);
        }
        granted
    }

    /// Whether one packet may leave in the place of a lost one by the pace; else it may later.
    pub(crate) fn may_mend(&mut self, now: Nanos) -> bool {
        let may_leave = self.gate.mends(1) > 0;
        if !may_leave {
            self.ask_for_more(now);
        }
        may_leave
    }

    /// Whether one packet may be sent in the place of a lost one. While it is doubted whether large
    /// ones come, few are, so that what is sent to see is not lost among them.
    pub(crate) fn spend_one(&mut self, counters: &mut FlowCounters) -> bool {
        let is_doubted = self.sent.sizes().due(self.round_trip.unwrap_or(0)).is_some();
        self.doubted += u32::from(is_doubted);
        let is_granted = self.doubted <= UNHEARD && self.budget.spend(1) > 0;
        self.gate.spend_mends(1);
        counters.repairs_refused += u64::from(!is_granted);
        is_granted
    }

    /// Whether more may come from the tunnel, by the pace of the link; otherwise when. A next node
    /// that reports nothing keeps no pace, once it could have reported.
    pub(crate) fn opens_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        self.unless_paced(self.gate.opens_at(), now)
    }

    /// Whether more of what is here may leave; otherwise when. Sources of batches ask.
    #[cfg(feature = "bats")]
    pub(crate) fn leaves_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        self.unless_paced(self.gate.leaves_at(), now)
    }

    fn unless_paced(&self, at: Nanos, now: Nanos) -> Result<(), Option<Nanos>> {
        let may_report = self.begun_at.is_some_and(|at| now < at + UNKNOWN_NANOS);
        let is_paced = may_report || self.round_trip.is_some();
        if at > now && is_paced { Err(Some(at)) } else { Ok(()) }
    }

    /// How long packets wait in front of the links from here on.
    pub(crate) fn waits(&self, now: Nanos) -> Nanos {
        if self.is_on(now) { self.gate.waits() } else { 0 }
    }

    /// Whether the queue in front of the link has room for what is sent besides new packets.
    pub(crate) fn has_room(&self, now: Nanos) -> bool {
        !self.is_on(now) || self.gate.mends(1) > 0
    }

    /// Asks for a report soon: with it more may leave in the place of lost packets.
    fn ask_for_more(&mut self, now: Nanos) {
        self.keepalive_at.get_or_insert(now + KEEPALIVE_MIN_NANOS);
    }

    /// Sum of the round trips of all hops from here, as far as they are known.
    pub(crate) fn path_round_trip(&self) -> Nanos {
        self.round_trip.unwrap_or(0) + self.beyond
    }

    /// When [`Mender::tick`] has something to do.
    pub(crate) fn due(&self) -> Option<Nanos> {
        earlier(self.keepalive_at, self.sent.sizes().due(self.round_trip.unwrap_or(0)))
    }

    /// Notes how large packets are that a node gets whose report has travelled so many links.
    pub(crate) fn hear_size(&mut self, report: SizeReport, travelled: u8, now: Nanos) {
        if report.hop == travelled {
            self.path.age(now);
            self.path.hear(report.bytes, now);
        }
    }

    /// The largest UDP payload that the whole path carries, by what this link gets and what was
    /// heard of those behind it, if there is a limit.
    pub(crate) fn path_limit(&self) -> Option<u16> {
        [self.limit(), self.path.limit()].into_iter().flatten().min()
    }

    /// Reports the next node where large packets do not arrive there.
    pub(crate) fn fill(&self, report: &mut FlowReport, peer: PeerId) {
        let Some(hole) = self.sent.sizes().black_hole() else { return };
        report.next_hops.push(NextHop {
            peer,
            bytes_per_second: 0.0,
            heard: None,
            silence: 0,
            black_hole: Some(hole),
            planned: Planned::default(),
            branch: Branch::default(),
        });
    }

    /// The largest UDP payload that the link carries, if larger ones do not come.
    pub(crate) fn limit(&self) -> Option<u16> {
        self.sent.sizes().limit()
    }

    /// Whether a packet that would leave is too large for the link.
    pub(crate) fn refuses(&mut self, bytes: usize) -> bool {
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        self.sent.sizes_mut().wish(bytes);
        self.sent.sizes().exceeds(bytes)
    }

    /// Sends a keepalive of `epoch` where one is due: it shows the next node what was lost last.
    pub(crate) fn tick(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        (epoch, hop_index): (u8, u8),
    ) {
        self.probe(cx, (epoch, hop_index));
        if self.keepalive_at.is_none_or(|due| due > cx.io.now) {
            return;
        }
        if cx.hops.next_number().is_none() {
            self.keepalive_at = None;
            return;
        }
        self.keepalives += 1;
        if self.keepalives > KEEPALIVES && self.round_trip.is_some() {
            self.keepalive_at = None;
            self.round_trip = None;
            return self.sent.forget();
        }
        let shift = self.keepalives.min(KEEPALIVES).saturating_sub(KEEPALIVES_SOON);
        let pause = (self.round_trip.unwrap_or(0) * 5 / 4).max(KEEPALIVE_MIN_NANOS) << shift;
        // Before the next node is heard one is enough: more packets are followed by another.
        self.keepalive_at = self.round_trip.map(|_| cx.io.now + pause.min(KEEPALIVE_MAX_NANOS));
        let is_sent = self.send_padded(cx, (epoch, hop_index), (Carried::Nothing, 0));
        cx.counters.sent_keepalive += u64::from(is_sent);
    }

    /// Sends a probe of the largest packets that come where one is due.
    fn probe(&mut self, cx: &mut Context<'_, '_, impl Frames, impl Egress>, about: (u8, u8)) {
        let round_trip = self.round_trip.unwrap_or(0);
        if cx.hops.next_number().is_none() {
            return;
        }
        let Some(bytes) = self.sent.probe(round_trip, cx.io.now) else { return };
        // What follows shows whether it came.
        let asks_at = cx.io.now + (round_trip / 4).max(KEEPALIVE_MIN_NANOS);
        self.keepalive_at.get_or_insert(asks_at);
        let is_sent = self.send_padded(cx, about, (Carried::Probe, usize::from(bytes)));
        cx.counters.sent_probe += u64::from(is_sent);
    }

    /// Sends a keepalive of so many bytes, and no fewer than it takes. False, and counted, when
    /// there is no frame for it.
    fn send_padded(
        &mut self,
        cx: &mut Context<'_, '_, impl Frames, impl Egress>,
        (epoch, hop_index): (u8, u8),
        (carried, bytes): (Carried, usize),
    ) -> bool {
        let Some(frame) = cx.io.frames.take() else {
            cx.counters.send_failed += 1;
            return false;
        };
        let mut common = cx.header(PacketType::Stream, Flags(Flags::END), epoch);
        common.hop_index = hop_index;
        let header = StreamHeader { common, window_log2: STREAM_LOG2_NONE, round_trips: 0 };
        let offset = symbol_offset(KEEPALIVE_BYTES);
        let room = cx.io.frames.frame_bytes().saturating_sub(offset);
        let len = bytes.saturating_sub(KEEPALIVE_BYTES).min(room) as u16;
        let payload = payload_of(Span { frame, offset: offset as u16, len }, KEEPALIVE_BYTES);
        let out = cx.io.frames.bytes_mut(payload);
        out.fill(0);
        header.write(out);
        let number = cx.send_to(0, payload, 0);
        self.sent.note(number, (carried, bytes), cx.io.now);
        true
    }

    /// The earlier of a deadline and its own.
    pub(crate) fn earlier(&self, deadline: Option<Nanos>) -> Option<Nanos> {
        earlier(deadline, self.due())
    }
}

/// Notes what became of a packet of a unit.
pub(crate) fn note<T: Tallied>(units: &mut Table<T>, unit: u32, outcome: Outcome) {
    let index = units.index(unit);
    // What is too large is lost again.
    if outcome == Outcome::Lost
        && units.is_held(index)
        && let Some(tally) = units[index].tally_of(unit)
    {
        tally.lose();
    }
}

/// Packets that may be on their way, where units of so many are held.
fn room(packets: usize) -> usize {
    (4 * packets).clamp(PACKETS.0, PACKETS.1)
}

mod advance;
#[cfg(test)]
mod tests;
