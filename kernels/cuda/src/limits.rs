//! What a technique can reach on a card, from how fast the card issues what it consists of.
//!
//! The kernels `probe_*` measure that; how many instructions a technique takes was counted in the
//! inner loops of its machine code (nvcc 13.0.88, sm_90a). Count again after a change of a kernel:
//! a rate above its limit says that a count is old. Neither memory nor what comes before and after
//! the inner loop is in it.

use crate::job::Technique;

/// How much a whole card issues in a second.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct IssueRates {
    /// Instructions of a warp on the integer and logic pipe: the slower of what `probe_permute` and
    /// `probe_logic` measure.
    pub instructions: f64,
    /// Accesses of 128 bytes to shared memory; `probe_shared` makes two with each of its loads.
    pub accesses: f64,
    /// Binary matrix products of a warp, m16n8k256; 0 where they are emulated or missing.
    pub products: f64,
}

/// What `BYTE_PRODUCTS` products of a byte by a coefficient, added up, take.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Cost {
    instructions: u32,
    accesses: u32,
    products: u32,
}

const BYTE_PRODUCTS: u32 = 16_384;

impl Technique {
    /// Byte products a second at most: destination bytes times sources. `None` for those whose
    /// threads meet in banks of shared memory as the data has it.
    #[must_use]
    pub fn limit(&self, rates: &IssueRates) -> Option<f64> {
        let cost = cost(self.name)?;
        let seconds = [
            f64::from(cost.instructions) / rates.instructions,
            f64::from(cost.accesses) / rates.accesses,
            if cost.products == 0 { 0.0 } else { f64::from(cost.products) / rates.products },
        ];
        let longest = seconds.into_iter().fold(0.0, f64::max);
        Some(f64::from(BYTE_PRODUCTS) / longest)
    }
}

fn cost(technique: &str) -> Option<Cost> {
    let (instructions, accesses, products) = match technique {
        // A round takes 8 for a word; random coefficients have 7.0 rounds on average, and all have
        // 8 more.
        "loop" => (8192, 0, 0),
        "permute" => (643, 73, 0),
        "permute-narrow" => (936, 72, 0),
        "four-russians" => (374, 192, 0),
        "bmma" => (60, 48, 32),
        _ => return None,
    };
    Some(Cost { instructions, accesses, products })
}

#[cfg(test)]
mod tests {
    use super::IssueRates;
    use crate::job::TECHNIQUES;

    /// 132 SMs at 1.98 GHz with 64 lanes, an access a clock and half a product a clock, and 128
    /// sources: what README.md says.
    #[test]
    fn limits_on_a_card_by_its_data_sheet() {
        let clocks = 132.0 * 1.98e9;
        let rates =
            IssueRates { instructions: 2.0 * clocks, accesses: clocks, products: clocks / 2.0 };
        let expected =
            [("permute", 104.0), ("four-russians", 174.0), ("bmma", 523.0), ("loop", 8.2)];
        for (name, gigabytes) in expected {
            let technique = TECHNIQUES.iter().find(|known| known.name == name).expect("known");
            let limit = technique.limit(&rates).expect("has a limit") / 128.0 / 1e9;
            assert!((limit / gigabytes - 1.0).abs() < 0.01, "{name}: {limit}");
        }
    }

    #[test]
    fn no_limit_without_the_instruction_is_above_zero() {
        let rates = IssueRates { instructions: 1.0, accesses: 1.0, products: 0.0 };
        let technique = TECHNIQUES.iter().find(|known| known.name == "bmma").expect("known");
        assert_eq!(technique.limit(&rates), Some(0.0));
    }

    #[test]
    fn techniques_with_conflicts_have_no_limit() {
        let rates = IssueRates { instructions: 1.0, accesses: 1.0, products: 1.0 };
        let tables = TECHNIQUES.iter().filter(|technique| technique.name.starts_with("table"));
        assert!(tables.map(|technique| technique.limit(&rates)).all(|limit| limit.is_none()));
    }
}
