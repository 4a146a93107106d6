//! Rate limits of a technique on a card, from the card's issue rates for its instructions.
//!
//! The kernels `probe_*` measure the issue rates; the instructions of a technique were counted in
//! the inner loops of its machine code (nvcc 13.0.88, sm_90a). Count again after a change of a
//! kernel: a rate above its limit shows that a count is stale. The limit includes neither memory
//! nor the code around the inner loop.

use crate::job::Technique;

/// Issue rates of a whole card per second.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct IssueRates {
    /// Instructions of a warp on the integer and logic pipe: the slower result of `probe_permute`
    /// and `probe_logic`.
    pub instructions: f64,
    /// Accesses of 128 bytes to shared memory; `probe_shared` makes two with each of its loads.
    pub accesses: f64,
    /// Binary matrix products of a warp, m16n8k256; 0 where they are emulated or missing.
    pub products: f64,
    /// Binary matrix products of four warps, m64n128k256; 0 where there are none.
    pub wide_products: f64,
}

/// Cost of `BYTE_PRODUCTS` products of a byte by a coefficient, added up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Cost {
    instructions: u32,
    accesses: u32,
    products: u32,
    wide_products: u32,
}

const BYTE_PRODUCTS: u32 = 32_768;

impl Technique {
    /// Most byte products per second: destination bytes times sources. `None` for techniques whose
    /// bank conflicts in shared memory depend on the data.
    #[must_use]
    pub fn limit(&self, rates: &IssueRates) -> Option<f64> {
        let cost = cost(self.name)?;
        let seconds = [
            f64::from(cost.instructions) / rates.instructions,
            f64::from(cost.accesses) / rates.accesses,
            used(cost.products, rates.products),
            used(cost.wide_products, rates.wide_products),
        ];
        let longest = seconds.into_iter().fold(0.0, f64::max);
        Some(f64::from(BYTE_PRODUCTS) / longest)
    }
}

/// Seconds of `count` instructions that not every card has.
fn used(count: u32, rate: f64) -> f64 {
    if count == 0 { 0.0 } else { f64::from(count) / rate }
}

fn cost(technique: &str) -> Option<Cost> {
    let (instructions, accesses, products, wide_products) = match technique {
        // A round takes 8 for a word; random coefficients have 7.0 rounds on average, and all have
        // 8 more.
        "loop" => (16_384, 0, 0, 0),
        "permute" => (1286, 146, 0, 0),
        "permute-narrow" => (1872, 144, 0, 0),
        "four-russians" => (748, 384, 0, 0),
        "bmma" => (120, 96, 64, 0),
        // The code around the products, averaged over the four of them for 128 sources.
        "wgmma" => (53, 48, 0, 1),
        _ => return None,
    };
    Some(Cost { instructions, accesses, products, wide_products })
}

#[cfg(test)]
mod tests {
    use super::IssueRates;
    use crate::job::TECHNIQUES;

    /// 132 SMs at 1.98 GHz with 64 lanes, an access a clock, half a product a clock and one of four
    /// warps in 64 clocks, and 128 sources.
    #[test]
    fn limits_on_a_card_by_its_data_sheet() {
        let clocks = 132.0 * 1.98e9;
        let rates = IssueRates {
            instructions: 2.0 * clocks,
            accesses: clocks,
            products: clocks / 2.0,
            wide_products: clocks / 64.0,
        };
        let expected = [
            ("permute", 104.0),
            ("four-russians", 174.0),
            ("bmma", 523.0),
            ("wgmma", 1045.0),
            ("loop", 8.2),
        ];
        for (name, gigabytes) in expected {
            let technique = TECHNIQUES.iter().find(|known| known.name == name).expect("known");
            let limit = technique.limit(&rates).expect("has a limit") / 128.0 / 1e9;
            assert!((limit / gigabytes - 1.0).abs() < 0.01, "{name}: {limit}");
        }
    }

    #[test]
    fn no_limit_without_the_instruction_is_above_zero() {
        let rates =
            IssueRates { instructions: 1.0, accesses: 1.0, products: 0.0, wide_products: 0.0 };
        for technique in TECHNIQUES.iter().filter(|known| known.name.ends_with("mma")) {
            assert_eq!(technique.limit(&rates), Some(0.0), "{}", technique.name);
        }
    }

    #[test]
    fn techniques_with_conflicts_have_no_limit() {
        let rates =
            IssueRates { instructions: 1.0, accesses: 1.0, products: 1.0, wide_products: 1.0 };
        let tables = TECHNIQUES.iter().filter(|technique| technique.name.starts_with("table"));
        assert!(tables.map(|technique| technique.limit(&rates)).all(|limit| limit.is_none()));
    }
}
