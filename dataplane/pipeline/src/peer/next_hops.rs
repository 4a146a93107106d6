//! Sending: writes the hop-mutable header fields and hands packets to the next hops.

use crate::combine::{Combiner, GROUP_MAX, Sources};
use crate::egress::Egress;
use crate::io::Io;
use crate::layout::payload_of;
use crate::params::HopId;
use recoded_wire::entropy::{BUCKETS, bucket_of, source_port};
use recoded_wire::frames::{FrameId, Frames, HEADROOM_BYTES, Span};
use recoded_wire::header::{Block, Flags, Header, PacketType};

/// The next hops of a flow with their link sequence numbers.
#[derive(Debug)]
pub(crate) struct NextHops {
    hops: Vec<(HopId, [u32; BUCKETS])>,
}

impl NextHops {
    pub(crate) fn new(hops: &[HopId], combiner: &mut Combiner) -> NextHops {
        NextHops { hops: hops.iter().map(|hop| (*hop, first_sequences(combiner))).collect() }
    }

    /// Takes over another list of hops; one that stays keeps its sequence numbers.
    pub(crate) fn update(&mut self, hops: &[HopId], combiner: &mut Combiner) {
        let kept =
            |hop: &HopId| self.hops.iter().find(|(known, _)| known == hop).map(|pair| pair.1);
        let mut numbers = |hop: &HopId| kept(hop).unwrap_or_else(|| first_sequences(combiner));
        self.hops = hops.iter().map(|hop| (*hop, numbers(hop))).collect();
    }

    /// Sends `payload` to every next hop. Writes `header` over its first bytes; the block word of a
    /// BATS packet must be there. Takes over one reference. Returns how many copies could not be
    /// made because frames ran out.
    pub(crate) fn send(
        &mut self,
        frames: &mut impl Frames,
        egress: &mut impl Egress,
        payload: Span,
        mut header: Header,
    ) -> u64 {
        let is_bats = header.packet_type == PacketType::Bats;
        let block = if is_bats { Block::read(frames.bytes(payload)) } else { None };
        let bucket = bucket_of(&header, block.as_ref());
        let port = source_port(header.flow, bucket);
        let mut failed = 0;
        let Some(((first, first_sequences), others)) = self.hops.split_first_mut() else {
            frames.release(payload.frame);
            return 0;
        };
        for (hop, sequences) in others {
            let Some(copy) = copy(frames, payload) else {
                failed += 1;
                continue;
            };
            header.link_sequence = next(&mut sequences[bucket]);
            header.write(frames.bytes_mut(copy));
            egress.transmit(*hop, copy, port);
        }
        header.link_sequence = next(&mut first_sequences[bucket]);
        header.write(frames.bytes_mut(payload));
        egress.transmit(*first, payload, port);
        failed
    }
}

impl NextHops {
    /// Sends `count` fresh combinations of `sources` under `header`, whose type, field and size are
    /// set here; END, if it has it, stays with the last one. Returns how many were sent, and how
    /// many packets found no frame.
    pub(crate) fn send_combinations(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        sources: &Sources<'_>,
        header: Header,
        count: usize,
    ) -> (u64, u64) {
        let code = sources.field.code();
        let (packet_type, coding_bytes) = (sources.packet_type(), sources.coding_bytes());
        let (mut left, mut sent, mut failed) = (count, 0, 0);
        while left > 0 {
            let group = left.min(GROUP_MAX);
            let formed = io.combiner.combine(io.frames, sources, group);
            failed += (group - formed.len()) as u64;
            left -= group;
            for (position, symbol) in formed.iter().enumerate() {
                let is_last = left == 0 && position + 1 == formed.len();
                let ends = header.flags.has(Flags::END) && is_last;
                let flags = Flags(header.flags.0 | code).with(Flags::END, ends);
                let header = Header { packet_type, flags, size: sources.size as u16, ..header };
                let payload = payload_of(*symbol, coding_bytes);
                if let Some(block) = &sources.block {
                    block.write(io.frames.bytes_mut(payload));
                }
                failed += self.send(io.frames, io.egress, payload, header);
                sent += 1;
            }
        }
        (sent, failed)
    }
}

/// Random numbers tell a neighbour that restarted from replays of its former life; the same one for
/// all buckets lets receivers see that they belong together.
fn first_sequences(combiner: &mut Combiner) -> [u32; BUCKETS] {
    [combiner.next_u32(); BUCKETS]
}

fn next(sequence: &mut u32) -> u32 {
    let current = *sequence;
    *sequence = sequence.wrapping_add(1);
    current
}

/// A copy of `payload` in a frame of its own, with headroom; `None` when frames ran out.
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
