//! The redundancy plan against simulated channels and real elimination.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::Elimination;
use recoded_code::theory::{LossModel, plan};
use recoded_gf::FieldOrder;

const SEED: u64 = 0x0009_4261_1D00;

/// Generations simulated per case.
const TRIALS: usize = 20_000;

fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Whether a node holding the generation fails to deliver it with `packets` packets: systematic
/// ones, then random combinations, through a Gilbert-Elliott channel in equilibrium.
fn fails(
    rng: &mut ChaCha8Rng,
    elimination: &mut Elimination,
    size: usize,
    field: FieldOrder,
    hop: LossModel,
    packets: usize,
) -> bool {
    elimination.reset(size);
    let bursty = hop.burst_mean * (1.0 - hop.loss) > 1.0;
    let stays_bad = if bursty { 1.0 - 1.0 / hop.burst_mean } else { hop.loss };
    let turns_bad = if bursty { hop.loss / (1.0 - hop.loss) / hop.burst_mean } else { hop.loss };
    let mut bad = uniform(rng) < hop.loss;
    let mut vector = vec![0; size];
    for packet in 0..packets {
        if !bad && packet < size {
            elimination.insert_unit(packet);
        } else if !bad {
            rng.fill_bytes(&mut vector);
            vector.iter_mut().for_each(|element| *element = field.embed(*element));
            elimination.insert(&vector);
        }
        bad = uniform(rng) < if bad { stays_bad } else { turns_bad };
    }
    !elimination.is_complete()
}

/// Simulates the union bound: the mean over trials of the number of hops that fail.
fn check(size: usize, field: FieldOrder, hops: &[LossModel], target: f64) {
    println!("seed {SEED}");
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut elimination = Elimination::new(size);
    let planned = plan(size, field, hops, target, 4 * size);
    assert!(planned > size && planned < 4 * size, "the case tests something: {planned}");
    let mut failures_per_generation = |packets| {
        let mut failures = 0;
        for _ in 0..TRIALS {
            for &hop in hops {
                failures +=
                    usize::from(fails(&mut rng, &mut elimination, size, field, hop, packets));
            }
        }
        failures as f64 / TRIALS as f64
    };
    let sigma = (target / TRIALS as f64).sqrt();
    let enough = failures_per_generation(planned);
    let fewer = failures_per_generation(planned - 1);
    println!("size {size}, GF({field}): {planned} packets fail {enough}, one less {fewer}");
    assert!(enough <= target + 3.0 * sigma, "{planned} packets fail {enough}, target {target}");
    assert!(fewer > target - 3.0 * sigma, "{planned} packets are more than {target} needs");
}

#[test]
fn plan_for_independent_losses_meets_its_target_and_no_more() {
    check(16, FieldOrder::Sixteen, &[LossModel::independent(0.1)], 0.02);
    check(16, FieldOrder::Two, &[LossModel::independent(0.1), LossModel::independent(0.2)], 0.03);
    check(32, FieldOrder::TwoFiftySix, &[LossModel::independent(0.05); 3], 0.01);
}

#[test]
fn plan_for_bursts_meets_its_target_and_no_more() {
    check(16, FieldOrder::Four, &[LossModel { loss: 0.1, burst_mean: 4.0 }], 0.05);
    let hops = [LossModel { loss: 0.05, burst_mean: 8.0 }, LossModel::independent(0.1)];
    check(24, FieldOrder::Sixteen, &hops, 0.05);
}
