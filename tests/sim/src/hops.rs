//! Checks the overhead of a worker with per-hop loss recovery against its input: retransmitted
//! symbols of streams, keepalives, link reports.

use std::collections::BTreeMap;

use recoded_pipeline::params::{Nanos, PeerId};
use recoded_wire::header::{Flags, serial_before};
use recoded_wire::link::{LinkReport, link_gaps};
use recoded_wire::parse::{Packet, parse};
use recoded_wire::stream::StreamBody;

/// Upper limit of unreported packets in flight: twice the largest window that is drawn.
const ON_THE_WAY_MAX: u32 = 2048;

/// Keepalives after a symbol, and the shortest interval of those that a wait needs.
const KEEPALIVES: u64 = 12;
const WAITING_NANOS: Nanos = 10_000_000;

/// Reports that follow the first one of a shard to a neighbour.
const FIRST_REPORTS_MORE: u64 = 2;

/// Shortest time between two link reports.
const LINK_REPORT_NANOS: Nanos = 500_000;

/// Causes of a worker's packets.
pub(crate) struct WorkerTotals {
    /// Symbols that it learned.
    pub symbols: u64,
    /// Requests that it received.
    pub requests: u64,
    /// Shards that it had.
    pub shards: u64,
    /// Time that it had them.
    pub lived: Nanos,
    /// Most combinations of a hop per symbol.
    pub combinations: f64,
}

/// Packets received and sent of streams, and of generations and batches with per-hop loss recovery.
#[derive(Clone, Default, Debug)]
pub(crate) struct Hops {
    /// Data packets received.
    came: u64,
    /// Numbers that link reports declared lost, each counted once.
    lost: u64,
    /// Horizons of these reports, by neighbour and shard.
    horizons: BTreeMap<(PeerId, u8), u32>,
    symbols: u64,
    /// Packets of generations and batches sent.
    coded: u64,
    /// Link reports received.
    told: u64,
    repairs: u64,
    keepalives: u64,
    combinations: u64,
    reports: u64,
}

impl Hops {
    /// Records a received packet.
    pub(crate) fn note_received(&mut self, peer: PeerId, payload: &[u8]) {
        match parse(payload) {
            Ok(Packet::Stream(_)) => self.came += 1,
            Ok(Packet::Coded(packet)) => self.came += u64::from(packet.header.is_mended()),
            Ok(Packet::Link(report)) => {
                self.told += 1;
                self.note_report(peer, &report, payload);
            }
            _ => {}
        }
    }

    /// Counts the news in a report: gaps beyond the previous horizon, and numbers that it leaves
    /// out.
    fn note_report(&mut self, peer: PeerId, report: &LinkReport, payload: &[u8]) {
        let place = (peer, report.header.shard);
        let spoken = self.horizons.get(&place).copied();
        let before = spoken.unwrap_or(report.from.wrapping_sub(ON_THE_WAY_MAX));
        let unsaid = report.from.wrapping_sub(before).cast_signed().max(0).cast_unsigned();
        let gaps = link_gaps(report, payload).map(|gap| {
            let end = gap.first.wrapping_add(u32::from(gap.count));
            let ahead = end.wrapping_sub(before).cast_signed().max(0).cast_unsigned();
            ahead.min(u32::from(gap.count))
        });
        self.lost += report.missing.places().len() as u64;
        self.lost += u64::from(unsaid.min(ON_THE_WAY_MAX)) + gaps.map(u64::from).sum::<u64>();
        let is_near = report.horizon.wrapping_sub(before) < ON_THE_WAY_MAX;
        if spoken.is_none() || (is_near && serial_before(before, report.horizon)) {
            self.horizons.insert(place, report.horizon);
        }
    }

    /// Records a sent packet.
    pub(crate) fn note_sent(&mut self, payload: &[u8]) {
        match parse(payload) {
            Ok(Packet::Stream(packet)) => {
                let is_repair = packet.header.common.flags.has(Flags::REPAIR);
                self.symbols += u64::from(packet.symbol().is_some() && !is_repair);
                self.repairs += u64::from(is_repair);
                self.keepalives += u64::from(packet.body == StreamBody::Keepalive);
                let is_combination = matches!(packet.body, StreamBody::Combination(_));
                self.combinations += u64::from(is_combination);
            }
            Ok(Packet::Coded(packet)) => self.coded += u64::from(packet.header.is_mended()),
            Ok(Packet::Link(_)) => self.reports += 1,
            _ => {}
        }
    }

    /// Whether losses of generations or batches were reported.
    pub(crate) fn is_mended(&self) -> bool {
        self.told > 0 && self.coded > 0
    }

    /// Link reports sent.
    pub(crate) fn reports(&self) -> u64 {
        self.reports
    }

    /// Keepalives sent.
    pub(crate) fn keepalives(&self) -> u64 {
        self.keepalives
    }

    /// Symbols retransmitted.
    pub(crate) fn repairs(&self) -> u64 {
        self.repairs
    }

    /// Packets sent and their upper limits, for a worker with `next` next hops and `before`
    /// neighbours before it.
    pub(crate) fn laws(&self, worker: &WorkerTotals, next: u64, before: u64) -> [(u64, u64); 5] {
        let WorkerTotals { symbols, requests, shards, lived, combinations } = *worker;
        let every = |nanos: Nanos| shards * (lived / nanos + 2);
        // A gap may be reported separately from the packet that ends it; a first report can be sent
        // three times.
        let first = FIRST_REPORTS_MORE * before * shards;
        let reports = (2 * self.came + first).min(before * every(LINK_REPORT_NANOS));
        let keepalives = match self.symbols + self.repairs + self.coded {
            0 => 0,
            sent => KEEPALIVES * sent + next * every(WAITING_NANOS),
        };
        // When one of several paths falls silent, its symbols move to the others.
        let taken_over = (next - 1) * symbols;
        let combined = (combinations * self.symbols as f64).ceil() as u64;
        [
            // Repairs requested by the sink are sent under numbers of their own.
            (self.symbols, next * (symbols + requests)),
            // Sparse traffic sends one for each symbol, and one more before each pause.
            (self.combinations, combined + next * every(WAITING_NANOS)),
            (self.repairs, self.lost + taken_over),
            (self.keepalives, keepalives),
            (self.reports, reports),
        ]
    }
}
