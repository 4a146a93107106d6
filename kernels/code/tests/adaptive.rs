//! Adaptive recoding in practice: coding vectors over a lossy line, relays that follow their
//! tables.

#![forbid(unsafe_code)]

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::Elimination;
use recoded_code::theory::adaptive::{Adaptive, Outgoing, RecodingTable, adaptive_line};
use recoded_code::theory::{LossModel, Recoding, expected_rank};
use recoded_gf::FieldOrder;

const SIZE: usize = 16;

const LOSS: f64 = 0.15;

const HOPS: usize = 6;

const BATCHES: usize = 4000;

fn outgoing() -> Outgoing {
    let hop = LossModel::independent(LOSS);
    Outgoing::equal_airtime(SIZE, FieldOrder::Two, hop, Recoding::Systematic)
}

fn lost(rng: &mut ChaCha8Rng) -> bool {
    f64::from(rng.next_u32()) < LOSS * 2_f64.powi(32)
}

/// Sends a node's packets over one hop: `packets` of them, first its own, then random sums of them.
/// Returns the innovative arrivals.
fn send(
    rng: &mut ChaCha8Rng,
    elimination: &mut Elimination,
    held: &[[u8; SIZE]],
    packets: usize,
) -> Vec<[u8; SIZE]> {
    elimination.reset(SIZE);
    let mut arrived = Vec::new();
    for packet in 0..packets {
        let vector = held.get(packet).copied().unwrap_or_else(|| {
            let mut sum = [0; SIZE];
            for vector in held.iter().filter(|_| rng.next_u32() >> 31 == 1) {
                sum.iter_mut().zip(vector).for_each(|(sum, element)| *sum ^= element);
            }
            sum
        });
        if !lost(rng) {
            let before = elimination.rank();
            elimination.insert(&vector);
            if elimination.rank() > before {
                arrived.push(vector);
            }
        }
    }
    arrived
}

/// Mean rank behind the last hop as a fraction, its standard error, and mean packets sent per batch
/// and hop.
fn simulate(rng: &mut ChaCha8Rng, tables: &[RecodingTable]) -> (f64, f64, f64) {
    let mut elimination = Elimination::new(SIZE);
    let (mut sum, mut squares, mut sent) = (0.0, 0.0, 0);
    for _ in 0..BATCHES {
        let unit = |index| std::array::from_fn(|element| u8::from(element == index));
        let mut held: Vec<[u8; SIZE]> = (0..SIZE).map(unit).collect();
        for table in tables {
            let packets = table.packets(held.len(), rng.next_u32());
            sent += packets;
            held = send(rng, &mut elimination, &held, packets);
        }
        let rank = held.len() as f64 / SIZE as f64;
        (sum, squares) = (sum + rank, squares + rank * rank);
    }
    let batches = BATCHES as f64;
    let (mean, packets) = (sum / batches, sent as f64 / batches / tables.len() as f64);
    (mean, ((squares / batches - mean * mean) / batches).sqrt(), packets)
}

#[test]
fn relays_that_follow_their_tables_reach_the_expected_rank_at_equal_airtime() {
    let seed = std::env::var("RECODED_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("RECODED_SEED={seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let line = adaptive_line(&outgoing(), &[LossModel::independent(LOSS); HOPS]);
    let tables: Vec<_> = line.iter().map(|hop| hop.table.clone()).collect();
    let (rank, error, packets) = simulate(&mut rng, &tables);
    let expected = line[HOPS - 1].expected_rank();
    println!("rank {rank:.4} +- {error:.4}, theory {expected:.4}; {packets:.3} packets per hop");
    assert!((rank - expected).abs() < 4.0 * error, "{rank} +- {error}, theory {expected}");
    assert!((packets - SIZE as f64).abs() < 0.1, "{packets} packets per batch and hop");
    let fixed = vec![RecodingTable::fixed(SIZE, SIZE as u16); HOPS];
    let (baseline, error, _) = simulate(&mut rng, &fixed);
    let unadapted =
        expected_rank(SIZE, FieldOrder::Two, &[SIZE; HOPS], &[LOSS; HOPS], Recoding::Systematic);
    let unadapted = unadapted[HOPS - 1];
    println!("without tables {baseline:.4} +- {error:.4}, theory {unadapted:.4}");
    assert!((baseline - unadapted).abs() < 4.0 * error, "{baseline} +- {error}, {unadapted}");
    assert!(expected > unadapted + 0.01, "adapting gains: {expected} against {unadapted}");
}

#[test]
fn tables_from_few_measured_batches_are_nearly_as_good() {
    let seed = std::env::var("RECODED_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("RECODED_SEED={seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let line = adaptive_line(&outgoing(), &[LossModel::independent(LOSS); 4]);
    let ranks = &line[3].ranks;
    let mut adaptive = Adaptive::new(SIZE, 4 * SIZE);
    let exact = adaptive.table(&outgoing(), ranks);
    for batches in [30, 100, 1000] {
        let mut histogram = [0.0; SIZE + 1];
        for _ in 0..batches {
            let mut draw = f64::from(rng.next_u32()) / 2_f64.powi(32);
            let rank = ranks.iter().position(|probability| {
                draw -= probability;
                draw < 0.0
            });
            histogram[rank.unwrap_or(SIZE)] += 1.0;
        }
        let measured = adaptive.table(&outgoing(), &histogram);
        let mean = |table: &RecodingTable| -> f64 {
            let ranks = ranks.iter().enumerate();
            ranks.map(|(rank, probability)| probability * table.mean_packets(rank)).sum()
        };
        println!("{batches} batches: {:.3} packets, exact {:.3}", mean(&measured), mean(&exact));
        // The sampling error of the mean rank moves the airtime equally: half a packet at 30
        // batches.
        let tolerance = 4.0 * 2.5 / f64::from(batches).sqrt();
        assert!((mean(&measured) - mean(&exact)).abs() < tolerance, "{batches} batches");
    }
}
