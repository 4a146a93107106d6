//! Packets received from a neighbour, by link sequence number, and the link reports sent back to
//! it.
//!
//! A report repeats the newest gaps, so losing one does no harm. A gap is reported once no
//! reordered packet can still fill it, judged by the recent reordering delay.

use crate::base::layout::symbol_offset;
use crate::config::params::{Nanos, PeerId, ShardId};
use crate::env::egress::{Egress, Outer};
use crate::env::io::Io;
use crate::hop::receive::lateness::Lateness;
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, Header, PacketType};
use recoded_wire::link::{
    BACKLOG_UNIT_MICROS, LINK_BYTES, LINK_GAPS_MAX, LinkGap, LinkReport, Missing, write_link,
};
use recoded_wire::shard::source_port;
use recoded_wire::stream::round_trip_units;
use std::collections::VecDeque;

/// Delay of a report after its first packet, and minimum interval between reports.
const DELAY_NANOS: Nanos = 500_000;

/// Packets up to this size, such as TCP acknowledgements, may be reported later: each report costs
/// one more packet compared with the data acknowledged. If no report follows, the neighbour
/// requests one earlier.
const SMALL_BYTES: usize = 160;
const SMALL_DELAY_NANOS: Nanos = 5_000_000;

/// Additional reports after the first one when a connection begins with a request for a report.
const REPORTS_MORE: u8 = 2;

/// Gaps repeated in a report.
const SAID: usize = 24;

/// Longest wait of a gap for reordered packets.
const LATE_MAX_NANOS: Nanos = 30_000_000;

/// Numbers less than [`NEAR`] ahead are accepted one by one. Others need [`FOREIGN`] in a row, so
/// that a single forged or damaged packet changes nothing.
const NEAR: u32 = 64;
const FOREIGN: u8 = 3;

/// After this long with only older numbers, these are accepted as current: the newest one did not
/// come from the neighbour.
const BEHIND_NANOS: Nanos = 60_000_000;

/// A larger jump means that the neighbour restarted.
const JUMP_MAX: u32 = 1 << 14;

#[derive(Copy, Clone, Debug)]
struct Gap {
    first: u32,
    count: u16,
    at: Nanos,
}

/// State of this node that is reported upstream.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Onward {
    /// Delay of the newest data in this node before it is sent on.
    pub backlog: Nanos,
    /// Sum of the round trips of the hops from here on.
    pub beyond: Nanos,
    /// Packets neither received nor recovered.
    pub missing: Missing,
}

/// Packets of one shard from one neighbour.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// The next number expected, once there is one.
    next: Option<u32>,
    /// Consecutive packets with numbers out of range and the last of these, and when the newest
    /// number arrived.
    foreign: (u8, u32),
    newest_at: Nanos,
    from: u32,
    /// Oldest first.
    gaps: VecDeque<Gap>,
    /// Recent reordering delay.
    late: Lateness,
    latest: (u32, Nanos),
    packets: u32,
    bytes: u32,
    due: Option<Nanos>,
    /// Further reports due although nothing arrived.
    more: u8,
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        Self {
            next: None,
            foreign: (0, 0),
            newest_at: 0,
            from: 0,
            gaps: VecDeque::with_capacity(LINK_GAPS_MAX + 1),
            late: Lateness::new(LATE_MAX_NANOS),
            latest: (0, 0),
            packets: 0,
            bytes: 0,
            due: None,
            more: 0,
        }
    }

    /// Records a packet of `bytes` whose number is new, and whether the neighbour waits for a
    /// report on it.
    pub(crate) fn note(&mut self, number: u32, bytes: usize, is_asked: bool, now: Nanos) {
        let next = *self.next.get_or_insert_with(|| {
            self.from = number;
            number
        });
        let ahead = number.wrapping_sub(next);
        let behind = next.wrapping_sub(number);
        let is_elsewhere = if behind <= JUMP_MAX && behind > 0 {
            now >= self.newest_at + BEHIND_NANOS
        } else {
            ahead >= NEAR
        };
        let follows = is_elsewhere && self.follows(number);
        if !is_elsewhere {
            self.foreign.0 = 0;
        }
        if ahead < NEAR || (follows && ahead < JUMP_MAX) {
            self.skip(next, ahead, now);
            (self.next, self.newest_at) = (Some(number.wrapping_add(1)), now);
        } else if follows {
            self.gaps.clear();
            (self.from, self.next) = (number, Some(number.wrapping_add(1)));
            self.newest_at = now;
        } else if behind <= JUMP_MAX {
            self.fill(number, now);
        } else {
            return;
        }
        self.latest = (number, now);
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes as u32);
        let is_hurried = is_asked || bytes > SMALL_BYTES;
        let wait = if is_hurried { DELAY_NANOS } else { SMALL_DELAY_NANOS };
        self.due = Some(self.due.unwrap_or(Nanos::MAX).min(now + wait));
    }

    /// Notes that the neighbour, of a stream, requests a report. If this is its first packet, it
    /// may know an earlier life of this node: it then needs two reports in order, one may be lost,
    /// and it sends little until then. So [`REPORTS_MORE`] more follow.
    pub(crate) fn asked(&mut self) {
        if self.packets == 1 {
            self.more = REPORTS_MORE;
        }
    }

    /// Whether an out-of-range number completes a long enough row.
    fn follows(&mut self, number: u32) -> bool {
        let (count, last) = self.foreign;
        let is_row = number.wrapping_sub(last).wrapping_sub(1) < NEAR;
        let count = if is_row { count + 1 } else { 1 };
        self.foreign = (count % FOREIGN, number);
        count >= FOREIGN
    }

    /// Records skipped numbers.
    fn skip(&mut self, first: u32, count: u32, now: Nanos) {
        if count == 0 {
            return;
        }
        // A jump is at most 2^14.
        self.gaps.push_back(Gap { first, count: count as u16, at: now });
        self.bound();
    }

    /// Records the late arrival of a skipped number.
    fn fill(&mut self, number: u32, now: Nanos) {
        let holds = |gap: &Gap| number.wrapping_sub(gap.first) < u32::from(gap.count);
        let Some(index) = self.gaps.iter().position(holds) else { return };
        let gap = self.gaps[index];
        self.late.note(now.saturating_sub(gap.at), now);
        let before = number.wrapping_sub(gap.first) as u16;
        let after = gap.count - before - 1;
        self.gaps.remove(index);
        for (first, count) in [(number.wrapping_add(1), after), (gap.first, before)] {
            if count > 0 {
                self.gaps.insert(index, Gap { first, count, at: gap.at });
            }
        }
        self.bound();
    }

    /// Drops the oldest gaps: reports cover only the newest ones.
    fn bound(&mut self) {
        while self.gaps.len() > LINK_GAPS_MAX {
            let Some(gone) = self.gaps.pop_front() else { return };
            self.from = gone.first.wrapping_add(u32::from(gone.count));
        }
    }

    /// When the next report is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Sends a report to the upstream. `link_sequence` counts the packets sent to it.
    pub(crate) fn report(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        shard: ShardId,
        upstream: PeerId,
        epoch: u8,
        onward: Onward,
        link_sequence: &mut u32,
    ) {
        self.due = None;
        let Some(next) = self.next else { return };
        let patience = self.late.patience(io.now);
        let is_ripe = |gap: &&Gap| gap.at + patience <= io.now;
        let ripe = self.gaps.iter().take_while(is_ripe).count();
        let horizon = self.gaps.get(ripe).map_or(next, |gap| gap.first);
        if let Some(gap) = self.gaps.get(ripe) {
            self.due = Some((gap.at + patience).max(io.now + DELAY_NANOS));
        }
        let oldest = ripe.saturating_sub(SAID);
        if oldest > 0 {
            let gone = self.gaps[oldest - 1];
            self.from = gone.first.wrapping_add(u32::from(gone.count));
            self.gaps.drain(..oldest);
        }
        let ripe = ripe - oldest;
        // A gap too far back to be reported is dropped.
        let near = horizon.wrapping_sub(u32::from(u16::MAX));
        if horizon.wrapping_sub(self.from) > u32::from(u16::MAX) {
            self.from = near;
        }
        let Some(frame) = io.frames.take() else { return };
        if self.more > 0 {
            self.more -= 1;
            self.due.get_or_insert(io.now + DELAY_NANOS);
        }
        let (latest, arrived) = self.latest;
        let header = Header {
            packet_type: PacketType::Link,
            flags: Flags(0),
            epoch,
            shard: shard.shard,
            flow: shard.flow,
            link_sequence: *link_sequence,
            hop_index: 0,
        };
        *link_sequence = link_sequence.wrapping_add(1);
        let Onward { backlog, beyond, missing } = onward;
        let units = backlog / u64::from(BACKLOG_UNIT_MICROS) / 1000;
        let report = LinkReport {
            header,
            from: self.from,
            horizon,
            latest,
            arrived: (arrived / 1000) as u32,
            held: u16::try_from(io.now.saturating_sub(arrived) / 1000).unwrap_or(u16::MAX),
            backlog: u16::try_from(units).unwrap_or(u16::MAX),
            bytes: self.bytes,
            packets: self.packets,
            beyond: round_trip_units(beyond),
            missing,
        };
        let offset = symbol_offset(0) as u16;
        let buffer = Span { frame, offset, len: (LINK_BYTES + 4 * LINK_GAPS_MAX) as u16 };
        let gaps = self.gaps.iter().take(ripe);
        let gaps = gaps.map(|gap| LinkGap { first: gap.first, count: gap.count });
        let bytes = write_link(&report, gaps, io.frames.bytes_mut(buffer));
        let outer = Outer { source_port: source_port(shard.flow, shard.shard), traffic_class: 0 };
        io.egress.transmit(upstream, Span { len: bytes as u16, ..buffer }, outer);
    }
}
