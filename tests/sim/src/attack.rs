//! Attackers: packets on a link that no node sent, in bursts, at random times.
//!
//! A *blind* attacker knows the flow id and the destination; every number it writes is a guess. An
//! *informed* one also reads the link: it writes the numbers, sizes and epoch of the newest packet,
//! or numbers a chosen distance away, and can replay packets.

use std::ops::Range;

use recoded_pipeline::params::Nanos;
use recoded_wire::coded::{
    BLOCK_SYMBOLS_MAX, Block, CodedHeader, PLANNED_MAX, coding_offset, log2_ceil, vector_bytes,
    write_index,
};
use recoded_wire::feedback::{FeedbackHeader, FlowReport, HopReport, Item, Nack, Writer};
use recoded_wire::header::{Flags, Header, PacketType, VERSION};
use recoded_wire::link::{LINK_BYTES, LINK_GAPS_MAX, LinkGap, LinkReport, Missing, write_link};
use recoded_wire::parse::{Packet, parse};
use recoded_wire::shard::SHARDS_MAX;
use recoded_wire::stream::{
    KEEPALIVE_BYTES, STREAM_BYTES, STREAM_LOG2_MIN, StreamHeader, StreamSymbol, write_symbol,
};

use crate::random::{Random, Stream};
use crate::traffic::FLOW;

/// Longest forged packet: the payload of an Ethernet frame.
const BYTES_MAX: usize = 1472;

/// Items of a hop report that fill a packet.
const ITEMS_MAX: usize = 119;

/// Packets of three bursts of hop reports: together they name every hop index.
const HOPS_BURST: usize = 3;

/// Consecutive packets that a node may take for a restarted source.
const OUT_OF_RANGE_BURST: usize = 4;

/// Packets of a walk: steps of a third of them, three packets each.
const WALK_BURST: usize = 33;

/// Distances at the limits of tables, windows and serial numbers, and neighbouring ones.
const DISTANCES: [u32; 22] = [
    0,
    1,
    2,
    3,
    13,
    14,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    4096,
    65_535,
    65_536,
    1 << 31,
];

/// Knowledge of an attacker.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Knowledge {
    /// Flow id and destination.
    Blind,
    /// Also the packets on the link.
    Informed,
}

/// A kind of forged packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Forgery {
    /// Feedback that names up to 256 hops and their losses.
    Hops,
    /// Feedback with up to 119 items of any kind.
    Feedback,
    /// Feedback with up to 119 NACKs.
    Nacks,
    /// A data packet: any size, plan and symbol length.
    Data,
    /// Consecutive, consistent data packets, like those of a restarted source.
    OutOfRange,
    /// As `OutOfRange`, with numbers that advance in strides.
    Walk,
    /// Link reports with up to 64 gaps.
    Links,
    /// Two data packets whose link sequence numbers are far apart.
    Sequences,
    /// One packet, repeatedly.
    Replay,
    /// Bytes that are no packet.
    Garbage,
}

impl Forgery {
    /// Every kind.
    pub const ALL: [Forgery; 10] = [
        Forgery::Hops,
        Forgery::Feedback,
        Forgery::Nacks,
        Forgery::Data,
        Forgery::OutOfRange,
        Forgery::Walk,
        Forgery::Links,
        Forgery::Sequences,
        Forgery::Replay,
        Forgery::Garbage,
    ];
}

/// An attacker of one direction of a link.
#[derive(Clone, PartialEq, Debug)]
pub struct Attack {
    /// Which link.
    pub hop: usize,
    /// Whether the packets go to the node nearer to the source.
    pub is_up: bool,
    /// When.
    pub during: Range<Nanos>,
    /// Packets in all.
    pub packets: u32,
    /// Kinds of forgery; every burst is one of these.
    pub forgeries: Vec<Forgery>,
    /// Type of forged data packets.
    pub packet_type: PacketType,
    /// Knowledge of the attacker.
    pub knowledge: Knowledge,
}

/// An attacker at work.
pub(crate) struct Attacker<'a> {
    pub attack: &'a Attack,
    random: Random,
    left: u32,
    /// The packet to replay.
    stale: Option<Vec<u8>>,
    /// Numbers guessed before: half of all bursts reuse them.
    guess: Option<Aim>,
    /// Numbers feedback: a repeated name would be taken for a copy.
    feedback: u32,
}

/// The numbers of a forged data packet.
#[derive(Copy, Clone, Debug)]
struct Aim {
    number: u32,
    shard: u8,
    epoch: u8,
    size: u16,
    full_log2: u8,
    window_symbols: u16,
    field: u8,
    symbol_bytes: usize,
    planned: u16,
    link_sequence: u32,
    block: Block,
}

impl<'a> Attacker<'a> {
    pub(crate) fn new(attack: &'a Attack, seed: u64, index: usize) -> Attacker<'a> {
        Attacker {
            attack,
            random: Random::new(seed, Stream::Attack { index }),
            left: attack.packets,
            stale: None,
            guess: None,
            feedback: 0,
        }
    }

    /// Time of the next burst, if the last one ended at `now`: the remaining bursts spread over the
    /// remaining time.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Nanos> {
        let Range { start, end } = self.attack.during;
        let from = now.max(start);
        if self.left == 0 || from >= end || self.attack.forgeries.is_empty() {
            return None;
        }
        let mean = (end - from) / u64::from(self.left.div_ceil(4));
        Some((from + self.random.among(0..=2 * mean)).min(end))
    }

    /// The packets of a burst; `seen` is the newest data packet that the link carried.
    pub(crate) fn strike(&mut self, seen: Option<&[u8]>) -> Vec<Vec<u8>> {
        let seen = seen.filter(|_| self.attack.knowledge == Knowledge::Informed);
        let mut aim = self.aim(seen);
        if seen.is_none() {
            let again = self.random.chance(0.5);
            aim = Aim { epoch: aim.epoch, ..self.guess.filter(|_| again).unwrap_or(aim) };
            self.guess = Some(aim);
        }
        let mut packets = match self.random.pick(&self.attack.forgeries) {
            Forgery::Hops => self.hops(),
            Forgery::Feedback => vec![self.items()],
            Forgery::Nacks => vec![self.nacks(seen.map(|_| aim))],
            Forgery::Data => {
                let moved = self.moved(aim);
                vec![self.data(moved)]
            }
            Forgery::OutOfRange => self.out_of_range(seen.is_some().then_some(aim), aim),
            Forgery::Walk => self.walk(aim),
            Forgery::Links => vec![self.links(aim)],
            Forgery::Sequences => self.sequences(aim),
            Forgery::Replay => self.replay(seen, aim),
            Forgery::Garbage => vec![self.garbage()],
        };
        packets.truncate(self.left as usize);
        self.left -= packets.len() as u32;
        packets
    }

    /// Numbers as the link carries them, or, for a blind attacker, guessed.
    fn aim(&mut self, seen: Option<&[u8]>) -> Aim {
        let random = &mut self.random;
        let size = random.pick(&[1, 1, 1, 2, 16, 64, 256]);
        let source_symbols = random.pick(&[1, 8, 96, 100, BLOCK_SYMBOLS_MAX]);
        let guess = Aim {
            number: random.number() as u32,
            shard: random.pick(&[0, 0, 1, 2, 3, SHARDS_MAX as u8 - 1]),
            epoch: random.number() as u8,
            size,
            full_log2: random.pick(&[log2_ceil(usize::from(size)), 4, 8, 15]),
            window_symbols: random.pick(&[16, 64, 128, 4096]),
            field: random.number() as u8 & Flags::FIELD,
            symbol_bytes: random.pick(&[4, 24, 40, 100, 250]),
            planned: random.pick(&[0, 1, size, 4 * size, PLANNED_MAX]),
            link_sequence: random.number() as u32,
            block: Block {
                number: random.number() as u16,
                batch: random.pick(&[0, 1, 7, 1000, u16::MAX]),
                source_symbols,
                full_log2: random.pick(&[log2_ceil(usize::from(source_symbols)), 7, 15]),
                profile: random.pick(&[0, 1, 2, 2, 2, 15]),
                generator_bits: random.pick(&[1, 2, 4, 8, 8, 8, 0]),
                interleave: random.pick(&[0, 1, 4, 255]),
            },
        };
        seen.and_then(|payload| read(payload, guess)).unwrap_or(guess)
    }

    /// The fields that an informed attacker changes.
    fn moved(&mut self, aim: Aim) -> Aim {
        let distance = self.distance();
        let mut moved = Aim {
            number: aim.number.wrapping_add(distance),
            block: Block { number: aim.block.number.wrapping_add(distance as u16), ..aim.block },
            ..aim
        };
        let random = &mut self.random;
        match random.among(0..=7) {
            0 => moved.epoch = moved.epoch.wrapping_add(random.pick(&[1, 3, 4, 128, 255])),
            1 => moved.size = random.pick(&[1, 2, 16, 256]),
            2 => moved.planned = random.pick(&[0, 1, 300, PLANNED_MAX]),
            3 => moved.block.batch = random.number() as u16 % 32,
            4 => moved.block.source_symbols = random.pick(&[1, 64, 1000, BLOCK_SYMBOLS_MAX]),
            5 => moved.shard = random.among(0..=SHARDS_MAX as u64 - 1) as u8,
            _ => {}
        }
        moved
    }

    fn distance(&mut self) -> u32 {
        let distance = self.random.pick(&DISTANCES);
        if self.random.chance(0.3) { distance.wrapping_neg() } else { distance }
    }

    /// A header, and whether the packet carries a source symbol.
    fn header(&mut self, aim: &Aim) -> (Header, bool) {
        let is_systematic = self.random.chance(0.5);
        let flags = Flags(aim.field & Flags::FIELD).with(Flags::SYSTEMATIC, is_systematic);
        let header = Header {
            packet_type: self.attack.packet_type,
            flags,
            epoch: aim.epoch,
            shard: aim.shard,
            flow: FLOW,
            link_sequence: aim.link_sequence,
            hop_index: self.random.pick(&[0, 0, 1, 2, 255]),
        };
        (header, is_systematic)
    }

    fn data(&mut self, aim: Aim) -> Vec<u8> {
        let (common, is_systematic) = self.header(&aim);
        if common.packet_type == PacketType::Stream {
            return self.stream(aim, common, is_systematic);
        }
        let is_bats = common.packet_type == PacketType::Bats;
        let is_repair = !is_bats && self.random.chance(0.1);
        let header = CodedHeader {
            common,
            size: aim.size,
            full_log2: aim.full_log2,
            planned: aim.planned,
            generation: aim.number,
        };
        let header = header.with(Flags::END, self.random.chance(0.3));
        let header = header.with(Flags::REPAIR, is_repair);
        let offset = coding_offset(is_bats);
        let vector = match is_systematic {
            true => 4,
            false => vector_bytes(usize::from(aim.size), common.flags.field_code()),
        };
        let mut packet = vec![0; (offset + vector + aim.symbol_bytes).min(BYTES_MAX)];
        self.fill(&mut packet[offset..]);
        header.write(&mut packet);
        if is_bats {
            aim.block.write(&mut packet);
        }
        if is_systematic {
            let index = self.random.size(0..=usize::from(aim.size) - 1);
            write_index(&mut packet, is_bats, index as u8);
        }
        packet
    }

    /// A packet of a stream: a symbol, or a keepalive.
    fn stream(&mut self, aim: Aim, common: Header, is_symbol: bool) -> Vec<u8> {
        let flags = match is_symbol {
            true => Flags(Flags::SYSTEMATIC).with(Flags::REPAIR, self.random.chance(0.3)),
            false => Flags(Flags::END),
        };
        let window_log2 = (aim.window_symbols.ilog2() as u8).max(STREAM_LOG2_MIN);
        let round_trips = self.random.pick(&[0, 4, 400, u16::MAX]);
        let common = Header { flags, ..common };
        let header = StreamHeader { common, window_log2, round_trips };
        let bytes = aim.symbol_bytes.clamp(1, 1400) as u16;
        let head = if is_symbol { STREAM_BYTES + usize::from(bytes) } else { KEEPALIVE_BYTES };
        let mut packet = vec![0; head];
        header.write(&mut packet);
        if is_symbol {
            let after = self.random.pick(&[0, 0, 1, 2, 63]);
            let place = self.random.number() as u16;
            let symbol = StreamSymbol { number: aim.number, after, place, bytes };
            write_symbol(&symbol, &mut packet);
            self.fill(&mut packet[STREAM_BYTES..]);
        }
        packet
    }

    /// A report of packets received over a link, with numbers near the current ones.
    fn links(&mut self, aim: Aim) -> Vec<u8> {
        let header = Header {
            packet_type: PacketType::Link,
            flags: Flags::default(),
            epoch: aim.epoch,
            shard: aim.shard,
            flow: FLOW,
            link_sequence: self.random.number() as u32,
            hop_index: 0,
        };
        let horizon = aim.link_sequence.wrapping_add(self.distance());
        let back = self.random.pick(&[0, 1, 32, 1000, 60_000]);
        let random = &mut self.random;
        let report = LinkReport {
            header,
            from: horizon.wrapping_sub(back),
            horizon,
            latest: horizon.wrapping_sub(random.pick(&[0, 1, 1, 5])),
            arrived: random.number() as u32,
            held: random.pick(&[0, 10, u16::MAX]),
            backlog: random.pick(&[0, 0, 100, u16::MAX]),
            beyond: random.pick(&[0, 0, 100, u16::MAX]),
            bytes: random.number() as u32,
            packets: random.number() as u32,
            missing: Missing::of((0..random.among(0..=7)).map(|_| random.number() as u16)),
        };
        let count = random.pick(&[0, 1, LINK_GAPS_MAX]);
        let gaps: Vec<LinkGap> = (0..count)
            .map(|_| LinkGap {
                first: horizon.wrapping_sub(random.among(0..=u64::from(back)) as u32),
                count: random.pick(&[1, 1, 2, 1000]),
            })
            .collect();
        let mut packet = vec![0; LINK_BYTES + 4 * LINK_GAPS_MAX];
        let length = write_link(&report, gaps.into_iter(), &mut packet);
        packet.truncate(length);
        packet
    }

    /// Consecutive packets with numbers far out of range; those of a blind attacker are arbitrary.
    fn out_of_range(&mut self, near: Option<Aim>, aim: Aim) -> Vec<Vec<u8>> {
        let first = near.map_or(aim, |near| {
            let mut far = self.moved(near);
            far.number = far.number.wrapping_add(self.random.pick(&[0, 300, 70_000]));
            far
        });
        let stride = self.random.pick(&[0, 1]);
        self.row(first, OUT_OF_RANGE_BURST, |place| stride * place as u32)
    }

    fn walk(&mut self, aim: Aim) -> Vec<Vec<u8>> {
        let stride = self.random.pick(&[1, 33, 250, 60_000]);
        self.row(aim, WALK_BURST, |place| (place as u32 / 3 + 1) * stride)
    }

    /// Packets that differ only in their numbers.
    fn row(&mut self, first: Aim, count: usize, offset: impl Fn(usize) -> u32) -> Vec<Vec<u8>> {
        let at = |place: usize| Aim {
            number: first.number.wrapping_add(offset(place)),
            link_sequence: first.link_sequence.wrapping_add(place as u32),
            block: Block {
                number: first.block.number.wrapping_add(offset(place) as u16),
                ..first.block
            },
            ..first
        };
        (0..count).map(|place| self.data(at(place))).collect()
    }

    fn sequences(&mut self, aim: Aim) -> Vec<Vec<u8>> {
        let gap = self.random.pick(&[100, 255, 4000, 16_383]);
        let far = Aim { link_sequence: aim.link_sequence.wrapping_add(gap), ..aim };
        [aim, far].map(|aim| self.data(aim)).into()
    }

    fn replay(&mut self, seen: Option<&[u8]>, aim: Aim) -> Vec<Vec<u8>> {
        let stale = match self.stale.take() {
            Some(stale) => stale,
            None => seen.map_or_else(|| self.data(aim), <[u8]>::to_vec),
        };
        let copies = self.random.size(1..=8);
        self.stale = Some(stale.clone());
        vec![stale; copies]
    }

    fn garbage(&mut self) -> Vec<u8> {
        let length = self.random.size(0..=BYTES_MAX);
        let mut packet = vec![0; length];
        self.fill(&mut packet);
        if self.random.chance(0.5) && length > 0 {
            packet[0] = VERSION << 4 | packet[0] & 15;
        }
        packet
    }

    /// Every hop there can be, at one loss.
    fn hops(&mut self) -> Vec<Vec<u8>> {
        let loss = self.random.pick(&[0.0, 0.1, 0.6, 1.0]);
        let burst_mean = self.random.pick(&[1.0, 8.0, 255.0]);
        let count = self.random.pick(&[1, 8, ITEMS_MAX, ITEMS_MAX]);
        let first = self.random.number() as u8;
        let hop = |at: usize| HopReport { hop: first.wrapping_add(at as u8), loss, burst_mean };
        let packet = |place| {
            let items = place * count..(place + 1) * count;
            self.report(|_, writer| items.for_each(|at| _ = writer.push(Item::Hop(hop(at)))))
        };
        (0..HOPS_BURST).map(packet).collect()
    }

    fn nacks(&mut self, near: Option<Aim>) -> Vec<u8> {
        let count = self.random.pick(&[1, 4, 32, ITEMS_MAX]);
        let is_blocks = self.attack.packet_type == PacketType::Bats;
        self.report(|random, writer| {
            for back in 0..count as u32 {
                let number = match near {
                    Some(aim) if is_blocks => u32::from(aim.block.number).wrapping_sub(back),
                    Some(aim) => aim.number.wrapping_sub(back),
                    None => random.number() as u32,
                };
                let missing = random.pick(&[1, 16, Nack::ALL]);
                let round = random.among(0..=5) as u8;
                writer.push(Item::Nack(Nack { unit: number, missing, round }));
            }
        })
    }

    /// Items of every kind.
    fn items(&mut self) -> Vec<u8> {
        let count = self.random.size(0..=ITEMS_MAX);
        self.report(|random, writer| {
            for _ in 0..count {
                item(random, writer);
            }
        })
    }

    /// A feedback packet.
    fn report(&mut self, fill: impl FnOnce(&mut Random, &mut Writer<'_>)) -> Vec<u8> {
        let common = Header {
            packet_type: PacketType::Feedback,
            flags: Flags::default(),
            epoch: 0,
            shard: self.random.among(0..=3) as u8,
            flow: FLOW,
            link_sequence: self.random.number() as u32,
            hop_index: self.random.pick(&[0, 1, 50, 254, 255]),
        };
        let node = self.random.number() as u32;
        let header = FeedbackHeader { common, node, number: self.feedback };
        self.feedback = self.feedback.wrapping_add(1);
        let mut packet = vec![0; BYTES_MAX];
        header.write(&mut packet);
        let mut writer = Writer::new(&mut packet);
        fill(&mut self.random, &mut writer);
        let length = writer.finish();
        packet.truncate(length);
        packet
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.random.number() as u8);
    }
}

/// Numbers of a data packet; `guess` for those it does not carry.
fn read(payload: &[u8], guess: Aim) -> Option<Aim> {
    let packet = parse(payload).ok()?;
    let header = *packet.header();
    let aim = Aim {
        shard: header.shard,
        epoch: header.epoch,
        field: header.flags.field_code(),
        link_sequence: header.link_sequence,
        ..guess
    };
    Some(match packet {
        Packet::Coded(coded) => Aim {
            number: coded.header.generation,
            size: coded.header.size,
            full_log2: coded.header.full_log2,
            planned: coded.header.planned,
            symbol_bytes: coded.symbol_bytes,
            block: coded.block.unwrap_or(guess.block),
            ..aim
        },
        Packet::Stream(stream) => Aim {
            number: stream.symbol().map_or(guess.number, |symbol| symbol.number),
            window_symbols: stream.header.window_symbols() as u16,
            ..aim
        },
        _ => return None,
    })
}

fn item(random: &mut Random, writer: &mut Writer<'_>) {
    let item = match random.among(0..=4) {
        0 => Item::Hop(HopReport {
            hop: random.number() as u8,
            loss: random.unit() as f32,
            burst_mean: random.between(0.0, 300.0) as f32,
        }),
        1 => Item::Flow(FlowReport {
            newest: random.number() as u32,
            complete: random.number() as u32,
            failed: random.number() as u32,
        }),
        2 => Item::BlockAck(random.number() as u16),
        3 => Item::Nack(Nack {
            unit: random.number() as u32,
            missing: random.number() as u16,
            round: random.number() as u8 % 8,
        }),
        _ => {
            let counts: Vec<u32> =
                (0..random.size(1..=257)).map(|_| random.number() as u32).collect();
            writer.push_ranks(random.number() as u8, counts.into_iter());
            return;
        }
    };
    writer.push(item);
}
