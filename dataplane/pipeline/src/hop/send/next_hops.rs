//! Transmission to the next hops, each with its own link sequence numbers.

use crate::base::layout::payload_of;
use crate::config::params::{FlowParams, Nanos, PeerId, ShardId, Spread};
use crate::config::report::DropReason;
use crate::env::combine::{Combiner, GROUP_MAX, Sources};
use crate::env::egress::{Egress, Outer};
use crate::env::io::Io;
use crate::hop::receive::sequence::{Arrived, Sequences};
use recoded_wire::coded::CodedHeader;
use recoded_wire::frames::{FrameId, Frames, HEADROOM_BYTES, Span};
use recoded_wire::header::{Flags, Header, write_link_sequence};
use recoded_wire::shard::source_port;

/// A neighbour that the shard sends to.
#[derive(Clone, Debug)]
struct Downstream {
    peer: PeerId,
    /// Link sequence number of the next packet to it.
    next: u32,
    /// Link sequence numbers of its feedback.
    feedback: Sequences,
}

impl Downstream {
    /// Starts at a random number, which distinguishes a restarted node from replays of its previous
    /// life.
    fn new(peer: PeerId, combiner: &mut Combiner) -> Self {
        Self { peer, next: combiner.next_u32(), feedback: Sequences::default() }
    }
}

/// The next hops of a shard.
#[derive(Debug)]
pub(crate) struct NextHops {
    source_port: u16,
    hops: Vec<Downstream>,
    /// Whether packets alternate between the hops, and whose turn it is.
    takes_turns: bool,
    turn: usize,
    counts: Counts,
}

/// Traffic counters of the links to and from the next hops.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Counts {
    /// Packets sent.
    pub packets: u64,
    /// Bytes of their UDP payloads.
    pub bytes: u64,
    /// Feedback packets received.
    pub feedback: u64,
}

impl NextHops {
    pub(crate) fn new(shard: ShardId, params: &FlowParams, combiner: &mut Combiner) -> NextHops {
        let source_port = source_port(shard.flow, shard.shard);
        let (hops, counts) = (Vec::new(), Counts::default());
        let mut next = NextHops { source_port, hops, takes_turns: false, turn: 0, counts };
        next.update(params, combiner);
        next
    }

    /// Replaces the list of hops; a hop that remains keeps its sequence number.
    pub(crate) fn update(&mut self, params: &FlowParams, combiner: &mut Combiner) {
        let peers = &params.next_hops;
        self.takes_turns = params.spread == Spread::Sum && peers.len() > 1;
        let kept = |peer: &PeerId| self.hops.iter().find(|hop| hop.peer == *peer).cloned();
        let hop = |peer: &PeerId| kept(peer).unwrap_or_else(|| Downstream::new(*peer, combiner));
        self.hops = peers.iter().map(hop).collect();
    }

    /// The traffic counters.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Records a feedback packet from `peer`.
    ///
    /// # Errors
    /// [`DropReason::UnknownPeer`] when it is not a next hop, [`DropReason::Replayed`] when the
    /// packet is a duplicate.
    pub(crate) fn heard(
        &mut self,
        peer: PeerId,
        header: &Header,
        now: Nanos,
    ) -> Result<(), DropReason> {
        let hop = self.hops.iter_mut().find(|hop| hop.peer == peer);
        match hop.ok_or(DropReason::UnknownPeer)?.feedback.arrived(header.link_sequence, now) {
            Arrived::Replayed => Err(DropReason::Replayed),
            _ => {
                self.counts.feedback += 1;
                Ok(())
            }
        }
    }

    /// Sends `payload` to every next hop, or to the one whose turn it is, with the given traffic
    /// class. Its header is complete except for the link sequence number. Consumes one reference.
    /// Returns how many copies failed because frames ran out.
    pub(crate) fn send(
        &mut self,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        payload: Span,
        traffic_class: u8,
    ) -> u64 {
        let outer = Outer { source_port: self.source_port, traffic_class };
        if self.takes_turns {
            let place = self.turn % self.hops.len();
            self.turn = place + 1;
            self.send_to(place, frames, egress, payload, traffic_class);
            return 0;
        }
        let mut failed = 0;
        let Some((first, others)) = self.hops.split_first_mut() else {
            frames.release(payload.frame);
            return 0;
        };
        for hop in others {
            let Some(copy) = copy(frames, payload) else {
                failed += 1;
                continue;
            };
            write_link_sequence(frames.bytes_mut(copy), next(&mut hop.next));
            egress.transmit(hop.peer, copy, outer);
            self.counts.sent(payload);
        }
        write_link_sequence(frames.bytes_mut(payload), next(&mut first.next));
        egress.transmit(first.peer, payload, outer);
        self.counts.sent(payload);
        failed
    }

    /// Link sequence number of the next packet, if there is exactly one next hop.
    pub(crate) fn next_number(&self) -> Option<u32> {
        match &self.hops[..] {
            [hop] => Some(hop.next),
            _ => None,
        }
    }

    /// How many of `packets` each hop gets, rounded up.
    pub(crate) fn part(&self, packets: u16) -> u16 {
        if self.takes_turns { packets.div_ceil(self.hops.len() as u16) } else { packets }
    }

    /// Packets at the end of a generation that are each the last for some next hop.
    pub(crate) fn ends(&self) -> usize {
        if self.takes_turns { self.hops.len() } else { 1 }
    }

    /// Number of next hops.
    pub(crate) fn len(&self) -> usize {
        self.hops.len()
    }

    /// The neighbour at `place`.
    pub(crate) fn peer(&self, place: usize) -> PeerId {
        self.hops[place].peer
    }

    /// Sends `payload` as [`NextHops::send`] does, only to the neighbour at `place`. Returns its
    /// link sequence number.
    pub(crate) fn send_to(
        &mut self,
        place: usize,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        payload: Span,
        traffic_class: u8,
    ) -> u32 {
        let hop = &mut self.hops[place];
        let number = next(&mut hop.next);
        write_link_sequence(frames.bytes_mut(payload), number);
        egress.transmit(hop.peer, payload, Outer { source_port: self.source_port, traffic_class });
        self.counts.sent(payload);
        number
    }

    /// Sends `count` fresh combinations of `sources` under `header`. Sets its type, field and size
    /// here; an END flag stays only on the last packet to each hop. Returns how many were sent, and
    /// how many packets found no free frame.
    pub(crate) fn send_combinations(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        sources: &Sources<'_>,
        mut header: CodedHeader,
        count: usize,
        traffic_class: u8,
    ) -> (u64, u64) {
        let ends = header.common.flags.has(Flags::END);
        header.common.packet_type = sources.packet_type();
        header.size = sources.size as u16;
        header = header.with(sources.field.code(), true).with(Flags::END, false);
        let (mut left, mut sent, mut failed) = (count, 0, 0);
        while left > 0 {
            let group = left.min(GROUP_MAX);
            let formed = io.combiner.combine(io.frames, sources, group);
            failed += (group - formed.len()) as u64;
            left -= group;
            for (position, symbol) in formed.iter().enumerate() {
                let is_last = left + formed.len() - position <= self.ends();
                let payload = payload_of(*symbol, sources.bytes_before());
                let bytes = io.frames.bytes_mut(payload);
                header.with(Flags::END, ends && is_last).write(bytes);
                if let Some(block) = &sources.block {
                    block.write(bytes);
                }
                failed += self.send(io.frames, io.egress, payload, traffic_class);
                sent += 1;
            }
        }
        (sent, failed)
    }
}

impl Counts {
    fn sent(&mut self, payload: Span) {
        self.packets += 1;
        self.bytes += u64::from(payload.len);
    }
}

pub(crate) fn next(sequence: &mut u32) -> u32 {
    let current = *sequence;
    *sequence = sequence.wrapping_add(1);
    current
}

/// Copies `payload` to its own frame, with headroom; `None` when frames ran out.
pub(crate) fn copy(frames: &mut impl Frames, payload: Span) -> Option<Span> {
    let frame: FrameId = frames.take()?;
    let offset = HEADROOM_BYTES.max(usize::from(payload.offset).min(256)) as u16;
    let target = Span { frame, offset, len: payload.len };
    if usize::from(offset) + usize::from(payload.len) > frames.frame_bytes() {
        frames.release(frame);
        return None;
    }
    frames.with_disjoint(&[payload], &[target], |from, to| to[0].copy_from_slice(from[0]));
    Some(target)
}
