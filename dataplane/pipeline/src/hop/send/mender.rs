//! The sending side of a hop of generations or batches that recovers its own losses: maps each
//! packet in flight to its unit, processes the reports of the next node, and decides how many
//! packets to send proactively and as replacements.
//!
//! ```text
//!  unit at this node: rank r  |  packets of it: sent s, lost l  |  wanted: s - l >= r
//! ```
//!
//! A packet that arrives is innovative at the next node while that node has less rank than this
//! one, so the next node reaches the rank held here once `s - l` packets of a unit have arrived.
//! The role that holds the unit counts `s` and `l`; this module reports the lost numbers. Redundant
//! packets are reported lost as well.
//!
//! Where the rule for streams finds that waiting for reports takes too long, a proactive share is
//! sent when a generation ends, so large that only a few generations in a thousand wait for a
//! report. Measured in virtual time over four hops of 10 % loss and 10 ms, at 150 Mbit/s,
//! generations of 16 (packets per symbol; median and 99th percentile of the in-order delay,
//! including 40 ms of propagation): this share 1.44, 41 / 78 ms; enough on average 1.19, 93 / 121
//! ms; none 1.12, 122 / 192 ms. The smaller shares take fewer packets, but TCP inside depends on
//! the round trip: with 1.19 it carried 77 to 102 Mbit/s of 245, with 1.44 it had carried 150.
//!
//! Without reports, as on a path without a return path, it is off, and the hop sends as many
//! packets as the source plans for it.

use crate::base::layout::{payload_of, symbol_offset};
use crate::base::table::Table;
use crate::base::tally::Tallied;
use crate::base::time::earlier;
use crate::config::params::{Nanos, PeerId, ShardId};
use crate::config::report::{Branch, FlowCounters, FlowReport, HopLoss, NextHop, Planned};
use crate::env::egress::Egress;
use crate::env::io::Io;
use crate::hop::send::in_flight::{Carried, InFlight, Outcome};
use crate::hop::send::keepalive::{KEEPALIVE_MAX_NANOS, KEEPALIVE_MIN_NANOS, Keepalive};
use crate::hop::send::link_sender::LinkSender;
use crate::hop::send::next_hops::NextHops;
use crate::hop::send::path_size::PathSize;
use crate::hop::send::repair::RepairBudget;
use crate::hop::send::round_trip::UNKNOWN_NANOS;
use advance::{LOSS_MAX, ahead, sure};
use recoded_code::theory::LossModel;
use recoded_code::theory::stream::{Plan, StreamProfile, Traffic};
use recoded_wire::feedback::{HopReport, SizeReport};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, Header, PacketType};
use recoded_wire::link::LinkReport;
use recoded_wire::stream::{KEEPALIVE_BYTES, STREAM_LOG2_NONE, StreamHeader};
use replacements::Replacements;

/// Replacement packets allowed per other packet: up to half of all packets may be lost.
const BUDGET_SHARE: f64 = 1.0;

/// Packets that may be in flight: at least those of a short round trip, at most as many as a
/// receiver can tell apart.
const PACKETS: (usize, usize) = (256, 1 << 14);

/// Keepalives after which the next node counts as gone.
const KEEPALIVES: u32 = 12;

/// While nothing is received from the next node, one keepalive per this many packets: far fewer
/// than a receiver accepts as missing at once.
const UNHEARD: u32 = 16;

/// At longer round trips, nothing waits for a report: sinks do not hold later data that long,
/// tables do not keep units that long at high rates, and in-order delivery would stall. Measured in
/// virtual time over one hop of 2 % loss: at 270 ms, hops that waited for reports lost 0.3 to 1.5 %
/// of generations for good, and five in six BATS blocks at 100 Mbit/s; at 75 ms (round trip 150 ms)
/// almost nothing. Several hops of 50 ms carry blocks with fewer packets if they wait.
const FAR_NANOS: Nanos = 160_000_000;

/// Queueing delay ignored per link: late worker wakeups look like a queue of this size on every
/// link, and a source, which sees the sum, would slow down for no reason.
const USUAL_NANOS: Nanos = 1_500_000;

/// Planning interval of the proactive share, and the weight of one interval in the symbol rate.
const PLAN_NANOS: Nanos = 100_000_000;
const RATE_WEIGHT: f64 = 0.3;

/// The hop of a flow that keepalives and probes are sent on.
pub(crate) struct HopContext<'a, 'io, F, E> {
    pub shard: ShardId,
    pub epoch: u8,
    /// Hops travelled.
    pub hop_index: u8,
    pub hops: &'a mut NextHops,
    pub counters: &'a mut FlowCounters,
    pub io: &'a mut Io<'io, F, E>,
}

/// Loss recovery of one hop.
#[derive(Debug)]
pub(crate) struct Mender {
    pub(crate) link: LinkSender,
    replacements: Replacements,
    /// When the first packet was sent.
    begun_at: Option<Nanos>,
    /// Link sequence number of the first packet since the last report or keepalive.
    asked: Option<u32>,
    pace: SymbolRate,
    is_slow: bool,
    /// Loss of the link as reported by the next node. It excludes redundant packets, which reports
    /// count as missing as well.
    link_loss: Option<HopLoss>,
    /// Largest packet size that the hops behind the next node carry.
    path: PathSize,
    /// Fraction of a proactive packet carried over.
    credit: f64,
}

/// Rate of incoming symbols.
#[derive(Debug, Default)]
struct SymbolRate {
    /// Symbols per second, and symbols since the last plan.
    rate: f64,
    symbols: usize,
    planned_at: Nanos,
}

impl Mender {
    /// Creates the state for `packets` packets of all units held at once.
    pub(crate) fn new(packets: usize) -> Self {
        Self {
            link: LinkSender::passing(room(packets), RepairBudget::of_share(BUDGET_SHARE)),
            replacements: Replacements::default(),
            begun_at: None,
            asked: None,
            pace: SymbolRate::default(),
            is_slow: false,
            link_loss: None,
            path: PathSize::default(),
            credit: 0.0,
        }
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(packets: usize) -> usize {
        InFlight::memory_bytes(room(packets))
    }

    /// Whether the next node reports, so that lost packets can be retransmitted.
    pub(crate) fn is_on(&self, now: Nanos) -> bool {
        let is_answered = |at| at + self.link.round_trip.patience() > now;
        self.link.round_trip.is_known() && self.link.in_flight.oldest_at().is_none_or(is_answered)
    }

    /// Records `count` packets of a unit, each of this many bytes, sent under consecutive link
    /// sequence numbers from `first` on.
    pub(crate) fn left(&mut self, unit: u32, bytes: usize, first: u32, count: u64, now: Nanos) {
        self.begun_at.get_or_insert(now);
        for number in (0..count).map(|place| first.wrapping_add(place as u32)) {
            self.link.sent(number, Carried::Unit(unit), bytes, now);
        }
        let unheard = first.wrapping_sub(*self.asked.get_or_insert(first));
        // They work without a return path if there never was one.
        if self.link.round_trip.is_known() && unheard >= UNHEARD && !self.is_on(now) {
            // All packets in flight may be too large for the link.
            (self.asked, self.link.keepalive.due) = (Some(first), Some(now));
            return;
        }
        if let Some(round_trip) = self.link.round_trip.known().filter(|_| count > 0) {
            self.link.keepalive.restart(Keepalive::first_at(round_trip, now));
        }
    }

    /// Processes a report of the next node, and counts missing packets as lost in their units.
    pub(crate) fn hear<T: Tallied>(
        &mut self,
        report: &LinkReport,
        payload: &[u8],
        now: Nanos,
        units: &mut Table<T>,
    ) {
        let resolve = |carried, outcome| {
            if let Carried::Unit(unit) = carried {
                note(units, unit, outcome);
            }
        };
        let was_on = self.is_on(now);
        let heard = self.link.resolve(report, payload, now, resolve);
        let Some(heard) = heard else { return };
        self.path.age(now);
        self.asked = None;
        if !was_on && self.link.round_trip.is_known() {
            // Restarts at half the previous rate.
            self.link.rate.silence();
        }
        let is_idle = self.link.in_flight.on_their_way() == 0;
        self.replacements.hear(report.packets, heard.waited, is_idle);
        self.link.measure(report, &heard, now);
        if is_idle {
            self.link.keepalive.due = None;
        }
    }

    /// Records the loss of the link as reported by the next node.
    pub(crate) fn hear_loss(&mut self, report: HopReport) {
        let HopReport { hop, loss, burst_mean } = report;
        self.link_loss =
            Some(HopLoss { hop, loss: f64::from(loss), burst_mean: f64::from(burst_mean) });
    }

    /// Records the end of a unit of this many symbols, and replans when due.
    pub(crate) fn unit(&mut self, symbols: usize, now: Nanos) {
        self.link.budget.earn(symbols as u64);
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
        let loss = self.link.in_flight.loss(None);
        let loss = LossModel { loss: loss.loss, burst_mean: loss.burst_mean };
        self.is_slow =
            Plan::without_room(loss, Traffic::steady(pace.rate), way, StreamProfile::Balanced).rho
                > 0.0;
    }

    /// Whether waiting for reports takes too long.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow || self.is_far()
    }

    /// Whether the round trip is too long to wait at all: the proactive share must suffice.
    pub(crate) fn is_far(&self) -> bool {
        self.link.round_trip.is_known() && self.way() > FAR_NANOS
    }

    /// The base round trip; unlimited until it is known.
    fn way(&self) -> Nanos {
        self.link.round_trip.base().unwrap_or(Nanos::MAX)
    }

    /// Proactive packets for a generation or batch of this many symbols. For a generation, enough
    /// that it seldom waits, or never if the hop is far. For a batch, enough on average, since a
    /// block tolerates missing rank.
    pub(crate) fn share(&mut self, symbols: usize, is_batch: bool) -> u16 {
        if !self.is_slow() {
            return 0;
        }
        let reported = self.link.in_flight.loss(None);
        let loss = self.link_loss.unwrap_or(reported);
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

    /// Extra packets sent with a new packet after its generation has ended here.
    pub(crate) fn late_share(&self) -> u16 {
        let loss = self.link_loss.unwrap_or(self.link.in_flight.loss(None));
        if self.is_far() { sure(loss, 1) } else { 0 }
    }

    /// Replacements to send for a unit that lacks `lacks` packets, within pacing and budget. If
    /// waiting for reports takes too long, enough that the missing number arrives on average:
    /// another round would cost more.
    pub(crate) fn spend(&mut self, lacks: u16, counters: &mut FlowCounters, now: Nanos) -> usize {
        let through = 1.0 - self.link.in_flight.loss(None).loss.min(LOSS_MAX);
        let again = if self.is_slow { (f64::from(lacks) / through).ceil() } else { lacks.into() };
        let again = again as usize;
        let paced = self.replacements.allowed(again);
        let granted = self.link.budget.spend(paced);
        self.replacements.spend(granted);
        counters.repairs_refused += (paced - granted) as u64;
        if granted == paced && paced < again {
            self.ask_for_more(now);
        }
        granted
    }

    /// Whether the pace of the link allows more from the tunnel; otherwise when it will. A next
    /// node that could have reported but did not sets no pace.
    pub(crate) fn opens_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        self.unless_paced(self.link.opens_at(), now)
    }

    /// Whether more queued packets may leave; otherwise when. Used by sources of batches.
    #[cfg(feature = "bats")]
    pub(crate) fn leaves_at(&self, now: Nanos) -> Result<(), Option<Nanos>> {
        self.unless_paced(self.link.leaves_at(), now)
    }

    fn unless_paced(&self, at: Nanos, now: Nanos) -> Result<(), Option<Nanos>> {
        if at > now && self.is_paced(now) { Err(Some(at)) } else { Ok(()) }
    }

    /// Whether reports of the next node set a pace, or may still do.
    pub(crate) fn is_paced(&self, now: Nanos) -> bool {
        let may_report = self.begun_at.is_some_and(|at| now < at + UNKNOWN_NANOS);
        may_report || self.link.round_trip.is_known()
    }

    /// Queueing delay in front of the links from here on, beyond the usual amount per link.
    pub(crate) fn waits(&self, now: Nanos) -> Nanos {
        let waits = |link: &LinkSender| link.waited.saturating_sub(USUAL_NANOS) + link.backlog;
        if self.is_on(now) { waits(&self.link) } else { 0 }
    }

    /// Whether the queue in front of the link has room for packets in addition to new ones.
    pub(crate) fn has_room(&self, now: Nanos) -> bool {
        !self.is_on(now) || self.replacements.allowed(1) > 0
    }

    /// Requests a report early: it allows more replacements.
    fn ask_for_more(&mut self, now: Nanos) {
        self.link.keepalive.due.get_or_insert(now + KEEPALIVE_MIN_NANOS);
    }

    /// When [`Mender::tick`] is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        earlier(self.link.keepalive.due, self.link.probe_due())
    }

    /// Records the packet size limit of a node whose report has travelled this many links.
    pub(crate) fn hear_size(&mut self, report: SizeReport, travelled: u8, now: Nanos) {
        if report.hop == travelled {
            self.path.age(now);
            self.path.hear(report.bytes, now);
        }
    }

    /// The largest UDP payload that the whole path carries, from the limit of this link and those
    /// reported for later ones; `None` without a limit.
    pub(crate) fn path_limit(&self) -> Option<u16> {
        [self.link.sizes().limit(), self.path.limit()].into_iter().flatten().min()
    }

    /// Reports the next node if large packets do not reach it.
    pub(crate) fn fill(&self, report: &mut FlowReport, peer: PeerId) {
        let Some(hole) = self.link.sizes().black_hole() else { return };
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

    /// Sends a keepalive of `epoch` if one is due: it reveals losses at the tail.
    pub(crate) fn tick(&mut self, hop: &mut HopContext<'_, '_, impl Frames, impl Egress>) {
        self.probe(hop);
        if self.link.keepalive.due.is_none_or(|due| due > hop.io.now) {
            return;
        }
        if hop.hops.next_number().is_none() {
            self.link.keepalive.due = None;
            return;
        }
        self.link.keepalive.count += 1;
        if self.link.keepalive.count > KEEPALIVES && self.link.round_trip.is_known() {
            self.link.keepalive.due = None;
            self.link.round_trip.forget();
            return self.link.in_flight.forget();
        }
        // Before the first report, one suffices: further packets are followed by another.
        let interval = |mean| self.link.keepalive.interval(mean).min(KEEPALIVE_MAX_NANOS);
        self.link.keepalive.due =
            self.link.round_trip.known().map(|mean| hop.io.now + interval(mean));
        let is_sent = self.send_padded(hop, Carried::Nothing, 0);
        hop.counters.sent_keepalive += u64::from(is_sent);
    }

    /// Sends a probe of the largest packet size that arrives, if one is due.
    fn probe(&mut self, hop: &mut HopContext<'_, '_, impl Frames, impl Egress>) {
        if hop.hops.next_number().is_none() {
            return;
        }
        let Some(bytes) = self.link.probe(hop.io.now) else { return };
        // Later packets reveal whether it arrived.
        let at = Keepalive::first_at(self.link.round_trip.mean(), hop.io.now);
        self.link.keepalive.due.get_or_insert(at);
        let is_sent = self.send_padded(hop, Carried::Probe, usize::from(bytes));
        hop.counters.sent_probe += u64::from(is_sent);
    }

    /// Sends a keepalive padded to this many bytes, or unpadded if it is larger. Returns false, and
    /// counts it, when no frame is free.
    fn send_padded(
        &mut self,
        hop: &mut HopContext<'_, '_, impl Frames, impl Egress>,
        carried: Carried,
        bytes: usize,
    ) -> bool {
        let Some(frame) = hop.io.frames.take() else {
            hop.counters.send_failed += 1;
            return false;
        };
        let common = Header {
            packet_type: PacketType::Stream,
            flags: Flags(Flags::END),
            epoch: hop.epoch,
            shard: hop.shard.shard,
            flow: hop.shard.flow,
            link_sequence: 0,
            hop_index: hop.hop_index,
        };
        let header = StreamHeader { common, window_log2: STREAM_LOG2_NONE, round_trips: 0 };
        let offset = symbol_offset(KEEPALIVE_BYTES);
        let room = hop.io.frames.frame_bytes().saturating_sub(offset);
        let len = bytes.saturating_sub(KEEPALIVE_BYTES).min(room) as u16;
        let payload = payload_of(Span { frame, offset: offset as u16, len }, KEEPALIVE_BYTES);
        let out = hop.io.frames.bytes_mut(payload);
        out.fill(0);
        header.write(out);
        let number = hop.hops.send_to(0, hop.io.frames, hop.io.egress, payload, 0);
        self.link.in_flight.note(number, carried, bytes, hop.io.now);
        true
    }
}

/// Records the outcome of a packet of a unit.
pub(crate) fn note<T: Tallied>(units: &mut Table<T>, unit: u32, outcome: Outcome) {
    let index = units.index(unit);
    // Packets that are too large would be lost again.
    if outcome == Outcome::Lost
        && units.is_held(index)
        && let Some(tally) = units[index].tally_of(unit)
    {
        tally.lose();
    }
}

/// Packets that may be in flight when the units held have this many packets.
fn room(packets: usize) -> usize {
    (4 * packets).clamp(PACKETS.0, PACKETS.1)
}

mod advance;
mod replacements;
#[cfg(test)]
mod tests;
