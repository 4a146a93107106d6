//! Rank of a BATS source's batches at the sink.

use crate::config::report::HopLoss;
use crate::plan::{HopList, LOSS_UNKNOWN};

/// Largest batch.
pub(crate) const SIZE_MAX: usize = recoded_code::bats::BATCH_SIZE_MAX;

/// Mean and variance of the rank of a batch at the sink.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Rank {
    pub mean: f64,
    pub variance: f64,
}

/// Inputs of a model.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    /// Largest batch.
    pub size: usize,
    pub hops: HopList,
}

/// A model: rank at the sink, by batch size.
#[derive(Clone, Debug)]
pub(crate) struct RankModel {
    pub ranks: [Rank; SIZE_MAX + 1],
}

impl RankModel {
    /// Model assumed until a real one exists: one hop that loses a fifth.
    pub(crate) fn assumed() -> RankModel {
        let rank = |size| Rank { mean: 0.8 * size as f64, variance: 0.16 * size as f64 };
        RankModel { ranks: std::array::from_fn(rank) }
    }
}

/// Makes a model for all batches up to the largest.
pub(crate) fn plan(basis: &Basis) -> RankModel {
    let mut plan = RankModel::assumed();
    for (size, rank) in plan.ranks.iter_mut().enumerate().take(basis.size + 1).skip(1) {
        *rank = rank_behind(basis.hops.as_slice(), size);
    }
    plan
}

/// Rank of a batch of `size` after `hops`. Each hop sends `size` packets of it, fresh combinations
/// over a large field. Losses are independent: interleaving makes them so.
fn rank_behind(hops: &[HopLoss], size: usize) -> Rank {
    let mut ranks = [0.0f64; SIZE_MAX + 1];
    ranks[size] = 1.0;
    let unknown = [HopLoss { hop: 0, loss: LOSS_UNKNOWN, burst_mean: 1.0 }];
    for hop in if hops.is_empty() { &unknown[..] } else { hops } {
        // arrived[k] = probability that k of `size` packets arrive.
        let mut arrived = [0.0f64; SIZE_MAX + 1];
        arrived[0] = 1.0;
        let loss = hop.loss.clamp(0.0, 0.95);
        for sent in 0..size {
            for k in (0..=sent).rev() {
                arrived[k + 1] += arrived[k] * (1.0 - loss);
                arrived[k] *= loss;
            }
        }
        // Rank r becomes min(r, arrived).
        let (mut at_least, mut held) = (0.0, 0.0);
        for rank in (0..=size).rev() {
            at_least += arrived[rank];
            let was = ranks[rank];
            ranks[rank] = was * at_least + held * arrived[rank];
            held += was;
        }
    }
    let moment = |power: i32| -> f64 {
        let ranks = ranks[..=size].iter().enumerate();
        ranks.map(|(rank, share)| share * (rank as f64).powi(power)).sum()
    };
    let mean = moment(1);
    Rank { mean, variance: (moment(2) - mean * mean).max(0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_code::theory::{self, Recoding};
    use recoded_gf::FieldOrder;

    fn hops(count: u8, loss: f64) -> Vec<HopLoss> {
        (0..count).map(|hop| HopLoss { hop, loss, burst_mean: 1.0 }).collect()
    }

    #[test]
    fn rank_model_is_the_theory_of_large_fields() {
        for (count, loss, size) in [(1, 0.1, 16), (10, 0.1, 16), (10, 0.2, 16), (50, 0.1, 64)] {
            let hops = hops(count, loss);
            let sent = vec![size; hops.len()];
            let losses = vec![loss; hops.len()];
            let field = FieldOrder::TwoFiftySix;
            let theory = theory::expected_rank(size, field, &sent, &losses, Recoding::Systematic);
            let model = rank_behind(&hops, size).mean / size as f64;
            let expected = *theory.last().unwrap();
            // The model ignores linear dependence: 1/256 per packet at most, and less over hops.
            assert!((model - expected).abs() < 0.01, "{count} hops: {model} for {expected}");
        }
    }
}
