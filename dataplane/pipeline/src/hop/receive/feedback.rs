//! Upstream feedback: when a node reports, and how reports cross lossy links.
//!
//! A report repeats the current state, so the next one makes up for a lost one. NACKs cannot wait:
//! the node that sends or relays one repeats it according to the loss it measured downstream (links
//! are assumed equally lossy in both directions), and relays pass each report on once, however many
//! copies arrive. Over ten hops of 20 % loss a single packet gets through one time in ten; copied,
//! nine in ten.

use crate::base::layout::symbol_offset;
use crate::config::params::{Nanos, PeerId, ShardId};
use crate::env::combine::Combiner;
use crate::env::egress::{Egress, Keys, Outer};
use crate::env::io::Io;
use crate::hop::send::next_hops::{copy, next};
use crate::packet::arrival::Fate;
use recoded_wire::feedback::{
    FeedbackHeader, Item, SEAL_ITEM_BYTES, Writer, append_seal, covered_by_seal, items,
};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, Header, PacketType, write_link_sequence};
use recoded_wire::shard::source_port;

/// Minimum interval between two reports of one node: fifty a second are enough to follow a link and
/// few enough to add no load.
const INTERVAL_NANOS: Nanos = 20_000_000;

/// Room for a hop report, a flow report, 32 NACKs and the longest rank histogram, within
/// the smallest MTU of IPv6.
pub(crate) const BYTES_MAX: usize = 1232;

/// Largest probability that all copies of a NACK are lost on one link.
const COPIES_FAILURE: f64 = 0.01;

/// Most copies of one NACK on one link.
const COPIES_MAX: usize = 4;

/// Reports with NACKs that a relay remembers. Those of one flow are milliseconds apart, their
/// copies microseconds.
const HEARD: usize = 64;

/// Reports of one node about one shard.
#[derive(Debug)]
pub(crate) struct Reporter {
    shard: ShardId,
    /// The neighbour that receives the reports; none at a source.
    peer: Option<PeerId>,
    /// Random number that distinguishes the reports of different nodes.
    node: u32,
    number: u32,
    link_sequence: u32,
    due: Option<Nanos>,
    /// The newest reports with NACKs, by node and number, and the index of the oldest. All are
    /// searched: with an index by hash, two of them could evict each other in turn, and every copy
    /// of both would pass.
    heard: [Option<(u32, u32)>; HEARD],
    oldest: usize,
}

impl Reporter {
    pub(crate) fn new(shard: ShardId, peer: Option<PeerId>, combiner: &mut Combiner) -> Reporter {
        Reporter {
            shard,
            peer,
            node: combiner.next_u32(),
            number: 0,
            link_sequence: combiner.next_u32(),
            due: None,
            heard: [None; HEARD],
            oldest: 0,
        }
    }

    /// Notes new state to report; it is reported within the interval.
    pub(crate) fn note(&mut self, now: Nanos) {
        self.due.get_or_insert(now + INTERVAL_NANOS);
    }

    /// When the next report is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Link sequence number of the next packet sent upstream.
    pub(crate) fn numbers(&mut self) -> &mut u32 {
        &mut self.link_sequence
    }

    /// Clears a report due up to `now` that had no content.
    pub(crate) fn settle(&mut self, now: Nanos) {
        self.due = self.due.filter(|due| *due > now);
    }

    /// Sends a report of a relay now about packets of `epoch`; `fill` writes its items.
    pub(crate) fn send(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        epoch: u8,
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        self.write(io, epoch, 0.0, false, fill);
    }

    /// Sends a report of a sink now, with a seal if `seals` and there are keys; one with NACKs is
    /// copied according to `loss`.
    //= docs/protocol §2.8(f)
    pub(crate) fn send_to_source(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        epoch: u8,
        loss: f64,
        seals: bool,
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        self.write(io, epoch, loss, seals, fill);
    }

    fn write(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        epoch: u8,
        loss: f64,
        seals: bool,
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        self.due = None;
        let Some(frame) = io.frames.take() else { return };
        let offset = symbol_offset(0) as u16;
        let buffer = Span { frame, offset, len: BYTES_MAX as u16 };
        let common = Header {
            packet_type: PacketType::Feedback,
            flags: Flags(0),
            epoch,
            shard: self.shard.shard,
            flow: self.shard.flow,
            link_sequence: 0,
            hop_index: 0,
        };
        let header = FeedbackHeader { common, node: self.node, number: next(&mut self.number) };
        let Io { frames, egress, .. } = &mut *io;
        let bytes = frames.bytes_mut(buffer);
        header.write(bytes);
        let mut writer = Writer::new(&mut bytes[..BYTES_MAX - SEAL_ITEM_BYTES]);
        fill(&mut writer);
        let mut length = writer.finish();
        if seals && let Some(keys) = egress.keys() {
            let mut covered = [0; BYTES_MAX];
            let covered = covered_by_seal(&bytes[..length], &mut covered).unwrap_or_default();
            if let Ok(seal) = keys.seal_report(self.shard, covered) {
                length = append_seal(bytes, length, &seal);
            }
        }
        let payload = Span { len: length as u16, ..buffer };
        self.emit(io, payload, loss);
    }

    /// Counts the hop that a report takes upstream. Returns false if it has NACKs and was already
    /// passed on.
    pub(crate) fn climbs(&mut self, header: &mut FeedbackHeader, payload: &[u8]) -> bool {
        header.common.hop_index = header.common.hop_index.saturating_add(1);
        !(has_nacks(payload) && self.is_repeated(header))
    }

    /// Whether this report was already passed on; remembers it.
    //= docs/protocol §2.8(d)
    fn is_repeated(&mut self, header: &FeedbackHeader) -> bool {
        let name = Some((header.node, header.number));
        let is_known = self.heard.contains(&name);
        if !is_known {
            self.heard[self.oldest] = name;
            self.oldest = (self.oldest + 1) % HEARD;
        }
        is_known
    }

    /// Passes a report of a downstream node on upstream; `header` is already the outgoing one.
    pub(crate) fn relay(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        payload: Span,
        header: &FeedbackHeader,
        loss: f64,
    ) -> Fate {
        header.write(io.frames.bytes_mut(payload));
        io.frames.retain(payload.frame);
        self.emit(io, payload, loss);
        Fate::Forwarded
    }

    /// Transmits `payload`, consuming its reference, and, if it has NACKs, further copies as far as
    /// frames allow.
    fn emit(&mut self, io: &mut Io<'_, impl Frames, impl Egress>, payload: Span, loss: f64) {
        let Some(upstream) = self.peer else { return io.frames.release(payload.frame) };
        let copies = if has_nacks(io.frames.bytes(payload)) { copies(loss) } else { 1 };
        let source_port = source_port(self.shard.flow, self.shard.shard);
        // Reports belong to no traffic class: best effort.
        let outer = Outer { source_port, traffic_class: 0 };
        for _ in 1..copies {
            if let Some(copy) = copy(io.frames, payload) {
                write_link_sequence(io.frames.bytes_mut(copy), next(&mut self.link_sequence));
                io.egress.transmit(upstream, copy, outer);
            }
        }
        write_link_sequence(io.frames.bytes_mut(payload), next(&mut self.link_sequence));
        io.egress.transmit(upstream, payload, outer);
    }
}

/// Whether a report has NACKs.
fn has_nacks(payload: &[u8]) -> bool {
    items(payload).any(|item| matches!(item, Item::Nack(_)))
}

/// Copies needed to cross a link of this loss almost surely.
fn copies(loss: f64) -> usize {
    if loss <= COPIES_FAILURE {
        return 1;
    }
    let wanted = (COPIES_FAILURE.ln() / loss.min(0.9).ln()).ceil();
    (wanted as usize).clamp(1, COPIES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: one flipped bit in a copy of a request made two requests, and every relay passed
    /// both on repeatedly: four to the power of the hops.
    //= docs/protocol §2.8(d)
    #[test]
    fn requests_that_differ_in_high_bits_pass_once_each() {
        let shard = ShardId { flow: 7, shard: 0 };
        let mut reporter = Reporter::new(shard, None, &mut Combiner::new(1));
        let common = Header {
            packet_type: PacketType::Feedback,
            flags: Flags(0),
            epoch: 0,
            shard: 0,
            flow: 7,
            link_sequence: 0,
            hop_index: 3,
        };
        let header = |number| FeedbackHeader { common, node: 9, number };
        let names = (0..400).map(|turn| header(97 | (turn % 2) << 22));
        let passed = names.filter(|header| !reporter.is_repeated(header)).count();
        assert_eq!(passed, 2);
    }

    #[test]
    fn copies_follow_the_loss_within_bounds() {
        assert_eq!(copies(0.0), 1);
        assert_eq!(copies(0.1), 2);
        assert_eq!(copies(0.2), 3);
        assert_eq!(copies(1.0), COPIES_MAX);
    }
}
