//! Packets per generation of an RLNC source.

use crate::config::params::HOPS_MAX;
use crate::plan::{HopList, LOSS_MARGIN_RELATIVE, LOSS_UNKNOWN};
use recoded_code::theory::{self, LossModel};
use recoded_gf::FieldOrder;
use recoded_wire::coded::SIZE_MAX;

/// Cost of a generation that needs repair, in packets: the repair itself, in proportion to its
/// size, and the round trip that delays everything behind it. At four hops of 10 % this leaves
/// about one generation of 16 in a hundred to repair. A generation of one or two symbols delays
/// less and costs less: over two hops of 10 %, single packets are sent twice and not three times.
const REPAIR_COST_PER_SYMBOL: f64 = 3.0;
const REPAIR_COST_PACKETS: f64 = 48.0;
const REPAIR_COST_SYMBOLS: f64 = 4.0;

/// Every size up to eight has a plan of its own; above, every quarter step.
const SIZE_STEP: (usize, usize) = (5, 4);

/// Inputs of the plans of an RLNC source.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Basis {
    pub generation_size: usize,
    pub field: FieldOrder,
    pub target_loss: f64,
    pub redundancy_max: f64,
    pub repair: bool,
    pub hops: HopList,
}

/// Packets by generation size.
#[derive(Clone, Debug)]
pub(crate) struct GenerationPlan {
    /// For generations of size `index`; 0 if there is no plan.
    pub packets: [u16; SIZE_MAX + 1],
    /// Size of full generations, and the share of them expected to close short.
    pub full: usize,
    pub expected_short: f64,
}

/// Makes plans for all generations up to the full size: from theory for a few sizes, and in
/// proportion for those between, which is a little more than theory requires.
pub(crate) fn plan(basis: &Basis) -> GenerationPlan {
    let full = basis.generation_size.clamp(1, SIZE_MAX);
    let mut plan = GenerationPlan { packets: [0; SIZE_MAX + 1], full, expected_short: 0.0 };
    let mut size = 1;
    while size < full {
        let packets = plan_size(basis, size).0;
        let next = (size + 1).max(size * SIZE_STEP.0 / SIZE_STEP.1).min(full);
        for between in size..next {
            plan.packets[between] = (packets * between).div_ceil(size).min(0xFFFF) as u16;
        }
        size = next;
    }
    let (packets, short) = plan_size(basis, full);
    plan.packets[full] = packets.min(0xFFFF) as u16;
    plan.expected_short = short;
    plan
}

/// Packets for a generation of `size`, and the share of such generations expected to close short.
fn plan_size(basis: &Basis, size: usize) -> (usize, f64) {
    let mut hops = [LossModel { loss: LOSS_UNKNOWN, burst_mean: 1.0 }; HOPS_MAX];
    let heard = basis.hops.as_slice();
    for (hop, heard) in hops.iter_mut().zip(heard) {
        let loss = (heard.loss * (1.0 + LOSS_MARGIN_RELATIVE)).min(0.95);
        *hop = LossModel { loss, burst_mean: heard.burst_mean.max(1.0) };
    }
    let hops = &hops[..heard.len().max(1)];
    let most = most(basis.redundancy_max, size);
    if !basis.repair {
        let target = basis.target_loss;
        return (theory::plan(size, basis.field, hops, target, most), target);
    }
    let share = ((size as f64 + 1.0) / REPAIR_COST_SYMBOLS).min(1.0);
    let cost = REPAIR_COST_PER_SYMBOL * size as f64 + REPAIR_COST_PACKETS * share;
    theory::plan_with_repair(size, basis.field, hops, cost, most)
}

/// Maximum packets for a generation of `size`.
pub(crate) fn most(redundancy_max: f64, size: usize) -> usize {
    ((redundancy_max * size as f64) as usize).clamp(size, 0xFFFF)
}
