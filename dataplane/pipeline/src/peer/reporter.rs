//! Feedback on its way upstream: when a node reports, and how reports cross lossy links.
//!
//! A report repeats present state, so a lost one is made good by the next. Repair requests cannot
//! wait: the node that sends or relays one repeats it by the loss of the link it saw downstream
//! (links are taken to be as bad in both directions), and relays let each report pass once, however
//! many copies arrive. Over ten hops of 20 % loss a single packet gets through one time in ten;
//! copied, nine in ten.

use crate::combine::Combiner;
use crate::egress::Egress;
use crate::io::{Fate, Io};
use crate::layout::symbol_offset;
use crate::params::{HopId, Nanos};
use crate::peer::next_hops::copy;
use recoded_wire::entropy::source_port;
use recoded_wire::feedback::{Item, Writer, items};
use recoded_wire::frames::{Frames, Span};
use recoded_wire::header::{Flags, Header, PacketType};

/// Shortest time between two reports of one node: fifty a second are enough to follow a link and
/// too few to weigh on it.
const INTERVAL_NANOS: Nanos = 20_000_000;

/// Room for a hop report, a flow report, 32 repair requests and the longest rank histogram, within
/// the smallest MTU of IPv6.
const BYTES_MAX: usize = 1232;

/// A copied request is lost on one link with at most this chance.
const COPIES_FAILURE: f64 = 0.01;

/// Most copies of one request on one link.
const COPIES_MAX: usize = 4;

/// Requests remembered by a relay. Requests of one flow are milliseconds apart, their copies
/// microseconds.
const HEARD: usize = 64;

/// One node's reports of one flow.
#[derive(Debug)]
pub(crate) struct Reporter {
    /// Tells the reports of different nodes apart. Random.
    origin: u32,
    number: u32,
    due: Option<Nanos>,
    /// The newest requests, by origin and number, and where the next one goes. All are searched:
    /// found by their bits, two of them could take each other's place in turns, and every copy of
    /// both would pass.
    heard: [Option<(u32, u32)>; HEARD],
    oldest: usize,
}

impl Reporter {
    pub(crate) fn new(combiner: &mut Combiner) -> Reporter {
        Reporter {
            origin: combiner.next_u32(),
            number: 0,
            due: None,
            heard: [None; HEARD],
            oldest: 0,
        }
    }

    /// There is something to say; it will be said within the interval.
    pub(crate) fn note(&mut self, now: Nanos) {
        self.due.get_or_insert(now + INTERVAL_NANOS);
    }

    /// When the next report is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Sends a report now; one that `requests` repairs is copied as `loss` demands.
    pub(crate) fn send(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        (flow, upstream): (u32, HopId),
        (requests, loss): (bool, f64),
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        self.due = None;
        let Some(frame) = io.frames.take() else { return };
        let offset = symbol_offset(0) as u16;
        let buffer = Span { frame, offset, len: BYTES_MAX as u16 };
        let header = Header {
            packet_type: PacketType::Feedback,
            flags: Flags::default().with(Flags::END, requests),
            epoch: 0,
            size: 1,
            flow,
            generation: self.number,
            hop_index: 0,
            key_id: 0,
            planned: 0,
            link_sequence: self.origin,
        };
        self.number = self.number.wrapping_add(1);
        let bytes = io.frames.bytes_mut(buffer);
        header.write(bytes);
        let mut writer = Writer::new(bytes);
        fill(&mut writer);
        let payload = Span { len: writer.finish() as u16, ..buffer };
        emit(io, (flow, upstream), payload, if requests { copies(loss) } else { 1 });
    }

    /// Whether this request was already handed on; notes it.
    pub(crate) fn is_repeated(&mut self, header: &Header) -> bool {
        let name = Some((header.link_sequence, header.generation));
        if !header.flags.has(Flags::END) {
            return false;
        }
        let is_known = self.heard.contains(&name);
        if !is_known {
            self.heard[self.oldest] = name;
            self.oldest = (self.oldest + 1) % HEARD;
        }
        is_known
    }

    /// Hands a report of a node further down upstream; `header` is already as it shall leave.
    pub(crate) fn relay(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        upstream: HopId,
        payload: Span,
        mut header: Header,
        loss: f64,
    ) -> Fate {
        let asks = |item| matches!(item, Item::Repair(_));
        let requests = items(io.frames.bytes(payload)).any(asks);
        header.flags = header.flags.with(Flags::END, requests);
        header.write(io.frames.bytes_mut(payload));
        io.frames.retain(payload.frame);
        emit(io, (header.flow, upstream), payload, if requests { copies(loss) } else { 1 });
        Fate::Forwarded
    }
}

/// Transmits `payload`, whose reference it takes over, and further copies of it as frames allow.
fn emit(
    io: &mut Io<'_, impl Frames, impl Egress>,
    (flow, upstream): (u32, HopId),
    payload: Span,
    copies: usize,
) {
    let port = source_port(flow, 0);
    for _ in 1..copies {
        if let Some(copy) = copy(io.frames, payload) {
            io.egress.transmit(upstream, copy, port);
        }
    }
    io.egress.transmit(upstream, payload, port);
}

/// Copies that bring one packet across a link of this loss almost surely.
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

    /// One flipped bit in a copy of a request once made two of it that every relay took for new
    /// over and over: four to the power of the hops.
    #[test]
    fn requests_that_differ_in_high_bits_pass_once_each() {
        let mut reporter = Reporter::new(&mut Combiner::new(1));
        let header = |generation| Header {
            packet_type: PacketType::Feedback,
            flags: Flags(Flags::END),
            epoch: 0,
            size: 1,
            flow: 7,
            generation,
            hop_index: 3,
            key_id: 0,
            planned: 0,
            link_sequence: 9,
        };
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
