//! Packets that no node sent.

use recoded_wire::coded::{
    Block, CodedHeader, INDEX_BYTES, PLANNED_MAX, coding_offset, parse_coded, vector_bytes,
    write_index,
};
use recoded_wire::feedback::{
    FeedbackHeader, FlowReport, HopReport, Item, Nack, SizeReport, Writer,
};
use recoded_wire::header::{Flags, HEADER_BYTES, Header, PacketType, write_link_sequence};
use recoded_wire::link::{LINK_BYTES, LINK_GAPS_MAX, LinkGap, LinkReport, Missing, write_link};
use recoded_wire::shard::SHARDS_MAX;
use recoded_wire::stream::{
    COMBINATION_BYTES, Combination, KEEPALIVE_BYTES, STREAM_BYTES, StreamHeader, StreamSymbol,
    parse_stream, write_combination, write_symbol,
};

use super::FLOW;
use crate::Input;

/// Most items of one hop report: as many fill a packet.
const HOPS_MAX: usize = 119;

/// Distances at the limits of tables, windows and serial numbers, and neighbouring ones.
const DISTANCES: [u32; 20] = [
    0,
    1,
    2,
    4,
    5,
    6,
    7,
    12,
    16,
    33,
    64,
    65,
    255,
    256,
    4096,
    65_535,
    65_536,
    65_537,
    1 << 20,
    1 << 31,
];

fn feedback_header(input: &mut Input<'_>) -> FeedbackHeader {
    // One of the first shards, as a rule.
    let shard = match input.byte() {
        byte @ 0..0xF0 => byte % 4,
        byte => byte % SHARDS_MAX as u8,
    };
    let (epoch, number, hop_index) = (input.byte(), u32::from(input.byte()), input.byte());
    let common = Header {
        packet_type: PacketType::Feedback,
        flags: Flags::default(),
        epoch,
        shard,
        flow: FLOW,
        link_sequence: 0,
        hop_index,
    };
    FeedbackHeader { common, node: u32::from(input.byte()), number }
}

/// A feedback packet that `fill` fills.
fn report(header: &FeedbackHeader, fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut packet = vec![0; 1200];
    header.write(&mut packet);
    let mut writer = Writer::new(&mut packet);
    fill(&mut writer);
    let length = writer.finish();
    packet.truncate(length);
    packet
}

/// A feedback packet with a few items of any kind.
pub(super) fn feedback(input: &mut Input<'_>) -> Vec<u8> {
    let header = feedback_header(input);
    report(&header, |writer| {
        for _ in 0..input.below(6) {
            let item = match input.below(6) {
                0 => Item::Hop(HopReport {
                    hop: input.byte(),
                    loss: f32::from_bits(input.u32()),
                    burst_mean: f32::from_bits(input.u32()),
                }),
                1 => Item::Nack(Nack {
                    unit: u32::from(input.u16()),
                    missing: input.u16(),
                    round: input.byte() % 6,
                }),
                2 => Item::Flow(FlowReport {
                    newest: input.u32(),
                    complete: input.u32(),
                    failed: input.u32(),
                }),
                3 => Item::BlockAck(input.u16()),
                4 => Item::Size(SizeReport { hop: input.byte(), bytes: input.u16() }),
                _ => {
                    let ranks = 1 + input.below(17);
                    let counts: Vec<u32> = (0..ranks).map(|_| input.u32()).collect();
                    writer.push_ranks(input.byte(), counts.into_iter());
                    continue;
                }
            };
            writer.push(item);
        }
    })
}

/// Consecutive reports of up to 119 hops: all in one packet, or one by one, each from a plausible
/// sender.
pub(super) fn hops(input: &mut Input<'_>) -> Vec<Vec<u8>> {
    let header = feedback_header(input);
    let (shape, first, count) = (input.byte(), input.byte(), 1 + input.below(HOPS_MAX));
    let (loss, burst_mean) = (f32::from(input.byte()) / 255.0, 1.0 + f32::from(input.byte()));
    let hops = (0..count).map(|place| first.wrapping_add(place as u8));
    let item = |hop| Item::Hop(HopReport { hop, loss, burst_mean });
    if shape & 1 == 0 {
        return vec![report(&header, |writer| hops.for_each(|hop| _ = writer.push(item(hop))))];
    }
    let names = u32::from(first) << 8;
    hops.map(|hop| {
        let common = Header { hop_index: hop, ..header.common };
        let header = FeedbackHeader { common, number: names + u32::from(hop), ..header };
        report(&header, |writer| _ = writer.push(item(hop)))
    })
    .collect()
}

/// NACKs of up to 64 units in a row, near the unit of `template`.
pub(super) fn nacks(template: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let header = feedback_header(input);
    let (newest, count) = (unit(template).unwrap_or(0), 1 + u32::from(input.byte() % 64));
    let (missing, round) = (input.u16(), input.byte() % 6);
    report(&header, |writer| {
        for unit in (0..count).map(|back| newest.wrapping_sub(back)) {
            writer.push(Item::Nack(Nack { unit, missing, round }));
        }
    })
}

/// A link report about numbers near the link sequence number of `template`.
pub(super) fn link(template: &[u8], input: &mut Input<'_>) -> Vec<u8> {
    let FeedbackHeader { common, .. } = feedback_header(input);
    let seen = Header::parse(template).map_or(0, |header| header.link_sequence);
    let near = |input: &mut Input<'_>| seen.wrapping_sub(u32::from(input.byte())).wrapping_add(4);
    let (horizon, latest, span) = (near(input), near(input), u32::from(input.u16()));
    let report = LinkReport {
        header: Header { packet_type: PacketType::Link, hop_index: 0, ..common },
        from: horizon.wrapping_sub(span),
        horizon,
        latest,
        arrived: input.u32(),
        held: input.u16(),
        backlog: input.u16(),
        bytes: input.u32(),
        packets: input.u32(),
        beyond: input.u16(),
        missing: Missing::of((0..input.below(8)).map(|_| input.u16())),
    };
    let gaps: Vec<LinkGap> = (0..input.below(LINK_GAPS_MAX + 1))
        .map(|_| LinkGap {
            first: horizon.wrapping_sub(u32::from(input.byte())),
            count: u16::from(input.byte()),
        })
        .collect();
    let mut packet = vec![0; LINK_BYTES + 4 * LINK_GAPS_MAX];
    let length = write_link(&report, gaps.into_iter(), &mut packet);
    packet.truncate(length);
    packet
}

/// A combination of symbols of a stream.
pub(super) fn combination(header: &StreamHeader, combination: &Combination, sum: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; COMBINATION_BYTES];
    header.write(&mut packet);
    write_combination(combination, &mut packet);
    packet.extend_from_slice(sum);
    packet
}

/// A symbol of a stream of `bytes` zeros, or a keepalive.
pub(super) fn stream(header: &StreamHeader, symbol: Option<StreamSymbol>) -> Vec<u8> {
    let bytes = symbol.map_or(KEEPALIVE_BYTES, |symbol| STREAM_BYTES + usize::from(symbol.bytes));
    let mut packet = vec![0; bytes];
    header.write(&mut packet);
    if let Some(symbol) = symbol {
        write_symbol(&symbol, &mut packet);
    }
    packet
}

/// The generation, block or newest symbol of a data packet.
pub(super) fn unit(packet: &[u8]) -> Option<u32> {
    match Header::parse(packet).ok()?.packet_type {
        PacketType::Stream => parse_stream(packet).ok()?.symbol().map(|symbol| symbol.number),
        _ => {
            let coded = parse_coded(packet).ok()?;
            let block = coded.block.map(|block| u32::from(block.number));
            Some(block.unwrap_or(coded.header.generation))
        }
    }
}

/// Consecutive data packets that resemble one that a node sent, but belong to other units.
pub(super) struct Strike {
    count: usize,
    distance: u32,
    stride: u32,
    /// Bit set of the differences from the observed packet.
    wrong: u8,
    amount: u8,
    noise: u32,
}

impl Strike {
    pub(super) fn read(input: &mut Input<'_>) -> Self {
        let (count, place) = (1 + input.below(64), input.byte());
        let distance = DISTANCES[usize::from(place % 128) % DISTANCES.len()];
        Self {
            count,
            distance: if place < 128 { distance } else { distance.wrapping_neg() },
            stride: [0, 0, 1, 1, 3, 33, 250, 0x9E37_79B1][input.below(8)],
            wrong: input.byte(),
            amount: input.byte(),
            noise: count as u32,
        }
    }

    /// Distances of its packets from the unit seen.
    pub(super) fn distances(&self) -> impl Iterator<Item = u32> + use<> {
        let (distance, stride) = (self.distance, self.stride);
        (0..self.count as u32).map(move |place| distance.wrapping_add(place.wrapping_mul(stride)))
    }

    /// Whether its packets have link sequence numbers that no sender would use next.
    pub(super) fn is_unstamped(&self) -> bool {
        self.wrong & 0x80 != 0
    }

    /// The packet at `distance`, with zeros or noise as its symbol; `None` if `template` is no data
    /// packet.
    pub(super) fn forge(
        &mut self,
        template: &[u8],
        distance: u32,
        is_noisy: bool,
    ) -> Option<Vec<u8>> {
        let header = Header::parse(template).ok()?;
        let mut packet = match header.packet_type {
            PacketType::Stream => self.stream(template, distance)?,
            _ => self.coded(template, distance)?,
        };
        if is_noisy {
            let from = packet.len().saturating_sub(4).max(HEADER_BYTES);
            packet[from..].fill(self.random() as u8);
        }
        if self.is_unstamped() {
            // Decreases with each packet, so that no two look like a restarted neighbour.
            let far = Header::parse(&packet).ok()?.link_sequence ^ 1 << 31;
            write_link_sequence(&mut packet, far.wrapping_sub(self.noise.wrapping_mul(1 << 16)));
        }
        Some(packet)
    }

    fn random(&mut self) -> u32 {
        self.noise = self.noise.wrapping_mul(0x0019_660D).wrapping_add(0x3C6E_F35F);
        self.noise >> 8
    }

    fn coded(&mut self, template: &[u8], distance: u32) -> Option<Vec<u8>> {
        let seen = parse_coded(template).ok()?;
        let wrong = self.wrong;
        let is = |bit: u8| wrong & bit != 0;
        // Blocks take their batches with them.
        let batches = if seen.block.is_some() { distance << 16 } else { distance };
        let common = seen.header.common;
        let common = Header {
            epoch: common.epoch.wrapping_add(if is(2) { self.amount } else { 0 }),
            flags: Flags(common.flags.field_code())
                .with(Flags::SYSTEMATIC, is(8))
                .with(Flags::END, is(16))
                .with(Flags::MENDED, common.flags.has(Flags::MENDED) != is(64)),
            hop_index: if is(32) { self.amount } else { common.hop_index },
            ..common
        };
        let header = CodedHeader {
            common,
            size: if is(1) { 1 + u16::from(self.amount) } else { seen.header.size },
            generation: seen.header.generation.wrapping_add(batches),
            planned: match is(4) {
                true => u16::from(self.amount) << 8 & PLANNED_MAX,
                false => seen.header.planned,
            },
            ..seen.header
        };
        let is_bats = seen.block.is_some();
        let offset = coding_offset(is_bats);
        let size = usize::from(header.size);
        let vector = match is(8) {
            true => INDEX_BYTES,
            false => vector_bytes(size, common.flags.field_code()),
        };
        let symbol_bytes =
            if is(64) { 1 + usize::from(self.amount) / 8 } else { seen.symbol_bytes };
        let mut packet = vec![0; offset + vector + symbol_bytes];
        header.write(&mut packet);
        if let Some(block) = seen.block {
            let number = block.number.wrapping_add(distance as u16);
            let batch = block.batch.wrapping_add(self.random() as u16 % 4);
            Block { number, batch, ..block }.write(&mut packet);
        }
        if is(8) {
            let index = self.random() as usize % size;
            write_index(&mut packet, is_bats, index as u8);
        } else {
            packet[offset..offset + vector].fill_with(|| self.random() as u8);
        }
        Some(packet)
    }

    /// A symbol, a retransmitted symbol, or a keepalive.
    fn stream(&mut self, template: &[u8], distance: u32) -> Option<Vec<u8>> {
        let seen = parse_stream(template).ok()?;
        let wrong = self.wrong;
        let is = |bit: u8| wrong & bit != 0;
        let symbol = seen.symbol().filter(|_| !is(8)).map(|symbol| StreamSymbol {
            place: symbol.place.wrapping_add(distance as u16),
            number: symbol.number.wrapping_add(distance),
            after: if is(16) { u16::from(self.amount) % 64 } else { symbol.after },
            bytes: if is(64) { 1 + u16::from(self.amount) / 8 } else { symbol.bytes },
        });
        let flags = match symbol {
            Some(_) => Flags(Flags::SYSTEMATIC).with(Flags::REPAIR, is(4)),
            None => Flags(Flags::END),
        };
        let flags = flags.with(Flags::INTERACTIVE, self.amount & 1 != 0);
        let flags = flags.with(Flags::PATHS, self.amount & 6 == 6);
        let flags = flags.with(Flags::OPEN_LOOP, self.amount & 24 == 24);
        let common = seen.header.common;
        let common = Header {
            flags,
            epoch: common.epoch.wrapping_add(if is(2) { self.amount } else { 0 }),
            hop_index: if is(32) { self.amount } else { common.hop_index },
            ..common
        };
        let window_log2 = if is(1) { 6 + self.amount % 4 } else { seen.header.window_log2 };
        let round_trips = u16::from(self.amount) << 8;
        Some(stream(&StreamHeader { common, window_log2, round_trips }, symbol))
    }
}
