//! Packets that are well formed and false: all of their claims end in a counted reason, and cost no
//! memory beyond the flow's initial allocation.

use crate::common;
use crate::common::{DOWN, Outputs, UP, bats, coded, params};
use recoded_pipeline::egress::Answer;
use recoded_pipeline::memory::HeapFrames;
use recoded_pipeline::params::{FlowParams, Role, Snapshot, TunnelId};
use recoded_pipeline::report::{DropReason, FlowCounters, Report};
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::coded::{
    BLOCK_BYTES, BLOCK_SYMBOLS_MAX, Block, CODED_BYTES, CodedHeader, SIZE_MAX,
};
use recoded_wire::header::{PacketType, write_link_sequence};

const FRAMES: usize = 1024;
const SIZE: usize = 16;
const SYMBOL_BYTES: usize = 200;
const MILLI: u64 = 1_000_000;

/// Packets of random content at the end of each test: enough to fill every table many times.
const PACKETS: u32 = 30_000;

struct Host {
    pipeline: Pipeline,
    frames: HeapFrames,
    outputs: Outputs,
    sent_down: u64,
    packets: u64,
    /// Fewest frames that were free.
    free_min: usize,
}

/// A relay, and a sink of blocks of up to 64 symbols.
fn hosts() -> [Host; 2] {
    let relay = Role::Relay { upstream: UP };
    let sink = Role::Sink { tunnel: TunnelId(0), upstream: UP };
    [relay, sink].map(|role| {
        let flow = FlowParams { code: bats(64), ..params(role) };
        Host {
            pipeline: Pipeline::new(&Snapshot { edition: 1, flows: vec![flow] }, 1),
            frames: HeapFrames::new(FRAMES, 2048),
            outputs: Outputs::counting(FRAMES, None),
            sent_down: 0,
            packets: 0,
            free_min: FRAMES,
        }
    })
}

impl Host {
    fn receive(&mut self, packet: &[u8], now: u64) {
        let span = self.frames.receive(packet).expect("a free frame");
        let datagram = Datagram::best_effort(Some(UP), span);
        self.pipeline.receive(&mut self.frames, &mut self.outputs, datagram, now);
        self.pipeline.tick(&mut self.frames, &mut self.outputs, now);
        self.packets += 1;
        self.sent_down += self.outputs.sent.iter().filter(|sent| sent.hop == DOWN).count() as u64;
        self.outputs.release(&mut self.frames);
        self.free_min = self.free_min.min(self.frames.free());
    }

    fn report(&self) -> Report {
        self.pipeline.report()
    }

    fn counters(&self) -> FlowCounters {
        self.report().flows[0].counters.clone()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.report().packets.dropped[reason as usize]
    }

    /// Receives the packet that `make` builds for each number. Checks that nothing was allocated
    /// for it, that every packet has its outcome, that some frames were always free, and that all
    /// are free in the end.
    fn flood(mut self, mut make: impl FnMut(u32, &mut [u8]) -> usize) -> Host {
        let mut buffer = vec![0; 1024];
        let mut run = |host: &mut Host, numbers: std::ops::Range<u32>| {
            for number in numbers {
                let length = make(number, &mut buffer);
                host.receive(&buffer[..length], u64::from(number) * MILLI / 10);
            }
        };
        run(&mut self, 0..2_000); // the first packets of a flow open it
        self.outputs.stages.answer = Answer::Busy;
        let allocated = allocation_counter::measure(|| run(&mut self, 2_000..PACKETS));
        assert_eq!(allocated.count_total, 0, "{allocated:?}");
        let packets = self.report().packets;
        let fates = packets.forwarded + packets.consumed + packets.dropped.iter().sum::<u64>();
        assert_eq!((packets.received, fates), (self.packets, self.packets));
        assert!(self.free_min > 0, "no frame was free");
        self.pipeline.release(&mut self.frames);
        assert_eq!(self.frames.free(), FRAMES, "frames leaked");
        self
    }
}

fn header(generation: u32, size: usize, link_sequence: u32) -> CodedHeader {
    coded(common::header(PacketType::Bats, 3, link_sequence), generation, size as u16)
}

/// Block of 64 symbols; serial numbers of its batches begin at 100 times its own.
fn block(number: u16, batch: u16) -> Block {
    Block {
        number,
        batch,
        source_symbols: 64,
        full_log2: 6,
        profile: 2,
        generator_bits: 8,
        interleave: 1,
    }
}

/// Writes a packet whose vector and payload are noise; returns its length.
fn write(out: &mut [u8], header: CodedHeader, block: Block, noise: u32) -> usize {
    let length = CODED_BYTES + BLOCK_BYTES + usize::from(header.size) + SYMBOL_BYTES;
    let mut state = u64::from(noise) << 1 | 1;
    for byte in &mut out[..length] {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        *byte = (state >> 56) as u8;
    }
    header.write(out);
    block.write(out);
    length
}

fn scrambled(number: u32) -> u32 {
    number.wrapping_mul(0x9E37_79B1)
}

/// Vectors and payloads are noise in a consistent form: blocks decode to garbage.
#[test]
fn random_payload_sets_decode_to_framing_errors() {
    let [relay, sink] = hosts();
    let make = |number: u32, out: &mut [u8]| {
        let (block_number, batch) = (number / 80, number % 80 / 16);
        let header = header(block_number * 5 + batch, SIZE, number);
        write(out, header, block(block_number as u16, batch as u16), number)
    };
    let relay = relay.flood(make);
    let counters = relay.counters();
    assert!(counters.generations_complete > 1_500, "{counters:?}");
    assert!(relay.sent_down <= 2 * u64::from(PACKETS), "{}", relay.sent_down);
    let sink = sink.flood(make);
    let counters = sink.counters();
    assert!(counters.generations_complete > 300, "{counters:?}");
    assert!(counters.framing_errors > 30, "{counters:?}");
}

/// Every other packet contradicts the first of its block: in its block word, batch size, field,
/// epoch.
//= docs/protocol §2.4(b)
#[test]
fn contradictions_are_mismatches() {
    for (role, host) in hosts().into_iter().enumerate() {
        let host = host.flood(|number, out| {
            let (block_number, batch) = (number / 32, number % 32 / 16);
            let mut header = header(block_number * 2 + batch, SIZE, number);
            let mut block = block(block_number as u16, batch as u16);
            if number % 2 == 1 {
                match number / 2 % 6 {
                    0 => block.source_symbols = 63,
                    1 => block.profile = 1,
                    2 => block.generator_bits = 2,
                    3 => block.interleave = 9,
                    4 => header.common.epoch = 1,
                    _ => header.size = 15,
                }
            }
            write(out, header, block, number)
        });
        let mismatches = host.dropped(DropReason::Mismatch);
        assert!(mismatches > u64::from(PACKETS) / 3, "role {role}: {mismatches}");
    }
}

/// The same batch ids of the same block under other batch sizes, fields and serial numbers,
/// repeatedly.
#[test]
fn a_batch_id_with_other_parameters_is_refused() {
    let [relay, sink] = hosts();
    let make = |number: u32, out: &mut [u8]| {
        let size = 1 + number as usize % SIZE;
        let header = header(7 + number % 3, size, number);
        write(out, header, block(1, 3), number)
    };
    for host in [relay.flood(make), sink.flood(make)] {
        assert!(host.dropped(DropReason::Mismatch) > u64::from(PACKETS) / 2);
        let allowed = 4 * u64::from(PACKETS);
        assert!(host.sent_down <= allowed, "{} packets sent", host.sent_down);
    }
}

/// Batches of rank one only, of blocks that need sixty-four: none ever suffices.
#[test]
fn blocks_that_never_get_enough_are_given_up() {
    let [_, sink] = hosts();
    let sink = sink.flood(|number, out| {
        let (block_number, batch) = (number / 20, number % 20);
        let header = header(block_number * 20 + batch, SIZE, number);
        write(out, header, block(block_number as u16, batch as u16), block_number)
    });
    let counters = sink.counters();
    assert_eq!(counters.generations_complete, 0);
    assert!(counters.generations_failed > 1_000, "{counters:?}");
    // Those in the table when the flood ended have requested more, too.
    let ended = counters.generations + 64;
    assert!(counters.repairs <= 4 * 3 * ended, "{counters:?}");
}

/// Endless batch ids: a block accepts as many as it has room for.
#[test]
fn batches_beyond_the_room_of_a_block_are_refused() {
    let [_, sink] = hosts();
    let sink = sink.flood(|number, out| {
        let header = header(number, SIZE, number);
        write(out, header, block(0, scrambled(number) as u16), 1)
    });
    assert!(sink.dropped(DropReason::BatchesExhausted) > u64::from(PACKETS) / 2);
}

/// Blocks with as many symbols as a header can express, and the longest vectors in packets that
/// hold a few elements: a sink refuses each before any work for it. The shortest of many rounds
/// counts, as the host has other work.
#[test]
fn absurd_sizes_are_refused_in_less_time_than_a_good_packet_takes() {
    const ROUND: usize = 1000;
    // Time limit per refused packet; test builds are far slower.
    const NANOS_MAX: u128 = if cfg!(debug_assertions) { 2000 } else { 200 };
    let [_, mut host] = hosts();
    let mut buffer = vec![0; 1024];
    let good = write(&mut buffer, header(0, SIZE, 1), block(0, 0), 1);
    host.receive(&buffer[..good], 0);
    let before = host.report().packets.dropped.iter().sum::<u64>();
    let absurd = |size: usize, block: Block| {
        let mut bytes = vec![0; 1024];
        let length = write(&mut bytes, header(100, SIZE, 2), block, 2);
        CodedHeader { size: size as u16, ..header(100, SIZE, 2) }.write(&mut bytes);
        // The vector is cut off where its announced length ends.
        bytes[..length.min(CODED_BYTES + BLOCK_BYTES + 2 * SIZE)].to_vec()
    };
    let symbols = Block { source_symbols: BLOCK_SYMBOLS_MAX, full_log2: 15, ..block(1, 0) };
    let mut packets = [absurd(SIZE, symbols), absurd(SIZE_MAX, block(1, 0))];
    let mut sequence = 1;
    let mut round = || {
        let begun = std::time::Instant::now();
        for number in 0..ROUND {
            sequence += 1;
            write_link_sequence(&mut packets[number % 2], sequence);
            host.receive(&packets[number % 2], MILLI);
        }
        begun.elapsed().as_nanos() / ROUND as u128
    };
    let nanos = (0..50).map(|_| round()).min().expect("some rounds");
    println!("{nanos} ns for a packet that is refused");
    assert!(nanos < NANOS_MAX, "{nanos} ns for a packet that is refused");
    let refused = host.report().packets.dropped.iter().sum::<u64>() - before;
    assert_eq!(refused, 50 * ROUND as u64);
}

/// Sizes that the flow does not allow, and meaningless values.
#[test]
fn what_a_flow_does_not_allow_is_refused_by_reason() {
    let [_, sink] = hosts();
    let sink = sink.flood(|number, out| {
        let mut header = header(number, SIZE, number);
        let mut block = block(number as u16, 0);
        // Another epoch, since all packets of one have the same sizes.
        header.common.epoch = u8::from(number % 4 < 2);
        match number % 4 {
            0 | 1 => header.size = 129 + (scrambled(number) % 100) as u16,
            2 => block.profile = 3 + (scrambled(number) % 13) as u8,
            _ => block.generator_bits = [0, 5, 6, 7, 9, 15][scrambled(number) as usize % 6],
        }
        write(out, header, block, number)
    });
    let half = u64::from(PACKETS) / 2;
    assert_eq!(sink.dropped(DropReason::Oversize), half);
    assert_eq!(sink.dropped(DropReason::Malformed), half);
}
