//! The paper's unit, simulated: its output equals the codec's, in every setup and with every
//! memory, and its experiments reproduce the paper's order.

mod common;

use rand_chacha::rand_core::Rng;
use recoded_code::bats::{Batch, Code, PAPER_ROW_DEGREES, Params};
use recoded_fpga::sim::seed::{
    BATCH_SIZE, BEAT_BYTES, ChannelModel, Encoded, Policy, SYMBOLS, SeedError, Setup, encode,
    schedule,
};
use recoded_gf::Kernel;

/// Batches of a block encoded by the codec.
fn reference(bits: u8, block: &[u8], batches: u16) -> Vec<u8> {
    let params = Params { generator_bits: bits, ..Params::default() };
    let code = Code::with_row_degrees(params, &PAPER_ROW_DEGREES).expect("valid parameters");
    let packet_bytes = block.len() / SYMBOLS;
    let packets: Vec<&[u8]> = block.chunks_exact(packet_bytes).collect();
    let mut coded = vec![0; usize::from(batches) * BATCH_SIZE * packet_bytes];
    let mut batch = Batch::new();
    for (id, out) in (0..batches).zip(coded.chunks_exact_mut(BATCH_SIZE * packet_bytes)) {
        code.batch(id, &mut batch);
        let sources: Vec<&[u8]> =
            batch.indices().iter().map(|&index| packets[usize::from(index)]).collect();
        let mut rows: Vec<&mut [u8]> = out.chunks_exact_mut(packet_bytes).collect();
        Kernel::best().matmul(batch.generator(), &sources, &mut rows);
    }
    coded
}

fn setup(units: usize, adapters: usize, channels: usize) -> Setup {
    Setup {
        bits: 2,
        units,
        adapters,
        ports: 1,
        policy: Policy::LongestFirst,
        memory: ChannelModel { channels, ..ChannelModel::default() },
    }
}

fn block(seed: u64, beats: usize) -> Vec<u8> {
    let mut block = vec![0; SYMBOLS * beats * BEAT_BYTES];
    common::random(seed).fill_bytes(&mut block);
    block
}

#[track_caller]
fn encodes(setup: &Setup, block: &[u8], batches: u16) -> Encoded {
    let encoded = encode(setup, block, batches);
    let encoded = encoded.unwrap_or_else(|error| panic!("{setup:?}: {error}"));
    assert!(encoded.coded == reference(setup.bits, block, batches), "{setup:?}: other bytes");
    encoded
}

/// Fifteen batches: all rows of the base graph, shifted and not.
#[test]
fn every_width_of_coefficients_encodes_as_the_codec() {
    for bits in [2, 3, 4, 8] {
        encodes(&Setup { bits, ..setup(1, 1, 1) }, &block(u64::from(bits), 1), 15);
    }
}

/// Packets of one beat to more than two chunks; more batches than a round of shifts in the window.
#[test]
fn every_policy_and_setup_encodes_as_the_codec() {
    let setups = [(8, 8, 8), (8, 1, 1), (8, 4, 2), (2, 2, 2)];
    let policies = [Policy::InOrder, Policy::Mirrored, Policy::LongestFirst];
    let lengths = [(1, 50), (5, 33), (16, 9), (33, 8)];
    for (index, (beats, batches)) in lengths.into_iter().enumerate() {
        let block = block(index as u64, beats);
        let (units, adapters, channels) = setups[index];
        for policy in policies {
            let ports = 1 + index % 2;
            let setup = Setup { policy, ports, ..setup(units, adapters, channels) };
            encodes(&setup, &block, batches);
        }
    }
}

#[test]
fn memory_that_stutters_changes_nothing_but_the_time() {
    let block = block(7, 17);
    let smooth = encodes(&setup(4, 2, 1), &block, 12);
    let mut setup = setup(4, 2, 1);
    setup.memory = ChannelModel { back_pressure: 0.4, write_latency: 400, ..setup.memory };
    let stuttering = encodes(&setup, &block, 12);
    assert!(stuttering.cycles > smooth.cycles);
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let block = block(1, 1);
    assert_eq!(encode(&setup(3, 1, 1), &block, 1), Err(SeedError::Setup));
    assert_eq!(encode(&Setup { bits: 5, ..setup(1, 1, 1) }, &block, 1), Err(SeedError::Setup));
    assert_eq!(encode(&setup(1, 1, 1), &block[1..], 1), Err(SeedError::Block));
    assert_eq!(encode(&setup(1, 1, 1), &[], 1), Err(SeedError::Block));
}

#[test]
fn nothing_to_make_takes_no_time() {
    let nothing = encodes(&setup(8, 8, 8), &block(1, 1), 0);
    assert_eq!(nothing.cycles, 0);
}

/// Time of the compute units, in units of a byte's products with one coefficient, as in the paper's
/// figure 5. 32 batches on eight of them are 519 / 8 = 64.9 on average.
fn makespan(units: usize, policy: Policy, batches: u16) -> u64 {
    let clocks = std::array::from_fn(|row| {
        PAPER_ROW_DEGREES.get(row).map_or(0, |&degree| u32::from(degree) * CLOCKS_PER_DEGREE)
    });
    let schedule = schedule(units, policy, batches, &clocks).expect("it hands out every batch");
    for (number, (_, row)) in schedule.batches.iter().enumerate() {
        assert_eq!(usize::from(*row), number % PAPER_ROW_DEGREES.len(), "batch {number}");
    }
    schedule.clocks / u64::from(CLOCKS_PER_DEGREE)
}

/// High enough to make the time of assignment negligible.
const CLOCKS_PER_DEGREE: u32 = 10_000;

#[test]
fn longest_first_ends_soonest() {
    assert_eq!(makespan(8, Policy::InOrder, 32), 80);
    assert_eq!(makespan(8, Policy::Mirrored, 32), 90);
    let longest_first = makespan(8, Policy::LongestFirst, 32);
    assert!(longest_first <= 67, "{longest_first}, and 65 is ideal");
}

/// Whatever the policy and the number of batches, each is assigned once, in its row.
#[test]
fn every_batch_is_handed_out_once() {
    for policy in [Policy::InOrder, Policy::Mirrored, Policy::LongestFirst] {
        for units in [1, 2, 4, 8] {
            for batches in [0, 1, 6, 31, 33, 100] {
                makespan(units, policy, batches);
            }
        }
    }
}

/// The paper's experiments A to J: compute units, ports, adapters, channels, whether load is
/// balanced. `F` is without.
fn experiment(name: char) -> Setup {
    let (units, ports, adapters, channels) = match name {
        'A' | 'F' => (8, 1, 8, 8),
        'B' => (8, 1, 1, 1),
        'C' => (8, 1, 2, 2),
        'D' => (8, 1, 4, 4),
        'E' => (8, 1, 4, 2),
        'G' => (4, 1, 4, 4),
        'H' => (2, 1, 2, 2),
        'I' => (1, 1, 1, 1),
        'J' => (8, 2, 8, 8),
        _ => unreachable!("there are ten"),
    };
    let policy = if name == 'F' { Policy::InOrder } else { Policy::LongestFirst };
    Setup { ports, policy, ..setup(units, adapters, channels) }
}

/// Table II: B < C < E <= D < A < J, F < A, I < H < G < A. Packets of 1,024 bytes.
#[test]
fn experiments_come_out_in_the_order_of_the_paper() {
    let block = block(11, 32);
    let cycles = |name| encode(&experiment(name), &block, 32).expect("it comes to an end").cycles;
    let measured: Vec<(char, u64)> = ('A'..='J').map(|name| (name, cycles(name))).collect();
    println!("clocks: {measured:?}");
    let of = |name: char| measured[name as usize - 'A' as usize].1;
    assert!(of('B') > of('C') && of('C') > of('E') && of('E') >= of('D'), "{measured:?}");
    assert!(of('D') > of('A') && of('A') > of('J') && of('F') > of('A'), "{measured:?}");
    assert!(of('I') > of('H') && of('H') > of('G') && of('G') > of('A'), "{measured:?}");
}
